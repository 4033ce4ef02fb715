package replica

import (
	"log/slog"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/port/trace"
)

// changeAgain is when a change of members is proposed again whose outcome is not known, or that was refused.
const changeAgain = time.Second

// changed is the answer to a change, or the time to ask again.
type changed struct {
	c   *partition.Change
	err error
}

// joint adds the set of the change that is under way.
func (r *replica) joint(sets []partition.Set) []partition.Set {
	if r.change != nil && r.change.Over(r.want.Version) {
		r.change = nil
	}
	if r.change == nil {
		return sets
	}
	return append(sets, r.change.Set())
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

// admitLearners makes followers of the learners that hold what a follower must, one at a time. It is called whenever anything has
// happened: what is missing last may be a learner's progress, this copy's own, or the state that is loaded before it serves.
func (r *replica) admitLearners() {
	if len(r.feeds) == 0 && r.change == nil { // asked at every flush: most have no other copies
		return
	}
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
	policy := r.want.Policy
	if policy == "" {
		policy = r.res.Policy
	}
	c, err := partition.Admission(r.want, policy, r.res.Kind, catalog.Member{Node: f.Node, Store: f.Store})
	if err != nil {
		r.fail("policy", err)
		return
	}
	r.change = c
	r.resets()
	r.propose()
}

// propose asks the catalog, if enough copies of the new set hold what they must.
func (r *replica) propose() {
	c := r.change
	m, ok := c.Propose(&r.copy, r.m.env.Local.Store, r.held)
	if !ok {
		return // asked again when a copy has come further
	}
	box := r.box
	r.m.env.Members.ChangeMembers(m, func(err error) { box.Post(changed{c, err}) })
}

// held is how far another copy holds the log durably, and whether what it says counts.
func (r *replica) held(store ident.StoreID) (position uint64, counts bool) {
	for _, f := range r.feeds {
		if f.Store == store {
			return f.Durable(), !f.doubted
		}
	}
	return 0, false
}

// changeDone takes the catalog's answer. The change itself came with an assignment before.
func (r *replica) changeDone(m changed) {
	c := m.c
	if r.change != c {
		return
	}
	if m.err != nil {
		trace.Info(r.m.env.Trace, "replica.members.undone", r.attr(), slog.String("reason", m.err.Error()))
	}
	switch c.Answered(m.err) {
	case partition.Stays:
	case partition.Ended:
		r.change = nil
		r.resets()
	case partition.Unknown:
		r.box.After(changeAgain, call{func() {
			if r.change == c {
				c.Again()
				r.propose()
			}
		}})
	}
}
