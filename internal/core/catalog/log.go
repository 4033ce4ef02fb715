package catalog

// LogState is a consensus log as it was loaded.
type LogState struct {
	Hard     []byte
	Snapshot LogSnapshot
	Entries  []LogEntry // contiguous, from Snapshot.Index+1
}

// LogSnapshot is the encoded catalog at an index.
type LogSnapshot struct {
	Index, Term uint64
	Data        []byte
}

// LogEntry is one entry, opaque to storage but for its place.
type LogEntry struct {
	Index, Term uint64
	Data        []byte
}
