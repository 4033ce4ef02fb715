package gateway

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/offsets"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// holder is whoever holds deliveries of one partition unsettled: a consumer, or a session that fetched them one at a time.
type holder struct {
	a       *attachment
	session *session
	id      uint64 // the gateway's number; 0 for fetched ones
	held    offsets.Set
	listed  bool
}

func (h *holder) hold(off uint64) {
	h.held.Add(off)
	if !h.listed {
		h.listed = true
		h.a.holders = append(h.a.holders, h)
	}
}

// dropped forgets what is held: the partition is gone.
func (h *holder) dropped() { h.held = offsets.Set{} }

// release gives back everything that is held.
func (h *holder) release() {
	if h.held.Len() == 0 {
		return
	}
	h.held.Each(func(off uint64) { h.a.settles.add(h.id, off, protocol.Release) })
	h.a.sh.stats.Released += uint64(h.held.Len())
	h.held = offsets.Set{}
	h.a.touch()
}

// consumer is one consumer of a session on one partition.
type consumer struct {
	holder
	num   uint64 // the front's
	spec  broker.ConsumeSpec
	state consumerState
	// started answers Consume, stopped Cancel; asked is when Consume was called.
	started func(*broker.Error)
	asked   time.Duration
	stopped func()
	failed  bool // started was told so: nothing is handed over

	window   int64 // byte credit
	owed     int64 // handed to the session in full and not paid back to the owner yet
	undrain  int64 // handed to the session and not drained yet
	reader   *reader
	prefetch uint32
	// delivered is the epoch in which the last delivery of a queue came; 0: none has.
	delivered uint64
	revoked   bool // its credit was taken back, as its session has too much
	pumping   bool // on the shard's list for the next Flush
}

type consumerState uint8

const (
	subscribing consumerState = iota
	running
	cancelling
	ended
)

// subscribe asks the owner for deliveries on the present stream.
func (c *consumer) subscribe() {
	a := c.a
	m := protocol.Subscribe{
		To: a.address(), Consumer: c.id, NoAck: c.spec.NoAck, Exclusive: c.spec.Exclusive, Priority: c.spec.Priority,
		Prefetch: c.spec.Prefetch, Session: c.session.name, Start: c.spec.Start, Cursor: c.spec.Cursor,
	}
	m.Credit = max(c.window-c.undrain, 1)
	if c.reader != nil {
		c.subscribeReader(&m)
	}
	if c.reader == nil || c.reader.near == nil {
		c.owed = 0
		m.Credit = c.initial(m.Credit)
	}
	a.to.Send(m)
}

func (a *attachment) consumer(id uint64) (int, *consumer) {
	for i, c := range a.consumers {
		if c.id == id {
			return i, c
		}
	}
	return -1, nil
}

func (a *attachment) subscribed(m protocol.Subscribed) {
	i, c := a.consumer(m.Consumer)
	if c == nil {
		return
	}
	if m.Refused != "" {
		a.consumers = append(a.consumers[:i], a.consumers[i+1:]...)
		c.refusedBy(m.Refused)
		return
	}
	if c.reader != nil && !c.reader.known {
		c.reader.next, c.reader.known = m.Next, true
	}
	if c.state == subscribing {
		c.state = running
		if done := c.started; done != nil {
			c.started = nil
			done(nil)
		}
	}
	if c.reader != nil && c.reader.hoping && c.state == running {
		c.readNear()
	}
}

// refusedBy ends a consumer that the owner does not take.
func (c *consumer) refusedBy(reason string) {
	c.leaveNear()
	was := c.state
	c.state = ended
	switch was {
	case subscribing:
		c.session.forget(c)
		if done := c.started; done != nil {
			c.started = nil
			done(refusal(c.spec.Queue, c.session.vhost, reason))
		}
	case cancelling:
		c.finishCancel()
	default:
		c.session.consumerGone(c, reason)
	}
}

func refusal(queue, vhost, reason string) *broker.Error {
	if reason == "exclusive" {
		return broker.Errorf(broker.AccessRefused, "queue '%s' in vhost '%s' in exclusive use", queue, vhost)
	}
	return broker.Errorf(broker.Precondition, "queue '%s' in vhost '%s': %s", queue, vhost, reason)
}

func (a *attachment) unsubscribed(m protocol.Unsubscribed) {
	i, c := a.consumer(m.Consumer)
	if c == nil || c.state != cancelling {
		return
	}
	a.consumers = append(a.consumers[:i], a.consumers[i+1:]...)
	c.finishCancel()
}

func cancelledEarly(queue string) *broker.Error {
	return broker.Errorf(broker.Precondition, "consumer on queue '%s' was cancelled before it began", queue)
}

