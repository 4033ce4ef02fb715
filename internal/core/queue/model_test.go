package queue_test

import (
	"cmp"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	. "github.com/tanist/tanist/internal/core/queue"
)

// The model: what a queue is, said as plainly as possible. Every question is answered by looking at every message.

type fate uint8

const (
	nothing fate = iota
	goes
	returns
	dies
	falls // due
)

// decision is one message's part in an event.
type decision struct {
	offset uint64
	fate   fate
	reason Reason
	count  uint32
	number uint64
}

type message struct {
	header  batch.RecordHeader
	at      int64
	live    bool
	delayed bool
	dead    bool
	reason  Reason
	number  uint64
	count   uint32
	// The owner's:
	holder *Holder
	staged fate
	again  bool
}

type modelConsumer struct {
	holder  Holder
	opt     Options
	credit  int64
	order   int
	inLine  bool
	arrived int // when it last joined the end of its line
}

type model struct {
	s        Settings
	msgs     []*message // applied
	number   uint64     // of the last dead letter applied
	owner    bool
	consumer []*modelConsumer // subscribed, by order
	ahead    []*message       // staged records; live until a staged event ends them
	decided  []decision       // since TakeEvents
	staged   uint64           // number of the last dead letter staged
	clock    int              // for orders
	active   *modelConsumer
	inherits uint64
	offered  uint64
	unused   int64
	left     bool
}

func (q *model) ttl(m *message) (int64, bool) {
	ttl, ok := int64(m.header.TTL), m.header.Flags&batch.FlagTTL != 0
	if q.s.TTL != nil && (!ok || *q.s.TTL < ttl) {
		return *q.s.TTL, true
	}
	return ttl, ok
}

func (q *model) expiry(m *message) (int64, bool) {
	ttl, ok := q.ttl(m)
	return m.at + int64(m.header.Delay) + ttl, ok
}

func (m *message) ready() bool {
	return m.live && !m.delayed && !m.dead && m.holder == nil && m.staged == nothing
}

// length is the number and bytes of messages that are ready once everything staged has come.
func (q *model) length() (n, bytes int64) {
	add := func(m *message) {
		n++
		bytes += int64(m.header.Size)
	}
	for _, m := range q.msgs {
		if m.ready() || m.staged == returns || m.staged == falls {
			add(m)
		}
	}
	for _, m := range q.ahead {
		if m.live && m.header.Delay == 0 {
			add(m)
		}
	}
	return n, bytes
}

func (q *model) limited() bool { return q.s.MaxLength != nil || q.s.MaxBytes != nil }

func (q *model) tooLong(n, bytes int64) bool {
	return q.s.MaxLength != nil && n > *q.s.MaxLength || q.s.MaxBytes != nil && bytes > *q.s.MaxBytes
}

func (q *model) admit(h batch.RecordHeader) bool {
	n, bytes := q.length()
	if q.s.Overflow == RejectPublish && q.tooLong(n+1, bytes+int64(h.Size)) {
		return false
	}
	q.ahead = append(q.ahead, &message{header: h, live: true})
	return true
}

func (q *model) decide(offset uint64, f fate, reason Reason, count uint32) {
	if f == dies && q.s.DeadLetterExchange == nil {
		f = goes
	}
	if offset < uint64(len(q.msgs)) {
		q.msgs[offset].staged = f
	} else {
		q.ahead[offset-uint64(len(q.msgs))].live = false
	}
	q.decided = append(q.decided, decision{offset: offset, fate: f, reason: reason, count: count})
}

// take is what TakeEvents must give, by kind, reason, offset.
func (q *model) take() []decision {
	if q.limited() && q.s.Overflow == DropHead {
		for q.tooLong(q.length()) && q.dropFirst() {
		}
	}
	ds := q.decided
	q.decided = nil
	slices.SortFunc(ds, func(a, b decision) int {
		rank := func(d decision) int { return map[fate]int{goes: 0, returns: 1, falls: 2, dies: 3}[d.fate] }
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.reason, b.reason), cmp.Compare(a.offset, b.offset))
	})
	for i := range ds {
		if ds[i].fate == dies {
			q.staged++
			ds[i].number = q.staged
		}
	}
	return ds
}

