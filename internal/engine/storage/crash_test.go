package storage

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
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

// world is one store on a disk in memory, on a seeded thread, with what it has promised.
type world struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	sim  *exec.Sim
	disk *vfs.Memory
	life int
	node *exec.SimNode
	s    *Store
	logs map[ident.Partition]*history
	meta struct{ acked, sent uint64 }
	fail bool // an error of the disk is expected
}

// history is what a copy was told and what it promised. Tails are those after each batch, the first being the empty log's.
type history struct {
	c            *Copy
	tails        []batch.Tail
	acked        int // index into tails up to which appends are done
	promise      uint64
	ackedPromise uint64
	snapped      uint64 // position of the newest snapshot that is done
	snapping     uint64 // position of the newest that was asked for
	retained     uint64 // below it only what is live was asked for
	live         []partition.Span
	head         uint64       // asked to be dropped
	ackedHead    uint64       // and done
	uncut        []batch.Tail // before a cut that is not done
	deleting     bool
	deleted      bool
	build        batch.Builder
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 9)), sim: exec.NewSim(seed), disk: vfs.NewMemory(seed),
		logs: map[ident.Partition]*history{},
	}
	w.open()
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.life++
	w.node = w.sim.Node(fmt.Sprintf("n%d", w.life), 1)
	s, err := Open(Env{
		FS: w.disk, Clock: clock.NewSim(w.sim.Now, time.Unix(0, 0)), Exec: w.node, Random: exec.NewSimRandom(w.seed, "store"),
	}, "data", Options{
		FileSize: 64 << 10, GroupBytes: 8 << 10, CacheBytes: 16 << 10, LowWater: 1, HighWater: 1, ReclaimChunk: 4 << 10,
	})
	if err != nil {
		w.t.Fatalf("seed %d, life %d: %v", w.seed, w.life, err)
	}
	w.s = s
}

func (w *world) partitions() []ident.Partition {
	var ps []ident.Partition
	for p := range w.logs {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, ident.Partition.Compare)
	return ps
}

// act does one thing to the store.
func (w *world) act() {
	ps := w.partitions()
	if len(ps) < 3 || w.rng.IntN(60) == 0 && len(ps) < 8 {
		p := ident.Partition{Incarnation: uint64(len(ps) + 1)}
		c, err := w.s.Create(p)
		if err == nil {
			w.logs[p] = &history{c: c, tails: []batch.Tail{{}}}
		}
		return
	}
	h := w.logs[ps[w.rng.IntN(len(ps))]]
	if h.c == nil || h.deleting {
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 60:
		w.append(h)
	case n < 70:
		h.promise++
		p := h.promise
		h.c.SetPromise(p, w.done(func() { h.ackedPromise = max(h.ackedPromise, p) }))
	case n < 80:
		w.snapshot(h)
	case n < 84:
		w.retain(h)
	case n < 85:
		w.dropHead(h)
	case n < 87:
		w.cut(h)
	case n < 88:
		h.deleting = true
		h.c.Delete(w.done(func() { h.deleted = true }))
	default:
		w.meta.sent++
		n := w.meta.sent
		w.s.Consensus().Append(nil, []catalog.LogEntry{{Index: n, Term: 1, Data: fmt.Append(nil, n)}}, w.done(func() { w.meta.acked = n }))
	}
}

func (w *world) done(ok func()) func(error) {
	return func(err error) {
		if err == nil {
			ok()
		} else if !w.fail {
			w.t.Errorf("seed %d: %v", w.seed, err)
		}
	}
}

func (w *world) append(h *history) {
	h.build.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, make([]byte, w.rng.IntN(3000))))
	last := h.tails[len(h.tails)-1]
	b := h.build.Finish(h.c.part, uint64(w.life), last, int64(w.life))
	link := b.Link()
	h.tails = append(h.tails, last.After(b, link))
	n := len(h.tails) - 1
	h.c.Append(b, link, w.rng.IntN(10) == 0, w.done(func() {
		if n != h.acked+1 {
			w.t.Errorf("seed %d: append %d was done after %d", w.seed, n, h.acked)
		}
		h.acked = n
	}))
}

