package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

const (
	maxNames = 256 // node names that a Parser keeps
	maxName  = 255
)

// coder writes or reads one value after another. The same function describes both directions, so that they cannot differ:
//
//	unsigned: uvarint, shortest form | signed: zigzag uvarint | bool: one byte, 0 or 1 | link, store: 16 bytes
//	text, bytes: uvarint length, bytes | list: uvarint count, items
//
// No value has two encodings. It calls no function values, so that nothing that it is handed moves to the heap.
type coder struct {
	reading bool
	buf     []byte // written so far, or left to read
	err     error
	names   map[string]string // reading: may be nil
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	c.buf = nil
}

func (c *coder) u64(v *uint64) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, *v)
		return
	}
	x, n := batch.Uvarint(c.buf)
	if n == 0 {
		c.fail("number")
		return
	}
	*v, c.buf = x, c.buf[n:]
}

func (c *coder) u32(v *uint32) {
	x := uint64(*v)
	c.u64(&x)
	if x > math.MaxUint32 {
		c.fail("number too large")
		return
	}
	*v = uint32(x)
}

func (c *coder) i64(v *int64) {
	x := uint64(*v)<<1 ^ uint64(*v>>63)
	c.u64(&x)
	*v = int64(x>>1) ^ -int64(x&1)
}

func (c *coder) i32(v *int32) {
	x := int64(*v)
	c.i64(&x)
	if x < math.MinInt32 || x > math.MaxInt32 {
		c.fail("number out of bounds")
		return
	}
	*v = int32(x)
}

// u8 is a byte of at most limit.
func (c *coder) u8(v *uint8, limit uint8) {
	if !c.reading {
		c.buf = append(c.buf, *v)
		return
	}
	if len(c.buf) == 0 || c.buf[0] > limit {
		c.fail("byte")
		return
	}
	*v, c.buf = c.buf[0], c.buf[1:]
}

func (c *coder) bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.u8(&b, 1)
	*v = b == 1
}

// raw takes n bytes that are known to be there. They refer to the input.
func (c *coder) raw(n int) []byte {
	p := c.buf[:n:n]
	c.buf = c.buf[n:]
	return p
}

// fixed is an array's bytes.
func (c *coder) fixed(v []byte) {
	switch {
	case !c.reading:
		c.buf = append(c.buf, v...)
	case len(c.buf) < len(v):
		c.fail("end of data")
	default:
		copy(v, c.raw(len(v)))
	}
}

// count is the number of items that take at least least bytes each. What is left to read bounds it, so that no false count makes
// anything be allocated.
func (c *coder) count(n, least int) int {
	x := uint64(n)
	c.u64(&x)
	if c.reading && x > uint64(len(c.buf)/least) {
		c.fail("count")
		return 0
	}
	if c.err != nil {
		return 0
	}
	return int(x)
}

// bytes refers to the input when read; none is nil.
func (c *coder) bytes(v *[]byte) {
	n := c.count(len(*v), 1)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	if n > 0 {
		*v = c.raw(n)
	}
}

func (c *coder) text(v *string) {
	n := c.count(len(*v), 1)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = string(c.raw(n))
}

// name is text that comes again and again, such as the name of a node.
func (c *coder) name(v *string) {
	n := c.count(len(*v), 1)
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	p := c.raw(n)
	s, ok := c.names[string(p)]
	if !ok {
		s = string(p)
		if c.names != nil && len(c.names) < maxNames && n <= maxName {
			c.names[s] = s
		}
	}
	*v = s
}

// list writes or reads the number of items and, reading, makes room for them.
func list[T any](c *coder, s *[]T, least int) []T {
	n := c.count(len(*s), least)
	if c.reading && n > 0 {
		*s = make([]T, n)
	}
	return *s
}

// room makes sure that n bytes and some can be written without growing again.
func (c *coder) room(n int) {
	if !c.reading {
		c.buf = slices.Grow(c.buf, n+128)
	}
}

func (c *coder) partition(p *ident.Partition) {
	c.u64(&p.Incarnation)
	c.u32(&p.Index)
}

func (c *coder) instance(i *ident.Instance) {
	c.name(&i.Node)
	c.fixed(i.Store[:])
	c.u64(&i.Boot)
}

func (c *coder) tail(t *batch.Tail) {
	c.u64(&t.Position)
	c.u64(&t.Offset)
	c.u64(&t.Events)
	c.u64(&t.Epoch)
	c.i64(&t.Time)
	c.fixed(t.Link[:])
}

// batches go byte for byte. Read, each is checked against its own checksum and refers to the input.
func (c *coder) batches(s *[]batch.Batch) {
	size := 0
	for i := range *s {
		size += (*s)[i].Size() + binary.MaxVarintLen32
	}
	c.room(size)
	l := list(c, s, 1+batch.FixedSize)
	for i := range l {
		raw := l[i].Bytes()
		c.bytes(&raw)
		if !c.reading || c.err != nil {
			continue
		}
		b, err := batch.Parse(raw)
		if err != nil || b.Size() != len(raw) {
			c.fail("batch")
			return
		}
		l[i] = b
	}
}

// record is a record's header with its body, whose length counts.
func (c *coder) record(h *batch.RecordHeader, body *[]byte) {
	if !c.reading {
		c.buf = batch.AppendRecord(c.buf, *h, *body)
		return
	}
	head, b, rest, err := batch.ParseRecord(c.buf)
	if err != nil || c.buf[batch.RecordHeaderSize-1] != 0 {
		c.fail("record")
		return
	}
	*h, c.buf = head, rest
	if len(b) > 0 {
		*body = b
	}
}
