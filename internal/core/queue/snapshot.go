package queue

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
)

// A snapshot is a head page, number 0, and a page for every PageSize offsets in which something lives. Numbers are varints as in
// events; "runs" stand for equal neighbours.
//
//	head:  u8 layout 1 | varint next offset | varint last dead letter's number
//
//	page:  u8 layout 1 | varint index: its first offset is index * 4096
//	       varint count, then so often: varint gap, varint length - 1      what lives, as ranges of indexes
//	       until all that live are covered: varint run, varint size        in order of offset
//	       u8 times: 0 or 1; if 1, until all are covered: varint run, varint time of the batch (the first) or its rise
//	       varint extras, then so often:
//	         varint gap (from the index after the last; the first from 0) | u8 flags
//	         flag 1: varint due    flag 2: varint expires    flag 4: u8 reason, varint number    flag 8: varint count
const layout = 1

const flagCounted uint8 = 8 // in a page: a count follows

// pageNumber is the number of the page with an index. Indexes that share a number lie 2^44 messages apart.
func pageNumber(index uint64) uint32 { return 1 + uint32(index%math.MaxUint32) }

// Snapshot gives the replicated state's pages that changed since the last call, all of them if full, and the numbers of those
// that went. The pages of all calls together, later ones in the place of earlier, are the state.
func (m *Machine) Snapshot(full bool) (pages []batch.Page, gone []uint32) {
	if m.headDirty || full {
		head := []byte{layout}
		head = binary.AppendUvarint(head, m.next)
		head = binary.AppendUvarint(head, m.number)
		pages = append(pages, batch.Page{Data: head})
		m.headDirty = false
	}
	for _, p := range m.pages {
		switch {
		case p.n == 0:
			if p.saved {
				m.gone = append(m.gone, pageNumber(p.index))
			}
			p.saved, p.dirty = false, false
		case p.dirty || full:
			pages = append(pages, batch.Page{Number: pageNumber(p.index), Data: p.encode(m.settings.TTL != nil)})
			p.saved, p.dirty = true, false
		}
	}
	slices.SortFunc(pages, func(a, b batch.Page) int { return int(int64(a.Number) - int64(b.Number)) })
	gone = m.gone
	m.gone = nil
	slices.Sort(gone)
	// A page whose messages all went may be there again, for later messages of the same range.
	gone = slices.DeleteFunc(gone, func(number uint32) bool {
		return slices.ContainsFunc(pages, func(p batch.Page) bool { return p.Number == number })
	})
	return pages, gone
}

func (p *page) encode(times bool) []byte {
	put := binary.AppendUvarint
	b := put([]byte{layout}, p.index)
	runs := liveRuns(&p.live)
	b = put(b, uint64(len(runs)))
	end := 0
	for _, r := range runs {
		b = put(put(b, uint64(r[0]-end)), uint64(r[1]-r[0]-1))
		end = r[1]
	}
	b = appendRuns(b, runs, func(i int) uint64 { return uint64(p.sizes.get(i)) }, false)
	if times {
		b = appendRuns(append(b, 1), runs, func(i int) uint64 { return uint64(p.time(i)) }, true)
	} else {
		b = append(b, 0)
	}
	return p.appendExtras(b)
}

// liveRuns are the ranges of set bits.
func liveRuns(set *[words]uint64) [][2]int {
	var runs [][2]int
	for w, s := range set {
		for s != 0 {
			lo := bits.TrailingZeros64(s)
			hi := lo + bits.TrailingZeros64(^(s >> lo))
			if n := len(runs); n > 0 && runs[n-1][1] == w<<6+lo {
				runs[n-1][1] = w<<6 + hi
			} else {
				runs = append(runs, [2]int{w<<6 + lo, w<<6 + hi})
			}
			if hi == 64 {
				break
			}
			s &^= 1<<hi - 1
		}
	}
	return runs
}

// appendRuns encodes a value of every live message, equal neighbours as one; rising: after the first as differences.
func appendRuns(b []byte, runs [][2]int, value func(int) uint64, rising bool) []byte {
	var n, v, before uint64
	flush := func() {
		if n > 0 {
			b = binary.AppendUvarint(binary.AppendUvarint(b, n), v-before)
			if rising {
				before = v
			}
		}
	}
	for _, r := range runs {
		for i := r[0]; i < r[1]; i++ {
			if got := value(i); n == 0 || got != v {
				flush()
				n, v = 0, got
			}
			n++
		}
	}
	flush()
	return b
}

// plain reports whether an extra has nothing that belongs to the replicated state.
func (x *extra) plain() bool {
	return x.flags&flagGone != 0 || x.flags&replicatedFlags == 0 && x.count == 0
}

func (p *page) appendExtras(b []byte) []byte {
	n := 0
	for at := range p.extras {
		if !p.extras[at].plain() {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	end := 0
	for at := range p.extras {
		x := &p.extras[at]
		if x.plain() {
			continue
		}
		b = binary.AppendUvarint(b, uint64(int(x.index)-end))
		end = int(x.index) + 1
		flags := x.flags & replicatedFlags
		if x.count > 0 {
			flags |= flagCounted
		}
		b = append(b, flags)
		if flags&flagDelayed != 0 {
			b = binary.AppendUvarint(b, uint64(x.due))
		}
		if flags&flagExpires != 0 {
			b = binary.AppendUvarint(b, uint64(x.expires))
		}
		if flags&flagDead != 0 {
			b = binary.AppendUvarint(append(b, byte(x.reason)), x.number)
		}
		if flags&flagCounted != 0 {
			b = binary.AppendUvarint(b, uint64(x.count))
		}
	}
	return b
}
