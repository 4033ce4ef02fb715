package node

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// The newest is told first, whatever order the records came in: those that were missed come later from other nodes.
func TestTransitionsAreToldNewestFirst(t *testing.T) {
	sim := exec.NewSim(1)
	r := archive.Open(archive.Env{
		Loop: sim.Node("n1", 1).Dedicated("evidence"), Clock: clock.NewSim(sim.Now, time.UnixMilli(0)), Trace: trace.Discard, FS: vfs.NewMemory(1),
		Dir: "data",
	})
	for i, x := range []struct {
		id, resource        string
		suspected, recorded int64
	}{{"a", "q", 30, 35}, {"b", "q", 0, 20}, {"c", "s", 10, 40}, {"d", "q", 0, 31}} {
		r.Offer([]*evidence.Evidence{{Decided: evidence.Decided{
			ID: x.id, VHost: "/", Resource: x.resource, Partition: ident.Partition{Incarnation: uint64(i + 1)}, Suspected: x.suspected, Recorded: x.recorded,
		}, Became: evidence.Became{Outcome: evidence.Cancelled}}})
	}
	sim.RunFor(time.Second)
	b := &backend{n: &Node{archive: r}}
	for _, c := range []struct {
		of   admin.Which
		n    int
		want []string
	}{
		{admin.Which{}, 9, []string{"d", "a", "b", "c"}},
		{admin.Which{}, 2, []string{"d", "a"}},
		{admin.Which{VHost: "/", Resource: "s"}, 9, []string{"c"}},
		{admin.Which{VHost: "v"}, 9, nil},
	} {
		all, err := b.Transitions(context.Background(), c.of, c.n)
		var got []string
		for _, e := range all {
			got = append(got, e.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v, %d: %q, %v; want %q", c.of, c.n, got, err, c.want)
		}
	}
	var refused *broker.Error
	if _, err := b.Transition(context.Background(), "x"); !errors.As(err, &refused) || refused.Code != broker.NotFound {
		t.Errorf("an unknown transition: %v", err)
	}
	if e, err := b.Transition(context.Background(), "b"); err != nil || e.ID != "b" {
		t.Errorf("%+v, %v", e, err)
	}
}
