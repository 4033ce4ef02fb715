package consensus

import (
	"fmt"
	"time"

	"go.etcd.io/raft/v3"
)

// barrier waits until what was committed when it was asked for is applied here. The leader says how far that is.
type barrier struct {
	ctx     uint64 // of the question to the leader; 0: not asked yet
	index   uint64 // its answer; 0: not known yet
	at      time.Duration
	lasting bool // waits for as long as it takes
	done    func(error)
}

func (c *Consensus) receiveBarrier(done func(error)) {
	switch {
	case c.err != nil:
		done(fmt.Errorf("%w: %w", ErrNotProposed, c.err))
	case c.node == nil:
		done(fmt.Errorf("%w: the catalog is not loaded yet", ErrNotProposed))
	case len(c.barriers) >= c.env.MaxInFlight:
		done(fmt.Errorf("%w: %d barriers wait already", ErrNotProposed, len(c.barriers)))
	default:
		c.barriers = append(c.barriers, barrier{at: c.now(), done: done})
	}
}

// ask asks the leader once for all barriers that came since the last Flush.
func (c *Consensus) ask() {
	if n := len(c.barriers); n == 0 || c.barriers[n-1].ctx != 0 {
		return
	}
	c.asked++
	for i := range c.barriers {
		if c.barriers[i].ctx == 0 {
			c.barriers[i].ctx = c.asked
		}
	}
	c.node.ReadIndex(marshalContext(c.env.Local.Boot, c.asked))
}

// reask asks again for what has no answer: the question or the answer may be lost.
func (c *Consensus) reask(all bool) {
	now, any := c.now(), false
	for i := range c.barriers {
		if b := &c.barriers[i]; b.index == 0 && (all || now-b.at >= retryEvery) {
			b.ctx, any = c.asked+1, true
		}
	}
	if any && c.soft.Lead != 0 {
		c.asked++
		c.node.ReadIndex(marshalContext(c.env.Local.Boot, c.asked))
	}
}

func (c *Consensus) readAt(r raft.ReadState) {
	ctx := unmarshalContext(r.RequestCtx, c.env.Local.Boot)
	if ctx == 0 {
		return
	}
	for i := range c.barriers {
		if c.barriers[i].ctx == ctx {
			c.barriers[i].index = max(r.Index, 1)
		}
	}
}

func (c *Consensus) passBarriers() {
	if len(c.barriers) == 0 {
		return
	}
	var left, pass []barrier
	for _, b := range c.barriers {
		if b.index != 0 && b.index <= c.applied {
			pass = append(pass, b)
		} else {
			left = append(left, b)
		}
	}
	c.barriers = left
	for _, b := range pass {
		b.done(nil)
	}
}
