package replica

import (
	"time"
)

// What a node sends to copies that catch up from far goes piece by piece, in turns (partition.Pace), so that publishers hardly notice it.

const (
	// turnSize is how many bytes such a copy is sent at a time: a piece is written and synced with what others wait for.
	turnSize = 256 << 10
	// nearEnough is how much of the log a follower is sent without waiting for turns: one that was away for a moment is back at once.
	nearEnough = 16 << 20
)

// turn says how much a copy is sent next, at most most bytes, and for how long that must wait; turned is the size of the turn that it took, 0
// where it need not wait for one. What was appended since it is behind it may be sent at once, so that it comes nearer however much that is.
func (r *replica) turn(f *feed, most int) (size int, turned int64, wait time.Duration) {
	if !f.learner && f.image == nil && f.read < nearEnough || f.allowed >= int64(most) || r.short() {
		return most, 0, 0
	}
	size = min(most, turnSize)
	return size, int64(size), r.m.turn(int64(size))
}

// sent notes what a copy was sent of what it is behind.
func (r *replica) sent(f *feed, size, turned int64) {
	f.read += size
	if turned == 0 {
		f.allowed = max(0, f.allowed-size)
	} else {
		r.m.turnBack(turned - size)
	}
}

// short reports whether fewer copies are in step than a confirm needs: then whatever brings another nearer must not wait.
func (r *replica) short() bool {
	n := 1
	for _, f := range r.feeds {
		if !f.learner && !f.doubted && f.Standing() && f.Next() >= r.copy.Confirmed() {
			n++
		}
	}
	return n < r.w
}

// after calls f on the replica's loop when a while has passed, at once if there is none to wait for.
func (r *replica) after(wait time.Duration, f func()) {
	if wait <= 0 {
		f()
		return
	}
	r.box.After(wait, call{f})
}
