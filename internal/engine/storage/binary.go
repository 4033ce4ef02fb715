package storage

import (
	"encoding/binary"
	"errors"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// errBody is returned when a frame's checksum holds and its body is not what its type says.
var errBody = errors.New("storage: a frame's body is malformed")

func appendU64(p []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(p, v) }

// appendTail appends a tail, 56 bytes: position, offset, events, epoch, time, link.
func appendTail(p []byte, t batch.Tail) []byte {
	p = appendU64(p, t.Position)
	p = appendU64(p, t.Offset)
	p = appendU64(p, t.Events)
	p = appendU64(p, t.Epoch)
	p = appendU64(p, uint64(t.Time))
	return append(p, t.Link[:]...)
}

// decoder reads a body. It remembers that it ran short, so that callers check once.
type decoder struct {
	p   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n < 0 || n > len(d.p) {
		d.bad = true
		return nil
	}
	p := d.p[:n:n]
	d.p = d.p[n:]
	return p
}

func (d *decoder) u8() uint8 {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if p := d.take(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if p := d.take(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	if n <= 0 || d.bad {
		d.bad = true
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) link() (l batch.Link) {
	copy(l[:], d.take(len(l)))
	return l
}

func (d *decoder) tail() batch.Tail {
	return batch.Tail{
		Position: d.u64(), Offset: d.u64(), Events: d.u64(), Epoch: d.u64(), Time: int64(d.u64()), Link: d.link(),
	}
}

func (d *decoder) part() ident.Partition {
	return ident.Partition{Incarnation: d.uvarint(), Index: uint32(d.uvarint())}
}

func (d *decoder) bytes() []byte { return d.take(int(min(d.uvarint(), uint64(len(d.p))+1))) }

func (d *decoder) err() error {
	if d.bad {
		return errBody
	}
	return nil
}

func appendPart(p []byte, x ident.Partition) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(p, x.Incarnation), uint64(x.Index))
}

func appendBytes(p, b []byte) []byte {
	return append(binary.AppendUvarint(p, uint64(len(b))), b...)
}
