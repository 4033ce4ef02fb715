package bench

import (
	"sync/atomic"
	"time"
)

// gaps keeps the longest time between two things that happen to several at once. Nothing is noted before begin.
type gaps struct {
	began   time.Time
	last    atomic.Int64 // nanoseconds since began; what is not noted after it begins a gap
	longest atomic.Int64
	open    atomic.Bool
}

// begin begins to measure: the time until the first note counts too.
func (g *gaps) begin() {
	if g.began.IsZero() {
		g.began = time.Now()
	}
	g.last.Store(int64(time.Since(g.began)))
	g.longest.Store(0)
	g.open.Store(true)
}

// note says that it happened.
func (g *gaps) note(now time.Time) {
	if g.open.Load() {
		g.reached(int64(now.Sub(g.began)))
	}
}

func (g *gaps) reached(at int64) {
	gap := at - g.last.Swap(at)
	for {
		most := g.longest.Load()
		if gap <= most || g.longest.CompareAndSwap(most, gap) {
			return
		}
	}
}

// end gives the longest gap since begin; what has lasted until now is one.
func (g *gaps) end() time.Duration {
	g.open.Store(false)
	g.reached(int64(time.Since(g.began)))
	return time.Duration(g.longest.Load())
}
