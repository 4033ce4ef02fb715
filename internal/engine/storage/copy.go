package storage

import (
	"fmt"
	"sort"
	"sync"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// Copy is one copy of a partition's log (design 3). It has no goroutine and no file of its own. Its methods may be called from any loop and never
// wait for the disk. Positions count entries, offsets records, sizes bytes.
//
// Every done is called once, on a loop of storage's own unless a method says otherwise: with nil when the thing is durable; with ErrGone after Delete, and
// with what else the method names, where nothing was written; and with ErrClosed, or the error of the write or sync that closed the store, after which the
// outcome is unknown and no retry helps before the store is opened again (design 2 §10, "uncertain").
//
// What an append reads and writes lies together, and so does what placing its frame does: with many copies in use, reaching for memory is what a
// batch costs.
type Copy struct {
	s       *Store
	part    ident.Partition
	mu      sync.Mutex
	tail    batch.Tail    // what has been appended, logged or not
	newest  []batch.Batch // in memory, contiguous up to the tail
	queued  int32         // operations waiting for a group, under the queue's lock
	deleted bool          // as asked for, logged or not
	damaged string        // as logged
	imaging *imaging

	// The rest is as logged: what a checkpoint says of the copy. The writer changes it when it places a frame.
	logged     batch.Tail
	spans      []span
	bytes      int64 // of the batches in spans
	records    uint64
	inGroup    uint32 // frames in the group that is being built: the writer's own
	role       partition.Role
	promise    uint64
	roleEpoch  uint64
	head       uint64 // what was dropped by DropHead
	snap       *snapshot
	pending    *snapshot // pages written since the last whole snapshot
	retainFrom uint64    // not logged: said anew after every start
	live       []partition.Span
}

// Partition is whose copy it is.
func (c *Copy) Partition() ident.Partition { return c.part }

// Image is what is in the journal of the copy. Before anything has been appended it is the copy as it was when the store was
// opened; everything in it is then durable.
func (c *Copy) Image() partition.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := partition.Image{
		Partition: c.part, Promise: c.promise, Role: c.role, RoleEpoch: c.roleEpoch, Tail: c.logged,
		Head: c.logged.Position, HeadOffset: c.logged.Offset, Damaged: c.damaged,
	}
	if len(c.spans) > 0 {
		i.Head, i.HeadOffset = c.spans[0].first, c.spans[0].offset
	}
	if c.snap != nil {
		i.Snapshot = c.snap.at
	}
	if c.importing() != nil { // it must not be taken for a copy that holds a part of the log
		i.Importing = true
		i.Head, i.HeadOffset, i.Snapshot = 0, 0, batch.Tail{}
	}
	return i
}

// Append writes a batch that continues the log; link is the batch's own. It is done with ErrNotNext where it does not, and with
// the error of the write or sync where that failed: the outcome is then unknown and nothing is retried. urgent asks for the head of
// the next group, to which what this copy has waiting goes with it, so that appends stay durable in order.
func (c *Copy) Append(b batch.Batch, link batch.Link, urgent bool, done func(error)) {
	c.mu.Lock()
	if err := c.usable(); err != nil || !b.Follows(c.tail) || b.Partition != c.part {
		if err == nil {
			err = fmt.Errorf("%w: batch at %d, log of %s at %d", ErrNotNext, b.Position, c.part, c.tail.Position)
		}
		c.mu.Unlock()
		c.s.fail(done, err)
		return
	}
	c.tail = c.tail.After(b, link)
	c.newest = append(c.newest, b)
	c.s.w.enqueue(op{typ: layout.FrameBatch, c: c, b: b, link: link, done: done}, urgent)
	c.mu.Unlock()
}

// usable must be called with the lock held.
func (c *Copy) usable() error {
	switch {
	case c.deleted:
		return ErrGone
	case c.damaged != "":
		return fmt.Errorf("%w: %s: %s", ErrDamaged, c.part, c.damaged)
	case c.importing() != nil:
		return fmt.Errorf("%w: %s", ErrImporting, c.part)
	}
	return nil
}

// SetPromise logs the highest epoch that the copy has vowed to obey (design 2 §3). What the copy had staged before is durable before it. It is the caller's
// never to name a lower one. Errors as of every method of Copy.
func (c *Copy) SetPromise(epoch uint64, done func(error)) {
	c.control(op{typ: layout.FramePromise, c: c, body: layout.AppendU64(nil, epoch), done: done}, true)
}

// SetRole logs the role that the copy has in an epoch (design 2 §5, step 5). Errors as of every method of Copy; repeating it is safe.
func (c *Copy) SetRole(r partition.Role, epoch uint64, done func(error)) {
	c.control(op{typ: layout.FrameRole, c: c, body: append(layout.AppendU64(nil, epoch), byte(r)), done: done}, true)
}

// DropHead drops whole batches below a position, for ever: what a stream's retention lets go of. It must be at or below the confirmed position (design 2 §1).
// Errors as of every method of Copy; repeating it is safe.
func (c *Copy) DropHead(below uint64, done func(error)) {
	c.control(op{typ: layout.FrameDropHead, c: c, body: layout.AppendU64(nil, below), done: done}, false)
}

