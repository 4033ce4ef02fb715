package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// box is a store on a disk in memory, on a seeded thread, with calls that wait.
type box struct {
	t    testing.TB
	sim  *exec.Sim
	mem  *vfs.Memory
	fs   vfs.FS
	opt  Options
	node *exec.SimNode
	s    *Store
	life int
}

func newBox(t testing.TB, opt Options) *box {
	b := &box{t: t, sim: exec.NewSim(1), mem: vfs.NewMemory(1), opt: opt}
	b.fs = b.mem
	if b.opt.FileSize == 0 {
		b.opt.FileSize = 64 << 10
	}
	b.opt.LowWater, b.opt.HighWater = 1, 1
	b.open()
	return b
}

func (b *box) open() {
	b.t.Helper()
	b.life++
	b.node = b.sim.Node(fmt.Sprintf("life%d", b.life), 1)
	s, err := Open(Env{FS: b.fs, Clock: clock.NewSim(b.sim.Now, time.Unix(0, 0)), Exec: b.node, Random: exec.NewSimRandom(1, "store")}, "data", b.opt)
	if err != nil {
		b.t.Fatal(err)
	}
	b.s = s
}

// kill ends the process; what it wrote stays.
func (b *box) kill() {
	b.node.Stop()
	b.mem.Crash(2 + 3) // all changes of directories and all writes are kept
}

func (b *box) restart() { b.t.Helper(); b.kill(); b.open() }

// call waits for an outcome, for a minute of simulated time at most.
func (b *box) call(f func(func(error))) error {
	b.t.Helper()
	err, done := error(nil), false
	f(func(e error) { err, done = e, true })
	if !b.sim.RunUntil(func() bool { return done }, time.Minute) && !done {
		b.t.Fatal("no outcome")
	}
	return err
}

func (b *box) must(f func(func(error))) {
	b.t.Helper()
	if err := b.call(f); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) log(n uint64) *log {
	b.t.Helper()
	c, err := b.s.Create(ident.Partition{Incarnation: n})
	if err != nil {
		b.t.Fatal(err)
	}
	return &log{c: c}
}

func (b *box) add(l *log, size int) {
	b.t.Helper()
	x, link := l.next(size)
	b.must(func(d func(error)) { l.c.Append(x, link, false, d) })
}

// find gives a log its copy in the present run.
func (b *box) find(l *log) *Copy {
	b.t.Helper()
	for _, c := range b.s.Copies() {
		if c.part == l.c.part {
			l.c = c
			return c
		}
	}
	b.t.Fatalf("copy %s is not there", l.c.part)
	return nil
}

func (b *box) snapshot(l *log, pages ...partition.Page) {
	b.t.Helper()
	b.must(func(d func(error)) { l.c.WriteSnapshot(partition.Snapshot{At: l.tail, Version: 1, Pages: pages}, d) })
}

func (b *box) readSnapshot(c *Copy) (got partition.Snapshot, err error) {
	b.t.Helper()
	err = b.call(func(done func(error)) {
		c.ReadSnapshot(func(s partition.Snapshot, _ bool, err error) { got = s; done(err) })
	})
	return got, err
}

func (b *box) read(c *Copy, position uint64) (got []batch.Batch, err error) {
	b.t.Helper()
	err = b.call(func(done func(error)) {
		c.Read(position, 1<<20, func(bs []batch.Batch, err error) { got = bs; done(err) })
	})
	return got, err
}

// used are the log files there are, spares included.
func (b *box) used() int { return len(b.s.files) + len(b.s.spares) }

