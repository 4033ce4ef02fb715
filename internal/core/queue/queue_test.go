package queue_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	. "github.com/tanist/tanist/internal/core/queue"
)

// TestEventsAreBounded: a purge of a queue with holes everywhere gives events that fit batches.
func TestEventsAreBounded(t *testing.T) {
	const n = 1 << 20
	m, h := filled(t, Settings{}, n)
	for i := uint64(0); i < n; i += 2 {
		m.Settle(h, i, i, Requeue)
	}
	takes, events := 0, 0
	for {
		payload, count := m.TakeEvents()
		if count == 0 {
			break
		}
		if takes++; len(payload) > 600<<10 {
			t.Fatalf("%d bytes at once", len(payload))
		}
		events += int(count)
		for at := 0; at < len(payload); {
			size := int(payload[at]) | int(payload[at+1])<<8 | int(payload[at+2])<<16
			if size > 32<<10 {
				t.Fatalf("an event of %d bytes", size)
			}
			at += 8 + size
		}
		apply(t, m, payload, count)
	}
	if takes < 3 || events < takes {
		t.Fatalf("%d events in %d takes: not the case that is meant", events, takes)
	}
	if got := m.Purge(); got != n/2 {
		t.Fatalf("purged %d", got)
	}
	if _, count := m.TakeEvents(); count == 0 || m.Counts().Unsettled != n/2 {
		t.Fatalf("%+v", m.Counts())
	}
}

// TestTickIsBounded: a backlog that expires all at once is expired in steps, and nothing of it is delivered between them.
func TestTickIsBounded(t *testing.T) {
	ttl := int64(10)
	m := New(Settings{TTL: &ttl})
	m.Promote(1)
	m.Claimed()
	const n = 50_000
	for i := range uint64(n) {
		m.ApplyRecord(i, batch.RecordHeader{Size: 1}, 1000)
	}
	m.Assign(1, nil)
	if err := m.Subscribe(Holder{1, 1}, Options{Credit: 1}); err != nil {
		t.Fatal(err)
	}
	steps, expired := 0, 0
	for ; m.NextWake() != 0; steps++ {
		expired += m.Tick(2000)
		if as := m.Assign(1, nil); len(as) > 0 {
			t.Fatalf("step %d delivered %+v", steps, as[0])
		}
	}
	if steps != 4 || m.Counts().Ready != 0 || expired != n {
		t.Fatalf("%d steps, %d expired, %+v", steps, expired, m.Counts())
	}
	payload, count := m.TakeEvents()
	if apply(t, m, payload, count); count != 1 || len(payload) > 20 || m.Counts().Messages != 0 {
		t.Fatalf("%d events, %d bytes, %+v", count, len(payload), m.Counts())
	}
}

// TestTTLZero: a message that may not wait reaches a consumer that is there, and no other.
func TestTTLZero(t *testing.T) {
	m := New(Settings{})
	m.Promote(1)
	m.Claimed()
	h := batch.RecordHeader{Size: 1, Flags: batch.FlagTTL}
	m.ApplyRecord(0, h, 1000)
	m.Tick(1005)
	if as := m.Assign(10, nil); len(as) != 0 {
		t.Fatal(as)
	}
	if w := m.NextWake(); w > 1005 {
		t.Fatalf("woken at %d", w)
	}
	if n := m.Tick(1005); n != 1 {
		t.Fatalf("%d expired", n)
	}
	if err := m.Subscribe(Holder{1, 1}, Options{Credit: 10}); err != nil {
		t.Fatal(err)
	}
	m.ApplyRecord(1, h, 1000)
	m.Tick(1010)
	if as := m.Assign(10, nil); len(as) != 1 || as[0].Offset != 1 {
		t.Fatalf("assigned %+v", as)
	}
}

