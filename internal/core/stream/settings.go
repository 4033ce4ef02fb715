package stream

// Settings are what a declaration fixes for a stream. Zero means: not set, no limit. What is past any limit is dropped from
// the head, whole batches at a time and never above the confirmed position.
type Settings struct {
	MaxAge     int64 `json:"max_age,omitempty"`     // milliseconds
	MaxBytes   int64 `json:"max_bytes,omitempty"`   // of the encoded batches
	MaxRecords int64 `json:"max_records,omitempty"` // records
}

// StartKind says where a reader starts.
type StartKind uint8

// The kinds of start (design 5, x-stream-offset).
const (
	StartNext      StartKind = iota // what is confirmed after the reader attached; the default
	StartFirst                      // the oldest record kept
	StartLast                       // the beginning of the last batch
	StartOffset                     // Start.Offset, or the oldest kept if that is gone
	StartTimestamp                  // the first batch whose time is at or after Start.Time
)

// Start is where a reader starts.
type Start struct {
	Kind   StartKind `json:"kind"`
	Offset uint64    `json:"offset,omitempty"`
	Time   int64     `json:"time,omitempty"` // milliseconds since 1970; "interval" is turned into this where it is asked
}
