package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/consensus"
)

// loss asks the leader's controller about the loss of a queue's missing copies, from a node that lives.
func (c *cluster) loss(i int, name string, m protocol.LossAsk) (a protocol.LossAnswer) {
	c.t.Helper()
	m.Partition = c.assignment(i, name).Partition
	answered := false
	c.leading(i).n.answerLoss(m, func(x protocol.LossAnswer) { a, answered = x, true })
	c.await("an answer about the loss", func() bool { return answered })
	return a
}

// leading is the node that leads the catalog, as another knows.
func (c *cluster) leading(i int) *world {
	c.t.Helper()
	var s consensus.Status
	c.await("a leader", func() bool {
		answered := false
		c.nodes[i].n.consensus.Status(func(x consensus.Status) { s, answered = x, true })
		return c.sim.RunUntil(func() bool { return answered }, patience) && s.Leader != 0
	})
	at := slices.IndexFunc(c.nodes, func(w *world) bool { return consensus.ID(w.n.Local().Store) == s.Leader })
	return c.nodes[at]
}

// isolate cuts a node off from all others, or ends that.
func (c *cluster) isolate(i int) {
	for k, w := range c.nodes {
		if k != i {
			c.net.Cut(w.name, c.nodes[i].name)
			c.net.Cut(c.nodes[i].name, w.name)
		}
	}
}

func (c *cluster) index(node string) int {
	return slices.IndexFunc(c.nodes, func(w *world) bool { return w.name == node })
}

func (c *cluster) propose(i int, items ...catalog.Item) {
	c.t.Helper()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		c.t.Fatal(err)
	}
	done := false
	c.nodes[i].n.consensus.Propose(cmd, func(r catalog.Result, err error) {
		if done = true; err != nil || r.Err() != nil {
			c.t.Errorf("propose: %v, %v", err, r.Err())
		}
	})
	c.await("the proposal", func() bool { return done })
}

// lossy is a cluster of five with a queue on three of them, none of which is the first. The first and the other take no copies.
func lossy(t *testing.T, seed uint64) (c *cluster, q string, owner, follower, survivor int) {
	c = newCluster(t, seed, 5)
	c.await("five voters", func() bool { return c.voters(0) == 5 })
	u := c.nodes[0].login(0)
	for i := range 40 {
		q = fmt.Sprint("q", i)
		u.declare(durable(q))
		a := c.assignment(0, q)
		if a.Owner.Node == "n1" || slices.ContainsFunc(a.Followers, func(m catalog.Member) bool { return m.Node == "n1" }) {
			continue
		}
		owner, follower, survivor = c.index(a.Owner.Node), c.index(a.Followers[0].Node), c.index(a.Followers[1].Node)
		for k, w := range c.nodes {
			if k != owner && k != follower && k != survivor {
				c.propose(0, catalog.DrainNode(w.name, w.n.Local().Store, true))
			}
		}
		return c, q, owner, follower, survivor
	}
	t.Fatal("every queue has a copy on the first node")
	return
}

// bereft is a queue of which one copy is left, and that behind: the two others have confirmed more.
type bereft struct {
	*cluster
	q                         string
	u                         *user
	owner, follower, survivor int
	lost                      []string // nodes, sorted
	cutOff                    bool     // they still run, out of reach
}

const keptMessages = 30

// bereave has so many messages confirmed that the survivor lacks, and then takes the others away.
func bereave(t *testing.T, seed uint64, messages int, cutOff bool) *bereft {
	b := &bereft{cutOff: cutOff}
	b.cluster, b.q, b.owner, b.follower, b.survivor = lossy(t, seed)
	b.u = b.nodes[0].login(0)
	for i := range keptMessages {
		b.u.publish(b.q, fmt.Sprint("m", i))
	}
	b.sim.RunFor(time.Second)
	b.isolate(b.survivor)
	for i := range messages {
		b.u.publish(b.q, fmt.Sprint("lost", i))
	}
	b.sim.RunFor(3 * time.Second)
	b.lost = []string{b.nodes[b.owner].name, b.nodes[b.follower].name}
	slices.Sort(b.lost)
	if cutOff {
		b.net.Heal()
		b.apart()
	} else {
		b.kill(b.owner)
		b.kill(b.follower)
		b.net.Heal()
	}
	b.await("an answer of the survivor", func() bool {
		return b.loss(0, b.q, protocol.LossAsk{}).Candidate.Node == b.nodes[b.survivor].name
	})
	return b
}

