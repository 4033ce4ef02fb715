package storage

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

func TestAFullDiskParksAppendsAndLetsThemGoOn(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l := b.log(1)
	b.add(l, 5000)
	b.mem.Full(true)
	done, failed := 0, 0
	for range 60 { // far more than the current file and the reserve take
		x, link := l.next(5000)
		l.c.Append(x, link, false, func(err error) {
			if done++; err != nil {
				failed++
			}
		})
	}
	b.sim.RunFor(20 * time.Second)
	if h := b.s.Health(); !h.Blocked || h.Class != Full || h.Closed {
		t.Fatalf("health on a full disk: %+v", h)
	}
	if done < 15 || done == 60 || failed > 0 {
		t.Fatalf("%d of 60 done, %d failed: the reserve takes some, and the rest waits", done, failed)
	}
	b.mem.Full(false)
	b.sim.RunFor(3 * time.Second)
	if h := b.s.Health(); h.Blocked || h.Class != Healthy || done != 60 || failed > 0 {
		t.Fatalf("with space again: %d of 60 done, %d failed, health %+v", done, failed, h)
	}
	if len(b.s.spares) != 1 || !b.s.spares[0].reserve {
		t.Fatalf("spares %v: the reserve is not set aside again", b.s.spares)
	}
	if c := slices.Compact(slices.Clone(b.logged)); len(c) < 2 || len(c) != len(b.logged) {
		t.Errorf("logged %q; want each change of health once, and nothing for the free bytes alone", b.logged)
	}
	b.restart()
	if i := b.find(l).Image(); i.Tail != l.tail || i.Damaged != "" {
		t.Fatalf("after a restart: %+v", i)
	}
}

// What is deleted on a full disk makes room, although that has to be written too, and although the copy itself waits to write more.
func TestAFullDiskIsLeftByDeletingACopy(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l, other := b.log(1), b.log(2)
	b.add(other, 100)
	for range 60 {
		b.add(l, 5000)
	}
	b.mem.Full(true)
	done, gone, failed := 0, 0, 0
	waits := func(l *log, n int) {
		for range n {
			x, link := l.next(5000)
			l.c.Append(x, link, false, func(err error) {
				switch done++; {
				case errors.Is(err, ErrGone):
					gone++
				case err != nil:
					failed++
				}
			})
		}
	}
	waits(l, 40)
	waits(other, 20)
	b.sim.RunFor(20 * time.Second)
	if done == 60 {
		t.Fatal("nothing waits for space")
	}
	if err := b.call(l.c.Delete); err != nil {
		t.Fatal(err)
	}
	b.sim.RunFor(20 * time.Second)
	if done != 60 || gone == 0 || failed > 0 {
		t.Fatalf("%d of 60 done, %d too late, %d failed; health %+v", done, gone, failed, b.s.Health())
	}
	b.restart()
	if i := b.find(other).Image(); i.Tail != other.tail || i.Damaged != "" || len(b.s.Copies()) != 1 {
		t.Fatalf("after a restart: %+v of %d copies", i, len(b.s.Copies()))
	}
}

// TestAFullDiskIsToldOnce: what is below the low-water mark and cannot be written either is one state, however often both are seen.
func TestAFullDiskIsToldOnce(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	b.opt.LowWater, b.opt.HighWater = 1<<40, 1<<41
	b.restart()
	l := b.log(1)
	b.mem.Full(true)
	for range 60 {
		x, link := l.next(5000)
		l.c.Append(x, link, false, func(error) {})
	}
	b.sim.RunFor(20 * time.Second)
	if h := b.s.Health(); !h.Blocked || h.Class != Full {
		t.Fatalf("health on a full disk: %+v", h)
	}
	if len(b.logged) < 1 || len(b.logged) > 2 {
		t.Errorf("logged %d times in 20 s: %q", len(b.logged), b.logged)
	}
}

