package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/front/admin"
)

// gatherTimeout bounds how long other nodes are waited for. One that does not answer by then is shown as such.
const gatherTimeout = 2 * time.Second

const (
	healthy       = "ok"
	unknownHealth = "unknown"
	former        = "former" // the role of a copy that the catalog names no more
)

// gathered is what the nodes of the cluster say of themselves and their copies.
type gathered struct {
	answers map[string]protocol.StatusAnswer
	copies  map[string]map[ident.Partition]*protocol.CopyStatus // by node
	silent  map[string]string                                   // who did not answer, and why
	ahead   map[string]int64                                    // by how many milliseconds a node's clock is ahead for sure
	waits   map[ident.Partition]control.Waiting                 // transitions that cannot go on, as the controller knows
}

func (g *gathered) add(node string, a protocol.StatusAnswer) {
	if g.answers == nil {
		g.answers, g.copies = map[string]protocol.StatusAnswer{}, map[string]map[ident.Partition]*protocol.CopyStatus{}
		g.waits = map[ident.Partition]control.Waiting{}
	}
	by := make(map[ident.Partition]*protocol.CopyStatus, len(a.Items))
	for i := range a.Items {
		by[a.Items[i].Partition] = &a.Items[i]
	}
	for i := range a.Waits {
		g.waits[a.Waits[i].Partition] = waitingOf(&a.Waits[i])
	}
	g.answers[node], g.copies[node] = a, by
}

// gather asks every node that can be reached, all at once.
func (b *backend) gather(ctx context.Context, q protocol.StatusAsk) gathered {
	type timed struct {
		protocol.StatusAnswer
		asked int64
	}
	g := gathered{ahead: map[string]int64{}}
	wall := func() int64 { return b.n.env.Clock.Wall().UnixMilli() }
	g.silent = askAll(ctx, b, func(node string, done func(timed, bool)) {
		asked := wall()
		b.n.statusOf(node, q, func(a protocol.StatusAnswer, ok bool) { done(timed{a, asked}, ok) })
	}, func(node string, x timed) {
		g.add(node, x.StatusAnswer)
		g.ahead[node] = ahead(x.Wall, x.asked, wall())
	})
	return g
}

// askAll asks every node that can be reached, all at once, and has take each answer, one after the other. It gives those that did not answer
// within gatherTimeout, and why.
func askAll[A any](ctx context.Context, b *backend, ask func(node string, done func(a A, ok bool)), take func(node string, a A)) (silent map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	n := b.n
	silent = map[string]string{}
	var names []string
	n.View(func(v *catalog.View) { // which holds the lock of sessions
		names = append(names, n.local.Node)
		for _, x := range v.Nodes() {
			if x.Name == n.local.Node {
				continue
			}
			if _, up := n.sessions[x.Name]; up {
				names = append(names, x.Name)
				continue
			}
			silent[x.Name] = n.whySilent(x.Name)
		}
	})
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() {
			x, err := await(ctx, func(done func(told[A])) {
				ask(name, func(a A, ok bool) { done(told[A]{a, ok}) })
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				silent[name] = fmt.Sprintf("it did not answer within %v", gatherTimeout)
			case !x.ok:
				silent[name] = "it went away before it answered"
			default:
				take(name, x.a)
			}
		})
	}
	all.Wait()
	return silent
}

// told is an answer, or that there is none.
type told[A any] struct {
	a  A
	ok bool
}

// whySilent says why there is no session with a node. The lock is held.
func (n *Node) whySilent(node string) string {
	why := n.unreachable[node]
	if run, ok := n.reaches[node]; why == "" && ok {
		why = run.Cause + ": " + run.Reason
	}
	if why == "" {
		return "it was never reached"
	}
	return why
}

// ahead is by how much a clock that said wall is ahead of one that said asked before and answered after: what is sure of it, and 0 where
// nothing is. All are milliseconds.
func ahead(wall, asked, answered int64) int64 {
	switch {
	case wall > answered:
		return wall - answered
	case wall < asked:
		return wall - asked
	}
	return 0
}

