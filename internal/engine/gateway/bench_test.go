package gateway

import (
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// bench is a shard whose rounds the benchmark makes itself, with an owner that only keeps what it needs to answer.
type bench struct {
	sh      *Shard
	box     inbox
	state   *catalog.State
	index   uint64
	attach  protocol.Attach
	sub     protocol.Subscribe
	l       counting
	session broker.Session
}

// inbox is a loop of one actor whose messages wait until they are run.
type inbox struct {
	actor exec.Actor
	msgs  []any
}

func (b *inbox) Spawn(_ string, a exec.Actor) exec.Mailbox { b.actor = a; return (*inboxMailbox)(b) }

func (b *inbox) run() {
	for len(b.msgs) > 0 {
		ms := b.msgs
		b.msgs = nil
		for _, m := range ms {
			b.actor.Receive(m)
		}
		b.actor.Flush()
	}
}

type counting struct {
	broker.Listener
	resolved, delivered int
	refs                []broker.Ref
}

func (c *counting) Resolved(tags []broker.Tag, _ broker.Outcome, _ string) { c.resolved += len(tags) }

func (c *counting) Delivered(_ uint64, ds []broker.Delivery) {
	c.delivered += len(ds)
	c.refs = c.refs[:0]
	for i := range ds {
		c.refs = append(c.refs, ds[i].Ref)
	}
}

func (b *bench) Sender(ident.Partition) protocol.Sender { return b }
func (b *bench) Reader(ident.Partition) protocol.Sender { return nil }

func (b *bench) Propose(cmd []byte, done func(catalog.Result, error)) {
	b.index++
	res, changes, err := b.state.Apply(b.index, cmd)
	if err == nil {
		b.sh.Apply(changes)
	}
	done(res, err)
}

func (b *bench) Send(msg any) {
	switch m := msg.(type) {
	case protocol.Attach:
		b.attach = m
		b.sh.Send(protocol.Attached{Partition: m.Partition, Stream: m.Stream, Expect: 1})
	case protocol.Publish:
		b.sh.Send(protocol.Published{Partition: m.Partition, Stream: m.Stream, UpTo: m.First + uint64(m.Count)})
	case protocol.Subscribe:
		b.sub = m
		b.sh.Send(protocol.Subscribed{Partition: m.Partition, Stream: m.Stream, Consumer: m.Consumer})
	case protocol.Stats:
		b.sh.Send(protocol.Counted{Partition: m.Partition, Stream: m.Stream, Request: m.Request})
	case protocol.Settle:
		b.sh.Send(protocol.Settled{Partition: m.Partition, Stream: m.Stream, Seq: m.Seq})
	}
}

func newBench(b *testing.B) *bench {
	x := &bench{state: catalog.New()}
	x.sh = New(Env{
		Loop: &x.box, Shards: 1, Local: local, Number: 1, Clock: clock.System(), Trace: trace.Discard, Directory: x, Passwords: plain{},
		Proposer: x, Node: NewNode(nil),
	})
	cmd, err := catalog.Encode(
		catalog.RegisterBoot(catalog.Node{Name: "n1", Store: local.Store, Boot: 1}),
		catalog.CreateVHost("/"), catalog.PutUser(catalog.User{Name: "guest", Hash: "guest"}),
		catalog.PutPermission(catalog.Permission{User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}),
	)
	if err != nil {
		b.Fatal(err)
	}
	x.Propose(cmd, func(catalog.Result, error) {})
	x.box.run()
	x.session = x.sh.Open(broker.Peer{Loopback: true}, &x.l)
	x.session.Login("guest", "guest", "/", func(e *broker.Error) {
		if e != nil {
			b.Fatal(e)
		}
	})
	x.box.run()
	x.session.DeclareQueue(durable("q"), func(_ broker.QueueInfo, e *broker.Error) {
		if e != nil {
			b.Fatal(e)
		}
	})
	x.box.actor.Flush()
	x.box.run()
	return x
}

// BenchmarkPublish is one message from Session.Publish to Listener.Resolved, 1 KiB each, 100 a round.
func BenchmarkPublish(b *testing.B) {
	x := newBench(b)
	body := make([]byte, 1024)
	m := &broker.Message{RoutingKey: "q", Properties: make([]byte, 16), Body: [][]byte{body}}
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if e := x.session.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, m); e != nil {
			b.Fatal(e)
		}
		if i%100 == 99 || i == b.N-1 {
			x.box.actor.Flush()
			x.box.run()
		}
	}
	if x.l.resolved != b.N {
		b.Fatalf("%d of %d resolved", x.l.resolved, b.N)
	}
}

// BenchmarkPublishManyQueues is BenchmarkPublish with each message to the next of 1 000 queues.
func BenchmarkPublishManyQueues(b *testing.B) {
	x := newBench(b)
	ms := make([]*broker.Message, 1000)
	for i := range ms {
		name := fmt.Sprintf("q-%d", i)
		x.session.DeclareQueue(durable(name), func(_ broker.QueueInfo, e *broker.Error) {
			if e != nil {
				b.Fatal(e)
			}
		})
		x.box.actor.Flush()
		x.box.run()
		ms[i] = &broker.Message{RoutingKey: name, Properties: make([]byte, 16), Body: [][]byte{make([]byte, 1024)}}
		ms[i].Record.KeyHash = crc32.ChecksumIEEE([]byte(name))
	}
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		if e := x.session.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, ms[i%len(ms)]); e != nil {
			b.Fatal(e)
		}
		if i%100 == 99 || i == b.N-1 {
			x.box.actor.Flush()
			x.box.run()
		}
	}
	if x.l.resolved != b.N {
		b.Fatalf("%d of %d resolved", x.l.resolved, b.N)
	}
}

// BenchmarkDeliver is one message from the owner's Deliver to its Settle being confirmed, 100 a round.
func BenchmarkDeliver(b *testing.B) {
	x := newBench(b)
	x.session.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, func(e *broker.Error) {
		if e != nil {
			b.Fatal(e)
		}
	})
	x.box.actor.Flush()
	x.box.run()
	body := item(0, string(make([]byte, 1024))).Body
	b.ReportAllocs()
	b.ResetTimer()
	items := make([]protocol.Item, 100)
	for i := 0; i < b.N; i += len(items) {
		for j := range items {
			items[j] = protocol.Item{Offset: uint64(i + j), Body: body}
		}
		x.sh.Send(protocol.Deliver{Partition: x.attach.Partition, Stream: x.attach.Stream, Consumer: x.sub.Consumer, Items: items})
		x.box.run()
		x.session.Drained(1, len(items)*len(body))
		x.session.Settle(x.l.refs, broker.Accept)
		x.box.actor.Flush()
		x.box.run()
	}
	if x.l.delivered < b.N || x.sh.stats.Settled < uint64(b.N) {
		b.Fatalf("%d delivered, %d settled of %d", x.l.delivered, x.sh.stats.Settled, b.N)
	}
}

type inboxMailbox inbox

func (m *inboxMailbox) Post(msg any) { m.msgs = append(m.msgs, msg) }
func (m *inboxMailbox) After(time.Duration, any) (cancel func() bool) {
	return func() bool { return true }
}
func (m *inboxMailbox) Touch()          {}
func (m *inboxMailbox) Loop() exec.Loop { return (*inbox)(m) }
