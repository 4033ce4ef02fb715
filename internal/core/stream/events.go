package stream

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/batch"
)

// EventCursors moves named cursors:
//
//	one or more of: u8 op | u8 length, name | op 1, 2: varint offset
//
// op 1 moves forward only, and makes the cursor if there is none; 2 sets; 3 deletes. Varints are unsigned LEB128, shortest form.
const EventCursors uint8 = 32

const (
	opForward uint8 = 1
	opSet     uint8 = 2
	opForget  uint8 = 3

	// maxEvent is the size in bytes above which an event takes no further cursor.
	maxEvent = 32 << 10
	layout   = 1
)

type move struct {
	op     uint8
	name   string
	offset uint64
}

func malformed(typ uint8, what string) error {
	return fmt.Errorf("%w: type %d: %s", ErrEvent, typ, what)
}

// decode calls f for every move of an event.
func decode(typ uint8, body []byte, f func(move) error) error {
	if typ != EventCursors || len(body) == 0 {
		return malformed(typ, "unknown type, or empty")
	}
	for len(body) > 0 {
		mv := move{op: body[0]}
		if mv.op < opForward || mv.op > opForget || len(body) < 2 || body[1] == 0 || len(body) < 2+int(body[1]) {
			return malformed(typ, "cursor")
		}
		n := 2 + int(body[1])
		mv.name, body = string(body[2:n]), body[n:]
		if mv.op != opForget {
			v, n := batch.Uvarint(body)
			if n == 0 {
				return malformed(typ, "offset")
			}
			mv.offset, body = v, body[n:]
		}
		if err := f(mv); err != nil {
			return err
		}
	}
	return nil
}

// appendMoves encodes moves as events, split at maxEvent.
func appendMoves(dst []byte, moves []move) ([]byte, uint32) {
	var count uint32
	for len(moves) > 0 {
		count++
		at := len(dst)
		dst = batch.AppendEvent(dst, EventCursors, nil)
		body := len(dst)
		for len(moves) > 0 && len(dst)-body < maxEvent-2-MaxCursorName-binary.MaxVarintLen64 {
			mv := moves[0]
			dst = append(append(dst, mv.op, byte(len(mv.name))), mv.name...)
			if mv.op != opForget {
				dst = binary.AppendUvarint(dst, mv.offset)
			}
			moves = moves[1:]
		}
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-body))
	}
	return dst, count
}

// A snapshot has a page for every 64 cursors' places, numbered from 1, and an empty page 0 so that it is never without one:
//
//	page:  u8 layout 1, then so often, places ascending: u8 place in the page | u8 length, name | varint offset

// Snapshot gives the pages that changed since the last call, all of them if full, and the numbers of those that went.
func (m *Machine) Snapshot(full bool) (pages []batch.Page, gone []uint32) {
	if full || m.fresh {
		pages = append(pages, batch.Page{Data: []byte{layout}})
	}
	m.fresh = false
	write := m.dirty
	if full {
		write |= m.saved
	}
	bySlot := slices.Clone(m.cursors)
	slices.SortFunc(bySlot, func(a, b cursor) int { return int(a.slot) - int(b.slot) })
	for ; write != 0; write &= write - 1 {
		n := uint32(bits.TrailingZeros32(write))
		data := []byte{layout}
		for _, c := range bySlot {
			if c.slot/pageCursors == n {
				data = append(append(data, byte(c.slot%pageCursors), byte(len(c.name))), c.name...)
				data = binary.AppendUvarint(data, c.offset)
			}
		}
		switch {
		case len(data) > 1:
			pages = append(pages, batch.Page{Number: n + 1, Data: data})
			m.saved |= 1 << n
		case m.saved&(1<<n) != 0:
			gone = append(gone, n+1)
			m.saved &^= 1 << n
		}
	}
	m.dirty = 0
	return pages, gone
}

// Restore sets a new machine's replicated state from all pages of a snapshot. It returns ErrPage, and the machine is then unusable.
func (m *Machine) Restore(pages []batch.Page) error {
	for _, pg := range pages {
		if len(pg.Data) == 0 || pg.Data[0] != layout || pg.Number > MaxCursors/pageCursors {
			return fmt.Errorf("%w: number %d", ErrPage, pg.Number)
		}
		if pg.Number == 0 {
			continue
		}
		if err := m.restorePage(pg); err != nil {
			return err
		}
		m.saved |= 1 << (pg.Number - 1)
	}
	slices.SortFunc(m.cursors, func(a, b cursor) int { return strings.Compare(a.name, b.name) })
	for at := 1; at < len(m.cursors); at++ {
		if m.cursors[at].name == m.cursors[at-1].name {
			return fmt.Errorf("%w: cursor %q twice", ErrPage, m.cursors[at].name)
		}
	}
	m.fresh = false
	return nil
}

func (m *Machine) restorePage(pg batch.Page) error {
	body := pg.Data[1:]
	last := -1
	for len(body) > 0 {
		if len(body) < 2 || int(body[0]) <= last || body[0] >= pageCursors || body[1] == 0 || len(body) < 2+int(body[1]) {
			return fmt.Errorf("%w: number %d", ErrPage, pg.Number)
		}
		last = int(body[0])
		c := cursor{slot: (pg.Number-1)*pageCursors + uint32(last), name: string(body[2 : 2+int(body[1])])}
		v, n := batch.Uvarint(body[2+int(body[1]):])
		if n == 0 {
			return fmt.Errorf("%w: number %d", ErrPage, pg.Number)
		}
		c.offset, body = v, body[2+int(body[1])+n:]
		for len(m.slots) <= int(c.slot) {
			m.slots = append(m.slots, false)
		}
		if m.slots[c.slot] {
			return fmt.Errorf("%w: number %d twice", ErrPage, pg.Number)
		}
		m.slots[c.slot] = true
		m.cursors = append(m.cursors, c)
	}
	if last < 0 {
		return fmt.Errorf("%w: number %d is empty", ErrPage, pg.Number)
	}
	return nil
}
