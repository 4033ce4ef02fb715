package catalog

import (
	"errors"
	"fmt"
)

// Code classifies a Refusal.
type Code uint8

// The codes of refusals. None of them is worth a retry of the same item unless it says so.
const (
	_ Code = iota
	// NotFound is returned when a thing that the item names does not exist.
	NotFound
	// Exists is returned when a thing that may be made only once exists.
	Exists
	// Inequivalent is returned when a declaration differs from what exists; Argument, Have and Want say in what.
	Inequivalent
	// InUse is returned when a deletion was asked for only if unused, and it is used.
	InUse
	// Locked is returned when a resource is exclusive to another session.
	Locked
	// Reserved is returned when a built-in exchange would be changed, bound or deleted.
	Reserved
	// Invalid is returned when an item makes no sense whatever the state is; Argument names the field.
	Invalid
	// VersionMoved is returned when the version that an item was decided on is not the present one. Decide anew.
	VersionMoved
	// TransitionMoved is returned when the pending transition is not the one that the item names. Decide anew.
	TransitionMoved
	// StaleBoot is returned when an instance is named that has been buried, or when a store returns with a boot counter older
	// than the one registered: it is not the admitted store.
	StaleBoot
	// StoreMoved is returned when a node's name is registered with another store, or a store with another name.
	StoreMoved
	// IncarnationMoved is returned when the name exists, but not in the incarnation that the item was decided on.
	IncarnationMoved
	// Unproven is returned when the evidence of a change of members does not show that enough copies of the new set hold enough: Have
	// of the Want copies do. Take evidence anew.
	Unproven
	// Wrong is returned when the secret of a token is not the one it was made with, or when it was made for another node.
	Wrong
	// Expired is returned when a token's time is over.
	Expired
	// Gone is returned when a store registers that was removed from the cluster, or replaced: it must be wiped before it may join.
	Gone
)

var codeNames = [...]string{
	"ok", "not found", "exists", "inequivalent", "in use", "locked", "reserved", "invalid", "version moved",
	"transition moved", "stale boot", "store moved", "incarnation moved",
	"unproven", "wrong", "expired", "gone",
}

// String is the code in words.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// Refusal says why one item of a command changed nothing. It is an outcome, the same on every node, and not a failure.
type Refusal struct {
	Code  Code
	What  string // "queue", "stream", "exchange", "vhost", "user", "node", "partition", "setting", …
	Name  string
	VHost string // where What lies in a virtual host
	// Argument names what differs or is invalid; Have is the present value and Want the one asked for.
	Argument   string
	Have, Want string
}

// Error is a full sentence that a client may be shown.
func (r *Refusal) Error() string {
	at := fmt.Sprintf("%s '%s'", r.What, r.Name)
	if r.VHost != "" {
		at += fmt.Sprintf(" in vhost '%s'", r.VHost)
	}
	switch r.Code {
	case NotFound:
		return "no " + at
	case Exists:
		return at + " already exists"
	case Inequivalent:
		return fmt.Sprintf("inequivalent arg '%s' for %s: received '%s' but current is '%s'", r.Argument, at, r.Want, r.Have)
	case InUse:
		if r.Want != "" {
			return at + " in use: " + r.Want
		}
		return at + " in use"
	case Locked:
		return "cannot obtain exclusive access to locked " + at
	case Reserved:
		return at + " is built in and may not be changed, bound or deleted"
	case Invalid:
		return fmt.Sprintf("invalid %s for %s: %s", r.Argument, at, r.Want)
	case VersionMoved, TransitionMoved, IncarnationMoved:
		return fmt.Sprintf("%s of %s moved: decided on %s, now %s", r.Argument, at, r.Want, r.Have)
	case Unproven:
		return fmt.Sprintf("%s of %s: %s copies of the new set hold enough, %s must", r.Argument, at, r.Have, r.Want)
	case Wrong:
		return fmt.Sprintf("%s has another %s", at, r.Argument)
	case Expired:
		return fmt.Sprintf("%s expired at %s, now it is %s (milliseconds since 1970)", at, r.Have, r.Want)
	case Gone:
		return fmt.Sprintf("%s was removed from the cluster as node '%s'; only a new store may join", at, r.Have)
	case StaleBoot:
		return fmt.Sprintf("boot %s of %s is not the registered one, which is %s", r.Want, at, r.Have)
	case StoreMoved:
		return fmt.Sprintf("%s is registered with %s %s, not %s", at, r.Argument, r.Have, r.Want)
	}
	return fmt.Sprintf("%s: %s", at, r.Code)
}

// CodeOf is the code of a refusal, or 0 of any other error and of nil.
func CodeOf(err error) Code {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return 0
}

// ErrUnknownCommand is returned when a command, or a snapshot, is of a format or holds an operation that this version does not
// know. The node must stop: guessing would make its catalog differ from the others' (design 2 §12).
var ErrUnknownCommand = errors.New("catalog: unknown command or format; a newer version wrote it")

// ErrMalformed is returned when a command or snapshot cannot be decoded. The node must stop.
var ErrMalformed = errors.New("catalog: malformed command or snapshot")

// ErrTooLarge is returned when a command would be larger than MaxCommand. Nothing was proposed.
var ErrTooLarge = errors.New("catalog: command larger than 256 KiB")
