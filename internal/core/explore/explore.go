// Package explore searches every schedule of a small cluster: three nodes with one copy each of one partition, their disks, the
// sessions between them, the catalog and its controllers, in every order of appends, syncs, deliveries, lost sessions, crashes, restarts,
// wiped stores, suspicions, seals, choices, commits, withdrawals, applied roles, cuts, changes of members and policies, and accepted losses,
// within bounds. After every step it checks invariants 1 to 5 of design 2 §11, and with a gateway that publishes, 7; of a state in which
// nothing is left to do it asks whether the partition serves with as many copies as are wanted, all the same: the part of invariant 9 that
// needs no clock.
//
// What is decided, production code decides: core/partition (Copy, Feed, Change, Source, Producers, RoleOf, SetOf), core/control (CauseOf, Pend,
// MayCancel, Choose, CommitOf, Arrange, PlanLoss, LossOf), core/quorum, and the catalog's own state machine with its commands. The package itself plays what
// performs: a disk whose writes become durable in order, sessions that keep order and lose what is on its way when they end, and the loop
// of engine/replica that turns messages into calls.
//
// There may be two controllers at a time, one of which does not know that its term is over. They are not played one by one: what either might do
// is a step. A choice goes by any of the answers that were given, one of each node, for the others may be late, lost, or another's; what was
// proposed to the catalog and comes late is a proposal that is made late, for the version guards it; a seal comes at any time after its transition
// was recorded, if that was committed or withdrawn since, too; and a transition is withdrawn where the one that recorded it may have asked for that,
// whatever the other has sealed meanwhile (Bounds.Overlap).
//
// Searches leave schedules out where others tell the same. States that differ only in which node is which are one (key.go). What only its receiver
// would drop is dropped, and so is what nothing can come of any more; what says nothing is heard, at once, or forgotten before anybody hears it
// (world.go). Bounds.Direct and Bounds.Lazy leave out more, for the reasons in direct.go and lazy.go, which key_test.go and reduce_test.go hold
// against searches without.
//
// What is simpler here: a log is read at once, but for the place of a cut; a batch holds one entry; a state machine has nothing to load;
// no log drops its head, so an image (Reseeds) is of what a copy might have been fed; and a restarted node registers in the same step. Source: design 7, "protocol, small
// and complete".
package explore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Nodes is how many nodes there are.
const Nodes = 3

// MaxEpochs bounds the epochs of a search and of a script.
const MaxEpochs = 7

// Bounds limit a search.
type Bounds struct {
	Copies  int    // admitted at the beginning, of Nodes; where fewer, the catalog lets others learn and be admitted
	Policy  string // as quorum reads it; "": majority_durable
	Appends int    // records, of all owners together
	Entries int    // not 0: records are not counted; what would make a log longer than so many entries is not searched
	// Publishes is how many messages a gateway publishes; then nobody else appends records (publish.go).
	Publishes int
	Epochs    uint64 // the last epoch that a transition may begin; at most MaxEpochs
	Crashes   int
	Wipes     int // stores lost while their node is down
	Breaks    int // sessions that end, and answers of the catalog that are lost
	Cancels   int // transitions that are withdrawn and leave something behind; 0: none is
	Queue     int // messages on their way in one direction; what would exceed it is not searched
	Depth     int // steps after the beginning; 0: all
	States    int // the search ends after so many; 0: never
	// Wanted is how many copies are wished at the beginning; 0: as many as there are nodes.
	Wanted int
	// Changes is how many wishes there are of who is to learn or to leave, and of other policies and numbers of copies (wishes.go), those in
	// Wishes, by their number, and in Wants.
	Changes       int
	Wishes, Wants []uint8
	Losses        int // that an operator accepts
	Reseeds       int // copies that are made anew in their place (reseed.go)
	// Begin are steps, as a script has them, that every schedule begins with.
	Begin []string
	// Suspect lets transitions begin without a cause: suspicion may be wrong at any time (design 2 §4).
	Suspect bool
	// Overlap has a second controller act beside the one that recorded a transition: what the one has withdrawn the other may have sealed.
	Overlap bool
	// Direct has what an owner and another copy say to each other taken as it is sent, and reads be done at once (direct.go).
	Direct bool
	// Lazy, beside Direct, has what is written become durable when something depends on that, and not earlier (lazy.go).
	Lazy bool
	// Deep has the steps of the state taken that was come to last, so that few states wait for that: what millions of states need is little memory,
	// and the schedule that breaks a rule is not the shortest.
	Deep bool
	// Watch is told, before the steps after so many, how many states there are and how many of them are new; with Deep, each million states,
	// how long the longest schedule is and how many states wait for their steps to be taken. nil: nobody is.
	Watch func(depth, states, fresh int)
}