// stateOf is what a partition does for clients, which is its owner's to say; and why it does not serve.
func (g *gathered) stateOf(a *catalog.Assignment) (admin.State, string) {
	owner := a.Owner.Node
	s := g.copies[owner][a.Partition]
	answer, answered := g.answers[owner]
	wait, waits := g.waits[a.Partition]
	serves := s != nil && answer.From == a.Owner && s.State == string(replica.Serving)
	switch {
	case waits && wait.Kind == control.WaitTruth:
		return admin.Blocked, wait.String()
	case waits:
		return admin.Waiting, wait.String()
	case serves && a.Pending == nil:
		return admin.Serving, s.Reason
	case serves: // until it is sealed
		return admin.Serving, "a change of its owner is under way: " + a.Pending.Cause
	case owner == "":
		return admin.Waiting, "it has no owner yet"
	case a.Pending != nil:
		return admin.Moving, "another owner is being chosen: " + a.Pending.Cause
	case !answered && g.silent[owner] != "":
		return admin.Waiting, fmt.Sprintf("its owner's node %s does not answer here (%s); another copy takes over when the controller misses it too", owner,
			g.silent[owner])
	case !answered:
		return admin.Recovering, "" // nobody was asked
	case answer.From.Store != a.Owner.Store:
		return admin.Moving, fmt.Sprintf("its owner's data directory on node %s is gone; another copy takes over", owner)
	case answer.From != a.Owner:
		return admin.Moving, fmt.Sprintf("node %s was started again; a copy takes over under a new epoch", owner)
	case s == nil:
		return admin.Recovering, ""
	}
	return admin.State(s.State), s.Reason
}

// copiesOf are a partition's copies: those that the catalog names, whether their nodes answered or not, and others that nodes hold. unfit
// says why one could not own.
func (g *gathered) copiesOf(a *catalog.Assignment, unfit func(a *catalog.Assignment, node string) string) []admin.Copy {
	out := []admin.Copy{}
	named := map[string]bool{}
	tail, known := uint64(0), false
	if s := g.copies[a.Owner.Node][a.Partition]; s != nil {
		tail, known = s.Position, true
	}
	add := func(node, role string) {
		if node == "" || named[node] {
			return
		}
		named[node] = true
		c := admin.Copy{Node: node, Role: role, WhyNot: unfit(a, node)}
		c.CouldLead = c.WhyNot == ""
		answer, answered := g.answers[node]
		s := g.copies[node][a.Partition]
		switch {
		case !answered:
			c.Health = "unreachable"
		case s == nil:
			c.Health = "missing"
		default:
			c.Role, c.Position, c.Offset, c.Durable, c.Health = s.Role, s.Position, s.Offset, s.Durable, healthOf(&answer)
			c.Moved, c.Kept, c.Bytes = s.Moved, s.Kept, uint64(max(s.Bytes, 0))
			if node != a.Owner.Node && (s.State == string(replica.Recovering) || s.State == string(replica.Blocked)) {
				c.Reason = s.Reason
			}
			if known && tail > s.Position {
				c.Lag = tail - s.Position
			}
			if damaged(s, &answer) {
				c.Health = "damaged"
			}
		}
		out = append(out, c)
	}
	add(a.Owner.Node, "owner")
	for _, m := range a.Followers {
		add(m.Node, "follower")
	}
	for _, m := range a.Learners {
		add(m.Node, "learner")
	}
	var others []string
	for node, held := range g.copies {
		if held[a.Partition] != nil {
			others = append(others, node)
		}
	}
	slices.Sort(others)
	for _, node := range others {
		if !named[node] {
			add(node, former)
			last := &out[len(out)-1]
			last.Role, last.CouldLead, last.WhyNot = former, false, "it is none of the partition's copies any more"
		}
	}
	return out
}

func healthOf(a *protocol.StatusAnswer) string {
	if a.Health == "" {
		return healthy
	}
	return a.Health
}

// damaged reports whether a copy failed its own checks. Once a journal has closed every copy is blocked, and nothing is said of what it
// holds.
func damaged(s *protocol.CopyStatus, of *protocol.StatusAnswer) bool {
	return s.State == string(replica.Blocked) && !of.Closed
}
