// Package stream is the stream's state machine: named cursors, which the log drives, and the owner's readers.
//
// Records are not its business: the log keeps them, and retention drops them. The replicated side is the cursors; it changes by
// ApplyEvent and ApplyBatch alone and goes into snapshots. The volatile side is the readers: where each stands and how many bytes
// it may still be sent. Nothing is read, sent or timed here. Source: design 2 §2 and design 5.
package stream

import (
	"errors"

	"github.com/tanist/tanist/internal/core/batch"
)

// Version is the behaviour of this state machine; see queue.Version.
const Version uint32 = 1

const (
	// MaxCursors bounds the named cursors of one stream.
	MaxCursors = 1024
	// MaxCursorName bounds a cursor's name, in bytes.
	MaxCursorName = 255
)

// Errors.
var (
	// ErrEvent is returned when an event's bytes are not what this version writes. The copy must be taken as damaged.
	ErrEvent = errors.New("stream: malformed event")
	// ErrPage is returned by Restore when a page's bytes are not what this version writes.
	ErrPage = errors.New("stream: malformed page")
	// ErrCursors is returned when a new cursor would pass MaxCursors. It may be retried once a cursor was deleted.
	ErrCursors = errors.New("stream: too many named cursors")
	// ErrCursorName is returned for a cursor name that is empty or longer than MaxCursorName.
	ErrCursorName = errors.New("stream: cursor name empty or too long")
)

// Holder names a reader: a consumer of a gateway. See queue.Holder.
type Holder struct {
	Gateway  uint64
	Consumer uint64
}

// Bounds are the offsets that a stream can be read at.
type Bounds struct {
	Head      uint64 // of the oldest record kept
	Confirmed uint64 // the offset after the last confirmed record
}

// Lookup says what must be asked of the log before a start is known.
type Lookup uint8

// The lookups.
const (
	NoLookup   Lookup = iota // the offset is known
	LookupTime               // Log.SeekTime(Start.Time)
	LookupLast               // Log.LastBatch(confirmed position)
)

// Resolve says at which offset a reader starts, or what must be looked up first; the offset found goes through Bounds.Clamp.
func Resolve(s Start, b Bounds) (uint64, Lookup) {
	switch s.Kind {
	case StartFirst:
		return b.Head, NoLookup
	case StartOffset:
		return b.Clamp(s.Offset), NoLookup
	case StartTimestamp:
		return 0, LookupTime
	case StartLast:
		if b.Confirmed == b.Head {
			return b.Confirmed, NoLookup
		}
		return 0, LookupLast
	default:
		return b.Confirmed, NoLookup
	}
}

// Clamp is an offset brought to what is kept. An offset beyond the confirmed end is left as it is: the reader waits for it.
func (b Bounds) Clamp(offset uint64) uint64 { return max(offset, b.Head) }

// Fetch asks for batches for one reader: from Offset on, at most about Credit bytes.
type Fetch struct {
	Holder Holder
	Offset uint64
	Credit int64
}

// Retain says below which position whole batches may go, for a stream that holds bytes and records in all, oldest being its first
// batches. A batch goes if it is older than MaxAge, or if what stays without it still has MaxBytes or MaxRecords. Nothing at or
// above confirmed goes. 0: nothing goes. If more than oldest shows may go, the caller sees all of oldest go, and asks again.
func Retain(s Settings, now int64, confirmed uint64, bytes, records int64, oldest []batch.Info) uint64 {
	var below uint64
	for _, b := range oldest {
		if b.Position+uint64(b.Count) > confirmed {
			break
		}
		old := s.MaxAge > 0 && b.Time+s.MaxAge <= now
		bytes -= int64(b.Size)
		records -= int64(b.Records)
		if !old && (s.MaxBytes <= 0 || bytes < s.MaxBytes) && (s.MaxRecords <= 0 || records < s.MaxRecords) {
			break
		}
		below = b.Position + uint64(b.Count)
	}
	return below
}
