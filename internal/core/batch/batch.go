// Package batch is the unit of writing, sending and linking: entries at contiguous positions, of one epoch.
//
// A batch is made once, by an owner; file, network and every copy carry the same bytes. The package encodes,
// checks and walks them. It knows nothing of what a record's body or an event means, and never parses AMQP.
//
// Layout, little-endian (docs/FORMATS.md draws it):
//
//	0   u32  length      of the whole batch
//	4   u32  checksum    CRC-32C of all that follows
//	8   u8   version     1
//	9   u8   reserved    0
//	10  u16  runs
//	12  u32  count       entries
//	16  u64  incarnation of the resource
//	24  u32  index       of the partition
//	28  u32  records     entries that are records
//	32  u64  epoch
//	40  u64  base position
//	48  u64  base offset
//	56  i64  time        milliseconds since 1970, never less than that of the batch before
//	64  16 B prevLink
//	80  runs, 24 B each:  u8 kind, 3 B reserved, u32 count, u64 producer, u64 first sequence
//	    entries
//
// Source: design 2 §1.
package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tanist/tanist/internal/core/ident"
)

const (
	// Version is the layout that this package writes.
	Version = 1
	// FixedSize is the size of the header without its runs, in bytes.
	FixedSize = 80
	// RunSize is the size of one run, in bytes.
	RunSize = 24
	// MaxRuns bounds the runs of one batch.
	MaxRuns = 1<<16 - 1
	// TargetSize is the size in bytes above which a batch takes no further entry. One message may exceed it.
	TargetSize = 1 << 20
	// MaxSize bounds a batch in bytes: one message of 16 MiB with its properties, with room for headers.
	MaxSize = 17 << 20
)

// Link is the digest of a whole history: SHA-256(prevLink ‖ header ‖ payload), truncated.
type Link [16]byte

// String is the link in hexadecimal.
func (l Link) String() string { return fmt.Sprintf("%x", l[:]) }

// Kind says what the entries of a run are.
type Kind uint8

// The kinds of entry (design 1, "entry").
const (
	KindRecord Kind = 1 // a message
	KindEvent  Kind = 2 // a state change, read by the queue or stream machine
	KindMark   Kind = 3 // an epoch start or a handoff boundary
)

// String is the kind's name.
func (k Kind) String() string {
	switch k {
	case KindRecord:
		return "record"
	case KindEvent:
		return "event"
	case KindMark:
		return "mark"
	}
	return "unknown"
}

// Tail is where a log ends.
type Tail struct {
	Position uint64 `json:"position"` // entries before it
	Offset   uint64 `json:"offset"`   // records before it
	Events   uint64 `json:"events"`   // entries before it that are not records
	Epoch    uint64 `json:"epoch"`    // of the last batch; 0 if there is none
	Time     int64  `json:"time"`     // of the last batch, in milliseconds since 1970
	Link     Link   `json:"link"`
}

// Run is a stretch of entries of one kind and one producer.
type Run struct {
	Kind     Kind
	Count    uint32
	Producer uint64 // 0 where nobody asked for the entries to be deduplicated
	First    uint64 // sequence of the first entry; those that follow count up from it
}

