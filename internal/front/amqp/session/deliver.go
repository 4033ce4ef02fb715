package session

import (
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// consumer is one consumer of a channel.
type consumer struct {
	ch        *channel
	num       uint64
	tag       string
	queue     string
	noAck     bool
	started   func()        // answers basic.consume; nil once that was done
	cancelled bool          // basic.cancel was received
	timeout   time.Duration // a delivery must be settled within; 0: never
	owed      int           // bytes of deliveries in the output that is being gathered
}

// stashed is a delivery for a channel whose client asked for a pause.
type stashed struct {
	consumer *consumer
	d        broker.Delivery
}

// Delivered implements broker.Listener.
func (c *Conn) Delivered(num uint64, ds []broker.Delivery) {
	k := c.consumers[num]
	if k == nil { // it was cancelled while they were on their way
		for i := range ds {
			c.giveBack(num, &ds[i])
		}
		c.wake()
		return
	}
	if k.started != nil {
		k.started()
	}
	ch := k.ch
	for i := range ds {
		switch {
		case ch.gone: // a delivery could not be sent
			c.giveBack(num, &ds[i])
		case ch.paused:
			ch.stash = append(ch.stash, stashed{k, ds[i]})
		default:
			k.deliver(&ds[i])
		}
	}
	c.wake()
}

// giveBack releases a delivery that the client does not get, and its credit with it.
func (c *Conn) giveBack(consumer uint64, d *broker.Delivery) {
	c.give(d.Ref, broker.Release)
	if c.b != nil {
		c.b.Drained(consumer, len(d.Payload))
	}
}

// deliver writes one delivery.
func (k *consumer) deliver(d *broker.Delivery) {
	ch := k.ch
	c := ch.c
	e, err := broker.ViewEnvelope(d.Payload)
	if err != nil {
		ch.raise(wire.IDBasicDeliver, faultf(wire.InternalError, "a message in queue '%s' cannot be read", k.queue))
		return
	}
	ch.delivered++
	if !k.noAck {
		ch.unsettled.add(ch.delivered, d.Ref, k.timeout)
	}
	c.out = wire.AppendDeliver(c.out, ch.number, c.frameMax, k.tag, ch.delivered, d.Redelivered, e.Exchange, e.RoutingKey, content(d, e),
		e.Body)
	if k.owed == 0 {
		c.owing = append(c.owing, k)
	}
	k.owed += len(d.Payload)
	c.stats.Delivered++
}

// content says what a delivery's header adds: where in a stream it is, or how often it was returned to its queue.
func content(d *broker.Delivery, e broker.EnvelopeView) wire.Content {
	x := wire.Content{Properties: e.Properties, Size: len(e.Body)}
	switch {
	case d.Stream:
		x.Name, x.Int = "x-stream-offset", int64(d.Ref.Offset)
	case d.Count > 0:
		x.Name, x.Int = "x-delivery-count", int64(d.Count)
	}
	return x
}

// flow handles channel.flow: the client wants no deliveries for a while, or wants them again. The broker is not told: the byte credit of
// what is kept here stops it soon.
func (ch *channel) flow(active bool) {
	ch.paused = !active
	ch.c.send(ch.number, &wire.ChannelFlowOk{Active: active})
	if !active {
		return
	}
	stash := ch.stash
	ch.stash = nil
	for i := range stash {
		if ch.gone {
			ch.c.giveBack(stash[i].consumer.num, &stash[i].d)
			continue
		}
		stash[i].consumer.deliver(&stash[i].d)
	}
}

// ConsumerGone implements broker.Listener.
func (c *Conn) ConsumerGone(num uint64, _ string) {
	k := c.consumers[num]
	if k == nil {
		return
	}
	k.remove()
	if c.client.cancelNotify && !k.cancelled {
		c.send(k.ch.number, &wire.BasicCancel{ConsumerTag: k.tag, NoWait: true})
	}
	c.wake()
}

// GetsGone implements broker.Listener: the channels that fetched such messages and have not settled them end.
func (c *Conn) GetsGone(p ident.Partition, from uint64, reason string) {
	for _, ch := range slices.Clone(c.order) {
		if ch.unsettled.fetched(p, from) {
			ch.raise(0, faultf(wire.PreconditionFailed, "channel %d: %s", ch.number, reason))
		}
	}
	c.wake()
}

// remove forgets a consumer that has ended. What was delivered to it stays unsettled.
func (k *consumer) remove() {
	ch := k.ch
	delete(ch.c.consumers, k.num)
	for i, o := range ch.consumers {
		if o == k {
			ch.consumers = append(ch.consumers[:i], ch.consumers[i+1:]...)
			break
		}
	}
	kept := ch.stash[:0]
	for _, s := range ch.stash {
		if s.consumer == k {
			ch.c.giveBack(k.num, &s.d)
		} else {
			kept = append(kept, s)
		}
	}
	ch.stash = kept
	if k.queue == ch.replyTo {
		ch.endReplies()
	}
}
