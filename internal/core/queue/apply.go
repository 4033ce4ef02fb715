package queue

import (
	"math/bits"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
)

// ApplyBatch applies the records and the queue's events of a confirmed batch and skips the rest. It returns ErrEvent.
func (m *Machine) ApplyBatch(b batch.Batch) error {
	var err error
	b.Each(func(e batch.Entry) bool {
		switch {
		case e.Kind == batch.KindRecord:
			m.ApplyRecord(e.Offset, e.Record, b.Time)
		case ours(e):
			err = m.ApplyEvent(e.Type, e.Body)
		}
		return err == nil
	})
	return err
}

func ours(e batch.Entry) bool {
	return e.Kind == batch.KindEvent && e.Type >= batch.FirstQueueEvent && e.Type < batch.FirstStreamEvent
}

// ApplyRecord applies a confirmed record. at is its batch's time in ms since 1970. Offsets come in order, without gaps.
func (m *Machine) ApplyRecord(offset uint64, h batch.RecordHeader, at int64) {
	p, i := m.last(offset>>pageBits), int(offset&indexOf)
	m.next, m.headDirty = offset+1, true
	put(&p.live, i)
	p.n++
	p.dirty = true
	p.sizes.set(i, h.Size)
	m.messages++
	m.bytes += int64(h.Size)
	if m.settings.TTL != nil {
		p.setTime(i, at)
	}
	ready := true
	if h.Delay > 0 || h.Flags&batch.FlagTTL != 0 {
		ready = m.timed(p, i, h, at)
	}
	if m.o != nil && m.o.applied(m, h) {
		ready = false
	}
	if ready {
		put(&p.ready, i)
		m.ready++
	}
}

// timed gives a message its extra, and reports whether it is ready.
func (m *Machine) timed(p *page, i int, h batch.RecordHeader, at int64) bool {
	x := p.need(i)
	start := at + int64(h.Delay)
	ttl, expires := int64(h.TTL), h.Flags&batch.FlagTTL != 0
	if m.settings.TTL != nil && (!expires || *m.settings.TTL < ttl) {
		ttl, expires = *m.settings.TTL, true
	}
	if expires {
		x.flags |= flagExpires
		x.expires = start + ttl
	}
	if h.Delay > 0 {
		x.flags |= flagDelayed
		x.due = start
		m.delayed++
	}
	if m.o != nil {
		m.o.schedule(p, x)
	}
	return h.Delay == 0
}

// ApplyEvent applies a confirmed event of type 1 to 31. It returns ErrEvent; the machine is then unusable.
func (m *Machine) ApplyEvent(typ uint8, body []byte) error {
	e, err := parseEvent(typ, body)
	if err != nil {
		return err
	}
	if typ == EventDead && e.first != m.number+1 {
		return malformed(typ, "number out of turn")
	}
	for {
		r, ok, err := e.next(m.next)
		if err != nil || !ok {
			return err
		}
		switch typ {
		case EventGone:
			m.applyGone(r)
		case EventReturn:
			m.applyReturn(r)
		case EventDead:
			m.applyDead(r, e.reason)
		case EventDue:
			m.applyDue(r)
		}
	}
}

func (m *Machine) applyGone(r run) {
	emptied := false
	m.words(r.from, r.to, func(p *page, w int, mask uint64) {
		set := p.live[w] & mask
		if set == 0 {
			return
		}
		if m.o != nil && p.held[w]&set != 0 {
			m.letGo(p, w, set)
		}
		n := bits.OnesCount64(set)
		m.ready -= uint64(bits.OnesCount64(p.ready[w] & set))
		m.messages -= uint64(n)
		m.bytes -= p.sizes.sum(w, set)
		p.live[w] &^= set
		p.ready[w] &^= set
		p.n -= n
		p.dirty = true
		emptied = emptied || p.n == 0
		if len(p.extras) > 0 {
			m.dropExtras(p, w, set)
		}
	})
	if emptied {
		m.sweep(r)
	}
	if m.o != nil {
		m.tidyHeap()
	}
}

