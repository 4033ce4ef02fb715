package replica

import (
	"bytes"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// nullLog takes appends at once and keeps nothing: what is measured is the replica alone.
type nullLog struct {
	fakeLog
	id   ident.Partition
	mark []batch.Batch
}

func (l *nullLog) Image() partition.Image { return partition.Image{Partition: l.id} }
func (l *nullLog) Append(b batch.Batch, _ batch.Link, _ bool, done func(error)) {
	if l.mark == nil {
		l.mark = []batch.Batch{b}
	}
	done(nil)
}
func (l *nullLog) SetPromise(_ uint64, done func(error))                 { done(nil) }
func (l *nullLog) SetRole(_ partition.Role, _ uint64, done func(error))  { done(nil) }
func (l *nullLog) Retain(_ uint64, _ []partition.Span, done func(error)) { done(nil) }
func (l *nullLog) WriteSnapshot(_ partition.Snapshot, done func(error))  { done(nil) }
func (l *nullLog) Read(_ uint64, _ int, done func([]batch.Batch, error)) { done(l.mark, nil) }
func (l *nullLog) Size() (int64, uint64)                                 { return 0, 0 }

type nullStore struct{}

func (nullStore) Create(p ident.Partition) (Log, error) { return &nullLog{id: p}, nil }
func (nullStore) Copies() []Log                         { return nil }

// benchGateway publishes and settles as fast as it is answered.
type benchGateway struct {
	box   exec.Mailbox
	to    protocol.Sender
	addr  protocol.To
	prod  uint64
	recs  []byte
	next  uint64
	seq   uint64
	left  int
	group int
	items []protocol.SettleItem
	eat   bool
	open  int // settles not confirmed
	done  chan struct{}
}

func (g *benchGateway) Send(m any) { g.box.Post(m) }
func (g *benchGateway) Receive(msg any) {
	switch m := msg.(type) {
	case protocol.Attached:
		if g.eat {
			g.to.Send(protocol.Subscribe{To: g.addr, Consumer: 1, Credit: 1 << 50})
		}
		close(g.done)
	case int:
		g.left = m
		for range 4 {
			g.publish()
		}
	case protocol.Published:
		g.check()
		for g.next-m.UpTo < uint64(4*g.group) && g.left > 0 {
			g.publish()
		}
	case protocol.Deliver:
		for _, i := range m.Items {
			if n := len(g.items); n > 0 && g.items[n-1].Last+1 == i.Offset {
				g.items[n-1].Last++
			} else {
				g.items = append(g.items, protocol.SettleItem{Consumer: 1, First: i.Offset, Last: i.Offset})
			}
		}
	case protocol.Settled:
		g.open = int(g.seq - m.Seq)
		g.check()
	}
}

func (g *benchGateway) check() {
	if g.left <= 0 && (!g.eat || g.open == 0) {
		select {
		case g.done <- struct{}{}:
		default:
		}
	}
}

func (g *benchGateway) publish() {
	g.left -= g.group
	g.to.Send(protocol.Publish{
		To: g.addr, First: g.next, Count: uint32(g.group), Records: g.recs,
		Runs: []batch.Run{{Kind: batch.KindRecord, Count: uint32(g.group), Producer: g.prod, First: g.next}},
	})
	g.next += uint64(g.group)
}

func (g *benchGateway) Flush() {
	if len(g.items) > 0 {
		g.seq++
		g.open = 1
		g.to.Send(protocol.Settle{To: g.addr, Seq: g.seq, Items: g.items})
		g.items = nil
	}
}

func benchmark(b *testing.B, size, group int, eat bool) {
	x := exec.New(1)
	defer x.Stop()
	local := ident.Instance{Node: "n", Store: ident.StoreID{1}, Boot: 1}
	m := New(Env{Exec: x, Clock: clock.System(), Trace: trace.Discard, Local: local, Store: nullStore{}})
	m.Apply([]catalog.Change{
		{After: &catalog.Node{Name: "n", Boot: 1, Number: 1}},
		{After: &catalog.Resource{Incarnation: 5, Kind: catalog.Queue, Partitions: []*catalog.Assignment{{
			Partition: part, Epoch: 1, Version: 1, Owner: local, Starts: []catalog.HistoryStart{{Epoch: 1}},
		}}}},
	})
	g := &benchGateway{eat: eat, group: group, next: 1, prod: protocol.ProducerID(1, 0, 0), done: make(chan struct{})}
	one := batch.AppendRecord(nil, batch.RecordHeader{}, bytes.Repeat([]byte{'x'}, size))
	for range group {
		g.recs = append(g.recs, one...)
	}
	g.box = x.Loop(0).Spawn("gateway", g)
	g.to = m.Sender(part)
	g.addr = protocol.To{Partition: part, Gateway: protocol.Gateway{Node: "n", Boot: 1}, Stream: 1}
	g.to.Send(protocol.Attach{To: g.addr, Reply: g, Producer: g.prod, First: 1})
	<-g.done
	g.done = make(chan struct{}, 1)
	b.ReportAllocs()
	b.SetBytes(int64(size))
	b.ResetTimer()
	g.box.Post(b.N)
	<-g.done
}

func BenchmarkPublishConfirm(b *testing.B)       { benchmark(b, 1024, 64, false) }
func BenchmarkPublishConfirmSmall(b *testing.B)  { benchmark(b, 32, 64, false) }
func BenchmarkPublishConsumeSettle(b *testing.B) { benchmark(b, 1024, 64, true) }

// roundRobin publishes to many partitions in turn, one record at a time, with a number in flight.
type roundRobin struct {
	box   exec.Mailbox
	to    []protocol.Sender
	addr  []protocol.To
	next  []uint64 // number of each partition's next record
	prod  uint64
	rec   []byte
	turn  int
	left  int // to publish
	wait  int // to be confirmed
	ready int
	done  chan struct{}
}

func (g *roundRobin) Send(m any) { g.box.Post(m) }
func (g *roundRobin) Flush()     {}
func (g *roundRobin) Receive(msg any) {
	switch m := msg.(type) {
	case protocol.Attached:
		if g.ready++; g.ready == len(g.to) {
			g.done <- struct{}{}
		}
	case int:
		g.left, g.wait = m, m
		for range min(m, 1000) {
			g.publish()
		}
	case protocol.Published:
		if g.wait--; g.wait == 0 {
			g.done <- struct{}{}
		} else if g.left > 0 {
			g.publish()
		}
	}
}

func (g *roundRobin) publish() {
	i := g.turn % len(g.to)
	g.turn++
	g.left--
	g.to[i].Send(protocol.Publish{
		To: g.addr[i], First: g.next[i], Count: 1, Records: g.rec,
		Runs: []batch.Run{{Kind: batch.KindRecord, Count: 1, Producer: g.prod, First: g.next[i]}},
	})
	g.next[i]++
}

// BenchmarkManyPartitions is one record of 1 KiB from Publish to Published where each of 1 000 queues gets one in turn: a batch each, so
// that what it prints is what a batch costs.
func BenchmarkManyPartitions(b *testing.B) {
	const many = 1000
	x := exec.New(1)
	defer x.Stop()
	local := ident.Instance{Node: "n", Store: ident.StoreID{1}, Boot: 1}
	m := New(Env{Exec: x, Clock: clock.System(), Trace: trace.Discard, Local: local, Store: nullStore{}})
	changes := []catalog.Change{{After: &catalog.Node{Name: "n", Boot: 1, Number: 1}}}
	g := &roundRobin{prod: protocol.ProducerID(1, 0, 0), done: make(chan struct{}, 1)}
	g.rec = batch.AppendRecord(nil, batch.RecordHeader{}, bytes.Repeat([]byte{'x'}, 1024))
	for i := range many {
		p := ident.Partition{Incarnation: uint64(i + 1)}
		changes = append(changes, catalog.Change{After: &catalog.Resource{
			Incarnation: p.Incarnation, Kind: catalog.Queue, Partitions: []*catalog.Assignment{{
				Partition: p, Epoch: 1, Version: 1, Owner: local, Starts: []catalog.HistoryStart{{Epoch: 1}},
			}},
		}})
		g.addr = append(g.addr, protocol.To{Partition: p, Gateway: protocol.Gateway{Node: "n", Boot: 1}, Stream: 1})
		g.next = append(g.next, 1)
	}
	m.Apply(changes)
	for i := range g.addr {
		g.to = append(g.to, m.Sender(g.addr[i].Partition))
	}
	g.box = x.Loop(0).Spawn("gateway", g)
	for i, to := range g.to {
		to.Send(protocol.Attach{To: g.addr[i], Reply: g, Producer: g.prod, First: 1})
	}
	<-g.done
	b.ReportAllocs()
	b.SetBytes(1024)
	b.ResetTimer()
	g.box.Post(b.N)
	<-g.done
}
