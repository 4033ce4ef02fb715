package explore

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is what a step does.
type Kind uint8

// The kinds of step. A and B of an Action are nodes unless it says otherwise.
const (
	Append    Kind = iota // the owner A appends a record
	Sync                  // the oldest thing that A has written becomes durable, or what it looks for in its log is found
	Deliver               // B takes the oldest message that is on its way from A
	Break                 // the session of A and B ends and another begins
	Crash                 // A ends at once; what was not durable is lost
	SaveCrash             // A has just written a snapshot of what it knows to be confirmed, and ends
	Restart               // A starts again, registers, and hears what the catalog said to it last
	Wipe                  // the store of A, which is down, is lost
	Record                // the controller records a transition
	Seal                  // A takes the controller's seal, perhaps when the transition has been committed already
	Choose                // the controller chooses by the answers of the nodes in A, a set, ties as B says, and commits
	Apply                 // A hears the next thing that the catalog says
	Grow                  // the controller names a copy that is to learn
	Decide                // the catalog decides on proposal A and says so
	Lose                  // the catalog decides on proposal A; its answer is lost
	Again                 // the owner A does not wait for the catalog's answer any longer, and proposes again
)

var kinds = [...]string{
	"append", "sync", "deliver", "break", "crash", "save-crash", "restart", "wipe", "record", "seal", "choose", "apply", "grow", "decide", "lose", "again",
}

// arguments is how many numbers each kind is written with.
var arguments = [...]int{1, 1, 2, 2, 1, 1, 1, 1, 0, 1, 2, 1, 0, 1, 1, 1}

// Action is one step of a schedule.
type Action struct {
	Kind Kind
	A, B uint8
}

// String is the step as ParseAction reads it: the kind, then nodes as n0 to n2; a set of nodes as n0+n2, a tie or a proposal as a number.
func (a Action) String() string {
	out := kinds[a.Kind]
	switch {
	case a.Kind == Choose:
		var of []string
		for i := range Nodes {
			if a.A>>i&1 == 1 {
				of = append(of, fmt.Sprintf("n%d", i))
			}
		}
		return fmt.Sprintf("%s %s %d", out, strings.Join(of, "+"), a.B)
	case a.Kind == Decide, a.Kind == Lose:
		return fmt.Sprintf("%s %d", out, a.A)
	case arguments[a.Kind] > 1:
		return fmt.Sprintf("%s n%d n%d", out, a.A, a.B)
	case arguments[a.Kind] > 0:
		return fmt.Sprintf("%s n%d", out, a.A)
	}
	return out
}

// ParseAction reads what String wrote.
func ParseAction(text string) (Action, error) {
	words := strings.Fields(text)
	wrong := func() (Action, error) { return Action{}, fmt.Errorf("step %q cannot be read", text) }
	if len(words) == 0 {
		return wrong()
	}
	for k, name := range kinds {
		if name != words[0] {
			continue
		}
		if len(words) != 1+arguments[k] {
			return wrong()
		}
		a := Action{Kind: Kind(k)}
		for i, w := range words[1:] {
			n, ok := argument(w, a.Kind == Choose && i == 0)
			if !ok {
				return wrong()
			}
			if i == 0 {
				a.A = n
			} else {
				a.B = n
			}
		}
		return a, nil
	}
	return wrong()
}

func argument(word string, set bool) (uint8, bool) {
	if !set {
		n, err := strconv.ParseUint(strings.TrimPrefix(word, "n"), 10, 3)
		return uint8(n), err == nil && n < Nodes
	}
	var mask uint8
	for _, w := range strings.Split(word, "+") {
		n, ok := argument(w, false)
		if !ok {
			return 0, false
		}
		mask |= 1 << n
	}
	return mask, true
}

// Fault is a mistake that a search is to find, planted in what performs and never in what decides.
type Fault uint8

// The faults.
const (
	NoFault Fault = iota
	// HeldBeforeSync: a follower says that it holds what is not durable yet.
	HeldBeforeSync
	// SealedBeforeSync: a promise is taken as durable while it is not.
	SealedBeforeSync
	// CutBeforePromise: a copy is cut, durably, before it has promised the epoch, and goes on in its old role until then.
	CutBeforePromise
	// RawTail: answers are compared by their whole logs, not by what later owners kept.
	RawTail
	// SurvivorsConfirm: W is counted from the copies that can be reached.
	SurvivorsConfirm
	// WipedCounts: the answer of a store that the catalog does not name counts for the one it names on that node.
	WipedCounts
	// SameEpoch: a restarted owner goes on in its epoch.
	SameEpoch
	// NoJoint: an owner has a member admitted without confirming by both sets.
	NoJoint
)
