package consensus

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// asyncLog is a Log whose operations become durable on a goroutine of its own, in order.
type asyncLog struct {
	mu  sync.Mutex
	log memLog
	ops chan struct{}
	end chan struct{}
}

func newAsyncLog() *asyncLog {
	l := &asyncLog{log: memLog{silent: true}, ops: make(chan struct{}, 1<<20), end: make(chan struct{})}
	go func() {
		defer close(l.end)
		for range l.ops {
			l.mu.Lock()
			op := l.log.pending[0]
			l.log.pending = l.log.pending[1:]
			op.do(&l.log.durable)
			l.mu.Unlock()
			op.done(nil)
		}
	}()
	return l
}

func (l *asyncLog) locked(f func()) {
	l.mu.Lock()
	f()
	l.mu.Unlock()
	l.ops <- struct{}{}
}

func (l *asyncLog) Load() (catalog.LogState, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.Load()
}

func (l *asyncLog) Append(hard []byte, entries []catalog.LogEntry, done func(error)) {
	l.locked(func() { l.log.Append(hard, entries, done) })
}

func (l *asyncLog) SaveSnapshot(s catalog.LogSnapshot, done func(error)) {
	l.locked(func() { l.log.SaveSnapshot(s, done) })
}

func (l *asyncLog) close() {
	close(l.ops)
	<-l.end
}

func startReal(t testing.TB, e exec.Executor, log Log, boot uint64, snapshotBytes int) *Consensus {
	t.Helper()
	c := New(Env{
		Loop: e.Loop(0), Clock: clock.System(), Trace: trace.Discard, Log: log, SnapshotBytes: snapshotBytes,
		Local: ident.Instance{Node: "n1", Store: storeA, Boot: boot},
		Bootstrap: func() ([]byte, error) {
			return catalog.Encode(append(catalog.Bootstrap(ident.StoreID{1}, guest),
				catalog.RegisterBoot(catalog.Node{Name: "n1", Store: storeA, Boot: 1}))...)
		},
		Failed: func(err error) { t.Error(err) },
	})
	started := make(chan error, 1)
	c.Start(func(err error) { started <- err })
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	return c
}

// Many goroutines propose at once while the log is compacted again and again; every proposal is answered once, and a restart has all.
func TestRealLoops(t *testing.T) {
	defer goleak.VerifyNone(t)
	e := exec.New(2)
	log := newAsyncLog()
	c := startReal(t, e, log, 1, 4000)
	const writers, each = 4, 100
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				cmd, err := catalog.Encode(catalog.PutSetting(fmt.Sprint(w, "-", i), "x", 0))
				if err != nil {
					t.Error(err)
					return
				}
				answer := make(chan error, 1)
				c.Propose(cmd, func(r catalog.Result, err error) {
					if err == nil {
						err = r.Err()
					}
					answer <- err
				})
				if err := <-answer; err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	e.Stop()
	log.close()

	e = exec.New(1)
	again := newAsyncLog()
	again.log.durable = log.log.durable
	c = startReal(t, e, again, 2, 4000)
	count := make(chan int)
	c.Barrier(func(error) { count <- len(c.State().View().Settings()) })
	if n := <-count; n != writers*each {
		t.Errorf("%d settings after a restart, want %d", n, writers*each)
	}
	e.Stop()
	again.close()
}

func declareMany(t testing.TB, c *Consensus, n int) {
	var all sync.WaitGroup
	for i := range n {
		cmd, err := catalog.Encode(catalog.DeclareResource(catalog.Resource{
			VHost: "/", Name: fmt.Sprint("q", i), Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{},
		}, ident.Instance{Node: "n1", Store: storeA, Boot: 1}, nil, 1))
		if err != nil {
			t.Fatal(err)
		}
		all.Add(1)
		c.Propose(cmd, func(r catalog.Result, err error) {
			if err == nil {
				err = r.Err()
			}
			if err != nil {
				t.Error(err)
			}
			all.Done()
		})
	}
	all.Wait()
}

// BenchmarkDeclare is what one of many declarations at once costs, without a disk.
func BenchmarkDeclare(b *testing.B) {
	e := exec.New(1)
	defer e.Stop()
	log := newAsyncLog()
	c := startReal(b, e, log, 1, 0)
	b.ResetTimer()
	for n := b.N; n > 0; n -= 10000 {
		declareMany(b, c, min(n, 10000))
	}
}

// BenchmarkStart10000 is a start with 10 000 queues in the log, all as entries.
func BenchmarkStart10000(b *testing.B) {
	e := exec.New(1)
	defer e.Stop()
	log := newAsyncLog()
	declareMany(b, startReal(b, e, log, 1, 1<<30), 10000)
	for b.Loop() {
		again := newAsyncLog()
		again.log.durable = log.log.durable
		startReal(b, e, again, 2, 1<<30)
	}
}
