package partition

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// Role is what a copy does (design 1, "copy").
type Role uint8

// The roles. A copy that has just been created has none.
const (
	None Role = iota
	Owner
	Follower
	Learner
	Sealed
	Quarantined
)

// String is the role's name.
func (r Role) String() string {
	return [...]string{"none", "owner", "follower", "learner", "sealed", "quarantined"}[r]
}

// Image is what storage knows of a copy when it is opened: everything in it is durable.
type Image struct {
	Partition  ident.Partition
	Promise    uint64
	Role       Role
	RoleEpoch  uint64
	Tail       batch.Tail // synced before it is reported
	Head       uint64     // the lowest position that may still be read
	HeadOffset uint64
	Snapshot   batch.Tail // where the newest snapshot stands; Position 0 without one
	Damaged    string     // not empty: why the copy must not answer for anything
	Importing  bool       // it is being made of an image that is not complete: until then it holds nothing
}

// Snapshot is a state machine's state at a tail, in pages. Written, it names only the pages that changed and those that went; read,
// it has all.
type Snapshot struct {
	At      batch.Tail
	Version uint32 // of the state machine
	Pages   []Page // ascending numbers
	Gone    []uint32
}

// Page is a part of a snapshot, at most 1 MiB.
type Page = batch.Page

// Span is a half-open range of offsets.
type Span = batch.Span

// BatchInfo is what an index knows of a batch.
type BatchInfo = batch.Info
