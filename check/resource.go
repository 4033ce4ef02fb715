package check

import "slices"

// resource is one incarnation of a queue or a stream.
type resource struct {
	name                   string
	stream, lossy, ordered bool
	deadLetter             string

	messages map[uint64]*copyOf
	ids      []uint64 // of messages, as they came
	lanes    map[uint64]*lane
	cursors  map[string]*cursor
	byOffset map[uint64]*copyOf
	top      uint64 // the offset after the highest that was seen

	purging  bool
	strict   bool     // nobody could have been handed anything while it was purged
	users    []uint64 // sessions that had a reader since the run began or was quiet: what they let go may be on its way back
	gone     bool
	injected bool
	damaged  bool

	epoch    uint64
	owner    string
	restarts uint64
}

// copyOf is one message in one resource.
type copyOf struct {
	in       *resource
	message  uint64
	digest   uint64
	lane     *lane // nil: it was dead-lettered here
	number   uint64
	offset   uint64
	placed   bool   // offset is known
	held     uint64 // session that holds it unsettled
	settled  Settlement
	settleIn uint64 // run in which settled was given by a session that was open
	settler  uint64 // session that gave it
	heldIn   uint64 // run in which held was handed it
	seenIn   uint64 // run in which it was last delivered to an open session
	purge    purgeState
	late     Settlement // the word of a session that was cut off when the message went to another: it may still be heard

	confirmed, refused, seen, kept, mayVanish bool
	given, back, known                        bool // it was there when a loss was accepted, and may be gone; came since; had come before, or might be gone already
	open                                      bool // its publish had no outcome then: it may be given again, and lie elsewhere
	gave                                      bool // a settlement of it was given, at any time
}

// purgeState says what is known of a message and a purge.
type purgeState uint8

const (
	notPurged purgeState = iota
	inPurge              // it was ready when a purge was asked for
	purgedNow            // and the purge was answered with nobody else there to take it
)

// lane is a channel's messages in one resource.
type lane struct {
	id, published uint64
	highest       *copyOf // by number, of those whose place or first delivery is known
	placed        []*copyOf
}

// cursor is a named cursor of a stream.
type cursor struct{ sent, kept uint64 }

// reader is one consumer.
type reader struct {
	of      *resource
	cursor  string
	kept    uint64 // where its cursor was known to be when it was attached: what somebody else holds may move that on before it begins
	started bool
	from    uint64
	hasFrom bool
	asked   uint64 // from, whatever was given up since
	next    uint64
}

func (r *resource) add(message, digest uint64) *copyOf {
	m := &copyOf{in: r, message: message, digest: digest}
	r.messages[message] = m
	r.ids = append(r.ids, message)
	return m
}

func (r *resource) lane(id uint64) *lane {
	l := r.lanes[id]
	if l == nil {
		l = &lane{id: id}
		r.lanes[id] = l
	}
	return l
}

func (c *Checker) deleted(r *resource, _ Event) { r.gone = true }

func (c *Checker) attached(r *resource, e Event) {
	if c.readers[e.Reader] != nil {
		c.fail(RuleHistory, r, 0, "reader %d was attached before", e.Reader)
		return
	}
	r.users = append(r.users, e.Session)
	d := &reader{of: r, cursor: e.Cursor, from: e.Offset, asked: e.Offset, hasFrom: e.HasOffset}
	if k := r.cursors[d.cursor]; k != nil {
		d.kept = k.kept
	}
	c.readers[e.Reader] = d
}

func (c *Checker) delivered(r *resource, e Event) {
	m := r.messages[e.Message]
	if m == nil {
		m = c.deadLettered(r, e)
	}
	if m == nil {
		c.fail(RulePhantom, r, e.Message, "message %d is delivered and was not published to it", e.Message)
		return
	}
	if m.digest != e.Digest {
		c.fail(RuleBytes, r, e.Message, "message %d is delivered with the digest %x, published with %x", e.Message, e.Digest, m.digest)
	}
	if m.refused {
		c.fail(RuleRefused, r, e.Message, "message %d was refused and is delivered", e.Message)
	}
	if e.HasOffset {
		c.place(r, m, e.Offset)
	}
	if r.stream {
		c.read(r, m, e)
	} else {
		c.hand(r, m, e)
	}
	m.seen, m.back = true, m.given
}

// deadLettered finds a message that may have come from a resource that dead-letters to r.
func (c *Checker) deadLettered(r *resource, e Event) *copyOf {
	for _, from := range c.order {
		if from.deadLetter != r.name {
			continue
		}
		if m := from.messages[e.Message]; m != nil {
			if m.refused {
				c.fail(RuleRefused, from, e.Message, "message %d was refused and is dead-lettered to %s", e.Message, r.name)
			}
			return r.add(e.Message, m.digest)
		}
	}
	return nil
}

