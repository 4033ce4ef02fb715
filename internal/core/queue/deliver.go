package queue

import (
	"math/bits"
	"slices"
)

// AssignBytes is how much one Assign decides on, in bytes of messages, and the one message that passes it: between two calls a gateway can
// take credit back.
const AssignBytes = 8 << 20

// Assign decides at most limit deliveries, of about AssignBytes, and appends them to dst in the order of delivery. It must be called
// after every Tick, consumers or not: it is what lets messages with a short time to live have their one chance.
func (m *Machine) Assign(limit int, dst []Assignment) []Assignment {
	if !m.Serving() || m.o.expiring {
		return dst
	}
	o := m.o
	bytes := int64(0)
	for n := 0; len(o.groups) > 0; n++ {
		if n == limit || bytes >= AssignBytes {
			return dst // what is left has not been offered
		}
		p, i, ok := m.first()
		if !ok {
			break
		}
		g := &o.groups[0]
		c := g.ring
		g.ring = c.next
		dst = append(dst, m.assign(c, p, i, c.options.NoAck))
		size := int64(dst[len(dst)-1].Size)
		c.credit -= size
		bytes += size
		m.update(c)
	}
	o.offered = m.next
	return dst
}

// assign hands a ready message to a consumer, who holds it or (noAck) has settled it.
func (m *Machine) assign(c *consumer, p *page, i int, noAck bool) Assignment {
	offset := p.base() + uint64(i)
	m.o.hint = offset + 1
	m.lower(p, i)
	a := Assignment{Holder: c.holder, Offset: offset, Size: p.sizes.get(i), Again: offset < m.o.inherited}
	if x := p.extra(i); x != nil {
		a.Count = x.count
		a.Again = a.Again || x.count > 0 || x.flags&flagAgain != 0
	}
	if noAck {
		s := m.o.stage()
		s.gone[Accepted] = extend(s.gone[Accepted], offset, 0)
	} else {
		m.o.hold(c, p, i)
	}
	return a
}

func (o *owner) hold(c *consumer, p *page, i int) {
	if p.blocks == nil {
		p.blocks = make([]*block, words)
	}
	b := p.blocks[i>>6]
	if b == nil {
		if n := len(o.blocks); n > 0 {
			b, o.blocks = o.blocks[n-1], o.blocks[:n-1]
		} else {
			b = new(block)
		}
		p.blocks[i>>6] = b
	}
	b[i&63] = c.slot
	put(&p.held, i)
	p.nheld++
	c.held++
	o.held++
}

// drop takes messages of one word, all held by c, from it.
func (o *owner) drop(c *consumer, p *page, w int, set uint64) {
	n := bits.OnesCount64(set)
	p.held[w] &^= set
	p.nheld -= n
	c.held -= uint64(n)
	o.held -= uint64(n)
	if p.held[w] == 0 {
		if len(o.blocks) < words {
			o.blocks = append(o.blocks, p.blocks[w])
		}
		p.blocks[w] = nil
	}
}

// letGo takes messages of one word from whoever holds them. What an owner stages is held by nobody any more, so that this finds
// something only if an event came that this owner did not stage.
func (m *Machine) letGo(p *page, w int, set uint64) {
	for set &= p.held[w]; set != 0; set &= set - 1 {
		c := m.o.consumers()[p.blocks[w][bits.TrailingZeros64(set)]]
		m.o.drop(c, p, w, set&-set)
		m.update(c)
		m.o.forget(c)
	}
}

// Get assigns one ready message to consumer 0 of a gateway (noAck: settles it at once), after a Tick. left is the ready messages that
// remain.
func (m *Machine) Get(gateway uint64, noAck bool, now int64) (a Assignment, left uint64, ok bool) {
	if m.Tick(now); !m.Serving() || m.o.expiring {
		return a, 0, false
	}
	m.Touch(now)
	p, i, ok := m.first()
	if !ok {
		return a, 0, false
	}
	c := m.o.slot(Holder{Gateway: gateway})
	a = m.assign(c, p, i, noAck)
	m.o.forget(c)
	return a, m.ready, true
}

