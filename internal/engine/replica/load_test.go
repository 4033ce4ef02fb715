package replica

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// A replica that loses its role between being given its turn to load and taking it passes the turn on; one that waits again meanwhile
// takes one turn, not two.
func TestTheTurnToLoadIsPassedOn(t *testing.T) {
	w := newWorld(t, 1)
	l := w.m.lanes[0]
	queuedOne := func(index uint32) *replica {
		id := ident.Partition{Incarnation: 9, Index: index}
		r := &replica{
			m: w.m, lane: l, id: id, log: &nullLog{id: id}, res: &catalog.Resource{Kind: catalog.Queue}, phase: queued,
			copy: partition.Open(partition.Image{Partition: id}),
		}
		r.box = w.node.Loop(0).Spawn("replica", r)
		return r
	}
	for _, again := range []bool{false, true} {
		a, b, c, d := queuedOne(0), queuedOne(1), queuedOne(2), queuedOne(3)
		a.phase, l.loading, l.toLoad = loading, 1, []*replica{b, c}
		a.loaded()
		b.unload() // sealed
		waiting := []*replica{c, d}
		if again { // and owner again, behind c
			b.phase = queued
			l.toLoad = append(l.toLoad, b)
			waiting = append(waiting, b)
		}
		l.toLoad = append(l.toLoad, d)
		w.settle()
		for _, r := range waiting {
			if r.phase < warm {
				t.Errorf("again %v: replica %s is left waiting (%d)", again, r.id, r.phase)
			}
		}
		if l.loading != 0 || len(l.toLoad) != 0 {
			t.Fatalf("again %v: %d loading, %d waiting", again, l.loading, len(l.toLoad))
		}
	}
}
