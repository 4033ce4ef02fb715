package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto" // also registers the codec that other messages go through
	"google.golang.org/grpc/mem"
)

// Field tags of wire.Packet and wire.Frame, as protobuf has them: number<<3 | kind.
const (
	tagFrames = 1<<3 | 2
	tagKey    = 1<<3 | 1
	tagTotal  = 2 << 3
	tagMore   = 3 << 3
	tagData   = 4<<3 | 2
)

// aliasBytes is from which length on data is not copied into a packet.
const aliasBytes = 8 << 10

// maxHeader is the most that a frame takes before its data: a tag and length, the key, the total, more, and the tag and length of data.
const maxHeader = 1 + 5 + 9 + 1 + binary.MaxVarintLen64 + 2 + 1 + 5

// codec is protobuf. Packets full of frames it encodes and decodes by itself, because that can be done without copying large ones.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal encodes a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if o, ok := v.(*outgoing); ok {
		return o.encode(buffers), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*incoming); ok {
		return in.decode(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}

// outgoing is a wire.Packet of frames to be sent.
type outgoing struct{ parts []part }

// encode makes the packet's bytes. Small data is copied into buffers of the pool; large data is passed on as it is.
func (o *outgoing) encode(pool mem.BufferPool) mem.BufferSlice {
	size := 0
	for i := range o.parts {
		size += maxHeader
		if n := len(o.parts[i].data); n < aliasBytes {
			size += n
		}
	}
	if size == 0 {
		return nil
	}
	var out mem.BufferSlice
	backing := pool.Get(size)
	buf, from := (*backing)[:0], 0
	whole := mem.NewBuffer(backing, pool)
	for i := range o.parts {
		p := &o.parts[i]
		buf = appendHeader(buf, p)
		if len(p.data) < aliasBytes {
			buf = append(buf, p.data...)
			continue
		}
		out = append(out, whole.Slice(from, len(buf)), mem.SliceBuffer(p.data))
		from = len(buf)
	}
	if from < len(buf) {
		out = append(out, whole.Slice(from, len(buf)))
	}
	whole.Free() // the slices hold it
	return out
}

// appendHeader writes all of a frame but the bytes of its data.
func appendHeader(b []byte, p *part) []byte {
	size := 9 + 1 + uvarintLen(uint64(len(p.data))) + len(p.data)
	if p.total > 0 {
		size += 1 + uvarintLen(uint64(p.total))
	}
	if p.more {
		size += 2
	}
	b = append(b, tagFrames)
	b = binary.AppendUvarint(b, uint64(size))
	b = append(b, tagKey)
	b = binary.LittleEndian.AppendUint64(b, p.key)
	if p.total > 0 {
		b = append(b, tagTotal)
		b = binary.AppendUvarint(b, uint64(p.total))
	}
	if p.more {
		b = append(b, tagMore, 1)
	}
	b = append(b, tagData)
	return binary.AppendUvarint(b, uint64(len(p.data)))
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// What makes a packet unreadable. The session ends.
var (
	errBroken = errors.New("a packet cannot be read")
	errOrder  = errors.New("the parts of a message do not fit together")
)

// arenaBytes is what small messages are cut from: a message that is kept keeps at most so much.
const arenaBytes = 32 << 10

// incoming takes the packets of one stream and puts its messages together.
type incoming struct {
	limit   int      // of one message, and of all that are not complete
	out     [][]byte // messages that became complete; the reader takes them
	pending map[uint64]*assembly
	held    int // total of the pending
	arena   []byte
}

// maxPending bounds the messages that are not complete: each takes memory beside its bytes, and there are as many keys as a peer likes.
const maxPending = 1 << 16

// assembly is a message of which parts are missing.
type assembly struct {
	buf []byte
	at  int
}

// decode reads one packet.
func (in *incoming) decode(data mem.BufferSlice) error {
	c := cursor{bufs: data, left: data.Len()}
	for c.left > 0 {
		tag, ok := c.uvarint()
		if !ok {
			return errBroken
		}
		if tag != tagFrames {
			if !c.skip(tag) {
				return errBroken
			}
			continue
		}
		size, ok := c.uvarint()
		if !ok || size > uint64(c.left) {
			return errBroken
		}
		frame := c
		frame.left = int(size)
		c.advance(int(size))
		if err := in.frame(frame); err != nil {
			return err
		}
	}
	return nil
}

// frame reads one frame, whose fields may come in any order.
func (in *incoming) frame(c cursor) error {
	var key, total, more uint64
	var data cursor // where the bytes are, with their number left
	for c.left > 0 {
		tag, ok := c.uvarint()
		switch {
		case !ok:
			return errBroken
		case tag == tagKey:
			key, ok = c.fixed64()
		case tag == tagTotal:
			total, ok = c.uvarint()
		case tag == tagMore:
			more, ok = c.uvarint()
		case tag == tagData:
			var n uint64
			if n, ok = c.uvarint(); ok && n <= uint64(c.left) {
				data = c
				data.left = int(n)
				c.advance(int(n))
			} else {
				ok = false
			}
		default:
			ok = c.skip(tag)
		}
		if !ok {
			return errBroken
		}
	}
	return in.add(key, total, more != 0, data)
}

// add takes a frame's data.
func (in *incoming) add(key, total uint64, more bool, data cursor) error {
	a := in.pending[key]
	n := data.left
	if a == nil && total == 0 && !more {
		b := in.alloc(n)
		data.read(b)
		in.out = append(in.out, b)
		return nil
	}
	if a == nil {
		if !more || total == 0 || total > uint64(in.limit-in.held) {
			return fmt.Errorf("%w: a first part of %d bytes in all, %d may be outstanding", errOrder, total, in.limit-in.held)
		}
		if len(in.pending) == maxPending {
			return fmt.Errorf("%w: more than %d messages at a time", errOrder, maxPending)
		}
		a = &assembly{buf: make([]byte, total)}
		if in.pending == nil {
			in.pending = map[uint64]*assembly{}
		}
		in.pending[key] = a
		in.held += len(a.buf)
	} else if total != 0 {
		return fmt.Errorf("%w: a message begins within another of its key", errOrder)
	}
	if n > len(a.buf)-a.at || more == (n == len(a.buf)-a.at) {
		return fmt.Errorf("%w: %d bytes at %d of %d", errOrder, n, a.at, len(a.buf))
	}
	data.read(a.buf[a.at : a.at+n])
	if a.at += n; !more {
		delete(in.pending, key)
		in.held -= len(a.buf)
		in.out = append(in.out, a.buf)
	}
	return nil
}

func (in *incoming) alloc(n int) []byte {
	if n > arenaBytes/4 {
		return make([]byte, n)
	}
	if len(in.arena) < n {
		in.arena = make([]byte, arenaBytes)
	}
	b := in.arena[:n:n]
	in.arena = in.arena[n:]
	return b
}

// cursor reads across the buffers of a packet. It is copied to remember a place.
type cursor struct {
	bufs mem.BufferSlice
	at   int // in the first of bufs
	left int // bytes that may be read
}

// piece is what can be read of the first buffer that has something.
func (c *cursor) piece() []byte {
	for {
		b := c.bufs[0].ReadOnlyData()[c.at:]
		if len(b) > 0 {
			return b[:min(len(b), c.left)]
		}
		c.bufs, c.at = c.bufs[1:], 0
	}
}

func (c *cursor) advance(n int) {
	for n > 0 {
		p := c.piece()
		k := min(n, len(p))
		c.at += k
		c.left -= k
		n -= k
	}
}

// read fills b; there must be enough left.
func (c *cursor) read(b []byte) {
	for len(b) > 0 {
		k := copy(b, c.piece())
		c.at += k
		c.left -= k
		b = b[k:]
	}
}

func (c *cursor) uvarint() (uint64, bool) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		if c.left == 0 {
			return 0, false
		}
		b := c.piece()[0]
		c.at++
		c.left--
		if shift == 63 && b > 1 {
			return 0, false
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, true
		}
	}
	return 0, false
}

func (c *cursor) fixed64() (uint64, bool) {
	if c.left < 8 {
		return 0, false
	}
	var b [8]byte
	c.read(b[:])
	return binary.LittleEndian.Uint64(b[:]), true
}

// skip passes over a field that is not known.
func (c *cursor) skip(tag uint64) bool {
	n := uint64(0)
	ok := tag>>3 != 0
	switch tag & 7 {
	case 0:
		_, varint := c.uvarint()
		ok = ok && varint
	case 1:
		n = 8
	case 2:
		var length bool
		n, length = c.uvarint()
		ok = ok && length
	case 5:
		n = 4
	default:
		return false
	}
	if !ok || n > uint64(c.left) {
		return false
	}
	c.advance(int(n))
	return true
}
