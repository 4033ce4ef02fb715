package control

import "github.com/tanist/tanist/internal/core/ident"

// SealRequest asks one copy to stop following and growing (design 1, "seal").
type SealRequest struct {
	Partition  ident.Partition
	Epoch      uint64 // to be promised
	Transition string
}

// SealAnswer is the answer of one copy of a partition.
type SealAnswer struct {
	Partition ident.Partition
	Answer
}
