package batch

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/tanist/tanist/internal/core/ident"
)

// Builder gathers runs and makes a batch of them. It keeps its scratch space between batches; the zero Builder is ready.
type Builder struct {
	runs    []Run
	pieces  [][]byte
	size    int
	count   uint32
	records uint32
}

// Empty reports whether nothing has been added.
func (b *Builder) Empty() bool { return b.count == 0 }

// Size is what the batch would measure, in bytes.
func (b *Builder) Size() int { return FixedSize + len(b.runs)*RunSize + b.size }

// Count is the number of entries added.
func (b *Builder) Count() uint32 { return b.count }

// Fits reports whether entries of the given size may be added without passing TargetSize. Anything up to MaxSize fits an
// empty builder.
func (b *Builder) Fits(size int) bool {
	if b.count == 0 {
		return true
	}
	return b.Size()+RunSize+size <= TargetSize && len(b.runs) < MaxRuns
}

// Add appends a run whose entries are encoded in payload. The bytes are copied at Finish, and must not change before. A run
// that continues the last one is joined to it.
func (b *Builder) Add(r Run, payload []byte) {
	if n := len(b.runs); n > 0 && joins(b.runs[n-1], r) {
		b.runs[n-1].Count += r.Count
	} else {
		b.runs = append(b.runs, r)
	}
	b.pieces = append(b.pieces, payload)
	b.size += len(payload)
	b.count += r.Count
	if r.Kind == KindRecord {
		b.records += r.Count
	}
}

func joins(a, b Run) bool {
	return a.Kind == b.Kind && a.Producer == b.Producer && (a.Producer == 0 || a.First+uint64(a.Count) == b.First)
}

// Finish encodes the batch that extends a log ending at tail, under the given epoch, and empties the builder. now is
// milliseconds since 1970; the batch's time is the later of it and the tail's (design 2 §2, "Time"). It panics on an empty builder.
func (b *Builder) Finish(p ident.Partition, epoch uint64, tail Tail, now int64) Batch {
	if b.count == 0 {
		panic("batch: Finish of an empty builder")
	}
	raw := b.room()
	put := binary.LittleEndian
	put.PutUint32(raw[0:], uint32(b.Size()))
	raw[8] = Version
	put.PutUint16(raw[10:], uint16(len(b.runs)))
	put.PutUint32(raw[12:], b.count)
	put.PutUint64(raw[16:], p.Incarnation)
	put.PutUint32(raw[24:], p.Index)
	put.PutUint32(raw[28:], b.records)
	put.PutUint64(raw[32:], epoch)
	put.PutUint64(raw[40:], tail.Position)
	put.PutUint64(raw[48:], tail.Offset)
	put.PutUint64(raw[56:], uint64(max(now, tail.Time)))
	copy(raw[64:], tail.Link[:])
	for i, r := range b.runs {
		p := raw[FixedSize+i*RunSize:]
		p[0] = byte(r.Kind)
		put.PutUint32(p[4:], r.Count)
		put.PutUint64(p[8:], r.Producer)
		put.PutUint64(p[16:], r.First)
	}
	put.PutUint32(raw[4:], crc32.Checksum(raw[8:], castagnoli))
	out := Batch{
		Partition: p, Epoch: epoch, Position: tail.Position, Offset: tail.Offset, Count: b.count, Records: b.records,
		Time: max(now, tail.Time), PrevLink: tail.Link, runs: uint16(len(b.runs)), raw: raw,
	}
	b.Reset()
	return out
}

// room gives memory for the batch that holds the pieces already, with the header and the runs zero. A single piece is appended to an empty
// header, which gives memory that the runtime does not have to clear first: small batches are many.
func (b *Builder) room() []byte {
	head := FixedSize + len(b.runs)*RunSize
	if len(b.pieces) == 1 && len(b.pieces[0]) > 0 && head <= len(zeros) {
		return append(zeros[:head:head], b.pieces[0]...)
	}
	raw := make([]byte, head, b.Size())
	for _, p := range b.pieces {
		raw = append(raw, p...)
	}
	return raw
}

// zeros is an empty header with a few runs. Nobody writes to it: its capacity is cut where something is appended.
var zeros [FixedSize + 4*RunSize]byte

// Reset empties the builder and lets go of what was added.
func (b *Builder) Reset() {
	clear(b.pieces)
	b.runs, b.pieces = b.runs[:0], b.pieces[:0]
	b.size, b.count, b.records = 0, 0, 0
}
