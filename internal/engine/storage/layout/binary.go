package layout

import (
	"encoding/binary"
	"errors"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// ErrBody is returned when a frame's checksum holds and its body is not what its type says.
var ErrBody = errors.New("storage: a frame's body is malformed")

// AppendU64 appends a number of 8 bytes.
func AppendU64(p []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(p, v) }

// AppendTail appends a tail, 56 bytes: position, offset, events, epoch, time, link.
func AppendTail(p []byte, t batch.Tail) []byte {
	p = AppendU64(p, t.Position)
	p = AppendU64(p, t.Offset)
	p = AppendU64(p, t.Events)
	p = AppendU64(p, t.Epoch)
	p = AppendU64(p, uint64(t.Time))
	return append(p, t.Link[:]...)
}

// Decoder reads a body, P. It remembers that it ran short, so that callers check once.
type Decoder struct {
	P   []byte
	Bad bool
}

// Take gives the next n bytes, which refer to the body; nil if there are fewer.
func (d *Decoder) Take(n int) []byte {
	if d.Bad || n < 0 || n > len(d.P) {
		d.Bad = true
		return nil
	}
	p := d.P[:n:n]
	d.P = d.P[n:]
	return p
}

// U8 is a byte.
func (d *Decoder) U8() uint8 {
	if p := d.Take(1); p != nil {
		return p[0]
	}
	return 0
}

// U32 is 4 bytes, little-endian.
func (d *Decoder) U32() uint32 {
	if p := d.Take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// U64 is 8 bytes, little-endian.
func (d *Decoder) U64() uint64 {
	if p := d.Take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

// Uvarint is an unsigned varint.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.P)
	if n <= 0 || d.Bad {
		d.Bad = true
		return 0
	}
	d.P = d.P[n:]
	return v
}

// Link is 16 bytes.
func (d *Decoder) Link() (l batch.Link) {
	copy(l[:], d.Take(len(l)))
	return l
}

// Tail is what AppendTail wrote.
func (d *Decoder) Tail() batch.Tail {
	return batch.Tail{
		Position: d.U64(), Offset: d.U64(), Events: d.U64(), Epoch: d.U64(), Time: int64(d.U64()), Link: d.Link(),
	}
}

// Part is what AppendPart wrote.
func (d *Decoder) Part() ident.Partition {
	return ident.Partition{Incarnation: d.Uvarint(), Index: uint32(d.Uvarint())}
}

// Bytes is what AppendBytes wrote; it refers to the body.
func (d *Decoder) Bytes() []byte { return d.Take(int(min(d.Uvarint(), uint64(len(d.P))+1))) }

// Err is ErrBody if the body ran short.
func (d *Decoder) Err() error {
	if d.Bad {
		return ErrBody
	}
	return nil
}

// AppendPart appends a partition: two uvarints.
func AppendPart(p []byte, x ident.Partition) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(p, x.Incarnation), uint64(x.Index))
}

// AppendBytes appends a length, uvarint, and the bytes.
func AppendBytes(p, b []byte) []byte {
	return append(binary.AppendUvarint(p, uint64(len(b))), b...)
}