// place learns that a message is at an offset.
func (c *Checker) place(r *resource, m *copyOf, offset uint64) {
	if m.placed && m.offset != offset && !c.repeats(r, m.message) {
		c.fail(RuleDuplicate, r, m.message, "message %d is at offset %d and at offset %d", m.message, m.offset, offset)
	}
	if other := r.byOffset[offset]; other != nil && other != m && !r.damaged {
		c.fail(RuleMoved, r, m.message, "offset %d holds message %d and held message %d", offset, m.message, other.message)
	}
	r.byOffset[offset] = m
	r.top = max(r.top, offset+1)
	if !m.placed {
		m.placed, m.offset = true, offset
		c.inLane(r, m)
	}
}

// repeats reports whether a message may rightly be in r more than once: it was published to several resources that dead-letter to r,
// or dead letters go round in a ring.
func (c *Checker) repeats(r *resource, message uint64) bool {
	ways := 0
	for _, from := range c.order {
		if from.deadLetter == r.name && from.messages[message] != nil {
			ways++
		}
	}
	for to, steps := r, 0; to != nil && to.deadLetter != "" && steps <= len(c.order); steps++ {
		if to.deadLetter == r.name {
			return true
		}
		to = c.resources[to.deadLetter]
	}
	return ways > 1 || ways == 1 && r.messages[message] != nil && r.messages[message].lane != nil
}

// receives reports whether dead letters come to r.
func (c *Checker) receives(r *resource) bool {
	for _, from := range c.order {
		if from.deadLetter == r.name {
			return true
		}
	}
	return false
}

// inLane holds the order of a channel against offsets: of two messages of one lane the earlier has the lower offset. Neighbours
// in the lane's numbers are compared, as they become known.
func (c *Checker) inLane(r *resource, m *copyOf) {
	if m.lane == nil {
		return
	}
	l := m.lane
	at, _ := slices.BinarySearchFunc(l.placed, m.number, func(o *copyOf, n uint64) int {
		switch {
		case o.number < n:
			return -1
		case o.number > n:
			return 1
		}
		return 0
	})
	if at > 0 && l.placed[at-1].offset > m.offset {
		c.wrongOrder(r, l.placed[at-1], m)
	}
	if at < len(l.placed) && l.placed[at].offset < m.offset {
		c.wrongOrder(r, m, l.placed[at])
	}
	l.placed = slices.Insert(l.placed, at, m)
}

func (c *Checker) wrongOrder(r *resource, first, second *copyOf) {
	c.fail(RuleOrder, r, second.message, "channel %d published message %d before %d, which are at offsets %d and %d", first.lane.id,
		first.message, second.message, first.offset, second.offset)
}

// read is a delivery of a stream.
func (c *Checker) read(r *resource, m *copyOf, e Event) {
	d := c.readers[e.Reader]
	if d == nil || !e.HasOffset {
		c.fail(RuleHistory, r, m.message, "a stream's delivery needs an attached reader and an offset")
		return
	}
	if !d.started {
		d.started = true
		c.begins(r, d, e)
	} else if e.Offset < d.next || e.Offset > d.next && !r.lossy {
		c.fail(RuleReader, r, m.message, "reader %d gets offset %d, expected %d", e.Reader, e.Offset, d.next)
	}
	d.next = e.Offset + 1
}

// begins judges a reader's first record.
func (c *Checker) begins(r *resource, d *reader, e Event) {
	if d.cursor != "" {
		if k := r.cursors[d.cursor]; k != nil && k.sent > 0 {
			// A client of a node that is cut off may be answered by an owner there that has been replaced, and knows of no later move.
			if e.Offset < min(k.kept, d.kept) && !c.disturbed || e.Offset > k.sent && !r.lossy {
				c.fail(RuleCursor, r, e.Message, "cursor %s resumes at %d; it was moved to %d, and %d was confirmed", d.cursor, e.Offset,
					k.sent, k.kept)
			}
			return
		}
	}
	// Who has not heard an owner yet gets what it asked for, also where that was given up and is there anew.
	if d.hasFrom && e.Offset != d.asked && (e.Offset < d.from || e.Offset > d.from && !r.lossy) {
		c.fail(RuleReader, r, e.Message, "reader %d begins at offset %d, asked for %d", e.Reader, e.Offset, d.from)
	}
}

