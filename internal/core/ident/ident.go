// Package ident holds the identities that every other room names: nodes, stores, instances, partitions and their kinds.
// It holds values only, and knows nothing of what they identify.
package ident

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// StoreID is made once with a data directory and says which store a copy lies on (design 1, "instance").
type StoreID [16]byte

// String is the id in hexadecimal.
func (s StoreID) String() string { return hex.EncodeToString(s[:]) }

// IsZero reports whether no store is named.
func (s StoreID) IsZero() bool { return s == StoreID{} }

// MarshalText encodes the id in hexadecimal.
func (s StoreID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (s *StoreID) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(s) {
		return fmt.Errorf("store id %q: want %d hexadecimal digits", b, 2*len(s))
	}
	_, err := hex.Decode(s[:], b)
	return err
}

// Instance is one run of one node over one store. Boot rises by at least one at every start.
type Instance struct {
	Node  string  `json:"node"`
	Store StoreID `json:"store"`
	Boot  uint64  `json:"boot"`
}

// String is node/store/boot, with the store shortened.
func (i Instance) String() string {
	return fmt.Sprintf("%s/%s/%d", i.Node, i.Store.String()[:8], i.Boot)
}

// TransientBit marks the incarnation of a resource that lives in one node's memory and not in its journal.
const TransientBit uint64 = 1 << 63

// LocalBit marks, beside TransientBit, a resource that its node made without asking the catalog: its incarnation counts what that run
// of the node made. The catalog learns of it if it is bound.
const LocalBit uint64 = 1 << 62

// Partition names one partition of one incarnation of a resource. Incarnations are given by the catalog, start at
// 1 and are never used twice, so a recreated name inherits nothing.
type Partition struct {
	Incarnation uint64 `json:"incarnation"`
	Index       uint32 `json:"index"`
}

// IsZero reports whether no partition is named.
func (p Partition) IsZero() bool { return p.Incarnation == 0 }

// Transient reports whether the partition lives in one node's memory only.
func (p Partition) Transient() bool { return p.Incarnation&TransientBit != 0 }

// String is incarnation/index, with a leading "m" where the partition is transient.
func (p Partition) String() string {
	prefix := ""
	if p.Transient() {
		prefix = "m"
	}
	return fmt.Sprintf("%s%d/%d", prefix, p.Incarnation&^TransientBit, p.Index)
}

// ParsePartition reads what String wrote.
func ParsePartition(s string) (Partition, error) {
	rest, transient := strings.CutPrefix(s, "m")
	inc, idx, ok := strings.Cut(rest, "/")
	if !ok {
		return Partition{}, fmt.Errorf("partition %q: want INCARNATION/INDEX", s)
	}
	i, err := strconv.ParseUint(inc, 10, 63)
	if err != nil {
		return Partition{}, fmt.Errorf("partition %q: %w", s, err)
	}
	x, err := strconv.ParseUint(idx, 10, 32)
	if err != nil {
		return Partition{}, fmt.Errorf("partition %q: %w", s, err)
	}
	if transient {
		i |= TransientBit
	}
	return Partition{Incarnation: i, Index: uint32(x)}, nil
}

// Compare orders partitions by incarnation, then index.
func (p Partition) Compare(o Partition) int {
	switch {
	case p.Incarnation < o.Incarnation:
		return -1
	case p.Incarnation > o.Incarnation:
		return 1
	case p.Index < o.Index:
		return -1
	case p.Index > o.Index:
		return 1
	}
	return 0
}

// Kind is what a resource is.
type Kind string

// The kinds of resource.
const (
	Queue  Kind = "queue"
	Stream Kind = "stream"
)
