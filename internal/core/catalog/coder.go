package catalog

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/value"
)

// maxNesting bounds tables within tables.
const maxNesting = 32

// maxShared bounds the strings that are kept once.
const maxShared = 1024

// coder writes or reads one value after another. The same function describes both directions, so that they cannot differ:
//
//	unsigned: uvarint | signed: zigzag varint | float: 8 bytes, little-endian bits | bool: one byte, 0 or 1
//	string: uvarint length, bytes (any bytes: names and keys need not be UTF-8) | list: uvarint count, items
//	optional: bool, then the value if 1
type coder struct {
	reading bool
	buf     []byte // written so far, or left to read
	err     error
	depth   int
	names   map[string]string // reading: strings that repeat a lot, kept once; may be nil
}

func (c *coder) fail(format string, a ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
	}
	c.buf = c.buf[:0]
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

func (c *coder) f64(v *float64) {
	if !c.reading {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, math.Float64bits(*v))
		return
	}
	if len(c.buf) < 8 {
		c.fail("float")
		return
	}
	*v, c.buf = math.Float64frombits(binary.LittleEndian.Uint64(c.buf)), c.buf[8:]
}

func (c *coder) u8(v *uint8) {
	if !c.reading {
		c.buf = append(c.buf, *v)
		return
	}
	if len(c.buf) == 0 {
		c.fail("end of data")
		return
	}
	*v, c.buf = c.buf[0], c.buf[1:]
}

func (c *coder) bool(v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.u8(&b)
	if b > 1 {
		c.fail("bool")
		return
	}
	*v = b == 1
}

// count writes or reads the length of a list whose items take at least one byte each.
func (c *coder) count(n int) int {
	x := uint64(n)
	c.u64(&x)
	if c.reading && x > uint64(len(c.buf)) {
		c.fail("length")
		return 0
	}
	if c.err != nil {
		return 0
	}
	return int(x)
}

func (c *coder) raw(n int) []byte {
	p := c.buf[:n]
	c.buf = c.buf[n:]
	return p
}

func (c *coder) str(v *string) {
	n := c.count(len(*v))
	if !c.reading {
		c.buf = append(c.buf, *v...)
		return
	}
	*v = string(c.raw(n))
}

// name is str for strings that many objects share, such as the name of a node.
func (c *coder) name(v *string) {
	if !c.reading {
		c.str(v)
		return
	}
	p := c.raw(c.count(0))
	s, ok := c.names[string(p)]
	if !ok {
		s = string(p)
		if c.names != nil && len(c.names) < maxShared && len(s) <= MaxName {
			c.names[s] = s
		}
	}
	*v = s
}

// bytes writes or reads an array of fixed size.
func (c *coder) bytes(v []byte) {
	if !c.reading {
		c.buf = append(c.buf, v...)
		return
	}
	if len(c.buf) < len(v) {
		c.fail("end of data")
		return
	}
	copy(v, c.raw(len(v)))
}

func list[T any](c *coder, s *[]T, each func(*coder, *T)) {
	n := c.count(len(*s))
	if c.reading && n > 0 {
		// The list grows as items are read, so that a false length takes no memory; short ones, which are the rule, fit at once.
		*s = make([]T, 0, min(n, 8))
	}
	for i := range n {
		if c.err != nil {
			return
		}
		if c.reading {
			var zero T
			*s = append(*s, zero)
		}
		each(c, &(*s)[i])
	}
}

func optional[T any](c *coder, p **T, each func(*coder, *T)) {
	set := *p != nil
	c.bool(&set)
	if !set || c.err != nil {
		return
	}
	if c.reading {
		*p = new(T)
	}
	each(c, *p)
}

func (c *coder) table(t *value.Table) {
	if c.depth++; c.depth > maxNesting {
		c.fail("tables nested deeper than %d", maxNesting)
	}
	list(c, (*[]value.Field)(t), func(c *coder, f *value.Field) {
		c.name(&f.Name)
		c.value(&f.Value)
	})
	c.depth--
}

func (c *coder) value(v *value.Value) {
	kind := uint8(v.Kind)
	c.u8(&kind)
	v.Kind = value.Kind(kind)
	switch v.Kind {
	case value.Null:
	case value.Bool, value.Int, value.Time:
		c.i64(&v.Int)
	case value.Float:
		c.f64(&v.Float)
	case value.String:
		c.str(&v.Str)
	case value.List:
		if c.depth++; c.depth > maxNesting {
			c.fail("lists nested deeper than %d", maxNesting)
		}
		list(c, &v.List, (*coder).value)
		c.depth--
	case value.Map:
		c.table(&v.Table)
	default:
		c.fail("kind of value %d", kind)
	}
}
