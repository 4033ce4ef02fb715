package explore

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
)

// The joint rule, as the owner's loop drives it.

func (w *world) admitLearners(n *node) {
	if n.heard.a.Pending != nil || !n.copy.Serving() {
		return
	}
	if n.change != nil {
		w.propose(n)
		return
	}
	floor := n.copy.Floor()
	for i := range n.feeds {
		f := &n.feeds[i]
		if f.learner && f.Standing() && floor > 0 && f.Durable() >= floor {
			w.beginChange(n, f)
			return
		}
	}
}

func (w *world) beginChange(n *node, f *feed) {
	a := n.heard.a
	next := catalog.Membership{Partition: a.Partition, Version: a.Version, Epoch: a.Epoch, Policy: a.Policy}
	for _, m := range a.Followers {
		if m.Node != f.Node {
			next.Followers = append(next.Followers, m)
		}
	}
	next.Followers = append(next.Followers, catalog.Member{Node: f.Node, Store: f.Store})
	for _, m := range a.Learners {
		if m.Store != f.Store {
			next.Learners = append(next.Learners, m)
		}
	}
	c := &change{membership: next, set: partition.Set{W: wOf(a, 1+len(next.Followers))}}
	for _, m := range next.Followers {
		c.set.Followers = append(c.set.Followers, m.Store)
	}
	n.change, n.asked = c, false
	w.resets(n)
	w.propose(n)
}

func (w *world) propose(n *node) {
	c := n.change
	if n.asked || !n.copy.Open() {
		return
	}
	m := c.membership
	m.Floor = n.copy.Floor()
	m.Evidence = []catalog.Evidence{{Store: n.instance().Store, Position: n.copy.Durable().Position}}
	for i := range n.feeds {
		if f := &n.feeds[i]; slices.Contains(c.set.Followers, f.Store) {
			m.Evidence = append(m.Evidence, catalog.Evidence{Store: f.Store, Position: f.Durable()})
		}
	}
	enough := 0
	for _, e := range m.Evidence {
		if e.Position >= m.Floor {
			enough++
		}
	}
	if enough < c.set.W {
		return
	}
	n.asked = true
	w.tell("proposes members")
	w.proposals = append(slices.Clone(w.proposals), proposal{n.index, n.boot, c, m})
}

// decide has the catalog decide on a proposal. What it says may be lost; then the owner asks again in time.
func (w *world) decide(i int, heard bool) {
	p := w.proposals[i]
	w.proposals = slices.Delete(slices.Clone(w.proposals), i, i+1)
	next, refused := w.x.apply(w.cat, catalog.ChangeMembers(p.m))
	w.setCatalog(next)
	if refused != nil {
		w.tell("refused: %v", refused)
	}
	n := w.nodes[p.of]
	if !n.up || n.boot != p.boot || n.change != p.change {
		return
	}
	n = w.mine(p.of)
	switch {
	case !heard:
		n.asked = false
		w.propose(n)
	case refused != nil && refused.Code != catalog.VersionMoved && refused.Code != catalog.TransitionMoved:
		n.change, n.asked = nil, false
		w.resets(n)
	}
	w.flush(n)
}
