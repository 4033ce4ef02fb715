package partition

import (
	"errors"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Wishes is what the resource of a partition asks for: what its assignment is brought to by one change after another (design 2 §12).
type Wishes struct {
	Kind   ident.Kind
	Copies int    // how many copies are wanted, the owner's included
	Policy string // as quorum reads it
}

// WishesOf are those of a resource.
func WishesOf(r *catalog.Resource) Wishes {
	return Wishes{Kind: r.Kind, Copies: r.Target(), Policy: r.Policy}
}

// Held says how far the copy on a store holds the log durably, and whether what it says counts.
type Held func(store ident.StoreID) (position uint64, counts bool)

// Change is a change of a partition's members or policy that keeps owner and epoch (design 2 §5, joint rule). From before its evidence is
// read until the catalog's answer is known, what confirms must satisfy the old set and the new one both: the owner gives its copy Set
// beside the assignment's own set before it calls Propose, and takes it away only when Over or Answered says so. No time ends that.
type Change struct {
	membership catalog.Membership
	set        Set
	back       *Change // to what the assignment is already; see Propose
	asked      bool    // proposed, and not answered
	unsure     bool    // an earlier proposal may be done yet: its answer was lost
}

// NextChange is the change that brings an assignment nearer to what is wished, of those that could be proposed now: enough copies of the
// new set hold everything up to the owner's floor, so that what is confirmed meanwhile waits for nobody who is away. It is nil where
// there is none. In this order (design 2 §5, §6):
//
//   - a learner that has caught up becomes a follower, in the place of the follower on its own node, which came back with another store; else
//     of the first that is leaving, if there are as many copies as are wanted; else beside the others, while there are fewer;
//   - of more copies than are wanted, the first that is leaving goes;
//   - the policy becomes the one that is wished.
//
// Who learns and who leaves is the controller's to say, and stands in the assignment. owner is the copy that owns, self its store. The error
// is quorum's, of a policy that is none.
func NextChange(a *catalog.Assignment, w Wishes, owner *Copy, self ident.StoreID, held Held) (*Change, error) {
	floor := owner.Floor()
	if a.Pending != nil || floor == 0 || !owner.Open() || owner.Epoch() != a.Epoch {
		return nil, nil
	}
	ready := func(followers, learners []catalog.Member, policy string) (*Change, error) {
		c, err := changeTo(a, followers, learners, policy, w.Kind)
		if err != nil || !c.shown(c.evidence(owner, self, held), floor) {
			return nil, err
		}
		c.back, err = changeTo(a, a.Followers, a.Learners, a.Policy, w.Kind)
		return c, err
	}
	for i, l := range a.Learners {
		at, counts := held(l.Store)
		followers, placed := admit(a, l, w.Copies)
		if !counts || at < floor || !placed {
			continue
		}
		if c, err := ready(followers, without(a.Learners, i), a.Policy); c != nil || err != nil {
			return c, err
		}
	}
	if a.Eligible() > w.Copies {
		for _, l := range a.Leaving {
			i := slices.Index(a.Followers, l)
			if i < 0 {
				continue
			}
			if c, err := ready(without(a.Followers, i), a.Learners, a.Policy); c != nil || err != nil {
				return c, err
			}
		}
	}
	if differ, err := policiesDiffer(a.Policy, w.Policy); err != nil || !differ {
		return nil, err
	}
	return ready(a.Followers, a.Learners, w.Policy)
}

// admit gives the followers once a learner is one of them; placed is false where there is no place for it.
func admit(a *catalog.Assignment, learner catalog.Member, copies int) (followers []catalog.Member, placed bool) {
	if learner.Node == a.Owner.Node {
		return nil, false
	}
	goes := slices.IndexFunc(a.Followers, func(f catalog.Member) bool { return f.Node == learner.Node })
	if goes < 0 && a.Eligible() >= copies {
		goes = slices.IndexFunc(a.Followers, func(f catalog.Member) bool { return slices.Contains(a.Leaving, f) })
		if goes < 0 {
			return nil, false
		}
	}
	if goes < 0 {
		return append(slices.Clone(a.Followers), learner), true
	}
	return append(without(a.Followers, goes), learner), true
}

// without is a list without one of its members.
func without(of []catalog.Member, i int) []catalog.Member {
	return slices.Delete(slices.Clone(of), i, i+1)
}

// policiesDiffer reports whether two policies, as text, are not the same.
func policiesDiffer(x, y string) (bool, error) {
	if x == y {
		return false, nil
	}
	p, err := quorum.Parse(x)
	if err != nil {
		return false, err
	}
	q, err := quorum.Parse(y)
	return p != q, err
}

// changeTo is the change of an assignment to other members and another policy.
func changeTo(a *catalog.Assignment, followers, learners []catalog.Member, policy string, kind ident.Kind) (*Change, error) {
	p, err := quorum.Parse(policy)
	if err != nil {
		return nil, err
	}
	c := &Change{membership: catalog.Membership{
		Partition: a.Partition, Version: a.Version, Epoch: a.Epoch, Followers: followers, Learners: learners, Policy: p.String(),
	}}
	c.set.W = quorum.W(p, 1+len(followers), kind)
	for _, f := range followers {
		c.set.Followers = append(c.set.Followers, f.Store)
	}
	return c, nil
}

// Set is what must confirm, besides the assignment's own set, while the change is under way.
func (c *Change) Set() Set { return c.set }

// Over reports whether an assignment at version shows that the catalog has answered: with this change, or with another that keeps it
// from ever being made.
func (c *Change) Over(version uint64) bool { return version > c.membership.Version }

// Propose gives what is to be proposed now, with its evidence, if the owner is open, no proposal waits for its answer, and enough
// copies of the new set hold what they must. Where they do not any more, and an earlier proposal may be done yet, it gives a change to what
// the assignment is already: once that is done the earlier one never will be, and the owner need not wait for copies that are gone. Where it
// gives nothing (false), ask again when a copy has come further. Source: design 2 §5, joint rule.
func (c *Change) Propose(owner *Copy, self ident.StoreID, held Held) (catalog.Membership, bool) {
	floor := owner.Floor()
	if c.asked || !owner.Open() || floor == 0 || owner.Epoch() != c.membership.Epoch {
		return catalog.Membership{}, false
	}
	of := c
	for !of.shown(of.evidence(owner, self, held), floor) {
		if of = of.back; of == nil || !c.unsure {
			return catalog.Membership{}, false
		}
	}
	c.asked = true
	m := of.membership
	m.Floor, m.Evidence = floor, of.evidence(owner, self, held)
	return m, true
}

// evidence is how far the copies of the new set hold the log.
func (c *Change) evidence(owner *Copy, self ident.StoreID, held Held) []catalog.Evidence {
	e := []catalog.Evidence{{Store: self, Position: owner.Durable().Position}}
	for _, f := range c.set.Followers {
		if at, counts := held(f); counts {
			e = append(e, catalog.Evidence{Store: f, Position: at})
		}
	}
	return e
}

// shown reports whether the evidence shows that W of the new set hold everything up to the floor.
func (c *Change) shown(evidence []catalog.Evidence, floor uint64) bool {
	n := 0
	for _, e := range evidence {
		if e.Position >= floor {
			n++
		}
	}
	return n >= c.set.W
}

// Answer is what the outcome of a proposal means.
type Answer uint8

// The answers.
const (
	Stays   Answer = iota // both sets confirm until an assignment comes that Over is true of
	Ended                 // nothing has changed and nothing will: the change is over, and the old set goes on
	Unknown               // both sets confirm; call Again in a while, and propose anew
)

// Answered takes the outcome of a proposal: nil if it was done, a *catalog.Refusal if it was not, anything else if that is not known. It is called once for
// each that Propose gave. Source: design 2 §5: the joint state is left on the catalog's answer only.
func (c *Change) Answered(err error) Answer {
	var refused *catalog.Refusal
	switch {
	case err == nil:
		return Stays // the assignment is on its way
	case !errors.As(err, &refused):
		c.unsure = true
		return Unknown
	case refused.Code == catalog.VersionMoved || refused.Code == catalog.TransitionMoved:
		return Stays // what moved is on its way
	case c.unsure:
		return Unknown // this one was refused; the one before may still be done
	}
	return Ended
}

// Again lets a proposal be made once more whose outcome is not known.
func (c *Change) Again() { c.asked, c.unsure = false, true }
