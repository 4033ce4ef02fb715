package storage

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// idleBytes bounds what an idle copy takes in memory, its place in the file's index included: 690 to 810, by how groups fall. A queue as a whole may take 4 KiB.
const idleBytes = 900

func TestIdleCopiesAreSmall(t *testing.T) {
	const warm, n = 5_000, 10_000 // what a store has whatever it holds is there after the first
	r := newRig(t, Options{FileSize: 32 << 20, ScrubEvery: -1, CacheBytes: 1})
	r.idle(0, warm)
	before, loops := r.atRest(), runtime.NumGoroutine()
	r.idle(warm, warm+n)
	first := int64(r.atRest()-before) / n
	if g := runtime.NumGoroutine(); g > loops {
		t.Errorf("%d goroutines for idle copies", g-loops)
	}
	old := r.s // its timers would keep it for a while
	r.close()
	before = heap()
	r.open()
	again := int64(r.atRest()-before) / (warm + n)
	runtime.KeepAlive(old)
	t.Logf("%d bytes a copy, %d after a restart", first, again)
	if first > idleBytes || again > idleBytes {
		t.Errorf("%d bytes a copy, %d after a restart, at most %d", first, again, idleBytes)
	}
	if got := len(r.s.Copies()); got != warm+n {
		t.Errorf("%d copies", got)
	}
}

// atRest is the heap of a store that does nothing: the least of some looks, since a group that comes late takes the writer's buffer once more.
func (r *rig) atRest() uint64 {
	r.t.Helper()
	least := uint64(math.MaxUint64)
	for range 3 {
		r.rest()
		least = min(least, heap())
	}
	return least
}

// rest has the writer give back what it works with, as it does by itself a second after the last group.
func (r *rig) rest() {
	r.t.Helper()
	done := make(chan struct{})
	r.s.w.mb.Post(msgCall{func() { r.s.w.restedAt = r.s.w.sequence; r.s.w.rest(); close(done) }})
	<-done
}