// cancel ends the consumer; what it holds stays held.
func (c *consumer) cancel(done func()) {
	a := c.a
	if c.state == ended || a.gone {
		done()
		return
	}
	starting := c.started
	c.started = nil
	c.state, c.stopped = cancelling, done
	c.leaveNear()
	if starting != nil {
		c.failed = true
		starting(cancelledEarly(c.spec.Queue))
	}
	if a.state == open {
		a.to.Send(protocol.Unsubscribe{To: a.address(), Consumer: c.id})
		return
	}
	i, _ := a.consumer(c.id)
	a.consumers = append(a.consumers[:i], a.consumers[i+1:]...)
	c.finishCancel()
}

func (c *consumer) finishCancel() {
	c.state = ended
	c.leaveNear()
	c.reader.drop()
	c.a.touch()
	if done := c.stopped; done != nil {
		c.stopped = nil
		done()
	}
}

func (a *attachment) consumerEnded(m protocol.ConsumerEnded) {
	i, c := a.consumer(m.Consumer)
	if c == nil {
		return
	}
	a.consumers = append(a.consumers[:i], a.consumers[i+1:]...)
	c.ended(m.Reason)
}

// ended is called when the broker ended the consumer.
func (c *consumer) ended(reason string) {
	was := c.state
	c.state = ended
	c.leaveNear()
	c.reader.drop()
	switch {
	case was == cancelling:
		c.finishCancel()
	case was == subscribing && c.started != nil:
		done := c.started
		c.started = nil
		c.session.forget(c)
		done(broker.Errorf(broker.NotFound, "queue '%s' in vhost '%s': %s", c.spec.Queue, c.session.vhost, reason))
	default:
		c.session.consumerGone(c, reason)
	}
}

// deliver hands messages of a queue to their consumer. Those for a consumer that is gone from here are given back.
func (a *attachment) deliver(m protocol.Deliver) {
	s := a.sh
	a.settles.handed(m.Items...)
	_, c := a.consumer(m.Consumer)
	if c == nil || c.session.closed || c.failed {
		for i := range m.Items {
			a.settles.add(m.Consumer, m.Items[i].Offset, protocol.Release)
		}
		a.touch()
		return
	}
	c.delivered = a.epoch
	ds := s.takeDeliveries()
	bytes := int64(0)
	for i := range m.Items {
		it := &m.Items[i]
		if !c.spec.NoAck {
			c.hold(it.Offset)
		}
		n := int64(len(it.Body))
		c.owed += n
		bytes += n
		if it.Again {
			s.stats.Again++
		}
		ds = append(ds, broker.Delivery{
			Ref:         broker.Ref{Partition: a.p, Consumer: c.num, Offset: it.Offset},
			Redelivered: it.Again, Count: it.Count, Record: it.Record, Payload: it.Body,
		})
	}
	c.handed(bytes)
	s.stats.Delivered += uint64(len(ds))
	c.session.l.Delivered(c.num, ds)
	s.keepDeliveries(ds)
	c.pay()
}

// denied lets go of deliveries that clients of this shard held and that are others' now, or done by others. What a client says of one from now on is not
// sent: it would settle nothing. Of what it had settled before, and nobody had confirmed, nothing is known here any more either.
func (a *attachment) denied(claims []protocol.Claim) {
	held := 0
	for _, h := range slices.Clone(a.holders) {
		for _, k := range claims {
			if k.Consumer == h.id && h.held.Remove(k.Offset) {
				held++
			}
		}
		if h.held.Len() > 0 {
			continue
		}
		if i := slices.IndexFunc(h.session.order, func(c *consumer) bool { return &c.holder == h && c.state == ended }); i >= 0 {
			h.session.forget(h.session.order[i])
		}
	}
	if held > 0 {
		a.sh.stats.Denied += uint64(held)
		trace.Warn(a.sh.env.Trace, "gateway.claims.denied", slog.String("queue", a.res.Name), slog.String("vhost", a.res.VHost), slog.Int("messages", held))
	}
}

// takeDeliveries gives an empty slice to hand deliveries over in.
func (s *Shard) takeDeliveries() []broker.Delivery {
	ds := s.deliveries[:0]
	s.deliveries = nil
	return ds
}

// keepDeliveries keeps the slice for the next time, without what it refers to.
func (s *Shard) keepDeliveries(ds []broker.Delivery) {
	clear(ds)
	if cap(ds) <= 4096 {
		s.deliveries = ds[:0]
	}
}

// drained takes note that bytes have left for the client.
func (c *consumer) drained(n int64) {
	n = min(n, c.undrain)
	c.undrain -= n
	c.session.took(n)
	if c.reader != nil {
		c.a.sh.pump(c)
	}
	c.pay()
}

// pay gives credit back to the owner, in pieces of a quarter of the window, as long as the client takes what it gets.
func (c *consumer) pay() {
	if c.owed < c.window/4 || c.undrain > c.window/2 || c.state != running {
		return
	}
	if c.give(c.owed) {
		c.owed = 0
	}
}
