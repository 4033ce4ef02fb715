package storage

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// op is one frame that waits for a group, or a request that goes with it.
type op struct {
	typ    layout.FrameType
	c      *Copy // nil: of no partition
	b      batch.Batch
	link   batch.Link
	body   []byte
	old    *entry      // of what is moved
	before func() bool // called before the frame is placed; false drops the frame, and done hears nil
	done   func(error)
}

func (o *op) size() int {
	if o.typ == layout.FrameBatch || o.typ == layout.FrameMoved || o.typ == layout.FrameImport {
		return layout.SizeOf(o.b.Size())
	}
	return layout.SizeOf(len(o.body))
}

// opQueue is first in, first out. It keeps its space.
type opQueue struct {
	ops  []op
	next int
}

func (q *opQueue) len() int   { return len(q.ops) - q.next }
func (q *opQueue) front() *op { return &q.ops[q.next] }

func (q *opQueue) push(o op) {
	if len(q.ops) == cap(q.ops) && q.next > len(q.ops)/2 { // a queue that is never empty must not grow for ever
		n := copy(q.ops, q.ops[q.next:])
		clear(q.ops[n:])
		q.ops, q.next = q.ops[:n], 0
	}
	q.ops = append(q.ops, o)
}

func (q *opQueue) pop() {
	q.ops[q.next] = op{}
	q.next++
	if q.next == len(q.ops) {
		q.ops, q.next = q.ops[:0], 0
		if cap(q.ops) > 1<<13 {
			q.ops = nil // a burst must not hold its memory for ever
		}
	}
}

// pull takes out what is wanted, in order.
func (q *opQueue) pull(want func(*op) bool) []op {
	var out []op
	kept := q.ops[:q.next]
	for i := range q.ops[q.next:] {
		if o := &q.ops[q.next+i]; want(o) {
			out = append(out, *o)
		} else {
			kept = append(kept, *o)
		}
	}
	clear(q.ops[len(kept):])
	q.ops = kept
	if q.next == len(q.ops) {
		q.ops, q.next = q.ops[:0], 0
	}
	return out
}

// writer is the journal's one writer: an actor on a loop of its own.
type writer struct {
	s  *Store
	mb exec.Mailbox

	mu     sync.Mutex // the queue's; the innermost lock
	urgent opQueue
	normal opQueue
	awake  bool
	closed error // not nil: nothing is taken any more

	// The rest is the writer's own.
	cur        *logFile
	sequence   uint64 // of the next frame
	synced     uint64 // all frames below are synced
	buf        []byte
	dones      []placedOp
	witness    []witnessed // of the group before
	group      []*Copy     // with frames in this group
	groupMeta  bool        // this group has frames of the consensus log
	groupFrom  uint64
	footer     int64 // estimated bytes of the current file's footer
	sinceSpace int64
	restedAt   uint64 // sequence at the last rest
	parked     bool   // no space: the queue waits
	retry      func() bool
	ending     bool // nothing waits for space any more
	closing    func(error)
	scrub      layout.Place // how far the scrub came, as logged
	finished   bool
}

type placedOp struct {
	c    *Copy
	size int // of a batch in memory; 0 for others
	end  uint64
	done func(error)
}

type witnessed struct {
	part   ident.Partition
	frames uint32
}

type (
	msgWake struct{}
	msgDone struct {
		done func(error)
		err  error
	}
	msgRetry  struct{}
	msgSpace  struct{}
	msgEnding struct{}
	msgClose  struct{ done func(error) }
	msgCall   struct{ f func() }
)

// enqueue takes an operation for the next group. What the copy has waiting goes to the head with an urgent one, so that the
// frames of one copy keep their order.
func (w *writer) enqueue(o op, urgent bool) {
	w.mu.Lock()
	if w.closed != nil {
		err := w.closed
		w.mu.Unlock()
		w.mb.Post(msgDone{o.done, err})
		return
	}
	if urgent && o.c != nil && o.c.queued > 0 {
		w.hasten(o.c)
	}
	if urgent {
		w.urgent.push(o)
	} else {
		w.normal.push(o)
		if o.c != nil {
			o.c.queued++
		}
	}
	post := !w.awake
	w.awake = true
	w.mu.Unlock()
	if post {
		w.mb.Post(msgWake{})
	}
}

