package stream

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/batch"
)

// pageCursors is the number of cursors of one snapshot page.
const pageCursors = 64

// cursor is a named cursor. slot is its place in the snapshot's pages, the lowest that was free when it was made.
type cursor struct {
	name   string
	offset uint64
	slot   uint32
}

// Machine is the state of one stream. It is not safe for use by several goroutines.
type Machine struct {
	settings Settings

	cursors []cursor // by name
	slots   []bool   // taken
	dirty   uint32   // bit n: page n changed since the last snapshot
	saved   uint32   // bit n: page n is in the last snapshot
	fresh   bool     // no snapshot was given yet

	staged    []move // by name, the last for each; what TakeEvents gives
	inflight  []move // in order of the log: taken, not confirmed
	readers   map[Holder]*reader
	ordered   []*reader // in order of subscription
	gone      int       // of ordered, ended
	scheduled []*reader // scratch of Due
}

// reader is one consumer of the stream.
type reader struct {
	holder Holder
	next   uint64
	credit int64
	busy   bool
	ended  bool
}

// New makes the machine of a stream whose log is empty.
func New(s Settings) *Machine { return &Machine{settings: s, fresh: true} }

// Retain is Retain by the stream's own settings.
func (m *Machine) Retain(now int64, confirmed uint64, bytes, records int64, oldest []batch.Info) uint64 {
	return Retain(m.settings, now, confirmed, bytes, records, oldest)
}

func findCursor(list []cursor, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(c cursor, name string) int { return strings.Compare(c.name, name) })
}

func findMove(list []move, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(c move, name string) int { return strings.Compare(c.name, name) })
}

// ApplyBatch applies the stream's events of a confirmed batch and skips the rest. It returns ErrEvent.
func (m *Machine) ApplyBatch(b batch.Batch) error {
	var err error
	b.Each(func(e batch.Entry) bool {
		if ours(e) {
			err = m.ApplyEvent(e.Type, e.Body)
		}
		return err == nil
	})
	return err
}

func ours(e batch.Entry) bool {
	return e.Kind == batch.KindEvent && e.Type >= batch.FirstStreamEvent && e.Type < batch.FirstPartitionEvent
}

// ApplyEvent applies a confirmed event of type 32 to 63. It returns ErrEvent; the machine is then unusable.
func (m *Machine) ApplyEvent(typ uint8, body []byte) error {
	return decode(typ, body, func(mv move) error {
		if len(m.inflight) > 0 {
			m.inflight = m.inflight[1:]
		}
		at, ok := findCursor(m.cursors, mv.name)
		switch {
		case mv.op == opForget:
			if ok {
				m.mark(m.cursors[at].slot)
				m.slots[m.cursors[at].slot] = false
				m.cursors = slices.Delete(m.cursors, at, at+1)
			}
		case !ok:
			if len(m.cursors) >= MaxCursors {
				return malformed(typ, "one cursor too many")
			}
			m.cursors = slices.Insert(m.cursors, at, cursor{strings.Clone(mv.name), mv.offset, m.freeSlot()})
			m.mark(m.cursors[at].slot)
		case mv.op == opSet || mv.offset > m.cursors[at].offset:
			m.cursors[at].offset = mv.offset
			m.mark(m.cursors[at].slot)
		}
		return nil
	})
}

func (m *Machine) mark(slot uint32) { m.dirty |= 1 << (slot / pageCursors) }

func (m *Machine) freeSlot() uint32 {
	for at, taken := range m.slots {
		if !taken {
			m.slots[at] = true
			return uint32(at)
		}
	}
	m.slots = append(m.slots, true)
	return uint32(len(m.slots) - 1)
}

// view is what a cursor will be once all that is staged has come, and how many cursors there will be.
func (m *Machine) view(name string) (uint64, bool) {
	if at, ok := findMove(m.staged, name); ok {
		return m.staged[at].offset, m.staged[at].op != opForget
	}
	for at := len(m.inflight) - 1; at >= 0; at-- {
		if m.inflight[at].name == name {
			return m.inflight[at].offset, m.inflight[at].op != opForget
		}
	}
	if at, ok := findCursor(m.cursors, name); ok {
		return m.cursors[at].offset, true
	}
	return 0, false
}

// Cursor is where a named cursor stands, staged moves included: the next record wanted.
func (m *Machine) Cursor(name string) (uint64, bool) { return m.view(name) }

// Cursors calls f for every confirmed cursor, in order of name.
func (m *Machine) Cursors(f func(name string, offset uint64)) {
	for _, c := range m.cursors {
		f(c.name, c.offset)
	}
}

// Move stages a cursor's move to offset, made if it does not exist. Unless back is set, a move that is not forward of what is
// confirmed or staged does nothing. The caller has brought offset to at most the confirmed end. It returns ErrCursors and
// ErrCursorName.
func (m *Machine) Move(name string, offset uint64, back bool) error {
	if name == "" || len(name) > MaxCursorName {
		return ErrCursorName
	}
	now, ok := m.view(name)
	if ok && (offset == now || offset < now && !back) {
		return nil
	}
	if !ok && m.expected() >= MaxCursors {
		return ErrCursors
	}
	mv := move{op: opForward, name: name, offset: offset}
	if at, staged := findMove(m.staged, name); back || staged && m.staged[at].op != opForward {
		mv.op = opSet // also where it takes the place of a deletion
	}
	m.stage(mv)
	return nil
}

