package session

import (
	"slices"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

type fate uint8

const (
	waiting fate = iota
	good
	bad
	goodTold
	badTold
)

// confirms keeps how a channel's publishes ended until the client was told. Tags are dense, so that a slice of bytes is enough.
type confirms struct {
	on    bool
	next  uint64   // publishes so far: the last tag
	low   uint64   // the client was told of every tag up to here
	fates []fate   // of the tags after low; those before head are done with
	head  int      // fates[head] is low+1
	fresh []uint64 // tags that were resolved and not told
}

// take gives the next publish its tag.
func (x *confirms) take() uint64 {
	x.next++
	x.fates = append(x.fates, waiting)
	return x.next
}

func (x *confirms) resolve(tag uint64, f fate) bool {
	if tag <= x.low || tag > x.next {
		return false
	}
	p := &x.fates[x.head+int(tag-x.low-1)]
	if *p != waiting {
		return false
	}
	*p = f
	x.fresh = append(x.fresh, tag)
	return true
}

// flush tells the client. Where everything up to a tag was resolved, one ack with multiple says so; but it never spans a nack, since
// clients take such an ack for the tags below it that they have not yet handled in order.
func (x *confirms) flush(out []byte, channel uint16) []byte {
	if len(x.fresh) == 0 {
		return out
	}
	from := x.head
	acks := 0 // good ones that were not told, since from
	ack := func(end int) {
		if acks > 0 {
			out = appendAck(out, channel, x.low+uint64(end-x.head), end-from > 1)
		}
		acks = 0
	}
	at := x.head
	for ; at < len(x.fates) && x.fates[at] != waiting; at++ {
		switch x.fates[at] {
		case good:
			acks++
		case bad:
			ack(at)
			out = appendNack(out, channel, x.low+uint64(at-x.head)+1)
			from = at + 1
		case badTold:
			ack(at)
			from = at + 1
		}
	}
	ack(at)
	x.low += uint64(at - x.head)
	x.head = at
	if x.head == len(x.fates) {
		x.fates, x.head = x.fates[:0], 0
	} else if x.head > 1024 && x.head > len(x.fates)/2 {
		x.fates = slices.Delete(x.fates, 0, x.head)
		x.head = 0
	}
	return x.stragglers(out, channel)
}

// stragglers tells of the tags that were resolved while one below them was not.
func (x *confirms) stragglers(out []byte, channel uint16) []byte {
	for _, tag := range x.fresh {
		if tag <= x.low {
			continue
		}
		p := &x.fates[x.head+int(tag-x.low-1)]
		switch *p {
		case good:
			*p = goodTold
			out = appendAck(out, channel, tag, false)
		case bad:
			*p = badTold
			out = appendNack(out, channel, tag)
		}
	}
	x.fresh = x.fresh[:0]
	return out
}

func appendAck(out []byte, channel uint16, tag uint64, multiple bool) []byte {
	m := wire.BasicAck{DeliveryTag: tag, Multiple: multiple}
	return wire.AppendMethod(out, channel, &m)
}

func appendNack(out []byte, channel uint16, tag uint64) []byte {
	m := wire.BasicNack{DeliveryTag: tag}
	return wire.AppendMethod(out, channel, &m)
}

// Resolved implements broker.Listener.
func (c *Conn) Resolved(tags []broker.Tag, o broker.Outcome, _ string) {
	f := bad
	switch o {
	case broker.Confirmed:
		f = good
		c.stats.Confirmed += uint64(len(tags))
	case broker.Refused:
		c.stats.Refused += uint64(len(tags))
	default:
		c.stats.Unknown += uint64(len(tags))
	}
	for _, t := range tags {
		if t.Seq == 0 {
			continue
		}
		if ch := c.tagged(t); ch != nil && ch.confirms.resolve(t.Seq, f) && !ch.dirty {
			ch.dirty = true
			c.dirty = append(c.dirty, ch)
		}
	}
	c.wake()
}

// tagged is the channel of a publish; nil where it is gone.
func (c *Conn) tagged(t broker.Tag) *channel {
	ch := c.channel(t.Channel)
	if ch == nil || ch.gone || ch.opened != t.Opened {
		return nil
	}
	return ch
}

// Rejected implements broker.Listener.
func (c *Conn) Rejected(tag broker.Tag, err *broker.Error) {
	if ch := c.tagged(tag); ch != nil {
		ch.raise(wire.IDBasicPublish, faultOf(err))
		c.wake()
	}
}

// Returned implements broker.Listener.
func (c *Conn) Returned(tag broker.Tag, m *broker.Message, _ string) {
	ch := c.tagged(tag)
	if ch == nil {
		return
	}
	c.stats.Returned++
	c.send(ch.number, &wire.BasicReturn{
		ReplyCode: wire.NoRoute, ReplyText: codeNames[wire.NoRoute], Exchange: m.Exchange, RoutingKey: m.RoutingKey,
	})
	size := 0
	for _, p := range m.Body {
		size += len(p)
	}
	c.out = wire.AppendContentHeader(c.out, ch.number, wire.Content{Properties: m.Properties, Size: size})
	for _, p := range m.Body {
		c.out = wire.AppendBody(c.out, ch.number, c.frameMax, p)
	}
	c.wake()
}

// Flow implements broker.Listener.
func (c *Conn) Flow(stop bool) {
	c.hold = stop
	c.wake()
}

// Blocked implements broker.Listener.
func (c *Conn) Blocked(reason string) {
	c.blocked = reason
	if c.published || c.told {
		c.tellBlocked()
	}
	c.wake()
}

// tellBlocked tells a client that publishes and that knows the words.
func (c *Conn) tellBlocked() {
	if c.state != running || !c.client.blockedNotify || c.told == (c.blocked != "") {
		return
	}
	if c.told = c.blocked != ""; c.told {
		c.send(0, &wire.ConnectionBlocked{Reason: c.blocked})
	} else {
		c.send(0, &wire.ConnectionUnblocked{})
	}
}

// Close implements broker.Listener: the broker asks for the end of the connection.
func (c *Conn) Close(err *broker.Error) {
	if c.state == awaitHeader { // nobody has spoken yet
		c.end()
		c.state = closed
		c.wake()
		return
	}
	f := faultOf(err)
	if err.Code == broker.Unavailable || f.soft() {
		f.code = wire.ConnectionForced
	}
	c.fail(0, f)
}
