package control

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
)

// WaitOf says what a transition waits for that could not be chosen for: from what Choose went by, and what it said. floorBy is who
// reported the input's floor. Design 2 §5: how many answers of how many needed, who is missing, the floor that must be met and who
// reported it.
func WaitOf(in Input, d Decision, floorBy string) Waiting {
	a := in.Assignment
	w := Waiting{Partition: a.Partition, Needed: readQuorum(a, in.W), Reason: d.Reason}
	if a.Pending == nil {
		return w
	}
	w.Transition, w.Since = a.Pending.ID, a.Pending.Since
	counted := admit(a, in.Answers, &Decision{})
	w.Answers = len(counted)
	enough := len(counted) >= w.Needed || ownerAnswered(a, counted)
	switch {
	case d.Verdict == Blocked:
		w.Kind = WaitTruth
	case d.Verdict == Wait && len(counted) > 0 && enough:
		w.Kind, w.Floor, w.FloorBy = WaitFloor, d.Floor, floorFrom(in, d, floorBy)
	}
	for _, m := range asked(a) {
		if !slices.ContainsFunc(counted, func(c candidate) bool { return c.Instance.Node == m.Node }) {
			w.Missing = append(w.Missing, m.Node)
		}
	}
	slices.Sort(w.Missing)
	return w
}

// floorFrom is who reported the floor that was insisted on: the owner's last word, or an answer that counts; "" where there is none.
func floorFrom(in Input, d Decision, by string) string {
	if d.Floor <= in.Floor {
		if d.Floor == 0 {
			return ""
		}
		return by
	}
	for _, x := range in.Answers {
		if refusal(in.Assignment, x) == "" && confirmedOf(in.Assignment, x) == d.Floor {
			return x.Instance.Node
		}
	}
	return by
}

// asked are the copies that a transition seals: the owner's and the followers'.
func asked(a *catalog.Assignment) []catalog.Member {
	return append([]catalog.Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers...)
}
