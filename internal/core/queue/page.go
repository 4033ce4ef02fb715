package queue

import (
	"math/bits"
	"slices"
)

const (
	words    = PageSize / 64
	indexOf  = PageSize - 1 // mask: offset to index in its page
	pageBits = 12           // log2 of PageSize
)

// block says who holds the messages of one word of a page: slots, 0 for nobody.
type block [64]uint32

// page holds PageSize consecutive offsets. An untouched message costs three bits and its size, which costs nothing where all of a
// page are equal. Only what has a time to live, a delay, a count or a number has an extra.
type page struct {
	index  uint64 // of the page: its first offset is index * PageSize
	live   [words]uint64
	ready  [words]uint64 // live, not delayed, not dead; for an owner also not held and not staged
	held   [words]uint64 // by a consumer, see blocks
	n      int           // live messages
	nheld  int
	sizes  sizes
	times  []step // only kept for queues with a time to live
	extras []extra
	tombs  int      // extras that are flagGone
	blocks []*block // nil, or one place a word
	dirty  bool     // changed since the last snapshot
	saved  bool     // in the last snapshot
}

func (p *page) base() uint64 { return p.index << pageBits }

// reset empties a page for reuse under another index and keeps its memory.
func (p *page) reset(index uint64) {
	*p = page{
		index: index, sizes: sizes{narrow: p.sizes.narrow[:0], wide: p.sizes.wide[:0]},
		times: p.times[:0], extras: p.extras[:0], blocks: p.blocks,
	}
}

func has(set *[words]uint64, i int) bool { return set[i>>6]&(1<<(i&63)) != 0 }
func put(set *[words]uint64, i int)      { set[i>>6] |= 1 << (i & 63) }
func cut(set *[words]uint64, i int)      { set[i>>6] &^= 1 << (i & 63) }

// mask has the bits of word w for the indexes from … to-1 of a page.
func mask(w, from, to int) uint64 {
	m := ^uint64(0)
	if lo := from - w<<6; lo > 0 {
		m <<= lo
	}
	if hi := w<<6 + 64 - to; hi > 0 {
		m &= ^uint64(0) >> hi
	}
	return m
}

// sizes are the sizes of a page's messages: one number while all are equal, else an array as wide as needed and as long as the
// page is filled.
type sizes struct {
	one    uint32
	state  uint8 // sizesNone …
	narrow []uint16
	wide   []uint32
}

const (
	sizesNone uint8 = iota
	sizesOne
	sizesNarrow
	sizesWide
)

func (s *sizes) get(i int) uint32 {
	switch s.state {
	case sizesOne:
		return s.one
	case sizesNarrow:
		return uint32(s.narrow[i])
	case sizesWide:
		return s.wide[i]
	}
	return 0
}

func (s *sizes) set(i int, v uint32) {
	switch s.state {
	case sizesNone:
		s.state, s.one = sizesOne, v
		return
	case sizesOne:
		if v == s.one {
			return
		}
		s.state = sizesWide
		if v <= 0xffff && s.one <= 0xffff {
			s.state = sizesNarrow
		}
		// Whatever lies before i had the one size; what does not live is never asked for.
		s.fill(i)
	case sizesNarrow:
		if v > 0xffff {
			s.wide = s.wide[:0]
			for _, n := range s.narrow {
				s.wide = append(s.wide, uint32(n))
			}
			s.state, s.narrow = sizesWide, s.narrow[:0]
		}
	}
	s.fill(i + 1)
	if s.state == sizesNarrow {
		s.narrow[i] = uint16(v)
	} else {
		s.wide[i] = v
	}
}

// fill makes the array at least n long; new places get the one size.
func (s *sizes) fill(n int) {
	if s.state == sizesNarrow {
		for len(s.narrow) < n {
			s.narrow = append(s.narrow, uint16(s.one))
		}
		return
	}
	for len(s.wide) < n {
		s.wide = append(s.wide, s.one)
	}
}

// sum is the size of the messages of word w that are in set.
func (s *sizes) sum(w int, set uint64) int64 {
	if s.state == sizesOne {
		return int64(bits.OnesCount64(set)) * int64(s.one)
	}
	var n int64
	for ; set != 0; set &= set - 1 {
		n += int64(s.get(w<<6 + bits.TrailingZeros64(set)))
	}
	return n
}

// step says that messages from index on were logged at a time, until the next step.
type step struct {
	index uint16
	at    int64
}

func (p *page) setTime(i int, at int64) {
	if n := len(p.times); n == 0 || p.times[n-1].at != at {
		p.times = append(p.times, step{uint16(i), at})
	}
}

func (p *page) time(i int) int64 {
	at, found := slices.BinarySearchFunc(p.times, i, func(s step, i int) int { return int(s.index) - i })
	if !found {
		at--
	}
	if at < 0 {
		return 0
	}
	return p.times[at].at
}