// TestDeadLetterRetries: one that is kept is asked for again later and later, under its number, and holds up its own lane only.
func TestDeadLetterRetries(t *testing.T) {
	dlx := ""
	m, h := filled(t, Settings{DeadLetterExchange: &dlx}, 3*DeadLanes)
	m.Settle(h, 0, 100, Reject)
	payload, count := m.TakeEvents()
	apply(t, m, payload, count)
	first := m.NextDead(0, nil)
	if len(first) != DeadLanes || len(m.NextDead(0, nil)) != 0 {
		t.Fatalf("%+v under way", first)
	}
	kept := first[0]
	now := int64(0)
	for _, wait := range []int64{1000, 2000, 4000, 8000, 16000, 30000, 30000} {
		m.DeadKept(kept.Number, "no such exchange", now)
		if w := m.NextWake(); w != now+wait {
			t.Fatalf("retried at %d, want %d", w, now+wait)
		}
		now += wait
		if ds := m.NextDead(now, nil); len(ds) != 1 || ds[0] != kept {
			t.Fatalf("asked for %+v, want %+v", ds, kept)
		}
	}
	if n, since, why := m.Stuck(); n != 1 || since != 0 || why != "no such exchange" {
		t.Fatal(n, since, why)
	}
	m.DeadSettled(first[1].Number)
	m.DeadSettled(first[1].Number)
	if ds := m.NextDead(now, nil); len(ds) != 1 || ds[0].Number != first[1].Number+DeadLanes {
		t.Fatalf("after number %d of its lane: %+v", first[1].Number, ds)
	}
	m.DeadSettled(kept.Number)
	if n, _, _ := m.Stuck(); n != 0 {
		t.Fatal("still stuck")
	}
	// A new owner asks for what is not confirmed as settled, under the same number.
	m.Demote()
	m.Promote(now)
	m.Claimed()
	if ds := m.NextDead(now, nil); len(ds) != DeadLanes || ds[0].Number != kept.Number {
		t.Fatalf("a new owner asks for %+v", ds)
	}
}

// TestForeignEventTakesFromHolder: an event that this owner did not stage, as a fault would have it, leaves the books in order.
func TestForeignEventTakesFromHolder(t *testing.T) {
	m, h := filled(t, Settings{}, 10)
	if err := m.ApplyEvent(EventGone, []byte{0, 2, 1}); err != nil {
		t.Fatal(err)
	}
	if err := m.ApplyEvent(EventDead, []byte{1, 1, 5, 0}); err != nil {
		t.Fatal(err)
	}
	if n := m.Settle(h, 0, 9, Accept); n != 7 {
		t.Fatalf("settled %d", n)
	}
	if c := m.Counts(); c.Unsettled != 0 || c.Messages != 8 || c.Dead != 1 {
		t.Fatalf("%+v", c)
	}
}

func TestReasons(t *testing.T) {
	want := "[accepted rejected expired maxlen delivery_limit purged dead-lettered ? ?]"
	if got := fmt.Sprint([]Reason{Accepted, Rejected, Expired, Overflowed, TooOften, Purged, Lettered, 7, 255}); got != want {
		t.Error(got)
	}
}

func TestExclusive(t *testing.T) {
	m, h := filled(t, Settings{}, 1)
	if err := m.Subscribe(Holder{2, 1}, Options{Exclusive: true}); !errors.Is(err, ErrExclusive) {
		t.Error(err)
	}
	m.Unsubscribe(h, 1)
	if err := m.Subscribe(Holder{2, 1}, Options{Exclusive: true}); err != nil {
		t.Error(err)
	}
	if err := m.Subscribe(h, Options{}); !errors.Is(err, ErrExclusive) {
		t.Error(err)
	}
}