// apart cuts the two nodes off that are to be lost, but not from each other.
func (b *bereft) apart() {
	for _, x := range b.nodes {
		for _, y := range b.nodes {
			if slices.Contains(b.lost, x.name) != slices.Contains(b.lost, y.name) {
				b.net.Cut(x.name, y.name)
			}
		}
	}
}

func (b *bereft) back() {
	if b.cutOff {
		b.net.Heal()
		return
	}
	b.restart(b.owner)
	b.restart(b.follower)
}

// TestALossIsAcceptedAndTheCopiesThatReturnFollow: an operator goes on with a copy that is behind. The others come back longer, with states and
// snapshots of what was given up, as new runs or as the owner and follower that they still think they are, and follow.
func TestALossIsAcceptedAndTheCopiesThatReturnFollow(t *testing.T) {
	for name, x := range map[string]struct {
		messages int
		cutOff   bool
	}{"killed": {20, false}, "killed with snapshots": {200, false}, "cut off": {20, true}, "cut off with snapshots": {200, true}} {
		t.Run(name, func(t *testing.T) {
			b := bereave(t, 11, x.messages, x.cutOff)
			plan, waited := b.loss(0, b.q, protocol.LossAsk{}), b.assignment(0, b.q).Version
			done := b.loss(0, b.q, protocol.LossAsk{Execute: true, Plan: plan.Hash, Reason: "two disks are gone", Stopped: b.lost})
			if done.Refused != "" || done.Transition == "" {
				t.Fatalf("not accepted: %+v", done)
			}
			for i := range 10 {
				b.u.publish(b.q, fmt.Sprint("n", i))
			}
			a := b.assignment(0, b.q)
			start := a.Starts[len(a.Starts)-1]
			if a.Owner.Node != b.nodes[b.survivor].name || a.Epoch != 2 || !start.Loss.Accepted || start.Position != plan.Position || start.Loss.To != plan.To {
				t.Fatalf("the assignment is %+v", a)
			}
			if a.Version != waited+1 {
				t.Errorf("the assignment was changed %d times", a.Version-waited)
			}
			b.back()
			b.await("two followers", func() bool { return len(b.assignment(0, b.q).Followers) == 2 })
			b.sim.RunFor(3 * time.Second)
			b.same(b.q, keptMessages+10)
			b.recorded(done, plan)

			// An ordinary change of owner follows: what the returned copies hold is the new history.
			b.kill(b.survivor)
			b.await("another owner", func() bool { a := b.assignment(0, b.q); return a.Epoch == 3 && a.Pending == nil })
			b.u.publish(b.q, "last")
			got := b.nodes[0].login(1).consume(b.q, keptMessages+10+1)
			if got[keptMessages-1] != fmt.Sprint("m", keptMessages-1) || got[keptMessages] != "n0" || got[keptMessages+10] != "last" {
				t.Fatalf("consumed %v", got)
			}
		})
	}
}

// recorded checks the evidence of an accepted loss, and that what returned copies held beyond it is kept.
func (b *bereft) recorded(done, plan protocol.LossAnswer) {
	b.t.Helper()
	e := b.evidenceOf(0, b.q)[0]
	if e.Workflow != evidence.LossWindow || e.ID != done.Transition || e.Start.Position != plan.Position || e.Floor.Position != plan.To || len(e.Cuts) != 2 {
		b.t.Fatalf("the record is %+v", e)
	}
	for _, x := range e.Cuts {
		if x.From != plan.Position || x.To < plan.To || !x.Quarantined {
			b.t.Errorf("cut %+v", x)
		}
	}
	b.proven(0, b.q)
}

