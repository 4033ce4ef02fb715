package clock

import (
	"sync/atomic"
	"time"
)

// HaltAfter is for how long nothing of a process may have run before it counts as having stood still: stopped, or its machine was. A new owner waits
// 500 ms for claims, and nobody is given up for silence within 1.5 s (design 2 §2, §4): what stood still for less has missed neither.
const HaltAfter = 400 * time.Millisecond

// Pulse notices that the process has stood still: by a signal, a debugger, a machine that was suspended. Who acts on what may have changed meanwhile
// asks Halts, and compares with what it was told last. The zero Pulse notices nothing until the first Beat. It is safe for concurrent use.
type Pulse struct {
	// word is the monotonic time of the last sign of life in ms, shifted by 16 bits, and the number of halts; 0: no Beat yet.
	word atomic.Uint64
	from atomic.Int64 // the last sign of life before the last halt, monotonic time in ns
}

// Beat is a sign of life. From the first on one must come every 100 ms.
func (p *Pulse) Beat(now time.Duration) {
	p.word.CompareAndSwap(0, uint64(max(now.Milliseconds(), 1))<<16)
	p.Halts(now)
}

// Halts is a sign of life too, and says how often the process has stood still, modulo 65 536. now is the monotonic time, read just before.
func (p *Pulse) Halts(now time.Duration) uint16 {
	for {
		word := p.word.Load()
		last, ms, halts := int64(word>>16), max(now.Milliseconds(), 1), uint16(word)
		if word == 0 || ms-last < HaltAfter.Milliseconds()/8 {
			return halts
		}
		if ms-last >= HaltAfter.Milliseconds() {
			p.from.Store(last * int64(time.Millisecond))
			halts++
		}
		if p.word.CompareAndSwap(word, uint64(ms)<<16|uint64(halts)) {
			return halts
		}
	}
}

// Since is when the last halt began, at the earliest; monotonic time, 0 if there was none.
func (p *Pulse) Since() time.Duration { return time.Duration(p.from.Load()) }
