package sim

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/exec"
)

// client is one program that uses the broker: one session after the other, on one loop of the node, as a connection is. It is an
// actor and a broker.Listener.
type client struct {
	w       *world
	host    *host
	box     exec.Mailbox
	broker  broker.Broker
	shard   uint32
	session broker.Session
	id      uint64 // of the session, in the history
	open    bool   // logged in
	ended   bool   // the session is over; a new one begins at the next turn
	stopped bool   // by Flow
	blocked bool
	drains  bool   // it empties everything: for the end of a simulation
	orphan  func() // if not nil, called when the client's node ends

	lanes     [2]uint64
	seq       uint64
	waiting   []pending // publishes without an outcome, in order of seq
	readers   []*reader
	consumers uint64
	held      []delivery
	asking    int  // requests without an answer
	moved     bool // another client comes in its place
}

// pending is a publish that has no outcome yet.
type pending struct {
	seq, message uint64
	expect       uint64 // 0, or how many targets
	producer     *producer
}

// reader is a consumer of this client.
type reader struct {
	id      uint64 // in the history
	number  uint64 // in the session
	t       *target
	key     string // the incarnation that it was attached to
	noAck   bool
	cursor  string
	undrawn int // bytes that were delivered and not paid back
	next    uint64
	gone    bool
}

// delivery is a message that the client holds.
type delivery struct {
	ref     broker.Ref
	r       *reader
	message uint64
	era     uint64 // the last accepted loss that was known then
}

type (
	turn struct{}
	stop struct{ done func() } // end the session in peace
)

// Receive handles the client's turns.
func (c *client) Receive(msg any) {
	switch m := msg.(type) {
	case turn:
		c.turn()
	case road:
		c.travel(m)
	case stop:
		c.leave()
		m.done()
	}
}

// Flush does nothing: a client is not grouped.
func (c *client) Flush() {}

func (c *client) next() {
	d := time.Duration(c.w.rng.Int64N(int64(c.w.pace)))
	c.box.After(d, turn{})
}

// turn does one random thing and asks for the next turn.
func (c *client) turn() {
	defer func() {
		if !c.moved {
			c.next()
		}
	}()
	switch {
	case !c.drains && !c.w.loading:
		// The load is over; what was begun may end.
	case c.session == nil || c.ended:
		c.come()
	case !c.open:
		// The login is not answered.
	case c.drains:
		c.drain()
	default:
		c.work()
	}
}

// come begins another session, in a cluster mostly at another node.
func (c *client) come() {
	if c.id == 0 || !c.w.cluster() || c.drains {
		c.connect()
		return
	}
	h := c.w.anyHost()
	if h == nil || h == c.host {
		c.connect()
		return
	}
	c.w.clients = slices.DeleteFunc(c.w.clients, func(o *client) bool { return o == c })
	c.moved = true
	c.w.sim.At(c.w.sim.Now(), c.w.fill)
}

// die ends the client with its node.
func (c *client) die() {
	if c.session != nil && !c.ended && c.w.cluster() {
		c.w.see(check.Event{Kind: check.Closed, Session: c.id})
	}
	c.session, c.ended, c.open = nil, true, false
	for _, r := range c.readers {
		c.w.release(r)
	}
	if f := c.orphan; f != nil {
		c.orphan = nil
		c.w.sim.At(c.w.sim.Now(), f)
	}
}

// connect begins a session.
func (c *client) connect() {
	c.session, c.open, c.ended, c.stopped, c.blocked = nil, false, false, false, false
	c.id = c.w.number()
	c.lanes = [2]uint64{c.w.number(), c.w.number()}
	c.waiting, c.readers, c.held, c.asking = nil, nil, nil, 0
	c.w.counts.Sessions++
	c.w.see(check.Event{Kind: check.Opened, Session: c.id})
	id := c.id
	c.session = c.broker.Open(broker.Peer{Address: "127.0.0.1:1", Loopback: true, Front: "sim"}, &listener{c: c, id: id})
	c.session.Login("guest", "guest", "/", func(err *broker.Error) {
		if c.id != id {
			return
		}
		if err != nil {
			if !err.Retryable() {
				c.w.fail("login was refused: %v", err)
			}
			c.over()
			return
		}
		c.open = true
	})
}

// leave ends the session in peace.
func (c *client) leave() {
	if c.session == nil || c.ended {
		return
	}
	c.w.see(check.Event{Kind: check.Closed, Session: c.id})
	c.session.Close()
	c.session, c.ended, c.open = nil, true, false
}

// over notes that the broker ended the session.
func (c *client) over() {
	if !c.ended {
		c.w.see(check.Event{Kind: check.Closed, Session: c.id})
		c.ended, c.open = true, false
	}
}

// listener is the client's ear for one session; what comes for an older one is not heard.
type listener struct {
	c  *client
	id uint64
}

func (l *listener) deaf() bool { return l.c.id != l.id || l.c.ended }

// Resolved implements broker.Listener.
func (l *listener) Resolved(tags []broker.Tag, o broker.Outcome, _ string) {
	if l.deaf() {
		return
	}
	for _, t := range tags {
		l.c.resolved(t, o)
	}
}

