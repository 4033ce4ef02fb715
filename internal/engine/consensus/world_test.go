package consensus

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

var (
	storeA = ident.StoreID{1: 0xaa, 7: 1}
	guest  = "hash of guest"
)

// memLog is a Log in memory. What is given to it becomes durable one operation at a time, when the test says so.
type memLog struct {
	durable catalog.LogState
	pending []logOp
	ops     []string // everything that was asked for, as text, unless silent
	silent  bool
	failAt  int // the operation, counted from 1, that fails, with all that follow; 0: none
	count   int
}

type logOp struct {
	do   func(*catalog.LogState)
	done func(error)
}

func (l *memLog) Load() (catalog.LogState, error) {
	s := l.durable
	s.Entries = slices.Clone(s.Entries)
	return s, nil
}

func (l *memLog) note(format string, a ...any) {
	if !l.silent {
		l.ops = append(l.ops, fmt.Sprintf(format, a...))
	}
}

func (l *memLog) Append(hard []byte, entries []catalog.LogEntry, done func(error)) {
	l.note("append hard %x entries %v", hard, entries)
	l.pending = append(l.pending, logOp{func(s *catalog.LogState) {
		if hard != nil {
			s.Hard = hard
		}
		if len(entries) > 0 {
			keep := slices.IndexFunc(s.Entries, func(e catalog.LogEntry) bool { return e.Index >= entries[0].Index })
			if keep < 0 {
				keep = len(s.Entries)
			}
			s.Entries = append(slices.Clone(s.Entries[:keep]), entries...)
		}
	}, done})
}

func (l *memLog) SaveSnapshot(snap catalog.LogSnapshot, done func(error)) {
	l.note("snapshot %d %d %x", snap.Index, snap.Term, snap.Data)
	l.pending = append(l.pending, logOp{func(s *catalog.LogState) {
		if snap.Index <= s.Snapshot.Index {
			return
		}
		at := slices.IndexFunc(s.Entries, func(e catalog.LogEntry) bool { return e.Index == snap.Index && e.Term == snap.Term })
		s.Entries = slices.Clone(s.Entries[at+1:])
		if at < 0 {
			s.Entries = nil
		}
		s.Snapshot = snap
	}, done})
}

// sync makes the oldest operation durable, or fails it, and says whether there was one.
func (l *memLog) sync() bool {
	if len(l.pending) == 0 {
		return false
	}
	op := l.pending[0]
	l.pending = l.pending[1:]
	l.count++
	if l.failAt > 0 && l.count >= l.failAt { // and whatever follows
		op.done(errDisk)
		return true
	}
	op.do(&l.durable)
	op.done(nil)
	return true
}

// crash keeps what is durable and the given number of operations that were on their way.
func (l *memLog) crash(kept int) *memLog {
	for _, op := range l.pending[:kept] {
		op.do(&l.durable)
	}
	return &memLog{durable: l.durable, silent: l.silent}
}

var errDisk = fmt.Errorf("input/output error")

// world is one node's consensus over a memLog.
type world struct {
	t       testing.TB
	sim     *exec.Sim
	log     *memLog
	c       *Consensus
	started []error
	failed  []error
	events  []string // what listeners and proposers were told, in order
	acked   map[string]bool
	errs    map[string]error
}

func newWorld(t testing.TB, log *memLog, boot uint64, snapshotBytes int) *world {
	w := &world{t: t, sim: exec.NewSim(1), log: log, acked: map[string]bool{}, errs: map[string]error{}}
	w.c = New(Env{
		Loop:  w.sim.Node("n1", 1).Loop(0),
		Clock: clock.NewSim(w.sim.Now, time.Unix(0, 0)),
		Trace: trace.Discard,
		Log:   log,
		Local: ident.Instance{Node: "n1", Store: storeA, Boot: boot},
		Bootstrap: func() ([]byte, error) {
			return catalog.Encode(catalog.Bootstrap(ident.StoreID{1}, guest)...)
		},
		Failed:        func(err error) { w.failed = append(w.failed, err) },
		SnapshotBytes: snapshotBytes,
	})
	w.c.OnApply(func(changes []catalog.Change) {
		for _, c := range changes {
			if v, ok := c.After.(*catalog.VHost); ok {
				w.events = append(w.events, "told "+v.Name)
			}
		}
	})
	w.c.Start(func(err error) { w.started = append(w.started, err) })
	return w
}

// run lets everything happen; the log syncs whatever it is given.
func (w *world) run() {
	for {
		w.turn()
		if !w.log.sync() {
			return
		}
	}
}

// turn lets the actor work until it waits for the log.
func (w *world) turn() {
	if !w.sim.Settle(100000) {
		w.t.Fatal("does not come to rest")
	}
}

func (w *world) propose(vhost string) {
	cmd, err := catalog.Encode(catalog.CreateVHost(vhost))
	if err != nil {
		w.t.Fatal(err)
	}
	w.c.Propose(cmd, func(r catalog.Result, err error) {
		if _, twice := w.errs[vhost]; twice {
			w.t.Errorf("%s was answered twice", vhost)
		}
		if err == nil {
			err = r.Err()
		}
		w.errs[vhost] = err
		w.acked[vhost] = err == nil
		w.events = append(w.events, "done "+vhost)
	})
}

func (w *world) mustStart() {
	w.t.Helper()
	w.run()
	if len(w.started) != 1 || w.started[0] != nil {
		w.t.Fatalf("started %v, failed %v", w.started, w.failed)
	}
}

func (w *world) status() (s Status) {
	w.c.Status(func(got Status) { s = got })
	w.sim.RunFor(time.Second)
	return s
}
