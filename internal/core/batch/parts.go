package batch

// Span is a half-open range of offsets.
type Span struct{ From, To uint64 }

// Page is a part of a state machine's snapshot, at most 1 MiB. Numbers are the machine's; its snapshots name only the pages that
// changed and those that went.
type Page struct {
	Number uint32
	Data   []byte
}

// Info is what an index knows of a batch.
type Info struct {
	Position, Offset uint64
	Count, Records   uint32
	Time             int64
	Size             int
}

// The types of events are divided among the rooms that read them, so that each can tell its own from the others'.
const (
	FirstQueueEvent     uint8 = 1  // to 31: core/queue
	FirstStreamEvent    uint8 = 32 // to 63: core/stream
	FirstPartitionEvent uint8 = 64 // and above: core/partition
)
