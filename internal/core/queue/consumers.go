package queue

import (
	"maps"
	"slices"
)

// consumer is one that is subscribed, or that still holds something.
type consumer struct {
	holder     Holder
	options    Options
	slot       uint32
	subscribed bool
	held       uint64
	credit     int64
	order      uint64
	delivered  uint64    // the last epoch of an owner before that delivered something to it
	kept       bool      // its gateway has a new stream, on which it is to be subscribed anew: its place is kept
	next, prev *consumer // ring of the group; nil: not in it
}

// group is the ring of consumers of one priority that can take something; ring is whose turn it is.
type group struct {
	priority int32
	ring     *consumer
}

// audience is the consumers of an owner, by slot.
type audience struct {
	list  []*consumer // slot 0 is nobody
	slots map[Holder]uint32
	free  []uint32
	// awaited are consumers of owners before that gateways have and will subscribe, with the last epoch in which something was delivered
	// to each.
	awaited map[Holder]uint64
}

// consumers are all by slot, nil where a slot is free.
func (o *owner) consumers() []*consumer {
	if o.audience == nil {
		return nil
	}
	return o.audience.list
}

// slot is the consumer of a holder, made if there is none.
func (o *owner) slot(h Holder) *consumer {
	if c := o.lookup(h); c != nil {
		return c
	}
	a := o.gathered()
	c := &consumer{holder: h}
	if n := len(a.free); n > 0 {
		c.slot = a.free[n-1]
		a.free = a.free[:n-1]
		a.list[c.slot] = c
	} else {
		c.slot = uint32(len(a.list))
		a.list = append(a.list, c)
	}
	a.slots[h] = c.slot
	return c
}

// gathered is the audience, made if there is none.
func (o *owner) gathered() *audience {
	if o.audience == nil {
		o.audience = &audience{slots: make(map[Holder]uint32), list: []*consumer{nil}}
	}
	return o.audience
}

func (o *owner) lookup(h Holder) *consumer {
	if a := o.audience; a != nil {
		if s, ok := a.slots[h]; ok {
			return a.list[s]
		}
	}
	return nil
}

// forget lets go of a consumer that is nothing and holds nothing.
func (o *owner) forget(c *consumer) {
	if c.subscribed || c.held > 0 {
		return
	}
	a := o.audience
	delete(a.slots, c.holder)
	a.list[c.slot] = nil
	a.free = append(a.free, c.slot)
}

// Subscribe adds a consumer. One that holds something from before keeps it, and it counts for its prefetch. One that is subscribed
// already begins anew, unless its gateway's new stream keeps its place: then it goes on as it was. It returns ErrExclusive.
func (m *Machine) Subscribe(h Holder, opt Options) error {
	o := m.o
	if c := o.lookup(h); c != nil && c.subscribed {
		if c.kept {
			m.goOn(c, opt)
			return nil
		}
		m.leave(c)
	}
	if o.exclusive != 0 || opt.Exclusive && o.subscribed > 0 {
		return ErrExclusive
	}
	c := o.slot(h)
	o.order++
	c.options, c.credit, c.order, c.subscribed = opt, opt.Credit, o.order, true
	c.delivered = o.audience.awaited[h]
	delete(o.audience.awaited, h)
	o.subscribed++
	o.abandoned = false
	if opt.Exclusive {
		o.exclusive = c.slot
	}
	if m.settings.SingleActive && o.active == 0 && !o.claiming {
		o.active = c.slot
	}
	m.update(c)
	return nil
}

// goOn takes the options of a consumer whose place was kept.
func (m *Machine) goOn(c *consumer, opt Options) {
	c.credit = 0
	m.update(c) // out of the ring of its old priority
	c.options, c.credit, c.kept = opt, opt.Credit, false
	m.update(c)
}

// Awaits reports whether a gateway has said that it will subscribe a consumer that an owner before had taken, and has not yet.
func (m *Machine) Awaits(h Holder) bool {
	if m.o == nil || m.o.audience == nil {
		return false
	}
	_, ok := m.o.audience.awaited[h]
	return ok
}

// Awaiting reports whether any consumer is awaited. Until none is, nothing should be delivered: others would be given what is theirs first.
func (m *Machine) Awaiting() bool {
	return m.o != nil && m.o.audience != nil && len(m.o.audience.awaited) > 0
}

// await notes the consumers that a gateway will subscribe to this new owner.
func (o *owner) await(gateway uint64, kept []Kept) {
	o.forgetAwaited(gateway)
	if len(kept) == 0 {
		return
	}
	a := o.gathered()
	if a.awaited == nil {
		a.awaited = make(map[Holder]uint64, len(kept))
	}
	for _, k := range kept {
		a.awaited[Holder{Gateway: gateway, Consumer: k.Consumer}] = k.Delivered
	}
}

