package gateway

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
)

// A process that was stopped, or whose machine was, goes on with what lay in its mailboxes. An owner that was chosen meanwhile has waited for its
// claims in vain, and has given what was on its way here to others, who may have settled it. So a shard that stood still takes nothing from the
// streams that it had: it begins them anew, and says what its clients hold.

// haltAfter is for how long nothing of the node may have run before it counts as having stood still. It is less than a new owner waits for claims
// (500 ms) by as much as two heartbeats.
const haltAfter = 300 * time.Millisecond

// pulse is when anything of the node ran last, and how often it stood still.
type pulse struct {
	// word is the monotonic time in ms, shifted by 16 bits, and the number of halts; 0: not used yet.
	word atomic.Uint64
	from atomic.Int64 // when the last halt began at the earliest, monotonic time in ns
}

// Pulse says that the node runs. From the first call on it must be called every 100 ms. Any goroutine may call it.
func (n *Node) Pulse(now time.Duration) {
	n.pulse.word.CompareAndSwap(0, uint64(max(now.Milliseconds(), 1))<<16)
	n.runs(now)
}

// runs notes that something of the node runs, and says how often it stood still.
func (n *Node) runs(now time.Duration) (halts uint16) {
	for {
		word := n.pulse.word.Load()
		last, ms := int64(word>>16), max(now.Milliseconds(), 1)
		halts = uint16(word)
		if word == 0 || ms-last < haltAfter.Milliseconds()/4 {
			return halts
		}
		if ms-last >= haltAfter.Milliseconds() {
			n.pulse.from.Store(last * int64(time.Millisecond))
			halts++
		}
		if n.pulse.word.CompareAndSwap(word, uint64(ms)<<16|uint64(halts)) {
			return halts
		}
	}
}

// stoodStill begins the streams to owners of queues anew that clients here were given something on, or may be.
func (s *Shard) stoodStill() {
	from := time.Duration(s.env.Node.pulse.from.Load())
	for _, a := range slices.Clone(s.attachments) {
		if a.gone || a.state != open || a.res.Kind != catalog.Queue || len(a.consumers)+len(a.requests) == 0 && !a.holding() {
			continue
		}
		a.away = from // whoever was given the same since has the better right to it
		a.again()
	}
}