// Errors of Parse. None is worth a retry: the bytes are wrong.
var (
	// ErrShort is returned when the bytes end before the batch does.
	ErrShort = errors.New("batch: shorter than its length")
	// ErrChecksum is returned when the bytes do not match their checksum.
	ErrChecksum = errors.New("batch: checksum does not match")
	// ErrMalformed is returned when the checksum holds and yet the fields contradict each other.
	ErrMalformed = errors.New("batch: malformed")
	// ErrVersion is returned when a batch was written in a layout that this program does not know.
	ErrVersion = errors.New("batch: unknown version")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is an encoded batch with its header decoded. The zero Batch holds nothing.
type Batch struct {
	Partition ident.Partition
	Epoch     uint64
	Position  uint64 // of the first entry
	Offset    uint64 // of the first record at or after Position
	Count     uint32
	Records   uint32
	Time      int64
	PrevLink  Link
	runs      uint16
	raw       []byte
}

// Bytes is the encoding. It must not be changed.
func (b Batch) Bytes() []byte { return b.raw }

// Size is the length of the encoding in bytes.
func (b Batch) Size() int { return len(b.raw) }

// End is the position after the last entry.
func (b Batch) End() uint64 { return b.Position + uint64(b.Count) }

// EndOffset is the offset after the last record.
func (b Batch) EndOffset() uint64 { return b.Offset + uint64(b.Records) }

// Runs is the number of runs.
func (b Batch) Runs() int { return int(b.runs) }

// Run is run i, 0 <= i < Runs().
func (b Batch) Run(i int) Run {
	p := b.raw[FixedSize+i*RunSize:]
	return Run{
		Kind:     Kind(p[0]),
		Count:    binary.LittleEndian.Uint32(p[4:]),
		Producer: binary.LittleEndian.Uint64(p[8:]),
		First:    binary.LittleEndian.Uint64(p[16:]),
	}
}

// Payload is the encoded entries.
func (b Batch) Payload() []byte { return b.raw[FixedSize+int(b.runs)*RunSize:] }

// Link is the digest of the log up to and including b. It hashes the whole batch: call it once.
func (b Batch) Link() Link {
	h := sha256.New()
	h.Write(b.PrevLink[:])
	h.Write(b.raw)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return Link(sum[:16])
}

// After is the tail of a log that ended at t and was extended by b, whose link the caller has at hand.
func (t Tail) After(b Batch, link Link) Tail {
	return Tail{
		Position: b.End(),
		Offset:   b.EndOffset(),
		Events:   t.Events + uint64(b.Count-b.Records),
		Epoch:    b.Epoch,
		Time:     b.Time,
		Link:     link,
	}
}

// Follows reports whether b continues a log that ends at t: same position, offset and link, no earlier epoch or time.
func (b Batch) Follows(t Tail) bool {
	return b.Position == t.Position && b.Offset == t.Offset && b.PrevLink == t.Link && b.Epoch >= t.Epoch && b.Time >= t.Time
}

// PeekLength reads the length that a batch claims, so that a reader knows how much to fetch. It returns ErrShort for
// fewer than four bytes and ErrMalformed for a length out of bounds.
func PeekLength(p []byte) (int, error) {
	if len(p) < 4 {
		return 0, ErrShort
	}
	n := int(binary.LittleEndian.Uint32(p))
	if n < FixedSize || n > MaxSize {
		return 0, fmt.Errorf("%w: length %d", ErrMalformed, n)
	}
	return n, nil
}

// Parse checks the first batch in p, the checksum and the walk through its entries included, and decodes its header.
// The Batch refers to p. Bytes after the batch are ignored: Size says where it ends.
func Parse(p []byte) (Batch, error) {
	n, err := PeekLength(p)
	if err != nil {
		return Batch{}, err
	}
	if len(p) < n {
		return Batch{}, ErrShort
	}
	p = p[:n:n]
	if crc32.Checksum(p[8:], castagnoli) != binary.LittleEndian.Uint32(p[4:]) {
		return Batch{}, ErrChecksum
	}
	return ParseTrusted(p)
}

// ParseTrusted is Parse for bytes whose checksum has been checked already; it still refuses what is malformed.
func ParseTrusted(p []byte) (Batch, error) {
	n, err := PeekLength(p)
	if err != nil {
		return Batch{}, err
	}
	if len(p) < n {
		return Batch{}, ErrShort
	}
	p = p[:n:n]
	if p[8] != Version {
		return Batch{}, fmt.Errorf("%w: %d", ErrVersion, p[8])
	}
	b := Batch{
		runs:      binary.LittleEndian.Uint16(p[10:]),
		Count:     binary.LittleEndian.Uint32(p[12:]),
		Partition: ident.Partition{Incarnation: binary.LittleEndian.Uint64(p[16:]), Index: binary.LittleEndian.Uint32(p[24:])},
		Records:   binary.LittleEndian.Uint32(p[28:]),
		Epoch:     binary.LittleEndian.Uint64(p[32:]),
		Position:  binary.LittleEndian.Uint64(p[40:]),
		Offset:    binary.LittleEndian.Uint64(p[48:]),
		Time:      int64(binary.LittleEndian.Uint64(p[56:])),
		PrevLink:  Link(p[64:80]),
		raw:       p,
	}
	if err := b.check(); err != nil {
		return Batch{}, err
	}
	return b, nil
}

// check walks the entries against the counts of the header.
func (b Batch) check() error {
	if FixedSize+int(b.runs)*RunSize > len(b.raw) {
		return fmt.Errorf("%w: %d runs in %d bytes", ErrMalformed, b.runs, len(b.raw))
	}
	rest := b.Payload()
	var count, records uint64
	for i := range b.Runs() {
		r := b.Run(i)
		if r.Kind < KindRecord || r.Kind > KindMark || r.Count == 0 {
			return fmt.Errorf("%w: run %d has kind %d, count %d", ErrMalformed, i, r.Kind, r.Count)
		}
		head := entryHead(r.Kind)
		for range r.Count {
			if len(rest) < head {
				return fmt.Errorf("%w: entries end early", ErrMalformed)
			}
			size := uint64(binary.LittleEndian.Uint32(rest)) + uint64(head)
			if size > uint64(len(rest)) {
				return fmt.Errorf("%w: an entry of %d bytes in %d", ErrMalformed, size, len(rest))
			}
			rest = rest[size:]
		}
		count += uint64(r.Count)
		if r.Kind == KindRecord {
			records += uint64(r.Count)
		}
	}
	if len(rest) != 0 || count != uint64(b.Count) || records != uint64(b.Records) || count == 0 {
		return fmt.Errorf("%w: counts do not match the entries", ErrMalformed)
	}
	return nil
}

func entryHead(k Kind) int {
	if k == KindRecord {
		return RecordHeaderSize
	}
	return EventHeaderSize
}