// dropFirst drops the oldest that may be dropped: what is on its way back into the queue may only once it is there.
func (q *model) dropFirst() bool {
	for off, m := range q.msgs {
		if m.ready() {
			q.decide(uint64(off), dies, Overflowed, 0)
			return true
		}
	}
	for i, m := range q.ahead {
		if m.live && m.header.Delay == 0 {
			q.decide(uint64(len(q.msgs)+i), dies, Overflowed, 0)
			return true
		}
	}
	return false
}

// applyRecord and applyDecision are the log.
func (q *model) applyRecord(h batch.RecordHeader, at int64) {
	m := &message{header: h, at: at, live: true, delayed: h.Delay > 0}
	if len(q.ahead) > 0 {
		if !q.ahead[0].live {
			m.staged = goes
		}
		q.ahead = q.ahead[1:]
	}
	q.msgs = append(q.msgs, m)
}

func (q *model) applyDecision(d decision) {
	m := q.msgs[d.offset]
	m.staged = nothing
	switch d.fate {
	case goes:
		m.live = false
	case returns:
		m.count = d.count
	case dies:
		m.dead, m.delayed, m.reason, m.number = true, false, d.reason, d.number
		q.number = d.number
	case falls:
		m.delayed = false
	}
}

// promote forgets everything that an owner knew.
func (q *model) promote(now int64) {
	for _, m := range q.msgs {
		m.holder, m.staged, m.again = nil, nothing, false
	}
	q.owner, q.consumer, q.ahead, q.decided, q.active = true, nil, nil, nil, nil
	q.inherits, q.offered, q.staged, q.unused, q.left = uint64(len(q.msgs)), uint64(len(q.msgs)), q.number, now, false
}

func (q *model) find(h Holder) *modelConsumer {
	for _, c := range q.consumer {
		if c.holder == h {
			return c
		}
	}
	return nil
}

func (q *model) holds(h Holder) (n int) {
	for _, m := range q.msgs {
		if m.holder != nil && *m.holder == h {
			n++
		}
	}
	return n
}

func (q *model) subscribe(h Holder, o Options) bool {
	if c := q.find(h); c != nil {
		q.leave(c)
	}
	for _, c := range q.consumer {
		if c.opt.Exclusive || o.Exclusive {
			return false
		}
	}
	q.clock++
	q.consumer = append(q.consumer, &modelConsumer{holder: h, opt: o, credit: o.Credit, order: q.clock})
	q.left = false
	q.line()
	return true
}

func (q *model) leave(c *modelConsumer) {
	q.consumer = slices.DeleteFunc(q.consumer, func(x *modelConsumer) bool { return x == c })
	if q.active == c {
		q.active = nil
	}
	q.line()
}

func (q *model) unsubscribe(h Holder, now int64) {
	if c := q.find(h); c != nil {
		q.leave(c)
		q.gone(now)
	}
}

func (q *model) gone(now int64) {
	if len(q.consumer) == 0 {
		q.unused, q.left = now, true
	}
}

// line lets everyone who can take something stand in line, new ones at the end.
func (q *model) line() {
	if q.s.SingleActive && q.active == nil {
		for _, c := range q.consumer {
			if q.active == nil || c.opt.Priority > q.active.opt.Priority {
				q.active = c
			}
		}
	}
	for _, c := range q.consumer {
		can := c.credit > 0 && (c.opt.NoAck || c.opt.Prefetch == 0 || q.holds(c.holder) < int(c.opt.Prefetch)) &&
			(!q.s.SingleActive || q.active == c)
		if can && !c.inLine {
			q.clock++
			c.arrived = q.clock
		}
		c.inLine = can
	}
}

func (q *model) nextInLine() *modelConsumer {
	var best *modelConsumer
	for _, c := range q.consumer {
		if c.inLine && (best == nil || c.opt.Priority > best.opt.Priority ||
			c.opt.Priority == best.opt.Priority && c.arrived < best.arrived) {
			best = c
		}
	}
	return best
}

func (q *model) assign(limit int) []Assignment {
	var as []Assignment
	for q.nextInLine() != nil {
		if len(as) == limit {
			return as
		}
		off := slices.IndexFunc(q.msgs, (*message).ready)
		if off < 0 {
			break
		}
		c := q.nextInLine()
		as = append(as, q.give(uint64(off), c.holder, c.opt.NoAck))
		c.credit -= int64(q.msgs[off].header.Size)
		q.clock++
		c.arrived = q.clock
		q.line()
	}
	q.offered = uint64(len(q.msgs))
	return as
}

