package wire

import (
	"encoding/binary"
	"math"

	"github.com/tanist/tanist/internal/core/value"
)

// The types of a field's value, as RabbitMQ's clients use them. (The published standard disagrees with itself and with every
// implementation about some of the letters.)
const (
	TypeBool      = 't'
	TypeInt8      = 'b'
	TypeUint8     = 'B'
	TypeInt16     = 's'
	TypeUint16    = 'u'
	TypeInt32     = 'I'
	TypeUint32    = 'i'
	TypeInt64     = 'l'
	TypeFloat32   = 'f'
	TypeFloat64   = 'd'
	TypeDecimal   = 'D'
	TypeString    = 'S'
	TypeArray     = 'A'
	TypeTimestamp = 'T'
	TypeTable     = 'F'
	TypeVoid      = 'V'
	TypeBytes     = 'x'
)

// Value is one typed value. It keeps the type, so that what is read is written again byte for byte.
type Value struct {
	Type  byte
	Int   int64   // of integers, booleans, timestamps, and of a decimal the number before scaling
	Scale uint8   // of a decimal: digits after the point
	Float float64 // of floats
	Str   string  // of strings and bytes
	Array []Value
	Table Table
}

// Field is one field of a table.
type Field struct {
	Name  string
	Value Value
}

// Table is a field table in the order of its fields.
type Table []Field

// Get is the value of a name; where a name is repeated, the first.
func (t Table) Get(name string) (Value, bool) {
	for _, f := range t {
		if f.Name == name {
			return f.Value, true
		}
	}
	return Value{}, false
}

// Bool, Int32, Int64, String, Time, Array and Nested make values.

// Bool makes a boolean.
func Bool(v bool) Value {
	if v {
		return Value{Type: TypeBool, Int: 1}
	}
	return Value{Type: TypeBool}
}

// Int64 makes an integer of 64 bits.
func Int64(v int64) Value { return Value{Type: TypeInt64, Int: v} }

// String makes a string.
func String(v string) Value { return Value{Type: TypeString, Str: v} }

// Time makes a timestamp of seconds since 1970.
func Time(v int64) Value { return Value{Type: TypeTimestamp, Int: v} }

// Array makes an array.
func Array(v ...Value) Value { return Value{Type: TypeArray, Array: v} }

// Nested makes a table within a table.
func Nested(t Table) Value { return Value{Type: TypeTable, Table: t} }

// DecodeTable reads the fields of a table, without the length before them. The error is an *Error with code 502.
func DecodeTable(p []byte) (Table, error) {
	r := reader{p: p}
	t := r.fields(0)
	return t, r.end()
}

func (r *reader) fields(depth int) Table {
	var t Table
	for len(r.p) > 0 && r.err == nil {
		name := r.shortstr()
		v := r.value(depth)
		if r.err == nil {
			t = append(t, Field{name, v})
		}
	}
	return t
}

func (r *reader) value(depth int) Value {
	v := Value{Type: r.octet()}
	switch v.Type {
	case TypeFloat32:
		v.Float = float64(math.Float32frombits(r.long()))
	case TypeFloat64:
		v.Float = math.Float64frombits(r.longlong())
	case TypeDecimal:
		v.Scale = r.octet()
		v.Int = int64(int32(r.long()))
	case TypeString, TypeBytes:
		v.Str = r.longstr()
	case TypeArray, TypeTable:
		r.nested(&v, depth+1)
	case TypeVoid:
	default:
		v.Int = r.integer(v.Type)
	}
	return v
}

func (r *reader) integer(typ byte) int64 {
	switch typ {
	case TypeBool:
		if r.octet() != 0 {
			return 1
		}
		return 0
	case TypeInt8:
		return int64(int8(r.octet()))
	case TypeUint8:
		return int64(r.octet())
	case TypeInt16:
		return int64(int16(r.short()))
	case TypeUint16:
		return int64(r.short())
	case TypeInt32:
		return int64(int32(r.long()))
	case TypeUint32:
		return int64(r.long())
	case TypeInt64, TypeTimestamp:
		return int64(r.longlong())
	}
	if r.err == nil {
		r.err, r.p = errorf(SyntaxError, "unknown field type 0x%02x", typ), nil
	}
	return 0
}

