package control

import (
	"cmp"
	"slices"
	"time"
)

// MaxVoters is the greatest number of voters of the catalog; further nodes are learners of it (design 2 §12).
const MaxVoters = 5

// Seat is a registered node as the catalog's membership sees it.
type Seat struct {
	ID       uint64 // of its store, as consensus numbers it
	Zone     string
	Live     bool // and caught up, of a learner
	Draining bool
	Gone     bool // it has been away for so long that another is to vote in its stead; not Live
}

// leaves reports whether a voter is to give way where another can take its place.
func (s Seat) leaves() bool { return s.Draining || s.Gone }

// VoterGone reports whether a node that is away since a time, in milliseconds since 1970 (0: it is not), has been for so long at now that another is to
// vote in its stead, and else at what time it will have been; 0: never. after 0 is never.
func VoterGone(absent, now int64, after time.Duration) (gone bool, at int64) {
	if absent == 0 || after == 0 {
		return false, 0
	}
	at = absent + after.Milliseconds()
	return now >= at, at
}

// Move is what kind of change a VoterChange is.
type Move uint8

// The moves.
const (
	NoMove     Move = iota
	AddLearner      // a node that is no member learns, or a voter is made a learner
	AddVoter        // a learner votes
	Remove          // a member goes whose node has gone
	HandOver        // the leader hands on to a voter, before it can be moved itself
)

// VoterChange is one change of the catalog's membership.
type VoterChange struct {
	Move Move
	ID   uint64
}

// String says a change in words, as of one that is due.
func (c VoterChange) String() string {
	return [...]string{
		"", "a node is to become its member, or to give up its vote", "a node is to get a vote", "a member is to go whose node has gone",
		"its leader is to hand on",
	}[c.Move]
}

// Voters says the next change of the catalog's membership, decided by its leader, whose number is self; NoMove if all is well. Members
// whose nodes have gone are removed, nodes that are no members learn, and an odd number vote, as many as MaxVoters, the nodes and those
// of them that can be reached allow: of two nodes one votes, of three all. A draining voter gives way to a learner that is not draining,
// and so does one that is gone. A dead voter keeps its seat until then. Zones are spread. While no node is registered, nothing changes. One change at a time: call it again
// when the last is applied.
func Voters(self uint64, seats []Seat, voters, learners []uint64) VoterChange {
	if !slices.ContainsFunc(seats, func(s Seat) bool { return s.ID == self }) && len(voters) < 2 {
		return VoterChange{} // the first node's registration is still on its way
	}
	seats = slices.Clone(seats)
	slices.SortFunc(seats, func(a, b Seat) int { return cmp.Compare(a.ID, b.ID) })
	c := council{self: self, seats: seats, voters: voters, learners: learners}
	for _, id := range slices.Sorted(slices.Values(slices.Concat(learners, voters))) {
		if c.seat(id) == nil {
			return c.without(id, Remove)
		}
	}
	for _, s := range seats {
		if !slices.Contains(voters, s.ID) && !slices.Contains(learners, s.ID) {
			return VoterChange{AddLearner, s.ID}
		}
	}
	return c.balance()
}

type council struct {
	self             uint64
	seats            []Seat
	voters, learners []uint64
}

func (c *council) seat(id uint64) *Seat {
	if i := slices.IndexFunc(c.seats, func(s Seat) bool { return s.ID == id }); i >= 0 {
		return &c.seats[i]
	}
	return nil
}

// balance brings the number of voters to what it should be, where every node is a member.
func (c *council) balance() VoterChange {
	zones, good := map[string]int{}, 0
	var candidates, voting []Seat
	for _, s := range c.seats {
		switch voter := slices.Contains(c.voters, s.ID); {
		case voter:
			voting = append(voting, s)
			zones[s.Zone]++
			if !s.leaves() {
				good++
			}
		case s.Live && !s.Draining:
			candidates = append(candidates, s)
		}
	}
	want := min(len(c.seats), MaxVoters, len(voting)+len(candidates))
	want -= 1 - want%2
	switch {
	case good < want && len(candidates) > 0:
		s := slices.MinFunc(candidates, func(a, b Seat) int {
			return cmp.Or(cmp.Compare(zones[a.Zone], zones[b.Zone]), cmp.Compare(a.ID, b.ID))
		})
		return VoterChange{AddVoter, s.ID}
	case len(voting) > want:
		s := slices.MaxFunc(voting, func(a, b Seat) int {
			return cmp.Or(compareBool(a.Gone, b.Gone), compareBool(a.Draining, b.Draining), compareBool(!a.Live, !b.Live), cmp.Compare(zones[a.Zone], zones[b.Zone]),
				compareBool(a.ID != c.self, b.ID != c.self), cmp.Compare(a.ID, b.ID))
		})
		return c.without(s.ID, AddLearner)
	}
	return VoterChange{}
}

// without is a move that takes a member's vote. The leader does not take its own: it hands on first, to the best voter that is there.
func (c *council) without(id uint64, m Move) VoterChange {
	if id != c.self {
		return VoterChange{m, id}
	}
	var to *Seat
	for _, v := range c.voters {
		s := c.seat(v)
		if v == c.self || s == nil || !s.Live {
			continue
		}
		if to == nil || cmp.Or(compareBool(s.Draining, to.Draining), cmp.Compare(s.ID, to.ID)) < 0 {
			to = s
		}
	}
	if to == nil {
		return VoterChange{}
	}
	return VoterChange{HandOver, to.ID}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
