package controller

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
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

	w.c.Leads(false)
	w.settle()
	if o := w.ask(LossRequest{Partition: ps[0]}); o == nil || !strings.Contains(o.Refused, "does not decide now") {
		t.Fatalf("of a node that does not lead: %+v", o)
	}
	w.sim.RunFor(2 * lossWithin)
}