// A node that stops has its copies wait for what they have appended, and closes the store after that: on a full disk neither may wait for space.
func TestAnEndDoesNotWaitForSpace(t *testing.T) {
	for _, full := range []bool{false, true} {
		b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
		l := b.log(1)
		b.add(l, 5000)
		b.mem.Full(full)
		done, failed := 0, 0
		kept := l.tail
		for range 60 {
			x, link := l.next(5000)
			tail := l.tail
			l.c.Append(x, link, false, func(err error) {
				if done++; err != nil {
					failed++
				} else {
					kept = tail
				}
			})
		}
		if full {
			b.sim.RunFor(20 * time.Second)
			if done == 60 || failed > 0 {
				t.Fatalf("%d of 60 done, %d failed, on a full disk", done, failed)
			}
		}
		b.s.Ending()
		b.sim.RunFor(100 * time.Millisecond)
		if done != 60 || full != (failed > 0) {
			t.Fatalf("full %v: %d of 60 done, %d failed, after the end was announced", full, done, failed)
		}
		closed := 0
		b.s.Close(func(error) { closed++ })
		b.sim.RunFor(100 * time.Millisecond)
		if closed != 1 {
			t.Fatalf("full %v: closed %d times", full, closed)
		}
		b.mem.Full(false)
		b.restart()
		if i := b.find(l).Image(); i.Tail != kept || i.Damaged != "" {
			t.Fatalf("full %v: after a restart %+v; want %+v", full, i, kept)
		}
	}
}

func TestAFullDiskIsLeftByGivingUpWhatIsDead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1, Reserve: -1})
		l := b.log(1)
		for range 60 {
			b.add(l, 5000)
		}
		b.settle(l)
		b.mem.Full(true)
		done := 0
		for range 40 {
			x, link := l.next(5000)
			l.c.Append(x, link, false, func(err error) {
				if err == nil {
					done++
				}
			})
		}
		if restart {
			b.sim.RunFor(500 * time.Millisecond) // before the files are looked through
			b.restart()
			c := b.find(l)
			at := slices.Index(l.tails, c.Image().Tail)
			l.tail, l.tails, done = l.tails[at], l.tails[:at+1], 0
			b.must(func(d func(error)) { c.Retain(c.Image().Snapshot.Position, nil, d) })
			for range 40 {
				b.add(l, 5000)
				done++
				if l.tail.Position%8 == 0 {
					b.settle(l)
				}
			}
		}
		b.sim.RunFor(10 * time.Second)
		if done != 40 || b.s.Health().Closed {
			t.Fatalf("restart %v: %d of 40 done, health %+v, %d files", restart, done, b.s.Health(), b.used())
		}
	}
}

func TestACloseOnAFullDiskEnds(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, Reserve: -1})
	l := b.log(1)
	b.mem.Full(true)
	var outcomes []error
	for range 30 {
		x, link := l.next(5000)
		l.c.Append(x, link, false, func(err error) { outcomes = append(outcomes, err) })
	}
	b.sim.RunFor(5 * time.Second)
	if len(outcomes) == 30 {
		t.Fatal("nothing waits for space")
	}
	b.must(b.s.Close)
	if len(outcomes) != 30 || !errors.Is(outcomes[29], ErrClosed) {
		t.Fatalf("%d outcomes, the last %v", len(outcomes), outcomes[len(outcomes)-1])
	}
	b.mem.Full(false)
	b.restart()
	if at := slices.Index(l.tails, b.find(l).Image().Tail); at < 5 {
		t.Fatalf("the log ends at %+v", l.c.Image())
	}
}

func TestAFaultOnAFullDiskDoesNotKeepAStoreFromStarting(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1})
	l := b.log(1)
	b.add(l, 5000)
	b.mem.FailAfter(true, 0)
	x, link := l.next(5000)
	if err := b.call(func(d func(error)) { l.c.Append(x, link, false, d) }); err == nil {
		t.Fatal("an append was done though its sync failed")
	}
	b.kill()
	b.mem.Full(true)
	b.open()
	if i := b.find(l).Image(); i.Damaged != "" || i.Tail.Position < 1 {
		t.Fatalf("%+v", i)
	}
}

