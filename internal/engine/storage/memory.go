package storage

import (
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// Memory is the log of a partition that lives in one node's memory and goes with it. What it is given counts at once: done is called
// before a method returns, once, with nil unless the method names an error; then nothing has changed, and a retry does not help. It holds what Retain and
// DropHead leave. Its methods are those of Copy, and may be called from any loop.
type Memory struct {
	part ident.Partition

	mu        sync.Mutex
	batches   []batch.Batch
	tail      batch.Tail
	promise   uint64
	role      partition.Role
	roleEpoch uint64
	snapshot  batch.Tail
	bytes     int64
	records   uint64
	deleted   bool
}

// NewMemory makes an empty log.
func NewMemory(p ident.Partition) *Memory { return &Memory{part: p} }

// Partition is whose log it is.
func (m *Memory) Partition() ident.Partition { return m.part }

// Image is the log as it is.
func (m *Memory) Image() partition.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := partition.Image{
		Partition: m.part, Promise: m.promise, Role: m.role, RoleEpoch: m.roleEpoch, Tail: m.tail,
		Head: m.tail.Position, HeadOffset: m.tail.Offset, Snapshot: m.snapshot,
	}
	if len(m.batches) > 0 {
		i.Head, i.HeadOffset = m.batches[0].Position, m.batches[0].Offset
	}
	return i
}

// Append adds a batch, or is done with ErrNotNext or ErrGone.
func (m *Memory) Append(b batch.Batch, link batch.Link, _ bool, done func(error)) {
	call(done, m.append(b, link))
}

func (m *Memory) append(b batch.Batch, link batch.Link) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleted {
		return ErrGone
	}
	if !b.Follows(m.tail) || b.Partition != m.part {
		return fmt.Errorf("%w: batch at %d, log of %s at %d", ErrNotNext, b.Position, m.part, m.tail.Position)
	}
	m.tail = m.tail.After(b, link)
	m.batches = append(m.batches, b)
	m.bytes += int64(b.Size())
	m.records += uint64(b.Records)
	return nil
}

func (m *Memory) locked(done func(error), f func()) {
	m.mu.Lock()
	f()
	m.mu.Unlock()
	call(done, nil)
}

// SetPromise keeps the promise.
func (m *Memory) SetPromise(epoch uint64, done func(error)) {
	m.locked(done, func() { m.promise = max(m.promise, epoch) })
}

// SetRole keeps the role.
func (m *Memory) SetRole(r partition.Role, epoch uint64, done func(error)) {
	m.locked(done, func() { m.role, m.roleEpoch = r, epoch })
}

// Cut drops the end of the log. It is done with ErrBadCut where no batch ends there.
func (m *Memory) Cut(to batch.Tail, done func(error)) {
	m.mu.Lock()
	var err error
	i := sort.Search(len(m.batches), func(i int) bool { return m.batches[i].Position >= to.Position })
	if to != m.tail && (i == len(m.batches) || m.batches[i].Position != to.Position || m.batches[i].PrevLink != to.Link) {
		err = fmt.Errorf("%w: %s at %d", ErrBadCut, m.part, to.Position)
	} else {
		m.tail = to
		m.keep(func(b batch.Batch) bool { return b.Position < to.Position })
	}
	m.mu.Unlock()
	call(done, err)
}

// keep lets go of the batches that are not wanted. The lock is held.
func (m *Memory) keep(want func(batch.Batch) bool) {
	m.batches = slices.DeleteFunc(m.batches, func(b batch.Batch) bool {
		if want(b) {
			return false
		}
		m.bytes -= int64(b.Size())
		m.records -= uint64(b.Records)
		return true
	})
}

// Retain drops what need not be kept: below from (which a snapshot must cover), all but the records of the given offsets.
func (m *Memory) Retain(from uint64, live []partition.Span, done func(error)) {
	m.locked(done, func() {
		from = min(from, m.snapshot.Position)
		m.keep(func(b batch.Batch) bool {
			if b.End() > from {
				return true
			}
			i := sort.Search(len(live), func(i int) bool { return live[i].To > b.Offset })
			return i < len(live) && live[i].From < b.EndOffset()
		})
	})
}

// WriteSnapshot only notes how far the state reaches: nobody will ask for it after this run.
func (m *Memory) WriteSnapshot(s partition.Snapshot, done func(error)) {
	m.locked(done, func() { m.snapshot = s.At })
}

// ReadSnapshot gives none.
func (m *Memory) ReadSnapshot(done func(partition.Snapshot, bool, error)) {
	done(partition.Snapshot{}, false, nil)
}

// Read gives batches from the one that holds a position on, or from the next that is kept.
func (m *Memory) Read(position uint64, most int, done func([]batch.Batch, error)) {
	done(m.read(most, func(b batch.Batch) bool { return b.End() > position }))
}

// ReadOffset is Read by the offset of a record.
func (m *Memory) ReadOffset(offset uint64, most int, done func([]batch.Batch, error)) {
	done(m.read(most, func(b batch.Batch) bool { return b.EndOffset() > offset }))
}

func (m *Memory) read(most int, want func(batch.Batch) bool) ([]batch.Batch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deleted {
		return nil, ErrGone
	}
	var out []batch.Batch
	size := 0
	for _, b := range m.batches[sort.Search(len(m.batches), func(i int) bool { return want(m.batches[i]) }):] {
		if size += b.Size(); len(out) > 0 && size > most {
			break
		}
		out = append(out, b)
	}
	return out, nil
}

// SeekTime is the offset of the first record in the first batch whose time is at or after ms.
func (m *Memory) SeekTime(ms int64, done func(uint64, error)) {
	m.mu.Lock()
	off := m.tail.Offset
	if i := sort.Search(len(m.batches), func(i int) bool { return m.batches[i].Time >= ms }); i < len(m.batches) {
		off = m.batches[i].Offset
	}
	m.mu.Unlock()
	done(off, nil)
}

// LastBatch is the offset of the first record of the last batch below a position that has records.
func (m *Memory) LastBatch(below uint64, done func(uint64, error)) {
	m.mu.Lock()
	off := m.tail.Offset
	if len(m.batches) > 0 {
		off = m.batches[0].Offset
	}
	for _, b := range slices.Backward(m.batches) {
		if b.Position < below && b.Records > 0 {
			off = b.Offset
			break
		}
	}
	m.mu.Unlock()
	done(off, nil)
}

// Size is the bytes and records that are kept.
func (m *Memory) Size() (bytes int64, records uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes, m.records
}

// DropHead drops whole batches below a position.
func (m *Memory) DropHead(below uint64, done func(error)) {
	m.locked(done, func() { m.keep(func(b batch.Batch) bool { return b.End() > below }) })
}

// Oldest gives the batches at the head.
func (m *Memory) Oldest(n int) []partition.BatchInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []partition.BatchInfo
	for _, b := range m.batches[:min(n, len(m.batches))] {
		out = append(out, partition.BatchInfo{
			Position: b.Position, Offset: b.Offset, Count: b.Count, Records: b.Records, Time: b.Time, Size: b.Size(),
		})
	}
	return out
}

// Delete drops everything.
func (m *Memory) Delete(done func(error)) {
	m.locked(done, func() { m.deleted, m.batches, m.bytes, m.records = true, nil, 0, 0 })
}
