package replica

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// many makes a manager of n queues over logs that keep one batch each.
func many(n int) (*Manager, exec.Executor, []catalog.Change) {
	x := exec.New(2)
	local := ident.Instance{Node: "n", Store: ident.StoreID{1}, Boot: 1}
	m := New(Env{Exec: x, Clock: clock.System(), Trace: trace.Discard, Local: local, Store: nullStore{}})
	changes := []catalog.Change{{After: &catalog.Node{Name: "n", Boot: 1, Number: 1}}}
	for i := range n {
		p := ident.Partition{Incarnation: uint64(i + 1)}
		changes = append(changes, catalog.Change{After: &catalog.Resource{
			Incarnation: p.Incarnation, Kind: catalog.Queue, Partitions: []*catalog.Assignment{{
				Partition: p, Epoch: 1, Version: 1, Owner: local, Starts: []catalog.HistoryStart{{Epoch: 1}},
			}},
		}})
	}
	return m, x, changes
}

func statuses(m *Manager) []Status {
	done := make(chan []Status, 1)
	m.Status(nil, func(s []Status) { done <- s })
	return <-done
}

// ready asks the replicas until all have their state: each question goes through every mailbox, so no time has to pass.
func ready(t *testing.T, m *Manager) {
	t.Helper()
	for range 1000 {
		statuses(m)
		if m.Recovering() == 0 {
			return
		}
	}
	t.Fatalf("%d replicas are not ready", m.Recovering())
}

// An idle queue, used once and left alone, costs a small part of the 4 KiB that it may cost in all.
func TestIdleReplicasAreSmall(t *testing.T) {
	const n = 5000
	m, x, changes := many(n)
	defer x.Stop()
	var before, after runtime.MemStats
	goroutines := runtime.NumGoroutine()
	runtime.GC()
	runtime.ReadMemStats(&before)
	m.Apply(changes)
	ready(t, m)
	answers := make(chan any, 4*n)
	reply := chanSender(answers)
	for i := range n {
		p := ident.Partition{Incarnation: uint64(i + 1)}
		to := protocol.To{Partition: p, Gateway: protocol.Gateway{Node: "n", Boot: 1}, Stream: 1}
		s := m.Sender(p)
		s.Send(protocol.Attach{To: to, Reply: reply, Producer: protocol.ProducerID(1, 0, 0), First: 1})
		s.Send(protocol.Publish{To: to, First: 1, Count: 1, Records: records("x"), Runs: []batch.Run{{
			Kind: batch.KindRecord, Count: 1, Producer: protocol.ProducerID(1, 0, 0), First: 1,
		}}})
		for published := false; !published; {
			_, published = (<-answers).(protocol.Published)
		}
		s.Send(protocol.Purge{To: to, Request: 1})
		for purged := false; !purged; {
			_, purged = (<-answers).(protocol.Counted)
		}
		s.Send(protocol.Detach{To: to})
	}
	statuses(m)
	each := int64(math.MaxInt64)
	for range 3 { // the least counts: what is done beside only adds
		runtime.GC()
		runtime.ReadMemStats(&after)
		each = min(each, (int64(after.HeapAlloc)-int64(before.HeapAlloc))/n)
	}
	t.Logf("%d bytes each", each)
	if each > 2200 { // with the log of the test, about 400, and its gateway's producer
		t.Fatalf("an idle replica costs %d bytes", each)
	}
	if g := runtime.NumGoroutine(); g > goroutines {
		t.Fatalf("%d goroutines more", g-goroutines)
	}
	runtime.KeepAlive(changes)
	runtime.KeepAlive(m)
}

type chanSender chan any

func (c chanSender) Send(m any) { c <- m }

// BenchmarkStart10000 is how long it takes to make ten thousand empty queues serve, storage left out.
func BenchmarkStart10000(b *testing.B) {
	for range b.N {
		m, x, changes := many(10_000)
		begin := time.Now()
		m.Apply(changes)
		for m.Recovering() != 0 {
			statuses(m)
		}
		b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms/start")
		x.Stop()
	}
}
