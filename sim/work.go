package sim

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/stream"
)

// work does one random thing.
func (c *client) work() {
	c.pay()
	switch n := c.w.rng.IntN(100); {
	case n < 6:
		c.produce()
	case n < 40:
		c.publish()
	case n < 65:
		c.settle()
	case n < 75:
		c.attach()
	case n < 80:
		c.detach()
	case n < 86:
		c.fetch()
	case n < 90:
		c.remake()
	case n < 91:
		c.purge()
	case n < 93:
		c.count()
	case n < 94:
		c.leave()
	case c.w.builds() && n < 97:
		c.build()
	case c.w.builds() && len(c.w.roads) > 0:
		c.travel(c.w.roads[c.w.rng.IntN(len(c.w.roads))])
	}
}

// pay tells the broker that deliveries have left for the client, mostly.
func (c *client) pay() {
	for _, r := range c.readers {
		if r.undrawn > 0 && c.w.rng.IntN(4) > 0 {
			c.session.Drained(r.number, r.undrawn)
			r.undrawn = 0
		}
	}
}

// pick draws a resource that is there and passes the test; nil if there is none.
func (c *client) pick(ok func(*target) bool) *target {
	var fit []*target
	for _, t := range c.w.targets {
		if !t.gone && !t.busy && !t.damaged && ok(t) {
			fit = append(fit, t)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[c.w.rng.IntN(len(fit))]
}

func anything(*target) bool  { return true }
func isQueue(t *target) bool { return !t.stream() }

// publish publishes a few messages to one resource, or to two through an exchange.
func (c *client) publish() {
	if c.stopped || c.blocked || len(c.waiting) > 200 {
		return
	}
	t := c.pick(anything)
	if t == nil {
		return
	}
	exchange, targets := "", []*target{t}
	if c.w.rng.IntN(12) == 0 && len(c.w.fanTargets()) > 0 {
		exchange, targets = fan.Name, nil
		for _, name := range c.w.fanTargets() {
			targets = append(targets, c.w.target(name))
		}
	}
	lane := c.w.rng.IntN(len(c.lanes))
	for range 1 + c.w.rng.IntN(12) {
		c.publishOne(exchange, t.spec.Name, t, targets, lane)
		if c.stopped || c.ended {
			return
		}
	}
}

func (c *client) publishOne(exchange, key string, t *target, targets []*target, lane int) {
	rng := c.w.rng
	id := c.w.nextMessage()
	body := c.body(id)
	m := &broker.Message{
		Exchange: exchange, RoutingKey: key, Mandatory: rng.IntN(3) == 0, Body: [][]byte{body},
		Record: batch.RecordHeader{Flags: batch.FlagPersistent},
	}
	if t.delays && exchange == "" && rng.IntN(2) == 0 {
		m.Record.Delay = uint32(rng.IntN(400))
	}
	c.send(m, id, targets, lane)
}

// send publishes a message whose body names it to what it will be routed to.
func (c *client) send(m *broker.Message, id uint64, targets []*target, lane int) {
	c.seq++
	e := check.Event{Kind: check.Publish, Session: c.id, Lane: c.lanes[lane], Message: id, Digest: digest(m.Body[0])}
	expect := uint64(0)
	for _, to := range targets {
		e.Targets = append(e.Targets, to.key)
		if !to.gone && !to.maker && !to.memory {
			expect++
		}
	}
	c.w.counts.Published++
	c.w.see(e)
	c.waiting = append(c.waiting, pending{seq: c.seq, message: id, expect: expect})
	if err := c.session.Publish(broker.Tag{Channel: uint16(lane + 1), Seq: c.seq}, m); err != nil {
		c.rejected(c.seq, err)
	}
}

// body makes a body that names its message.
func (c *client) body(id uint64) []byte {
	rng := c.w.rng
	size := 8 + rng.IntN(300)
	if rng.IntN(60) == 0 {
		size = 8 + rng.IntN(c.w.largest)
	}
	body := make([]byte, size)
	for i := 0; i < len(body); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(body[i:], word[:])
	}
	binary.BigEndian.PutUint64(body, id)
	return body
}

// settle settles some of what is held.
func (c *client) settle() {
	if len(c.held) == 0 {
		return
	}
	n := 1 + c.w.rng.IntN(len(c.held))
	if c.w.rng.IntN(2) == 0 {
		n = len(c.held)
	}
	how, as := broker.Accept, check.Accept
	switch c.w.rng.IntN(10) {
	case 0, 1:
		how, as = broker.Requeue, check.Requeue
	case 2:
		how, as = broker.Reject, check.Reject
	}
	c.settleSome(n, how, as)
}

// settleSome settles the first n deliveries that are held.
func (c *client) settleSome(n int, how broker.Settlement, as check.Settlement) {
	refs := make([]broker.Ref, 0, n)
	for _, d := range c.held[:n] {
		refs = append(refs, d.ref)
		if d.r.t.stream() {
			if d.r.cursor != "" {
				c.w.see(check.Event{Kind: check.CursorSent, Resource: d.r.key, Cursor: d.r.cursor, Offset: d.ref.Offset + 1})
			}
			continue
		}
		switch as {
		case check.Requeue:
			c.w.counts.Requeued++
		case check.Reject:
			c.w.counts.Rejected++
		}
		if as != check.Requeue {
			c.handIn(d, as)
		}
		c.w.see(check.Event{Kind: check.Settle, Resource: d.r.key, Session: c.id, Message: d.message, Settlement: as})
	}
	c.held = slices.Delete(c.held, 0, n)
	c.session.Settle(refs, how)
}

// attach begins to consume a resource.
func (c *client) attach() {
	if len(c.readers) >= 6 {
		return
	}
	t := c.pick(anything)
	if t == nil {
		return
	}
	rng := c.w.rng
	spec := broker.ConsumeSpec{Queue: t.spec.Name, Prefetch: uint32(rng.IntN(40)), Priority: int32(rng.IntN(3))}
	start := uint64(0)
	e := check.Event{Kind: check.Attached}
	if t.stream() {
		switch rng.IntN(4) {
		case 0:
			spec.Start = stream.Start{Kind: stream.StartFirst}
			e.HasOffset = true
		case 1:
			start = c.w.seenOffset(t, rng)
			spec.Start = stream.Start{Kind: stream.StartOffset, Offset: start}
			e.HasOffset, e.Offset = true, start
		case 2:
			spec.Start = stream.Start{Kind: stream.StartFirst}
			spec.Cursor = fmt.Sprintf("cursor-%d", rng.IntN(3))
			if !c.w.take(t, spec.Cursor) {
				return
			}
			e.Cursor, e.HasOffset = spec.Cursor, true
		default:
			spec.Start = stream.Start{Kind: stream.StartNext}
		}
	} else if t.lossy && rng.IntN(3) == 0 {
		spec.NoAck = true
	}
	c.consume(t, spec, e)
}

func (c *client) consume(t *target, spec broker.ConsumeSpec, e check.Event) {
	c.consumers++
	r := &reader{id: c.w.number(), number: c.consumers, t: t, key: t.key, noAck: spec.NoAck, cursor: spec.Cursor}
	spec.Consumer = r.number
	e.Resource, e.Session, e.Reader = r.key, c.id, r.id
	c.w.see(e)
	c.readers = append(c.readers, r)
	id := c.id
	c.session.Consume(spec, func(err *broker.Error) {
		if c.id == id && err != nil {
			r.gone = true
			c.w.release(r)
		}
	})
}

// detach ends a consumer; what it holds stays held.
func (c *client) detach() {
	if len(c.readers) == 0 {
		return
	}
	i := c.w.rng.IntN(len(c.readers))
	r := c.readers[i]
	if r.gone {
		c.w.release(r)
		c.readers = slices.Delete(c.readers, i, i+1)
		return
	}
	if c.asking > 0 {
		return
	}
	id := c.id
	c.asking++
	c.session.Cancel(r.number, func() {
		if c.id != id {
			return
		}
		c.asking--
		c.w.release(r)
		c.readers = slices.DeleteFunc(c.readers, func(o *reader) bool { return o == r })
	})
}

// fetch gets one message.
func (c *client) fetch() {
	t := c.pick(isQueue)
	if t == nil || c.asking > 0 {
		return
	}
	r := &reader{id: c.w.number(), t: t, key: t.key}
	c.w.see(check.Event{Kind: check.Attached, Resource: r.key, Session: c.id, Reader: r.id})
	id := c.id
	c.asking++
	c.session.Get(t.spec.Name, false, func(d broker.Delivery, ok bool, err *broker.Error) {
		if c.id != id || c.ended {
			return
		}
		c.asking--
		if err == nil && ok {
			c.delivered(r, d)
		}
	})
}
