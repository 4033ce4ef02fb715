package gateway

import "sort"

// held is the set of offsets that a consumer holds unsettled. Deliveries come nearly in ascending order and are settled nearly in that
// order, so it is a sorted slice whose front is consumed; what is settled out of order is marked and goes when the front reaches it.
type held struct {
	offs []uint64 // offset<<1, with the low bit set once settled; ascending
	head int
	live int
}

func (h *held) len() int { return h.live }

// add puts an offset into the set. One that is there already is ignored.
func (h *held) add(off uint64) {
	v := off << 1
	n := len(h.offs)
	if n == h.head {
		h.offs, h.head = h.offs[:0], 0
		n = 0
	}
	if n == 0 || h.offs[n-1] < v {
		h.compact()
		h.offs = append(h.offs, v)
		h.live++
		return
	}
	i := h.find(off)
	if i < n && h.offs[i]>>1 == off {
		if h.offs[i]&1 != 0 {
			h.offs[i] = v
			h.live++
		}
		return
	}
	h.offs = append(h.offs, 0)
	copy(h.offs[i+1:], h.offs[i:])
	h.offs[i] = v
	h.live++
}

// compact drops what was settled, once that is most of a long slice, so that memory follows what is held.
func (h *held) compact() {
	if len(h.offs) < cap(h.offs) || len(h.offs) < 64 || h.live > len(h.offs)/2 {
		return
	}
	out := h.offs[:0]
	for _, v := range h.offs[h.head:] {
		if v&1 == 0 {
			out = append(out, v)
		}
	}
	h.offs, h.head = out, 0
}

func (h *held) find(off uint64) int {
	return h.head + sort.Search(len(h.offs)-h.head, func(i int) bool { return h.offs[h.head+i]>>1 >= off })
}

// remove takes an offset out and reports whether it was there.
func (h *held) remove(off uint64) bool {
	i := h.head
	if i == len(h.offs) {
		return false
	}
	if h.offs[i]>>1 != off {
		i = h.find(off)
	}
	if i == len(h.offs) || h.offs[i] != off<<1 {
		return false
	}
	h.offs[i] |= 1
	h.live--
	for h.head < len(h.offs) && h.offs[h.head]&1 != 0 {
		h.head++
	}
	return true
}

// least is the lowest offset held; ok is false where none is.
func (h *held) least() (off uint64, ok bool) {
	if h.live == 0 {
		return 0, false
	}
	return h.offs[h.head] >> 1, true
}

// each calls f for every offset held, ascending.
func (h *held) each(f func(off uint64)) {
	for _, v := range h.offs[h.head:] {
		if v&1 == 0 {
			f(v >> 1)
		}
	}
}

// cut takes out what lies from an offset on, and reports whether there was any.
func (h *held) cut(from uint64) bool {
	i := h.find(from)
	gone := 0
	for _, v := range h.offs[i:] {
		gone += int(1 - v&1)
	}
	h.offs = h.offs[:i]
	h.live -= gone
	return gone > 0
}
