package partition

import (
	"errors"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Change is a change of a partition's members that keeps owner and epoch (design 2 §5, joint rule). From before its evidence is read
// until the catalog's answer is known, what confirms must satisfy the old set and the new one both: the owner gives its copy Set
// beside the assignment's own set before it calls Propose, and takes it away only when Over or Answered says so. No time ends that.
type Change struct {
	membership catalog.Membership
	set        Set
	asked      bool // proposed, and not answered
	unsure     bool // an earlier proposal may be done yet: its answer was lost
}

// Admission is the change that makes a follower of a learner; it takes the place of a follower on the same node, which came back with
// another store. policy is the assignment's. The error is quorum's, of a policy that is none.
func Admission(a *catalog.Assignment, policy string, kind ident.Kind, learner catalog.Member) (*Change, error) {
	p, err := quorum.Parse(policy)
	if err != nil {
		return nil, err
	}
	c := &Change{membership: catalog.Membership{Partition: a.Partition, Version: a.Version, Epoch: a.Epoch, Policy: policy}}
	m := &c.membership
	for _, f := range a.Followers {
		if f.Node != learner.Node {
			m.Followers = append(m.Followers, f)
		}
	}
	m.Followers = append(m.Followers, learner)
	for _, l := range a.Learners {
		if l.Store != learner.Store {
			m.Learners = append(m.Learners, l)
		}
	}
	c.set.W = quorum.W(p, 1+len(m.Followers), kind)
	for _, f := range m.Followers {
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
// copies of the new set hold what they must. Where they do not, ask again when a copy has come further. self is the owner's store;
// held says how far another copy holds the log durably, and whether what it says counts.
func (c *Change) Propose(owner *Copy, self ident.StoreID, held func(ident.StoreID) (position uint64, counts bool)) (catalog.Membership, bool) {
	m := c.membership
	m.Floor = owner.Floor()
	if c.asked || !owner.Open() || m.Floor == 0 {
		return m, false
	}
	m.Evidence = []catalog.Evidence{{Store: self, Position: owner.Durable().Position}}
	for _, f := range c.set.Followers {
		if at, counts := held(f); counts {
			m.Evidence = append(m.Evidence, catalog.Evidence{Store: f, Position: at})
		}
	}
	short := func(e catalog.Evidence) bool { return e.Position < m.Floor }
	if len(slices.DeleteFunc(slices.Clone(m.Evidence), short)) < c.set.W {
		return m, false
	}
	c.asked = true
	return m, true
}

// Answer is what the outcome of a proposal means.
type Answer uint8

// The answers.
const (
	Stays   Answer = iota // both sets confirm until an assignment comes that Over is true of
	Ended                 // nothing has changed and nothing will: the change is over, and the old set goes on
	Unknown               // both sets confirm; call Again in a while, and propose anew
)

// Answered takes the outcome of a proposal: nil if it was done, a *catalog.Refusal if it was not, anything else if that is not known.
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
