package admin

// Metrics is a snapshot of what a node counts. Counters are since its start and never fall; the rest is as of now. A field that the
// node cannot tell stays 0.
type Metrics struct {
	Storage  StorageMetrics
	Gateway  GatewayMetrics
	Catalog  CatalogMetrics
	Replicas ReplicaMetrics
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

// RefusalReasons are why targets of messages are refused: a queue's length limit, fewer copies in reach than a confirm needs, an owner that
// was not reached in time, anything else.
var RefusalReasons = []string{"full", "copies", "unreached", "other"}

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
	Transitions  uint64 // changes of owner seen since the start, restarts included
}
