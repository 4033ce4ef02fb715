package session_test

import (
	"testing"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// nothing is a broker that does nothing, so that a benchmark measures the session alone.
type nothing struct {
	l    broker.Listener
	tags []broker.Tag
}

func (n *nothing) Open(_ broker.Peer, l broker.Listener) broker.Session { n.l = l; return n }

func (n *nothing) Authenticate(_, _ string, done func(*broker.Error)) { done(nil) }

func (n *nothing) Login(_, _, _ string, done func(*broker.Error)) { done(nil) }

func (n *nothing) SetSecret(_ string, done func(*broker.Error)) { done(nil) }

func (n *nothing) DeclareExchange(_ catalog.Exchange, _ bool, done func(*broker.Error)) { done(nil) }

func (n *nothing) DeleteExchange(_ string, _ bool, done func(*broker.Error)) { done(nil) }

func (n *nothing) Bind(_ catalog.Binding, done func(*broker.Error)) { done(nil) }

func (n *nothing) Unbind(_ catalog.Binding, done func(*broker.Error)) { done(nil) }

func (n *nothing) DeleteQueue(_ string, _, _ bool, done func(uint32, *broker.Error)) { done(0, nil) }

func (n *nothing) PurgeQueue(_ string, done func(uint32, *broker.Error)) { done(0, nil) }

func (n *nothing) Get(_ string, _ bool, done func(broker.Delivery, bool, *broker.Error)) {
	done(broker.Delivery{}, false, nil)
}
func (n *nothing) Consume(_ broker.ConsumeSpec, done func(*broker.Error)) { done(nil) }
func (n *nothing) Cancel(_ uint64, done func())                           { done() }
func (n *nothing) Settle([]broker.Ref, broker.Settlement)                 {}
func (n *nothing) Drained(uint64, int)                                    {}
func (n *nothing) ConsumerTimeout(string) int64                           { return 0 }
func (n *nothing) Close()                                                 {}
func (n *nothing) DeclareQueue(_ broker.QueueSpec, done func(broker.QueueInfo, *broker.Error)) {
	done(broker.QueueInfo{}, nil)
}

func (n *nothing) Publish(tag broker.Tag, _ *broker.Message) *broker.Error {
	n.tags = append(n.tags, tag)
	return nil
}

func opened(b *testing.B, n *nothing) *session.Conn {
	c := session.New(session.Config{
		Broker: n, Limits: session.Limits{Channels: 10, FrameMax: 128 << 10, MessageMax: 16 << 20},
	}, session.Instant{})
	in := []byte(wire.ProtocolHeader)
	for _, m := range []wire.Method{
		&wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"}, &wire.ConnectionTuneOk{},
		&wire.ConnectionOpen{VirtualHost: "/"},
	} {
		in = wire.AppendMethod(in, 0, m)
	}
	in = wire.AppendMethod(in, 1, &wire.ChannelOpen{})
	in = wire.AppendMethod(in, 1, &wire.ConfirmSelect{})
	c.Feed(in, session.Instant{})
	if !c.Open() {
		b.Fatal("not open")
	}
	return c
}

// BenchmarkPublish decodes and steps confirmed publishes of 1 KiB, in inputs of 64 KiB, and writes their confirms.
func BenchmarkPublish(b *testing.B) {
	n := &nothing{}
	c := opened(b, n)
	p := wire.Properties{
		Flags: wire.HasContentType | wire.HasDeliveryMode | wire.HasHeaders, ContentType: "text/plain", DeliveryMode: 2,
		Headers: wire.Table{{Name: "trace", Value: wire.String("0123456789")}},
	}
	properties := p.Append(nil)
	var all []byte
	const messages = 1024
	for range messages {
		all = wire.AppendMethod(all, 1, &wire.BasicPublish{RoutingKey: "orders"})
		all = wire.AppendContentHeader(all, 1, wire.Content{Properties: properties, Size: 1024})
		all = wire.AppendBody(all, 1, 128<<10, make([]byte, 1024))
	}
	var out session.Output
	b.SetBytes(1024)
	b.ReportAllocs()
	for i := 0; i < b.N; i += messages {
		for rest := all; len(rest) > 0; {
			k := min(len(rest), 64<<10)
			c.Feed(rest[:k], session.Instant{})
			rest = rest[k:]
			n.l.Resolved(n.tags, broker.Confirmed, "")
			n.tags = n.tags[:0]
			c.Flush(session.Instant{})
			c.Take(&out)
		}
	}
	b.ReportMetric(1, "msg/op")
}

// BenchmarkDeliver writes deliveries of 1 KiB and takes an ack for each.
func BenchmarkDeliver(b *testing.B) {
	n := &nothing{}
	c := opened(b, n)
	c.Feed(wire.AppendMethod(nil, 1, &wire.BasicConsume{Queue: "orders", ConsumerTag: "ctag"}), session.Instant{})
	p := wire.Properties{Flags: wire.HasContentType | wire.HasDeliveryMode, ContentType: "text/plain", DeliveryMode: 2}
	payload := append(broker.AppendEnvelopeHead(nil, "exchange", "orders", p.Append(nil)), make([]byte, 1024)...)
	const messages = 64
	ds := make([]broker.Delivery, messages)
	var out session.Output
	var acks []byte
	var ack wire.BasicAck
	tag, offset := uint64(0), uint64(0)
	b.SetBytes(1024)
	b.ReportAllocs()
	for i := 0; i < b.N; i += messages {
		acks = acks[:0]
		for j := range ds {
			ds[j] = broker.Delivery{Ref: broker.Ref{Partition: ident.Partition{Incarnation: 1}, Consumer: 1, Offset: offset}, Payload: payload}
			offset++
			tag++
			ack.DeliveryTag = tag
			acks = wire.AppendMethod(acks, 1, &ack)
		}
		n.l.Delivered(1, ds)
		c.Flush(session.Instant{})
		c.Take(&out)
		c.Written(&out)
		if c.Feed(acks, session.Instant{}); c.Closing() {
			b.Fatal("closed")
		}
	}
	b.ReportMetric(1, "msg/op")
}