func TestReadsAfterACloseSayThatItIsClosed(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l := b.log(1)
	for range 5 {
		b.add(l, 5000)
	}
	b.must(b.s.Close)
	if _, err := b.read(l.c, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("a read: %v", err)
	}
	if _, err := b.readSnapshot(l.c); !errors.Is(err, ErrClosed) {
		t.Errorf("a snapshot: %v", err)
	}
	if err := b.call(func(done func(error)) { l.c.SeekTime(0, func(_ uint64, err error) { done(err) }) }); !errors.Is(err, ErrClosed) {
		t.Errorf("a seek: %v", err)
	}
	if h := b.s.Health(); h.Class == Corruption || l.c.Image().Damaged != "" {
		t.Errorf("health %+v, damaged %q", h, l.c.Image().Damaged)
	}
}

// TestReadsFindWhatIsNotLoggedBehindAGap: what lies before the newest batches was dropped or is on disk.
func TestReadsFindWhatIsNotLoggedBehindAGap(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l, other := b.log(1), b.log(2)
	for range 40 {
		b.add(l, 5000)
	}
	b.settle(l, partition.Span{From: 0, To: 1})
	b.add(other, 5000) // takes the memory
	x, link := l.next(100)
	l.c.Append(x, link, false, nil)
	offset, position := x.Offset, x.Position
	l.c.ReadOffset(offset, 1, func(bs []batch.Batch, err error) {
		if err != nil || len(bs) != 1 || bs[0].Offset != offset {
			t.Errorf("offset %d, in memory: %v %v", offset, bs, err)
		}
		offset = 0
	})
	if offset != 0 {
		t.Error("a read of what is in memory was not answered at once")
	}
	bs, err := b.read(l.c, position-1)
	if err != nil || len(bs) == 0 || bs[0].Position > position {
		t.Errorf("position %d: %v %v", position, bs, err)
	}
	bs, err = b.read(l.c, l.tail.Position)
	if err != nil || len(bs) != 0 {
		t.Errorf("at the end: %v %v", bs, err)
	}
}

func TestWhatWasDroppedIsNotReadFromMemory(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1})
	l := b.log(1)
	for range 5 {
		b.add(l, 100)
	}
	b.must(func(d func(error)) { l.c.DropHead(3, d) })
	for _, q := range []query{{position: 0}, {offset: 0, byOffset: true}} {
		l.c.read(q, 1<<20, func(bs []batch.Batch, err error) {
			if err != nil || len(bs) != 2 || bs[0].Position != 3 {
				t.Errorf("%+v: %d batches, %v", q, len(bs), err)
			}
		})
	}
}

// TestPagesOfASnapshotThatWasNotEndedDoNotCount: not in the run that follows, and not in the one after it, which replays both.
func TestPagesOfASnapshotThatWasNotEndedDoNotCount(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1})
	l := b.log(1)
	b.add(l, 100)
	b.snapshot(l, partition.Page{Number: 1, Data: []byte("one")}, partition.Page{Number: 2, Data: []byte("two")})
	body := []byte{2, 0, 0, 0, 'b', 'a', 'd'}
	b.must(func(d func(error)) { b.s.w.enqueue(op{typ: layout.FramePage, c: l.c, body: body, done: d}, false) })
	b.restart()
	b.find(l)
	b.add(l, 100)
	b.snapshot(l, partition.Page{Number: 1, Data: []byte("one more")})
	for range 3 {
		got, err := b.readSnapshot(b.find(l))
		if err != nil || got.At != l.tail || len(got.Pages) != 2 || string(got.Pages[0].Data) != "one more" || string(got.Pages[1].Data) != "two" {
			t.Fatalf("%+v %v", got, err)
		}
		b.restart()
	}
}

