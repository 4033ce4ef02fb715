package queue

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tanist/tanist/internal/core/batch"
)

// The events of a queue. Numbers are unsigned varints (LEB128, shortest form). Ranges of offsets are ascending, apart and not empty:
//
//	ranges = one or more of: varint gap (from the end of the range before; the first from 0), varint length - 1
//
// Every range lies below the offset of the next record.
const (
	// EventGone: messages go for good. u8 reason (see Reason), ranges. What does not live is passed over.
	EventGone uint8 = 1
	// EventReturn: messages go back to their places. One or more of: varint gap, varint length - 1, varint count: the
	// deliveries of each message of the range that have come back so far, this one included.
	EventReturn uint8 = 2
	// EventDead: messages are dead and get the numbers first, first + 1, … in order of offset. u8 reason, varint first, ranges. First
	// follows the last number given.
	EventDead uint8 = 3
	// EventDue: delayed messages become ready. Ranges.
	EventDue uint8 = 4

	// maxEvent is the size in bytes above which an event takes no further range.
	maxEvent = 32 << 10
)

// run is a range of offsets, with a count where the event has one.
type run struct {
	from, to uint64
	count    uint32
}

func malformed(typ uint8, what string) error {
	return fmt.Errorf("%w: type %d: %s", ErrEvent, typ, what)
}

// event is a decoded head of an event; rest are its ranges.
type event struct {
	typ    uint8
	reason Reason
	first  uint64 // number of the first dead letter
	rest   []byte
	end    uint64 // of the last range read
	begun  bool
}

// parseEvent reads what comes before the ranges.
func parseEvent(typ uint8, body []byte) (event, error) {
	e := event{typ: typ, rest: body}
	switch typ {
	case EventReturn, EventDue:
	case EventGone, EventDead:
		if len(body) == 0 || Reason(body[0]) >= reasonsBehind {
			return e, malformed(typ, "no reason")
		}
		e.reason, e.rest = Reason(body[0]), body[1:]
		if typ == EventDead {
			v, n := batch.Uvarint(e.rest)
			if n == 0 || v == 0 {
				return e, malformed(typ, "no number")
			}
			e.first, e.rest = v, e.rest[n:]
		}
	default:
		return e, malformed(typ, "unknown type")
	}
	if len(e.rest) == 0 {
		return e, malformed(typ, "no ranges")
	}
	return e, nil
}

// next reads a range that ends at or below limit; ok false at the end.
func (e *event) next(limit uint64) (r run, ok bool, err error) {
	if len(e.rest) == 0 {
		return r, false, nil
	}
	gap, n := batch.Uvarint(e.rest)
	if n == 0 || gap > limit || e.begun && gap == 0 && e.typ != EventReturn {
		return r, false, malformed(e.typ, "gap")
	}
	e.rest = e.rest[n:]
	length, n := batch.Uvarint(e.rest)
	if n == 0 || e.end+gap >= limit || length >= limit-e.end-gap {
		return r, false, malformed(e.typ, "range beyond the log")
	}
	e.rest = e.rest[n:]
	r = run{from: e.end + gap, to: e.end + gap + length + 1}
	if e.typ == EventReturn {
		count, n := batch.Uvarint(e.rest)
		if n == 0 || count == 0 || count > math.MaxUint32 {
			return r, false, malformed(e.typ, "count")
		}
		r.count, e.rest = uint32(count), e.rest[n:]
	}
	e.end, e.begun = r.to, true
	return r, true, nil
}

// appendEvents encodes ranges as events of one type and reason, split at maxEvent, until dst has maxTake bytes. It returns the longer
// payload, the ranges left over, the number of events, and the next dead letter's number. runs must be ascending and merged.
func appendEvents(dst []byte, typ uint8, reason Reason, first uint64, runs []run) ([]byte, []run, uint32, uint64) {
	var count uint32
	for len(runs) > 0 && len(dst) < maxTake {
		count++
		at := len(dst)
		dst = batch.AppendEvent(dst, typ, nil)
		body := len(dst)
		if typ == EventGone || typ == EventDead {
			dst = append(dst, byte(reason))
		}
		if typ == EventDead {
			dst = binary.AppendUvarint(dst, first)
		}
		end := uint64(0)
		for len(runs) > 0 && len(dst)-body < maxEvent-3*binary.MaxVarintLen64 {
			r := runs[0]
			dst = binary.AppendUvarint(dst, r.from-end)
			dst = binary.AppendUvarint(dst, r.to-r.from-1)
			if typ == EventReturn {
				dst = binary.AppendUvarint(dst, uint64(r.count))
			}
			end, first = r.to, first+(r.to-r.from)
			runs = runs[1:]
		}
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-body))
	}
	return dst, runs, count, first
}

// Gone calls f with each range of offsets of messages that an event took from its queue for good: settled, expired, dropped or purged. Other
// events have none. end is the offset of the record that comes next in the log. It is for who reads a log beside its queue; the error is
// ErrEvent.
func Gone(typ uint8, body []byte, end uint64, f func(from, to uint64)) error {
	if typ != EventGone {
		return nil
	}
	e, err := parseEvent(typ, body)
	for err == nil {
		var r run
		var ok bool
		if r, ok, err = e.next(end); err != nil || !ok {
			break
		}
		f(r.from, r.to)
	}
	return err
}
