package controller

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
)

// Things that come in another order than the one that is usual.

// Members learn of a new leader before its term begins there, which is when it has applied all that was committed before. What they say then
// they say once.
func TestWhatIsToldBeforeTheTermBegins(t *testing.T) {
	w := newTrio(t)
	w.c.Leads(1, false)
	w.lose("two", control.Reset, control.Refused)
	w.c.Report(run("three", 1), []control.Reach{{Node: run("two", 1), Up: true}})
	w.c.Report(run("three", 1), []control.Reach{{Node: run("four", 1), Ending: control.Refused}})
	w.c.Confirms(run("two", 1), []Confirmed{{w.p, 1, 11}})
	w.sim.RunFor(time.Millisecond)
	w.c.Leads(1, true)
	w.started = w.sim.Now()
	w.stays(time.Second)
	w.c.Report(run("three", 1), []control.Reach{{Node: run("two", 1), Ending: control.Refused}})
	w.sim.RunFor(3 * time.Second)
	if a := w.assignment(); a.Epoch != 1 || a.Pending == nil {
		t.Fatalf("chosen below what the owner confirmed: %+v", a)
	}

	w = newTrio(t) // what a session before said is over with it
	w.c.Leads(1, false)
	w.c.Report(run("three", 1), []control.Reach{{Node: run("two", 1), Up: true}})
	w.lose("two", control.Reset, control.Refused)
	w.c.PeerDown(run("three", 1), control.Reset)
	w.c.PeerUp(run("three", 1))
	w.sim.RunFor(time.Millisecond)
	w.c.Leads(1, true)
	w.moves(time.Millisecond)
}

// A copy that has answered, and goes or is suspected before it has said its links, holds up nobody: those that are left go on without it.
func TestTheFurthestCopyGoesBeforeItSaysItsLinks(t *testing.T) {
	for name, goes := range map[string]func(w *trio){
		"gone":  func(w *trio) { w.lose("three", control.Reset, control.Refused) },
		"hangs": func(w *trio) { w.halted["three"], w.mute["three"] = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrio(t)
			w.c.env.Links = func(node string, _ ident.Partition, at []uint64, done func(map[uint64]batch.Link)) {
				links := map[uint64]batch.Link{}
				for _, x := range at {
					links[x] = batch.Link{1}
				}
				if node != "three" {
					done(links)
				}
			}
			for n, at := range map[string]uint64{"one": 10, "two": 11, "three": 12} {
				w.tails[n] = batch.Tail{Epoch: 1, Position: at, Offset: at, Link: batch.Link{1}}
			}
			w.lose("two", control.Reset, control.Refused)
			w.sim.RunFor(10 * time.Millisecond)
			goes(w)
			w.halted["two"], w.mute["two"] = false, false
			w.c.PeerUp(run("two", 1))
			w.moves(3 * time.Second)
			if a := w.assignment(); a.Owner.Node != "two" {
				t.Fatalf("%+v", a)
			}
		})
	}
}

// An owner of an earlier epoch that has not heard of its end takes nothing back that a later one said.
func TestAFloorBesideThatOfAnEarlierOwner(t *testing.T) {
	w := newTrio(t)
	w.lose("two", control.Reset, control.Refused)
	w.moves(time.Millisecond)
	if a := w.assignment(); a.Owner.Node != "three" {
		t.Fatalf("%+v", a)
	}
	w.halted["two"], w.mute["two"] = false, false
	w.c.PeerUp(run("two", 1))
	w.c.Confirms(run("three", 1), []Confirmed{{w.p, 2, 12}})
	w.c.Confirms(run("two", 1), []Confirmed{{w.p, 1, 5}})
	w.lose("three", control.Reset, control.Refused)
	w.sim.RunFor(3 * time.Second)
	if a := w.assignment(); a.Epoch != 2 || a.Pending == nil {
		t.Fatalf("chosen below what the owner confirmed: %+v", a)
	}
}

// A withdrawal that a controller before asked for may come after this one has sealed. The copies obey their owner no more, so another
// transition is recorded at once, not only when they say so.
func TestAWithdrawalThatComesAfterSeals(t *testing.T) {
	w := newTrio(t)
	w.mute["three"] = true
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	clear(w.mute)
	w.halted["two"] = false
	a := w.assignment()
	w.c.Apply(w.do(catalog.CancelPending(w.p, a.Version, a.Pending.ID)))
	w.c.PeerUp(run("two", 1))
	w.moves(30 * time.Millisecond)
	if len(w.c.own) > 0 {
		t.Fatalf("remembered as if it could be withdrawn: %v", w.c.own)
	}
}

// A copy that answers a seal was heard, and could sync: the owner that a tie keeps in place is not suspected again for what it did not say
// before, until its next heartbeat.
func TestAnOwnerThatAnswersIsHeard(t *testing.T) {
	for name, hangs := range map[string]func(w *trio){
		"silent":  func(w *trio) {},
		"stalled": func(w *trio) { w.c.Beat(control.Beat{From: run("two", 1), Stalled: 2 * time.Second}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTrio(t)
			w.halted["two"] = true
			w.mute["three"] = true // so that the others are waited for
			hangs(w)
			w.moves(2 * time.Second)
			w.sim.RunFor(100 * time.Millisecond)
			if a := w.assignment(); a.Epoch != 2 || a.Owner.Node != "two" || a.Pending != nil {
				t.Fatalf("epoch %d, owner %s, pending %+v", a.Epoch, a.Owner, a.Pending)
			}
		})
	}
}

// A run that was chosen before the catalog had it is refused, and chosen as soon as the catalog has.
func TestARunThatIsChosenBeforeItIsRegistered(t *testing.T) {
	w := newTrio(t)
	w.mute["three"] = true
	w.tails["two"] = batch.Tail{Epoch: 1, Position: 12, Offset: 12, Link: batch.Link{1}}
	seal := w.c.env.Seal
	w.c.env.Seal = func(node string, reqs []control.SealRequest, done func([]control.SealAnswer)) {
		seal(node, reqs, func(as []control.SealAnswer) {
			if node == "two" {
				as[0].Instance.Boot = 2
			}
			done(as)
		})
	}
	w.c.PeerDown(run("two", 1), control.Reset)
	w.c.PeerUp(run("two", 2))
	w.sim.RunFor(50 * time.Millisecond)
	if a := w.assignment(); a.Epoch != 1 || a.Pending == nil || w.c.open[w.p].step != waiting {
		t.Fatalf("%+v, pending %+v", a, a.Pending)
	}
	w.c.Apply(w.do(catalog.RegisterBoot(catalog.Node{Name: "two", Store: run("two", 2).Store, Boot: 2, Mesh: "two:1"})))
	w.moves(30 * time.Millisecond)
	if a := w.assignment(); a.Owner != run("two", 2) {
		t.Fatalf("%+v", a)
	}
}
