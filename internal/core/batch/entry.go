package batch

import "encoding/binary"

const (
	// RecordHeaderSize is the size of a record's own header in bytes:
	//
	//	0  u32 size of the body    4  u32 time to live, ms   8  u32 delay, ms
	//	12 u32 key hash            16 u16 flags              18 u8 priority   19 u8 reserved
	RecordHeaderSize = 20
	// EventHeaderSize is the size of the header of an event or a mark in bytes: u32 size of the body, u8 type, 3 B reserved.
	EventHeaderSize = 8
)

// Flags of a record.
const (
	// FlagTTL says that TTL counts; without it a record has no time to live of its own.
	FlagTTL uint16 = 1 << iota
	// FlagPersistent says that the publisher asked for the message to survive a restart. In a durable queue
	// every message does; the flag is kept for clients to see.
	FlagPersistent
)

// RecordHeader is what the core needs to know of a message without parsing it.
type RecordHeader struct {
	Size     uint32 // of the body, in bytes
	TTL      uint32 // milliseconds, if FlagTTL
	Delay    uint32 // milliseconds before it may be delivered
	KeyHash  uint32 // of the partition key
	Flags    uint16
	Priority uint8
}

// AppendRecord appends a record's header and body, the body given in parts, and returns the longer slice. Size is taken
// from the parts.
func AppendRecord(dst []byte, h RecordHeader, body ...[]byte) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, RecordHeaderSize)...)
	size := 0
	for _, b := range body {
		dst = append(dst, b...)
		size += len(b)
	}
	h.Size = uint32(size)
	h.put(dst[at:])
	return dst
}

// AppendRecordHeader appends a header with its Size as given; exactly that many bytes of body must be appended after it.
func AppendRecordHeader(dst []byte, h RecordHeader) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, RecordHeaderSize)...)
	h.put(dst[at:])
	return dst
}

func (h RecordHeader) put(p []byte) {
	binary.LittleEndian.PutUint32(p[0:], h.Size)
	binary.LittleEndian.PutUint32(p[4:], h.TTL)
	binary.LittleEndian.PutUint32(p[8:], h.Delay)
	binary.LittleEndian.PutUint32(p[12:], h.KeyHash)
	binary.LittleEndian.PutUint16(p[16:], h.Flags)
	p[18], p[19] = h.Priority, 0
}

// ParseRecord reads a record, header and body, from the front of p, and returns what follows it.
func ParseRecord(p []byte) (h RecordHeader, body, rest []byte, err error) {
	if len(p) < RecordHeaderSize {
		return h, nil, nil, ErrShort
	}
	h = RecordHeader{
		Size:     binary.LittleEndian.Uint32(p[0:]),
		TTL:      binary.LittleEndian.Uint32(p[4:]),
		Delay:    binary.LittleEndian.Uint32(p[8:]),
		KeyHash:  binary.LittleEndian.Uint32(p[12:]),
		Flags:    binary.LittleEndian.Uint16(p[16:]),
		Priority: p[18],
	}
	end := RecordHeaderSize + uint64(h.Size)
	if end > uint64(len(p)) {
		return h, nil, nil, ErrShort
	}
	return h, p[RecordHeaderSize:end:end], p[end:], nil
}

// AppendEvent appends an event or a mark of the given type and returns the longer slice.
func AppendEvent(dst []byte, typ uint8, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(body)))
	dst = append(dst, typ, 0, 0, 0)
	return append(dst, body...)
}

// Entry is one entry of a batch. Body refers to the batch's bytes.
type Entry struct {
	Kind     Kind
	Type     uint8 // of an event or a mark
	Position uint64
	Offset   uint64 // of a record; of other entries, that of the next record
	Producer uint64
	Sequence uint64
	Record   RecordHeader // of a record
	Body     []byte
}

// Each calls f for every entry in order, until f returns false.
func (b Batch) Each(f func(Entry) bool) {
	rest := b.Payload()
	pos, off := b.Position, b.Offset
	for i := range b.Runs() {
		r := b.Run(i)
		for n := range uint64(r.Count) {
			e := Entry{Kind: r.Kind, Position: pos, Offset: off, Producer: r.Producer, Sequence: r.First + n}
			if r.Kind == KindRecord {
				e.Record, e.Body, rest, _ = ParseRecord(rest) // check has walked it
				off++
			} else {
				size := EventHeaderSize + int(binary.LittleEndian.Uint32(rest))
				e.Type, e.Body = rest[4], rest[EventHeaderSize:size:size]
				rest = rest[size:]
			}
			pos++
			if !f(e) {
				return
			}
		}
	}
}

// Find is the record at an offset, if it is in b.
func (b Batch) Find(offset uint64) (Entry, bool) {
	var found Entry
	ok := false
	if offset < b.Offset || offset >= b.EndOffset() {
		return found, false
	}
	b.Each(func(e Entry) bool {
		if e.Kind == KindRecord && e.Offset == offset {
			found, ok = e, true
		}
		return !ok
	})
	return found, ok
}

// Uvarint reads an unsigned LEB128 number in its shortest form, the only one that events and commands may hold, so that one state has one
// encoding. n is 0 if there is none.
func Uvarint(p []byte) (v uint64, n int) {
	v, n = binary.Uvarint(p)
	if n <= 0 || n > 1 && p[n-1] == 0 {
		return 0, 0
	}
	return v, n
}
