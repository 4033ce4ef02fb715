package lease

import (
	"fmt"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/core/route"
)

// Catalog is what is looked up of it. *catalog.View is one.
type Catalog interface {
	// Incarnation is nil if there is no such resource, or not any more.
	Incarnation(id uint64) *catalog.Resource
}

// Holding is what a node goes by when it is asked for a durable change.
type Holding struct {
	Node   ident.Instance
	Epoch  uint64 // in which its copy of the partition is the owner; 0: it is not
	Lease  Lease
	Term   uint64        // the latest controller's that the node has heard of
	Always bool          // an expired lease fences every partition, not only those that confirm on one copy
	Now    time.Duration // on the node's monotonic clock
}

// NoRange is returned when no partition of the catalog has the key: the resource is gone, or never was. Nothing was taken; retrying where it
// was declared anew is safe.
type NoRange struct {
	Incarnation uint64
	Slot        uint32
}

// Error implements error.
func (e *NoRange) Error() string {
	return fmt.Sprintf("no partition: resource %d has none for slot %d", e.Incarnation, e.Slot)
}

// StaleOwnership is returned when the node's copy still owns in an epoch that is over, and another node owns the partition. Nothing was taken;
// retrying at the current owner is safe.
type StaleOwnership struct {
	Attempted, Current           ident.Instance
	AttemptedEpoch, CurrentEpoch uint64
}

// Error implements error.
func (e *StaleOwnership) Error() string {
	return fmt.Sprintf("stale ownership: %s owned epoch %d, and %s owns epoch %d", e.Attempted.Node, e.AttemptedEpoch, e.Current.Node, e.CurrentEpoch)
}

// NotOwner is returned when another node owns the partition, and this one does not believe to. Nothing was taken; retrying at the owner is safe.
type NotOwner struct {
	Owner   ident.Instance
	Epoch   uint64
	Version uint64
}

// Error implements error.
func (e *NotOwner) Error() string {
	return fmt.Sprintf("not the owner: %s owns epoch %d", e.Owner.Node, e.Epoch)
}

// Reason is why the owner's lease does not let it take a durable change.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	Revoked         Reason = iota // the controller took it back
	Unleased                      // this run was never granted one
	TermSuperseded                // it is of an earlier controller than the node has heard of
	EpochSuperseded               // the run owns a later epoch, which its copy has not taken up
	Expired
)

// String is the reason in words.
func (r Reason) String() string {
	return [...]string{
		"the controller took its lease back", "it has no lease yet", "its lease is of an earlier controller",
		"its copy has not taken up the epoch that it owns", "its lease has expired: it has not heard from the controller for that long",
	}[r]
}

// Passing reports whether the reason ends by itself in a moment, if nothing else is wrong: then what comes may wait a little before it is
// refused.
func (r Reason) Passing() bool { return r == Unleased || r == TermSuperseded || r == EpochSuperseded }

// Fenced is returned when the node owns the partition and its lease does not let it take durable changes. Nothing was taken. Retrying is safe,
// at the same owner once it has a lease, or at another once one was chosen.
type Fenced struct{ Reason Reason }

// Error implements error.
func (e *Fenced) Error() string { return "fenced: " + e.Reason.String() }

// Admit says whether a node may take a durable change of the key in a slot of a resource: nil, or the first of *NoRange, *StaleOwnership,
// *NotOwner and *Fenced that applies. Source: design 2 §7.
func Admit(v Catalog, incarnation uint64, slot uint32, h Holding) error {
	r := v.Incarnation(incarnation)
	if r == nil || slot >= route.Slots || len(r.Partitions) == 0 {
		return &NoRange{incarnation, slot}
	}
	a := r.Partitions[route.Partition(slot, uint32(len(r.Partitions)))]
	if a.Epoch == 0 {
		return &NoRange{incarnation, slot} // no owner was ever committed
	}
	return h.Admit(r, a)
}

// Admit is the part of Admit for whoever knows the partition that the change is of.
func (h *Holding) Admit(r *catalog.Resource, a *catalog.Assignment) error {
	switch {
	case a.Owner != h.Node && h.Epoch > 0 && h.Epoch < a.Epoch:
		return &StaleOwnership{Attempted: h.Node, Current: a.Owner, AttemptedEpoch: h.Epoch, CurrentEpoch: a.Epoch}
	case a.Owner != h.Node:
		return &NotOwner{a.Owner, a.Epoch, a.Version}
	case !Fences(r, a, h.Always):
		return nil
	}
	if why, fenced := h.fenced(a.Epoch); fenced {
		return &Fenced{why}
	}
	return nil
}

func (h *Holding) fenced(epoch uint64) (Reason, bool) {
	switch l := &h.Lease; {
	case l.Revoked:
		return Revoked, true
	case l.Term == 0:
		return Unleased, true
	case l.Term < h.Term:
		return TermSuperseded, true
	case h.Epoch < epoch:
		return EpochSuperseded, true
	case h.Now >= l.Expires:
		return Expired, true
	}
	return 0, false
}

// Fences reports whether the lease of an assignment's owner closes it to durable changes where it does not hold: where one copy confirms
// alone, or always if that is set. What lives in one node's memory is as durable as that node: no lease is asked for. A policy that cannot be
// read fences; nothing is confirmed under it anyway.
func Fences(r *catalog.Resource, a *catalog.Assignment, always bool) bool {
	if r.Home != nil {
		return false
	}
	if always {
		return true
	}
	p, err := quorum.Parse(a.Policy)
	return err != nil || quorum.W(p, a.Eligible(), r.Kind) == 1
}
