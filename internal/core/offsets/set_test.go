package offsets

import "testing"

func TestSetAgainstAMap(t *testing.T) {
	var s Set
	model := map[uint64]bool{}
	x := uint64(1)
	next := func(n uint64) uint64 { // a fixed pseudo-random sequence
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return x % n
	}
	top := uint64(0)
	for range 200_000 {
		switch next(3) {
		case 0:
			off := top
			if next(10) == 0 && top > 0 {
				off = next(top) // requeued, and delivered again
			} else {
				top++
			}
			s.Add(off)
			model[off] = true
		default:
			off := next(top + 1)
			if least, ok := s.Least(); ok && next(4) != 0 {
				off = least
			}
			if got := s.Remove(off); got != model[off] {
				t.Fatalf("remove(%d) = %v", off, got)
			}
			delete(model, off)
		}
		if s.Len() != len(model) {
			t.Fatalf("%d held, model has %d", s.Len(), len(model))
		}
	}
	n := 0
	s.Each(func(off uint64) {
		n++
		if !model[off] {
			t.Errorf("%d is held", off)
		}
	})
	if n != len(model) || len(s.offs) > 4*len(model)+1024 {
		t.Errorf("%d of %d; %d slots", n, len(model), len(s.offs))
	}
}

func TestCutting(t *testing.T) {
	var h Set
	for _, off := range []uint64{1, 3, 5, 7, 9} {
		h.Add(off)
	}
	h.Remove(7)
	if h.Cut(10) || !h.Cut(5) || h.Len() != 2 || h.Cut(5) {
		t.Fatalf("%+v", h)
	}
	h.Add(5)
	if at, ok := h.Least(); !ok || at != 1 || h.Len() != 3 || !h.Remove(5) {
		t.Fatalf("%+v", h)
	}
	if !h.Cut(0) || h.Len() != 0 {
		t.Fatalf("%+v", h)
	}
}
