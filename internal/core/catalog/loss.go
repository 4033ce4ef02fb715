package catalog

import "slices"

// AcceptLoss ends a pending transition as CommitTransition does, where an operator has given up on the copies that are missing (design 2
// §8): the set shrinks to the copies that hold all that the new owner does, and every other place is a learner's until its copy has caught
// up. t.Start says with its Loss what is given up. It is refused as CommitTransition is; and with Invalid if the owner or a follower has no
// place that counts now, if a place of now would be forgotten, or if the loss ends before the start. Decide anew on every refusal.
func AcceptLoss(t Commit) Item {
	t.Start.Loss.Accepted = true
	return item(opAcceptLoss, func(c *coder) { c.commit(&t) })
}

// LostSince is the offset from which on the history of an epoch, and of those before it, was given up by losses accepted since; ok is false
// where none was.
func (a *Assignment) LostSince(epoch uint64) (from uint64, ok bool) {
	for _, s := range a.Starts {
		if s.Loss.Accepted && s.Epoch > epoch && (!ok || s.Offset < from) {
			from, ok = s.Offset, true
		}
	}
	return from, ok
}

func (s *State) acceptLoss(t *Commit) ItemResult {
	return s.commit(t, func(a *Assignment) *Refusal {
		invalid := func(why string) *Refusal {
			return &Refusal{Code: Invalid, What: "partition", Name: t.Partition.String(), Argument: "accepted loss", Want: why}
		}
		owner := Member{Node: t.Owner.Node, Store: t.Owner.Store}
		for _, m := range append([]Member{owner}, t.Followers...) {
			if !a.Member(m.Store) {
				return invalid("the copy on " + m.Node + " has no place that counts")
			}
		}
		after := slices.Concat([]Member{owner}, t.Followers, t.Learners)
		for _, m := range slices.Concat([]Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers) {
			if !slices.Contains(after, m) {
				return invalid("the place of the copy on " + m.Node + " would be forgotten")
			}
		}
		for _, m := range t.Learners {
			if !a.Names(m.Store) {
				return invalid("the copy on " + m.Node + " has no place")
			}
		}
		if !t.Start.Loss.Accepted || t.Start.Loss.To < t.Start.Position {
			return invalid("a loss that ends at " + number(t.Start.Loss.To) + " does not begin at " + number(t.Start.Position))
		}
		return nil
	})
}
