package protocol

import (
	"encoding/binary"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/codec"
)

// coder writes or reads messages (core/codec). It calls no function values, so that nothing that it is handed moves to the heap.
type coder struct{ codec.Coder }

// room makes sure that n bytes and some can be written without growing again.
func (c *coder) room(n int) {
	if !c.Reading {
		c.Buf = slices.Grow(c.Buf, n+128)
	}
}

func (c *coder) tail(t *batch.Tail) {
	c.U64(&t.Position)
	c.U64(&t.Offset)
	c.U64(&t.Events)
	c.U64(&t.Epoch)
	c.I64(&t.Time)
	c.Fixed(t.Link[:])
}

// batches go byte for byte. Read, each is checked against its own checksum and refers to the input.
func (c *coder) batches(s *[]batch.Batch) {
	size := 0
	for i := range *s {
		size += (*s)[i].Size() + binary.MaxVarintLen32
	}
	c.room(size)
	l := codec.Items(&c.Coder, s, 1+batch.FixedSize)
	for i := range l {
		raw := l[i].Bytes()
		c.Bytes(&raw)
		if !c.Reading || c.Err != nil {
			continue
		}
		b, err := batch.Parse(raw)
		if err != nil || b.Size() != len(raw) {
			c.Fail("batch")
			return
		}
		l[i] = b
	}
}

// record is a record's header with its body, whose length counts.
func (c *coder) record(h *batch.RecordHeader, body *[]byte) {
	if !c.Reading {
		c.Buf = batch.AppendRecord(c.Buf, *h, *body)
		return
	}
	head, b, rest, err := batch.ParseRecord(c.Buf)
	if err != nil || c.Buf[batch.RecordHeaderSize-1] != 0 {
		c.Fail("record")
		return
	}
	*h, c.Buf = head, rest
	if len(b) > 0 {
		*body = b
	}
}