// hasten moves a copy's waiting operations to the head, in order.
func (w *writer) hasten(c *Copy) {
	for _, o := range w.normal.pull(func(o *op) bool { return o.c == c }) {
		w.urgent.push(o)
	}
	c.queued = 0
}

// Receive takes what is not part of a group.
func (w *writer) Receive(msg any) {
	switch m := msg.(type) {
	case msgDone:
		if m.done != nil {
			m.done(m.err)
		}
	case msgCall:
		m.f()
	case msgRetry:
		w.parked, w.retry = false, nil
		w.wake()
	case msgSpace:
		if !w.finished {
			w.s.checkSpace()
			w.s.cool()
			w.rest()
			w.mb.After(time.Second, msgSpace{})
		}
	case msgEnding:
		w.ending = true
		w.wake()
	case msgClose:
		w.closing, w.ending = m.done, true
		w.wake()
	}
}

func (w *writer) wake() {
	w.mu.Lock()
	w.awake = true
	w.mu.Unlock()
}

// Flush writes one group of what has gathered. More goes into the next round, so that other messages get their turn.
func (w *writer) Flush() {
	if w.cur == nil || w.finished || w.parked && !w.ending {
		return
	}
	w.mu.Lock()
	waiting := w.urgent.len() + w.normal.len()
	w.awake = waiting > 0
	w.mu.Unlock()
	if waiting > 0 && w.closed == nil && !w.parked {
		if err := w.writeGroup(); err != nil {
			w.fault(err)
		}
	}
	if w.parked && w.ending {
		w.close(fmt.Errorf("%w, with no space left for what waited", ErrClosed)) // an end must not wait for space
	}
	if w.closed != nil {
		w.failAll(w.closed)
	}
	w.mu.Lock()
	waiting = w.urgent.len() + w.normal.len()
	w.awake = waiting > 0
	w.mu.Unlock()
	switch {
	case waiting > 0 && !w.parked:
		w.mb.Post(msgWake{})
	case waiting == 0 && w.closing != nil:
		w.finish()
	}
}

// take removes the next operation, urgent ones first. It is false where there is none, or where it would make the group larger than it
// may be; alone lets it be of any size, since a group may be one large frame.
func (w *writer) take(o *op, alone bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.head()
	if q == nil {
		return false
	}
	if size := q.front().size(); !alone && (len(w.buf)+size > w.s.opt.GroupBytes || !w.fits(size)) {
		return false // the group ends here; the next one may begin a file
	}
	w.pop(q, o)
	return true
}

// head is the queue that the next operation comes from, urgent ones first; nil where there is none. The queue's lock is held.
func (w *writer) head() *opQueue {
	switch {
	case w.urgent.len() > 0:
		return &w.urgent
	case w.normal.len() > 0:
		return &w.normal
	}
	return nil
}

// pop takes the operation at the head of a queue. The queue's lock is held.
func (w *writer) pop(q *opQueue, o *op) {
	*o = *q.front()
	if q == &w.normal && o.c != nil {
		o.c.queued--
	}
	q.pop()
}

// fits reports whether size more bytes, and the footer, have their place in the current file. Anything fits an empty one.
func (w *writer) fits(size int) bool {
	if w.cur.footed {
		return false
	}
	if w.cur.size == layout.HeaderSize && len(w.buf) == 0 {
		return true
	}
	return w.room() >= int64(len(w.buf)+size)+releaseSpare
}

// room is what the current file has left, its footer counted.
func (w *writer) room() int64 { return w.s.opt.FileSize - w.cur.size - w.footer - w.footerShare() }

// releaseSpare is kept free in each file, so that on a full disk files that hold nothing live, and copies that are deleted, can still be given up.
const releaseSpare = 32 * (layout.FrameHead + layout.FrameAlign)

// footerShare is room for the footer's head and for what the frame in hand adds to it.
func (w *writer) footerShare() int64 { return 4*layout.FrameHead + 2*footerEntryMax }

// writeGroup builds a group, writes it, syncs it, and tells whoever waited. A returned error closes the store.
func (w *writer) writeGroup() error {
	if err := w.makeRoom(); err != nil {
		return err
	}
	if w.parked {
		return w.writeReleases()
	}
	w.beginGroup()
	w.placeWitness()
	head := len(w.buf)
	var o op
	for w.take(&o, len(w.buf) == head) { // the witness must not keep out the one large frame
		w.place(&o)
	}
	if len(w.buf) == head {
		w.sequence, w.buf = w.groupFrom, w.buf[:0] // a witness alone says nothing new
		w.settle()
		return nil
	}
	return w.endGroup()
}