func (r *reader) nested(v *Value, depth int) {
	b := r.longBytes()
	if r.err == nil && depth > maxTableDepth {
		r.err, r.p = errorf(SyntaxError, "table nested deeper than %d", maxTableDepth), nil
	}
	if r.err != nil {
		return
	}
	in := reader{p: b}
	if v.Type == TypeTable {
		v.Table = in.fields(depth)
	} else {
		for len(in.p) > 0 && in.err == nil {
			e := in.value(depth)
			if in.err == nil {
				v.Array = append(v.Array, e)
			}
		}
	}
	if in.err != nil {
		r.err, r.p = in.err, nil
	}
}

// Append appends the table with its length.
func (t Table) Append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for _, f := range t {
		dst = f.Append(dst)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// Append appends one field, name and value.
func (f Field) Append(dst []byte) []byte { return f.Value.append(appendShortstr(dst, f.Name)) }

func (v Value) append(dst []byte) []byte {
	dst = append(dst, v.Type)
	switch v.Type {
	case TypeBool, TypeInt8, TypeUint8:
		return append(dst, byte(v.Int))
	case TypeInt16, TypeUint16:
		return appendShort(dst, uint16(v.Int))
	case TypeInt32, TypeUint32:
		return appendLong(dst, uint32(v.Int))
	case TypeInt64, TypeTimestamp:
		return appendLonglong(dst, uint64(v.Int))
	case TypeFloat32:
		return appendLong(dst, math.Float32bits(float32(v.Float)))
	case TypeFloat64:
		return appendLonglong(dst, math.Float64bits(v.Float))
	case TypeDecimal:
		return appendLong(append(dst, v.Scale), uint32(v.Int))
	case TypeString, TypeBytes:
		return appendLongstr(dst, v.Str)
	case TypeTable:
		return v.Table.Append(dst)
	case TypeArray:
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		for _, e := range v.Array {
			dst = e.append(dst)
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst
}

// Core is the value in the broker's terms:
//
//	t → Bool    b B s u I i l → Int    f d D → Float    S x → String    T → Time    A → List    F → Map    V → Null
func (v Value) Core() value.Value {
	switch v.Type {
	case TypeBool:
		return value.Value{Kind: value.Bool, Int: v.Int}
	case TypeInt8, TypeUint8, TypeInt16, TypeUint16, TypeInt32, TypeUint32, TypeInt64:
		return value.Value{Kind: value.Int, Int: v.Int}
	case TypeTimestamp:
		return value.Value{Kind: value.Time, Int: v.Int}
	case TypeFloat32, TypeFloat64:
		return value.Value{Kind: value.Float, Float: v.Float}
	case TypeDecimal:
		return value.Value{Kind: value.Float, Float: float64(v.Int) / math.Pow10(int(v.Scale))}
	case TypeString, TypeBytes:
		return value.Value{Kind: value.String, Str: v.Str}
	case TypeTable:
		return value.Value{Kind: value.Map, Table: v.Table.Core()}
	case TypeArray:
		list := make([]value.Value, len(v.Array))
		for i, e := range v.Array {
			list[i] = e.Core()
		}
		return value.Value{Kind: value.List, List: list}
	}
	return value.Value{}
}

// Core is the table in the broker's terms. Of a name that is repeated, the first field counts.
func (t Table) Core() value.Table {
	if len(t) == 0 {
		return nil
	}
	out := make(value.Table, 0, len(t))
	seen := make(map[string]bool, len(t))
	for _, f := range t {
		if !seen[f.Name] {
			seen[f.Name] = true
			out = append(out, value.Field{Name: f.Name, Value: f.Value.Core()})
		}
	}
	return out
}
