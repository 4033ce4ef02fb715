package sim

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// ears listens to what gateways and the owners of one partition say to each other, because a client cannot learn that a settle was
// confirmed: AMQP has no word for it, and yet "a settle that was confirmed is never undone" is promised.
type ears struct {
	w      *world
	p      ident.Partition
	handed []handed // accepted or rejected by clients, in order
	said   []said   // settles and cursor moves that are not confirmed, in order
}

// ear is where one run of a node hears what comes to a partition that it owns.
type ear struct {
	*ears
	h       *host
	to      protocol.Sender
	mouths  map[protocol.Gateway]*mouth
	order   []protocol.Gateway          // of mouths
	holders map[uint64]protocol.Gateway // who was handed what lies at an offset, by this run
	given   map[uint64]uint64           // epoch in which this run handed out what lies at an offset
	claims  map[uint64]uint64           // of what is held by a claim: epoch of the owner that the gateway had its last stream to
	// delivers is the last epoch in which something was handed out here: all claims of that epoch were in.
	delivers uint64
}

// said is one Settle or Cursor message.
type said struct {
	gateway  protocol.Gateway
	seq      uint64
	key      string
	messages []handed
	cursor   string
	offset   uint64
	// by is who heard it last, in which epoch, and where that one's log ended when it first did.
	by    *ear
	epoch uint64
	end   uint64
	again bool // somebody heard it before that, or in an earlier epoch
}

// handed is a message that a client has accepted or rejected, and whose settle has not been sent on by its gateway yet.
type handed struct {
	message uint64
	as      check.Settlement
	offset  uint64
	gateway protocol.Gateway
}

func (w *world) earsOf(p ident.Partition) *ears {
	e := w.ears[p]
	if e == nil {
		e = &ears{w: w, p: p}
		w.ears[p] = e
	}
	return e
}

func (w *world) sortedEars() []*ears {
	return slices.SortedFunc(maps.Values(w.ears), func(a, b *ears) int {
		return cmp.Or(cmp.Compare(a.p.Incarnation, b.p.Incarnation), cmp.Compare(a.p.Index, b.p.Index))
	})
}

// forget drops what the gateways of a run have not had confirmed when it ends.
func (e *ears) forget(h *host) {
	ours := func(g protocol.Gateway) bool { return g.Node == h.site.name }
	e.handed = slices.DeleteFunc(e.handed, func(x handed) bool { return ours(x.gateway) })
	e.said = slices.DeleteFunc(e.said, func(x said) bool { return ours(x.gateway) })
}

// gateway is one of the run's gateways.
func (h *host) gateway(shard uint32) protocol.Gateway {
	return protocol.Gateway{Node: h.site.name, Boot: h.node.Local().Boot, Shard: shard}
}

// owner wraps what a gateway sends to the owner of a partition, if that is here.
func (h *host) owner(p ident.Partition, to protocol.Sender) protocol.Sender {
	e := h.ears[p]
	if e == nil {
		e = &ear{ears: h.w.earsOf(p), h: h, mouths: map[protocol.Gateway]*mouth{}, holders: map[uint64]protocol.Gateway{}, given: map[uint64]uint64{}, claims: map[uint64]uint64{}}
		h.ears[p] = e
	}
	e.to = to
	return e
}