// Settle settles those of the offsets first … last that h holds, and returns how many they were. h may take further messages
// at once; the event is staged.
func (m *Machine) Settle(h Holder, first, last uint64, outcome Outcome) uint64 {
	if !m.Attaching() || last < first {
		return 0
	}
	c := m.o.lookup(h)
	if c == nil || c.held == 0 {
		return 0
	}
	before := c.held
	m.words(first, min(last, m.next)+1, func(p *page, w int, mask uint64) {
		set := p.held[w] & mask
		if set == 0 {
			return
		}
		b := p.blocks[w]
		var mine uint64
		for rest := set; rest != 0; rest &= rest - 1 {
			if b[bits.TrailingZeros64(rest)] == c.slot {
				mine |= rest & -rest
			}
		}
		if mine != 0 {
			m.o.drop(c, p, w, mine)
			m.settled(p, w, mine, outcome)
		}
	})
	n := before - c.held
	m.update(c)
	m.o.forget(c)
	return n
}

// settled stages the outcome for messages of one word that nobody holds any more.
func (m *Machine) settled(p *page, w int, set uint64, outcome Outcome) {
	base := p.base() + uint64(w<<6)
	switch outcome {
	case Accept:
		s := m.o.stage()
		for set != 0 {
			lo := bits.TrailingZeros64(set)
			n := bits.TrailingZeros64(^(set >> lo))
			from := base + uint64(lo)
			if runs := s.gone[Accepted]; len(runs) > 0 && runs[len(runs)-1].to == from {
				runs[len(runs)-1].to += uint64(n)
			} else {
				s.gone[Accepted] = append(runs, run{from: from, to: from + uint64(n)})
			}
			if lo+n == 64 {
				return
			}
			set &^= (1<<n - 1) << lo
		}
	case Reject:
		for ; set != 0; set &= set - 1 {
			m.die(Rejected, base+uint64(bits.TrailingZeros64(set)))
		}
	default:
		for ; set != 0; set &= set - 1 {
			m.back(p, w<<6+bits.TrailingZeros64(set))
		}
	}
}

// back stages the return of a message to its place, or its death if it came back too often.
func (m *Machine) back(p *page, i int) {
	count := uint32(1)
	if x := p.extra(i); x != nil {
		count = x.count + min(1, ^x.count)
	}
	offset := p.base() + uint64(i)
	if limit := m.settings.DeliveryLimit; limit != nil && *limit >= 0 && int64(count) > *limit {
		m.die(TooOften, offset)
		return
	}
	s := m.o.stage()
	s.returns = extend(s.returns, offset, count)
	if m.limited {
		m.o.longer(p.sizes.get(i))
	}
}

// Purge stages the drop of every ready message and returns their number. What is held, delayed or dead stays.
func (m *Machine) Purge() uint64 {
	if !m.Serving() {
		return 0
	}
	var n uint64
	for {
		p, i, ok := m.first()
		if !ok {
			break
		}
		m.lower(p, i)
		s := m.o.stage()
		s.gone[Purged] = extend(s.gone[Purged], m.o.hint, 0)
		n++
	}
	return n
}

