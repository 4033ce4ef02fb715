package admin

// Metrics is a snapshot of what a node counts. Counters are since its start and never fall; the rest is as of now. A field that the
// node cannot tell stays 0.
type Metrics struct {
	Storage  StorageMetrics
	Gateway  GatewayMetrics
	Catalog  CatalogMetrics
	Replicas ReplicaMetrics
	Changes  ChangeMetrics
}

// Phases are the steps of a change of owner that are timed, in their order: recording it in the catalog once the old owner was missed,
// waiting for enough answers, choosing, committing, until the new owner served, and until it confirmed its first message.
var Phases = []string{"record", "seal", "choose", "commit", "serve", "confirm"}

// PhaseBounds are the upper bounds of the buckets that seconds of phases are counted in.
var PhaseBounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}

// Change is a kind of change of owner.
type Change struct{ Workflow, Cause string }

// Seconds counts how long something took.
type Seconds struct {
	Count   uint64
	Sum     float64
	Buckets [len(PhaseBounds)]uint64 // those at most as long as each of PhaseBounds
}

// Add counts one more.
func (s *Seconds) Add(seconds float64) {
	s.Count++
	s.Sum += seconds
	for i, bound := range PhaseBounds {
		if seconds <= bound {
			s.Buckets[i]++
		}
	}
}

// ChangeMetrics is of changes of owner. Each is counted by one node, the new owner's, so that sums over nodes are right.
type ChangeMetrics struct {
	Owners      map[Change]uint64 // that this node took over
	Phases      map[string]Seconds
	Unavailable float64           // seconds from when an old owner was missed until this node served in its place, of all partitions together
	CutEntries  uint64            // that copies of this node dropped to follow a new owner
	LostEntries uint64            // confirmed, and given up with accepted losses that made copies of this node owners
	Suspicions  map[string]uint64 // of nodes, by this node's controller, by symptom
	Cleared     uint64            // suspicions that were wrong, or over before the run was
}

// StorageMetrics is of the node's journal and its disk.
type StorageMetrics struct {
	Syncs        uint64  // fdatasync calls on the journal
	Groups       uint64  // group commits
	BytesWritten uint64  // to log files, everything counted
	PayloadBytes uint64  // of BytesWritten, batches when they were first written
	MovedBytes   uint64  // of BytesWritten, what reclaiming copied
	SyncSeconds  float64 // spent in writing and syncing groups
	Failures     uint64  // writes and syncs that failed
	Files        uint64  // log files
	LiveBytes    uint64  // in log files, still needed
	FreeBytes    uint64  // that can still be written
	Reclaimed    uint64  // log files reused
	Damaged      uint64  // copies that are quarantined
	Health       string  // class of storage health, "ok" if well
}

// RefusalReasons are why targets of messages are refused: a queue's length limit, fewer copies in reach than a confirm needs, an owner
// whose lease is over, one that was not reached in time, anything else.
var RefusalReasons = []string{"full", "copies", "lease", "unreached", "other"}

// GatewayMetrics is of the clients of this node.
type GatewayMetrics struct {
	Connections uint64 // now
	Channels    uint64 // now
	Consumers   uint64 // now
	BytesIn     uint64 // received from clients, everything counted
	BytesOut    uint64 // sent to clients, everything counted
	Published   uint64 // messages taken from clients
	Confirmed   uint64
	Refused     uint64
	// Refusals counts refused targets of messages by reason: one of RefusalReasons.
	Refusals          map[string]uint64
	Unknown           uint64
	Returned          uint64 // mandatory messages without a target
	Delivered         uint64
	Redelivered       uint64 // of Delivered, those that may have been delivered before
	Settled           uint64 // by clients, in whichever way
	Denied            uint64 // of Delivered, those that others were given before this node's claims came to a new owner
	Released          uint64 // given back because a consumer or client went away
	DeadLettered      uint64 // published elsewhere, or dropped because they went in a circle
	DeadLettersKept   uint64 // attempts that failed: the target is missing or refused
	Blocked           bool   // publishers are held
	BufferedBytes     uint64 // taken from clients and not yet resolved
	OldestUnconfirmed float64
}

// CatalogMetrics is of the metadata.
type CatalogMetrics struct {
	Applied uint64 // index of the last command applied
	Term    uint64
	Leader  bool // this node decides
	// CertificateSeconds is how long the node's certificate for the mesh is good for; 0 where it has none, below 0 once it has expired.
	CertificateSeconds float64
	LeaseSeconds       float64 // that are left of the node's lease; 0: it has none
}

// ReplicaMetrics is of the partitions on this node.
type ReplicaMetrics struct {
	States       map[State]uint64 // owned partitions by state
	Ready        uint64           // messages ready in owned queues
	Unsettled    uint64
	Records      uint64 // kept in owned streams
	StagedBytes  uint64 // admitted and not yet confirmed
	DeadLetters  uint64 // waiting to be published elsewhere
	Deduplicated uint64 // publishes that were stored already under their number
	Expired      uint64 // messages whose time to live ended in the queue
	// FormersDropped counts the copies without a place whose data went.
	FormersDropped uint64
	Transitions    uint64 // changes of owner that this node has seen in the catalog, wherever they were
	// LostFollowers counts, by node, the followers of owned partitions that take nothing; HeldFollowers, by node, those whose place is kept while
	// their node is away, and Replaced those that are to be replaced. Lag is, by node, the largest number of entries that one of its copies is
	// behind what this node owns.
	LostFollowers, HeldFollowers, Replaced map[string]uint64
	Lag                                    map[string]uint64
	Learners                               uint64 // copies that catch up with owned partitions
}