// retain keeps some of what is live below the newest snapshot. A batch here is one record, so that positions are offsets.
func (w *world) retain(h *history) {
	var live []partition.Span
	keep := func(o uint64) {
		if w.rng.IntN(4) > 0 {
			live = append(live, partition.Span{From: o, To: o + 1})
		}
	}
	for _, s := range h.live {
		keep(s.From)
	}
	for o := max(h.retained, h.head); o < h.snapped; o++ {
		keep(o)
	}
	h.retained, h.live = max(h.retained, h.snapped), live
	h.c.Retain(h.snapped, live, w.done(func() {}))
}

func (w *world) dropHead(h *history) {
	h.head = max(h.head, h.snapped/2)
	h.live = slices.DeleteFunc(h.live, func(s partition.Span) bool { return s.From < h.head })
	n := h.head
	h.c.DropHead(n, w.done(func() { h.ackedHead = max(h.ackedHead, n) }))
}

// cut drops the end of a log that has nothing under way, as a follower would.
func (w *world) cut(h *history) {
	if h.acked != len(h.tails)-1 || h.uncut != nil {
		return
	}
	to := h.acked
	for to > 0 && h.tails[to].Position > h.snapping && w.rng.IntN(4) > 0 {
		to--
	}
	h.uncut = h.tails
	h.tails, h.acked = slices.Clone(h.tails[:to+1]), to
	h.c.Cut(h.tails[to], w.done(func() { h.uncut = nil }))
}

func (w *world) snapshot(h *history) {
	at := h.tails[h.acked]
	if at.Position == 0 {
		return // Image cannot tell a snapshot of nothing from none
	}
	h.snapping = max(h.snapping, at.Position)
	data := fmt.Append(nil, at.Position)
	h.c.WriteSnapshot(partition.Snapshot{At: at, Version: 1, Pages: []partition.Page{{Number: uint32(w.rng.IntN(3)), Data: make([]byte, 500)}, {Number: 9, Data: data}}},
		w.done(func() { h.snapped = max(h.snapped, at.Position) }))
}

// check holds a reopened store against what it promised, and goes on from what is there.
func (w *world) check() {
	found := map[ident.Partition]*Copy{}
	for _, c := range w.s.Copies() {
		found[c.part] = c
	}
	for _, p := range w.partitions() {
		h, c := w.logs[p], found[p]
		switch {
		case c == nil && (h.deleting || h.acked == 0 && h.ackedPromise == 0 && h.snapped == 0):
			delete(w.logs, p)
			continue
		case c == nil:
			w.t.Fatalf("seed %d, life %d: copy %s is gone", w.seed, w.life, p)
		case h.deleted:
			w.t.Fatalf("seed %d, life %d: deleted copy %s is back", w.seed, w.life, p)
		}
		w.checkCopy(h, c)
	}
	st, err := w.s.Consensus().Load()
	if err != nil || uint64(len(st.Entries)) < w.meta.acked {
		w.t.Fatalf("seed %d, life %d: %d consensus entries of %d (%v)", w.seed, w.life, len(st.Entries), w.meta.acked, err)
	}
	w.meta.sent = uint64(len(st.Entries))
	w.meta.acked = w.meta.sent
}

