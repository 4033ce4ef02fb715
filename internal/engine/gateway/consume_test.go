package gateway

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

func item(off uint64, body string) protocol.Item {
	return protocol.Item{Offset: off, Body: append(broker.AppendEnvelopeHead(nil, "", "q", nil), body...)}
}

// consumer is the gateway's number of the nth subscription.
func (o *fakeOwner) consumer(n int) uint64 { return all[protocol.Subscribe](o)[n-1].Consumer }

// deliver sends items to the nth subscription's consumer.
func (o *fakeOwner) deliver(n int, items ...protocol.Item) {
	o.say(protocol.Deliver{Partition: o.p, Stream: o.stream, Consumer: o.consumer(n), Items: items})
}

// settled are the settles that the owner got, as text.
func (o *fakeOwner) settled() string {
	s := ""
	for _, m := range all[protocol.Settle](o) {
		s += fmt.Sprintf("#%d", m.Seq)
		for _, i := range m.Items {
			s += fmt.Sprintf(" %s %d-%d", [...]string{"accept", "reject", "requeue", "release"}[i.Outcome], i.First, i.Last)
		}
		s += "; "
	}
	return s
}

func TestDeliverAndSettle(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5, Prefetch: 10}, c.done("consume")) })
	if s := all[protocol.Subscribe](o)[0]; s.Prefetch != 10 || s.Credit != 1<<20 {
		t.Errorf("subscribed with %+v", s)
	}
	again := item(4, "c")
	again.Again = true
	o.deliver(1, item(1, "a"), item(2, "b"), again)
	h.settle()
	c.expect("consume: ok; delivered to 5: 1=a 2=b 4!=c")
	if n := h.sh.stats; n.Delivered != 3 || n.Again != 1 {
		t.Errorf("%d delivered, %d of them again", n.Delivered, n.Again)
	}
	h.do(func() {
		c.s.Settle(c.refs[:2], broker.Accept)
		c.s.Settle(c.refs[2:], broker.Requeue)
		c.s.Settle(c.refs, broker.Accept) // settled already: ignored
		c.s.Settle([]broker.Ref{{Partition: o.p, Consumer: 5, Offset: 3}, {Partition: o.p, Consumer: 6, Offset: 1}}, broker.Accept)
	})
	if got := o.settled(); got != "#1 accept 1-2 requeue 4-4; " {
		t.Errorf("settled %s", got)
	}
	// What a channel gives back when it closes is counted apart from what the client settled, as what a session gives back is.
	o.deliver(1, item(5, "d"), item(6, "e"))
	h.settle()
	h.do(func() { c.s.Settle(c.refs[3:4], broker.Release) })
	h.do(func() { c.s.Close() })
	if n := h.sh.stats; n.Settled != 3 || n.Released != 2 {
		t.Errorf("%d settled, %d released", n.Settled, n.Released)
	}
}

func TestAcrossAChangeOfOwnerNothingIsRedelivered(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume")) })
	o.deliver(1, item(1, "a"), item(2, "b"), item(3, "c"))
	h.settle()
	o.quiet = true
	h.do(func() { c.s.Settle(c.refs[1:2], broker.Accept) }) // not confirmed before the owner is lost
	old := o.stream
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	o.quiet = false
	h.sim.RunFor(100 * time.Millisecond)
	as := all[protocol.Attach](o)
	id := o.consumer(1)
	want := []protocol.Claim{{Consumer: id, Offset: 1}, {Consumer: id, Offset: 3}, {Consumer: id, Offset: 2}}
	if got := as[len(as)-1].Claims; !reflect.DeepEqual(got, want) {
		t.Errorf("claims %v, want %v", got, want)
	}
	if got := o.settled(); got != "#1 accept 2-2; #1 accept 2-2; " {
		t.Errorf("settles %s; want the same one again", got)
	}
	if s := all[protocol.Subscribe](o); len(s) != 2 || s[1].Consumer != id || s[1].Stream == old {
		t.Errorf("subscriptions %+v", s)
	}
	// What the old owner says now is not heard.
	o.say(protocol.Deliver{Partition: o.p, Stream: old, Consumer: id, Items: []protocol.Item{item(9, "late")}})
	h.do(func() { c.s.Settle(c.refs[2:], broker.Accept) }) // a late ack
	c.expect("consume: ok; delivered to 5: 1=a 2=b 3=c")
	if got := o.settled(); got != "#1 accept 2-2; #1 accept 2-2; #2 accept 3-3; " {
		t.Errorf("settles %s", got)
	}
}