// Flags of an extra. The last two are the owner's and not in snapshots.
const (
	flagDelayed uint8 = 1 << iota // not yet due
	flagExpires                   // has a time to live of its own
	flagDead                      // a dead letter
	flagGone                      // settled: the place is kept until the page is tidied
	flagAgain                     // was handed out under this owner and came back unlogged
	flagHeap                      // has a place in the heap of times
)

const replicatedFlags = flagDelayed | flagExpires | flagDead

// extra is what a message has beyond its size.
type extra struct {
	index   uint16
	flags   uint8
	reason  Reason // of a dead letter
	count   uint32 // deliveries that came back
	due     int64  // if delayed
	expires int64  // if it expires
	number  uint64 // of a dead letter
}

func (p *page) find(i int) (int, bool) {
	if n := len(p.extras); n == 0 || int(p.extras[n-1].index) < i {
		return n, false
	}
	return slices.BinarySearchFunc(p.extras, i, func(x extra, i int) int { return int(x.index) - i })
}

// extra is that of a message, nil if it has none. The pointer is good until the next call of need or drop.
func (p *page) extra(i int) *extra {
	if len(p.extras) == 0 {
		return nil
	}
	if at, ok := p.find(i); ok && p.extras[at].flags&flagGone == 0 {
		return &p.extras[at]
	}
	return nil
}

// need is the extra of a message, made if there is none.
func (p *page) need(i int) *extra {
	at, ok := p.find(i)
	if !ok {
		p.extras = slices.Insert(p.extras, at, extra{index: uint16(i)})
	} else if p.extras[at].flags&flagGone != 0 {
		p.extras[at] = extra{index: uint16(i)}
		p.tombs--
	}
	return &p.extras[at]
}

// drop ends the extra of a message. Removing one by one from the middle would cost a move each, so places are tidied in bulk.
func (p *page) drop(x *extra) {
	x.flags = flagGone
	p.tombs++
	if p.tombs > 16 && p.tombs > len(p.extras)/2 {
		p.extras = slices.DeleteFunc(p.extras, func(x extra) bool { return x.flags&flagGone != 0 })
		p.tombs = 0
	}
}

// seek is the place in m.pages of the first page whose index is at least index.
func (m *Machine) seek(index uint64) int {
	n := len(m.pages)
	if n == 0 || m.pages[0].index >= index {
		return 0
	}
	if m.pages[n-1].index < index {
		return n
	}
	if m.pages[n-1].index == index {
		return n - 1
	}
	at, _ := slices.BinarySearchFunc(m.pages, index, func(p *page, index uint64) int {
		if p.index < index {
			return -1
		}
		if p.index > index {
			return 1
		}
		return 0
	})
	return at
}

// page is the page of an offset and the index in it; nil if nothing lives there.
func (m *Machine) page(offset uint64) (*page, int) {
	at := m.seek(offset >> pageBits)
	if at == len(m.pages) || m.pages[at].index != offset>>pageBits {
		return nil, 0
	}
	return m.pages[at], int(offset & indexOf)
}

// words calls f for every word of every page that overlaps the offsets from … to-1, with the mask of those offsets.
func (m *Machine) words(from, to uint64, f func(p *page, w int, mask uint64)) {
	for at := m.seek(from >> pageBits); at < len(m.pages); at++ {
		p := m.pages[at]
		if p.base() >= to {
			return
		}
		lo, hi := 0, PageSize
		if from > p.base() {
			lo = int(from - p.base())
		}
		if to-p.base() < PageSize {
			hi = int(to - p.base())
		}
		for w := lo >> 6; w <= (hi-1)>>6; w++ {
			f(p, w, mask(w, lo, hi))
		}
	}
}

// firstReady is the first ready message at or after an offset.
func (m *Machine) firstReady(from uint64) (*page, int, bool) {
	for at := m.seek(from >> pageBits); at < len(m.pages); at++ {
		p := m.pages[at]
		w, set := 0, p.ready[0]
		if from > p.base() {
			w = int(from&indexOf) >> 6
			set = p.ready[w] & mask(w, int(from&indexOf), PageSize)
		}
		for {
			if set != 0 {
				return p, w<<6 + bits.TrailingZeros64(set), true
			}
			if w++; w == words {
				break
			}
			set = p.ready[w]
		}
	}
	return nil, 0, false
}

// last is the page for the next record.
func (m *Machine) last(index uint64) *page {
	n := len(m.pages)
	if n > 0 && m.pages[n-1].index == index {
		return m.pages[n-1]
	}
	if n > 0 && m.pages[n-1].n == 0 {
		m.dropPage(n - 1)
	}
	p := m.spare
	m.spare = nil
	if p == nil {
		p = new(page)
	}
	p.reset(index)
	m.pages = append(m.pages, p)
	return p
}

// dropPage takes out a page in which nothing lives.
func (m *Machine) dropPage(at int) {
	p := m.pages[at]
	if p.saved {
		m.gone = append(m.gone, pageNumber(p.index))
	}
	if at == 0 {
		m.pages[0] = nil
		m.pages = m.pages[1:]
	} else {
		m.pages = slices.Delete(m.pages, at, at+1)
	}
	m.spare = p
}
