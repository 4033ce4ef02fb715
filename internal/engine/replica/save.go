package replica

import (
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/partition"
)

const (
	// A snapshot is due once so much was applied since the last: what a restart has to read again.
	saveBytes   = 4 << 20
	saveEntries = 64 << 10
	// What lives in memory only is let go of sooner.
	trimBytes   = 64 << 10
	trimEntries = 1 << 10
	// At a clean stop a snapshot is worth its write from here on.
	stopBytes   = 64 << 10
	stopEntries = 1 << 10
)

// saving is about the snapshots of one owner's state.
type saving struct {
	at      uint64 // position of the newest durable snapshot
	bytes   int64  // applied since
	entries uint64
	dead    int64  // least bytes since the last that the log held and the machine did not need
	live    int64  // bytes that the machine needed when the log was last looked at, or later
	pages   uint32 // of the producer table in it
	looked  bool   // the log was looked at
	busy    bool
	wanted  bool // retention waits for one
}

// saveIfDue writes a snapshot when enough has been applied since the last.
func (r *replica) saveIfDue() {
	s := &r.save
	bytes, entries := int64(saveBytes), uint64(saveEntries)
	switch every := r.m.env.SnapshotEvery; {
	case every > 0:
		bytes, entries = saveBytes, every
	case r.id.Transient():
		bytes, entries = trimBytes, trimEntries
	}
	if s.busy {
		return
	}
	// Settling large messages takes few bytes and frees many: they stay in the log, and on the disk, until a snapshot says that they
	// are not needed.
	dead := r.deadBytes()
	s.dead = min(s.dead, dead)
	if s.bytes < bytes && s.entries < entries && dead-s.dead < bytes && !s.wanted {
		return
	}
	s.dead = dead
	r.snapshot()
}

// deadBytes is what the log holds beyond what the machine needs; 0 where the machine does not say. While what the machine needs does not
// shrink, at most what was applied since can have become needless, which counts by itself: the log is not asked then.
func (r *replica) deadBytes() int64 {
	live, ok := r.side.live()
	if !ok {
		return 0
	}
	grown := r.save.looked && live >= r.save.live
	r.save.live, r.save.looked = live, true
	if grown {
		return r.save.dead
	}
	kept, _ := r.log.Size()
	return max(kept-live, 0)
}

// snapshot writes the applied state. What it makes unnecessary in the log may go once it is durable.
func (r *replica) snapshot() {
	s := &r.save
	s.bytes, s.entries, s.wanted = 0, 0, false
	var pages []partition.Page
	var gone []uint32
	if !r.id.Transient() { // what is in memory is gone with this run: the log only has to know how far it was applied
		pages, gone = r.pages()
	}
	s.busy = true
	at := r.applied
	generation := r.generation
	shot := partition.Snapshot{
		At: at, Version: machineVersion(r.res.Kind), Pages: pages, Gone: gone,
	}
	r.log.WriteSnapshot(shot, func(err error) {
		r.box.Post(call{func() {
			switch {
			case err != nil:
				r.fail("snapshot", err)
			case r.generation == generation:
				r.save.busy, r.save.at = false, at.Position
				r.side.retain(r)
			}
		}})
	})
}

// pages are the machine's that changed and the producer table's.
func (r *replica) pages() ([]partition.Page, []uint32) {
	pages, gone := r.side.snapshot()
	table := r.producers.Pages()
	for n := uint32(len(table)); n < r.save.pages; n++ {
		gone = append(gone, partition.ProducersPage+n)
	}
	r.save.pages = uint32(len(table))
	return append(slices.Clip(pages), table...), gone
}

// retained is called by storage, on a loop of its own.
func (r *replica) retained(err error) {
	if err != nil {
		r.box.Post(call{func() { r.fail("retain", err) }})
	}
}

// setTimer arms a timer for when the machine next has something to do, if that is sooner than what is armed.
func (r *replica) setTimer() {
	var w int64
	if r.asked != nil && r.asked.claimEnd != 0 {
		w = r.now() + r.asked.claimEnd - r.mono()
	}
	switch r.phase {
	case serving:
		w = r.side.wake(r)
	case warm:
		w = r.side.keepAt()
		if r.local != nil {
			if at := r.now() + r.local.lagAt() - r.mono(); w == 0 || at < w {
				w = at
			}
		}
	}
	if w == 0 || r.wakeAt != 0 && r.wakeAt <= w {
		return
	}
	r.stopTimer()
	r.wakeAt = w
	wait := max(time.Duration(w-r.now())*time.Millisecond, time.Millisecond)
	r.cancel = r.box.After(wait, wake{w})
}

func (r *replica) stopTimer() {
	if r.cancel != nil {
		r.cancel()
	}
	r.wakeAt, r.cancel = 0, nil
}

// woken is called when a timer goes off: Flush does the work.
func (r *replica) woken(w wake) {
	if w.at == r.wakeAt {
		r.wakeAt, r.cancel = 0, nil
	}
}

// stop ends admission; endStop calls done once everything is durable.
func (r *replica) stop(done func()) {
	if r.ending == nil {
		r.ending = &ending{}
	}
	r.ending.stopped = append(r.ending.stopped, done)
	if r.ending.closing == "" {
		r.ending.closing = "the node is stopping"
	}
}

// endStop finishes a stop as soon as nothing is on its way into the log: first a snapshot where it is worth it, then the end.
func (r *replica) endStop() {
	if !r.stopping() {
		return
	}
	if (r.phase == serving || r.phase == warm) && r.copy.Damaged() == "" {
		if r.copy.InFlight() > 0 || r.builder != nil && !r.builder.Empty() && r.fenced() == nil || r.save.busy {
			return
		}
		if !r.id.Transient() && (r.save.bytes >= stopBytes || r.save.entries >= stopEntries) {
			r.snapshot()
			return
		}
	}
	e := r.ending
	done := e.stopped
	e.stopped = []func(){}
	r.step(func(fx *partition.Effects) { r.copy.Retire("the node is stopping", fx) })
	for _, f := range done {
		f()
	}
	e.stopped = nil
}
