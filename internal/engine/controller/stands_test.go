package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/control"
)

// TestACopyThatNeverAnswersIsNamed: nothing speaks against its node, so its answer is waited for; people are told of whom.
func TestACopyThatNeverAnswersIsNamed(t *testing.T) {
	w := newTrio(t)
	w.mute["three"] = true
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(1500 * time.Millisecond)
	waits := func() (list []Waiting) {
		w.c.Waits(func(l []Waiting) { list = l })
		w.sim.RunFor(time.Millisecond)
		return list
	}
	if l := waits(); len(l) > 0 {
		t.Fatalf("at once: %v", l)
	}
	w.sim.RunFor(2 * time.Second)
	l := waits()
	if len(l) != 1 || !strings.Contains(l[0].String(), "three was asked and does not answer") || l[0].Answers != 1 || l[0].Needed != 2 {
		t.Fatalf("after a while: %v", l)
	}
	w.mute["three"] = false
	w.moves(1100 * time.Millisecond)
	if l := waits(); len(l) > 0 {
		t.Fatalf("once it has answered: %v", l)
	}
}

// stalls has nodes say with every heartbeat that their sync takes long.
func (w *trio) stalls(nodes ...string) (ends func()) {
	since, on := w.sim.Now(), true
	var say func()
	say = func() {
		if !on {
			return
		}
		for _, n := range nodes {
			w.halted[n] = true // these are its heartbeats
			w.c.Beat(control.Beat{From: run(n, 1), Stalled: w.sim.Now() - since})
		}
		w.sim.At(w.sim.Now()+100*time.Millisecond, say)
	}
	say()
	return func() {
		on = false
		for _, n := range nodes {
			w.halted[n] = false
		}
	}
}

func TestAnOwnerWhoseDiskStallsIsReplacedWhereAnotherDoesNot(t *testing.T) {
	w := newTrio(t)
	w.stalls("two")
	w.sim.RunFor(1900 * time.Millisecond)
	if w.assignment().Epoch != 1 {
		t.Fatal("before the limit")
	}
	w.moves(300 * time.Millisecond)
}

// TestNothingMovesWhereAllDisksStall: another owner would be no better off. It is looked at again, and ends with the stall, or when that lasts.
func TestNothingMovesWhereAllDisksStall(t *testing.T) {
	w := newTrio(t)
	ends := w.stalls("one", "two", "three")
	w.sim.RunFor(5 * time.Second)
	ends()
	w.sim.RunFor(time.Second)
	if a := w.assignment(); a.Epoch != 1 || a.Pending != nil {
		t.Fatalf("after a stall of all: %+v, pending %+v", a, a.Pending)
	}
	w.stalls("two") // the others stalled not long ago
	w.sim.RunFor(4 * time.Second)
	if a := w.assignment(); a.Epoch != 1 || a.Pending != nil {
		t.Fatalf("within the cool-down: %+v, pending %+v", a, a.Pending)
	}
	w.moves(8 * time.Second)
}

// A store that closed itself not long ago owns where no other holds as much, and only there.
func TestAStoreThatCoolsOwnsOnlyWhereNoOtherCan(t *testing.T) {
	for _, c := range []struct{ cools, owner string }{{"one", "three"}, {"three", "one"}, {"one three", ""}} {
		w := newTrio(t)
		w.health = func(node string) string {
			if strings.Contains(c.cools, node) {
				return control.Cooling
			}
			return ""
		}
		w.sim.RunFor(500 * time.Millisecond)
		w.lose("two", control.Reset, control.Refused)
		w.sim.RunFor(time.Second)
		if a := w.assignment(); a.Epoch != 2 || a.Pending != nil || c.owner != "" && a.Owner.Node != c.owner {
			t.Errorf("%s cools: %+v", c.cools, a)
		}
	}
}
