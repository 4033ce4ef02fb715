package protocol

import (
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// What nodes and the controller say to each other, beside the catalog. Questions carry a number of the asker's, which the answer
// repeats; neither is repeated by itself, and both are lost with the session. Source: design 2 §4 and §5.

// Heartbeat says that a node lives. It is small and of one size whatever the node holds.
type Heartbeat struct {
	From     ident.Instance
	Term     uint64 // of the controller that the node last heard
	Health   string // class of its storage fault (design 2 §10); "" is health
	Closed   bool   // its storage takes no more writes
	Draining bool
	Stalled  int64 // nanoseconds that the write and sync under way have taken; 0: none is
	Sent     int64 // nanoseconds on the sender's monotonic clock: means something to the sender alone
}

// Lease answers some of a node's heartbeats: for how long that run may take durable changes where its lease fences (design 2 §7). A node that
// hears none holds what it was granted before.
type Lease struct {
	Term   uint64 // of the controller that grants it
	Holder ident.Instance
	TTL    int64 // nanoseconds from Sent on; 0: what was granted is taken back
	Sent   int64 // of the heartbeat that it answers
	// Index is how far the controller's catalog had come: the lease is for what the holder owns by that or a later one.
	Index uint64
}

// Confirms tells the controller how far owners have confirmed, of those partitions where that has changed: once a second. Nobody is chosen
// below it (design 2 §5, "confirmed floor"). Every other node is told too, since the controller may be lost with the owner; to a new
// controller nodes pass on what they were told.
type Confirms struct {
	From  ident.Instance // that owns; another may pass it on
	Items []Confirmed
}

// Confirmed is how far the owner of a partition has confirmed in its epoch.
type Confirmed struct {
	Partition ident.Partition
	Epoch     uint64
	Position  uint64
}

// Promises tells the controller of copies that have vowed to obey an epoch above that of their role: most for the moment of a
// transition, and some because a controller died, or withdrew, between seal and commit. Sent while there are any, once a second.
type Promises struct {
	From  ident.Instance
	Items []Promised
}

// Promised is one copy's promise.
type Promised struct {
	Partition ident.Partition
	Epoch     uint64
}

// Damages tells the controller of copies that are to own, by the newest assignment that their node knows, and are damaged: each is the whole of
// what its sender has to say. Sent when that changes, and once a second while there are any.
type Damages struct {
	From  ident.Instance
	Items []Damaged
}

// Damaged is one copy that is to own and cannot.
type Damaged struct {
	Partition ident.Partition
	Epoch     uint64 // of the assignment that it is to own by
	Reason    string
}

// SealRequests asks a node to seal copies (design 1, "seal").
type SealRequests struct {
	Request uint64
	Term    uint64 // of the controller that asks
	Items   []Seal
}

// Seal asks one copy.
type Seal struct {
	Partition  ident.Partition
	Epoch      uint64 // to be promised
	Transition string
}

// SealAnswers answers SealRequests, in full or in part: each copy once, when its promise is durable.
type SealAnswers struct {
	Request uint64
	From    ident.Instance
	Items   []Sealed
}

// Sealed is what one copy durably holds.
type Sealed struct {
	Partition   ident.Partition
	Transition  string
	Tail        batch.Tail
	Confirmed   uint64 // the highest confirmed position that the copy knows of
	LastConfirm int64  // when that last moved, in microseconds since 1970; 0: not known
	Damaged     string // not empty: why it must not count
	Refused     string // not empty: why it did not seal
}

// LinksAsk asks a node what the links of its copies are at positions.
type LinksAsk struct {
	Request uint64
	Items   []LinksOf
}

// LinksOf names positions of one partition's log, ascending.
type LinksOf struct {
	Partition ident.Partition
	Positions []uint64
}

// LinksAnswer answers LinksAsk.
type LinksAnswer struct {
	Request uint64
	From    ident.Instance
	Items   []LinksFound
}

// LinksFound are the links of one copy at the positions asked for; those that it does not have any more are missing.
type LinksFound struct {
	Partition ident.Partition
	Links     []LinkAt
	Failed    string // not empty: why there is no answer
}

// LinkAt is the link of a log that ends at a position.
type LinkAt struct {
	Position uint64
	Link     batch.Link
}

// RunReport tells the controller which runs of other nodes its sender can reach and which not: when a session with one begins or
// ends, when an attempt to reach one fails in another way than the last, and all at once when a controller's term begins.
type RunReport struct {
	From ident.Instance
	Term uint64 // of the controller that it is for
	Runs []Run
}

// Run is one other node as the sender of a report sees it.
type Run struct {
	Node   ident.Instance // the last run that a session was with; Boot 0 if there was none
	Up     bool
	Cause  string // where it is not up: how the session ended or the attempt failed
	Reason string
}
