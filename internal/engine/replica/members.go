package replica

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/port/trace"
)

// changeAgain is when a change of members is proposed again whose outcome is not known, or that was refused.
const changeAgain = time.Second

// changed is the answer to a change, or the time to ask again.
type changed struct {
	c   *partition.Change
	err error
}

// changing is what an owner keeps of changes of members and policy.
type changing struct {
	change *partition.Change // under way; nil: none
	waits  bool              // the catalog refused one, and the next is to wait a while
	// lowered is what entries need that were admitted before a change asked for fewer copies.
	lowered []partition.Set
}

// changes is what is kept of changes, made if there is nothing yet.
func (r *replica) changes() *changing {
	if r.changing == nil {
		r.changing = &changing{}
	}
	return r.changing
}

// joint adds what must confirm besides the assignment's own set: the set of the change that is under way, and what entries need that were
// admitted before a change asked for fewer copies.
func (r *replica) joint(sets []partition.Set) []partition.Set {
	x := r.changing
	if x == nil {
		return sets
	}
	if x.change != nil && x.change.Over(r.want.Version) {
		x.change = nil
	}
	sets = slices.Clone(sets)
	for _, l := range x.lowered {
		if s, ok := partition.Lowered(l.W, sets[0], l.Below); ok {
			sets = append(sets, s)
		}
	}
	if x.change != nil {
		sets = append(sets, x.change.Set())
	}
	return sets
}

// lowers notes that what was admitted up to now needs as many copies of the set that comes as the policy before asks for, if the policy now asks
// for fewer. Where only copies go, what is confirmed without them is what the policy means, and must not wait for one that is away.
func (r *replica) lowers(policy string, to partition.Set) {
	p, err := quorum.Parse(policy)
	if err != nil {
		r.fail("policy", err)
		return
	}
	before := quorum.W(p, 1+len(to.Followers), r.res.Kind)
	if s, ok := partition.Lowered(before, to, r.end()); ok && r.copy.Confirmed() < s.Below {
		x := r.changes()
		x.lowered = append(x.lowered, s)
	}
}

// settleLowered forgets what entries needed that were admitted before a change, once they are confirmed, or no publish waits for them any
// more: whoever waited has been told that the outcome is unknown, and what came later must not wait for copies that may never come back.
func (r *replica) settleLowered() {
	x := r.changing
	n := len(x.lowered)
	x.lowered = slices.DeleteFunc(x.lowered, func(s partition.Set) bool {
		waits := func(in *inlet) bool { return in.source.Needs(s.Below) }
		return r.copy.Confirmed() >= s.Below || !slices.ContainsFunc(r.inlets, waits)
	})
	if len(x.lowered) < n && r.copy.Open() {
		r.resets()
	}
	if x.change == nil && !x.waits && len(x.lowered) == 0 {
		r.changing = nil
	}
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

// changeMembers begins the next change of the members or the policy that the assignment and the wishes of its resource ask for and that can be
// proposed now, one at a time. It is called whenever anything has happened: what is missing last may be a learner's progress, or this copy's
// own. It does not wait until the owner serves: where its first mark lacks a copy that is gone for good, a learner in that one's place is what lets
// it. What is to be is in the catalog alone, so that any run of any owner goes on with it.
func (r *replica) changeMembers() {
	if r.changing != nil {
		r.settleLowered()
	}
	if r.m.env.Members == nil || r.want == nil || r.want.Pending != nil || r.copy.Role() != partition.Owner {
		return
	}
	switch x := r.changing; {
	case x != nil && x.change != nil:
		r.propose()
		return
	case x != nil && x.waits, !r.mayChange():
		return
	}
	c, err := partition.NextChange(r.want, partition.WishesOf(r.res), &r.copy, r.m.env.Local.Store, r.held)
	if err != nil {
		r.fail("policy", err)
		return
	}
	if c != nil {
		r.changes().change = c
		r.resets()
		r.propose()
	}
}

// mayChange says cheaply that there may be something to change: it is asked at every flush, and most partitions stay as they are.
func (r *replica) mayChange() bool {
	return len(r.want.Learners) > 0 || len(r.want.Leaving) > 0 || r.want.Policy != r.res.Policy
}

// propose asks the catalog, if enough copies of the new set hold what they must.
func (r *replica) propose() {
	c := r.changing.change
	m, ok := c.Propose(&r.copy, r.m.env.Local.Store, r.held)
	if !ok {
		return // asked again when a copy has come further
	}
	box := r.box
	r.m.env.Members.ChangeMembers(m, func(err error) { box.Post(changed{c, err}) })
}

// held is how far another copy holds the log durably, and whether what it says counts: of one that only learns, while it is being fed.
func (r *replica) held(store ident.StoreID) (position uint64, counts bool) {
	for _, f := range r.feeds {
		if f.Store == store {
			return f.Durable(), !f.doubted && !f.damaged && (!f.learner || f.Standing())
		}
	}
	return 0, false
}

// changeDone takes the catalog's answer. The change itself came with an assignment before.
func (r *replica) changeDone(m changed) {
	c, x := m.c, r.changing
	if x == nil || x.change != c {
		return
	}
	if m.err != nil {
		trace.Info(r.m.env.Trace, "replica.members.undone", r.attr(), slog.String("reason", m.err.Error()))
	}
	switch c.Answered(m.err) {
	case partition.Stays:
	case partition.Ended: // the catalog would refuse it again at once
		x.change, x.waits = nil, true
		r.resets()
		r.box.After(changeAgain, call{func() {
			x.waits = false
			r.touch()
		}})
	case partition.Unknown:
		r.box.After(changeAgain, call{func() {
			if r.changing == x && x.change == c {
				c.Again()
				r.propose()
			}
		}})
	}
}
