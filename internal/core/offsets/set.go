// Package offsets keeps sets of offsets that come and go nearly in order, such as what a consumer holds. It knows nothing of what they number.
package offsets

import "sort"

// Set is a set of offsets below 1<<63. They come nearly in ascending order, and go nearly in that order, so it is a sorted slice whose front is
// consumed; what goes out of order is marked, and is dropped when the front reaches it. The zero Set is empty and ready.
type Set struct {
	offs []uint64 // offset<<1, with the low bit set once it is gone; ascending
	head int
	live int
}

// Len is how many offsets the set holds.
func (s *Set) Len() int { return s.live }

// Add puts an offset into the set. One that is there already is ignored.
func (s *Set) Add(off uint64) {
	v := off << 1
	n := len(s.offs)
	if n == s.head {
		s.offs, s.head = s.offs[:0], 0
		n = 0
	}
	if n == 0 || s.offs[n-1] < v {
		s.compact()
		s.offs = append(s.offs, v)
		s.live++
		return
	}
	i := s.find(off)
	if i < n && s.offs[i]>>1 == off {
		if s.offs[i]&1 != 0 {
			s.offs[i] = v
			s.live++
		}
		return
	}
	s.offs = append(s.offs, 0)
	copy(s.offs[i+1:], s.offs[i:])
	s.offs[i] = v
	s.live++
}

// compact drops what is gone, once that is most of a long slice, so that memory follows what the set holds.
func (s *Set) compact() {
	if len(s.offs) < cap(s.offs) || len(s.offs) < 64 || s.live > len(s.offs)/2 {
		return
	}
	out := s.offs[:0]
	for _, v := range s.offs[s.head:] {
		if v&1 == 0 {
			out = append(out, v)
		}
	}
	s.offs, s.head = out, 0
}

func (s *Set) find(off uint64) int {
	return s.head + sort.Search(len(s.offs)-s.head, func(i int) bool { return s.offs[s.head+i]>>1 >= off })
}

// Remove takes an offset out and reports whether it was there.
func (s *Set) Remove(off uint64) bool {
	i := s.head
	if i == len(s.offs) {
		return false
	}
	if s.offs[i]>>1 != off {
		i = s.find(off)
	}
	if i == len(s.offs) || s.offs[i] != off<<1 {
		return false
	}
	s.offs[i] |= 1
	s.live--
	for s.head < len(s.offs) && s.offs[s.head]&1 != 0 {
		s.head++
	}
	return true
}

// Least is the lowest offset of the set; ok is false where none is.
func (s *Set) Least() (off uint64, ok bool) {
	if s.live == 0 {
		return 0, false
	}
	return s.offs[s.head] >> 1, true
}

// Each calls f for every offset, ascending.
func (s *Set) Each(f func(off uint64)) {
	for _, v := range s.offs[s.head:] {
		if v&1 == 0 {
			f(v >> 1)
		}
	}
}

// Cut takes out what lies from an offset on, and reports whether there was any.
func (s *Set) Cut(from uint64) bool {
	i := s.find(from)
	gone := 0
	for _, v := range s.offs[i:] {
		gone += int(1 - v&1)
	}
	s.offs = s.offs[:i]
	s.live -= gone
	return gone > 0
}
