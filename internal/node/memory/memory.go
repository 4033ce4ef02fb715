// Package memory looks after the memory of the process: a limit from the control group, and what is given back while the node is quiet. It
// knows nothing of what the node does.
package memory

import (
	"context"
	"math"
	"os"
	"path"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"
)

// How a process of ours treats its memory is decided here and nowhere else (docs/OPERATIONS.md, "Memory"):
//
//   - The collector runs when the heap has doubled, as is the default of Go. A broker lives with a small heap, since bodies are on
//     the disk, and more frequent collections would cost each message more than they give back.
//   - Where the process may only have so much, the collector works harder as that comes near, instead of the system ending the process.
//   - A node that was busy and is no more gives back what it does not need. By itself the runtime would keep about as much as the heap
//     is large, for ever, for a load that may not come again.
const (
	// limitShare is how much of what the process may have is the collector's soft limit; the rest is for what is not on the heap.
	limitShare = 0.9
	// lookEvery is how often the node looks whether it is quiet, and quietBytes what it may allocate in between and still be that.
	lookEvery  = 5 * time.Second
	quietBytes = 4 << 20
	// quietLooks is how many times in a row it must be: by then the other rooms have let go of what they keep for a while only.
	quietLooks = 3
	// worthBytes is how much must have been allocated since the last time, or a quarter of the heap if that is more. It bounds the cost:
	// a collection reads the whole heap.
	worthBytes = 8 << 20
)

// Keep sets the limit and returns memory while the node is quiet, until ctx ends. GOMEMLIMIT and GOGC, if they are set, count
// as the runtime has them.
func Keep(ctx context.Context) {
	if os.Getenv("GOMEMLIMIT") == "" {
		if most := allowed(os.ReadFile); most < math.MaxInt64 {
			debug.SetMemoryLimit(int64(limitShare * float64(most)))
		}
	}
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if q.look(heap()) {
				debug.FreeOSMemory()
			}
		}
	}
}

// heap is how many bytes were allocated since the process began, and how many were alive at the last collection.
func heap() (allocated, live uint64) {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64(), s[1].Value.Uint64()
}

// quiet says when memory is to be returned: once after each time that the node was busy.
type quiet struct {
	before   uint64 // allocated at the last look
	returned uint64 // allocated when memory was returned last
	looks    int    // in a row that found the node quiet
}

// look is told of the heap and reports whether memory is to be returned now.
func (q *quiet) look(allocated, live uint64) bool {
	if allocated-q.before > quietBytes {
		q.looks = 0
	} else {
		q.looks++
	}
	q.before = allocated
	if q.looks < quietLooks || allocated-q.returned < max(worthBytes, live/4) {
		return false
	}
	q.returned = allocated
	return true
}

// allowed is the most memory that this process may have by its control group and those above it, in bytes; MaxInt64 where none says.
func allowed(read func(string) ([]byte, error)) int64 {
	most := int64(math.MaxInt64)
	group := "/"
	if text, err := read("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(text)) {
			if at, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				group = path.Join("/", at)
			}
		}
	}
	for ; ; group = path.Dir(group) {
		if text, err := read(path.Join("/sys/fs/cgroup", group, "memory.max")); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				most = min(most, n) // "max" is no number
			}
		}
		if group == "/" {
			return most
		}
	}
}
