package control

import "time"

// lateLook is the longest time between two looks at a sync that counts against the disk. Who looks this late did not run itself for a while.
const lateLook = 500 * time.Millisecond

// Stall tells for how long a sync has kept its caller waiting, as far as somebody saw it who looks again and again. By the clock alone a process
// that was stopped in the midst of a sync, or whose machine was, would take its own pause for the disk's, and own nothing any more (design 2 §4).
// The zero Stall is ready. It is not safe for concurrent use.
type Stall struct {
	looked time.Duration // when last; 0: never
	seen   time.Duration // of the sync that is under way
}

// Look takes what the clock says at now: for how long the present sync has taken, 0 if there is none. It returns how much of that was seen:
// of the time since the last look lateLook counts at most. Times are on one monotonic clock, in order of the calls.
func (s *Stall) Look(now, clock time.Duration) time.Duration {
	since := clock
	if s.looked > 0 {
		since = now - s.looked
	}
	if clock <= since {
		s.seen = 0 // it began since
	}
	s.looked = now
	s.seen = min(clock, s.seen+min(since, lateLook))
	return s.seen
}
