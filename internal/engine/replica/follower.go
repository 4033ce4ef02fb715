package replica

import (
	"cmp"
	"errors"
	"log/slog"

	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// follows reports whether the copy follows or learns. A former one does not, whatever its role was: it must not come to be admitted again on
// what it holds, unless it has read that it learns.
func (r *replica) follows() bool {
	role := r.copy.Role()
	return (role == partition.Follower || role == partition.Learner) && r.want != nil && r.former == nil && !r.copy.Applying()
}

// assumed is called when the copy has begun to follow or to learn.
func (r *replica) assumed() {
	r.reason = ""
	r.endFeeds()
	r.cameFurther()
	r.sayStanding()
	r.tellsFormer()
	r.warm()
}

func (r *replica) probed(m protocol.Probe) {
	r.hears(m.Epoch)
	if r.outdoes(m.Epoch) {
		r.saysLater(m.From.Node)
		return
	}
	r.sayDamaged()
	if r.follows() && m.Epoch == r.copy.Epoch() && m.From == r.want.Owner {
		r.stand(true)
	}
}

// outdoes reports whether this copy has a role in a later epoch than one that a message is of.
func (r *replica) outdoes(epoch uint64) bool {
	return epoch < r.copy.Epoch() && (r.copy.Role() == partition.Owner || r.follows())
}

// sayStanding tells the owner unasked where this copy's log ends.
func (r *replica) sayStanding() { r.stand(false) }

// sayDamaged tells the owner that this copy, which has a place, answers for nothing: else it would be counted on for what nobody can confirm.
func (r *replica) sayDamaged() {
	local := r.m.env.Local
	if d, w := r.copy.Damaged(), r.want; d != "" && w != nil && w.Owner.Node != local.Node && w.Names(local.Store) {
		r.sendCopy(w.Owner.Node, protocol.Standing{Partition: r.id, Epoch: w.Epoch, From: local, Damaged: d})
	}
}

// saySealed tells the owner that this copy follows no more. The word leaves before the seal is answered, so it is on its way before anybody can
// be chosen by that answer: the owner hands out nothing that its successor may hand out, and have settled, unless this word takes longer than the
// choice, the commit and the successor's mark together.
func (r *replica) saySealed() {
	r.sendCopy(r.want.Owner.Node, protocol.Standing{Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local, Sealed: true})
}

func (r *replica) stand(asked bool) {
	s := protocol.Standing{
		Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local, Learner: r.copy.Role() == partition.Learner, Asked: asked,
		Tail: r.copy.Tail(), Durable: r.copy.Durable().Position, Damaged: cmp.Or(r.copy.Damaged(), r.noRoom()),
	}
	r.roomless = s.Damaged != "" && r.copy.Damaged() == ""
	s.Empty = s.Tail.Position == 0
	s.Partial, s.Importing = r.copy.Importing(), r.importing()
	r.saidHeld = s.Durable
	r.sendCopy(r.want.Owner.Node, s)
}

// noRoom says why a copy that counts for nothing yet takes nothing more, if that is so: the disk is full up to what is kept for settles, for
// the catalog, and for copies that count.
func (r *replica) noRoom() string {
	if why := r.m.held.Load(); why != nil && (r.copy.Role() == partition.Learner || r.copy.Importing()) {
		return "it waits for room on its disk: " + *why
	}
	return ""
}

// room tells the owner when a copy that catches up takes nothing more, or goes on.
func (r *replica) room() {
	if r.follows() && r.roomless != (r.noRoom() != "") {
		r.sayStanding()
	}
}

// extend continues the log with what the owner sent.
func (r *replica) extend(m protocol.Extend) {
	r.hears(m.Epoch)
	if r.outdoes(m.Epoch) {
		r.saysLater(m.From.Node)
		return
	}
	if !r.follows() || m.Epoch != r.copy.Epoch() || m.From != r.want.Owner {
		return
	}
	if r.noRoom() != "" {
		r.room()
		return
	}
	for _, b := range m.Batches {
		if b.End() <= r.copy.Tail().Position {
			r.saidHeld = 0 // it came twice: the owner has taken an old word of this copy's for the last, and must hear the newer one again
			continue
		}
		link := b.Link()
		if err := r.copy.Follow(m.Epoch, b, link); err != nil {
			if errors.Is(err, partition.ErrGap) {
				r.sayStanding()
			}
			return
		}
		r.flights = append(r.flights, flight{b, r.copy.Tail()})
		r.staged += int64(b.Size())
		r.log.Append(b, link, false, r.appendedFunc())
	}
	r.known, r.keep = m.Confirmed, m.Keep
	if r.local != nil {
		r.local.heard, r.local.asked = r.mono(), 0
	}
	r.step(func(fx *partition.Effects) { _ = r.copy.Learn(m.Epoch, m.Confirmed, fx) }) // ErrStale: checked above
}

// cameFurther notes when a learner did, or a copy that takes an image, for people: one that does not needs them.
func (r *replica) cameFurther() {
	if r.copy.Role() == partition.Learner || r.copy.Importing() {
		r.moved = r.now()
	}
}

// sayHeld tells the owner how far this copy holds the log, once for all that became durable in a round.
func (r *replica) sayHeld() {
	at := r.copy.Durable().Position
	if at == r.saidHeld || !r.follows() {
		return
	}
	r.saidHeld = at
	r.cameFurther()
	r.sendCopy(r.want.Owner.Node, protocol.Held{Partition: r.id, Epoch: r.copy.Epoch(), From: r.m.env.Local, Durable: at})
}

// warm begins to build the state that confirmed entries make, so that this copy can own without reading its log first, and its log can
// drop what the state does not need.
func (r *replica) warm() {
	if r.phase == outside && r.copy.Damaged() == "" && !r.copy.Importing() {
		r.load()
	}
}

// advanceWarm applies what has been confirmed: from memory where it just came, else from the log.
func (r *replica) advanceWarm(position uint64) {
	for len(r.flights) > 0 && r.flights[0].tail.Position <= r.applied.Position {
		r.land(r.flights[0].tail.Position)
	}
	n := 0
	for ; n < len(r.flights) && r.flights[n].tail.Position <= position; n++ {
		f := &r.flights[n]
		if f.b.Position != r.applied.Position {
			break
		}
		if err := r.apply(f.b, f.tail); err != nil {
			r.fail("apply", err)
			return
		}
	}
	r.land(r.applied.Position)
	if r.applied.Position < position {
		r.again() // it has come to know of what it took before
		return
	}
	r.side.advanced(r)
}

// flushFollower does what gathers: tells the owner, and writes snapshots.
func (r *replica) flushFollower(stirred bool) {
	r.sayHeld()
	if r.local != nil {
		r.flushReading(stirred)
	}
	if r.phase == warm {
		r.saveIfDue()
		r.side.keep(r, r.now())
		r.setTimer()
	}
}

// former is about a copy that the newest assignment does not name: it follows nobody, nobody reads here, and in a while its data goes.
type former struct {
	partition.Former
	cancel func() bool
	until  int64 // wall time in ms when the data goes, for people; 0: not yet known
	ended  bool  // the replica has ended, and the log is being deleted
}

// stop ends the wait, as far as it is a timer.
func (f *former) stop() {
	if f.cancel != nil {
		f.cancel()
		f.cancel = nil
	}
}

// leave notes whether the newest assignment names this store, and reports whether the replica has ended: one that is named again is made anew.
func (r *replica) leave() (ended bool) {
	f := r.former
	switch named := r.want.Names(r.m.env.Local.Store); {
	case f != nil && f.ended:
		return true // it is on its way since before
	case named && f != nil:
		f.stop()
		r.former = nil
	case !named && f == nil:
		r.former = &former{}
		r.endReading("this copy is none of the partition's any more")
	}
	r.lookFormer()
	return r.former != nil && r.former.ended
}

// lookFormer drops the data of a former copy, or sets a timer to look again.
func (r *replica) lookFormer() {
	f := r.former
	if f == nil || f.ended || r.stopping() {
		return
	}
	f.stop()
	drop, wait := f.Look(r.copy.Rests(r.want, r.m.env.Local.Store), r.m.env.Clock.Mono(), r.m.tunables.Load().FollowerLossHold,
		cmp.Or(r.m.env.FormerHold, partition.FormerHold))
	f.until = 0
	switch {
	case drop:
		r.dropFormer()
	case f.Waits():
		f.until = r.now() + wait.Milliseconds()
		f.cancel = r.box.After(wait, call{func() {
			if r.former == f {
				r.lookFormer()
			}
		}})
	}
}

// dropFormer ends the replica and drops what its copy holds, as if its resource were deleted. What storage cannot do any more is begun again
// by the node's next run.
func (r *replica) dropFormer() {
	f := r.former
	f.ended = true
	bytes, _ := r.log.Size()
	trace.Info(r.m.env.Trace, "copy.left", r.attr(), slog.Int64("bytes", bytes), slog.Uint64("version", r.want.Version))
	r.m.retires(r)
	told := r.m.dropped(r.id)
	r.finish("its place is another copy's", func() {
		r.log.Delete(func(err error) {
			told(err)
			if err == nil {
				r.box.Post(call{func() {
					r.m.formers.Add(1)
					r.m.retire(r)
				}})
			}
		})
	})
}