func TestALargeCatalogSurvives(t *testing.T) {
	b := newBox(t, Options{FileSize: 32 << 20, ScrubEvery: -1})
	m := b.s.Consensus()
	data := make([]byte, layout.MaxBody+1000)
	b.must(func(d func(error)) { m.SaveSnapshot(catalog.LogSnapshot{Index: 5, Term: 1, Data: data}, d) })
	l := b.log(1)
	for b.s.Metrics().FilesRecycled < 2 { // so that the first checkpoint is gone
		b.add(l, 1<<20)
		b.settle(l)
		b.sim.RunFor(time.Second)
	}
	for range 2 {
		b.restart()
		st, err := b.s.Consensus().Load()
		if err != nil || st.Snapshot.Index != 5 || len(st.Snapshot.Data) != len(data) {
			t.Fatalf("snapshot %d of %d bytes, %v", st.Snapshot.Index, len(st.Snapshot.Data), err)
		}
	}
	if i := b.find(l).Image(); i.Damaged != "" || i.Tail != l.tail {
		t.Fatalf("%+v", i)
	}
}

// TestOneOldMessageKeepsOneBatch: what was settled in the middle of a log is reused, though the head is still needed.
func TestOneOldMessageKeepsOneBatch(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l := b.log(1)
	for range 2000 {
		b.add(l, 5000)
		if l.tail.Position%20 == 0 {
			b.settle(l, partition.Span{From: 3, To: 4})
			b.sim.RunFor(2 * time.Second)
		}
	}
	if n := b.used(); n > 12 {
		t.Errorf("%d files of 64 KiB for one message", n)
	}
	if size, _ := l.c.Size(); size > 10*64<<10 {
		t.Errorf("%d bytes are kept", size)
	}
	b.restart()
	b.find(l)
	bs, err := b.read(l.c, 0)
	if err != nil || len(bs) == 0 || bs[0].Offset != 3 {
		t.Errorf("the old message: %v %v", bs, err)
	}
	if i := l.c.Image(); i.Tail != l.tail {
		t.Errorf("%+v", i)
	}
}

func TestDroppingAndDeletingGiveFilesBack(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	for round := range uint64(4) {
		stream, gone := b.log(2*round+1), b.log(2*round+2)
		for range 60 {
			b.add(stream, 5000)
			b.add(gone, 5000)
		}
		b.must(func(d func(error)) { stream.c.DropHead(60, d) })
		b.must(gone.c.Delete)
		b.sim.RunFor(5 * time.Second)
	}
	if m := b.s.Metrics(); m.FilesCreated > 18 || m.FilesRecycled < 20 {
		t.Errorf("%d files created, %d recycled", m.FilesCreated, m.FilesRecycled)
	}
}

// TestADamagedCopyDoesNotKeepOtherFilesFromReuse: it stays where it is, and the files behind it are emptied all the same.
func TestADamagedCopyDoesNotKeepOtherFilesFromReuse(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	bad, small, l := b.log(1), b.log(2), b.log(3)
	b.add(bad, 100)
	for range 200 {
		b.add(l, 5000)
		if l.tail.Position%10 == 0 {
			b.add(small, 10) // a little that lives in every file
		}
	}
	b.s.corrupt(bad.c, fmt.Errorf("%w: for the test", ErrDamaged))
	b.settle(l)
	b.sim.RunFor(60 * time.Second)
	if n := len(b.s.files); n > 6 {
		t.Errorf("%d files are in use, one of them for the damaged copy", n)
	}
	for range 2 {
		if i := b.find(bad).Image(); i.Damaged == "" || i.Tail != bad.tail {
			t.Errorf("%+v", i)
		}
		bs, err := b.read(b.find(small), 0)
		if err != nil || len(bs) != 20 {
			t.Errorf("%d of the small batches, %v", len(bs), err)
		}
		b.restart()
	}
}

