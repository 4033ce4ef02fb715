package storage

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// box is a store on a disk in memory, on a seeded thread, with calls that wait.
type box struct {
	t      testing.TB
	sim    *exec.Sim
	mem    *vfs.Memory
	fs     vfs.FS
	opt    Options
	node   *exec.SimNode
	s      *Store
	life   int
	logged []string // what was logged, without the free bytes
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
	log := trace.SinkFunc(func(e trace.Event) {
		free := func(a slog.Attr) bool { return a.Key == "free" }
		b.logged = append(b.logged, fmt.Sprint(e.Name, slices.DeleteFunc(slices.Clone(e.Attrs), free)))
	})
	s, err := Open(Env{FS: b.fs, Trace: log, Clock: clock.NewSim(b.sim.Now, time.Unix(0, 0)), Exec: b.node, Random: exec.NewSimRandom(1, "store")}, "data", b.opt)
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