// dropExtras ends the extras of messages that went.
func (m *Machine) dropExtras(p *page, w int, set uint64) {
	for ; set != 0; set &= set - 1 {
		x := p.extra(w<<6 + bits.TrailingZeros64(set))
		if x == nil {
			continue
		}
		if x.flags&flagDelayed != 0 {
			m.delayed--
		}
		if x.flags&flagDead != 0 {
			m.buried(x.number)
		}
		if x.flags&flagHeap != 0 {
			m.o.stale++
		}
		p.drop(x)
	}
}

// sweep takes out the pages that a range emptied, but for the one that the next record may go to.
func (m *Machine) sweep(r run) {
	for at := m.seek(r.from >> pageBits); at < len(m.pages) && m.pages[at].base() < r.to; {
		p := m.pages[at]
		switch {
		case p.n > 0:
			at++
		case p.index >= m.next>>pageBits:
			p.extras, p.tombs = p.extras[:0], 0
			p.times = p.times[:0]
			p.sizes = sizes{narrow: p.sizes.narrow[:0], wide: p.sizes.wide[:0]}
			at++
		default:
			m.dropPage(at)
		}
	}
}

func (m *Machine) applyReturn(r run) {
	m.words(r.from, r.to, func(p *page, w int, mask uint64) {
		for set := p.live[w] & mask; set != 0; set &= set - 1 {
			i := w<<6 + bits.TrailingZeros64(set)
			x := p.need(i)
			if x.flags&(flagDelayed|flagDead) != 0 {
				continue // no owner returns these
			}
			x.count = r.count
			p.dirty = true
			m.rise(p, i)
		}
	})
}

func (m *Machine) applyDue(r run) {
	m.words(r.from, r.to, func(p *page, w int, mask uint64) {
		for set := p.live[w] & mask; set != 0 && len(p.extras) > 0; set &= set - 1 {
			i := w<<6 + bits.TrailingZeros64(set)
			x := p.extra(i)
			if x == nil || x.flags&flagDelayed == 0 {
				continue
			}
			x.flags &^= flagDelayed
			x.due = 0
			m.delayed--
			p.dirty = true
			m.rise(p, i)
		}
	})
}

// rise makes a message ready.
func (m *Machine) rise(p *page, i int) {
	if !has(&p.ready, i) {
		put(&p.ready, i)
		m.ready++
	}
	if m.o != nil {
		m.o.rose(p, i)
	}
}

func (m *Machine) applyDead(r run, reason Reason) {
	first := m.number + 1 - r.from
	m.words(r.from, r.to, func(p *page, w int, mask uint64) {
		set := p.live[w] & mask
		if m.o != nil && p.held[w]&set != 0 {
			m.letGo(p, w, set)
		}
		m.ready -= uint64(bits.OnesCount64(p.ready[w] & set))
		p.ready[w] &^= set
		for ; set != 0; set &= set - 1 {
			i := w<<6 + bits.TrailingZeros64(set)
			x := p.need(i)
			if x.flags&flagDead != 0 {
				continue
			}
			if x.flags&flagDelayed != 0 {
				x.flags &^= flagDelayed
				x.due = 0
				m.delayed--
			}
			offset := p.base() + uint64(i)
			x.flags |= flagDead
			x.reason, x.number = reason, first+offset
			p.dirty = true
			m.bury(x.number, offset)
		}
	})
	m.number += r.to - r.from
	m.headDirty = true
}

// bury lists a dead letter.
func (m *Machine) bury(number, offset uint64) {
	if m.dead == nil {
		m.dead = new([DeadLanes][]dead)
	}
	lane := &m.dead[number%DeadLanes]
	*lane = append(*lane, dead{number, offset})
	m.ndead++
}

// buried takes a dead letter off the list. Nearly always it is the first of its lane, or near it.
func (m *Machine) buried(number uint64) {
	lane := &m.dead[number%DeadLanes]
	if at, ok := findDead(*lane, number); ok {
		copy((*lane)[1:at+1], (*lane)[:at])
		*lane = (*lane)[1:]
		m.ndead--
	}
}

func findDead(lane []dead, number uint64) (int, bool) {
	return slices.BinarySearchFunc(lane, number, func(d dead, number uint64) int {
		switch {
		case d.number < number:
			return -1
		case d.number > number:
			return 1
		}
		return 0
	})
}
