package session

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// opened is a connection whose client has sent connection.open and has read everything so far.
func opened(t *testing.T, b *amqptest.Broker) *Conn {
	t.Helper()
	c := New(Config{Broker: b, ID: 1, Limits: Limits{Channels: 100, FrameMax: 128 << 10, MessageMax: 16 << 20}}, Instant{Mono: time.Hour})
	in := wire.AppendMethod([]byte(wire.ProtocolHeader), 0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"})
	in = wire.AppendMethod(in, 0, &wire.ConnectionTuneOk{})
	in = wire.AppendMethod(in, 0, &wire.ConnectionOpen{VirtualHost: "/"})
	if n := c.Feed(in, c.now); n != len(in) || !c.Open() {
		t.Fatalf("%d of %d bytes were read", n, len(in))
	}
	c.Take(&Output{})
	return c
}

// A client that asks for messages on every channel and never reads is given a few, not all at once.
func TestGetsAreBounded(t *testing.T) {
	b := amqptest.New()
	c := opened(t, b)
	const channels, size = 50, 512 << 10
	var in []byte
	for ch := uint16(1); ch <= channels; ch++ {
		in = wire.AppendMethod(in, ch, &wire.ChannelOpen{})
	}
	in = wire.AppendMethod(in, 1, &wire.QueueDeclare{Queue: "q"})
	for range channels {
		in = wire.AppendMethod(in, 1, &wire.BasicPublish{RoutingKey: "q"})
		in = wire.AppendContentHeader(in, 1, wire.Content{Properties: []byte{0, 0}, Size: size})
		in = wire.AppendBody(in, 1, 128<<10, make([]byte, size))
	}
	if n := c.Feed(in, c.now); n != len(in) {
		t.Fatalf("%d of %d bytes were read", n, len(in))
	}
	c.Take(&Output{})
	b.Later = true
	in = in[:0]
	for ch := uint16(1); ch <= channels; ch++ {
		in = wire.AppendMethod(in, ch, &wire.BasicGet{Queue: "q", NoAck: true})
	}
	got := 0
	for rounds := 0; len(in) > 0; rounds++ {
		in = in[c.Feed(in, c.now):]
		if c.getting > getsMax {
			t.Fatalf("%d messages are fetched at a time", c.getting)
		}
		b.Run()
		if n := c.Pending(); n > getsPending+(getsMax+1)*(size+1024) {
			t.Fatalf("%d bytes wait for the client", n)
		}
		if rounds > 2*channels {
			t.Fatalf("no end: %d bytes of input are left", len(in))
		}
		before := len(in)
		if in = in[c.Feed(in, c.now):]; len(in) == before && c.Stuck() { // now it reads
			var o Output
			c.Take(&o)
			got += bytes.Count(o.Bytes, []byte{0, 60, 0, 71})
		}
	}
	b.Run()
	var o Output
	c.Take(&o)
	if got += bytes.Count(o.Bytes, []byte{0, 60, 0, 71}); got != channels || c.getting != 0 {
		t.Errorf("got %d messages of %d, %d are still being fetched", got, channels, c.getting)
	}
}

// What a client is not given after all, since it had asked for a pause and then ends its consumer, pays its credit back.
func TestWhatIsDroppedIsPaidBack(t *testing.T) {
	b := amqptest.New()
	c := opened(t, b)
	in := wire.AppendMethod(nil, 1, &wire.ChannelOpen{})
	in = wire.AppendMethod(in, 1, &wire.QueueDeclare{Queue: "q"})
	in = wire.AppendMethod(in, 1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
	in = wire.AppendMethod(in, 1, &wire.ChannelFlow{Active: false})
	in = wire.AppendMethod(in, 1, &wire.BasicPublish{RoutingKey: "q"})
	in = wire.AppendContentHeader(in, 1, wire.Content{Properties: []byte{0, 0}, Size: 100})
	in = wire.AppendBody(in, 1, 128<<10, make([]byte, 100))
	c.Feed(in, c.now)
	stash := c.channels[1].stash
	if len(stash) != 1 {
		t.Fatalf("%d deliveries are kept", len(stash))
	}
	want := len(stash[0].d.Payload)
	c.Feed(wire.AppendMethod(nil, 1, &wire.BasicCancel{ConsumerTag: "c"}), c.now)
	if got := b.PaidBack(1); got != want || b.Last().Held() != 0 {
		t.Errorf("%d bytes of %d were paid back, %d deliveries are held", got, want, b.Last().Held())
	}
}

// A client may cut a message into pieces of any size. The list of them is not kept for longer than the message.
func TestSmallPiecesLeaveNoMemory(t *testing.T) {
	b := amqptest.New()
	c := opened(t, b)
	const size = 10_000
	in := wire.AppendMethod(nil, 1, &wire.ChannelOpen{})
	in = wire.AppendMethod(in, 1, &wire.BasicPublish{RoutingKey: "q"})
	in = wire.AppendContentHeader(in, 1, wire.Content{Properties: []byte{0, 0}, Size: size})
	for range size {
		in = wire.AppendBody(in, 1, 128<<10, []byte{1})
	}
	for _, part := range [][]byte{in[:len(in)/2], in[len(in)/2:]} { // unfinished, and whole
		c.Feed(part, c.now)
		if n := cap(c.channels[1].incoming.pieces); n > 1024 {
			t.Errorf("a list of %d pieces is kept", n)
		}
	}
	if len(b.Published) != 1 || len(b.Published[0].Body[0]) != size {
		t.Fatalf("published %d messages", len(b.Published))
	}
}

// A consumer keeps to its queue's time to settle also where the queue was not known here when the client asked to consume. A long time is
// looked at often enough.
func TestTheTimeToSettleIsThatOfTheQueueAsItIsFound(t *testing.T) {
	b := amqptest.New()
	c, other := opened(t, b), opened(t, b)
	b.Later = true
	in := wire.AppendMethod(nil, 1, &wire.ChannelOpen{})
	c.Feed(wire.AppendMethod(in, 1, &wire.BasicConsume{Queue: "q"}), c.now)
	b.Later = false
	timeout := wire.Table{{Name: "x-consumer-timeout", Value: wire.Int64(30 * 60 * 1000)}}
	in = wire.AppendMethod(nil, 1, &wire.ChannelOpen{})
	other.Feed(wire.AppendMethod(in, 1, &wire.QueueDeclare{Queue: "q", Arguments: timeout}), other.now)
	b.Run()
	if k := c.consumers[1]; k == nil || k.timeout != 30*time.Minute {
		t.Fatalf("the consumer is %+v", k)
	}
	if d := c.Interval(); d <= 0 || d > timeoutsEvery {
		t.Errorf("it is looked at every %v", d)
	}
}

// Texts are cut to what AMQP has room for, and not within a character.
func TestLongTextsEndWithACharacter(t *testing.T) {
	for n := range 4 {
		f := faultf(wire.NotFound, "no queue '%s%s' in vhost '/'", "abc"[:n], strings.Repeat("\u00e4\u4e16", 80))
		if text := f.reply(); len(text) > 255 || len(text) < 250 || !utf8.ValidString(text) {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}

// A connection may open more channels in its life than a tag has room to count.
func TestConfirmsOfAChannelAfterManyOthers(t *testing.T) {
	b := amqptest.New()
	c := opened(t, b)
	for _, before := range []uint64{0, 1<<32 - 2, 1<<32 - 1, 5 << 32} {
		c.opened = before
		in := wire.AppendMethod(nil, 7, &wire.ChannelOpen{})
		in = wire.AppendMethod(in, 7, &wire.ConfirmSelect{Nowait: true})
		in = wire.AppendMethod(in, 7, &wire.BasicPublish{RoutingKey: "nowhere"})
		in = wire.AppendContentHeader(in, 7, wire.Content{Properties: []byte{0, 0}})
		c.Feed(in, c.now)
		c.Flush(c.now)
		var o Output
		c.Take(&o)
		want := appendAck(wire.AppendMethod(nil, 7, &wire.ChannelOpenOk{}), 7, 1, false)
		if !bytes.Equal(o.Bytes, want) {
			t.Errorf("after %d channels: %x, want %x", before, o.Bytes, want)
		}
		c.Feed(wire.AppendMethod(nil, 7, &wire.ChannelClose{}), c.now)
		c.Take(&o)
	}
}

// A publish may turn out to end its channel after it was taken, and by then the channel's number may be another's.
func TestAPublishThatEndsItsChannelLater(t *testing.T) {
	b := amqptest.New()
	c := opened(t, b)
	c.Feed(wire.AppendMethod(nil, 7, &wire.ChannelOpen{}), c.now)
	tag := broker.Tag{Channel: 7, Opened: c.channels[7].opened}
	c.Feed(wire.AppendMethod(nil, 7, &wire.ChannelClose{}), c.now)
	c.Feed(wire.AppendMethod(nil, 7, &wire.ChannelOpen{}), c.now)
	var o Output
	c.Take(&o)
	none := broker.Errorf(broker.NotFound, "no exchange 'none' in vhost '/'")
	c.Rejected(tag, none)
	if c.Pending() != 0 {
		t.Fatal("the channel of before has ended the present one")
	}
	tag.Opened = c.channels[7].opened
	c.Rejected(tag, none)
	c.Take(&o)
	want := wire.AppendMethod(nil, 7, &wire.ChannelClose{
		ReplyCode: wire.NotFound, ReplyText: "NOT_FOUND - no exchange 'none' in vhost '/'", ClassID: 60, MethodID: 40,
	})
	if !bytes.Equal(o.Bytes, want) {
		t.Errorf("the client got %x, want %x", o.Bytes, want)
	}
}

// A queue that was made for replies goes when the connection's channel is gone before the broker has answered.
func TestNoReplyQueueIsLeft(t *testing.T) {
	b := amqptest.New()
	c := opened(t, b)
	c.Feed(wire.AppendMethod(nil, 1, &wire.ChannelOpen{}), c.now)
	b.Later = true
	c.Feed(wire.AppendMethod(nil, 1, &wire.BasicConsume{Queue: pseudoQueue, NoAck: true}), c.now)
	c.channels[1].raise(0, faultf(wire.PreconditionFailed, "a delivery was overdue"))
	b.Run()
	found := false
	c.b.DeclareQueue(broker.QueueSpec{Name: "amq.gen-a", Passive: true}, func(_ broker.QueueInfo, err *broker.Error) { found = err == nil })
	b.Run()
	if len(b.Specs) != 2 || found {
		t.Errorf("%d queues were declared, the first is left: %v", len(b.Specs), found)
	}
}