// idle makes copies as queues leave them that nobody uses: a mark in the log, a promise, a role and a snapshot.
func (r *rig) idle(from, to int) {
	r.t.Helper()
	var wg sync.WaitGroup
	wg.Add(to - from)
	for i := range to - from {
		l := r.log(uint64(from + i + 1))
		b, link := l.next(10)
		l.c.SetPromise(1, nil)
		l.c.SetRole(partition.Owner, 1, nil)
		l.c.Append(b, link, true, nil)
		l.c.WriteSnapshot(partition.Snapshot{At: l.tail, Version: 1, Pages: []partition.Page{{Data: []byte{1, 0, 0}}}}, func(err error) {
			if err != nil {
				r.t.Error(err)
			}
			wg.Done()
		})
	}
	wg.Wait()
	r.must(func(d func(error)) { r.s.Consensus().Append([]byte("h"), nil, d) })
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestCallersFromManyLoops lets callers, writer, reader, reclaim and scrub meet, for the race detector; what they promised is there in
// the end.
func TestCallersFromManyLoops(t *testing.T) {
	r := newRig(t, Options{FileSize: 128 << 10, CacheBytes: 32 << 10, ScrubEvery: time.Millisecond, ScrubChunk: 32 << 10, ReclaimChunk: 16 << 10})
	var callers, watcher sync.WaitGroup
	var logs []*log
	for n := range uint64(5) {
		l := r.log(n + 1)
		logs = append(logs, l)
		callers.Go(func() { r.busy(l) })
	}
	callers.Go(func() {
		for n := range uint64(30) { // copies come and go
			l := r.log(100 + n)
			l.append(r, 5000)
			r.must(l.c.Delete)
		}
	})
	var stop atomic.Bool
	watcher.Go(func() {
		for !stop.Load() {
			r.s.Metrics()
			r.s.Health()
			r.s.Stalled()
			for _, c := range r.s.Copies() {
				c.Image()
				c.Size()
				c.Oldest(3)
			}
			r.reclaimNow()
		}
	})
	callers.Wait()
	stop.Store(true)
	watcher.Wait()
	if m := r.s.Metrics(); m.FilesRecycled == 0 || m.BytesMoved == 0 {
		t.Errorf("%d files recycled, %d bytes moved: what should meet does not", m.FilesRecycled, m.BytesMoved)
	}
	r.reopen()
	for _, l := range logs {
		c := r.find(l.c.part)
		if i := c.Image(); i.Tail != l.tail || i.Damaged != "" {
			t.Errorf("%s: %+v, want %+v", c.part, i, l.tail)
		}
		got := r.read(c, c.Image().Snapshot.Position)
		if len(got) > 0 && got[len(got)-1].End() != l.tail.Position || len(got) == 0 && c.Image().Snapshot != l.tail {
			t.Errorf("%s: %d batches up to %d", c.part, len(got), l.tail.Position)
		}
	}
}

// busy does everything to a copy, again and again.
func (r *rig) busy(l *log) {
	for i := range 160 {
		b, link := l.next(4000)
		done := make(chan error, 1)
		l.c.Append(b, link, i%7 == 0, func(err error) { done <- err })
		l.c.ReadOffset(uint64(i/2), 10_000, func(_ []batch.Batch, err error) { r.good(err) })
		l.c.SeekTime(int64(i/2), func(_ uint64, err error) { r.good(err) })
		l.c.LastBatch(uint64(i), func(_ uint64, err error) { r.good(err) })
		r.good(<-done)
		switch i % 16 {
		case 5:
			at := l.tail
			r.good(wait(func(d func(error)) {
				l.c.WriteSnapshot(partition.Snapshot{At: at, Version: 1, Pages: []partition.Page{{Number: uint32(i), Data: make([]byte, 2000)}}}, d)
			}))
			r.good(wait(func(d func(error)) {
				l.c.Retain(at.Position, []partition.Span{{From: uint64(i), To: uint64(i) + 1}}, d)
			}))
		case 7:
			r.image(l.c)
		case 9:
			l.c.ReadSnapshot(func(_ partition.Snapshot, _ bool, err error) { r.good(err) })
		case 11:
			r.good(wait(func(d func(error)) { l.c.DropHead(uint64(i/4), d) }))
		case 13:
			l.tail = l.tails[len(l.tails)-3]
			l.tails = l.tails[:len(l.tails)-2]
			r.good(wait(func(d func(error)) { l.c.Cut(l.tail, d) }))
		}
	}
}

func (r *rig) good(err error) {
	if err != nil {
		r.t.Error(err)
	}
}

// image reads an image of a copy to its end, while the copy goes on.
func (r *rig) image(c *Copy) {
	var x *Export
	if err := wait(func(d func(error)) { c.Export(nil, func(e *Export, err error) { x = e; d(err) }) }); err != nil {
		r.t.Error(err)
		return
	}
	defer x.Close()
	for at := (ImageCursor{}); ; {
		var p []byte
		r.good(wait(func(d func(error)) { x.Chunk(at, 20_000, func(q []byte, err error) { p = q; d(err) }) }))
		k, err := parseChunk(p)
		if r.good(err); err != nil || k.last {
			return
		}
		at = k.next()
	}
}

func TestACopyThatIsBeingDeletedIsNotMadeAnew(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1})
	l := b.log(1)
	b.add(l, 100)
	l.c.Delete(nil)
	if _, err := b.s.Create(l.c.part); !errors.Is(err, ErrExists) {
		t.Errorf("created anew before its deletion was logged: %v", err)
	}
	b.sim.RunFor(time.Second)
	c, err := b.s.Create(ident.Partition{Incarnation: 1})
	if err != nil || c.Image().Tail.Position != 0 {
		t.Fatalf("%+v %v", c, err)
	}
	b.sim.RunFor(time.Second)
	b.restart()
	if i := b.s.Copies(); len(i) != 1 || i[0].Image().Tail.Position != 0 || i[0].Image().Damaged != "" {
		t.Fatalf("%+v", i[0].Image())
	}
}
