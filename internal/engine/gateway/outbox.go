package gateway

import (
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
)

// outbox holds what was published to one partition until it is resolved: the encoded records in blocks, each of which is sent as
// one protocol.Publish, and for each record who waits for it, in a ring.
//
// Records are counted by index, from 1, in the order published. Their sequence on the wire is index + shift, which is fixed when the
// owner has said what it expects of the producer; so a partition that was left and is worked with again goes on where it was.
//
// Both lists begin in the outbox itself: most partitions among many have little on its way, and lists of their own would be two more places
// to reach for. An outbox must not be copied once it is used.
type outbox struct {
	ring       []entry // a power of two long
	head, tail uint64  // indexes [head, tail) are unresolved, but for those marked done
	blocks     []*block
	next       int    // blocks[next:] have not been sent on this stream
	shift      uint64 // modulo 2^64
	fresh      bool   // no number of the producer's has been used from here: shift is not known yet
	bytes      int64
	producer   uint64
	fewBlocks  [2]*block
	fewEntries [4]entry
}

// entry is who waits for one record: a session, or a group of records that stand for one message.
type entry struct {
	session *session
	group   *group
	tag     broker.Tag
	done    bool // resolved already, ahead of its turn
}

// block is records that are sent together.
type block struct {
	first uint64 // index
	count uint32
	runs  []batch.Run // those of the gateway's own producer have Producer 0; at least one
	store [1]batch.Run
	buf   []byte
	born  time.Duration
	sends int // on how many streams it was sent
}

func (b *block) end() uint64 { return b.first + uint64(b.count) }

func newOutbox(producer uint64) outbox {
	return outbox{head: 1, tail: 1, fresh: true, producer: producer}
}

func (o *outbox) empty() bool        { return o.head == o.tail }
func (o *outbox) at(i uint64) *entry { return &o.ring[i&uint64(len(o.ring)-1)] }

// push counts one more record.
func (o *outbox) push(e entry) {
	if o.ring == nil {
		o.ring = o.fewEntries[:]
	}
	if n := uint64(len(o.ring)); o.tail-o.head == n {
		bigger := make([]entry, max(16, 2*n))
		for i := o.head; i < o.tail; i++ {
			bigger[i&uint64(len(bigger)-1)] = o.ring[i&(n-1)]
		}
		o.ring, o.fewEntries = bigger, [len(o.fewEntries)]entry{}
	}
	*o.at(o.tail) = e
	o.tail++
}

// room gives the block that the next record of the given size goes into.
func (o *outbox) room(sh *Shard, size int) *block {
	if n := len(o.blocks); n > o.next {
		if b := o.blocks[n-1]; b.sends == 0 && len(b.buf)+size <= batch.TargetSize {
			b.buf = sh.buffers.Grow(b.buf, size)
			return b
		}
	}
	b := sh.newBlock()
	b.first, b.born, b.buf = o.tail, sh.now, sh.buffers.Get(size)
	if o.blocks == nil {
		o.blocks = o.fewBlocks[:0]
	}
	o.blocks = append(o.blocks, b)
	return b
}

// record adds the record that was just appended to b to its runs. producer 0 is the gateway's own.
func (b *block) record(producer, sequence uint64) {
	b.count++
	if n := len(b.runs); n > 0 {
		r := &b.runs[n-1]
		if r.Producer == producer && (producer == 0 || r.First+uint64(r.Count) == sequence) {
			r.Count++
			return
		}
	}
	b.runs = append(b.runs, batch.Run{Kind: batch.KindRecord, Count: 1, Producer: producer, First: sequence})
}

// runsAtOnce is how many runs are allocated at a time: most blocks have one.
const runsAtOnce = 256

// wire gives the runs with the gateway's own numbers filled in. What was given before is not changed: an owner may still read it.
func (o *outbox) wire(sh *Shard, b *block) []batch.Run {
	n := len(b.runs)
	if len(sh.runs) < n {
		sh.runs = make([]batch.Run, max(n, runsAtOnce))
	}
	runs := sh.runs[:n:n]
	sh.runs = sh.runs[n:]
	seq := b.first + o.shift
	for i, r := range b.runs {
		if r.Producer == 0 {
			r.Producer, r.First = o.producer, seq
		}
		seq += uint64(r.Count)
		runs[i] = r
	}
	return runs
}

