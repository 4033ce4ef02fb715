package consensus

import "github.com/tanist/tanist/internal/core/catalog"

// Log keeps the consensus log in the node's journal. Methods may be called from any loop and never block; every done is called
// once, on a loop of storage's own, when durable or failed.
type Log interface {
	// Load gives what was durable when the store was opened.
	Load() (catalog.LogState, error)
	// Append writes the hard state (nil: unchanged) and entries. Entries replace what was logged from their first index on. It goes
	// to the head of the next group. They are at most 512 KiB together, or one entry.
	Append(hard []byte, entries []catalog.LogEntry, done func(error))
	// SaveSnapshot replaces everything up to its index, and what follows it unless the log holds the very entry, index and term, that the
	// snapshot ends with. Its data may have many MiB. It is written beside appends that come after.
	SaveSnapshot(s catalog.LogSnapshot, done func(error))
}