// TestSingleActiveConsumer: one at a time; then the highest priority, the longest subscribed of it.
func TestSingleActiveConsumer(t *testing.T) {
	m := New(Settings{SingleActive: true})
	m.Promote(1)
	m.Claimed()
	priority := []int32{0, 1, 5, 5, 1}
	for i, p := range priority {
		if err := m.Subscribe(Holder{1, uint64(i)}, Options{Credit: 1 << 20, Prefetch: 1, Priority: p}); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range []uint64{0, 2, 3, 1, 4} {
		m.ApplyRecord(uint64(2*n), batch.RecordHeader{Size: 1}, 1)
		m.ApplyRecord(uint64(2*n+1), batch.RecordHeader{Size: 1}, 1)
		if as := m.Assign(10, nil); len(as) != 1 || as[0].Holder.Consumer != want {
			t.Fatalf("turn %d: %+v", n, as)
		}
		m.Unsubscribe(Holder{1, want}, 1)
	}
}

// TestMemory holds the bounds on memory: an idle queue, and an untouched backlog.
func TestMemory(t *testing.T) {
	const queues = 2000
	size := func(f func() any) int {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		kept := f()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		return int(after.HeapAlloc) - int(before.HeapAlloc)
	}
	idle := size(func() any {
		ms := make([]*Machine, queues)
		for i := range ms {
			ms[i] = New(Settings{})
			ms[i].Promote(1)
			ms[i].Claimed()
		}
		return ms
	}) / queues
	used := size(func() any {
		ms := make([]*Machine, queues)
		for i := range ms {
			m, h := filled(t, Settings{}, 100)
			m.Settle(h, 0, 100, Accept)
			payload, count := m.TakeEvents()
			apply(t, m, payload, count)
			m.Unsubscribe(h, 1)
			m.Snapshot(true)
			m.Trim()
			ms[i] = m
		}
		return ms
	}) / queues
	const n = 1_000_000
	backlog := func(size32 func(int) uint32) float64 {
		return float64(size(func() any {
			m := New(Settings{})
			for i := range n {
				m.ApplyRecord(uint64(i), batch.RecordHeader{Size: size32(i)}, 1)
			}
			return m
		})) / n
	}
	equal, varied := backlog(func(int) uint32 { return 100 }), backlog(func(i int) uint32 { return uint32(i) & 0xfff })
	t.Logf("idle owner %d bytes, after use %d bytes, backlog %.2f (equal sizes) and %.2f bytes a message", idle, used, equal, varied)
	if idle > 800 || used > 1000 || equal > 1 || varied > 4 {
		t.Error("more than the bound")
	}
}

const thousand = 1000

// thousands is a batch of a thousand records, as m would get it next.
func thousands() batch.Batch {
	record := batch.AppendRecord(nil, batch.RecordHeader{}, make([]byte, 100))
	var records []byte
	for range thousand {
		records = append(records, record...)
	}
	var builder batch.Builder
	builder.Add(batch.Run{Kind: batch.KindRecord, Count: thousand}, records)
	return builder.Finish(ident.Partition{Incarnation: 1}, 1, batch.Tail{}, 1)
}

// through takes a batch of a thousand through m: applied, a thousand delivered and settled, the events applied.
func through(b *testing.B, m *Machine, bt batch.Batch, h Holder, as []Assignment) []Assignment {
	bt.Offset = m.Next()
	if m.Limited() {
		for range thousand {
			m.Admit(batch.RecordHeader{Size: 100})
		}
	}
	if err := m.ApplyBatch(bt); err != nil {
		b.Fatal(err)
	}
	if as = m.Assign(thousand, as[:0]); len(as) != thousand {
		b.Fatalf("%d assigned", len(as))
	}
	for i := 0; i < thousand; i += 100 { // acks come a hundred at a time
		m.Settle(h, as[i].Offset, as[i+99].Offset, Accept)
	}
	payload, count := m.TakeEvents()
	apply(b, m, payload, count)
	return as
}

// BenchmarkThousand publishes, delivers and settles a thousand messages an operation: on an empty queue, on a limited one, and on
// one with a backlog of a million; ratio is the cost of a message to that on the empty queue.
func BenchmarkThousand(b *testing.B) {
	var plain float64
	for _, c := range []struct {
		name    string
		s       Settings
		backlog int
	}{{name: "plain"}, {name: "limited", s: Settings{MaxLength: new(int64(1 << 40))}}, {name: "backlog", backlog: 1000}} {
		b.Run(c.name, func(b *testing.B) {
			m, h := New(c.s), Holder{1, 1}
			m.Promote(1)
			m.Claimed()
			bt := thousands()
			for range c.backlog {
				bt.Offset = m.Next()
				if err := m.ApplyBatch(bt); err != nil {
					b.Fatal(err)
				}
			}
			if err := m.Subscribe(h, Options{Prefetch: thousand, Credit: 1 << 60}); err != nil {
				b.Fatal(err)
			}
			as := through(b, m, bt, h, nil)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				as = through(b, m, bt, h, as)
			}
			b.StopTimer()
			if got := m.Counts().Messages; got != uint64(c.backlog)*thousand {
				b.Fatalf("%d messages left", got)
			}
			cost := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / thousand
			if c.name == "plain" {
				plain = cost
			}
			b.ReportMetric(cost, "ns/message")
			b.ReportMetric(cost/plain, "ratio")
		})
	}
}