// Result is what a search found.
type Result struct {
	States  int // that differ, exchangeable followers taken as the same
	Steps   int // taken, also to states that were known
	Depth   int // of the longest shortest schedule; with Deep, of the longest that was gone
	Clogged int // steps that were not taken because of Queue
	// Complete says that every state within the bounds was seen.
	Complete bool
	// Violation is the rule that was broken, with the shortest schedule that breaks it; empty if there is none.
	Violation string
	Schedule  []string
	// Seen counts states by what they show, so that a search which cannot reach what it should is noticed.
	Seen map[string]int
}

// visited is where a state was come to from.
type visited struct {
	parent int32
	action Action
}

// Search goes through all schedules within bounds, shortest first if not Deep. The error says that a step of Begin cannot be taken, or that the
// bounds contradict each other.
func Search(b Bounds, f Fault) (Result, error) {
	if b.Deep && b.Depth > 0 {
		return Result{}, errors.New("a search that goes deepest first has no greatest depth")
	}
	x := newExplorer(b, f)
	w := x.begin()
	x.unbound()
	for _, line := range b.Begin {
		a, err := ParseAction(line)
		if err != nil {
			return Result{}, err
		}
		next := w.take(a)
		if next == nil {
			return Result{}, fmt.Errorf("step %q cannot be taken", line)
		}
		w = next
	}
	x.bounds = b
	x.bounds.Appends += int(w.used.appends)
	x.bounds.Cancels += int(w.used.cancels)
	x.bounds.Crashes += int(w.used.crashes)
	x.bounds.Wipes += int(w.used.wipes)
	x.bounds.Breaks += int(w.used.breaks)
	x.bounds.Changes += int(w.used.changes)
	x.bounds.Losses += int(w.used.losses)
	x.bounds.Reseeds += int(w.used.reseeds)
	if a := w.cat.v.a; b.Lazy && (!b.Direct || wOf(a, a.Eligible()) < 2) {
		return Result{}, errors.New("a lazy search is a direct one, and needs more than one copy to confirm")
	}
	if b.Lazy && b.Losses+b.Reseeds > 0 {
		return Result{}, errors.New("a lazy search does not say what copies know to be confirmed, which decides what becomes of an accepted loss and what may be discarded")
	}
	if !b.Direct && b.Reseeds > 0 {
		return Result{}, errors.New("copies are made anew in direct searches only")
	}
	s := search{x: x, r: Result{Seen: map[string]int{}}}
	if b.Deep {
		s.deep(w)
	} else {
		s.run(w)
	}
	if s.r.Violation != "" {
		s.r.Schedule = append(slices.Clone(b.Begin), s.r.Schedule...)
	}
	return s.r, nil
}

type search struct {
	x     *explorer
	known prints
	trail []visited
	r     Result
}

// place is a state whose steps are to be taken.
type place struct {
	w     *world
	at    int32
	steps int32
}

func (s *search) run(first *world) {
	level := []place{}
	if !s.add(first, place{at: -1}, Action{}, &level) {
		return
	}
	for depth := 0; len(level) > 0; depth++ {
		s.r.Depth = depth
		if watch := s.x.bounds.Watch; watch != nil {
			watch(depth, s.r.States, len(level))
		}
		if s.x.bounds.Depth > 0 && depth == s.x.bounds.Depth {
			return
		}
		var next []place
		for i := range level {
			p := level[i]
			level[i].w = nil
			if !s.expand(p, &next) {
				return
			}
		}
		level = next
	}
	s.r.Complete = s.r.Clogged == 0
}

