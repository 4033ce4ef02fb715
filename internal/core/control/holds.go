package control

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Fate is what becomes of the place of a follower that is not simply there, and why.
type Fate uint8

// The fates. All but Kept are reasons to replace the follower now.
const (
	Kept          Fate = iota // its node is away, and its hold runs
	HoldOver                  // its node is away, for longer than the hold; at once where there is none
	TooFewLeft                // its node is away, and the followers that are left are too few to confirm
	Drained                   // its node is to be left; it counts for as long as it is there
	StoreReplaced             // its node has another store
	NodeRemoved               // its node has left the cluster
)

// String says the fate in words.
func (f Fate) String() string {
	return [...]string{
		"its place is kept", "its hold is over", "too few copies are left to confirm without another", "its node is draining",
		"its node came back with another store", "its node was removed",
	}[f]
}

// Held is a follower that is not simply there, and what becomes of its place.
type Held struct {
	Partition ident.Partition
	Member    catalog.Member
	Fate      Fate
	// Since is when its node went away and Until when its place goes to another, in milliseconds since 1970. Since is 0 where the node did
	// not go away, and Until is 0 where the follower is to be replaced now.
	Since, Until int64
	// Learner is the node that learns in its stead; "" where none does: none has been chosen yet, or none can take another copy.
	Learner string
}

// Holds are the followers of durable partitions that are not simply there, by partition and in the order of the assignment, at now
// milliseconds since 1970. It follows from the catalog alone, so every node says the same, and a hold ends at the same time whoever is the
// controller. Source: design 2 §6.
func Holds(v *catalog.View, now int64) []Held {
	var out []Held
	for _, r := range v.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			out = append(out, HoldsOf(v, a, r.Kind, now)...)
		}
	}
	return out
}

// HoldsOf are those of one partition.
func HoldsOf(v *catalog.View, a *catalog.Assignment, kind ident.Kind, now int64) []Held {
	var out []Held
	left := 0 // followers that can confirm
	for _, m := range a.Followers {
		h := Held{Partition: a.Partition, Member: m}
		switch n := v.Node(m.Node); {
		case n == nil:
			h.Fate = NodeRemoved
		case n.Store != m.Store:
			h.Fate = StoreReplaced
		case n.Draining:
			h.Fate, h.Since = Drained, n.Absent
		case n.Absent > 0:
			h.Since = n.Absent
		default:
			left++
			continue
		}
		if h.Fate == Drained && h.Since == 0 {
			left++
		}
		out = append(out, h)
	}
	if len(out) == 0 {
		return nil
	}
	hold, few := v.Tunables().HoldMillis(), left < confirmers(a, kind)-1
	for i := range out {
		h := &out[i]
		h.Learner = learnerFor(a, h.Member)
		if h.Fate != Kept {
			continue
		}
		switch until := h.Since + hold; {
		case until <= now || hold == 0:
			h.Fate = HoldOver
		case few:
			h.Fate = TooFewLeft
		default:
			h.Until = until
		}
	}
	return out
}

// confirmers is W; of a policy that cannot be read, the strictest.
func confirmers(a *catalog.Assignment, kind ident.Kind) int {
	p, err := quorum.Parse(a.Policy)
	if err != nil {
		return a.Eligible()
	}
	return quorum.W(p, a.Eligible(), kind)
}

// learnerFor is the node that learns in a follower's stead: its own with another store, else the first that learns anywhere, if the
// follower is to leave.
func learnerFor(a *catalog.Assignment, m catalog.Member) string {
	leaves := slices.Contains(a.Leaving, m)
	for _, l := range a.Learners {
		if l.Node == m.Node || leaves {
			return l.Node
		}
	}
	return ""
}
