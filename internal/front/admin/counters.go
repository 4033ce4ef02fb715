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
	Syncs        uint64    // fdatasync calls on the journal
	Groups       uint64    // group commits
	BytesWritten uint64    // to log files, everything counted
	PayloadBytes uint64    // of BytesWritten, batches as clients' messages made them
	SyncSeconds  Histogram // how long a sync took
	Failures     uint64    // writes and syncs that failed
	Files        uint64    // log files
	LiveBytes    uint64    // in log files, still needed
	FreeBytes    uint64    // on the disk
	Reclaimed    uint64    // log files reused
	Damaged      uint64    // copies that are quarantined
	Health       string    // class of storage health, "ok" if well
}

// GatewayMetrics is of the clients of this node.
type GatewayMetrics struct {
	Connections       uint64 // now
	ConnectionsOpened uint64
	LoginsRefused     uint64
	Channels          uint64 // now
	Consumers         uint64 // now
	Published         uint64 // messages taken from clients
	Confirmed         uint64
	Refused           uint64
	Unknown           uint64
	Deduplicated      uint64
	Returned          uint64 // mandatory messages without a target
	Delivered         uint64
	Redelivered       uint64
	Accepted          uint64 // settled as done
	Rejected          uint64
	Requeued          uint64
	BytesIn           uint64 // from client sockets
	BytesOut          uint64 // to client sockets
	Blocked           bool   // publishers are held
	BufferedBytes     uint64 // taken from clients and not yet resolved
}

// CatalogMetrics is of the metadata.
type CatalogMetrics struct {
	Applied uint64 // index of the last command applied
	Term    uint64
	Leader  bool // this node decides
}

// ReplicaMetrics is of the partitions on this node.
type ReplicaMetrics struct {
	States            map[State]uint64 // owned partitions by state
	Ready             uint64           // messages ready in owned queues
	Unsettled         uint64
	Records           uint64 // kept in owned streams
	OldestUnconfirmed float64
	Transitions       uint64 // changes of owner seen since the start, restarts included
	CutEntries        uint64
	DeadLettered      uint64
	Expired           uint64
	Dropped           uint64 // over a length limit
}

// Histogram is a cumulative histogram as Prometheus has it.
type Histogram struct {
	Bounds []float64 // upper bounds, ascending, without the infinite one
	Counts []uint64  // observations at or below each bound
	Count  uint64
	Sum    float64
}