// What went back and was handed out again is held, whatever was said of it before: the next owner must not take that for a word on what is held
// now (simulation of clusters, seed 63).
func TestWhatIsHandedOutAgainIsNotSettledByAnEarlierWord(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume")) })
	o.deliver(1, item(1, "a"), item(2, "b"), item(3, "c"))
	h.settle()
	o.quiet = true
	h.do(func() { c.s.Settle(c.refs, broker.Requeue) }) // it is taken, and what it says lost with the owner
	again := item(2, "b")
	again.Again = true
	o.deliver(1, again)
	h.settle()
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	o.quiet = false
	h.sim.RunFor(100 * time.Millisecond)
	as := all[protocol.Attach](o)
	id := o.consumer(1)
	want := []protocol.Claim{{Consumer: id, Offset: 2}, {Consumer: id, Offset: 1}, {Consumer: id, Offset: 3}}
	if got := as[len(as)-1].Claims; !reflect.DeepEqual(got, want) {
		t.Errorf("claims %v, want %v", got, want)
	}
	h.do(func() { c.s.Settle(c.refs[3:], broker.Accept) })
	if got := o.settled(); got != "#1 requeue 1-3; #1 requeue 1-1 requeue 3-3; #2 accept 2-2; " {
		t.Errorf("settles %s", got)
	}
}

func TestSettlesWithoutAnOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []protocol.SettleItem
		said := map[uint64]int{}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			first := rapid.Uint64Range(0, 9).Draw(t, "first")
			last := first + rapid.Uint64Range(0, 4).Draw(t, "more")
			items = append(items, protocol.SettleItem{Consumer: 1, First: first, Last: last, Outcome: protocol.Requeue})
			for off := first; off <= last; off++ {
				said[off]++
			}
		}
		off := rapid.Uint64Range(0, 14).Draw(t, "offset")
		before := slices.Clone(items)
		left := without(items, off)
		if !slices.Equal(items, before) {
			t.Fatalf("%v became %v", before, items)
		}
		for _, x := range left {
			if x.First > x.Last || x.Consumer != 1 || x.Outcome != protocol.Requeue {
				t.Fatalf("%v", x)
			}
			for o := x.First; o <= x.Last; o++ {
				said[o]--
			}
		}
		delete(said, off)
		for o, n := range said {
			if n != 0 {
				t.Fatalf("%v without %d is %v: offset %d is there %d times too seldom", items, off, left, o, n)
			}
		}
		if items != nil && left == nil {
			t.Fatal("nothing is left, and taken for a cursor's move")
		}
	})
}

// What an owner sends to a consumer that was cancelled before the owner had answered goes back: the client was told that it does not
// consume.
func TestAConsumerThatNeverBeganIsHandedNothing(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	h.do(func() {
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume"))
		c.s.Cancel(5, func() { c.say("cancelled") })
	})
	o.deliver(1, item(1, "a"))
	h.settle()
	o.say(protocol.Unsubscribed{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1)})
	h.settle()
	c.expect("consume: error 4 consumer on queue 'q' was cancelled before it began; cancelled")
	if got := o.settled(); got != "#1 release 1-1; " {
		t.Errorf("settled %s", got)
	}
}