// Send implements protocol.Sender for the owner.
func (e *ear) Send(msg any) {
	switch m := msg.(type) {
	case protocol.Attach:
		to := &mouth{e: e, gateway: m.Gateway, to: m.Reply, stream: m.Stream, producer: m.Producer, claims: m.Claims, after: m.Epoch}
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

// claimed notes what a gateway holds whose stream was opened. Of two that claim the same it is that one's who heard the later owner, as long as
// nothing is handed out.
func (e *ear) claimed(m *mouth, epoch uint64) {
	for _, c := range m.claims {
		_, held := e.holders[c.Offset]
		before, claimed := e.claims[c.Offset]
		if !held || claimed && e.delivers < epoch && before < m.after {
			e.holders[c.Offset], e.claims[c.Offset] = m.gateway, m.after
		}
	}
}

// holds notes who is handed what lies at an offset.
func (e *ear) holds(offset uint64, m *mouth) {
	e.holders[offset], e.given[offset] = m.gateway, m.epoch
	delete(e.claims, offset)
}

// say remembers a settle, once: a resend says the same again. A gateway sends everything that its clients have settled so far in one
// message, so what was handed in by now is in this one. Where it says it to an owner that has handed some of it to another, it comes too late for
// that, whatever the gateway fetches of it later.
func (e *ear) say(s said, items []protocol.SettleItem) {
	for i := range e.said {
		if o := &e.said[i]; o.gateway == s.gateway && o.seq == s.seq {
			e.hears(o)
			e.tooLate(o)
			return
		}
	}
	s.key = e.w.parts[e.p]
	keep := e.handed[:0]
	for _, h := range e.handed {
		if h.gateway == s.gateway && covers(items, h.offset) {
			if holder, known := e.holders[h.offset]; known && holder == h.gateway { // else it has gone to somebody else by now
				s.messages = append(s.messages, h)
			}
		} else {
			keep = append(keep, h)
		}
	}
	e.handed = keep
	e.hears(&s)
	e.said = append(e.said, s)
}

// hears notes where the owner's log ends when it first hears a settle in an epoch: what it logs of it lies beyond.
func (e *ear) hears(s *said) {
	m := e.mouths[s.gateway]
	if m == nil || s.by == e && s.epoch == m.epoch {
		return
	}
	s.by, s.epoch, s.end, s.again = e, m.epoch, 0, s.by != nil
	if own := e.w.historyOf(e.p).copies[e.h.site.witness]; own != nil {
		s.end = own.all()
	}
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
	e       *ear
	gateway protocol.Gateway
	to      protocol.Sender
	stream  uint64
	// producer is the gateway's, upTo what of it is confirmed, epoch the owner's.
	producer, upTo, epoch uint64
	// claims are what the gateway claims, and after is the epoch of the owner that it had its last stream to.
	claims []protocol.Claim
	after  uint64
	// consumer is the last one that was subscribed.
	consumer uint64
}

// Send implements protocol.Sender for the gateway.
func (m *mouth) Send(msg any) {
	m.heard(msg)
	switch s := msg.(type) {
	case protocol.Attached:
		m.e.claimed(m, s.Epoch)
	case protocol.Settled:
		m.e.settled(m.gateway, s.Seq)
	case protocol.Deliver:
		m.e.delivers = m.epoch
		for _, it := range s.Items {
			m.e.holds(it.Offset, m)
		}
	case protocol.GetDone:
		if s.OK {
			m.e.delivers = m.epoch
			m.e.holds(s.Item.Offset, m)
		}
	}
	m.e.w.opt.plant.toGateway(m, msg)
}

// settled records what an owner confirms. What the owner has handed to another gateway than the one that settles it is not among it: where a
// gateway was away for longer than its claims are waited for, its settle comes too late, and is answered all the same.
func (e *ear) settled(g protocol.Gateway, seq uint64) {
	keep := e.said[:0]
	for _, s := range e.said {
		if s.gateway != g || s.seq > seq {
			keep = append(keep, s)
			continue
		}
		e.tooLate(&s)
		e.unlogged(&s)
		e.confirmed(s)
	}
	e.said = keep
}

// tooLate takes out of a settle what this owner has handed to another gateway.
func (e *ear) tooLate(s *said) {
	s.messages = slices.DeleteFunc(s.messages, func(m handed) bool {
		holder, known := e.holders[m.offset]
		return known && holder != s.gateway
	})
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
		e.w.see(check.Event{Kind: check.Settled, Resource: s.key, Message: m.message, Settlement: m.as})
	}
}

// unlogged looks at a settle that is answered before anything has become durable since it was heard. Where an owner before had heard it, that one may have
// logged it. Else it has settled nothing. That is right of what was handed out in an earlier epoch: it may be settled since then, or have been
// given to another before it was claimed. It is not right of what this owner has handed out in this epoch.
func (e *ear) unlogged(s *said) {
	own := e.w.historyOf(e.p).copies[e.h.site.witness]
	if own == nil || s.by != e || s.again || own.end() > s.end || e.w.flipped() {
		return
	}
	s.messages = slices.DeleteFunc(s.messages, func(m handed) bool {
		if epoch, given := e.given[m.offset]; given && epoch == s.epoch {
			e.w.fail("%s: %s answers that message %d is settled before that is durable", s.key, e.h.instance(), m.message)
		}
		return true
	})
}