// hand is a delivery of a queue.
func (c *Checker) hand(r *resource, m *copyOf, e Event) {
	switch {
	case r.damaged: // what was settled last may be among what it lost
	case m.purge == purgedNow:
		c.fail(RuleSettled, r, m.message, "message %d is delivered; it was purged, and the purge was confirmed", m.message)
	case m.kept && m.settled != Requeue:
		c.fail(RuleSettled, r, m.message, "message %d is delivered; its %s was confirmed", m.message, m.settled)
	case c.disturbed: // whoever was handed it may have been given up
	case m.seenIn == c.run && c.live(e.Session) && !e.Redelivered && !c.repeats(r, m.message):
		c.fail(RuleFlag, r, m.message, "message %d comes again and does not say so", m.message)
	case (m.settled == Accept || m.settled == Reject) && m.settleIn == c.run && c.live(e.Session) && !c.lost[m.settler]:
		c.fail(RuleSettled, r, m.message, "message %d is delivered again in the run in which it was settled (%s)", m.message, m.settled)
	case m.heldIn == c.run && c.live(m.held) && c.live(e.Session):
		c.fail(RuleHeld, r, m.message, "message %d is delivered to session %d, session %d holds it", m.message, e.Session, m.held)
	}
	if !m.seen && r.ordered && m.lane != nil {
		if h := m.lane.highest; h != nil && h.number > m.number {
			c.fail(RuleOrder, r, m.message, "channel %d published message %d before %d, which was delivered first", m.lane.id,
				m.message, h.message)
		} else {
			m.lane.highest = m
		}
	}
	if c.disturbed && !m.kept && !c.lost[m.settler] && m.late != Accept && (m.settled == Accept || m.settled == Reject) {
		m.late = m.settled
	}
	if c.live(e.Session) {
		m.held, m.heldIn = e.Session, c.run
		m.settled, m.kept, m.seenIn, m.purge = "", false, c.run, notPurged
	}
}

func (c *Checker) settle(r *resource, e Event) {
	m := r.messages[e.Message]
	if m == nil || !m.seen {
		c.fail(RuleHistory, r, e.Message, "message %d is settled and was not delivered", e.Message)
		return
	}
	if !c.live(e.Session) && c.live(m.held) {
		return // a late word of a session that a crash has ended; somebody else has the message by now
	}
	if c.scattered && m.kept && m.settled != Requeue {
		return // a late word, of a session that was given up or on an earlier delivery to this one; what has been confirmed since stands
	}
	in := uint64(0)
	if c.live(e.Session) {
		in = c.run
	}
	m.gave = true
	m.settled, m.settleIn, m.settler, m.kept, m.held = e.Settlement, in, e.Session, false, 0
}

func (c *Checker) settled(r *resource, e Event) {
	m := r.messages[e.Message]
	late := c.scattered && e.Settlement != "" && m != nil && m.gave && m.settled != e.Settlement
	if m == nil || m.settled == "" && !late {
		c.fail(RuleHistory, r, e.Message, "message %d is confirmed as settled and was not settled", e.Message)
		return
	}
	if late && m.kept && m.settled != Requeue {
		// The word of somebody who was given up is answered: the message is settled, by what somebody else has had confirmed since. Nobody says
		// whose word it was that counted.
		if m.late != Accept {
			m.late = e.Settlement
		}
		return
	}
	m.kept = true
	if late {
		m.settled, m.held, m.settleIn = e.Settlement, 0, 0
	}
}

func (r *resource) cursor(name string) *cursor {
	k := r.cursors[name]
	if k == nil {
		k = &cursor{}
		r.cursors[name] = k
	}
	return k
}

func (c *Checker) cursorSent(r *resource, e Event) {
	k := r.cursor(e.Cursor)
	k.sent = max(k.sent, e.Offset)
}

func (c *Checker) cursorKept(r *resource, e Event) {
	k := r.cursor(e.Cursor)
	if e.Offset > k.sent {
		c.fail(RuleCursor, r, 0, "cursor %s is confirmed at %d and was moved to %d only", e.Cursor, e.Offset, k.sent)
	}
	k.kept = max(k.kept, e.Offset)
}

func (c *Checker) purge(r *resource, _ Event) {
	r.purging, r.strict = true, len(r.users) == 0
	for _, id := range r.ids {
		m := r.messages[id]
		m.mayVanish = true
		m.known = m.known || m.given // if it is gone now, the loss need not have taken it
		if m.confirmed && m.purge == notPurged && m.settled != Accept && m.settled != Reject {
			m.purge = inPurge
		}
	}
}

func (c *Checker) purged(r *resource, _ Event) {
	r.purging = false
	for _, id := range r.ids {
		if m := r.messages[id]; m.purge == inPurge {
			m.purge = notPurged
			if r.strict {
				m.purge = purgedNow
			}
		}
	}
}

// purgeLost gives up what was supposed of a purge.
func (c *Checker) purgeLost(r *resource, _ Event) { r.forget() }

// forget takes back what was supposed of a run that has ended.
func (r *resource) forget() {
	r.purging = false
	for _, id := range r.ids {
		if m := r.messages[id]; m.purge == inPurge {
			m.purge = notPurged
		}
	}
}
