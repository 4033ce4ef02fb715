package clock

import "time"

// Sim is a node's clock in a simulation: it follows a virtual time, with an offset and a rate of its own. It is not safe for
// concurrent use; a simulation is one thread.
type Sim struct {
	now    func() time.Duration
	start  time.Time
	offset time.Duration
	ppm    int64
	base   time.Duration // virtual time at which ppm was set
	drift  time.Duration // gathered before base
}

// NewSim makes a clock over a virtual time. At virtual time 0 its wall clock shows start.
func NewSim(now func() time.Duration, start time.Time) *Sim { return &Sim{now: now, start: start} }

// Skew sets the wall clock off by offset, which is a jump, and lets the wall and the monotonic clock run fast by ppm millionths.
func (c *Sim) Skew(offset time.Duration, ppm int64) {
	c.drift = c.gathered()
	c.base = c.now()
	c.offset, c.ppm = offset, max(ppm, -999_999)
}

func (c *Sim) gathered() time.Duration {
	return c.drift + time.Duration(int64((c.now()-c.base)/time.Microsecond)*c.ppm/1000)
}

// Wall is the node's time of day.
func (c *Sim) Wall() time.Time { return c.start.Add(c.Mono() + c.offset) }

// Mono is the time that the node has counted since virtual time 0.
func (c *Sim) Mono() time.Duration { return c.now() + c.gathered() }
