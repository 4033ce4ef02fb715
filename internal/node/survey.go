package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/controller"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
)

// noteHealth keeps since when the store is unwell.
func (n *Node) noteHealth(h storage.Health) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch sick := h.Class != storage.Healthy || h.Closed || h.Blocked; {
	case !sick:
		n.unwell = 0
	case n.unwell == 0:
		n.unwell = n.env.Clock.Wall().UnixMilli()
	}
}

// ownStatus says how this node is, without its copies.
func (n *Node) ownStatus() protocol.StatusAnswer {
	h := n.store.Health()
	out := protocol.StatusAnswer{
		From: n.local, PID: uint64(n.cfg.PID), Closed: h.Closed, Blocked: h.Blocked, Reason: h.Reason, Free: h.Free,
		Wall: n.env.Clock.Wall().UnixMilli(),
	}
	out.Health = n.healthWord(h)
	if m, ok := n.mesh.(interface{ Expires() time.Time }); ok {
		out.CertificateEnds = m.Expires().UnixMilli()
	}
	if left := n.manager.LeaseEnds() - n.env.Clock.Mono(); n.mesh != nil && left > 0 {
		out.Lease = uint64(left.Milliseconds())
	}
	n.mu.Lock()
	out.Since = n.unwell
	n.mu.Unlock()
	return out
}

func waitStatus(w *controller.Waiting) protocol.WaitStatus {
	return protocol.WaitStatus{
		Partition: w.Partition, Transition: w.Transition, Kind: uint64(w.Kind), Since: w.Since, Answers: uint64(w.Answers),
		Needed: uint64(w.Needed), Missing: w.Missing, Floor: w.Floor, FloorBy: w.FloorBy, Reason: w.Reason,
	}
}

func waitingOf(w *protocol.WaitStatus) control.Waiting {
	return control.Waiting{
		Partition: w.Partition, Transition: w.Transition, Kind: control.WaitKind(w.Kind), Since: w.Since, Answers: int(w.Answers),
		Needed: int(w.Needed), Missing: w.Missing, Floor: w.Floor, FloorBy: w.FloorBy, Reason: w.Reason,
	}
}

const (
	// stepTime bounds how long a check waits for copies that are on their way to hold what their owners had when it began: under load a
	// copy is always a little behind, by what is being synced there.
	stepTime = time.Second
	// glance is the same of a look at how things stand: what a copy lacks for the length of a sync is not worth telling.
	glance = 100 * time.Millisecond
	// stepAgain is how often they are asked again.
	stepAgain = 20 * time.Millisecond
)

// survey asks all nodes how they and their copies are, and has use judge while the catalog is held still, which is as new as its leader's
// was at the call, or k.NoQuorum says that it may not be. Copies that do not hold what their owner had are asked again, until they do, but
// once at least and for most at most: none shall seem to lack what only came between two answers.
func (b *backend) survey(ctx context.Context, most time.Duration, use func(g *gathered, k control.Known)) error {
	k := control.Known{Now: b.n.env.Clock.Wall().UnixMilli(), Ends: map[ident.Partition]control.End{}}
	c, err := b.catalogStatus(ctx)
	if err != nil {
		return err
	}
	unsure := ""
	if c.Leader != 0 { // as this node believes: a leader that cannot reach a majority finds out a little later
		unsure = b.unsure(ctx)
	}
	g := b.gather(ctx, protocol.StatusAsk{All: true})
	all := b.resources()
	for _, r := range all {
		for _, a := range r.Partitions {
			if owner := g.copies[a.Owner.Node][a.Partition]; owner != nil {
				k.Ends[a.Partition] = control.End{Position: owner.Position, Confirmed: owner.Confirmed}
			}
		}
	}
	b.awaitStep(ctx, &g, all, k.Ends, b.n.env.Clock.Mono()+most)
	b.n.View(func(v *catalog.View) {
		k.View = v
		k.Voters = votersOf(v, &c)
		k.NoQuorum = unsure
		if c.Leader == 0 {
			k.NoQuorum = b.noLeader(k.Voters)
		}
		k.VotersDue = votersDue(v, &c, &g)
		for _, p := range slices.SortedFunc(maps.Keys(g.waits), ident.Partition.Compare) {
			k.Waits = append(k.Waits, g.waits[p])
		}
		for _, x := range v.Nodes() {
			b.n.known(&g, x, &k)
		}
		use(&g, k)
	})
	return nil
}

// awaitStep asks copies again until they hold what their owners had, or until a time.
func (b *backend) awaitStep(ctx context.Context, g *gathered, all []*catalog.Resource, ends map[ident.Partition]control.End, until time.Duration) {
	for {
		behind := g.behind(all, ends)
		if len(behind) == 0 {
			return
		}
		g.update(b.gather(ctx, protocol.StatusAsk{Partitions: behind}))
		if b.n.env.Clock.Mono() >= until {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(stepAgain):
		}
	}
}