func (w *writer) beginGroup() {
	w.buf, w.dones, w.group, w.groupMeta = w.buf[:0], w.dones[:0], w.group[:0], false
	w.groupFrom = w.sequence
}

func (w *writer) endGroup() error {
	if err := w.commit(); err != nil {
		for _, d := range w.dones {
			call(d.done, err)
		}
		w.dones = w.dones[:0]
		return err
	}
	w.settle()
	return nil
}

// writeReleases gives up files that hold nothing live while there is no space for anything else: that is where space comes from.
func (w *writer) writeReleases() error {
	w.buf = w.buf[:0]
	left := w.room() / (layout.FrameHead + layout.FrameAlign)
	if w.cur.footed || left <= 0 {
		return nil
	}
	ops, late := w.pullReleases(left)
	for _, o := range late {
		if o.before != nil && !o.before() {
			call(o.done, nil)
		} else {
			call(o.done, ErrGone)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	w.beginGroup()
	for i := range ops {
		w.place(&ops[i])
	}
	err := w.endGroup()
	w.unpark()
	return err
}

// pullReleases takes out at most so many operations that let go of what is on disk: files that hold nothing live, and copies that are deleted,
// which may be all that there is to let go of. What such a copy has waiting besides comes too late.
func (w *writer) pullReleases(left int64) (ops, late []op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gone := map[*Copy]bool{}
	ops = w.normal.pull(func(o *op) bool {
		if o.typ != layout.FrameRelease && o.typ != layout.FrameDelete || left <= 0 {
			return false
		}
		if left--; o.typ == layout.FrameDelete {
			gone[o.c] = true
		}
		return true
	})
	if len(gone) > 0 {
		of := func(o *op) bool { return o.c != nil && gone[o.c] }
		late = append(w.urgent.pull(of), w.normal.pull(of)...)
		for c := range gone {
			c.queued = 0
		}
	}
	return ops, late
}

// makeRoom rolls if the next frame does not fit.
func (w *writer) makeRoom() error {
	w.mu.Lock()
	size := 0
	if q := w.head(); q != nil {
		size = q.front().size()
	}
	w.mu.Unlock()
	w.buf = w.buf[:0]
	if size == 0 || w.fits(size+w.witnessSize()) {
		return nil
	}
	return w.roll()
}

// filled is the group with zeros behind it, to the end of its last page or of the file. The system must read what it is to change a part of;
// in a file that was used before that would be a read of the disk for each page, on the way of everybody who waits; and whole pages can be written
// past its cache (vfs.WriteSync). No page more is written.
func (w *writer) filled() []byte {
	end := w.cur.size + int64(len(w.buf))
	n := min(-end&(vfs.PageSize-1), max(0, w.s.opt.FileSize-end))
	filled := append(w.buf, zeros[:n]...)
	w.buf = filled[:len(w.buf)]
	return filled
}

var zeros [vfs.PageSize]byte

// commit writes and syncs the group.
func (w *writer) commit() error {
	start := w.s.env.Clock.Mono()
	w.s.beginSync(start)
	err := vfs.WriteSync(w.cur.f, w.filled(), w.cur.size)
	end := w.s.env.Clock.Mono()
	w.s.endSync(end, err)
	if err != nil {
		return fmt.Errorf("journal %s: %w", w.cur.name, err)
	}
	m := &w.s.metrics
	m.groups.Add(1)
	m.syncs.Add(1)
	m.frames.Add(w.sequence - w.groupFrom)
	m.bytesWritten.Add(uint64(len(w.buf)))
	m.syncNanos.Add(uint64(end - start))
	w.cur.size += int64(len(w.buf))
	w.cur.unwritten.Store(w.cur.size)
	w.synced = w.sequence
	w.s.lastGroupFrom = w.groupFrom
	w.witness = w.witness[:0]
	for _, c := range w.group {
		w.witness = append(w.witness, witnessed{c.part, c.inGroup})
	}
	if w.groupMeta {
		w.witness = append(w.witness, witnessed{})
	}
	if cap(w.buf) > 4*w.s.opt.GroupBytes {
		w.buf = nil
	}
	return nil
}

// settle ends a group: what is on disk may leave memory, and callers hear of it.
func (w *writer) settle() {
	for _, c := range w.group {
		c.inGroup = 0
	}
	for i := range w.dones {
		d := w.dones[i]
		if d.size > 0 {
			w.s.cache.add(d.c, d.end, d.size)
		}
		call(d.done, nil)
		w.dones[i] = placedOp{}
	}
	w.dones = w.dones[:0]
	w.s.spaceAfterGroup()
}

func call(done func(error), err error) {
	if done != nil {
		done(err)
	}
}

// place puts one frame into the group and into the index.
func (w *writer) place(o *op) {
	if o.before != nil && !o.before() {
		w.dones = append(w.dones, placedOp{done: o.done})
		return
	}
	at := w.cur.size + int64(len(w.buf))
	f := layout.Frame{Typ: o.typ, Generation: w.cur.generation, Sequence: w.sequence, SyncedBelow: w.synced}
	if o.c != nil {
		f.Part = o.c.part
		if o.c.inGroup == 0 {
			w.group = append(w.group, o.c)
		}
		o.c.inGroup++
	}
	w.groupMeta = w.groupMeta || o.typ == layout.FrameEntries
	p := placedOp{c: o.c, done: o.done}
	switch o.typ {
	case layout.FrameBatch, layout.FrameMoved, layout.FrameImport:
		w.buf = layout.AppendFrame(w.buf, f, o.b.Bytes())
		w.footer += footerEntryMax
	default:
		w.buf = layout.AppendFrame(w.buf, f, o.body)
	}
	w.sequence++
	if o.typ == layout.FrameBatch {
		o.c.mu.Lock()
		o.c.applyBatch(w.cur, at, o.b, o.link)
		o.c.mu.Unlock()
		p.size, p.end = o.b.Size(), o.b.End()
		w.s.metrics.batches.Add(1)
		w.s.metrics.batchBytes.Add(uint64(o.b.Size()))
	} else {
		if o.typ == layout.FrameScrub {
			d := layout.Decoder{P: o.body}
			w.scrub = layout.Place{Generation: d.U32(), At: int64(d.U64())}
		}
		f.Body = o.body
		if err := w.s.apply(w.cur, at, f, o); err != nil {
			w.s.corrupt(o.c, err)
		}
	}
	w.dones = append(w.dones, p)
}

// placeWitness says whose frames the group before held, so that if they are found broken it is known whom that hurts.
func (w *writer) placeWitness() {
	if len(w.witness) == 0 {
		return
	}
	body := make([]byte, 0, w.witnessSize())
	body = layout.AppendU64(body, w.witnessFrom())
	body = layout.AppendU64(body, w.synced)
	body = binary.LittleEndian.AppendUint32(body, uint32(len(w.witness)))
	for _, x := range w.witness {
		body = layout.AppendU64(body, x.part.Incarnation)
		body = binary.LittleEndian.AppendUint32(body, x.part.Index)
		body = binary.LittleEndian.AppendUint32(body, x.frames)
	}
	w.buf = layout.AppendFrame(w.buf, layout.Frame{Typ: layout.FrameWitness, Generation: w.cur.generation, Sequence: w.sequence, SyncedBelow: w.synced}, body)
	w.sequence++
}

func (w *writer) witnessSize() int    { return layout.SizeOf(20 + 16*len(w.witness)) }
func (w *writer) witnessFrom() uint64 { return w.s.lastGroupFrom }

// fault closes the store to writes: the state of the file is unknown, and nothing is retried (design 2 §10).
func (w *writer) fault(err error) {
	w.s.markFault()
	w.close(fmt.Errorf("%w after: %w", ErrClosed, err))
	w.s.setHealth(func(h *Health) {
		h.Class, h.Reason, h.Closed = Classify(err), err.Error(), true
		h.Failures++
	})
}

// close lets nothing be taken any more.
func (w *writer) close(why error) {
	w.mu.Lock()
	if w.closed == nil {
		w.closed = why
	}
	w.mu.Unlock()
}

func (w *writer) failAll(err error) {
	var o op
	for w.take(&o, true) {
		call(o.done, err)
	}
}

// park leaves the queue as it is until there is space again.
func (w *writer) park() {
	w.parked = true
	w.s.r.wantReclaim()
	if w.retry == nil {
		w.retry = w.mb.After(time.Second, msgRetry{})
	}
}

// unpark has the queue tried again.
func (w *writer) unpark() {
	w.parked = false
	if w.retry != nil {
		w.retry()
		w.retry = nil
	}
}
