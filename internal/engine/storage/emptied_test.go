package storage

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
)

// A cut to nothing takes all of a copy: its batches, what was dropped at its head, its snapshot. What it has promised and its role stay, and it
// takes a log from the beginning, or an image; that is so after a restart too, and after a file with a checkpoint of it.
func TestACopyCanBeEmptied(t *testing.T) {
	b := newBox(t, Options{})
	l := b.log(1)
	for range 20 {
		b.add(l, 1000)
	}
	b.snapshot(l, partition.Page{Number: 1, Data: []byte("state")})
	b.must(func(d func(error)) { l.c.DropHead(10, d) })
	for range 10 {
		b.add(l, 1000)
	}
	b.must(func(d func(error)) { l.c.SetPromise(7, d) })
	b.must(func(d func(error)) { l.c.Cut(batch.Tail{}, d) })
	empty := func(when string) {
		t.Helper()
		i := l.c.Image()
		if i.Tail != (batch.Tail{}) || i.Head != 0 || i.Snapshot != (batch.Tail{}) || i.Promise != 7 || i.Damaged != "" || i.Importing {
			t.Fatalf("%s: %+v", when, i)
		}
		if bytes, records := l.c.Size(); bytes != 0 || records != 0 {
			t.Fatalf("%s: %d bytes, %d records", when, bytes, records)
		}
	}
	empty("cut")
	b.restart()
	b.find(l)
	empty("after a restart")
	l.tail = batch.Tail{}
	for range 100 { // more than a file: the next begins with a checkpoint
		b.add(l, 2000)
	}
	b.restart()
	b.find(l)
	if i := l.c.Image(); i.Tail != l.tail || i.Head != 0 || i.Promise != 7 || i.Damaged != "" {
		t.Fatalf("%+v, want %+v", i, l.tail)
	}
}

// What was let go of before a cut is not what comes there after it: a log that is taken anew, over files that are reclaimed meanwhile, is kept whole
// (simulation, seed 77356 of the act lease).
func TestALogThatIsTakenAnewIsKept(t *testing.T) {
	b := newBox(t, Options{})
	l := b.log(1)
	for range 60 {
		b.add(l, 2000)
	}
	b.snapshot(l, partition.Page{Number: 1, Data: []byte("state")})
	b.must(func(d func(error)) { l.c.Retain(l.tail.Position, nil, d) })
	b.must(func(d func(error)) { l.c.Cut(batch.Tail{}, d) })
	l.tail = batch.Tail{}
	for range 200 {
		b.add(l, 2000)
	}
	whole := func(when string) {
		t.Helper()
		if i := l.c.Image(); i.Tail != l.tail || i.Head != 0 || i.Damaged != "" {
			t.Fatalf("%s: %+v, want %+v", when, i, l.tail)
		}
		if _, records := l.c.Size(); records != 200 {
			t.Fatalf("%s: %d records of 200", when, records)
		}
	}
	b.sim.RunFor(time.Minute)
	whole("after a minute")
	b.restart()
	b.find(l)
	whole("after a restart")
}