func (c *Copy) control(o op, urgent bool) {
	c.mu.Lock()
	if c.deleted {
		c.mu.Unlock()
		c.s.fail(o.done, ErrGone)
		return
	}
	c.s.w.enqueue(o, urgent)
	c.mu.Unlock()
}

// Delete drops the copy for ever. It can be created anew once done. Errors as of every method of Copy; asked again it is done with ErrGone.
func (c *Copy) Delete(done func(error)) {
	c.mu.Lock()
	if c.deleted {
		c.mu.Unlock()
		c.s.fail(done, ErrGone)
		return
	}
	c.deleted = true
	c.newest = nil
	c.s.w.enqueue(op{typ: layout.FrameDelete, c: c, done: done}, false)
	c.mu.Unlock()
}

// Cut drops the end of the log, down to a tail that is a batch boundary. It is done with ErrBadCut where the log has no batch
// that ends there with that link. The zero tail is one of every log: then all of it goes, what was dropped and snapshots included.
func (c *Copy) Cut(to batch.Tail, done func(error)) {
	c.mu.Lock()
	err := c.usable()
	if err == nil {
		err = c.checkCut(to)
	}
	if err != nil {
		c.mu.Unlock()
		c.s.fail(done, err)
		return
	}
	c.tail = to
	n := sort.Search(len(c.newest), func(i int) bool { return c.newest[i].Position >= to.Position })
	clear(c.newest[n:])
	c.newest = c.newest[:n]
	c.retainFrom = min(c.retainFrom, to.Position) // what comes there now is something else than what was let go of
	c.s.w.enqueue(op{typ: layout.FrameCut, c: c, body: layout.AppendTail(nil, to), done: done}, true)
	c.mu.Unlock()
}

func (c *Copy) checkCut(to batch.Tail) error {
	bad := fmt.Errorf("%w: %s at %d", ErrBadCut, c.part, to.Position)
	if to == c.tail || c.snap != nil && to == c.snap.at {
		return nil // below a snapshot's end everything may have been dropped
	}
	if to == (batch.Tail{}) {
		return nil
	}
	if to.Position > c.tail.Position || to.Position < c.head || to.Position == 0 {
		return bad
	}
	for _, b := range c.newest {
		if b.Position == to.Position {
			if b.PrevLink == to.Link && b.Offset == to.Offset {
				return nil
			}
			return bad
		}
	}
	i := c.spanAt(to.Position - 1)
	if i == len(c.spans) || c.spans[i].first >= to.Position {
		return bad
	}
	es, err := c.s.entries(c.part, &c.spans[i])
	if err != nil {
		return err
	}
	k := sort.Search(len(es), func(k int) bool { return es[k].end() >= to.Position })
	if k == len(es) || es[k].end() != to.Position || es[k].link != to.Link || es[k].endOffset() != to.Offset {
		return bad
	}
	return nil
}

// Retain says what must be kept: everything from position from on, and below it the records at the given offsets. It names never
// less than the newest durable snapshot needs. Files that hold nothing that is kept are reused. Nothing is logged: it is said anew after every start, and done
// means that it was taken. live is copied. The only error is ErrGone.
func (c *Copy) Retain(from uint64, live []partition.Span, done func(error)) {
	c.mu.Lock()
	if c.deleted {
		c.mu.Unlock()
		c.s.fail(done, ErrGone)
		return
	}
	if c.snap == nil {
		from = 0
	} else {
		from = min(from, c.snap.at.Position)
	}
	c.retainFrom = from
	c.live = append([]partition.Span(nil), live...)
	c.dropDead()
	c.mu.Unlock()
	c.s.r.wantReclaim()
	c.s.fail(done, nil)
}

// dropDead lets go of spans that hold nothing to be kept. The journal is not told: after a restart they are there again until
// Retain is called, unless their file has been reused.
func (c *Copy) dropDead() {
	kept := c.spans[:0]
	for _, sp := range c.spans {
		if c.keeps(sp.first, sp.end, sp.offset, sp.endOff) {
			kept = append(kept, sp)
		} else {
			c.dropTotals(sp)
		}
	}
	clear(c.spans[len(kept):])
	c.spans = kept
}

// Size is the bytes of the batches that are kept, and their number of records, those not yet logged included.
func (c *Copy) Size() (bytes int64, records uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes, records = c.bytes, c.records
	for i := len(c.newest) - 1; i >= 0 && c.newest[i].Position >= c.logged.Position; i-- {
		bytes += int64(c.newest[i].Size())
		records += uint64(c.newest[i].Records)
	}
	return bytes, records
}

// Oldest gives the batches at the head that are in the journal, oldest first, without their payload being read. It may read a
// footer. What cannot be read is left out.
func (c *Copy) Oldest(n int) []partition.BatchInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []partition.BatchInfo
	for i := range c.spans {
		es, err := c.s.entries(c.part, &c.spans[i])
		if err != nil {
			return out
		}
		for _, e := range es {
			if len(out) >= n {
				return out
			}
			if e.position >= c.tail.Position {
				return out
			}
			out = append(out, partition.BatchInfo{
				Position: e.position, Offset: e.offset, Count: e.count, Records: e.records, Time: e.time, Size: int(e.size),
			})
		}
	}
	return out
}