// deep takes the steps of the state that it came to last.
func (s *search) deep(first *world) {
	const often = 1_000_000
	todo := []place{}
	more := s.add(first, place{at: -1}, Action{}, &todo)
	for next := often; more && len(todo) > 0; {
		p := todo[len(todo)-1]
		todo[len(todo)-1] = place{}
		todo = todo[:len(todo)-1]
		s.r.Depth = max(s.r.Depth, int(p.steps)-1)
		more = s.expand(p, &todo)
		if watch := s.x.bounds.Watch; watch != nil && s.r.States >= next {
			watch(s.r.Depth, s.r.States, len(todo))
			next += often
		}
	}
	s.r.Complete = more && s.r.Clogged == 0
}

// expand takes every step from a state. It returns false where the search ends.
func (s *search) expand(p place, next *[]place) bool {
	rests := true
	for _, a := range p.w.actions() {
		w := p.w.take(a)
		if w == nil {
			continue
		}
		rests = rests && !p.w.bound(a)
		if w.long {
			continue
		}
		if w.clogged {
			s.r.Clogged++
			continue
		}
		s.r.Steps++
		if !s.add(w, p, a, next) {
			return false
		}
	}
	if rests {
		s.r.Seen["at rest"]++
		if why := p.w.unfinished(); why != "" {
			s.r.Violation, s.r.Schedule = "9: nothing is left to do, and "+why, s.schedule(p.at)
			return false
		}
	}
	return true
}

// add notes a state if it is new. It returns false where the search ends.
func (s *search) add(w *world, from place, a Action, to *[]place) bool {
	if !s.known.add(w.key()) && w.broken == "" {
		return true
	}
	s.r.States++
	at := int32(len(s.trail))
	s.trail = append(s.trail, visited{from.at, a})
	if w.broken != "" {
		s.r.Violation = w.broken
		s.r.Schedule = s.schedule(at)
		return false
	}
	w.show(s.r.Seen)
	if s.x.bounds.States > 0 && s.r.States >= s.x.bounds.States {
		return false
	}
	*to = append(*to, place{w, at, from.steps + 1})
	return true
}

func (s *search) schedule(at int32) []string {
	var out []string
	for ; s.trail[at].parent >= 0; at = s.trail[at].parent {
		out = append(out, s.trail[at].action.String())
	}
	slices.Reverse(out)
	return out
}

// unbound lets a script go where it wants.
func (x *explorer) unbound() {
	const many = 99
	x.bounds.Appends, x.bounds.Crashes, x.bounds.Wipes, x.bounds.Breaks, x.bounds.Cancels = many, many, many, many, many
	x.bounds.Changes, x.bounds.Losses, x.bounds.Reseeds = many, many, many
	x.bounds.Epochs, x.bounds.Suspect, x.bounds.Overlap, x.bounds.Queue, x.bounds.Entries = MaxEpochs, true, true, 0, 0
}

// Play takes the steps of a script and tells, line by line, what each led to. It ends at the first broken rule, which is told too. The
// error says that a step cannot be taken.
func Play(b Bounds, f Fault, script []string) (string, error) {
	x := newExplorer(b, f)
	w := x.begin()
	x.unbound()
	var out strings.Builder
	for _, line := range script {
		a, err := ParseAction(line)
		if err != nil {
			return out.String(), err
		}
		x.told = x.told[:0]
		x.telling = true
		next := w.take(a)
		x.telling = false
		if next == nil {
			return out.String(), fmt.Errorf("step %q cannot be taken", line)
		}
		w = next
		if out.WriteString(line); len(x.told) > 0 {
			out.WriteString(": " + strings.Join(x.told, "; "))
		}
		out.WriteString("\n")
		if w.broken != "" {
			fmt.Fprintf(&out, "BROKEN: %s\n", w.broken)
			return out.String(), nil
		}
	}
	if w.rests() {
		if why := w.unfinished(); why != "" {
			fmt.Fprintf(&out, "BROKEN: 9: nothing is left to do, and %s\n", why)
		}
	}
	out.WriteString(w.describe())
	return out.String(), nil
}
