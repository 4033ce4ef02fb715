package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

// fakeCopy is a copy that follows, whose answers the test decides on.
type fakeCopy struct {
	p      ident.Partition
	reads  []protocol.Read
	ended  []protocol.Unread
	credit []protocol.Credit
	refuse string
}

func (f *fakeCopy) Send(msg any) {
	switch m := msg.(type) {
	case protocol.Read:
		f.reads = append(f.reads, m)
		if f.refuse != "" {
			m.Reply.Send(protocol.NotServing{Partition: f.p, Stream: m.Stream, Reason: f.refuse})
		}
	case protocol.Unread:
		f.ended = append(f.ended, m)
	case protocol.Credit:
		f.credit = append(f.credit, m)
	}
}

// data is so many records from an offset on, in one batch.
func (f *fakeCopy) data(read protocol.Read, from uint64, n int) protocol.StreamData {
	return protocol.StreamData{
		Partition: f.p, Stream: read.Stream, Consumer: read.Consumer, First: from, Batches: []batch.Batch{recordsAt(f.p, from, n)},
	}
}

func recordsAt(p ident.Partition, from uint64, n int) batch.Batch {
	var b batch.Builder
	var records []byte
	for i := range n {
		body := broker.AppendEnvelopeHead(nil, "", "s", nil)
		records = batch.AppendRecord(records, batch.RecordHeader{}, append(body, fmt.Sprint(from+uint64(i))...))
	}
	b.Add(batch.Run{Kind: batch.KindRecord, Count: uint32(n)}, records)
	return b.Finish(p, 1, batch.Tail{Position: from + 1, Offset: from}, 0)
}

// nearHarness has a stream that another node owns and this one follows.
func nearHarness(t *testing.T) (*harness, *client, *fakeOwner, *fakeCopy) {
	h := newHarness(t, Limits{})
	c := h.client()
	c.auto = 1
	o := c.declare(broker.QueueSpec{Name: "s", Durable: true, Kind: catalog.Stream})
	f := &fakeCopy{p: o.p}
	h.copies = map[ident.Partition]*fakeCopy{o.p: f}
	h.do(func() {
		c.s.Consume(broker.ConsumeSpec{Queue: "s", Consumer: 1, Cursor: "name", Start: stream.Start{Kind: stream.StartFirst}}, c.done("consume"))
	})
	c.expect("consume: ok")
	return h, c, o, f
}

func TestStreamsAreReadFromTheCopyHere(t *testing.T) {
	h, c, o, f := nearHarness(t)
	asked := all[protocol.Subscribe](o)
	if len(asked) != 1 || asked[0].Credit != 0 || asked[0].Cursor != "name" {
		t.Fatalf("the owner was asked %+v", asked)
	}
	if len(f.reads) != 1 || f.reads[0].Offset != 7 || f.reads[0].Credit <= 0 {
		t.Fatalf("the copy was asked %+v; the owner had said 7", f.reads)
	}
	read := f.reads[0]
	read.Reply.Send(f.data(read, 7, 2))
	h.settle()
	c.expect("delivered to 1: 7=7 8=8")
	h.do(func() { c.s.Settle(c.refs, broker.Accept) })
	if moved := all[protocol.Cursor](o); len(moved) != 1 || moved[0].Offset != 9 {
		t.Fatalf("the owner was told of %+v", moved)
	}
	o.reply.Send(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: read.Consumer, First: 7, Batches: []batch.Batch{recordsAt(o.p, 7, 5)}})
	h.settle()
	c.expect("")

	// A new stream to the owner leaves the reading alone.
	h.sh.PeerDown(local.Node)
	h.sim.RunFor(time.Second)
	read.Reply.Send(f.data(read, 9, 1))
	h.settle()
	c.expect("delivered to 1: 9=9")
	asked = all[protocol.Subscribe](o)
	if last := asked[len(asked)-1]; len(asked) != 2 || last.Credit != 0 || len(f.reads) != 1 {
		t.Fatalf("after the owner's stream was lost: %+v, %d reads", last, len(f.reads))
	}
	h.do(func() { c.s.Cancel(1, func() {}) })
	read.Reply.Send(f.data(read, 10, 1))
	h.settle()
	c.expect("")
	if len(f.ended) != 1 || len(h.sh.near) != 0 || len(all[protocol.Unsubscribe](o)) != 1 {
		t.Errorf("after the cancel: %d ended, %d left", len(f.ended), len(h.sh.near))
	}
}

func TestReadersGoToTheOwnerAndComeBack(t *testing.T) {
	h, c, o, f := nearHarness(t)
	read := f.reads[0]
	read.Reply.Send(f.data(read, 7, 2))
	f.refuse = "behind"
	read.Reply.Send(protocol.NotServing{Partition: f.p, Stream: read.Stream, Reason: "behind"})
	h.settle()
	asked := all[protocol.Subscribe](o)
	if last := asked[len(asked)-1]; len(asked) != 2 || last.Credit <= 0 || last.Start != (stream.Start{Kind: stream.StartOffset, Offset: 9}) || last.Cursor != "" {
		t.Fatalf("the owner was asked %+v", asked)
	}
	o.reply.Send(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: read.Consumer, First: 9, Batches: []batch.Batch{recordsAt(o.p, 9, 1)}})
	read.Reply.Send(f.data(read, 9, 1)) // late
	h.settle()
	c.expect("delivered to 1: 7=7 8=8; delivered to 1: 9=9")

	h.sim.RunFor(nearestAgain - 2*time.Second)
	if len(f.reads) != 1 {
		t.Fatal("the copy was asked again at once")
	}
	h.sim.RunFor(5 * time.Second) // it refuses once more
	f.refuse = ""
	h.sim.RunFor(nearestAgain + 5*time.Second)
	last := f.reads[len(f.reads)-1]
	if len(f.reads) != 3 || last.Offset != 10 {
		t.Fatalf("the copy was asked %+v", f.reads)
	}
	last.Reply.Send(f.data(last, 9, 3)) // a batch that begins before
	h.settle()
	c.expect("delivered to 1: 10=10 11=11")
}