// expected is the greatest number of cursors that there may be when all that is staged has come.
func (m *Machine) expected() int {
	n := len(m.cursors)
	for _, list := range [][]move{m.inflight, m.staged} {
		for at, mv := range list {
			if mv.op == opForget {
				continue // its place is free once it is confirmed
			}
			if _, ok := findCursor(m.cursors, mv.name); !ok && !named(list[:at], mv.name) {
				n++
			}
		}
	}
	return n
}

func named(list []move, name string) bool {
	return slices.ContainsFunc(list, func(mv move) bool { return mv.name == name })
}

// Forget stages a cursor's deletion; one that does not exist is left at that.
func (m *Machine) Forget(name string) {
	if _, ok := m.view(name); ok {
		m.stage(move{op: opForget, name: name})
	}
}

func (m *Machine) stage(mv move) {
	at, ok := findMove(m.staged, mv.name)
	if !ok {
		m.staged = slices.Insert(m.staged, at, mv)
	} else {
		m.staged[at] = mv
	}
}

// TakeEvents gives what is staged as count encoded events, to be appended as one run of kind KindEvent. The bytes are the caller's.
// count 0: nothing.
func (m *Machine) TakeEvents() (payload []byte, count uint32) {
	if len(m.staged) == 0 {
		return nil, 0
	}
	payload, count = appendMoves(nil, m.staged)
	m.inflight = append(m.inflight, m.staged...)
	m.staged = m.staged[:0]
	return payload, count
}

// Demote drops the owner's side: readers and staged moves.
func (m *Machine) Demote() {
	m.staged, m.inflight, m.readers, m.ordered, m.gone, m.scheduled = nil, nil, nil, nil, 0, nil
}

// Trim gives back memory that an idle stream does not need.
func (m *Machine) Trim() {
	m.scheduled = nil
	if len(m.staged) == 0 {
		m.staged = nil
	}
	if len(m.inflight) == 0 {
		m.inflight = nil
	}
	if len(m.readers) == 0 {
		m.readers, m.ordered, m.gone = nil, nil, 0
	}
}

// Subscribe adds a reader that wants next first, or moves one that exists. credit is in bytes of encoded batches.
func (m *Machine) Subscribe(h Holder, next uint64, credit int64) {
	m.Unsubscribe(h)
	if m.readers == nil {
		m.readers = make(map[Holder]*reader)
	}
	r := &reader{holder: h, next: next, credit: credit}
	m.readers[h] = r
	m.ordered = append(m.ordered, r)
}

// Unsubscribe ends a reader.
func (m *Machine) Unsubscribe(h Holder) {
	r := m.readers[h]
	if r == nil {
		return
	}
	delete(m.readers, h)
	r.ended = true
	if m.gone++; m.gone > 16 && m.gone > len(m.ordered)/2 {
		m.ordered = slices.DeleteFunc(m.ordered, func(r *reader) bool { return r.ended })
		m.gone = 0
	}
}

// ReleaseGateway ends all readers of a gateway: it detached, or attached anew and will subscribe again.
func (m *Machine) ReleaseGateway(gateway uint64) {
	for _, r := range slices.Clone(m.ordered) {
		if !r.ended && r.holder.Gateway == gateway {
			m.Unsubscribe(r.holder)
		}
	}
}

// Credit gives a reader bytes.
func (m *Machine) Credit(h Holder, bytes int64) {
	if r := m.readers[h]; r != nil {
		r.credit += bytes
	}
}

// Readers is their number.
func (m *Machine) Readers() int { return len(m.readers) }

// Due appends to dst a Fetch for every reader that has credit, something to read below confirmed (an offset), and no fetch under
// way, ordered by offset and then by how long the reader has been there: one read of the log serves all readers at one offset.
func (m *Machine) Due(confirmed uint64, dst []Fetch) []Fetch {
	due := m.scheduled[:0]
	for _, r := range m.ordered {
		if !r.ended && !r.busy && r.credit > 0 && r.next < confirmed {
			r.busy = true
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *reader) int { return cmp.Compare(a.next, b.next) })
	for _, r := range due {
		dst = append(dst, Fetch{Holder: r.holder, Offset: r.next, Credit: r.credit})
	}
	clear(due)
	m.scheduled = due[:0]
	return dst
}

// Sent ends the fetch that began at from: the reader was sent records up to next, in batches of bytes in all. bytes 0 and next as
// it was: nothing came of it. False: the reader has gone or moved meanwhile, and nothing must be sent to it.
func (m *Machine) Sent(h Holder, from, next uint64, bytes int64) bool {
	r := m.readers[h]
	if r == nil || !r.busy || r.next != from {
		return false
	}
	r.busy = false
	r.next = max(r.next, next)
	r.credit -= bytes
	return true
}
