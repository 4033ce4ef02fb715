package gateway

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
)

// credits is what an owner has given each consumer, by the gateway's number.
func (o *fakeOwner) credits() map[uint64]int64 {
	left := map[uint64]int64{}
	for _, g := range o.got {
		switch m := g.(type) {
		case protocol.Subscribe:
			left[m.Consumer] = m.Credit
		case protocol.Credit:
			left[m.Consumer] += m.Bytes
		case protocol.Unsubscribe:
			delete(left, m.Consumer)
		}
	}
	return left
}

// A session that takes much and reads nothing is given no more by any owner, whatever its consumers' windows; once its client has read half
// of it, all go on.
func TestWhatASessionDoesNotReadIsBounded(t *testing.T) {
	const consumers, size = 10, 7 << 20
	h := newHarness(t, Limits{})
	c, other := h.client(), h.client()
	o := c.declare(durable("q"))
	h.do(func() {
		for n := range uint64(consumers) {
			c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: n + 1, NoAck: true}, c.done("consume"))
		}
		other.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1, NoAck: true}, other.done("consume"))
	})
	body := broker.AppendEnvelopeHead(nil, "", "q", nil)
	body = append(body, strings.Repeat("x", size)...)
	offset := uint64(0)
	give := func(consumer uint64) {
		o.say(protocol.Deliver{Partition: o.p, Stream: o.stream, Consumer: consumer, Items: []protocol.Item{{Offset: offset, Body: body}}})
		offset++
		h.settle()
	}
	may := func() (n int) {
		for consumer, left := range o.credits() {
			if consumer <= consumers && left > 0 {
				n++
			}
		}
		return n
	}
	for n := range uint64(5) {
		give(n + 1)
	}
	if n := may(); n != 0 {
		t.Fatalf("with %d MiB unread %d consumers have credit", 5*size>>20, n)
	}
	if left := o.credits()[consumers+1]; left <= 0 {
		t.Error("another session's consumer has none either")
	}
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 99, NoAck: true}, c.done("consume")) })
	if left := o.credits()[consumers+2]; left > 0 {
		t.Errorf("a new consumer has %d", left)
	}
	h.sh.PeerDown(local.Node) // nor on a new stream
	h.sim.RunFor(1e9)
	if n := may(); n != 0 {
		t.Fatalf("on a new stream %d consumers have credit", n)
	}
	h.do(func() { c.s.Drained(1, len(body)) })
	if n := may(); n != 0 {
		t.Fatalf("with most of it unread %d consumers have credit", n)
	}
	h.do(func() { c.s.Cancel(2, func() {}) }) // what it was given counts no more
	h.do(func() { c.s.Drained(3, len(body)) })
	for consumer, left := range o.credits() {
		if holds := consumer == 4 || consumer == 5; left <= 0 && !holds {
			t.Errorf("consumer %d was left with %d", consumer, left)
		}
	}
}

// What is on its way to a shard is counted, and an owner beside it waits for it.
func TestOwnersWaitForTheShard(t *testing.T) {
	h := newHarness(t, Limits{})
	m := protocol.Deliver{Items: []protocol.Item{{Body: make([]byte, crowdBytes-1)}}}
	h.sh.Send(m)
	if h.sh.Crowded() {
		t.Error("crowded too soon")
	}
	h.sh.Send(protocol.Deliver{Items: []protocol.Item{{Body: make([]byte, 1)}}})
	if !h.sh.Crowded() {
		t.Error("not crowded")
	}
	h.settle()
	if h.sh.Crowded() || h.sh.coming.Load() != 0 {
		t.Errorf("%d bytes are left", h.sh.coming.Load())
	}
}
