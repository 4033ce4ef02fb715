package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/lease"
)

// leasing is a trio whose controller grants leases.
type leasing struct {
	*trio
	granted []lease.Grant
	term    uint64
	proofs  int
	lost    bool // no majority answers
	failing error
}

func newLeasing(t *testing.T) *leasing {
	w := &leasing{trio: newTrio(t), term: 1}
	w.c.env.Grant = func(g lease.Grant) { w.granted = append(w.granted, g) }
	w.c.env.Term = func() uint64 { return w.term }
	w.c.env.Prove = func(done func(error)) {
		w.proofs++
		if !w.lost {
			w.sim.At(w.sim.Now()+time.Millisecond, func() { done(w.failing) })
		}
	}
	w.lead()
	return w
}

// lead has the node lead anew.
func (w *leasing) lead() {
	w.c.Leads(1, false)
	w.c.Leads(1, true)
}

// to are the grants to a node, in order; those looked at are forgotten.
func (w *leasing) to(node string) (of []lease.Grant) {
	w.granted = slices.DeleteFunc(w.granted, func(g lease.Grant) bool {
		if g.Holder.Node == node {
			of = append(of, g)
		}
		return g.Holder.Node == node
	})
	return of
}

func TestHeartbeatsAreAnsweredWithLeasesWhereTheyAreDue(t *testing.T) {
	w := newLeasing(t)
	w.sim.RunFor(30 * time.Second)
	for _, node := range []string{"one", "two", "three"} {
		got := w.to(node)
		if len(got) < 9 || len(got) > 11 {
			t.Errorf("%s was granted %d leases of 10 s in 30 s, want one when a third of it is over", node, len(got))
		}
		for _, g := range got {
			if g.Term != 1 || g.Holder != run(node, 1) || g.TTL < 9*time.Second || g.TTL > 10*time.Second {
				t.Errorf("%s: granted %+v", node, g)
			}
		}
	}
	if w.proofs > 35 {
		t.Errorf("%d proofs in 30 s", w.proofs)
	}
}

func TestANewControllerGrantsAtOnce(t *testing.T) {
	w := newLeasing(t)
	w.sim.RunFor(time.Second)
	w.granted = nil
	w.term = 7
	w.lead()
	w.sim.RunFor(5 * time.Millisecond)
	if got := w.to("two"); len(got) != 1 || got[0].Term != 7 {
		t.Errorf("within 5 ms two was granted %+v", got)
	}
}

// A controller that a majority does not obey any more grants nothing that lasts: it may have been replaced.
func TestNothingIsGrantedWithoutAMajority(t *testing.T) {
	w := newLeasing(t)
	w.sim.RunFor(time.Second)
	w.lost = true
	w.sim.RunFor(3 * time.Second)
	w.granted = nil
	w.sim.RunFor(time.Minute)
	if len(w.granted) > 0 {
		t.Errorf("granted %+v", w.granted)
	}
	w.lost, w.failing = false, errors.New("no quorum")
	w.lead()
	w.sim.RunFor(time.Second)
	if len(w.granted) > 0 {
		t.Errorf("granted %+v where the proof failed", w.granted)
	}
	w.failing = nil
	w.sim.RunFor(200 * time.Millisecond)
	if len(w.to("two")) != 1 {
		t.Error("granted nothing once a majority obeys again")
	}
}

func TestALeaseIsTakenBackFromWhoIsSuspected(t *testing.T) {
	w := newLeasing(t)
	w.sim.RunFor(time.Second)
	w.granted = nil
	w.halted["two"] = true
	w.c.Beat(control.Beat{From: run("two", 1), Health: "uncertain", Sent: 5})
	w.sim.RunFor(10 * time.Second)
	if got := w.to("two"); len(got) != 1 || got[0].TTL != 0 || got[0].Sent != 5 {
		t.Errorf("two, whose journal cannot sync: granted %+v", got)
	}
	w.halted["two"] = false
	w.sim.RunFor(time.Second)
	if got := w.to("two"); len(got) != 1 || got[0].TTL == 0 {
		t.Errorf("two, well again: granted %+v", got)
	}
}

func TestOnlyTheRegisteredRunIsGrantedALease(t *testing.T) {
	w := newLeasing(t)
	w.granted = nil
	w.c.Beat(control.Beat{From: ident.Instance{Node: "two", Store: ident.StoreID{99}, Boot: 1}})
	w.c.Beat(control.Beat{From: ident.Instance{Node: "nine", Store: ident.StoreID{98}, Boot: 1}})
	w.sim.RunFor(50 * time.Millisecond)
	for _, g := range w.granted {
		if g.Holder.Store == (ident.StoreID{99}) || g.Holder.Node == "nine" {
			t.Errorf("granted %+v", g)
		}
	}
}

// An accepted loss bars the run that it gives up, and waits until nothing that anybody granted it is in force.
func TestWhenALeaseIsOver(t *testing.T) {
	w := newLeasing(t)
	two := run("two", 1)
	w.sim.RunFor(7 * time.Second)
	w.lead() // its own grants of before count on, and so does what another might have granted until now
	at := w.sim.Now()
	w.sim.RunFor(time.Second)
	w.granted = nil
	w.on(func() { w.c.bar(two) })
	w.sim.RunFor(time.Minute)
	if got := w.to("two"); len(got) != 1 || got[0].TTL != 0 {
		t.Errorf("while it is barred: granted %+v", got)
	}
	w.on(func() {
		if over := w.c.leaseOver(two); over < at+10*time.Second || over > at+12*time.Second {
			t.Errorf("over at %v, and the last grant was about %v", over, at)
		}
		w.c.unbar(two)
	})
	w.sim.RunFor(time.Second)
	if got := w.to("two"); len(got) != 1 || got[0].TTL == 0 {
		t.Errorf("when it is barred no more: granted %+v", got)
	}
}

// on runs f on the controller's loop.
func (w *leasing) on(f func()) {
	w.c.box.Post(f)
	w.sim.RunFor(0)
}

func TestTheSettingSaysHowLongLeasesAre(t *testing.T) {
	w := newLeasing(t)
	w.c.Apply(w.do(catalog.PutSetting(catalog.Lease, "4s", 0)))
	w.sim.RunFor(5 * time.Second)
	w.granted = nil
	w.sim.RunFor(10 * time.Second)
	got := w.to("two")
	if len(got) < 7 || len(got) > 9 || got[0].TTL > 4*time.Second {
		t.Errorf("granted %d leases in 10 s, the first %+v", len(got), got[0])
	}
}
