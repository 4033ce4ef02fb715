// Package codec writes and reads values one after another, as the catalog's commands, the messages between nodes and the records of evidence
// are encoded. It knows the form of a number, a text or a list; what follows what, and in which version, is for the room that uses it to say.
//
// One function describes both directions, so that they cannot differ: it is given pointers to the fields, and the Coder either appends what they
// hold or sets them to what it reads.
//
//	unsigned: uvarint, shortest form | signed: zigzag uvarint, shortest form | float: 8 bytes, little-endian bits | byte: as it is
//	bool: one byte, 0 or 1 | fixed: its bytes | text, bytes: uvarint length, bytes (any: names and keys need not be UTF-8)
//	list: uvarint count, items | optional: bool, then the value if it is 1
//
// No value has two encodings, and nothing larger than in proportion to the input is allocated, whatever the input says.
package codec

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// Bounds of the texts that Name keeps.
const (
	mostNames   = 1024
	longestName = 255 // bytes
)

// Coder writes or reads. Its methods call no function values, so nothing that they are handed moves to the heap.
//
// After an error nothing more is read: every value is left as it was, or at zero, and lists are empty. Err says what was wrong first.
type Coder struct {
	Reading bool
	Buf     []byte // written so far, or left to read
	Err     error  // wraps Malformed
	// Malformed is the error of the room whose encoding it is.
	Malformed error
	// Names, reading, keeps the texts that Name has read, so that each is allocated once. nil: it does not.
	Names map[string]string
}

// Fail remembers the first error, with what was wrong, and ends reading.
func (c *Coder) Fail(format string, a ...any) {
	if c.Err == nil {
		c.Err = fmt.Errorf("%w: %s", c.Malformed, fmt.Sprintf(format, a...))
	}
	c.Buf = nil
}

// End fails if something is left to read.
func (c *Coder) End() error {
	if c.Err == nil && len(c.Buf) > 0 {
		c.Fail("%d bytes left", len(c.Buf))
	}
	return c.Err
}

// U64 is an unsigned number.
func (c *Coder) U64(v *uint64) {
	if !c.Reading {
		c.Buf = binary.AppendUvarint(c.Buf, *v)
		return
	}
	x, n := batch.Uvarint(c.Buf)
	if n == 0 {
		c.Fail("number")
		return
	}
	*v, c.Buf = x, c.Buf[n:]
}

// U32 is an unsigned number of 32 bits.
func (c *Coder) U32(v *uint32) {
	x := uint64(*v)
	c.U64(&x)
	if x > math.MaxUint32 {
		c.Fail("number too large")
		return
	}
	*v = uint32(x)
}

// I64 is a signed number.
func (c *Coder) I64(v *int64) {
	x := uint64(*v)<<1 ^ uint64(*v>>63)
	c.U64(&x)
	*v = int64(x>>1) ^ -int64(x&1)
}

// I32 is a signed number of 32 bits.
func (c *Coder) I32(v *int32) {
	x := int64(*v)
	c.I64(&x)
	if x < math.MinInt32 || x > math.MaxInt32 {
		c.Fail("number out of bounds")
		return
	}
	*v = int32(x)
}

// Small is an unsigned number of at most limit, which fits an int of any machine. One out of bounds is written as 0 or the limit, and fails
// where it is read.
func (c *Coder) Small(v *int, limit int) {
	x := uint64(min(max(*v, 0), limit))
	c.U64(&x)
	if x > uint64(limit) {
		c.Fail("number too large")
		return
	}
	*v = int(x)
}

// F64 is a float.
func (c *Coder) F64(v *float64) {
	switch {
	case !c.Reading:
		c.Buf = binary.LittleEndian.AppendUint64(c.Buf, math.Float64bits(*v))
	case len(c.Buf) < 8:
		c.Fail("float")
	default:
		*v = math.Float64frombits(binary.LittleEndian.Uint64(c.Raw(8)))
	}
}