func TestCancelKeepsWhatIsHeldAndCloseReleasesIt(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume")) })
	o.deliver(1, item(1, "a"), item(2, "b"))
	h.settle()
	h.do(func() { c.s.Cancel(5, func() { c.say("cancelled") }) })
	c.expect("consume: ok; delivered to 5: 1=a 2=b; cancelled")
	h.do(func() { c.s.Settle(c.refs[:1], broker.Accept) })
	h.do(func() { c.s.Close() })
	o.deliver(1, item(3, "c")) // was on its way
	h.settle()
	c.expect("")
	if got := o.settled(); got != "#1 accept 1-1; #2 release 2-2; #3 release 3-3; " {
		t.Errorf("settled %s", got)
	}
	if len(all[protocol.Unsubscribe](o)) != 1 {
		t.Error("unsubscribed more than once or never")
	}
}

func TestConsumersAreRefused(t *testing.T) {
	h := newHarness(t, Limits{Consumers: 1})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() {
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1, Cursor: "c"}, c.done("cursor"))
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1, Start: stream.Start{Kind: stream.StartFirst}}, c.done("start"))
	})
	c.expect("cursor: error 4 queue 'q' in vhost '/' is not a stream: it has no offsets and no cursors; " +
		"start: error 4 queue 'q' in vhost '/' is not a stream: it has no offsets and no cursors")
	o.quiet = true
	h.do(func() {
		c.s.Consume(broker.ConsumeSpec{Queue: "missing", Consumer: 1}, c.done("missing"))
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1, Exclusive: true}, c.done("exclusive"))
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 2}, c.done("second"))
	})
	o.say(protocol.Subscribed{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1), Refused: "exclusive"})
	h.settle()
	c.expect("missing: error 1 no queue 'missing' in vhost '/'; " +
		"second: error 8 no further consumer on queue 'q': the limit of 1 consumers of one connection is reached; " +
		"exclusive: error 2 queue 'q' in vhost '/' in exclusive use")
}

func TestByteCreditIsPaidBack(t *testing.T) {
	h := newHarness(t, Limits{ConsumerBytes: 1000})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5, NoAck: true}, c.done("consume")) })
	big := item(1, string(make([]byte, 600)))
	o.deliver(1, big)
	h.settle()
	if n := len(all[protocol.Credit](o)); n != 0 {
		t.Errorf("%d credits before anything was drained", n)
	}
	h.do(func() { c.s.Drained(5, len(big.Body)) })
	if cs := all[protocol.Credit](o); len(cs) != 1 || cs[0].Bytes != int64(len(big.Body)) {
		t.Errorf("credits %+v; want one of %d bytes", cs, len(big.Body))
	}
	o.deliver(1, item(2, string(make([]byte, 400))))
	h.settle()
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.sim.RunFor(100 * time.Millisecond)
	if s := all[protocol.Subscribe](o); s[len(s)-1].Credit > 600 {
		t.Errorf("a new stream began with a credit of %d while 400 bytes are not drained", s[len(s)-1].Credit)
	}
}

func TestGet(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.ready = []protocol.Item{item(3, "a"), item(4, "b")}
	get := func(noAck bool) {
		h.do(func() {
			c.s.Get("q", noAck, func(d broker.Delivery, ok bool, err *broker.Error) {
				if err != nil || !ok {
					c.say("empty %v", err)
					return
				}
				c.say("got %s left %d", text(d.Payload), d.Left)
				c.refs = append(c.refs, d.Ref)
			})
		})
	}
	get(false)
	get(true)
	get(false)
	c.expect("got a left 1; got b left 0; empty <nil>")
	h.do(func() { c.s.Settle(c.refs, broker.Accept) })
	if got := o.settled(); got != "#1 accept 3-3; " {
		t.Errorf("settled %s", got)
	}
	o.ready = []protocol.Item{item(5, "c")}
	get(false)
	h.do(func() { c.s.Close() })
	if got := o.settled(); got != "#1 accept 3-3; #2 release 5-5; " {
		t.Errorf("settled %s", got)
	}
}

