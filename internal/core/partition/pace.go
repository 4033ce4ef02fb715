package partition

import "time"

// Pace spreads what a node sends to copies that catch up from far over time, so that publishers, who share disks and network with it, hardly
// notice. Pieces get turns one after the other, whichever copy they are for. It has no clock: times are monotonic and given.
type Pace struct {
	free time.Duration // when the next piece may go
}

// Turn gives a piece of so many bytes its turn, at rate bytes a second, and says for how long it must wait; the turn is taken. A rate of 0
// bounds nothing.
func (p *Pace) Turn(now time.Duration, bytes, rate int64) (wait time.Duration) {
	if rate <= 0 {
		return 0
	}
	at := max(now, p.free)
	p.free = at + time.Duration(float64(bytes)/float64(rate)*float64(time.Second))
	return at - now
}
