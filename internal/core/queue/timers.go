package queue

// maxTick bounds the messages that one Tick expires or makes due.
const maxTick = 16384

// wake is a time at which something of a message's own is to be looked at: it is due, or expires. It may have been overtaken.
type wake struct {
	at     int64
	offset uint64
}

func (w wake) before(v wake) bool { return w.at < v.at || w.at == v.at && w.offset < v.offset }

// schedule gives a message its place in the heap of times. It has one at most.
func (o *owner) schedule(p *page, x *extra) {
	if x.flags&(flagGone|flagDead|flagHeap) != 0 || x.flags&(flagDelayed|flagExpires) == 0 {
		return
	}
	x.flags |= flagHeap
	at := x.expires
	if x.flags&flagDelayed != 0 {
		at = x.due
	}
	o.push(wake{at, p.base() + uint64(x.index)})
}

func (o *owner) push(w wake) {
	o.heap = append(o.heap, w)
	i := len(o.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !w.before(o.heap[up]) {
			break
		}
		o.heap[i] = o.heap[up]
		i = up
	}
	o.heap[i] = w
}

func (o *owner) pop() wake {
	top := o.heap[0]
	n := len(o.heap) - 1
	w := o.heap[n]
	o.heap = o.heap[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && o.heap[down+1].before(o.heap[down]) {
			down++
		}
		if !o.heap[down].before(w) {
			break
		}
		o.heap[i] = o.heap[down]
		i = down
	}
	o.heap[i] = w
	return top
}

// timedAt is the extra of a message that has a place in the heap; nil if the message is gone.
func (m *Machine) timedAt(offset uint64) (*page, *extra) {
	p, i := m.page(offset)
	if p == nil {
		return nil, nil
	}
	return p, p.extra(i)
}

// tidyHeap takes out the times of messages that are gone once they are most of the heap: with a long time to live they would be there
// for that long.
func (m *Machine) tidyHeap() {
	o := m.o
	if o.stale < 1024 || o.stale < len(o.heap)/2 {
		return
	}
	old := o.heap
	o.heap, o.stale = make([]wake, 0, len(old)-o.stale), 0
	for _, w := range old {
		if _, x := m.timedAt(w.offset); x != nil {
			o.push(w)
		}
	}
}

// Tick stages what time brings: expiry, delays that are due. It says how many messages expire. At most 16 384 messages a call: NextWake then is in the past, and
// nothing is delivered before the rest is done. A message expires only after an Assign has seen it, so that even a time to live of
// 0 reaches a consumer that waits.
func (m *Machine) Tick(now int64) (expired int) {
	if !m.Serving() {
		return 0
	}
	budget := maxTick
	expired = m.tickHeap(now, &budget)
	expired += m.tickQueue(now, &budget)
	m.o.expiring = budget == 0
	return expired
}

func (m *Machine) tickHeap(now int64, budget *int) (expired int) {
	o := m.o
	var early []wake
	for len(o.heap) > 0 && o.heap[0].at <= now && *budget > 0 {
		w := o.pop()
		p, x := m.timedAt(w.offset)
		if x == nil {
			o.stale--
			continue
		}
		i := int(x.index)
		x.flags &^= flagHeap
		switch {
		case x.flags&flagDelayed != 0:
			s := o.stage()
			s.due = extend(s.due, w.offset, 0)
			if m.limited {
				o.longer(p.sizes.get(i))
			}
			*budget--
		case x.flags&flagExpires == 0 || !has(&p.ready, i):
		case x.expires > now:
			o.schedule(p, x)
		case w.offset >= o.offered:
			x.flags |= flagHeap
			early = append(early, w)
		default:
			m.lower(p, i)
			m.die(Expired, w.offset)
			expired++
			*budget--
		}
	}
	for _, w := range early {
		o.push(w)
	}
	return expired
}

// tickQueue expires by the queue's own time to live. Times of batches never fall, so it looks from the head to the first that has
// time left; those with a time of their own are in the heap.
func (m *Machine) tickQueue(now int64, budget *int) (expired int) {
	for *budget > 0 {
		p, i, ok := m.oldest()
		if !ok || p.time(i)+*m.settings.TTL > now || m.o.ttlHint >= m.o.offered {
			break
		}
		m.lower(p, i)
		m.die(Expired, m.o.ttlHint)
		m.o.ttlHint++
		expired++
		*budget--
	}
	return expired
}

// oldest is the first ready message that expires by the queue's time to live alone; ttlHint is then its offset.
func (m *Machine) oldest() (*page, int, bool) {
	if m.settings.TTL == nil {
		return nil, 0, false
	}
	for {
		p, i, ok := m.firstReady(m.o.ttlHint)
		if !ok {
			m.o.ttlHint = m.next
			return nil, 0, false
		}
		m.o.ttlHint = p.base() + uint64(i)
		if x := p.extra(i); x == nil || x.flags&flagExpires == 0 {
			return p, i, true
		}
		m.o.ttlHint++
	}
}

// NextWake is when Tick or NextDead next has something to do, in ms since 1970; 0: never. It may be in the past.
func (m *Machine) NextWake() int64 {
	if !m.Serving() {
		return 0
	}
	var at int64
	sooner := func(t int64) {
		if t > 0 && (at == 0 || t < at) {
			at = t
		}
	}
	if len(m.o.heap) > 0 {
		sooner(max(1, m.o.heap[0].at))
	}
	if p, i, ok := m.oldest(); ok {
		sooner(max(1, p.time(i)+*m.settings.TTL))
	}
	sooner(m.retryAt())
	return at
}

// Quiet reports whether neither consumers nor time nor dead letters ask anything of the owner: Assign, Tick and NextDead would do nothing,
// NextWake is 0, and the queue is not to be deleted. It looks at little memory, since it is asked for every batch.
func (m *Machine) Quiet() bool {
	if !m.Serving() || m.ndead > 0 || m.settings.TTL != nil || m.settings.Expires > 0 {
		return false
	}
	o := m.o
	return len(o.groups) == 0 && len(o.heap) == 0 && !o.abandoned && !o.expiring
}

// Awaited reports whether a consumer could take a message now.
func (m *Machine) Awaited() bool { return m.o != nil && len(m.o.groups) > 0 }
