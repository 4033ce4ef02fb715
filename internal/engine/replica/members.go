package replica

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/port/trace"
)

// changeAgain is when a change of members is proposed again whose outcome is not known, or that was refused.
const changeAgain = time.Second

// change is a change of members under way. From before its evidence is read until the catalog's answer is known, what confirms must
// satisfy the old and the new set both; no time ends that (design 2 §5, joint rule).
type change struct {
	membership catalog.Membership
	set        partition.Set
	asked      bool // proposed, and not answered
}

// changed is the answer to a change, or the time to ask again.
type changed struct {
	c   *change
	err error
}

// joint adds the set of the change that is under way.
func (r *replica) joint(sets []partition.Set) []partition.Set {
	if r.change != nil && r.want.Version > r.change.membership.Version {
		r.change = nil // the catalog has answered: with this change, or with another that keeps it from ever being made
	}
	if r.change == nil {
		return sets
	}
	return append(sets, r.change.set)
}

// resets gives the copy the sets that confirm now.
func (r *replica) resets() {
	sets, err := setsOf(r.res, r.want)
	if err != nil {
		r.fail("policy", err)
		return
	}
	a := partition.Assignment{Epoch: r.want.Epoch, Role: partition.Owner, Starts: r.want.Starts, Sets: r.joint(sets)}
	r.step(func(fx *partition.Effects) { r.copy.Assign(a, fx) })
}

// admitLearners makes followers of the learners that hold what a follower must, one at a time.
func (r *replica) admitLearners() {
	if r.m.env.Members == nil || r.want.Pending != nil || r.phase < claiming {
		return
	}
	if r.change != nil {
		r.propose()
		return
	}
	floor := r.copy.Floor()
	for _, f := range r.feeds {
		if f.learner && f.Standing() && !f.doubted && floor > 0 && f.Durable() >= floor {
			r.begin(f)
			return
		}
	}
}

// begin enters the joint state for a learner, and asks.
func (r *replica) begin(f *feed) {
	a := r.want
	next := catalog.Membership{Partition: r.id, Version: a.Version, Epoch: a.Epoch, Policy: a.Policy}
	if next.Policy == "" {
		next.Policy = r.res.Policy
	}
	for _, m := range a.Followers {
		if m.Node != f.Node { // the place of a node that came back with another store
			next.Followers = append(next.Followers, m)
		}
	}
	next.Followers = append(next.Followers, catalog.Member{Node: f.Node, Store: f.Store})
	for _, m := range a.Learners {
		if m.Store != f.Store {
			next.Learners = append(next.Learners, m)
		}
	}
	policy, err := quorum.Parse(next.Policy)
	if err != nil {
		r.fail("policy", err)
		return
	}
	c := &change{membership: next, set: partition.Set{W: quorum.W(policy, 1+len(next.Followers), r.res.Kind)}}
	for _, m := range next.Followers {
		c.set.Followers = append(c.set.Followers, m.Store)
	}
	r.change = c
	r.resets()
	r.propose()
}

// propose reads the evidence and asks the catalog, if enough copies of the new set hold what they must.
func (r *replica) propose() {
	c := r.change
	if c.asked || !r.copy.Open() {
		return
	}
	m := c.membership
	m.Floor = r.copy.Floor()
	m.Evidence = []catalog.Evidence{{Store: r.m.env.Local.Store, Position: r.copy.Durable().Position}}
	for _, f := range r.feeds {
		if slices.Contains(c.set.Followers, f.Store) && !f.doubted {
			m.Evidence = append(m.Evidence, catalog.Evidence{Store: f.Store, Position: f.Durable()})
		}
	}
	n := 0
	for _, e := range m.Evidence {
		if e.Position >= m.Floor {
			n++
		}
	}
	if n < c.set.W {
		return // asked again when a copy has come further
	}
	c.asked = true
	box := r.box
	r.m.env.Members.ChangeMembers(m, func(err error) { box.Post(changed{c, err}) })
}

// changed takes the catalog's answer. The change itself came with an assignment before.
func (r *replica) changeDone(m changed) {
	c := m.c
	if r.change != c {
		return
	}
	var refused *catalog.Refusal
	switch {
	case m.err == nil:
		// The assignment is on its way to this copy: until it comes both sets confirm.
		return
	case errors.As(m.err, &refused):
		trace.Info(r.m.env.Trace, "replica.members.refused", r.attr(), slog.String("reason", m.err.Error()))
		if refused.Code != catalog.VersionMoved && refused.Code != catalog.TransitionMoved {
			r.change = nil // nothing has changed and nothing will: the old set goes on
			r.resets()
			return
		}
		return // what moved is on its way here
	}
	trace.Warn(r.m.env.Trace, "replica.members.unknown", r.attr(), slog.String("error", m.err.Error()))
	r.box.After(changeAgain, call{func() {
		if r.change == c {
			c.asked = false
			r.propose()
		}
	}})
}
