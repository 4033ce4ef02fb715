// Package replica runs the copies of one node: it drives core/partition and the state machines against a log, and answers gateways.
//
// One small actor per partition, pinned to a shared loop. It decides nothing that core decides, knows no client protocol, and reaches
// storage, the catalog and gateways through the interfaces named here.
package replica

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// Store is what a replica needs of its node's storage. Methods may be called from any loop and never block. Every done is called
// exactly once, on a loop of storage's own, when the thing is durable or has failed; a failure is never retried by storage, and
// the caller must take the outcome as unknown (design 2 §10, "uncertain").
type Store interface {
	// Create makes the copy of a partition. It is durable no later than the first thing that is written to it.
	Create(p ident.Partition) (Log, error)
	// Copies are those found when the store was opened, and created since, in order of partition.
	Copies() []Log
}

// Log is one copy.
type Log interface {
	// Image is the copy as it was when opened.
	Image() partition.Image
	// Append writes a batch that continues the log. link is the batch's own link. Appends are durable in order. urgent asks for
	// the head of the next group. It may be called again before earlier appends are done. Appended batches can be read at once.
	Append(b batch.Batch, link batch.Link, urgent bool, done func(error))
	SetPromise(epoch uint64, done func(error))
	SetRole(r partition.Role, epoch uint64, done func(error))
	// Cut drops the end of the log, down to a tail that is a batch boundary.
	Cut(to batch.Tail, done func(error))
	// Retain says what must be kept: everything from position from on, and below it the records of the given offsets. It may
	// never name less than the newest durable snapshot needs.
	Retain(from uint64, live []partition.Span, done func(error))
	// WriteSnapshot writes pages; the snapshot counts once done.
	WriteSnapshot(s partition.Snapshot, done func(error))
	// ReadSnapshot gives the newest snapshot with all its pages; ok false where there is none.
	ReadSnapshot(done func(s partition.Snapshot, ok bool, err error))
	// Read gives batches from the one that holds position on, at least one if there is any, else about max bytes of them.
	// Where position was dropped, it goes on from the next batch that is kept. Newest batches come from memory, and then done is
	// called before Read returns.
	Read(position uint64, max int, done func([]batch.Batch, error))
	// ReadOffset is Read by record offset.
	ReadOffset(offset uint64, max int, done func([]batch.Batch, error))
	// SeekTime is the offset of the first record in the first batch whose time is at or after ms; the tail's offset if none.
	SeekTime(ms int64, done func(offset uint64, err error))
	// LastBatch is the offset of the first record of the last batch below position that has records.
	LastBatch(below uint64, done func(offset uint64, err error))
	// Size is the bytes of the batches that are kept, and their number of records.
	Size() (bytes int64, records uint64)
	// DropHead says which positions may go: a stream's retention. Whole batches below position are dropped.
	DropHead(below uint64, done func(error))
	// Oldest gives the batches at the head, oldest first, without their payload being read: for retention.
	Oldest(max int) []partition.BatchInfo
	// Delete drops the copy for ever.
	Delete(done func(error))
}
