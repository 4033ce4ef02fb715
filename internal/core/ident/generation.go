package ident

import (
	"cmp"
	"fmt"
)

// Generation says which line of the cluster's catalog a node goes by. It rises when an operator recovers the catalog without the majority
// of its voters (design 2 §12): what the lost ones do then is of an earlier generation, and nobody of a later one speaks to them. Mark
// tells recoveries apart that were made of the same generation on two nodes: the higher one counts.
type Generation struct {
	Number uint64 `json:"number"`
	Mark   uint64 `json:"mark,omitempty"` // 0 of the first
}

// FirstGeneration is that of a catalog that was never recovered.
var FirstGeneration = Generation{Number: 1}

// IsZero reports whether no generation is named.
func (g Generation) IsZero() bool { return g == Generation{} }

// Compare orders generations by number, then mark: a later one supersedes all before.
func (g Generation) Compare(o Generation) int {
	return cmp.Or(cmp.Compare(g.Number, o.Number), cmp.Compare(g.Mark, o.Mark))
}

// String is the number, with the mark where there is one.
func (g Generation) String() string {
	if g.Mark == 0 {
		return fmt.Sprint(g.Number)
	}
	return fmt.Sprintf("%d (%016x)", g.Number, g.Mark)
}
