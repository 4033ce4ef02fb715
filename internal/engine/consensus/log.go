package consensus

// Log keeps the consensus log in the node's journal. Methods may be called from any loop and never block; every done is called
// once, on a loop of storage's own, when durable or failed.
type Log interface {
	// Load gives what was durable when the store was opened.
	Load() (State, error)
	// Append writes the hard state (nil: unchanged) and entries. Entries replace what was logged from their first index on. It goes
	// to the head of the next group.
	Append(hard []byte, entries []Entry, done func(error))
	// SaveSnapshot replaces everything up to index.
	SaveSnapshot(s Snapshot, done func(error))
}

// State is a loaded log.
type State struct {
	Hard     []byte
	Snapshot Snapshot
	Entries  []Entry // contiguous, from Snapshot.Index+1
}

// Snapshot is the catalog at an index.
type Snapshot struct {
	Index, Term uint64
	Data        []byte
}

// Entry is one entry, opaque to storage but for its place.
type Entry struct {
	Index, Term uint64
	Data        []byte
}
