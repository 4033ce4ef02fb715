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
	w.settleLowered(n)
	if n.heard.a.Pending != nil || !n.copy.Serving() {
		return
	}
	if n.change != nil {
		w.propose(n)
		return
	}
	c, err := partition.NextChange(n.heard.a, w.cat.wishes, &n.copy, n.instance().Store, n.held)
	if err != nil {
		panic(err)
	}
	if c != nil {
		n.change = c
		n.changes++
		w.resets(n)
		w.propose(n)
	}
}

// held says how far another copy holds the log durably, and whether what it says counts: of one that only learns, while it is being fed.
func (n *node) held(s ident.StoreID) (uint64, bool) {
	for i := range n.feeds {
		if f := &n.feeds[i]; f.Store == s {
			return f.Durable(), !f.learner || f.Standing()
		}
	}
	return 0, false
}

func (w *world) propose(n *node) {
	m, ok := n.change.Propose(&n.copy, n.instance().Store, n.held)
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
