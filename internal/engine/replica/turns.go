package replica

// What a node sends to copies that catch up from far goes piece by piece, in turns (partition.Pace), so that publishers hardly notice it.

const (
	// turnSize is how many bytes such a copy is sent at a time: a piece is written and synced with what others wait for.
	turnSize = 256 << 10
	// nearEnough is how much of the log a follower is sent without waiting for turns: one that was away for a moment is back at once.
	nearEnough = 16 << 20
)

// piece says how much a copy is sent next, at most most bytes, and whether that waits for its turn. What was appended since it is behind it may
// be sent at once, so that it comes nearer however much that is.
func (r *replica) piece(f *feed, most int) (size int, turns bool) {
	if !f.learner && f.image == nil && f.read < nearEnough || f.allowed >= int64(most) || r.short() {
		return most, false
	}
	return min(most, turnSize), true
}

// turn notes that a copy is sent so many bytes of what it is behind, and calls send when it is their turn.
func (r *replica) turn(f *feed, size int64, turns bool, send func()) {
	f.read += size
	if !turns {
		f.allowed = max(0, f.allowed-size)
		send()
		return
	}
	if wait := r.m.turn(size); wait > 0 {
		r.box.After(wait, call{send})
	} else {
		send()
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
	return n < int(r.w)
}
