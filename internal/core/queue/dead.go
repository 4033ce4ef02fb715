package queue

import "slices"

const (
	firstRetry = 1000  // milliseconds
	lastRetry  = 30000 // milliseconds
)

// lane is the owner's work with one lane of dead letters.
type lane struct {
	number uint64 // under way, or kept; 0: none
	done   uint64 // last that was settled here, its event perhaps not confirmed
	kept   bool
	retry  int64
	wait   int64
	since  int64
	why    string
}

// NextDead gives dead letters to publish now, in order of number, and takes them as under way: at most one of each lane.
func (m *Machine) NextDead(now int64, dst []DeadLetter) []DeadLetter {
	if !m.Serving() || m.ndead == 0 {
		return dst
	}
	if m.o.lanes == nil {
		m.o.lanes = new([DeadLanes]lane)
	}
	start := len(dst)
	for at := range m.o.lanes {
		l := &m.o.lanes[at]
		if l.number != 0 && (!l.kept || l.retry > now) {
			continue
		}
		list := m.dead[at]
		i, found := findDead(list, max(l.number, l.done+1))
		if l.number != 0 && !found {
			*l = lane{done: l.number} // it went without being asked for
		}
		if i == len(list) {
			continue
		}
		l.number, l.kept = list[i].number, false
		p, index := m.page(list[i].offset)
		x := p.extra(index)
		dst = append(dst, DeadLetter{
			Number: l.number, Offset: list[i].offset, Reason: x.reason, Count: x.count, Size: p.sizes.get(index), Lane: uint8(at),
		})
	}
	slices.SortFunc(dst[start:], func(a, b DeadLetter) int {
		if a.Number < b.Number {
			return -1
		}
		return 1
	})
	return dst
}

// under is the lane in which a number is under way, and where the message lies.
func (m *Machine) under(number uint64) (*lane, uint64, bool) {
	if !m.Serving() || m.o.lanes == nil || number == 0 || m.dead == nil {
		return nil, 0, false
	}
	l := &m.o.lanes[number%DeadLanes]
	list := m.dead[number%DeadLanes]
	at, ok := findDead(list, number)
	if !ok || l.number != number {
		return nil, 0, false
	}
	return l, list[at].offset, true
}

// DeadSettled stages the end of a dead letter that was published, or is to be dropped. Another number than one under way is
// ignored.
func (m *Machine) DeadSettled(number uint64) {
	l, offset, ok := m.under(number)
	if !ok {
		return
	}
	*l = lane{done: number}
	s := m.o.stage()
	s.gone[Lettered] = extend(s.gone[Lettered], offset, 0)
}

// DeadKept says that a target was missing or full. NextDead gives it again a second later, later each time, up to half a minute.
func (m *Machine) DeadKept(number uint64, why string, now int64) {
	l, _, ok := m.under(number)
	if !ok || l.kept {
		return
	}
	if l.wait == 0 {
		l.since = now
	}
	l.wait = min(max(firstRetry, 2*l.wait), lastRetry)
	l.kept, l.retry, l.why = true, now+l.wait, why
}

// Stuck is how many lanes of dead letters are held up because a target was missing or full, since when the oldest has been, and
// why; for people. n 0: none.
func (m *Machine) Stuck() (n int, since int64, why string) {
	if m.o == nil || m.o.lanes == nil {
		return 0, 0, ""
	}
	for _, l := range m.o.lanes {
		if l.wait == 0 {
			continue
		}
		if n++; n == 1 || l.since < since {
			since, why = l.since, l.why
		}
	}
	return n, since, why
}

// retryAt is when a kept dead letter is next to be tried; 0: none.
func (m *Machine) retryAt() int64 {
	var at int64
	if m.o.lanes == nil {
		return 0
	}
	for _, l := range m.o.lanes {
		if l.kept && (at == 0 || l.retry < at) {
			at = l.retry
		}
	}
	return at
}
