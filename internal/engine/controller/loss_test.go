package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// ask asks about a loss, and gives what has been answered by the time that nothing is left to do.
func (w *world) ask(q LossRequest) *LossOutcome {
	w.t.Helper()
	var out *LossOutcome
	w.c.Loss(q, func(o LossOutcome) {
		if out != nil {
			w.t.Error("answered twice")
		}
		out = &o
	})
	w.settle()
	return out
}

// A loss is asked of the controller that decides; it refuses what it cannot plan, and answers every request once, whatever becomes of it.
func TestWhatIsAskedAboutALossIsAnsweredOnce(t *testing.T) {
	w := newWorld(t, 11)
	w.boot()
	ps := w.declare(2)
	w.settle()
	if o := w.ask(LossRequest{Partition: ps[0]}); o == nil || o.Refused != "" || !strings.Contains(o.Plan.Against, "nothing has to be given up") {
		t.Fatalf("an owner that serves: %+v", o)
	}
	if o := w.ask(LossRequest{Partition: ps[0], Execute: true, Plan: "x", Reason: "r"}); o == nil || !strings.Contains(o.Refused, "nothing has to be given up") {
		t.Fatalf("an owner that serves, given up: %+v", o)
	}
	if o := w.ask(LossRequest{Partition: ident.Partition{Incarnation: 99}}); o == nil || !strings.Contains(o.Refused, "deleted") {
		t.Fatalf("of a partition that is gone: %+v", o)
	}

	w.damaged[ps[1]] = "a checksum"
	w.boot()
	w.settle()
	if o := w.ask(LossRequest{Partition: ps[1]}); o == nil || !strings.Contains(o.Plan.Against, "nothing to go on with") {
		t.Fatalf("only a damaged copy: %+v", o)
	}
	if e := w.assignment(ps[1]).Epoch; e != 1 {
		t.Fatalf("it was given an owner in epoch %d", e)
	}

	w.c.Leads(1, false)
	w.settle()
	if o := w.ask(LossRequest{Partition: ps[0]}); o == nil || !strings.Contains(o.Refused, "does not decide now") {
		t.Fatalf("of a node that does not lead: %+v", o)
	}
	w.sim.RunFor(2 * lossWithin)
}

// The furthest copy answers while the other that could is missing, and is lost before that is back: nobody is left who could say its links. What
// waits says that it waits for that copy, and can be given up; what it knew to be confirmed is still known.
func TestACopyThatAnsweredAndWasLostIsMissing(t *testing.T) {
	w := newQuartet(t)
	w.c.Apply(w.do(catalog.DeleteResource(catalog.DefaultVHost, "q", w.p.Incarnation, 1)))
	member := func(n string) catalog.Member { return catalog.Member{Node: n, Store: run(n, 1).Store} }
	changes := w.do(catalog.DeclareResource(catalog.Resource{
		VHost: catalog.DefaultVHost, Name: "r", Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}, Policy: "majority_durable",
	}, run("two", 1), []catalog.Member{member("three"), member("four")}, 1))
	w.p = w.state.View().AllResources()[0].Partitions[0].Partition
	w.tails["three"] = batch.Tail{Epoch: 1, Position: 20, Offset: 20, Link: batch.Link{2}}
	w.tails["four"], w.reported["three"] = w.tails["one"], 18
	w.c.Apply(changes)
	w.lose("four", control.Reset, control.Refused)
	w.sim.RunFor(time.Second)
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	w.lose("three", control.Reset, control.Refused)
	w.mute["four"] = false
	w.revive("four")
	w.sim.RunFor(100 * time.Millisecond)

	var waits []Waiting
	w.c.Waits(func(l []Waiting) { waits = l })
	var loss *LossOutcome
	w.c.Loss(LossRequest{Partition: w.p}, func(o LossOutcome) { loss = &o })
	w.sim.RunFor(2 * time.Second)
	if len(waits) != 1 || !strings.Contains(waits[0].String(), "1 of 2 answers needed; missing: three, two") {
		t.Errorf("waits: %v", waits)
	}
	if loss == nil || loss.Refused != "" || loss.Plan.Against != "" || loss.Plan.Candidate != run("four", 1) {
		t.Errorf("plan of a loss: %+v", loss)
	} else if loss.Plan.To != 18 || loss.Plan.FloorBy != "three" || loss.Plan.Gone() != 8 {
		t.Errorf("what the lost copy knew to be confirmed is forgotten: %+v", loss.Plan)
	}
}

// A forced deletion is asked of the controller that decides; it is answered once, and the catalog has the last word.
func TestWhatIsAskedAboutADeletionIsAnsweredOnce(t *testing.T) {
	w := newWorld(t, 11)
	w.boot()
	p := w.declare(1)[0]
	w.settle()
	ask := func(q DeletionRequest) (out *DeletionOutcome) {
		t.Helper()
		w.c.Delete(q, func(o DeletionOutcome) {
			if out != nil {
				t.Error("answered twice")
			}
			out = &o
		})
		w.settle()
		return out
	}
	if o := ask(DeletionRequest{Incarnation: 99}); o == nil || !strings.Contains(o.Refused, "deleted meanwhile") {
		t.Fatalf("of what is gone: %+v", o)
	}
	if o := ask(DeletionRequest{Incarnation: p.Incarnation}); o == nil || o.Refused != "" || o.Plan.Against == "" {
		t.Fatalf("of what is served: %+v", o)
	}
	w.damaged[p] = "a checksum"
	w.boot()
	w.settle()
	plan := ask(DeletionRequest{Incarnation: p.Incarnation})
	if plan == nil || plan.Refused != "" || plan.Plan.Against != "" || len(plan.Plan.Fence) != 0 {
		t.Fatalf("its only copy is damaged: %+v", plan)
	}
	execute := DeletionRequest{Incarnation: p.Incarnation, Execute: true, Plan: plan.Plan.Hash(), Reason: strings.Repeat("r", catalog.MaxReason+1)}
	if o := ask(execute); o == nil || o.Done || !strings.Contains(o.Refused, "the catalog refused it") {
		t.Fatalf("what the catalog refuses: %+v", o)
	}
	execute.Reason = "a fire"
	w.lostAnswers = 1 // it is done, and nobody says so
	if o := ask(execute); o == nil || !o.Done || o.Refused != "" {
		t.Fatalf("got %+v", o)
	}
	if d := w.state.View().Deletion(p.Incarnation); d == nil || d.Reason != "a fire" || len(d.Held) != 1 {
		t.Fatalf("the catalog remembers %+v", d)
	}
	w.c.Leads(1, false)
	w.settle()
	if o := ask(DeletionRequest{Incarnation: 1}); o == nil || !strings.Contains(o.Refused, "does not decide now") {
		t.Fatalf("of a node that does not lead: %+v", o)
	}
	w.sim.RunFor(2 * lossWithin)
}
