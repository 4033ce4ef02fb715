package wire

import "math"

// Fields walks over the fields of an encoded table without allocating. What it walks over has been checked by CheckTable.
type Fields struct{ r reader }

// RawField is one encoded field. Its parts refer to the table.
type RawField struct {
	Name []byte
	Type byte
	Data []byte // the value without its type; of strings, arrays and tables without their length
	All  []byte // the whole field
}

// Walk starts at the first field of a table, given without its length.
func Walk(table []byte) Fields { return Fields{reader{p: table}} }

// Next is the next field; ok is false at the end or where the table is malformed.
func (f *Fields) Next() (x RawField, ok bool) {
	if len(f.r.p) == 0 || f.r.err != nil {
		return x, false
	}
	start := f.r.p
	x.Name = f.r.shortBytes()
	x.Type = f.r.octet()
	x.Data = f.r.data(x.Type)
	if f.r.err != nil {
		return RawField{}, false
	}
	x.All = start[:len(start)-len(f.r.p)]
	return x, true
}

// Int is the value of an integer, or of a string of digits; ok is false for everything else.
func (x RawField) Int() (v int64, ok bool) {
	switch x.Type {
	case TypeInt8, TypeUint8, TypeInt16, TypeUint16, TypeInt32, TypeUint32, TypeInt64:
		r := reader{p: x.Data}
		return r.integer(x.Type), true
	case TypeString, TypeBytes:
		return ParseDigits(x.Data)
	}
	return 0, false
}

// ParseDigits reads a whole number without a sign from its digits.
func ParseDigits(p []byte) (int64, bool) {
	if len(p) == 0 {
		return 0, false
	}
	var v int64
	for _, c := range p {
		if c < '0' || c > '9' || v > (math.MaxInt64-9)/10 {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}

// data steps over a value and yields it without its length.
func (r *reader) data(typ byte) []byte {
	switch typ {
	case TypeVoid:
		return nil
	case TypeBool, TypeInt8, TypeUint8:
		return r.take(1)
	case TypeInt16, TypeUint16:
		return r.take(2)
	case TypeInt32, TypeUint32, TypeFloat32:
		return r.take(4)
	case TypeDecimal:
		return r.take(5)
	case TypeInt64, TypeFloat64, TypeTimestamp:
		return r.take(8)
	case TypeString, TypeBytes, TypeArray, TypeTable:
		return r.longBytes()
	}
	if r.err == nil {
		r.err, r.p = errorf(SyntaxError, "unknown field type 0x%02x", typ), nil
	}
	return nil
}

// CheckTable checks an encoded table, given without its length, to its full depth. The error is an *Error with code 502.
func CheckTable(p []byte) error {
	r := reader{p: p}
	r.check(true, 0)
	return r.err
}

func (r *reader) check(names bool, depth int) {
	if depth > maxTableDepth {
		r.err, r.p = errorf(SyntaxError, "table nested deeper than %d", maxTableDepth), nil
	}
	for len(r.p) > 0 && r.err == nil {
		if names {
			r.shortBytes()
		}
		typ := r.octet()
		d := r.data(typ)
		if r.err == nil && (typ == TypeArray || typ == TypeTable) {
			in := reader{p: d}
			in.check(typ == TypeTable, depth+1)
			r.err = in.err
		}
	}
}
