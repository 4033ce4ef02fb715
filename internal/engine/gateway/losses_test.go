package gateway

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

// losing has the present stream end, and the next owner say that what lay from an offset on is gone.
func (h *harness) losing(o *fakeOwner, from uint64) {
	o.lost, o.lostFrom = true, from
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.sim.RunFor(100 * time.Millisecond)
}

// A reader that was further than an accepted loss has kept goes on from there: those offsets are given anew. One that was not so far goes on where
// it was.
func TestReadersBeyondAnAcceptedLossAreSetToItsEnd(t *testing.T) {
	for _, c := range []struct{ from, want uint64 }{{8, 8}, {12, 10}} {
		h := newHarness(t, Limits{})
		u := h.client()
		o := u.declare(streamSpec("s"))
		h.do(func() {
			u.s.Consume(broker.ConsumeSpec{
				Queue: "s", Consumer: 5, Start: stream.Start{Kind: stream.StartOffset, Offset: 7}, Cursor: "c1",
			}, u.done("consume"))
		})
		b := batchOf(o, 6, "six", "seven", "eight", "nine")
		o.say(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1), First: 7, Batches: []batch.Batch{b}})
		h.settle()
		u.expect("consume: ok; delivered to 5: 7=seven 8=eight 9=nine")
		h.losing(o, c.from)
		s := all[protocol.Subscribe](o)
		if last := s[len(s)-1]; last.Start != (stream.Start{Kind: stream.StartOffset, Offset: c.want}) || last.Cursor != "" {
			t.Fatalf("from %d: subscribed anew with %+v", c.from, last)
		}
		b = batchOf(o, c.want, "anew")
		o.say(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: o.consumer(len(s)), First: c.want, Batches: []batch.Batch{b}})
		h.settle()
		u.expect(map[uint64]string{8: "delivered to 5: 8=anew", 10: "delivered to 5: 10=anew"}[c.want])
		h.do(func() { u.s.Settle(u.refs[:1], broker.Accept) })
		for _, m := range all[protocol.Cursor](o) {
			if m.Offset > c.want {
				t.Errorf("from %d: the cursor moved to %d", c.from, m.Offset)
			}
		}
	}
}

// What clients hold beyond an accepted loss is gone, and so is what they said of it: the owner hears of neither. A consumer that holds such
// messages ends, since what its client says of them would be taken for those that get their offsets; others go on.
func TestWhatIsHeldBeyondAnAcceptedLossIsForgotten(t *testing.T) {
	h := newHarness(t, Limits{})
	u := h.client()
	o := u.declare(durable("q"))
	h.do(func() { u.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, u.done("consume 5")) })
	h.do(func() { u.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 6}, u.done("consume 6")) })
	o.deliver(1, item(1, "a"), item(2, "b"), item(8, "c"), item(9, "d"))
	o.deliver(2, item(3, "e"))
	h.settle()
	u.expect("consume 5: ok; consume 6: ok; delivered to 5: 1=a 2=b 8=c 9=d; delivered to 6: 3=e")
	o.quiet = true // what is settled now is not confirmed
	h.do(func() {
		u.s.Settle(u.refs[1:2], broker.Accept)
		u.s.Settle(u.refs[3:4], broker.Accept)
	})
	before := len(o.settled())
	h.losing(o, 5)
	u.expect("consumer 5 gone: " + lostHeld)
	if got, want := o.settled()[before:], "#1 accept 2-2; "; got != want {
		t.Errorf("settles sent again: %q, want %q", got, want)
	}
	h.do(func() { u.s.Settle(u.refs[2:3], broker.Accept) })
	h.do(func() { u.s.Settle(u.refs[4:5], broker.Accept) })
	if got, want := o.settled()[before:], "#1 accept 2-2; #2 accept 3-3; "; got != want {
		t.Errorf("settles: %q, want %q", got, want)
	}
}

// What was fetched one at a time and lies beyond an accepted loss is forgotten likewise, and its client is told: another message may get its offset,
// and be fetched by the same client, who would settle it by what it says of the one before.
func TestWhatWasFetchedBeyondAnAcceptedLossIsTold(t *testing.T) {
	h := newHarness(t, Limits{})
	u, v := h.client(), h.client()
	o := u.declare(durable("q"))
	o.ready = []protocol.Item{item(3, "a"), item(4, "b"), item(8, "c")}
	for _, c := range []*client{u, v, v} {
		h.do(func() {
			c.s.Get("q", false, func(d broker.Delivery, _ bool, _ *broker.Error) { c.refs = append(c.refs, d.Ref) })
		})
	}
	h.losing(o, 5)
	u.expect("")
	v.expect("fetched from 5 gone: " + lostHeld)
	h.do(func() { v.s.Settle(v.refs, broker.Accept) })
	if got := o.settled(); got != "#1 accept 4-4; " {
		t.Errorf("settled %s", got)
	}
}