func (w *world) checkCopy(h *history, c *Copy) {
	i := c.Image()
	at := slices.IndexFunc(h.tails, func(t batch.Tail) bool { return t == i.Tail })
	if at < 0 && h.uncut != nil {
		h.tails, h.acked = h.uncut, len(h.uncut)-1
		at = slices.IndexFunc(h.tails, func(t batch.Tail) bool { return t == i.Tail })
	}
	h.uncut = nil
	if i.Damaged != "" || at < h.acked || i.Promise < h.ackedPromise || i.Snapshot.Position < h.snapped {
		w.t.Fatalf("seed %d, life %d: %s: damaged %q; tail %d is append %d, %d was done; promise %d of %d; snapshot %d of %d", w.seed, w.life,
			c.part, i.Damaged, i.Tail.Position, at, h.acked, i.Promise, h.ackedPromise, i.Snapshot.Position, h.snapped)
	}
	h.c, h.tails, h.acked, h.promise, h.ackedPromise, h.deleting = c, h.tails[:at+1], at, i.Promise, i.Promise, false
	h.snapped, h.snapping = i.Snapshot.Position, i.Snapshot.Position
	w.checkHead(h, c)
	c.ReadSnapshot(func(s partition.Snapshot, ok bool, err error) {
		if err != nil || ok != (h.snapped > 0) || ok && string(s.Pages[len(s.Pages)-1].Data) != fmt.Sprint(s.At.Position) {
			w.t.Errorf("seed %d: snapshot of %s: %v %v at %d, %d pages", w.seed, c.part, ok, err, s.At.Position, len(s.Pages))
		}
	})
	w.readAll(h, c, h.snapped)
}

// checkHead reads what is kept below the snapshot, and sees that what was dropped for ever is.
func (w *world) checkHead(h *history, c *Copy) {
	for _, s := range h.live {
		c.ReadOffset(s.From, 1, func(bs []batch.Batch, err error) {
			if err != nil || len(bs) != 1 || bs[0].Offset != s.From {
				w.t.Errorf("seed %d, life %d: %s does not have the live record %d: %v, %v", w.seed, w.life, c.part, s.From, bs, err)
			}
		})
	}
	head := h.ackedHead
	c.Read(0, 1, func(bs []batch.Batch, err error) {
		if err != nil || len(bs) > 0 && bs[0].End() <= head {
			w.t.Errorf("seed %d, life %d: %s has %v, its head is %d; %v", w.seed, w.life, c.part, bs, head, err)
		}
	})
}

// readAll reads what must be there from a position on, batch by batch.
func (w *world) readAll(h *history, c *Copy, from uint64) {
	end := h.tails[len(h.tails)-1].Position
	if from >= end {
		return
	}
	c.Read(from, 10<<10, func(bs []batch.Batch, err error) {
		if err != nil || len(bs) == 0 || bs[0].Position > from {
			w.t.Errorf("seed %d, life %d: read of %s at %d of %d: %d batches, %v", w.seed, w.life, c.part, from, end, len(bs), err)
			return
		}
		for _, b := range bs {
			if k := slices.IndexFunc(h.tails, func(t batch.Tail) bool { return t.Position == b.End() }); k < 0 || h.tails[k].Link != b.Link() {
				w.t.Errorf("seed %d, life %d: %s holds another batch at %d than was appended", w.seed, w.life, c.part, b.Position)
				return
			}
		}
		w.readAll(h, c, bs[len(bs)-1].End())
	})
}

func (w *world) run(acts int) {
	for range acts {
		w.act()
		for range w.rng.IntN(12) {
			w.sim.Step()
		}
	}
}

// TestCrashesLoseNothingThatWasSynced stops the process at any step, with what was not synced lost, kept or torn, again and again.
func TestCrashesLoseNothingThatWasSynced(t *testing.T) {
	rolls, recycled := uint64(0), uint64(0)
	for seed := range uint64(150) {
		w := newWorld(t, seed)
		for range 6 {
			w.run(10 + w.rng.IntN(250))
			m := w.s.Metrics()
			rolls, recycled = rolls+m.Rolls, recycled+m.FilesRecycled
			w.node.Stop()
			w.disk.Crash(w.rng.Uint64())
			w.open()
			w.check()
			w.sim.RunFor(3 * time.Second) // the reads of check, and time to reclaim
		}
		if t.Failed() {
			return
		}
	}
	if rolls < 500 || recycled < 20 {
		t.Errorf("%d rolls and %d recycled files: the crashes do not reach what they should", rolls, recycled)
	}
}

