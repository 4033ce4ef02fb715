package explore

import (
	"errors"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
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
	c, err := partition.Admission(a, a.Policy, ident.Queue, catalog.Member{Node: f.Node, Store: f.Store})
	if err != nil {
		panic(err)
	}
	n.change = c
	n.changes++
	w.resets(n)
	w.propose(n)
}

func (w *world) propose(n *node) {
	m, ok := n.change.Propose(&n.copy, n.instance().Store, func(s ident.StoreID) (uint64, bool) {
		for i := range n.feeds {
			if n.feeds[i].Store == s {
				return n.feeds[i].Durable(), true
			}
		}
		return 0, false
	})
	if !ok {
		return
	}
	w.tell("proposes members")
	w.proposals = append(slices.Clone(w.proposals), proposal{n.index, n.boot, n.changes, m})
}

// concerns reports whether an owner waits for the answer to a proposal.
func (w *world) concerns(p *proposal) bool {
	n := w.nodes[p.of]
	return n.up && n.boot == p.boot && n.change != nil && n.changes == p.change
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
	if !w.concerns(&p) {
		return
	}
	n := w.mine(p.of)
	var answer error
	switch {
	case !heard:
		answer = errLost
	case refused != nil:
		answer = refused
	}
	switch n.change.Answered(answer) {
	case partition.Stays:
	case partition.Ended:
		n.change = nil
		w.resets(n)
	case partition.Unknown:
		n.change.Again()
		w.propose(n)
	}
	w.flush(n)
}

var errLost = errors.New("the answer is lost")
