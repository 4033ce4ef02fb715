package storage

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// bench is a store on real files and loops, with calls that wait.
type rig struct {
	t   testing.TB
	dir string
	opt Options
	ex  exec.Executor
	s   *Store
}

func newRig(t testing.TB, opt Options) *rig {
	r := &rig{t: t, dir: t.TempDir(), opt: opt}
	if r.opt.FileSize == 0 {
		r.opt.FileSize = 1 << 20
	}
	r.opt.LowWater, r.opt.HighWater = 1, 1
	r.open()
	t.Cleanup(func() {
		if r.s != nil {
			r.close()
		}
	})
	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.ex = exec.New(1)
	s, err := Open(Env{FS: vfs.OS(), Clock: clock.System(), Exec: r.ex, Random: rand.Reader}, r.dir, r.opt)
	if err != nil {
		r.t.Fatal(err)
	}
	r.s = s
}

func (r *rig) close() {
	r.t.Helper()
	r.must(r.s.Close)
	r.ex.Stop()
	r.s = nil
}

func (r *rig) reopen() { r.t.Helper(); r.close(); r.open() }

func (r *rig) must(f func(func(error))) {
	r.t.Helper()
	if err := wait(f); err != nil {
		r.t.Fatal(err)
	}
}

func wait(f func(func(error))) error {
	c := make(chan error, 1)
	f(func(err error) { c <- err })
	return <-c
}

// log makes batches that continue a copy.
type log struct {
	c     *Copy
	tail  batch.Tail
	tails []batch.Tail
	build batch.Builder
}

func (r *rig) log(n uint64) *log {
	r.t.Helper()
	c, err := r.s.Create(ident.Partition{Incarnation: n})
	if err != nil {
		r.t.Fatal(err)
	}
	return &log{c: c}
}

func (l *log) next(size int) (batch.Batch, batch.Link) {
	l.build.Add(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 1, First: l.tail.Offset + 1},
		batch.AppendRecord(nil, batch.RecordHeader{}, bytes.Repeat([]byte{byte(l.tail.Offset)}, size)))
	b := l.build.Finish(l.c.part, 1, l.tail, int64(l.tail.Offset))
	link := b.Link()
	l.tail = l.tail.After(b, link)
	l.tails = append(l.tails, l.tail)
	return b, link
}

func (l *log) append(r *rig, size int) {
	r.t.Helper()
	b, link := l.next(size)
	r.must(func(d func(error)) { l.c.Append(b, link, false, d) })
}

// read walks the whole copy.
func (r *rig) read(c *Copy, from uint64) []batch.Batch {
	r.t.Helper()
	var all []batch.Batch
	for {
		got := make(chan []batch.Batch, 1)
		c.Read(from, 64<<10, func(bs []batch.Batch, err error) {
			if err != nil {
				r.t.Error(err)
			}
			got <- bs
		})
		bs := <-got
		if len(bs) == 0 {
			return all
		}
		all = append(all, bs...)
		from = bs[len(bs)-1].End()
	}
}

func (r *rig) find(p ident.Partition) *Copy {
	r.t.Helper()
	for _, c := range r.s.Copies() {
		if c.part == p {
			return c
		}
	}
	r.t.Fatalf("copy %s is not there", p)
	return nil
}

func TestWhatIsAppendedIsThereAfterAReopenAcrossManyFiles(t *testing.T) {
	r := newRig(t, Options{CacheBytes: 32 << 10})
	a, b := r.log(1), r.log(2)
	for i := range 600 {
		a.append(r, 8000)
		if i%10 == 0 {
			b.append(r, 10)
		}
	}
	if m := r.s.Metrics(); m.Rolls < 3 {
		t.Fatalf("only %d rolls: the test does not test what it says", m.Rolls)
	}
	for round := range 3 {
		for _, l := range []*log{a, b} {
			c := r.find(l.c.part)
			l.c = c
			if got := c.Image(); got.Tail != l.tail || got.Damaged != "" {
				t.Fatalf("round %d: %s ends at %+v (%s), want %+v", round, c.part, got.Tail, got.Damaged, l.tail)
			}
			var tail batch.Tail
			for _, x := range r.read(c, 0) {
				if !x.Follows(tail) {
					t.Fatalf("round %d: the batch at %d does not follow %d", round, x.Position, tail.Position)
				}
				tail = tail.After(x, x.Link())
			}
			if tail != l.tail {
				t.Fatalf("round %d: read up to %d of %d", round, tail.Position, l.tail.Position)
			}
		}
		boot := r.s.Boot()
		r.reopen()
		if r.s.Boot() <= boot {
			t.Fatalf("boot went from %d to %d", boot, r.s.Boot())
		}
		a.c, b.c = r.find(a.c.part), r.find(b.c.part)
		a.append(r, 100)
		b.append(r, 100)
	}
}