func (q *model) give(off uint64, h Holder, noAck bool) Assignment {
	m := q.msgs[off]
	a := Assignment{
		Holder: h, Offset: off, Size: m.header.Size, Count: m.count, Again: m.count > 0 || m.again || off < q.inherits,
	}
	if noAck {
		q.decide(off, goes, Accepted, 0)
	} else {
		m.holder = &h
	}
	return a
}

func (q *model) get(gateway uint64, noAck bool, now int64) (Assignment, uint64, bool) {
	q.tick(now)
	q.unused = max(q.unused, now)
	off := slices.IndexFunc(q.msgs, (*message).ready)
	if off < 0 {
		return Assignment{}, 0, false
	}
	return q.give(uint64(off), Holder{Gateway: gateway}, noAck), q.count((*message).ready), true
}

func (q *model) count(f func(*message) bool) (n uint64) {
	for _, m := range q.msgs {
		if f(m) {
			n++
		}
	}
	return n
}

func (q *model) settle(h Holder, first, last uint64, o Outcome) (n uint64) {
	for off, m := range q.msgs {
		if m.holder == nil || *m.holder != h || uint64(off) < first || uint64(off) > last {
			continue
		}
		n++
		m.holder = nil
		switch o {
		case Accept:
			q.decide(uint64(off), goes, Accepted, 0)
		case Reject:
			q.decide(uint64(off), dies, Rejected, 0)
		default:
			q.back(uint64(off))
		}
	}
	q.line()
	return n
}

func (q *model) back(off uint64) {
	count := q.msgs[off].count + 1
	if q.s.DeliveryLimit != nil && int64(count) > *q.s.DeliveryLimit {
		q.decide(off, dies, TooOften, 0)
		return
	}
	q.decide(off, returns, 0, count)
}

func (q *model) purge() (n uint64) {
	for off, m := range q.msgs {
		if m.ready() {
			q.decide(uint64(off), goes, Purged, 0)
			n++
		}
	}
	return n
}

func (q *model) attach(gateway uint64, claims []Claim, now int64) {
	for _, c := range slices.Clone(q.consumer) {
		if c.holder.Gateway == gateway {
			q.leave(c)
			q.unused = max(q.unused, now)
		}
	}
	for off, m := range q.msgs {
		if m.holder != nil && m.holder.Gateway == gateway &&
			!slices.Contains(claims, Claim{Consumer: m.holder.Consumer, Offset: uint64(off)}) {
			m.holder, m.again = nil, true
		}
	}
	sorted := slices.Clone(claims)
	slices.SortFunc(sorted, func(a, b Claim) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Consumer, b.Consumer))
	})
	for _, k := range sorted {
		if k.Offset < uint64(len(q.msgs)) && q.msgs[k.Offset].ready() {
			q.msgs[k.Offset].holder = &Holder{Gateway: gateway, Consumer: k.Consumer}
		}
	}
	q.line()
}

func (q *model) release(gateway uint64, now int64) {
	had := false
	for _, c := range slices.Clone(q.consumer) {
		if c.holder.Gateway == gateway {
			q.leave(c)
			had = true
		}
	}
	for off, m := range q.msgs {
		if m.holder != nil && m.holder.Gateway == gateway {
			m.holder = nil
			q.back(uint64(off))
		}
	}
	if had {
		q.gone(now)
	}
}

func (q *model) tick(now int64) {
	for off, m := range q.msgs {
		if m.live && m.delayed && m.staged == nothing && m.at+int64(m.header.Delay) <= now {
			q.decide(uint64(off), falls, 0, 0)
		}
		if at, ok := q.expiry(m); ok && at <= now && m.ready() && uint64(off) < q.offered {
			q.decide(uint64(off), dies, Expired, 0)
		}
	}
}

// wake is when something of the messages' own is next to be looked at; 0: never.
func (q *model) wake() (first int64) {
	for _, m := range q.msgs {
		at, ok := q.expiry(m)
		switch {
		case m.live && m.delayed && m.staged == nothing:
			at = m.at + int64(m.header.Delay)
		case !ok || !m.ready():
			continue
		}
		if first == 0 || at < first {
			first = at
		}
	}
	return first
}