func TestAQuestionWaitsForWhatWasPublishedBefore(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a")
	h.do(func() {
		c.s.Get("q", true, func(d broker.Delivery, ok bool, err *broker.Error) { c.say("got %v %v", ok, err) })
		c.publish(2, "", "q", "b")
	})
	if n := len(all[protocol.Get](o)); n != 0 {
		t.Fatal("the owner was asked before it had confirmed what was published")
	}
	o.quiet = false
	o.ready = []protocol.Item{item(1, "a")}
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 2})
	h.settle()
	c.expect("confirmed 1; got true <nil>")
	// What is held on purpose is not waited for.
	h.sh.SetBlocked("disk low")
	c.publishAll("q", 3, "c")
	h.do(func() {
		c.s.Get("q", true, func(d broker.Delivery, ok bool, err *broker.Error) { c.say("got %v %v", ok, err) })
	})
	c.expect(`blocked "disk low"; got false <nil>`)
}

func TestAQuestionWaitsForWhatWasGivenBackBefore(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.ready = []protocol.Item{item(1, "a"), item(2, "b")}
	get := func() {
		c.s.Get("q", false, func(d broker.Delivery, ok bool, err *broker.Error) {
			c.say("got %v %v", ok, err)
			if ok {
				c.refs = append(c.refs, d.Ref)
			}
		})
	}
	h.do(get)
	o.quiet = true
	asked := len(all[protocol.Get](o))
	h.do(func() {
		c.s.Settle(c.refs[:1], broker.Requeue)
		get()
	})
	if n := len(all[protocol.Get](o)); n != asked {
		t.Fatal("the owner was asked before what was given back was in its place")
	}
	o.quiet = false
	o.say(protocol.Settled{Partition: o.p, Stream: o.stream, Seq: 1})
	h.settle()
	// What is accepted is not waited for.
	o.quiet = true
	h.do(func() {
		c.s.Settle(c.refs[1:], broker.Accept)
		get()
	})
	if n := len(all[protocol.Get](o)); n != asked+2 {
		t.Fatalf("the owner was asked %d times, want %d", n, asked+2)
	}
	c.expect("got true <nil>; got true <nil>")
}

func streamSpec(name string) broker.QueueSpec {
	return broker.QueueSpec{Name: name, Durable: true, Kind: catalog.Stream}
}

// batchOf makes a batch of records and, between them, an event.
func batchOf(o *fakeOwner, off uint64, bodies ...string) batch.Batch {
	var b batch.Builder
	for i, body := range bodies {
		rec := batch.AppendRecord(nil, batch.RecordHeader{}, broker.AppendEnvelopeHead(nil, "", "s", nil), []byte(body))
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, rec)
		if i == 0 {
			b.Add(batch.Run{Kind: batch.KindEvent, Count: 1}, batch.AppendEvent(nil, 40, []byte("event")))
		}
	}
	return b.Finish(o.p, 1, batch.Tail{Offset: off}, 0)
}