// forgetAwaited expects no consumer of a gateway any more.
func (o *owner) forgetAwaited(gateway uint64) {
	if o.audience == nil {
		return
	}
	maps.DeleteFunc(o.audience.awaited, func(h Holder, _ uint64) bool { return h.Gateway == gateway })
}

// Unsubscribe ends a consumer. Its claims stay.
func (m *Machine) Unsubscribe(h Holder, now int64) {
	if a := m.o.audience; a != nil {
		delete(a.awaited, h)
	}
	if c := m.o.lookup(h); c != nil && c.subscribed {
		m.leave(c)
		m.o.forget(c)
		m.left(now)
	}
}

// left takes note that a consumer went for good.
func (m *Machine) left(now int64) {
	if m.o.subscribed == 0 {
		m.o.unused = now
		m.o.abandoned = true
	}
}

func (m *Machine) leave(c *consumer) {
	o := m.o
	c.subscribed, c.kept = false, false
	o.subscribed--
	m.update(c)
	if o.exclusive == c.slot {
		o.exclusive = 0
	}
	if o.active == c.slot {
		o.active = 0
		m.succeed()
	}
}

// succeed makes a consumer the single active one: the one that an owner before had delivered to last, as it was the active one; else the
// highest priority, the longest subscribed of it.
func (m *Machine) succeed() {
	if !m.settings.SingleActive || m.o.active != 0 || m.o.claiming {
		return
	}
	var best *consumer
	for _, c := range m.o.consumers() {
		if c != nil && c.subscribed && (best == nil || c.before(best)) {
			best = c
		}
	}
	if best != nil {
		m.o.active = best.slot
		m.update(best)
	}
}

func (c *consumer) before(o *consumer) bool {
	switch {
	case c.delivered != o.delivered:
		return c.delivered > o.delivered
	case c.options.Priority != o.options.Priority:
		return c.options.Priority > o.options.Priority
	}
	return c.order < o.order
}

// Credit gives a consumer bytes.
func (m *Machine) Credit(h Holder, bytes int64) {
	if c := m.o.lookup(h); c != nil && c.subscribed {
		c.credit += bytes
		m.update(c)
	}
}

func (m *Machine) takes(c *consumer) bool {
	return c.subscribed && c.credit > 0 &&
		(c.options.NoAck || c.options.Prefetch == 0 || c.held < uint64(c.options.Prefetch)) &&
		(!m.settings.SingleActive || m.o.active == c.slot)
}

// update puts a consumer at the end of its group's ring, or takes it out, as it can take something or not.
func (m *Machine) update(c *consumer) {
	can := m.takes(c)
	if can == (c.next != nil) {
		return
	}
	groups := m.o.groups
	at, ok := slices.BinarySearchFunc(groups, c.options.Priority, func(g group, priority int32) int {
		switch {
		case g.priority > priority:
			return -1
		case g.priority < priority:
			return 1
		}
		return 0
	})
	if can {
		if !ok {
			m.o.groups = slices.Insert(groups, at, group{priority: c.options.Priority})
		}
		m.o.groups[at].insert(c)
		return
	}
	if groups[at].remove(c); groups[at].ring == nil {
		m.o.groups = slices.Delete(groups, at, at+1)
	}
}

func (g *group) insert(c *consumer) {
	if g.ring == nil {
		c.next, c.prev, g.ring = c, c, c
		return
	}
	c.next, c.prev = g.ring, g.ring.prev
	c.prev.next, c.next.prev = c, c
}

func (g *group) remove(c *consumer) {
	if g.ring == c {
		g.ring = c.next
	}
	if g.ring == c {
		g.ring = nil
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.next, c.prev = nil, nil
}

// Abandoned reports whether there were consumers under this owner and the last has gone by Unsubscribe or ReleaseGateway: an
// auto-delete queue is to be deleted.
func (m *Machine) Abandoned() bool { return m.o != nil && m.o.abandoned }

// Touch counts as use of the queue: it was declared again.
func (m *Machine) Touch(now int64) {
	if m.o != nil {
		m.o.unused = max(m.o.unused, now)
	}
}

// Unused reports whether the queue has had no consumer, Get or Touch for Settings.Expires: it is to be deleted.
func (m *Machine) Unused(now int64) bool {
	at := m.UnusedAt()
	return at > 0 && at <= now
}

// UnusedAt is when the queue will be Unused if nothing comes, in ms since 1970; 0: never.
func (m *Machine) UnusedAt() int64 {
	if m.o == nil || m.settings.Expires <= 0 || m.o.subscribed > 0 {
		return 0
	}
	return m.o.unused + m.settings.Expires
}