func (c *client) resolved(t broker.Tag, o broker.Outcome) {
	i := slices.IndexFunc(c.waiting, func(p pending) bool { return p.seq == t.Seq })
	if i < 0 {
		c.w.fail("an outcome (%d) of tag %d, which is not waited for", o, t.Seq)
		return
	}
	e := check.Event{Kind: check.Resolved, Message: c.waiting[i].message}
	switch o {
	case broker.Confirmed:
		e.Outcome = check.Confirmed
		c.w.counts.Confirmed++
	case broker.Refused:
		e.Outcome = check.Refused
		c.w.counts.Refused++
	default:
		e.Outcome = check.Unknown
		c.w.counts.Unknown++
	}
	if p := c.waiting[i].producer; p != nil && e.Outcome != check.Unknown {
		p.known(e.Message, e.Outcome == check.Confirmed)
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	if _, probed := c.w.answers[e.Message]; probed {
		c.w.answers[e.Message] = e.Outcome
	}
	c.w.see(e)
}

// Returned implements broker.Listener.
func (l *listener) Returned(t broker.Tag, _ *broker.Message, _ string) {
	if l.deaf() {
		return
	}
	for _, p := range l.c.waiting {
		if p.seq == t.Seq && p.expect > 0 {
			l.c.w.fail("message %d was returned; %d queues should have taken it", p.message, p.expect)
		}
	}
}

// Rejected implements broker.Listener.
func (l *listener) Rejected(t broker.Tag, err *broker.Error) {
	if !l.deaf() {
		l.c.rejected(t.Seq, err)
	}
}

// rejected notes a refusal that ends the channel: nothing was taken and no outcome comes.
func (c *client) rejected(seq uint64, err *broker.Error) {
	i := slices.IndexFunc(c.waiting, func(p pending) bool { return p.seq == seq })
	if i < 0 {
		c.w.fail("a refusal (%v) of tag %d, which is not waited for", err, seq)
		return
	}
	p := c.waiting[i]
	if c.w.cluster() && p.expect > 0 && err.Code == broker.NotFound {
		c.w.fail("message %d: %v; %d queues should have taken it", p.message, err, p.expect)
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	c.w.see(check.Event{Kind: check.Resolved, Message: p.message, Outcome: check.Refused})
}

// Delivered implements broker.Listener.
func (l *listener) Delivered(consumer uint64, ds []broker.Delivery) {
	if l.deaf() {
		return
	}
	c := l.c
	i := slices.IndexFunc(c.readers, func(r *reader) bool { return r.number == consumer })
	if i < 0 {
		c.w.fail("a delivery to consumer %d of session %d, which there is not", consumer, c.id)
		return
	}
	for _, d := range ds {
		c.delivered(c.readers[i], d)
	}
}

// delivered notes a message and takes it into the client's hands.
func (c *client) delivered(r *reader, d broker.Delivery) {
	e, ok := c.w.message(d)
	if !ok {
		c.w.fail("%s: a delivery that cannot be read, at offset %d", r.key, d.Ref.Offset)
		return
	}
	e.Kind, e.Resource, e.Session, e.Reader = check.Delivered, r.key, c.id, r.id
	c.w.parts[d.Ref.Partition] = r.key
	c.w.see(e)
	r.undrawn += len(d.Payload)
	r.next = d.Ref.Offset + 1
	switch {
	case r.t.stream():
		c.w.counts.Read++
		if !r.noAck {
			c.held = append(c.held, delivery{d.Ref, r, e.Message, c.w.historyOf(d.Ref.Partition).accepted})
		}
	case r.noAck:
		c.w.see(check.Event{Kind: check.Settle, Resource: r.key, Session: c.id, Message: e.Message, Settlement: check.Accept})
	default:
		c.w.counts.Delivered++
		c.held = append(c.held, delivery{d.Ref, r, e.Message, c.w.historyOf(d.Ref.Partition).accepted})
	}
}

// ConsumerGone implements broker.Listener.
func (l *listener) ConsumerGone(consumer uint64, _ string) {
	if l.deaf() {
		return
	}
	for _, r := range l.c.readers {
		if r.number == consumer {
			r.gone = true
		}
	}
}

// GetsGone implements broker.Listener: the channel that fetched them is closed.
func (l *listener) GetsGone(p ident.Partition, from uint64, _ string) {
	if !l.deaf() {
		l.c.held = slices.DeleteFunc(l.c.held, func(d delivery) bool {
			return d.ref.Partition == p && d.ref.Consumer == 0 && d.ref.Offset >= from
		})
	}
}

// Flow implements broker.Listener.
func (l *listener) Flow(stop bool) {
	if !l.deaf() {
		l.c.stopped = stop
	}
}

// Blocked implements broker.Listener.
func (l *listener) Blocked(reason string) {
	if !l.deaf() {
		l.c.blocked = reason != ""
	}
}

// Close implements broker.Listener.
func (l *listener) Close(*broker.Error) {
	if !l.deaf() {
		l.c.over()
	}
}

// message reads what a delivery says of itself.
func (w *world) message(d broker.Delivery) (check.Event, bool) {
	env, err := broker.DecodeEnvelope(d.Payload)
	if err != nil || len(env.Body) < 8 {
		return check.Event{}, false
	}
	return check.Event{
		Message: binary.BigEndian.Uint64(env.Body), Digest: digest(env.Body), Offset: d.Ref.Offset, HasOffset: true,
		Redelivered: d.Redelivered,
	}, true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func digest(body []byte) uint64 {
	return uint64(len(body))<<32 | uint64(crc32.Checksum(body, castagnoli))
}
