// Package replica runs the copies of one node: it drives core/partition and the state machines against a log, and answers gateways.
//
// One small actor per partition, pinned to a shared loop. It decides nothing that core decides, knows no client protocol, and reaches
// storage, the catalog and gateways through the interfaces named here.
package replica

import (
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// Env is what a Manager stands on.
type Env struct {
	Exec  exec.Executor
	Clock clock.Clock
	Trace trace.Sink
	// Local is this run of this node. Only an assignment that names exactly it as owner makes a copy here an owner.
	Local ident.Instance
	// Store keeps the copies of durable partitions.
	Store Store
	// Memory makes the log of a partition that lives in this node's memory.
	Memory func(ident.Partition) Log
	// Resources is asked to delete queues whose time has come (x-expires, auto-delete).
	Resources Resources
	// Courier gives who publishes the dead letters of a partition: the gateway beside its replica. It takes
	// protocol.DeadLetter and answers to its Reply. nil: dead letters wait.
	Courier func(ident.Partition) protocol.Sender
	// Gateways gives the gateways that may hold deliveries of a partition from its owner before this one: a new owner of a queue
	// waits for their Attach or Unclaimed, for 500 ms at most, before it delivers. nil or none on a node that knows that no gateway
	// outlived the last owner. It is called on the replica's loop.
	Gateways func(ident.Partition) []protocol.Gateway
	// Serving is told, on the replica's loop, that a partition is served from now on. May be nil.
	Serving func(ident.Partition)
	// Became is told what became of the change of owner that began an epoch, from any goroutine. May be nil.
	Became func(p ident.Partition, epoch uint64, what evidence.Became)
	// Keep keeps what a copy that was ever an owner is about to cut, and calls done once, from any goroutine, with whether it has.
	// nil: nobody keeps it.
	Keep func(end CutEnd, done func(kept bool))
	// Peers carries messages to other nodes; nil on a node that has none.
	Peers Peers
	// Members changes who follows, by a guarded write to the catalog; nil where nothing may.
	Members Members
	// Leased says that this node's run is granted leases (SetLease), and takes no durable change without one where they fence. false: it is
	// alone, and nobody could be chosen in its place.
	Leased bool
	// Pulse notices when the node stood still; nil where nobody could have been chosen in its place meanwhile.
	Pulse *clock.Pulse
	// SnapshotEvery is how many applied entries make a snapshot due; 0 is what production wants. A simulation, which has few entries,
	// sets it low.
	SnapshotEvery uint64
	// FormerHold is how long the data of a copy without a place is kept at least; 0 is what production wants. A simulation, which is short, and whose
	// messages are not late for longer, sets it low.
	FormerHold time.Duration
}

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
	// SetPromise keeps the highest epoch that the copy has vowed to obey; what was appended before is durable before it.
	SetPromise(epoch uint64, done func(error))
	// SetRole keeps the role that the copy has in an epoch.
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

// CutEnd is what is cut from a log: the batches from From to To, where the history of Epoch began below them.
type CutEnd struct {
	Partition ident.Partition
	Epoch     uint64
	From, To  uint64 // positions
	Batches   []batch.Batch
}

// Resources deletes resources, by a guarded write to the catalog.
type Resources interface {
	// DeleteResource asks for the deletion of a resource whose owner has closed admission. done is called once, from any
	// goroutine; an error means that it was refused and that the resource goes on.
	DeleteResource(incarnation, epoch uint64, reason string, done func(error))
}

// Members changes an assignment's members in the same epoch (design 2 §5, joint rule).
type Members interface {
	// ChangeMembers proposes a change. done is called once, from any goroutine: with nil or a refusal by the catalog after the node's
	// listeners were told of the outcome; with another error where the outcome is not known.
	ChangeMembers(m catalog.Membership, done func(error))
}

// SealRequest asks one copy to stop following and growing.
type SealRequest = control.SealRequest

// SealAnswer is a copy's answer, made after its promise is durable.
type SealAnswer = control.SealAnswer

// State says what a replica is doing (design 6).
type State string

// The states.
const (
	Serving    State = "serving"
	Recovering State = "recovering" // its state is being rebuilt, or its epoch's mark is not confirmed yet
	Waiting    State = "waiting"    // for a transition that makes some copy its owner
	Blocked    State = "blocked"    // its storage failed, or the copy is damaged
	Moving     State = "moving"     // sealed for a transition
)

// Status is what the admin port shows of a replica.
type Status struct {
	Partition ident.Partition
	State     State
	Reason    string // why not Serving, or why it takes nothing, or why an owner that does takes nothing new
	Role      string
	Epoch     uint64
	Position  uint64 // the log's end
	Offset    uint64 // likewise: of the next record
	Durable   uint64 // position
	Confirmed uint64 // position
	Messages  uint64 // ever confirmed and applied here: the offset after the last of them
	Ready     uint64 // messages of a queue; records kept of a stream
	Unsettled uint64
	Consumers uint64
	Readers   uint64 // consumers beside a copy that follows, which read a stream from it
	Bytes     int64  // kept in the log
	Staged    int64  // bytes admitted and not yet confirmed
	// DeadLetters are messages that wait to be published elsewhere; Stuck says why the last attempt kept one.
	DeadLetters uint64
	Stuck       string
	Moved       int64 // of a learner, or a follower that takes an image: when it last came further, wall time in milliseconds since 1970
	Kept        int64 // of a former copy: until when its data is kept, wall time as above; 0: for now
	// Feeds are, of an owner, the copies that take what it sends, and up to where they hold it durably.
	Feeds []FeedStatus
}

// FeedStatus is what an owner knows of another copy.
type FeedStatus struct {
	Node    string
	Durable uint64 // position
}