// U8 is a byte of at most limit.
func (c *Coder) U8(v *uint8, limit uint8) {
	if !c.Reading {
		c.Buf = append(c.Buf, *v)
		return
	}
	if len(c.Buf) == 0 || c.Buf[0] > limit {
		c.Fail("byte")
		return
	}
	*v, c.Buf = c.Buf[0], c.Buf[1:]
}

// Bool is one byte.
func (c *Coder) Bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.U8(&b, 1)
	*v = b == 1
}

// Raw takes n bytes that are known to be there. They refer to the input.
func (c *Coder) Raw(n int) []byte {
	p := c.Buf[:n:n]
	c.Buf = c.Buf[n:]
	return p
}

// Fixed is an array's bytes.
func (c *Coder) Fixed(v []byte) {
	switch {
	case !c.Reading:
		c.Buf = append(c.Buf, v...)
	case len(c.Buf) < len(v):
		c.Fail("end of data")
	default:
		copy(v, c.Raw(len(v)))
	}
}

// Count is the number of items that take at least least bytes each. What is left to read bounds it, so that no false count makes anything be
// allocated. It is 0 after an error.
func (c *Coder) Count(n, least int) int {
	x := uint64(n)
	c.U64(&x)
	if c.Reading && x > uint64(len(c.Buf)/least) {
		c.Fail("count")
		return 0
	}
	if c.Err != nil {
		return 0
	}
	return int(x)
}

// Bytes refers to the input when read; none is nil.
func (c *Coder) Bytes(v *[]byte) {
	n := c.Count(len(*v), 1)
	if !c.Reading {
		c.Buf = append(c.Buf, *v...)
		return
	}
	if n > 0 {
		*v = c.Raw(n)
	}
}

// Text is a text.
func (c *Coder) Text(v *string) {
	n := c.Count(len(*v), 1)
	if !c.Reading {
		c.Buf = append(c.Buf, *v...)
		return
	}
	*v = string(c.Raw(n))
}

// Name is a text that comes again and again, such as the name of a node.
func (c *Coder) Name(v *string) {
	if !c.Reading {
		c.Text(v)
		return
	}
	n := c.Count(0, 1)
	p := c.Raw(n)
	s, ok := c.Names[string(p)]
	if !ok {
		s = string(p)
		if c.Names != nil && len(c.Names) < mostNames && n <= longestName {
			c.Names[s] = s
		}
	}
	*v = s
}

// Partition names a partition of a resource.
func (c *Coder) Partition(p *ident.Partition) {
	c.U64(&p.Incarnation)
	c.U32(&p.Index)
}

// Instance names a run of a node.
func (c *Coder) Instance(i *ident.Instance) {
	c.Name(&i.Node)
	c.Fixed(i.Store[:])
	c.U64(&i.Boot)
}

// Base is the Coder itself, for the rooms whose own coders hold one.
func (c *Coder) Base() *Coder { return c }

// Items writes or reads the number of items, each of which takes at least least bytes, and makes room for them when reading. The items are for
// the caller to write or read.
func Items[T any](c *Coder, s *[]T, least int) []T {
	n := c.Count(len(*s), least)
	if c.Reading && n > 0 {
		*s = make([]T, n)
	}
	return *s
}

// List is a list whose items take at least one byte each; each writes or reads one of them.
func List[C interface{ Base() *Coder }, T any](of C, s *[]T, each func(C, *T)) {
	c := of.Base()
	n := c.Count(len(*s), 1)
	if c.Reading && n > 0 {
		// The list grows as items are read, so that a false length takes no memory; short ones, which are the rule, fit at once.
		*s = make([]T, 0, min(n, 8))
	}
	for i := range n {
		if c.Err != nil {
			return
		}
		if c.Reading {
			var zero T
			*s = append(*s, zero)
		}
		each(of, &(*s)[i])
	}
}

// Optional is a value that may be missing.
func Optional[C interface{ Base() *Coder }, T any](of C, p **T, each func(C, *T)) {
	c := of.Base()
	set := *p != nil
	c.Bool(&set)
	if !set || c.Err != nil {
		return
	}
	if c.Reading {
		*p = new(T)
	}
	each(of, *p)
}
