package partition

// Source is one gateway's stream of publishes into a partition: which number comes next, and up to which one everything is
// confirmed. It lives with the stream and is not logged. It must not be copied once a number was taken.
type Source struct {
	Producer uint64
	expect   uint64
	told     uint64 // Published said: everything below
	waits    []wait // ascending in both
	head     int
	few      [2]wait // where waits begins, so that a stream with little on its way reaches for no other place
}

// wait says that numbers below upTo are confirmed once position at is.
type wait struct{ at, upTo uint64 }

// NewSource opens a stream. first is the lowest number that the gateway may still send: it expects the number after the last one
// in the log, or first if that is higher. Nothing is answered before it is sent again: some of the numbers up to the last may have
// been refused, and the refusal may have been lost with the older stream.
func NewSource(t *Producers, producer, first uint64) Source {
	last, _ := t.Last(producer)
	return Source{Producer: producer, expect: max(last+1, first), told: max(first, 1)}
}

// Expect is the number that must come next.
func (s *Source) Expect() uint64 { return s.expect }

// Admit judges a publish of count numbers from first on. ok false: it must be refused with Expect. Otherwise the first repeated of
// its numbers were taken before, and have to be judged one by one.
func (s *Source) Admit(first uint64, count uint32) (repeated uint32, ok bool) {
	if first > s.expect {
		return 0, false
	}
	end := first + uint64(count)
	if first == s.expect {
		s.expect = end
		return 0, true
	}
	repeated = uint32(min(s.expect-first, uint64(count)))
	s.expect = max(s.expect, end)
	return repeated, true
}

// Taken says that all numbers below upTo are confirmed, or were refused, once position at is confirmed.
func (s *Source) Taken(upTo, at uint64) {
	if n := len(s.waits); n > s.head {
		last := &s.waits[n-1]
		at = max(at, last.at)
		if at == last.at {
			last.upTo = max(last.upTo, upTo)
			return
		}
	}
	if s.head > 0 && len(s.waits) == cap(s.waits) {
		s.waits = s.waits[:copy(s.waits, s.waits[s.head:])]
		s.head = 0
	}
	if s.waits == nil {
		s.waits = s.few[:0]
	}
	s.waits = append(s.waits, wait{at, upTo})
}

// Confirmed tells how far the log is confirmed. news reports whether the gateway has to be told, and then everything below upTo
// that was not refused is confirmed.
func (s *Source) Confirmed(position uint64) (upTo uint64, news bool) {
	for s.head < len(s.waits) && s.waits[s.head].at <= position {
		s.told = max(s.told, s.waits[s.head].upTo)
		s.head++
		news = true
	}
	if s.head == len(s.waits) {
		s.waits, s.head = s.waits[:0], 0
		if cap(s.waits) > 1024 {
			s.waits = nil
		}
	}
	return s.told, news
}

// Waiting reports whether numbers are taken that are not confirmed, and the first of them.
func (s *Source) Waiting() (first uint64, waiting bool) { return s.told, s.head < len(s.waits) }

// Needs reports whether a number that is taken and not confirmed is in the log below position.
func (s *Source) Needs(position uint64) bool {
	return s.head < len(s.waits) && s.waits[s.head].at <= position
}