// pop lets go of what is resolved at the front and gives the blocks' memory back. sure says that the owner that was sent these
// records has answered for them, so that nobody reads them any more.
func (o *outbox) pop(sh *Shard, sure bool) {
	for o.head < o.tail && o.at(o.head).done {
		*o.at(o.head) = entry{}
		o.head++
	}
	n := 0
	for n < len(o.blocks) && o.blocks[n].end() <= o.head {
		b := o.blocks[n]
		o.bytes -= int64(len(b.buf))
		sh.bytes -= int64(len(b.buf))
		sh.freeBlock(b, sure && b.sends == 1)
		n++
	}
	if n > 0 {
		k := copy(o.blocks, o.blocks[n:])
		clear(o.blocks[k:])
		o.blocks = o.blocks[:k]
		o.next = max(0, o.next-n)
	}
	if o.empty() && len(o.ring) > 1024 {
		o.ring = nil // a burst must not hold its memory for ever
	}
}

// sent is the index after the last record that was sent on any stream.
func (o *outbox) sent() uint64 {
	for i := len(o.blocks) - 1; i >= 0; i-- {
		if o.blocks[i].sends > 0 {
			return max(o.blocks[i].end(), o.head)
		}
	}
	return o.head
}

// expect prepares for sending on a new stream whose owner expects the given sequence next. Everything from there on is known to be
// absent, so what was refused meanwhile is left out and the rest closes up: an owner takes no number but the next. What is below is
// in the owner's log and is sent again too, to be answered.
func (o *outbox) expect(sh *Shard, sequence uint64) {
	o.next = 0
	if o.fresh || o.empty() {
		o.shift, o.fresh = sequence-o.head, false
		return
	}
	from := min(max(sequence-o.shift, o.head), o.tail)
	if int64(sequence-o.shift) < int64(o.head) {
		// The owner expects less than what is resolved; Attach.First forbids it.
		from = o.head
	}
	if !o.needsRebuild(from) {
		return
	}
	o.rebuild(sh, from)
}

func (o *outbox) needsRebuild(from uint64) bool {
	for i := from; i < o.tail; i++ {
		if o.at(i).done {
			return true
		}
	}
	for _, b := range o.blocks {
		if b.first < from && from < b.end() {
			return true
		}
	}
	return false
}

// rebuild makes the blocks from index from on anew, without the records that are resolved.
func (o *outbox) rebuild(sh *Shard, from uint64) {
	old, waits := o.blocks, make([]entry, 0, o.tail-from)
	for i := from; i < o.tail; i++ {
		waits = append(waits, *o.at(i))
		*o.at(i) = entry{}
	}
	o.blocks, o.tail = make([]*block, 0, len(old)+1), from // in its own memory, as old is walked
	for _, b := range old {
		if b.end() <= from {
			o.blocks = append(o.blocks, b)
			continue
		}
		o.rebuildBlock(sh, b, from, waits)
	}
	o.next = 0
}

func (o *outbox) rebuildBlock(sh *Shard, b *block, from uint64, waits []entry) {
	var below *block
	if b.first < from {
		below = sh.newBlock()
		below.first, below.born, below.sends = b.first, b.born, 2
		o.blocks = append(o.blocks, below)
	}
	rest, i := b.buf, b.first
	o.bytes -= int64(len(b.buf))
	sh.bytes -= int64(len(b.buf))
	first := true
	for _, r := range b.runs {
		for n := range uint64(r.Count) {
			h, _, after, _ := batch.ParseRecord(rest)
			rec := rest[:batch.RecordHeaderSize+int(h.Size)]
			rest = after
			into := below
			if i >= from {
				if waits[i-from].done {
					i++
					continue
				}
				into = o.room(sh, len(rec))
				if first {
					into.born, first = min(into.born, b.born), false
				}
				o.push(waits[i-from])
			}
			into.buf = append(into.buf, rec...)
			into.record(r.Producer, r.First+n)
			o.bytes += int64(len(rec))
			sh.bytes += int64(len(rec))
			i++
		}
	}
}
