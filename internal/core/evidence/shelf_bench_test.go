package evidence

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
)

// BenchmarkPutAgain learns once more of what became of a transition, on a shelf that is full.
func BenchmarkPutAgain(b *testing.B) {
	s := NewShelf(0, 0, 0)
	var all []*Evidence
	for i := range DefaultTotal {
		e := *full()
		e.ID, e.Partition, e.Suspected = fmt.Sprint("t", i), ident.Partition{Incarnation: uint64(i)}, int64(i+1)
		all = append(all, &e)
		s.Put(&e)
	}
	n := 0
	for b.Loop() {
		e := *all[n%len(all)]
		e.Serving++
		n++
		if _, ok := s.Put(&e); !ok {
			b.Fatal("it was not put")
		}
	}
}
