package session

import (
	"fmt"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// basicMethod handles the methods of class basic but for those that method handles itself.
func (ch *channel) basicMethod(m wire.Method) *fault {
	switch m := m.(type) {
	case *wire.BasicNack:
		return ch.settle(m.DeliveryTag, m.Multiple, refusal(m.Requeue))
	case *wire.BasicReject:
		return ch.settle(m.DeliveryTag, false, refusal(m.Requeue))
	case *wire.BasicQos:
		return ch.qos(m)
	case *wire.BasicConsume:
		return ch.consume(m)
	case *wire.BasicCancel:
		ch.cancel(m)
		return nil
	case *wire.BasicCancelOk:
		return nil
	case *wire.BasicGet:
		return ch.get(m)
	case *wire.BasicRecover:
		if f := ch.recover(m.Requeue); f != nil {
			return f
		}
		ch.c.send(ch.number, &wire.BasicRecoverOk{})
		return nil
	case *wire.BasicRecoverAsync:
		return ch.recover(m.Requeue)
	}
	return unexpected(m.ID())
}

func refusal(requeue bool) broker.Settlement {
	if requeue {
		return broker.Requeue
	}
	return broker.Reject
}

func (ch *channel) recover(requeue bool) *fault {
	if !requeue {
		return faultf(wire.NotImplemented, "basic.recover with requeue=false is not implemented; use requeue=true")
	}
	ch.unsettled.upTo(ch.delivered, func(ref broker.Ref) { ch.c.give(ref, broker.Requeue) })
	ch.c.settleNow()
	return nil
}

// qos sets the prefetch of the consumers that are started later on the channel.
func (ch *channel) qos(m *wire.BasicQos) *fault {
	if m.PrefetchSize != 0 {
		return faultf(wire.NotImplemented, "prefetch_size!=0 (%d) is not implemented; use prefetch_count", m.PrefetchSize)
	}
	if m.Global && m.PrefetchCount != 0 {
		return faultf(wire.NotImplemented,
			"global prefetch is not available on replicated queues; use global=false, which limits each consumer")
	}
	ch.prefetch = uint32(m.PrefetchCount)
	ch.c.send(ch.number, &wire.BasicQosOk{})
	return nil
}

// consume starts a consumer.
func (ch *channel) consume(m *wire.BasicConsume) *fault {
	c := ch.c
	name, f := ch.queueName(m.Queue)
	if f != nil {
		return f
	}
	if m.ConsumerTag == "" {
		m.ConsumerTag = fmt.Sprintf("amq.ctag-%x.%x", c.cfg.ID, c.numbered+1)
	}
	for _, k := range ch.consumers {
		if k.tag == m.ConsumerTag {
			return faultf(wire.NotAllowed, "attempt to reuse consumer tag '%s'", m.ConsumerTag)
		}
	}
	if name == pseudoQueue {
		return ch.consumeReplies(m)
	}
	spec := broker.ConsumeSpec{
		Queue: name, Label: m.ConsumerTag, NoAck: m.NoAck, Exclusive: m.Exclusive, Prefetch: ch.prefetch,
	}
	if f := consumeArguments(&spec, m.Arguments, c.now.Wall); f != nil {
		return f
	}
	ch.start(m, spec)
	return nil
}

func (ch *channel) start(m *wire.BasicConsume, spec broker.ConsumeSpec) {
	c := ch.c
	c.numbered++
	spec.Consumer = c.numbered
	k := &consumer{ch: ch, num: c.numbered, tag: m.ConsumerTag, queue: spec.Queue, noAck: m.NoAck}
	// The answer comes before the first delivery, whichever the broker says first. By then the queue is known here, wherever it was declared.
	k.started = func() {
		k.started = nil
		if !k.noAck {
			k.timeout = ch.timed(k.queue)
		}
		ch.reply(m.NoWait, &wire.BasicConsumeOk{ConsumerTag: k.tag})
	}
	c.consumers[k.num] = k
	ch.consumers = append(ch.consumers, k)
	done := ch.await(m.ID())
	c.b.Consume(spec, func(err *broker.Error) {
		if err != nil && !ch.gone {
			k.cancelled = true // there is nothing to cancel
			k.remove()
		}
		if done(err) && k.started != nil {
			k.started()
		}
	})
}

// timed is how long a delivery of a queue may stay unsettled.
func (ch *channel) timed(queue string) time.Duration {
	t := time.Duration(ch.c.b.ConsumerTimeout(queue)) * time.Millisecond
	if t > 0 && (ch.timeout == 0 || t < ch.timeout) {
		ch.timeout = t
		if ch.c.timeout == 0 || t < ch.c.timeout {
			ch.c.timeout = t
		}
	}
	return t
}

// cancel ends a consumer. What it was given stays to be settled.
func (ch *channel) cancel(m *wire.BasicCancel) {
	ok := &wire.BasicCancelOk{ConsumerTag: m.ConsumerTag}
	for _, k := range ch.consumers {
		if k.tag != m.ConsumerTag {
			continue
		}
		k.cancelled = true
		done := ch.await(m.ID())
		ch.c.b.Cancel(k.num, func() {
			if done(nil) {
				k.remove()
				ch.reply(m.NoWait, ok)
			}
		})
		return
	}
	ch.reply(m.NoWait, ok) // it is not there: that is what was asked for
}

// get fetches one message.
func (ch *channel) get(m *wire.BasicGet) *fault {
	c := ch.c
	name, f := ch.queueName(m.Queue)
	if f != nil {
		return f
	}
	done := ch.await(m.ID())
	c.getting++
	c.b.Get(name, m.NoAck, func(d broker.Delivery, ok bool, err *broker.Error) {
		c.getting--
		c.wake()
		if !done(err) {
			if ok && c.b != nil {
				c.give(d.Ref, broker.Release)
			}
			return
		}
		if !ok {
			c.send(ch.number, &wire.BasicGetEmpty{})
			return
		}
		ch.got(m, name, &d)
	})
	return nil
}

func (ch *channel) got(m *wire.BasicGet, queue string, d *broker.Delivery) {
	c := ch.c
	e, err := broker.DecodeEnvelope(d.Payload)
	if err != nil {
		ch.raise(m.ID(), faultf(wire.InternalError, "a message in queue '%s' cannot be read", queue))
		return
	}
	ch.delivered++
	if !m.NoAck {
		ch.unsettled.add(ch.delivered, d.Ref, ch.timed(queue))
	}
	c.send(ch.number, &wire.BasicGetOk{
		DeliveryTag: ch.delivered, Redelivered: d.Redelivered, Exchange: e.Exchange, RoutingKey: e.RoutingKey, MessageCount: d.Left,
	})
	header := content(d, broker.EnvelopeView{Properties: e.Properties, Body: e.Body})
	header.FrameMax = c.frameMax
	c.out = wire.AppendContentHeader(c.out, ch.number, header)
	c.out = wire.AppendBody(c.out, ch.number, c.frameMax, e.Body)
	c.stats.Delivered++
}
