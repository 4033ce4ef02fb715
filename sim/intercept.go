package sim

import (
	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// ears listens to what gateways and owners say to each other, because a client cannot learn that a settle was confirmed: AMQP has no
// word for it, and yet "a settle that was confirmed is never undone" is promised.
type ears struct {
	w      *world
	p      ident.Partition
	to     protocol.Sender
	handed []handed // accepted or rejected by clients, in order
	mouths map[protocol.Gateway]*mouth
	order  []protocol.Gateway // of mouths
	said   []said             // settles and cursor moves that are not confirmed, in order
}

// said is one Settle or Cursor message.
type said struct {
	gateway  protocol.Gateway
	seq      uint64
	key      string
	messages []uint64
	cursor   string
	offset   uint64
}

// handed is a message that a client has accepted or rejected, and whose settle has not been sent on by its gateway yet.
type handed struct {
	message uint64
	offset  uint64
	shard   uint32
}

// owner wraps what a gateway sends to the owner of a partition.
func (w *world) owner(p ident.Partition, to protocol.Sender) protocol.Sender {
	e := w.ears[p]
	if e == nil {
		e = &ears{w: w, p: p, mouths: map[protocol.Gateway]*mouth{}}
		w.ears[p] = e
	}
	e.to = to
	return e
}

// Send implements protocol.Sender for the owner.
func (e *ears) Send(msg any) {
	switch m := msg.(type) {
	case protocol.Attach:
		to := &mouth{e: e, gateway: m.Gateway, to: m.Reply, stream: m.Stream}
		if e.mouths[m.Gateway] == nil {
			e.order = append(e.order, m.Gateway)
		}
		e.mouths[m.Gateway] = to
		m.Reply = to
		msg = m
	case protocol.Subscribe:
		if to := e.mouths[m.Gateway]; to != nil {
			to.consumer = m.Consumer
		}
	case protocol.Settle:
		e.say(said{gateway: m.Gateway, seq: m.Seq}, m.Items)
	case protocol.Cursor:
		e.say(said{gateway: m.Gateway, seq: m.Seq, cursor: m.Name, offset: m.Offset}, nil)
	}
	e.w.opt.plant.toOwner(e, msg)
}

// say remembers a settle, once: a resend says the same again. A gateway sends everything that its clients have settled so far in one
// message, so what was handed in by now is in this one.
func (e *ears) say(s said, items []protocol.SettleItem) {
	for _, o := range e.said {
		if o.gateway == s.gateway && o.seq == s.seq {
			return
		}
	}
	s.key = e.w.parts[e.p]
	keep := e.handed[:0]
	for _, h := range e.handed {
		if h.shard == s.gateway.Shard && covers(items, h.offset) {
			s.messages = append(s.messages, h.message)
		} else {
			keep = append(keep, h)
		}
	}
	e.handed = keep
	e.said = append(e.said, s)
}

func covers(items []protocol.SettleItem, offset uint64) bool {
	for _, it := range items {
		final := it.Outcome == protocol.Accept || it.Outcome == protocol.Reject
		if final && it.First <= offset && offset <= it.Last {
			return true
		}
	}
	return false
}

// mouth is what the owner sends to one gateway.
type mouth struct {
	e       *ears
	gateway protocol.Gateway
	to      protocol.Sender
	stream  uint64
	// consumer is the last one that was subscribed.
	consumer uint64
}

// Send implements protocol.Sender for the gateway.
func (m *mouth) Send(msg any) {
	if s, ok := msg.(protocol.Settled); ok {
		m.e.settled(m.gateway, s.Seq)
	}
	m.e.w.opt.plant.toGateway(m, msg)
}

// settled records what an owner confirms.
func (e *ears) settled(g protocol.Gateway, seq uint64) {
	keep := e.said[:0]
	for _, s := range e.said {
		if s.gateway != g || s.seq > seq {
			keep = append(keep, s)
			continue
		}
		e.confirmed(s)
	}
	e.said = keep
}

func (e *ears) confirmed(s said) {
	if s.key == "" {
		return // nothing of it was ever delivered
	}
	if s.cursor != "" {
		e.w.see(check.Event{Kind: check.CursorKept, Resource: s.key, Cursor: s.cursor, Offset: s.offset})
		return
	}
	for _, m := range s.messages {
		e.w.see(check.Event{Kind: check.Settled, Resource: s.key, Message: m})
	}
}
