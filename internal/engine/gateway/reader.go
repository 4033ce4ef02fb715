package gateway

import (
	"encoding/binary"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
)

// reader unpacks a stream's shared batches for one consumer, as far as its prefetch allows.
type reader struct {
	next    uint64 // the offset that is wanted next
	known   bool   // next counts
	batches []batch.Batch
	waiting int64 // bytes of batches
	pos     walk  // in batches[0]
	cursor  uint64
	// unread is the oldest record that came back unread, if pinned: the cursor stays there, so that who reads under it next gets it again.
	unread uint64
	pinned bool

	near      *nearest      // where it reads; nil: at the owner
	hoping    bool          // it waits for the owner's word to read near
	notBefore time.Duration // when the copy here, which sent it away, may be asked again
}

// pin keeps the cursor from passing a record that was given back.
func (r *reader) pin(off uint64) {
	if !r.pinned || off < r.unread {
		r.unread, r.pinned = off, true
	}
}

// end is the offset after what has come.
func (r *reader) end() uint64 {
	if n := len(r.batches); n > 0 {
		return max(r.next, r.batches[n-1].EndOffset())
	}
	return r.next
}

// drop lets go of what has not been handed over. Settling what has still moves the cursor.
func (r *reader) drop() {
	if r != nil {
		r.batches, r.waiting, r.pos = nil, 0, walk{}
	}
}

// walk is a place in a batch.
type walk struct {
	begun bool
	run   int
	left  uint32 // entries of the run
	kind  batch.Kind
	rest  []byte
	off   uint64
}

func (w *walk) begin(b batch.Batch) {
	*w = walk{begun: true, run: -1, rest: b.Payload(), off: b.Offset}
}

// record gives the next record of b; ok is false at the end of the batch.
func (w *walk) record(b batch.Batch) (h batch.RecordHeader, body []byte, off uint64, ok bool) {
	for {
		for w.left == 0 {
			if w.run++; w.run >= b.Runs() {
				return h, nil, 0, false
			}
			r := b.Run(w.run)
			w.left, w.kind = r.Count, r.Kind
		}
		w.left--
		if w.kind == batch.KindRecord {
			h, body, w.rest, _ = batch.ParseRecord(w.rest) // the batch was checked when it was parsed
			w.off++
			return h, body, w.off - 1, true
		}
		w.rest = w.rest[batch.EventHeaderSize+int(binary.LittleEndian.Uint32(w.rest)):]
	}
}

func (a *attachment) streamData(m protocol.StreamData) {
	_, c := a.consumer(m.Consumer)
	if c == nil || c.reader == nil || c.reader.near != nil || c.reader.hoping {
		return // what the owner had sent before the consumer went elsewhere comes from there
	}
	c.takeData(m)
}

// takeData takes batches of the stream that the consumer reads.
func (c *consumer) takeData(m protocol.StreamData) {
	if c.session.closed || c.failed {
		return
	}
	r := c.reader
	if !r.known || len(r.batches) == 0 && m.First > r.next {
		r.next, r.known = m.First, true
	}
	for _, b := range m.Batches {
		r.batches = append(r.batches, b)
		r.waiting += int64(b.Size())
	}
	c.pump()
	c.pay()
}

// pump hands records over while prefetch and byte credit allow.
func (c *consumer) pump() {
	r, s := c.reader, c.a.sh
	ds := s.takeDeliveries()
	for len(r.batches) > 0 && c.mayTake() {
		b := r.batches[0]
		if !r.pos.begun {
			r.pos.begin(b)
		}
		h, body, off, ok := r.pos.record(b)
		if !ok {
			c.owed += int64(b.Size())
			r.waiting -= int64(b.Size())
			r.pos = walk{}
			r.batches[0] = batch.Batch{}
			r.batches = r.batches[1:]
			continue
		}
		if off < r.next {
			continue
		}
		r.next = off + 1
		if !c.spec.NoAck {
			c.held.Add(off)
		}
		c.handed(int64(len(body)))
		ds = append(ds, broker.Delivery{
			Ref: broker.Ref{Partition: c.a.p, Consumer: c.num, Offset: off}, Stream: true, Record: h, Payload: body,
		})
	}
	if len(ds) == 0 {
		s.keepDeliveries(ds)
		return
	}
	s.stats.Delivered += uint64(len(ds))
	c.session.l.Delivered(c.num, ds)
	s.keepDeliveries(ds)
	if c.spec.NoAck {
		c.moveCursor()
	}
}

func (c *consumer) mayTake() bool {
	if c.undrain >= c.window || c.state != running {
		return false
	}
	return c.spec.NoAck || c.prefetch == 0 || c.held.Len() < int(c.prefetch)
}

// read settles records of a stream: room for more, and the cursor moves.
func (c *consumer) read() {
	c.moveCursor()
	c.a.sh.pump(c)
}

// moveCursor moves the cursor to the oldest record that is not settled. For a consumer without acks what it was handed is settled.
func (c *consumer) moveCursor() {
	if c.spec.Cursor == "" {
		return
	}
	at, ok := c.held.Least()
	if !ok {
		at = c.reader.next
	}
	if c.reader.pinned {
		at = min(at, c.reader.unread)
	}
	if at > c.reader.cursor {
		c.reader.cursor = at
		c.a.settles.move(c.spec.Cursor, at)
		c.a.touch()
	}
}

// pump has the consumer's reader looked at when the shard flushes.
func (s *Shard) pump(c *consumer) {
	if !c.pumping {
		c.pumping = true
		s.pumps = append(s.pumps, c)
		s.box.Touch()
	}
}

// cut lets go of what was read from an offset on.
func (r *reader) cut(from uint64) {
	if r.end() <= from {
		return
	}
	r.drop()
	r.next, r.cursor = min(r.next, from), min(r.cursor, from)
	if r.pinned = r.pinned && r.unread < from; !r.pinned {
		r.unread = 0
	}
}
