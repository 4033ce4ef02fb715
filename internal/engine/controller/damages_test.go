package controller

import (
	"strings"
	"testing"
	"time"
)

// An owner that says that its copy is damaged is replaced in that partition, and the evidence says why; its node is not suspected.
func TestADamagedOwnerGivesItsPartitionUp(t *testing.T) {
	w := newTrio(t)
	w.c.Damages(run("two", 1), []Damaged{{Partition: w.p, Epoch: 2, Reason: "another epoch's"}})
	w.c.Damages(run("three", 1), []Damaged{{Partition: w.p, Epoch: 1, Reason: "no owner's"}})
	w.sim.RunFor(time.Second)
	if a := w.assignment(); a.Epoch != 1 || a.Pending != nil {
		t.Fatalf("for what another says: %+v", a)
	}
	w.mute["two"] = true // a damaged copy answers no seal
	w.c.Damages(run("two", 1), []Damaged{{Partition: w.p, Epoch: 1, Reason: "checksum"}})
	w.moves(100 * time.Millisecond)
	if _, suspected := w.c.watch.detector.Suspect(run("two", 1)); suspected {
		t.Error("its node is suspected")
	}
	w.c.Damages(run("two", 1), []Damaged{{Partition: w.p, Epoch: 1, Reason: "checksum"}}) // was on its way
	w.sim.RunFor(time.Second)
	if a := w.assignment(); a.Epoch != 2 || a.Pending != nil || a.Owner.Node == "two" {
		t.Fatalf("afterwards: %+v", a)
	}
}

// Where too few others answer it waits, and says for whom and why.
func TestADamagedOwnerWaitsForTheOthers(t *testing.T) {
	w := newTrio(t)
	w.mute["three"], w.mute["two"] = true, true
	w.c.Damages(run("two", 1), []Damaged{{Partition: w.p, Epoch: 1, Reason: "checksum"}})
	w.sim.RunFor(4 * time.Second)
	a := w.assignment()
	if a.Epoch != 1 || a.Pending == nil || !strings.Contains(a.Pending.Cause, "checksum") {
		t.Fatalf("%+v, pending %+v", a, a.Pending)
	}
	w.mute["three"] = false
	w.moves(1100 * time.Millisecond)
}
