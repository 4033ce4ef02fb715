package tally

import (
	"log/slog"
	"testing"

	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/port/trace"
)

// What is known of a transition comes bit by bit, and again: each thing counts once, and on one node.
func TestChangesOfOwnerAreCountedOnce(t *testing.T) {
	passed := 0
	y := New(trace.SinkFunc(func(trace.Event) { passed++ }))
	y.Local = ident.Instance{Node: "b", Store: ident.StoreID{2}, Boot: 3}
	chosen := &evidence.Evidence{}
	chosen.Workflow, chosen.Cause = evidence.Failover, "a/01000000/1 is suspected: no heartbeat, seen by b"
	chosen.After.Owner, chosen.Suspected, chosen.Recorded, chosen.Sealed, chosen.Chosen = y.Local, 1_000_000, 1_004_000, 1_010_000, 1_009_000
	committed := *chosen
	committed.Outcome, committed.Committed = evidence.Committed, 1_020_000
	serving := committed
	serving.Serving, serving.Cuts = 1_500_000, []evidence.Cut{{Node: "b", Store: ident.StoreID{2}, From: 5, To: 9}, {Node: "a", Store: ident.StoreID{1}, From: 5, To: 90}}
	further := serving
	further.Cuts = []evidence.Cut{{Node: "b", Store: ident.StoreID{2}, From: 5, To: 10}}
	y.Known(nil, &committed)
	y.Known(&committed, &serving)
	y.Known(&serving, &further)
	m := y.Metrics()
	if n := m.Owners[admin.Change{Workflow: "failover", Cause: "no heartbeat"}]; n != 1 || len(m.Owners) != 1 {
		t.Errorf("owners: %v", m.Owners)
	}
	for phase, want := range map[string]float64{"record": 0.004, "seal": 0.006, "choose": 0, "commit": 0.011, "serve": 0.48} {
		if s := m.Phases[phase]; s.Count != 1 || s.Sum != want {
			t.Errorf("%s: %+v, want %v", phase, s, want)
		}
	}
	if s := m.Phases["confirm"]; s.Count != 0 || m.Unavailable != 0.5 || m.CutEntries != 5 {
		t.Errorf("confirm %+v, unavailable %v, cut %d", s, m.Unavailable, m.CutEntries)
	}
	if s := m.Phases["seal"].Buckets; s[2] != 0 || s[3] != 1 || s[13] != 1 {
		t.Errorf("buckets of 6 ms: %v", s)
	}

	others := serving
	others.After.Owner.Boot = 2 // an earlier run of this node: it has counted for itself
	y.Known(nil, &others)
	cancelled := *chosen
	cancelled.Outcome = evidence.Cancelled
	y.Known(nil, &cancelled)
	if m = y.Metrics(); len(m.Owners) != 1 || m.Phases["seal"].Count != 1 || m.CutEntries != 9 {
		t.Errorf("after those of others: %+v", m)
	}

	lossy := *chosen
	lossy.Workflow, lossy.Cause, lossy.Outcome = evidence.LossWindow, "accepted loss: a fire", evidence.Committed
	lossy.Start.Position, lossy.Floor.Position = 10, 14
	y.Known(nil, &lossy)
	y.Known(&lossy, &lossy)
	if m = y.Metrics(); m.LostEntries != 4 || m.Owners[admin.Change{Workflow: "loss-window", Cause: "accepted loss"}] != 1 {
		t.Errorf("an accepted loss: %+v", m)
	}

	for _, name := range []string{"node.suspected", "node.suspected", "node.cleared", "node.replaced"} {
		trace.Warn(y, name, slog.String("symptom", "no heartbeat"))
	}
	if m = y.Metrics(); m.Suspicions["no heartbeat"] != 2 || m.Cleared != 1 || passed != 4 {
		t.Errorf("suspicions %v, cleared %d, %d events passed on", m.Suspicions, m.Cleared, passed)
	}
}
