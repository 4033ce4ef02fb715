package batch

import "encoding/binary"

// Cursor walks the records of a batch and can stop in between. The zero Cursor is at its end.
type Cursor struct {
	b      Batch
	rest   []byte
	run    int
	left   uint32 // entries of the run that are not walked
	kind   Kind
	offset uint64
}

// Cursor begins at the first record.
func (b Batch) Cursor() Cursor { return Cursor{b: b, rest: b.Payload(), offset: b.Offset} }

// Batch is what the cursor walks.
func (c *Cursor) Batch() Batch { return c.b }

// Offset is that of the record that Next gives.
func (c *Cursor) Offset() uint64 { return c.offset }

// Next gives the next record. Body refers to the batch's bytes; ok is false after the last.
func (c *Cursor) Next() (h RecordHeader, body []byte, ok bool) {
	for {
		if c.left == 0 {
			if c.run >= c.b.Runs() {
				return h, nil, false
			}
			r := c.b.Run(c.run)
			c.run++
			c.left, c.kind = r.Count, r.Kind
		}
		c.left--
		if c.kind == KindRecord {
			h, body, c.rest, _ = ParseRecord(c.rest) // check has walked it
			c.offset++
			return h, body, true
		}
		c.rest = c.rest[EventHeaderSize+int(binary.LittleEndian.Uint32(c.rest)):]
	}
}
