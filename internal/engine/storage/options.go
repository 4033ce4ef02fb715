package storage

import (
	"io"
	"time"

	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// Env is what a store stands on.
type Env struct {
	FS     vfs.FS
	Clock  clock.Clock
	Exec   exec.Executor
	Trace  trace.Sink // nil: events are dropped
	Random io.Reader  // for the store id, once
}

// Options bound what a store takes. A zero means the default.
type Options struct {
	FileSize    int64 // bytes of a log file; 128 MiB
	GroupBytes  int   // bytes of one group, unless one frame is larger; 2 MiB: with 1 MiB the writer waits for the disk most of the time
	CacheBytes  int64 // of newest batches kept in memory; 64 MiB
	FooterBytes int64 // of footers kept in memory; 32 MiB

	// Publishers are blocked when fewer than LowWater bytes can be written, and let go on at HighWater. Defaults: 4 files, 6 files.
	LowWater, HighWater int64
	// Reserve is the number of log files set aside for settles, catalog and boot on a full disk; 1. Negative: none.
	Reserve int

	// Readmit is for how long a store cools that closed itself (Store.Cools); 10 s.
	Readmit time.Duration

	// ReclaimBelow: a full file is copied out when less than this share of it is live; 0.35.
	ReclaimBelow float64
	// ReclaimChunk is how many bytes are copied before the writer is waited for; 256 KiB.
	ReclaimChunk int
	// ScrubEvery is the pause between two chunks that the scrub reads, while there is something to read; 1 s. Negative: no scrub.
	ScrubEvery time.Duration
	// ScrubChunk is how many bytes a scrub step reads; 1 MiB.
	ScrubChunk int
}

func (o Options) withDefaults() Options {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.FileSize, 128<<20)
	o.FileSize = max(o.FileSize, 4*layout.HeaderSize)
	def(&o.CacheBytes, 64<<20)
	def(&o.FooterBytes, 32<<20)
	def(&o.LowWater, 4*o.FileSize)
	def(&o.HighWater, max(6*o.FileSize, o.LowWater))
	if o.Readmit == 0 {
		o.Readmit = 10 * time.Second
	}
	if o.GroupBytes == 0 {
		o.GroupBytes = 2 << 20
	}
	if o.Reserve == 0 {
		o.Reserve = 1
	}
	if o.ReclaimBelow == 0 {
		o.ReclaimBelow = 0.35
	}
	if o.ReclaimChunk == 0 {
		o.ReclaimChunk = 256 << 10
	}
	if o.ScrubEvery == 0 {
		o.ScrubEvery = time.Second
	}
	if o.ScrubChunk == 0 {
		o.ScrubChunk = 1 << 20
	}
	return o
}

// Metrics are counters since the store was opened.
type Metrics struct {
	Groups, Syncs   uint64
	Frames, Batches uint64
	BytesWritten    uint64 // to files, headers and footers included
	BatchBytes      uint64 // of batches appended
	BytesMoved      uint64 // of batches and pages copied by reclaim
	FilesRecycled   uint64
	FilesCreated    uint64
	Rolls           uint64
	Checkpoints     uint64
	ReadsFromDisk   uint64
	SyncNanos       uint64 // spent in write and sync of groups
	Files           int    // in use now
	LiveBytes       int64  // in them
	Free            uint64 // bytes, as of Health
}
