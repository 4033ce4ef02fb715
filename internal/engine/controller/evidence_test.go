package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
)

// kept is a trio that keeps what the controller offers.
func kept(t *testing.T) (*trio, *[]*evidence.Evidence) {
	w, list := newTrio(t), new([]*evidence.Evidence)
	w.c.env.Offer = func(es []*evidence.Evidence) {
		for _, e := range es {
			if a, _ := w.state.View().Assignment(w.p); a != nil && e.Outcome == "" && a.Epoch >= e.After.Epoch {
				t.Errorf("offered after the commit: %+v", e)
			}
		}
		*list = append(*list, es...)
	}
	return w, list
}

func TestTheRecordOfAChoiceIsOfferedAheadOfItsCommit(t *testing.T) {
	w, list := kept(t)
	before := *w.assignment()
	w.c.Confirms(run("two", 1), []Confirmed{{w.p, 1, 9}})
	w.c.Report(run("three", 1), []control.Reach{{Node: run("two", 1), Ending: control.Reset}})
	w.sim.RunFor(time.Millisecond)
	lost := w.c.micros()
	w.lose("two", control.Reset)
	w.moves(time.Second)
	a := w.assignment()
	if len(*list) != 1 {
		t.Fatalf("%d records", len(*list))
	}
	e := (*list)[0]
	start := a.Starts[len(a.Starts)-1]
	switch {
	case start.Evidence != e.Digest() || start.Epoch != 2:
		t.Errorf("the catalog has %+v, the record is %s", start, e.Digest())
	case e.Before != evidence.Reign{Owner: before.Owner, Epoch: 1} || e.After != evidence.Reign{Owner: a.Owner, Epoch: 2}:
		t.Errorf("from %+v to %+v", e.Before, e.After)
	case e.Resource != "q" || e.W != 2 || e.R != 2 || e.E != 3 || e.Floor != evidence.Floor{Position: 9, By: "two"} || len(e.Answers) != 2:
		t.Errorf("decided on %+v", e.Decided)
	case !slices.Contains(e.SeenBy, "one") || e.Cause == "":
		t.Errorf("cause %q, seen by %q", e.Cause, e.SeenBy)
	case e.Suspected > lost || e.Suspected < lost-int64(time.Second/time.Microsecond) || e.Recorded < lost+100_000 || e.Sealed < e.Recorded || e.Chosen < e.Sealed:
		t.Errorf("lost at %d; suspected %d, recorded %d, sealed %d, chosen %d", lost, e.Suspected, e.Recorded, e.Sealed, e.Chosen)
	}
}

func TestAWithdrawalLeavesARecord(t *testing.T) {
	w, list := kept(t)
	w.slow = 50 * time.Millisecond
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	w.halted["two"], w.mute["two"] = false, false
	w.c.PeerUp(run("two", 1))
	w.sim.RunFor(time.Second)
	if len(*list) != 1 || (*list)[0].Outcome != evidence.Cancelled || (*list)[0].Reason == "" || (*list)[0].After.Epoch != 2 || len((*list)[0].Answers) > 0 {
		t.Fatalf("%d records: %+v", len(*list), *list)
	}
	first := (*list)[0].ID
	w.slow = 0
	w.lose("two", control.Reset, control.Refused)
	w.moves(time.Second)
	if last := (*list)[len(*list)-1]; last.After.Epoch != 2 || last.ID == first || last.Outcome != "" {
		t.Fatalf("the next to the same epoch is %+v", last)
	}
}

// A wait is offered once for each reason, whatever is tried in between, and its end replaces it.
func TestAWaitIsOfferedWithItsReason(t *testing.T) {
	w, list := kept(t)
	w.c.Confirms(run("two", 1), []Confirmed{{w.p, 1, 11}})
	w.sim.RunFor(time.Millisecond)
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(5 * time.Second)
	if len(*list) != 1 || (*list)[0].Outcome != "" || (*list)[0].Reason == "" || len((*list)[0].Answers) != 2 || (*list)[0].After.Owner.Node != "" {
		t.Fatalf("%d records: %+v", len(*list), *list)
	}
	var waits []Waiting
	w.c.Waits(func(ws []Waiting) { waits = ws })
	w.sim.RunFor(time.Millisecond)
	if len(waits) != 1 || waits[0].Kind != control.WaitFloor || waits[0].Floor != 11 || waits[0].FloorBy != "two" || !slices.Equal(waits[0].Missing, []string{"two"}) {
		t.Errorf("waits for %+v", waits)
	}
	w.tails["three"] = batch.Tail{Epoch: 1, Position: 11, Offset: 11, Link: batch.Link{1}}
	w.moves(2 * time.Second)
	last := (*list)[len(*list)-1]
	if len(*list) != 2 || last.ID != (*list)[0].ID || last.Digest() != w.assignment().Starts[1].Evidence || last.Recorded != (*list)[0].Recorded {
		t.Errorf("chosen after %+v: %+v", (*list)[0], last)
	}
}

func TestADeletionUnderATransitionLeavesARecord(t *testing.T) {
	w, list := kept(t)
	w.mute["one"], w.mute["three"] = true, true
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	w.c.Apply(w.do(catalog.DeleteResource(catalog.DefaultVHost, "q", 0, 0)))
	w.sim.RunFor(10 * time.Millisecond)
	if n := len(*list); n == 0 || (*list)[n-1].Outcome != evidence.Cancelled || (*list)[n-1].Resource != "q" || (*list)[n-1].W != 2 {
		t.Fatalf("%d records: %+v", n, *list)
	}
}

// A controller that takes a transition over says what the catalog says of its beginning.
func TestARecordGoesOnWhereAControllerBegan(t *testing.T) {
	w, list := kept(t)
	w.mute["one"], w.mute["three"] = true, true
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	pending := w.assignment().Pending
	w.c.Leads(1, false)
	clear(w.mute)
	w.mute["two"] = true
	w.sim.RunFor(time.Second)
	w.c.Leads(1, true)
	w.moves(2 * time.Second)
	e := (*list)[len(*list)-1]
	if e.ID != pending.ID || e.Suspected != pending.Suspected || e.Suspected == 0 || e.Recorded != pending.Since*1000 || !slices.Equal(e.SeenBy, pending.By) || len(e.SeenBy) == 0 {
		t.Fatalf("pending was %+v; the record is %+v", pending, e)
	}
}
