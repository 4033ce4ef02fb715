package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Probe tells what a broker's process has cost.
type Probe struct {
	Metrics string // address of Prometheus metrics, such as http://127.0.0.1:15672/metrics
	PID     int    // of the process, if it is on this machine
}

// Reading is what a process has cost since it began. Fields that nobody tells are 0.
type Reading struct {
	CPU      time.Duration
	Written  int64 // bytes written to log files, or to disk where only the system tells
	Disk     int64 // bytes that the process had written to disk, as the system counts them
	Syncs    int64
	Resident int64 // bytes
	Heap     int64 // bytes of live and dead objects that the process holds
	HeapLive int64 // bytes that the last collection found alive
}

func (r *Reading) add(o Reading) {
	r.CPU += o.CPU
	r.Written += o.Written
	r.Disk += o.Disk
	r.Syncs += o.Syncs
	r.Resident += o.Resident
	r.Heap += o.Heap
	r.HeapLive += o.HeapLive
}

// Read reads what the probe tells.
func (p Probe) Read(ctx context.Context) (r Reading, err error) {
	if p.PID != 0 {
		if err := r.process(p.PID); err != nil {
			return r, err
		}
	}
	if p.Metrics != "" {
		err = r.metrics(ctx, p.Metrics, p.PID == 0)
	}
	return r, err
}

// process reads /proc.
func (r *Reading) process(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name may hold anything but this
	f := strings.Fields(rest)
	if len(f) < 22 {
		return fmt.Errorf("process %d: its stat is too short", pid)
	}
	for _, ticks := range f[11:13] { // user and system time, in hundredths of a second
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			return err
		}
		r.CPU += time.Duration(n) * 10 * time.Millisecond
	}
	pages, err := strconv.ParseInt(f[21], 10, 64)
	if err != nil {
		return err
	}
	r.Resident = pages * int64(os.Getpagesize())
	io, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return nil // of another user: only the metrics can tell
	}
	for line := range strings.Lines(string(io)) {
		if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
			r.Disk, err = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			r.Written = r.Disk
		}
	}
	return err
}

// metrics reads Prometheus' text format; all says to take the process's costs from there too.
func (r *Reading) metrics(ctx context.Context, url string, all bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	s := bufio.NewScanner(io.LimitReader(resp.Body, 64<<20))
	for s.Scan() {
		name, text, ok := strings.Cut(s.Text(), " ")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		switch name {
		case "tanist_storage_syncs_total":
			r.Syncs = int64(v)
		case "tanist_storage_written_bytes_total":
			r.Written = int64(v)
		case "go_memstats_heap_inuse_bytes":
			r.Heap = int64(v)
		case "go_memstats_heap_alloc_bytes":
			r.HeapLive = int64(v)
		case "process_cpu_seconds_total":
			if all {
				r.CPU = time.Duration(v * float64(time.Second))
			}
		case "process_resident_memory_bytes":
			if all {
				r.Resident = int64(v)
			}
		}
	}
	return s.Err()
}

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // not known
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
