package wire

import (
	"encoding/binary"
)

// reader reads a method's arguments. After the first failure it yields zeros.
type reader struct {
	p   []byte
	err error
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errorf(SyntaxError, "arguments end too early")
	}
	r.p = nil
}

// end is called after the last argument.
func (r *reader) end() error {
	if r.err == nil && len(r.p) > 0 {
		r.err = errorf(SyntaxError, "%d bytes too many", len(r.p))
	}
	return r.err
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n > len(r.p) {
		r.fail()
		return nil
	}
	b := r.p[:n:n]
	r.p = r.p[n:]
	return b
}

func (r *reader) octet() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) short() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) long() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) longlong() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) shortBytes() []byte { return r.take(int(r.octet())) }

func (r *reader) longBytes() []byte {
	n := r.long()
	if uint64(n) > uint64(len(r.p)) {
		r.fail()
		return nil
	}
	return r.take(int(n))
}

func (r *reader) shortstr() string { return string(r.shortBytes()) }
func (r *reader) longstr() string  { return string(r.longBytes()) }

func (r *reader) table() Table {
	b := r.longBytes()
	if r.err != nil {
		return nil
	}
	t, err := DecodeTable(b)
	if err != nil {
		r.err, r.p = err, nil
	}
	return t
}

func packBits(bits ...bool) byte {
	var b byte
	for i, v := range bits {
		if v {
			b |= 1 << (i & 7)
		}
	}
	return b
}

func appendShort(dst []byte, v uint16) []byte    { return binary.BigEndian.AppendUint16(dst, v) }
func appendLong(dst []byte, v uint32) []byte     { return binary.BigEndian.AppendUint32(dst, v) }
func appendLonglong(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }
func appendOctet(dst []byte, v uint8) []byte     { return append(dst, v) }

func appendShortstr[S string | []byte](dst []byte, s S) []byte {
	s = s[:min(len(s), maxShortString)]
	return append(append(dst, byte(len(s))), s...)
}

func appendLongstr[S string | []byte](dst []byte, s S) []byte {
	return append(appendLong(dst, uint32(len(s))), s...)
}

func appendTable(dst []byte, t Table) []byte { return t.Append(dst) }