// TestALossIsAcceptedOnlyAsItWasPlanned: the plan says what is gone, as the owner had reported; nothing is given up by another plan, nor while a
// node may run that was not named.
func TestALossIsAcceptedOnlyAsItWasPlanned(t *testing.T) {
	b := bereave(t, 11, 200, false)
	plan := b.loss(0, b.q, protocol.LossAsk{})
	if plan.Offset != keptMessages || plan.To-plan.Position != 200 || plan.FloorBy != b.nodes[b.owner].name || !slices.Equal(plan.Missing, b.lost) ||
		!slices.Equal(plan.Fence, b.lost) {
		t.Fatalf("the plan is %+v", plan)
	}
	accept := protocol.LossAsk{Execute: true, Plan: plan.Hash, Reason: "two disks are gone", Stopped: b.lost}
	another, running := accept, accept
	another.Plan, running.Stopped = "another", b.lost[:1]
	if a := b.loss(0, b.q, another); a.Transition != "" || !a.Moved {
		t.Fatalf("by another plan: %+v", a)
	}
	if a := b.loss(0, b.q, running); a.Transition != "" || !strings.Contains(a.Refused, b.lost[1]+" may still run") {
		t.Fatalf("while a node may run: %+v", a)
	}
	b.restart(b.follower)
	b.await("an owner without a loss", func() bool { a := b.assignment(0, b.q); return a.Epoch == 2 && a.Pending == nil })
	if a := b.loss(0, b.q, accept); a.Transition != "" || a.Refused == "" {
		t.Fatalf("after a missing node is back: %+v", a)
	}
	if a := b.assignment(0, b.q); a.Starts[len(a.Starts)-1].Loss.Accepted || a.Starts[len(a.Starts)-1].Position != plan.To {
		t.Fatalf("the assignment is %+v", a)
	}
}

// TestAPlanKnowsWhatTheLostOwnerConfirmedAfterTheControllerWasLostToo: owners tell every node, for the controller may be lost with them.
func TestAPlanKnowsWhatTheLostOwnerConfirmedAfterTheControllerWasLostToo(t *testing.T) {
	b := bereave(t, 12, 20, false)
	first := b.leading(0)
	b.kill(b.index(first.name))
	other := slices.IndexFunc(b.nodes, func(w *world) bool {
		return w != first && !slices.Contains(b.lost, w.name) && w != b.nodes[b.survivor]
	})
	b.restart(b.index(first.name)) // so that there is a majority
	b.await("another leader", func() bool { return b.leading(other) != first })
	var plan protocol.LossAnswer
	b.await("a plan that knows it", func() bool { // the others pass it on when they have found the new controller
		plan = b.loss(other, b.q, protocol.LossAsk{})
		return plan.Candidate.Node == b.nodes[b.survivor].name && plan.To > plan.Position
	})
	if plan.To-plan.Position != 20 || plan.FloorBy != b.nodes[b.owner].name {
		t.Fatalf("the plan is %+v", plan)
	}
}

// TestAnOwnerWithTooFewFollowersGoesOnWithLess: it serves and can confirm nothing. Nothing is lost, and the followers learn when they are back.
func TestAnOwnerWithTooFewFollowersGoesOnWithLess(t *testing.T) {
	c, q, owner, follower, survivor := lossy(t, 12)
	u := c.nodes[0].login(0)
	u.publish(q, "a", "b")
	c.sim.RunFor(time.Second)
	c.kill(follower)
	c.kill(survivor)
	var plan protocol.LossAnswer
	c.await("a plan", func() bool { plan = c.loss(0, q, protocol.LossAsk{}); return plan.Against == "" })
	if plan.Candidate != plan.Owner || plan.To != plan.Position || len(plan.Missing) != 2 || len(plan.Fence) != 0 {
		t.Fatalf("the plan is %+v", plan)
	}
	done := c.loss(0, q, protocol.LossAsk{Execute: true, Plan: plan.Hash, Reason: "no more nodes"})
	a := c.assignment(0, q)
	if done.Transition == "" || a.Owner != c.nodes[owner].n.Local() || a.Epoch != 2 || len(a.Followers) != 0 {
		t.Fatalf("%+v; the assignment is %+v", done, a)
	}
	u.publish(q, "c")
	c.restart(follower)
	c.restart(survivor)
	c.await("two followers", func() bool { return len(c.assignment(0, q).Followers) == 2 })
	c.sim.RunFor(3 * time.Second)
	c.same(q, 3)
}

// same checks that three copies of a queue hold the same, and so many messages.
func (c *cluster) same(name string, messages uint64) {
	c.t.Helper()
	copies := c.copies(name)
	held := 0
	for _, s := range copies {
		if s.Role == "none" {
			continue
		}
		if held++; s.Durable != copies[0].Durable || s.Confirmed != s.Durable || s.Offset != messages || s.State != "serving" {
			c.t.Fatalf("copies %+v", copies)
		}
	}
	if held != 3 {
		c.t.Fatalf("copies %+v", copies)
	}
}
