package storage

import (
	"testing"

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
