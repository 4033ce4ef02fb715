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
	Crash                 // A ends at once; what was not durable is lost, but for C batches, with Lazy
	SaveCrash             // A has just written a snapshot of what it knows to be confirmed, and ends
	Restart               // A starts again, registers, and hears what the catalog said to it last
	Wipe                  // the store of A, which is down, is lost
	Record                // the controller records a transition
	Seal                  // A takes a seal of the transition that is pending; where B is 1, of another controller than the one that recorded it
	LateSeal              // A takes a seal of epoch B, whose transition was committed or withdrawn since
	Cancel                // the transition that is pending is withdrawn
	Choose                // a controller chooses by the answers in A, two bits a node, ties as B says, and commits
	Apply                 // A hears the next thing that the catalog says
	Grow                  // the controller names a copy that is to learn
	Decide                // the catalog decides on proposal A and says so
	Lose                  // the catalog decides on proposal A; its answer is lost
	Attach                // the gateway opens a stream to A, which owns
	Publish               // the gateway sends A its next number
	Again                 // the owner A does not wait for the catalog's answer any longer, and proposes again
	Stand                 // with Direct: A, an owner, hears where the log of B ends
	Feed                  // with Direct: A gives B the next batch
	Tell                  // with Direct: A tells B what is confirmed
	Report                // with Direct: A hears what B holds durably; with Lazy up to C, where both have it durable then
	Learn                 // somebody has the copy on A learn
	Forgo                 // somebody gives up the learner on A
	Leave                 // somebody marks the follower on A as leaving, and no other
	Stay                  // somebody has no follower leave
	Wish                  // an operator wishes policy A
	Want                  // an operator wishes A copies
	Accept                // an operator accepts the loss of the copies that have not answered, by the answers in A as with Choose, ties as B says
	Reseed                // the owner A has B discard its log for an image
	Import                // the image is whole that A sends B
)

var kinds = [...]string{
	"append", "sync", "deliver", "break", "crash", "save-crash", "restart", "wipe", "record", "seal", "late-seal", "cancel",
	"choose", "apply", "grow", "decide", "lose", "attach", "publish", "again", "stand", "feed", "tell", "report",
	"learn", "forgo", "leave", "stay", "wish", "want", "accept", "reseed", "import",
}

// arguments is how many numbers each kind is written with.
var arguments = [...]int{1, 1, 2, 2, 1, 1, 1, 1, 0, 1, 2, 0, 2, 1, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 0, 1, 1, 2, 2, 2}

// Action is one step of a schedule.
type Action struct {
	Kind    Kind
	A, B, C uint8
}

// String is the step as ParseAction reads it: the kind, then nodes as n0 to n2; answers as n0+n2, those of an earlier run as n0~1; a tie,
// a proposal or an epoch as a number. A seal of another controller ends with "other".
func (a Action) String() string {
	out := kinds[a.Kind]
	switch {
	case a.Kind == Choose, a.Kind == Accept:
		var of []string
		for i := range Nodes {
			if back := a.A >> (2 * i) & 3; back == 1 {
				of = append(of, fmt.Sprintf("n%d", i))
			} else if back > 1 {
				of = append(of, fmt.Sprintf("n%d~%d", i, back-1))
			}
		}
		return fmt.Sprintf("%s %s %d", out, strings.Join(of, "+"), a.B)
	case a.Kind == Crash && a.C > 0:
		return fmt.Sprintf("%s n%d %d", out, a.A, a.C)
	case a.Kind == Report && a.C > 0:
		return fmt.Sprintf("%s n%d n%d %d", out, a.A, a.B, a.C)
	case a.Kind == Seal && a.B == 1:
		return fmt.Sprintf("%s n%d other", out, a.A)
	case a.Kind == LateSeal:
		return fmt.Sprintf("%s n%d %d", out, a.A, a.B)
	case a.Kind == Decide, a.Kind == Lose, a.Kind == Wish, a.Kind == Want:
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
		a := Action{Kind: Kind(k)}
		if a.Kind == Seal && len(words) == 3 && words[2] == "other" {
			a.B, words = 1, words[:2]
		}
		if (a.Kind == Crash || a.Kind == Report) && len(words) == 2+arguments[k] {
			last := len(words) - 1
			n, ok := argument(words[last], false)
			if !ok || words[last][0] == 'n' {
				return wrong()
			}
			a.C, words = n, words[:last]
		}
		if len(words) != 1+arguments[k] {
			return wrong()
		}
		for i, w := range words[1:] {
			n, ok := argument(w, (a.Kind == Choose || a.Kind == Accept) && i == 0)
			if !ok || (w[0] == 'n') != a.Kind.names(i) || a.Kind == Wish && int(n) >= len(policies) {
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

// names reports whether argument i is a node, or a set of them.
func (k Kind) names(i int) bool {
	switch k {
	case Decide, Lose, Wish, Want:
		return false
	case Choose, Accept, LateSeal:
		return i == 0
	}
	return true
}

func argument(word string, set bool) (uint8, bool) {
	if !set {
		n, err := strconv.ParseUint(strings.TrimPrefix(word, "n"), 10, 3)
		return uint8(n), err == nil && (n < Nodes || word[0] != 'n')
	}
	var of uint8
	for _, w := range strings.Split(word, "+") {
		name, run, older := strings.Cut(w, "~")
		back := uint8(0)
		if older {
			var ok bool
			if back, ok = argument(run, false); !ok || back > 2 {
				return 0, false
			}
		}
		n, ok := argument(name, false)
		if !ok || n >= Nodes {
			return 0, false
		}
		of |= (1 + back) << (2 * n)
	}
	return of, true
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
	// LateSealTaken: a copy takes a seal of an epoch that it has applied.
	LateSealTaken
	// ResendOutOfOrder: a gateway sends again under one number what it had sent under the next.
	ResendOutOfOrder
	// StaleFrame: a follower takes what an owner of an earlier epoch had sent it.
	StaleFrame
	// StartIsFloor: no owner is chosen below where the last one's history began.
	StartIsFloor
	// CutAtNext: a log is cut where the next owner's history began, not at the lowest start of all later ones.
	CutAtNext
	// CancelUnanswered: a transition is withdrawn although its seals were sent, and what copies have promised is not looked at.
	CancelUnanswered
	// LoweredAtOnce: what was appended before a policy asked for fewer copies is confirmed by those.
	LoweredAtOnce
	// WipedReports: what a new store reports is taken as of the one that was lost on its node.
	WipedReports
)

var faults = [...]string{
	"none", "held-before-sync", "sealed-before-sync", "cut-before-promise", "raw-tail", "survivors-confirm", "wiped-counts", "same-epoch",
	"no-joint", "late-seal-taken", "resend-out-of-order", "stale-frame", "start-is-floor", "cut-at-next", "cancel-unanswered", "lowered-at-once", "wiped-reports",
}

// String is the fault's name, as ParseFault reads it.
func (f Fault) String() string { return faults[f] }

// ParseFault reads what String wrote. The error says that there is no such fault.
func ParseFault(name string) (Fault, error) {
	for f, n := range faults {
		if n == name {
			return Fault(f), nil
		}
	}
	return 0, fmt.Errorf("there is no fault %q", name)
}