func TestACutToASnapshotBelowWhichNothingIsLeft(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l := b.log(1)
	for range 40 {
		b.add(l, 5000)
	}
	b.settle(l)
	at := l.tail
	for range 40 {
		b.add(l, 5000)
	}
	b.sim.RunFor(5 * time.Second)
	b.must(func(d func(error)) { l.c.Cut(at, d) })
	l.tail = at
	b.add(l, 100)
	b.restart()
	if i := b.find(l).Image(); i.Tail != l.tail || i.Damaged != "" || i.Snapshot != at {
		t.Fatalf("%+v", i)
	}
}

// A snapshot of the consensus log whose writing a crash cut short leaves parts behind, which must not get into the next one.
func TestConsensusSnapshotCutShort(t *testing.T) {
	r := newRig(t, Options{})
	m := r.s.Consensus()
	r.must(func(d func(error)) { m.write(layout.AppendBytes([]byte{metaFirst}, []byte("half of ")), d) })
	r.reopen()
	m = r.s.Consensus()
	r.must(func(d func(error)) { m.SaveSnapshot(catalog.LogSnapshot{Index: 5, Term: 1, Data: []byte("whole")}, d) })
	r.reopen()
	st, err := r.s.Consensus().Load()
	if err != nil || st.Snapshot.Index != 5 || string(st.Snapshot.Data) != "whole" {
		t.Fatalf("%v, snapshot %d %q", err, st.Snapshot.Index, st.Snapshot.Data)
	}
}

// A snapshot from the leader ends what the log holds if that contradicts it, and keeps it if the log already had what the snapshot
// ends with.
func TestConsensusSnapshotEndsWhatContradictsIt(t *testing.T) {
	for name, c := range map[string]struct {
		index, term uint64
		left        int
	}{
		"held":                 {2, 2, 2},
		"another in its place": {2, 3, 0},
		"beyond the end":       {9, 3, 0},
		"the end":              {4, 2, 0},
	} {
		r := newRig(t, Options{})
		m := r.s.Consensus()
		r.must(func(d func(error)) {
			m.Append(nil, []catalog.LogEntry{{Index: 1, Term: 1}, {Index: 2, Term: 2}, {Index: 3, Term: 2}, {Index: 4, Term: 2}}, d)
		})
		r.must(func(d func(error)) {
			m.SaveSnapshot(catalog.LogSnapshot{Index: c.index, Term: c.term, Data: []byte("s")}, d)
		})
		for range 2 {
			r.reopen()
			st, err := r.s.Consensus().Load()
			if err != nil || st.Snapshot.Index != c.index || len(st.Entries) != c.left {
				t.Fatalf("%s: %v, snapshot %d, %d entries left, want %d", name, err, st.Snapshot.Index, len(st.Entries), c.left)
			}
		}
	}
}

// A store that closed itself cools for a while after it is opened again, in a run that is cut short and in the next one, and no longer than that.
func TestAStoreThatClosedItselfCoolsOverRestarts(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: -1})
	again := func(ran time.Duration) {
		b.sim.RunFor(ran)
		b.kill()
		b.open()
	}
	again(time.Second)
	if b.s.Cools() {
		t.Fatal("it cools after a run that ended well")
	}
	l := b.log(1)
	b.mem.FailAfter(true, 0)
	x, link := l.next(5000)
	if err := b.call(func(d func(error)) { l.c.Append(x, link, false, d) }); err == nil {
		t.Fatal("an append was done though its sync failed")
	}
	if !b.s.Cools() {
		t.Fatal("closed, it does not cool")
	}
	again(time.Minute)
	for range 2 {
		if !b.s.Cools() {
			t.Fatal("it does not cool")
		}
		again(9 * time.Second) // too short
	}
	b.sim.RunFor(9 * time.Second)
	if !b.s.Cools() {
		t.Fatal("it has cooled too soon")
	}
	b.sim.RunFor(2 * time.Second)
	if b.s.Cools() {
		t.Fatal("it cools after its time")
	}
	again(time.Second)
	if b.s.Cools() {
		t.Fatal("it cools again, with no fault since")
	}
}
