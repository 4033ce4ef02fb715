package queue

import (
	"math/bits"

	"github.com/tanist/tanist/internal/core/batch"
)

// Machine is the state of one queue. It is not safe for use by several goroutines. Empty, it takes some 300 bytes, as an
// owner some 300 more.
type Machine struct {
	settings *Settings // never changed
	limited  bool      // a length limit is set

	// Replicated: a function of the log.
	pages    []*page // ascending; nothing lives between them
	next     uint64  // offset of the next record
	number   uint64  // of the last dead letter
	messages uint64
	ready    uint64 // bits in the pages' ready; for an owner without what is held or staged
	delayed  uint64
	dead     *[DeadLanes][]dead
	ndead    uint64
	bytes    int64

	gone      []uint32 // pages of the last snapshot that went since
	headDirty bool
	spare     *page
	o         *owner // nil: not owner
}

// dead is a dead letter that waits; the lists of the lanes are in order of number.
type dead struct{ number, offset uint64 }

// plain are the settings of most queues, kept once.
var plain Settings

// New makes the machine of a queue whose log is empty.
func New(s Settings) *Machine {
	m := new(Machine)
	m.Begin(s)
	return m
}

// Begin makes a new machine that is part of something else what New gives.
func (m *Machine) Begin(s Settings) {
	kept := &plain
	if s != plain {
		kept = new(s)
	}
	*m = Machine{settings: kept, limited: s.MaxLength != nil || s.MaxBytes != nil, headDirty: true}
}

// Next is the offset of the next record to be applied.
func (m *Machine) Next() uint64 { return m.next }

// Counts are the queue's numbers.
func (m *Machine) Counts() Counts {
	c := Counts{Ready: m.ready, Delayed: m.delayed, Dead: m.ndead, Messages: m.messages, Bytes: m.bytes}
	if m.o != nil {
		c.Unsettled, c.Consumers = m.o.held, uint64(m.o.subscribed)
	}
	return c
}

// Live appends the spans of offsets whose bodies are still needed, ascending. Spans less than gap apart are joined, which bounds
// their number: gap 64 gives at most 64 a page.
func (m *Machine) Live(gap uint64, dst []batch.Span) []batch.Span {
	start := len(dst)
	for _, p := range m.pages {
		for w, set := range p.live {
			for set != 0 {
				lo := bits.TrailingZeros64(set)
				n := bits.TrailingZeros64(^(set >> lo))
				if n < 64 {
					set &^= (1<<n - 1) << lo
				} else {
					set = 0
				}
				from := p.base() + uint64(w<<6+lo)
				to := from + uint64(n)
				if last := len(dst) - 1; last >= start && (from == dst[last].To || from-dst[last].To < gap) {
					dst[last].To = to
				} else {
					dst = append(dst, batch.Span{From: from, To: to})
				}
			}
		}
	}
	return dst
}

// Trim gives back memory that an idle queue does not need.
func (m *Machine) Trim() {
	m.spare = nil
	if n := len(m.pages); n > 0 && m.pages[n-1].n == 0 {
		m.dropPage(n - 1)
		m.spare = nil
	}
	if len(m.pages) == 0 {
		m.pages = nil
	}
	if m.ndead == 0 {
		m.dead = nil
	}
	if m.o != nil {
		m.o.trim()
	}
}

// dies reports whether messages that die are to be published elsewhere.
func (m *Machine) dies() bool { return m.settings.DeadLetterExchange != nil }