func TestPromiseRoleCutSnapshotAndDeleteSurvive(t *testing.T) {
	r := newRig(t, Options{})
	a, b := r.log(1), r.log(2)
	for range 10 {
		a.append(r, 100)
	}
	at := a.tail
	for range 10 {
		a.append(r, 100)
	}
	r.must(func(d func(error)) { a.c.SetPromise(7, d) })
	r.must(func(d func(error)) { a.c.SetRole(partition.Owner, 7, d) })
	r.must(func(d func(error)) { a.c.Cut(at, d) })
	if err := wait(func(d func(error)) { a.c.Cut(batch.Tail{Position: 3}, d) }); err == nil {
		t.Fatal("a cut with a false link was taken")
	}
	r.must(func(d func(error)) {
		a.c.WriteSnapshot(partition.Snapshot{At: at, Version: 3, Pages: []partition.Page{{Number: 1, Data: []byte("one")}, {Number: 5, Data: []byte("five")}}}, d)
	})
	r.must(func(d func(error)) {
		a.c.WriteSnapshot(partition.Snapshot{At: at, Version: 3, Pages: []partition.Page{{Number: 2, Data: []byte("two")}}, Gone: []uint32{1}}, d)
	})
	r.must(b.c.Delete)
	cons := r.s.Consensus()
	r.must(func(d func(error)) {
		cons.Append([]byte("hard"), []catalog.LogEntry{{Index: 1, Term: 1, Data: []byte("x")}, {Index: 2, Term: 1, Data: []byte("y")}}, d)
	})
	r.must(func(d func(error)) { cons.Append(nil, []catalog.LogEntry{{Index: 2, Term: 2, Data: []byte("z")}}, d) })
	r.must(func(d func(error)) {
		cons.SaveSnapshot(catalog.LogSnapshot{Index: 1, Term: 1, Data: make([]byte, 2<<20)}, d)
	})
	for range 2 {
		r.reopen()
		c := r.find(a.c.part)
		i := c.Image()
		if i.Promise != 7 || i.Role != partition.Owner || i.RoleEpoch != 7 || i.Tail != at || i.Snapshot != at {
			t.Fatalf("image: %+v", i)
		}
		got := make(chan string, 1)
		c.ReadSnapshot(func(s partition.Snapshot, ok bool, err error) {
			got <- fmt.Sprintf("%v %v %d %q", ok, err, s.Version, fmt.Sprint(s.Pages))
		})
		if g := <-got; g != fmt.Sprintf("true <nil> 3 %q", fmt.Sprint([]partition.Page{{Number: 2, Data: []byte("two")}, {Number: 5, Data: []byte("five")}})) {
			t.Fatalf("snapshot: %s", g)
		}
		if len(r.s.Copies()) != 1 {
			t.Fatal("a deleted copy is back")
		}
		st, err := r.s.Consensus().Load()
		if err != nil || string(st.Hard) != "hard" || st.Snapshot.Index != 1 || len(st.Snapshot.Data) != 2<<20 || len(st.Entries) != 1 || string(st.Entries[0].Data) != "z" {
			t.Fatalf("consensus: %v %q %d %d %v", err, st.Hard, st.Snapshot.Index, len(st.Snapshot.Data), st.Entries)
		}
	}
}

func TestFilesThatHoldNothingAreUsedAgain(t *testing.T) {
	r := newRig(t, Options{})
	q, idle := r.log(1), r.log(2)
	idle.append(r, 100) // one live batch in the first file, to be moved out
	for range 2000 {
		q.append(r, 8000)
		if q.tail.Position%100 == 0 {
			at := q.tail
			r.must(func(d func(error)) { q.c.WriteSnapshot(partition.Snapshot{At: at}, d) })
			r.must(func(d func(error)) { q.c.Retain(at.Position, nil, d) })
			r.reclaimNow()
		}
	}
	m := r.s.Metrics()
	if m.FilesRecycled == 0 || m.FilesCreated > 10 {
		t.Fatalf("recycled %d, created %d", m.FilesRecycled, m.FilesCreated)
	}
	r.reopen()
	if got := r.read(r.find(idle.c.part), 0); len(got) != 1 {
		t.Fatalf("%d batches of the idle copy, want its one", len(got))
	}
	if i := r.find(q.c.part).Image(); i.Tail != q.tail {
		t.Fatalf("tail %+v, want %+v", i.Tail, q.tail)
	}
}

// reclaimNow has the reader look now, and waits for what it does.
func (r *rig) reclaimNow() {
	done := make(chan struct{})
	r.s.r.mb.Post(msgCall{func() { r.s.r.reclaim(); close(done) }})
	<-done
	r.must(func(d func(error)) { r.s.w.enqueue(op{typ: layout.FrameScrub, body: make([]byte, 12), done: d}, false) })
}