// TestAnErrorOfWriteOrSyncClosesTheStore: nothing is done after it, and what was done before is there after a restart.
func TestAnErrorOfWriteOrSyncClosesTheStore(t *testing.T) {
	closed := 0
	for seed := range uint64(200) {
		w := newWorld(t, seed)
		w.run(30)
		w.fail = true
		w.disk.FailAfter(seed%2 == 0, int(seed/2%20))
		w.run(120)
		w.sim.RunFor(time.Second)
		if h := w.s.Health(); h.Closed {
			closed++
			if h.Class != Uncertain {
				t.Fatalf("seed %d: class %q after EIO", seed, h.Class)
			}
		}
		w.node.Stop()
		w.disk.Heal()
		w.disk.Crash(w.rng.Uint64())
		w.fail = false
		w.open()
		w.check()
		w.sim.RunFor(3 * time.Second)
		w.run(50)
		if t.Failed() {
			return
		}
	}
	if closed < 150 {
		t.Errorf("only %d of 200 runs met their fault", closed)
	}
}

// killable is a disk whose processes may end without its pages being lost, and on which the store's identity may refuse to be written.
type killable struct {
	vfs.FS
	noMark bool
}

func (k *killable) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (k *killable) Open(name string) (vfs.File, error) {
	if k.noMark && path.Base(name) == identityName {
		return nil, syscall.EIO
	}
	return k.FS.Open(name)
}

// life opens the store of a killable disk anew.
func life(t *testing.T, sim *exec.Sim, disk vfs.FS, n int) (*Store, *exec.SimNode) {
	t.Helper()
	node := sim.Node(fmt.Sprintf("life%d", n), 1)
	s, err := Open(Env{
		FS: disk, Clock: clock.NewSim(sim.Now, time.Unix(0, 0)), Exec: node, Random: exec.NewSimRandom(1, "store"),
	}, "data", Options{FileSize: 64 << 10, LowWater: 1, HighWater: 1})
	if err != nil {
		t.Fatal(err)
	}
	return s, node
}

// TestPagesThatWereNeverWrittenAreNotReported: a sync fails, the process is killed before it can leave word of that, and the next one
// finds in the page cache what the disk never got. What is then reported and built upon must survive the loss of power.
func TestPagesThatWereNeverWrittenAreNotReported(t *testing.T) {
	for seed := range uint64(40) {
		mem := vfs.NewMemory(seed)
		disk, sim := &killable{FS: mem}, exec.NewSim(seed)
		s, node := life(t, sim, disk, 0)
		c, err := s.Create(ident.Partition{Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		var tail batch.Tail
		add := func(c *Copy) (err error) {
			var build batch.Builder
			build.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, make([]byte, 2000)))
			b := build.Finish(c.part, 1, tail, 1)
			tail = tail.After(b, b.Link())
			c.Append(b, tail.Link, false, func(e error) { err = e })
			sim.RunFor(100 * time.Millisecond)
			return err
		}
		if err := add(c); err != nil {
			t.Fatal(err)
		}
		disk.noMark = true
		mem.FailAfter(true, 0)
		if err := add(c); err == nil {
			t.Fatal("an append was done though its sync failed")
		}
		node.Stop()
		disk.noMark = false
		s, node = life(t, sim, disk, 1)
		c = s.Copies()[0]
		tail = c.Image().Tail
		if err := add(c); err != nil {
			t.Fatal(err)
		}
		node.Stop()
		mem.Crash(0)
		s, node = life(t, sim, disk, 2)
		if i := s.Copies()[0].Image(); i.Damaged != "" || i.Tail != tail {
			t.Fatalf("seed %d: the log ends at %d of %d, damaged %q", seed, i.Tail.Position, tail.Position, i.Damaged)
		}
		node.Stop()
	}
}

// TestStartsSetAsideOneReserve: the reserve of the run before is the reserve.
func TestStartsSetAsideOneReserve(t *testing.T) {
	mem, sim := vfs.NewMemory(1), exec.NewSim(1)
	for n := range 8 {
		_, node := life(t, sim, mem, n)
		sim.RunFor(time.Second)
		node.Stop()
		mem.Crash(2)
		names, err := mem.List("data")
		logs := slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, logSuffix) })
		if err != nil || len(logs) != 2 {
			t.Fatalf("after start %d: log files %v (%v)", n+1, logs, err)
		}
	}
}
