package catalog

import (
	"math"

	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/value"
)

// maxNesting bounds tables within tables.
const maxNesting = 32

// coder writes or reads the catalog's objects (core/codec).
type coder struct {
	codec.Coder
	depth int // of tables and lists within each other
}

func writer(b []byte) coder { return coder{Coder: codec.Coder{Buf: b, Malformed: ErrMalformed}} }

func reader(b []byte, names map[string]string) coder {
	return coder{Coder: codec.Coder{Reading: true, Buf: b, Malformed: ErrMalformed, Names: names}}
}

func (c *coder) table(t *value.Table) {
	if c.depth++; c.depth > maxNesting {
		c.Fail("tables nested deeper than %d", maxNesting)
	}
	codec.List(c, (*[]value.Field)(t), func(c *coder, f *value.Field) {
		c.Name(&f.Name)
		c.value(&f.Value)
	})
	c.depth--
}

func (c *coder) value(v *value.Value) {
	kind := uint8(v.Kind)
	c.U8(&kind, math.MaxUint8)
	v.Kind = value.Kind(kind)
	switch v.Kind {
	case value.Null:
	case value.Bool, value.Int, value.Time:
		c.I64(&v.Int)
	case value.Float:
		c.F64(&v.Float)
	case value.String:
		c.Text(&v.Str)
	case value.List:
		if c.depth++; c.depth > maxNesting {
			c.Fail("lists nested deeper than %d", maxNesting)
		}
		codec.List(c, &v.List, (*coder).value)
		c.depth--
	case value.Map:
		c.table(&v.Table)
	default:
		c.Fail("kind of value %d", kind)
	}
}