// settle drops what a log holds below its end, as a queue does when all is settled.
func (b *box) settle(l *log, live ...partition.Span) {
	b.t.Helper()
	b.snapshot(l)
	b.must(func(d func(error)) { l.c.Retain(l.tail.Position, live, d) })
}

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
	b.restart()
	if i := b.find(l).Image(); i.Tail != l.tail || i.Damaged != "" {
		t.Fatalf("after a restart: %+v", i)
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
	b.must(func(d func(error)) { b.s.w.enqueue(op{typ: framePage, c: l.c, body: body, done: d}, false) })
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
	data := make([]byte, maxBody+1000)
	b.must(func(d func(error)) { m.SaveSnapshot(catalog.LogSnapshot{Index: 5, Term: 1, Data: data}, d) })
	l := b.log(1)
	for b.s.Metrics().Rolls < 3 {
		b.add(l, 1<<20)
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

// breakFrames turns a bit in frames of the newest file, in the body or in the head.
func (b *box) breakFrames(head bool, which func(frame) bool) (broken int) {
	b.t.Helper()
	f := b.s.newest()
	b.kill()
	file, err := b.mem.Open(f.name)
	if err != nil {
		b.t.Fatal(err)
	}
	p := make([]byte, b.opt.FileSize)
	n, _ := file.ReadAt(p, 0)
	for at := int64(headerSize); ; {
		fr, err := parseFrame(p[at:n])
		if err != nil {
			break
		}
		if which(fr) {
			i := at + frameHead
			if head {
				i = at + 24
			}
			if _, err := file.WriteAt([]byte{p[i] ^ 8}, i); err != nil {
				b.t.Fatal(err)
			}
			broken++
		}
		at += int64(fr.size)
	}
	if broken == 0 {
		b.t.Fatal("nothing was broken")
	}
	if err := file.Sync(); err != nil {
		b.t.Fatal(err)
	}
	return broken
}

// TestABrokenFrameHurtsWhomItIsOf: also where the head is broken, and only a witness says whose it was.
func TestABrokenFrameHurtsWhomItIsOf(t *testing.T) {
	for _, head := range []bool{false, true} {
		for name, which := range map[string]func(frame) bool{
			"entries": func(f frame) bool { return f.typ == frameEntries },
			"create":  func(f frame) bool { return f.typ == frameCreate && f.part.Incarnation == 1 },
			"batch":   func(f frame) bool { return f.typ == frameBatch && f.part.Incarnation == 1 },
		} {
			if name == "create" && !head {
				continue // it has no body
			}
			t.Run(fmt.Sprintf("%s/head %v", name, head), func(t *testing.T) {
				b := newBox(t, Options{ScrubEvery: -1})
				other := b.log(2)
				b.add(other, 100)
				m := b.s.Consensus()
				l := b.log(1)
				x, link := l.next(100)
				l.c.Append(x, link, false, nil)
				b.must(func(d func(error)) { m.Append(nil, []catalog.LogEntry{{Index: 1, Term: 1, Data: []byte("x")}}, d) })
				b.must(func(d func(error)) { l.c.SetPromise(1, d) })
				b.add(other, 100)
				b.breakFrames(head, which)
				b.open()
				if i := b.find(other).Image(); i.Damaged != "" || i.Tail != other.tail {
					t.Errorf("the other copy: %+v", i)
				}
				if i := b.find(l).Image(); i.Damaged == "" && (name != "entries" || i.Tail != l.tail) {
					t.Errorf("the copy: %+v", i)
				}
				if _, err := b.s.Consensus().Load(); err == nil && name == "entries" {
					t.Error("the consensus log lost an entry and does not say so")
				} else if err != nil && !head && name != "entries" {
					t.Error(err)
				}
			})
		}
	}
}

func TestAStalledSyncIsSeen(t *testing.T) {
	r := newRig(t, Options{ScrubEvery: -1})
	l := r.log(1)
	l.append(r, 100)
	if d := r.s.Stalled(); d != 0 {
		t.Errorf("stalled %v with nothing under way", d)
	}
	slow := &slowFile{File: r.s.w.cur.f, begun: make(chan struct{}), go_: make(chan struct{})}
	r.must(func(d func(error)) { r.s.w.mb.Post(msgCall{func() { r.s.w.cur.f = slow; d(nil) }}) })
	x, link := l.next(100)
	done := make(chan error, 1)
	l.c.Append(x, link, false, func(err error) { done <- err })
	<-slow.begun
	a := r.s.Stalled()
	for r.s.Stalled() <= a { // time passes
	}
	close(slow.go_)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.must(func(d func(error)) { r.s.w.mb.Post(msgCall{func() { d(nil) }}) })
	if d := r.s.Stalled(); d != 0 || r.s.Health().LastSync == 0 {
		t.Errorf("stalled %v after the sync, last sync %v", d, r.s.Health().LastSync)
	}
}

// slowFile does not end a sync before it is told to.
type slowFile struct {
	vfs.File
	begun, go_ chan struct{}
}

func (f *slowFile) Sync() error {
	close(f.begun)
	<-f.go_
	return f.File.Sync()
}

// TestTheScrubFindsAFlippedBit in a full file: in a batch's body or head, or in a snapshot's page; and it goes on where it was after a
// restart.
func TestTheScrubFindsAFlippedBit(t *testing.T) {
	for name, which := range map[string]func(frame) bool{
		"batch": func(f frame) bool { return f.typ == frameBatch && f.part.Incarnation == 1 },
		"page":  func(f frame) bool { return f.typ == framePage },
	} {
		for _, at := range []int64{24, frameHead + 100} {
			t.Run(fmt.Sprintf("%s at %d", name, at), func(t *testing.T) {
				b := newBox(t, Options{CacheBytes: 1, ScrubChunk: 16 << 10, ScrubEvery: time.Hour})
				l, whole := b.log(1), b.log(2)
				b.add(l, 1000)
				b.snapshot(l, partition.Page{Number: 1, Data: make([]byte, 500)})
				for range 100 {
					b.add(whole, 5000)
				}
				b.flipInFull(which, at)
				b.opt.ScrubEvery = time.Second
				b.restart()
				b.sim.RunFor(3 * time.Second)
				if d := b.find(l).Image().Damaged; !strings.Contains(d, "scrub") {
					t.Errorf("damaged %q", d)
				}
				if h := b.s.Health(); h.Class != Corruption || h.Copy != l.c.part || h.Closed {
					t.Errorf("health %+v", h)
				}
				b.sim.RunFor(2 * time.Minute)
				b.restart()
				if i := b.find(l).Image(); !strings.Contains(i.Damaged, "scrub") {
					t.Errorf("after a restart: %+v", i)
				}
				if i := b.find(whole).Image(); i.Damaged != "" || i.Tail != whole.tail {
					t.Errorf("the whole copy: %+v", i)
				}
			})
		}
	}
}

// flipInFull turns a bit in the first frame of some kind in a full file.
func (b *box) flipInFull(which func(frame) bool, off int64) {
	b.t.Helper()
	for _, f := range b.s.files[:len(b.s.files)-1] {
		w, err := f.window()
		if err != nil {
			b.t.Fatal(err)
		}
		for at := int64(headerSize); ; {
			fr, err := w.frameAt(at)
			if err != nil || fr.typ == frameFooterEnd {
				break
			}
			if which(fr) {
				p := make([]byte, 1)
				if _, err := f.f.ReadAt(p, at+off); err != nil {
					b.t.Fatal(err)
				}
				p[0] ^= 1
				if _, err := f.f.WriteAt(p, at+off); err != nil {
					b.t.Fatal(err)
				}
				return
			}
			at += int64(fr.size)
		}
	}
	b.t.Fatal("no such frame")
}

func TestTheScrubRemembersItsPlace(t *testing.T) {
	b := newBox(t, Options{FileSize: 40 << 20, CacheBytes: 1, ScrubEvery: time.Hour})
	l := b.log(1)
	for range 130 {
		b.add(l, 1<<20)
	}
	b.opt.ScrubEvery = time.Second
	b.restart()
	b.sim.RunFor(75 * time.Second) // a MiB a second, and the place is noted every 64 MiB
	had := b.s.w.scrub
	if had.generation < 2 || b.s.files[0].generation == had.generation {
		t.Fatalf("the scrub came to %+v", had)
	}
	for range 2 {
		b.restart()
		if b.s.r.scrub != had {
			t.Fatalf("the scrub goes on at %+v, it was at %+v", b.s.r.scrub, had)
		}
	}
	b.sim.RunFor(10 * time.Second)
	if got := b.s.r.scrub; got.generation < had.generation || got == had {
		t.Fatalf("the scrub is at %+v", got)
	}
}
