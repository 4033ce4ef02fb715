// Package partition is the protocol of one copy of one partition: promises, roles, cuts, what may be appended, what is confirmed,
// and which publishes were taken before (design 2 §1–§3, §5 step 5).
//
// A Copy is told what happened and says, as effects, what is to be made durable or told next. It performs nothing: storage,
// gateways, timers and the state machines that the log drives are unknown here.
package partition

import (
	"errors"
	"fmt"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// EffectKind says what an effect asks for.
type EffectKind uint8

// The kinds of effect. Those that say "then X" are steps: the next effect that needs storage comes only after X was called.
const (
	// SavePromise: make Epoch durable as the promise, then Saved.
	SavePromise EffectKind = iota
	// FindTail: find the batch of this log that ends at Cut.Position and whose link is Cut.Link, then TailFound or Fail.
	FindTail
	// DropEnd: cut the log down to Tail, then Saved.
	DropEnd
	// SaveRole: make Role of Epoch durable, then Saved.
	SaveRole
	// WriteMark: the copy owns Epoch; propose a batch that begins with the epoch's mark.
	WriteMark
	// Assumed: the copy follows, or learns, in Epoch from now on, and says to the owner where it stands.
	Assumed
	// Advanced: the confirmed position moved to Position.
	Advanced
	// Closed: an owner admits and confirms nothing more. What it appended and did not confirm has an unknown outcome.
	Closed
	// SealReady: every seal up to Epoch may be answered: the promise is durable, and Durable is all that the copy holds.
	SealReady
	// Refused: an assignment was refused, for Reason.
	Refused
)

// Effect is one thing that a Copy asks for, or tells.
type Effect struct {
	Kind     EffectKind
	Role     Role
	Epoch    uint64
	Position uint64
	Tail     batch.Tail
	Cut      catalog.HistoryStart
	Reason   string
}

// Effects gathers what calls ask for, in order. The caller owns it, so that an idle copy holds none.
type Effects []Effect

// Set is what has to hold an entry durably, besides the owner, before it is confirmed.
type Set struct {
	// W counts copies, the owner included. At least 1.
	W int
	// Followers are the admitted ones, by store.
	Followers []ident.StoreID
	// Below bounds what needs it: entries at or above this position do not. 0: all do.
	Below uint64
}

// Lowered is what entries below end, admitted before a change, still need after it: as many copies as then (design 2 §5), or all that are left.
// ok is false where the change asks for no fewer.
func Lowered(before int, after Set, end uint64) (s Set, ok bool) {
	w := min(before, 1+len(after.Followers))
	return Set{W: w, Followers: after.Followers, Below: end}, w > after.W && end > 0
}

// Assignment is what the catalog wants of this copy.
type Assignment struct {
	Epoch  uint64
	Role   Role
	Starts []catalog.HistoryStart // ascending epochs
	// Sets are all satisfied by what is confirmed: one set, or two while a change keeps epoch and owner (design 2 §5, joint rule), and what
	// entries still need that were admitted before a change asked for fewer copies.
	Sets []Set
}

// Errors of a Copy.
var (
	// ErrNotOwner is returned when a copy that does not own is asked to append as one. Nothing was taken.
	ErrNotOwner = errors.New("partition: not the owner")
	// ErrClosed is returned when the owner was sealed or its storage failed. Nothing was taken.
	ErrClosed = errors.New("partition: the owner has closed")
	// ErrStale is returned when a message is not of the epoch that the copy obeys. Nothing was taken.
	ErrStale = errors.New("partition: of another epoch")
	// ErrGap is returned when a batch does not continue the copy's log. Nothing was taken; the sender resumes from Tail.
	ErrGap = errors.New("partition: batch does not continue the log")
	// ErrPromised is returned when a seal names an epoch that is not above the one that was applied, or is below the promise.
	ErrPromised = errors.New("partition: a later epoch was promised or applied")
	// ErrDamaged is returned when the copy failed its own checks, or its storage failed: it answers for nothing.
	ErrDamaged = errors.New("partition: damaged")
)

// incomplete is why a copy answers for nothing while it is being made of an image.
const incomplete = "its image is not complete"

// step is the durable thing that the copy waits for.
type step uint8

const (
	idle step = iota
	promising
	finding
	dropping
	assuming
)

// Copy is the protocol state of one copy. What every batch needs comes first.
type Copy struct {
	epoch     uint64 // of the role, durable
	tail      batch.Tail
	durable   batch.Tail
	confirmed uint64
	mark      uint64 // end of the epoch's mark; 0 before it is appended
	flight    []batch.Tail
	sets      []Set
	sealing   uint64      // epoch of the highest seal that waits for its answer
	want      *Assignment // until applied
	step      step
	role      Role
	closed    bool
	fenced    bool // confirms nothing for now

	opened    Role // as found when opened
	importing bool // its image is not complete: it may learn, and keep its place as a follower, and answers for nothing
	openedAt  uint64
	id        ident.Partition
	promise   uint64 // durable
	vow       uint64 // being made durable
	damaged   string
	saving    *Assignment // whose role is being made durable
	progress  []Progress
	doubted   []ident.StoreID // came back with less than they had said: they count for nothing in this epoch
}

// Progress is how far a follower or learner has said that it holds the log durably, in this epoch.
type Progress struct {
	Store    ident.StoreID
	Position uint64
}

// Open makes the state of a copy that storage found. The copy has no role until one is applied, whatever it was before: a restarted
// owner needs a new epoch, and a follower is told again by its assignment.
func Open(i Image) Copy {
	c := Copy{
		id: i.Partition, promise: i.Promise, vow: i.Promise, epoch: i.RoleEpoch, tail: i.Tail, durable: i.Tail,
		damaged: i.Damaged, importing: i.Importing, opened: i.Role, openedAt: i.RoleEpoch,
		confirmed: max(i.Head, i.Snapshot.Position), // both are only ever taken at or below the confirmed position
	}
	if i.Damaged != "" {
		c.role = Quarantined
	} else if i.Promise > i.RoleEpoch && i.Role != None {
		c.role = Sealed
	}
	return c
}

// Role is what the copy does now.
func (c *Copy) Role() Role { return c.role }

// Epoch is that of the role that was applied last.
func (c *Copy) Epoch() uint64 { return c.epoch }

// Promise is the highest epoch that the copy has durably vowed to obey.
func (c *Copy) Promise() uint64 { return c.promise }

// Tail is the end of the log, with what is not durable yet.
func (c *Copy) Tail() batch.Tail { return c.tail }

// Durable is the end of what is durable.
func (c *Copy) Durable() batch.Tail { return c.durable }

// Confirmed is the highest position that the copy knows to be confirmed.
func (c *Copy) Confirmed() uint64 { return c.confirmed }

// Damaged says why the copy answers for nothing; empty if it is sound.
func (c *Copy) Damaged() string { return c.damaged }

// Floor is what a copy must hold durably to be admitted: everything confirmed, and this epoch's start with its mark (design 2 §5, joint
// rule). It is 0 on a copy that does not own, or whose mark is not appended yet; then nothing can be admitted.
func (c *Copy) Floor() uint64 {
	if c.role != Owner || c.mark == 0 {
		return 0
	}
	return max(c.confirmed, c.mark)
}

// InFlight is the number of batches that were appended and are not durable yet.
func (c *Copy) InFlight() int { return len(c.flight) }

// Applying reports whether an assignment is still being carried out.
func (c *Copy) Applying() bool { return c.want != nil || c.step != idle }

// Becoming is the role that is being applied; None where none is.
func (c *Copy) Becoming() Role {
	if c.want == nil {
		return None
	}
	return c.want.Role
}

// Serving reports whether the copy owns its epoch, the epoch's mark is confirmed, and nothing closed it.
func (c *Copy) Serving() bool {
	return c.role == Owner && !c.closed && c.mark > 0 && c.confirmed >= c.mark
}

// Open reports whether the owner may append.
func (c *Copy) Open() bool { return c.role == Owner && !c.closed }

// Fail tells that storage failed: whatever was under way has an unknown outcome and nothing is tried again (design 2 §10).
func (c *Copy) Fail(reason string, out *Effects) {
	if c.damaged != "" {
		return
	}
	c.damaged = reason
	c.close(reason, out)
	c.role = Quarantined
	c.flight, c.want, c.saving, c.step = nil, nil, nil, idle
	c.answerSeals(out)
}

// Retire closes an owner for good because its run ends. The copy stays sound.
func (c *Copy) Retire(reason string, out *Effects) { c.close(reason, out) }

func (c *Copy) close(reason string, out *Effects) {
	if c.role == Owner && !c.closed {
		c.closed = true
		*out = append(*out, Effect{Kind: Closed, Epoch: c.epoch, Position: c.confirmed, Reason: reason})
	}
}

// Assign gives the copy a role, in the order promise, cut, role, mark, each durable before the next is begun (design 2 §5 step 5).
// Giving the role that it has already changes the sets only. A role below the promise is refused, as is the ownership of an epoch that
// an earlier run of the process may have owned.
func (c *Copy) Assign(a Assignment, out *Effects) {
	refuse := func(reason string) {
		*out = append(*out, Effect{Kind: Refused, Epoch: a.Epoch, Role: a.Role, Reason: reason})
	}
	switch {
	case c.damaged != "":
		refuse(c.damaged)
	case c.importing && a.Role == Owner:
		refuse(incomplete)
	case a.Epoch < max(c.vow, c.sealing): // a seal may wait for a step that is under way before its promise is begun
		refuse(fmt.Sprintf("epoch %d is below the promise %d", a.Epoch, max(c.vow, c.sealing)))
	case c.want != nil && a.Epoch < c.want.Epoch:
		refuse(fmt.Sprintf("epoch %d is below %d, which is being applied", a.Epoch, c.want.Epoch))
	case a.Role == Owner && c.opened == Owner && a.Epoch <= c.openedAt:
		refuse(fmt.Sprintf("epoch %d was owned by an earlier run", a.Epoch))
	case a.Role == c.role && a.Epoch == c.epoch && c.want == nil:
		c.sets = a.Sets
		c.advance(out)
	default:
		if c.role == Owner && a.Epoch > c.epoch {
			c.close("its epoch ended", out)
		}
		c.want = &a
		c.proceed(out)
	}
}

// Ahead is the copy's promise where that is above the epoch of its role, else 0: it obeys no owner until one of that epoch or a later
// one is applied (design 2 §3).
func (c *Copy) Ahead() uint64 {
	if c.promise > c.epoch {
		return c.promise
	}
	return 0
}

// Seal asks for a promise without a role. The answer comes as SealReady, with an epoch at or above this one. ErrPromised is
// returned when the epoch was applied or surpassed already, ErrDamaged when the copy must not answer.
func (c *Copy) Seal(epoch uint64, out *Effects) error {
	switch {
	case c.damaged != "":
		return fmt.Errorf("%w: %s", ErrDamaged, c.damaged)
	case c.importing:
		return fmt.Errorf("%w: %s", ErrDamaged, incomplete)
	case epoch <= c.epoch && c.epoch > 0, c.want != nil && epoch <= c.want.Epoch:
		return fmt.Errorf("%w: epoch %d was applied", ErrPromised, c.epoch)
	case epoch < c.vow:
		return fmt.Errorf("%w: %d", ErrPromised, c.vow)
	}
	c.close(fmt.Sprintf("sealed at epoch %d", epoch), out)
	c.role = Sealed
	c.sealing = max(c.sealing, epoch)
	c.want = nil // a lower epoch: it would be refused once the promise is made
	c.proceed(out)
	return nil
}

// Discard lets go of the whole log, as an image begins to take its place: a follower's that is too far behind to go on, or a learner's. The
// log must end at position, durably. Until Imported the copy answers for nothing; its role stays, and with it its place. It reports whether
// it did: not where the copy obeys no owner, or something is under way.
func (c *Copy) Discard(position uint64) bool {
	busy := c.want != nil || c.step != idle || len(c.flight) > 0
	if busy || c.role != Follower && c.role != Learner || c.importing || c.tail.Position != position {
		return false
	}
	c.importing = true
	c.tail, c.durable, c.confirmed = batch.Tail{}, batch.Tail{}, 0
	return true
}

// Importing reports whether the copy is being made of an image that is not complete.
func (c *Copy) Importing() bool { return c.importing }

// Imported tells that the image is complete that the copy is made of, or that it has not been begun, and what the copy is now. Its role stays. An
// image ends with what its owner had not confirmed yet. Where the copy took up a later epoch while it held nothing, that may go beyond where the
// history of that epoch began, by starts: it is cut then, before the copy follows.
func (c *Copy) Imported(i Image, starts []catalog.HistoryStart, out *Effects) {
	c.importing = false
	c.tail, c.durable = i.Tail, i.Tail
	if at := max(i.Head, i.Snapshot.Position); at > c.confirmed {
		c.confirmed = at
		*out = append(*out, Effect{Kind: Advanced, Epoch: c.epoch, Position: at})
	}
	if c.want != nil {
		w := *c.want
		c.want = &w // what is being saved was decided on a log that was empty: it is looked at again
		return
	}
	if _, cut := CutTo(starts, c.tail, c.epoch); cut && (c.role == Follower || c.role == Learner) {
		c.want = &Assignment{Epoch: c.epoch, Role: c.role, Starts: starts, Sets: c.sets}
		c.proceed(out)
	}
}

// Saved tells that the step asked for last is durable.
func (c *Copy) Saved(out *Effects) {
	switch c.step {
	case promising:
		c.promise = c.vow
	case assuming:
		c.assume(out)
	case dropping:
		// TailFound has set where the log ends.
	case idle, finding:
		return
	}
	c.step = idle
	c.proceed(out)
}

// proceed asks for the next step, if none is under way.
func (c *Copy) proceed(out *Effects) {
	if c.step != idle || c.damaged != "" {
		return
	}
	goal := c.sealing
	if c.want != nil {
		goal = max(goal, c.want.Epoch)
	}
	if goal > c.promise {
		c.step, c.vow = promising, goal
		*out = append(*out, Effect{Kind: SavePromise, Epoch: goal})
		return
	}
	if len(c.flight) > 0 {
		return // the answer, the cut and the role wait until the outcome of every append is known
	}
	c.answerSeals(out)
	w := c.want
	if w == nil {
		return
	}
	if cut, ok := CutTo(w.Starts, c.tail, w.Epoch); ok {
		if cut.Position < c.confirmed && !cut.Loss.Accepted {
			c.Fail(fmt.Sprintf("epoch %d begins at %d, below what this copy applied; it must be made anew", cut.Epoch, cut.Position), out)
			return
		}
		c.step = finding
		*out = append(*out, Effect{Kind: FindTail, Cut: cut})
		return
	}
	c.step, c.saving = assuming, w
	*out = append(*out, Effect{Kind: SaveRole, Role: w.Role, Epoch: w.Epoch})
}

func (c *Copy) answerSeals(out *Effects) {
	if c.sealing > 0 && (c.damaged != "" || c.promise >= c.sealing && len(c.flight) == 0) {
		*out = append(*out, Effect{Kind: SealReady, Epoch: c.sealing, Tail: c.durable})
		c.sealing = 0
	}
}

// TailFound gives the batch boundary that FindTail asked for, complete.
func (c *Copy) TailFound(t batch.Tail, out *Effects) {
	if c.step != finding {
		return
	}
	c.step = dropping
	c.tail, c.durable = t, t
	c.confirmed = min(c.confirmed, t.Position) // less only where an accepted loss gave up what this copy had applied
	*out = append(*out, Effect{Kind: DropEnd, Tail: t})
}

// CutTo is the cut rule (design 2 §5, step 5): the lowest history start among epochs after the last batch's and up to epoch, and true if the log goes beyond
// it; false: nothing is cut.
func CutTo(starts []catalog.HistoryStart, tail batch.Tail, epoch uint64) (catalog.HistoryStart, bool) {
	var lowest catalog.HistoryStart
	found := false
	for _, s := range starts {
		if s.Epoch > tail.Epoch && s.Epoch <= epoch && (!found || s.Position < lowest.Position) {
			lowest, found = s, true
		}
	}
	return lowest, found && lowest.Position < tail.Position
}

// assume takes the role that has become durable.
func (c *Copy) assume(out *Effects) {
	w := c.saving
	c.saving = nil
	if w != c.want {
		return // sealed or assigned at a higher epoch meanwhile
	}
	c.want = nil
	c.role, c.epoch, c.sets, c.mark, c.progress, c.doubted = w.Role, w.Epoch, w.Sets, 0, nil, nil
	c.closed = false
	switch c.role {
	case Owner:
		*out = append(*out, Effect{Kind: WriteMark, Epoch: c.epoch})
	case Follower, Learner:
		*out = append(*out, Effect{Kind: Assumed, Role: c.role, Epoch: c.epoch})
	case None, Sealed, Quarantined:
	}
}
