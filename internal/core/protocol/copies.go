package protocol

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// What an owner and the other copies of its partition say to each other (design 2 §1–§3). Every message names the partition with its
// incarnation, the sender's current epoch and the run of the node that sends it. All of them may be lost, with the session that they
// were sent in; none is acted on if its epoch is not the one that the receiver has applied.

// Probe asks a copy where its log ends. An owner sends it when its epoch begins, when a copy is added, and when the way to the copy's
// node opens. The answer is Standing; a copy that has not applied the epoch yet answers once it has.
type Probe struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
}

// Standing says where a copy's log ends: the answer to Probe, to a batch that does not continue the log, and, unasked, what a copy
// says when it has applied its role or the way to the owner's node opens. The owner goes on from Tail, which it compares with its own
// log by the link. What it sent before and was not told of counts as lost.
//
// One of a later epoch than the receiver owns says that another owner was chosen, and nothing else: a copy says it to whoever owned before, once
// it has taken up its role, and in answer to a Probe or an Extend of an earlier epoch.
type Standing struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
	Learner   bool
	Asked     bool // it answers a Probe; an owner that has heard an unasked one since it probed need not look at it
	Tail      batch.Tail
	Durable   uint64 // position
	// Empty says that the copy holds nothing and can take an image. Partial says that it is being made of one, and can go on with nothing else;
	// Importing is then where that stands: the image's head and the cursor of the next chunk, as storage encodes them, nil for the beginning.
	Empty     bool
	Partial   bool
	Importing []byte
	Damaged   string // not empty: why the copy must not count
	Sealed    bool   // it was sealed for a later epoch: it follows no more, and its other words count for nothing
}

// Extend carries batches that continue a copy's log, and the confirmed position. Batches may be of older epochs; Epoch is the sender's.
// Without batches it only tells the confirmed position.
type Extend struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
	Confirmed uint64
	// Keep is the position from which some copy still needs the log: whoever owns next must be able to give it that (design 2 §6).
	Keep    uint64
	Batches []batch.Batch
}

// Held says up to where a copy holds the log durably.
type Held struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
	Durable   uint64 // position
}

// ImageChunk carries a piece of an image to a copy that cannot go on from its log (design 3, "a copy's image"). The copy answers each
// with ImageTaken once it is durable, which asks for the next.
type ImageChunk struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
	// Over is where the log ends that the image takes the place of: it ends below what the owner has kept, so that all of it is part of what
	// the owner has confirmed and holds. 0: the copy is empty, or is being made of the image.
	Over  uint64
	Chunk []byte
}

// MakeAnew answers a Standing that says that a copy is damaged: the owner counts on nothing that it had said before, and sends it an image once it
// has given up what it holds and says so, with a Partial Standing (design 2 §10).
type MakeAnew struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
}

// ImageTaken says that a chunk is durable. Done says that it was the last: Standing follows. Failed, not empty, ends the image; the
// owner begins anew from the next Standing.
type ImageTaken struct {
	Partition ident.Partition
	Epoch     uint64
	From      ident.Instance
	Next      []byte // the cursor of the next chunk, as storage encodes it
	Done      bool
	Failed    string
}
