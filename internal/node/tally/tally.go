// Package tally counts changes of owner for the metrics. It listens to evidence and events, and decides nothing.
package tally

import (
	"log/slog"
	"maps"
	"sync"

	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/port/trace"
)

// Changes counts changes of owner, from what evidence and events say. Its methods may be called from any goroutine.
type Changes struct {
	Local ident.Instance // the run whose changes count; set before anything is told
	sink  trace.Sink     // that events are passed on to

	mu  sync.Mutex
	all admin.ChangeMetrics
}

// New counts nothing yet, and passes events on to a sink.
func New(sink trace.Sink) *Changes {
	return &Changes{sink: sink, all: admin.ChangeMetrics{
		Owners: map[admin.Change]uint64{}, Phases: map[string]admin.Seconds{}, Suspicions: map[string]uint64{},
	}}
}

// Emit implements trace.Sink.
func (t *Changes) Emit(e trace.Event) {
	switch e.Name {
	case "node.suspected":
		t.mu.Lock()
		t.all.Suspicions[textOf(e.Attrs, "symptom")]++
		t.mu.Unlock()
	case "node.cleared":
		t.mu.Lock()
		t.all.Cleared++
		t.mu.Unlock()
	}
	t.sink.Emit(e)
}

func textOf(attrs []slog.Attr, name string) string {
	for _, a := range attrs {
		if a.Key == name {
			return a.Value.String()
		}
	}
	return ""
}

// Known counts what is new of a transition: cuts of copies here, and all else of those that made this run an owner. Each time counts once,
// when both ends of what it measures are known.
func (t *Changes) Known(before, after *evidence.Evidence) {
	if before == nil {
		before = &evidence.Evidence{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.CutEntries += t.cut(after) - min(t.cut(before), t.cut(after))
	if after.After.Owner != t.Local || after.Outcome != evidence.Committed {
		return
	}
	if before.Outcome != evidence.Committed {
		t.all.Owners[admin.Change{Workflow: string(after.Workflow), Cause: control.CauseWord(after.Cause)}]++
		if after.Workflow == evidence.LossWindow {
			t.all.LostEntries += after.Floor.Position - min(after.Start.Position, after.Floor.Position)
		}
	}
	was, is := steps(before), steps(after)
	for i, phase := range admin.Phases {
		if took, ok := between(is[i], is[i+1]); ok && (was[i] == 0 || was[i+1] == 0) {
			s := t.all.Phases[phase]
			s.Add(took)
			t.all.Phases[phase] = s
		}
	}
	if away, ok := between(after.Suspected, after.Serving); ok && (before.Suspected == 0 || before.Serving == 0) {
		t.all.Unavailable += away
	}
}

// steps are the times between which the phases of a change of owner lie.
func steps(e *evidence.Evidence) [7]int64 {
	return [...]int64{e.Suspected, e.Recorded, e.Sealed, e.Chosen, e.Committed, e.Serving, e.FirstConfirm}
}

// between gives seconds; none where either time is not known. Clocks of two nodes may say less than nothing.
func between(from, to int64) (seconds float64, ok bool) {
	if from == 0 || to == 0 {
		return 0, false
	}
	return float64(max(0, to-from)) / 1e6, true
}

// cut is how many entries copies on this node's store dropped.
func (t *Changes) cut(e *evidence.Evidence) (n uint64) {
	for _, c := range e.Cuts {
		if c.Store == t.Local.Store {
			n += c.To - min(c.From, c.To)
		}
	}
	return n
}

// Metrics is a copy of what was counted.
func (t *Changes) Metrics() admin.ChangeMetrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.all
	m.Owners, m.Phases, m.Suspicions = maps.Clone(m.Owners), maps.Clone(m.Phases), maps.Clone(m.Suspicions)
	return m
}