// Attach begins a gateway's new stream: its consumers are gone, but for those kept, which take nothing until they subscribe anew; it holds
// what it claims, and what it held but does not claim was never received, so it is ready again without having been counted. Claims of what does not live, or is
// held by another, are denied; but of two gateways that claim the same before Claimed, that one has it which had the later stream (last). Which were
// denied is returned, or before Claimed by that: by then it is known. The claims must include deliveries whose settle is not confirmed yet, ahead of that settle. Only
// while Attaching; before, the claims would be lost. The queue was in use until now if the gateway had a consumer.
func (m *Machine) Attach(gateway uint64, last LastStream, claims []Claim, kept []Kept, now int64) (denied []Denied) {
	o := m.o
	if o.claiming {
		o.await(gateway, kept)
	}
	keeps := make(map[uint64]bool, len(kept))
	for _, k := range kept {
		keeps[k.Consumer] = true
	}
	for _, c := range o.consumers() {
		switch {
		case c == nil || !c.subscribed || c.holder.Gateway != gateway:
		case keeps[c.holder.Consumer]:
			c.kept, c.credit = true, 0
			m.update(c)
			delete(o.audience.awaited, c.holder)
		default:
			m.leave(c)
			m.Touch(now)
		}
	}
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b Claim) int {
		switch {
		case a.Offset < b.Offset, a.Offset == b.Offset && a.Consumer < b.Consumer:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	m.eachHeld(gateway, func(c *consumer, p *page, i int) {
		want := Claim{Consumer: c.holder.Consumer, Offset: p.base() + uint64(i)}
		at, _ := slices.BinarySearchFunc(claims, want.Offset, func(k Claim, offset uint64) int {
			if k.Offset < offset {
				return -1
			}
			return 1
		})
		for ; at < len(claims) && claims[at].Offset == want.Offset; at++ {
			if claims[at] == want {
				return
			}
		}
		o.drop(c, p, i>>6, 1<<(i&63))
		p.need(i).flags |= flagAgain
		m.rise(p, i)
		if m.limited {
			o.longer(p.sizes.get(i))
		}
	})
	denied = m.claim(gateway, last, claims)
	m.tidyConsumers(gateway)
	if o.claiming && len(denied) > 0 {
		e := o.gathers()
		e.denied = append(e.denied, denied...)
		return nil
	}
	return denied
}

// claim gives a gateway what it claims and may have, and returns which claims are denied, its own or before Claimed another's.
func (m *Machine) claim(gateway uint64, last LastStream, claims []Claim) (denied []Denied) {
	o := m.o
	if o.claiming && len(claims) > 0 {
		o.gathers().claimants[gateway] = last
	}
	for _, k := range claims {
		p, i := m.page(k.Offset)
		switch {
		case p != nil && has(&p.ready, i):
			m.lower(p, i)
		case p != nil && has(&p.held, i):
			c := o.audience.list[p.blocks[i>>6][i&63]]
			if c.holder.Gateway == gateway {
				continue
			}
			if !o.claiming || !o.early.claimants[c.holder.Gateway].before(last) {
				denied = append(denied, Denied{gateway, k})
				continue
			}
			denied = append(denied, Denied{c.holder.Gateway, Claim{c.holder.Consumer, k.Offset}})
			o.drop(c, p, i>>6, 1<<(i&63))
			m.update(c)
			o.forget(c)
		default:
			denied = append(denied, Denied{gateway, k})
			continue
		}
		o.hold(o.slot(Holder{Gateway: gateway, Consumer: k.Consumer}), p, i)
	}
	return denied
}

// Pause keeps the places of a gateway's consumers, which take nothing until they subscribe anew, as those that Attach keeps: the way to it is lost,
// and it attaches anew once that is back, or is released.
func (m *Machine) Pause(gateway uint64) {
	for _, c := range m.o.consumers() {
		if c != nil && c.subscribed && c.holder.Gateway == gateway {
			c.kept, c.credit = true, 0
			m.update(c)
		}
	}
}

// ReleaseGateway ends a gateway: its consumers go, what it holds is released (staged as returns, counted). Before Claimed that waits until then:
// another gateway may claim the same, and have the better right to it.
func (m *Machine) ReleaseGateway(gateway uint64, now int64) {
	had := false
	m.o.forgetAwaited(gateway)
	for _, c := range m.o.consumers() {
		if c != nil && c.subscribed && c.holder.Gateway == gateway {
			m.leave(c)
			had = true
		}
	}
	if m.o.claiming {
		e := m.o.gathers()
		e.released = append(e.released, gateway)
	} else {
		m.giveBack(gateway)
	}
	m.tidyConsumers(gateway)
	if had {
		m.left(now)
	}
}

// giveBack releases what a gateway holds that has ended.
func (m *Machine) giveBack(gateway uint64) {
	m.eachHeld(gateway, func(c *consumer, p *page, i int) {
		m.o.drop(c, p, i>>6, 1<<(i&63))
		m.back(p, i)
	})
	m.tidyConsumers(gateway)
}

// tidyConsumers forgets those of a gateway that hold nothing any more.
func (m *Machine) tidyConsumers(gateway uint64) {
	for _, c := range m.o.consumers() {
		if c != nil && c.holder.Gateway == gateway {
			m.o.forget(c)
		}
	}
}

// eachHeld calls f for everything that a gateway's consumers hold, in order of offset. f may let it go.
func (m *Machine) eachHeld(gateway uint64, f func(c *consumer, p *page, i int)) {
	if m.o.held == 0 {
		return
	}
	for _, p := range m.pages {
		if p.nheld == 0 {
			continue
		}
		for w, set := range p.held {
			for ; set != 0; set &= set - 1 {
				i := bits.TrailingZeros64(set)
				if c := m.o.consumers()[p.blocks[w][i]]; c.holder.Gateway == gateway {
					f(c, p, w<<6+i)
				}
			}
		}
	}
}