// behind are the partitions with a follower that takes what its owner sends, and does not hold yet what that had.
func (g *gathered) behind(all []*catalog.Resource, ends map[ident.Partition]control.End) (out []ident.Partition) {
	for _, r := range all {
		for _, a := range r.Partitions {
			owner := g.copies[a.Owner.Node][a.Partition]
			if owner == nil {
				continue
			}
			fed := func(node string) bool {
				return slices.ContainsFunc(owner.Feeds, func(f protocol.FeedStatus) bool { return f.Node == node })
			}
			if slices.ContainsFunc(a.Followers, func(m catalog.Member) bool {
				x := g.copies[m.Node][a.Partition]
				return x != nil && x.Durable < ends[a.Partition].Position && fed(m.Node)
			}) {
				out = append(out, a.Partition)
			}
		}
	}
	return out
}

// update takes newer words of some copies.
func (g *gathered) update(newer gathered) {
	for node, copies := range newer.copies {
		have := g.copies[node]
		for p, s := range copies {
			if have != nil && have[p] != nil && have[p].Durable <= s.Durable {
				have[p] = s
			}
		}
	}
}

// votersOf are the nodes that vote on the catalog; one that is not in it any more is "".
func votersOf(v *catalog.View, c *consensus.Status) []string {
	var out []string
	for _, id := range c.Voters {
		name := ""
		for _, x := range v.Nodes() {
			if consensus.ID(x.Store) == id {
				name = x.Name
			}
		}
		out = append(out, name)
	}
	return out
}

// votersDue says which change of the catalog's members its leader should make next, seen from here.
func votersDue(v *catalog.View, c *consensus.Status, g *gathered) string {
	var seats []control.Seat
	for _, x := range v.Nodes() {
		_, live := g.answers[x.Name]
		seats = append(seats, control.Seat{ID: consensus.ID(x.Store), Zone: x.Zone, Live: live, Draining: x.Draining})
	}
	return control.Voters(c.Leader, seats, c.Voters, c.Learners).String()
}

// unsure asks the catalog's leader to show that it leads, and so makes sure that this node knows what was decided before. It says why that
// failed.
func (b *backend) unsure(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	failed, err := await(ctx, b.n.consensus.Barrier)
	switch {
	case err != nil:
		return fmt.Sprintf("the catalog's leader did not answer within %v, or reaches no majority", gatherTimeout)
	case failed != nil:
		return failed.Error()
	}
	return ""
}

// noLeader says how far this node is from a leader of the catalog.
func (b *backend) noLeader(voters []string) string {
	reached := 0
	for _, name := range voters {
		if _, up := b.n.sessions[name]; up || name == b.n.local.Node {
			reached++
		}
	}
	return fmt.Sprintf("no node leads the catalog: node %s reaches %d of %d voters, its own included", b.n.local.Node, reached, len(voters))
}

// known adds what a node of the catalog says of itself and its copies.
func (n *Node) known(g *gathered, x *catalog.Node, k *control.Known) {
	a, live := g.answers[x.Name]
	s := control.NodeState{
		Node: x.Name, Live: live, Closed: a.Closed, Blocked: a.Blocked, Reason: a.Reason, Since: a.Since, Free: a.Free,
		CertificateEnds: a.CertificateEnds, Ahead: g.ahead[x.Name],
	}
	if !live {
		s.Reason, s.Since = g.silent[x.Name], n.lost[x.Name]
	}
	s.Aside = asideOf(&a)
	k.Nodes = append(k.Nodes, s)
	for i := range a.Items {
		if c := g.copies[x.Name][a.Items[i].Partition]; c != nil {
			k.Copies = append(k.Copies, copyState(&a, c))
		}
	}
}

// asideStatus is what a node has put aside in files.
func asideStatus(a archive.Aside) (out []protocol.AsideStatus) {
	add := func(kind control.AsideKind, p archive.Pile) {
		if p.Files > 0 {
			out = append(out, protocol.AsideStatus{Kind: string(kind), Files: uint64(p.Files), Bytes: uint64(p.Bytes)})
		}
	}
	add(control.CutEnds, a.Ends)
	add(control.OldCatalogs, a.Catalogs)
	return out
}

// asideOf is all that a node says to have put aside: files, and copies of what was deleted by force.
func asideOf(a *protocol.StatusAnswer) (out []control.Aside) {
	for _, x := range a.Aside {
		out = append(out, control.Aside{Kind: control.AsideKind(x.Kind), Count: x.Files, Bytes: x.Bytes})
	}
	copies := control.Aside{Kind: control.DeletedCopies}
	for i := range a.Items {
		if s := &a.Items[i]; s.Role == replica.SetAside {
			copies.Count++
			copies.Bytes += uint64(max(s.Bytes, 0))
		}
	}
	if copies.Count > 0 {
		out = append(out, copies)
	}
	return out
}

func copyState(a *protocol.StatusAnswer, s *protocol.CopyStatus) control.CopyState {
	x := control.CopyState{
		Partition: s.Partition, Node: a.From.Node, Run: a.From, Epoch: s.Epoch, Durable: s.Durable, DeadLetters: s.DeadLetters, Stuck: s.Stuck,
		Learns: s.Moved != 0, Moved: s.Moved, Serves: s.Role == "owner" && s.State == string(replica.Serving), Reason: s.Reason,
	}
	if damaged(s, a) {
		x.Damaged = s.Reason
	}
	x.Anew = s.Role == "follower" && s.State == string(replica.Recovering) && s.Moved != 0
	for _, f := range s.Feeds {
		x.Feeds = append(x.Feeds, f.Node)
	}
	slices.Sort(x.Feeds)
	return x
}