func TestStreamReader(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(streamSpec("s"))
	h.do(func() {
		c.s.Consume(broker.ConsumeSpec{
			Queue: "s", Consumer: 5, Prefetch: 2, Start: stream.Start{Kind: stream.StartOffset, Offset: 7}, Cursor: "c1",
		}, c.done("consume"))
	})
	b := batchOf(o, 6, "six", "seven", "eight", "nine")
	o.say(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1), First: 7, Batches: []batch.Batch{b}})
	h.settle()
	c.expect("consume: ok; delivered to 5: 7=seven 8=eight")
	h.do(func() { c.s.Settle(c.refs[1:2], broker.Accept) }) // out of order: the cursor stays
	c.expect("delivered to 5: 9=nine")
	if n := len(all[protocol.Cursor](o)); n != 0 {
		// The cursor is set to where the reader began; that is a move only if it says more than 7.
		for _, m := range all[protocol.Cursor](o) {
			if m.Offset > 7 {
				t.Errorf("cursor moved to %d past an unsettled record", m.Offset)
			}
		}
	}
	h.do(func() { c.s.Settle(c.refs[:1], broker.Accept) })
	ms := all[protocol.Cursor](o)
	if last := ms[len(ms)-1]; last.Offset != 9 || last.Name != "c1" {
		t.Errorf("cursor %+v; want at 9", last)
	}
	h.do(func() { c.s.Settle(c.refs[2:3], broker.Release) }) // given back unread: the next reader of the cursor gets it
	for _, m := range all[protocol.Cursor](o) {
		if m.Offset > 9 {
			t.Errorf("cursor moved to %d past a record that was given back", m.Offset)
		}
	}
	// A new stream goes on after what has come, whatever the cursor says.
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.sim.RunFor(100 * time.Millisecond)
	s := all[protocol.Subscribe](o)
	if last := s[len(s)-1]; last.Cursor != "" || last.Start != (stream.Start{Kind: stream.StartOffset, Offset: 10}) {
		t.Errorf("subscribed anew with %+v", last)
	}
	h.do(func() { c.s.Close() })
	if after := all[protocol.Cursor](o); after[len(after)-1].Offset != 9 {
		t.Error("closing moved the cursor past an unsettled record")
	}
}

func TestACursorWithoutAcksMovesWithWhatIsHandedOver(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(streamSpec("s"))
	h.do(func() {
		c.s.Consume(broker.ConsumeSpec{Queue: "s", Consumer: 5, NoAck: true, Cursor: "c1"}, c.done("consume"))
	})
	b := batchOf(o, 7, "seven", "eight")
	o.say(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1), First: 7, Batches: []batch.Batch{b}})
	h.settle()
	c.expect("consume: ok; delivered to 5: 7=seven 8=eight")
	if ms := all[protocol.Cursor](o); len(ms) == 0 || ms[len(ms)-1].Offset != 9 || ms[len(ms)-1].Name != "c1" {
		t.Errorf("cursor %+v; want at 9", ms)
	}
}

func TestStreamReaderThatGotNothingYetSkipsNothing(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(streamSpec("s"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "s", Consumer: 5}, c.done("consume")) })
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.sim.RunFor(100 * time.Millisecond)
	s := all[protocol.Subscribe](o)
	if last := s[len(s)-1]; last.Start != (stream.Start{Kind: stream.StartOffset, Offset: 7}) {
		t.Errorf("subscribed anew with %+v; want from where the first owner began", last.Start)
	}
}

func TestStreamReaderIsBoundedByWhatIsDrained(t *testing.T) {
	h := newHarness(t, Limits{ConsumerBytes: 100})
	c := h.client()
	o := c.declare(streamSpec("s"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "s", Consumer: 5, NoAck: true}, c.done("consume")) })
	body := string(make([]byte, 60))
	b := batchOf(o, 7, body, body, body, body)
	o.say(protocol.StreamData{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1), First: 7, Batches: []batch.Batch{b}})
	h.settle()
	if got := len(c.refs); got != 2 {
		t.Fatalf("%d records were handed over; want 2, the second of which overdraws", got)
	}
	h.do(func() { c.s.Drained(5, 134) })
	if got := len(c.refs); got != 4 {
		t.Fatalf("%d records; want 4", got)
	}
	if n := len(all[protocol.Credit](o)); n != 0 {
		t.Error("credit was paid before the batch had left")
	}
	h.do(func() { c.s.Drained(5, 134) })
	if cs := all[protocol.Credit](o); len(cs) != 1 || cs[0].Bytes != int64(b.Size()) {
		t.Errorf("credits %+v; want one of %d", cs, b.Size())
	}
}

func TestConsumerEndedByTheOwner(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume")) })
	o.say(protocol.ConsumerEnded{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1), Reason: "deleted"})
	h.settle()
	c.expect("consume: ok; consumer 5 gone: deleted")
	h.do(func() { c.s.Cancel(5, func() { c.say("cancelled") }) })
	c.expect("cancelled")
}
