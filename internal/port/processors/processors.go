// Package processors looks after how many processors the process runs on: one while it has little to do, and all that it may have else. It
// knows nothing of what the node does.
package processors

import (
	"context"
	"os"
	"runtime"
	"runtime/metrics"
	"syscall"
	"time"
)

// A message passes a dozen goroutines, most of which have a few microseconds of work and then wait for another process or for the disk. Where
// processors are idle the runtime wakes a thread on one of them for each goroutine that can go on, which takes longer than the work it takes
// over: at 1 000 messages a second that is a quarter of all that a message costs, and a fifth of the time until it is confirmed. So a process
// that has little to do keeps to one processor. It must not hold anything up:
//
//   - It takes all as soon as one is nearly used up; in the time between two looks no more than that is lost.
//   - It takes all where goroutines wait for the one, as they do behind calls of the system that block (large writes, reads of what is not in
//     the page cache), however little of the processor is used. What has happened once is expected to happen again: it goes back later.
const (
	// lookBusy is how often the process looks at itself while it is on one processor and does something; lookQuiet, while it does nothing to speak
	// of; lookAll, while it is on all.
	lookBusy, lookQuiet, lookAll = 20 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond
	// window is over how long is judged whether the process has little to do.
	window = time.Second
	// Shares of one processor: under little, one does; over nearly, one may not do. Under nothing, looks are rare.
	nothing, little, nearly = 0.05, 0.35, 0.6
	// longWait is how long a goroutine that can go on waits for a processor at most where there are enough, but for one in waitShare. Fewer than
	// fewWaits in a window say nothing. The runtime counts one wait in eight.
	longWait  = 256 * time.Microsecond
	waitShare = 64
	fewWaits  = 4
	// mostPatience is how many windows the process must have little to do at most until it goes back to one processor, and calm is for how long it
	// must have stayed there to be trusted again.
	mostPatience = 64
	calm         = 30 * time.Second
)

// Keep chooses the number of processors until ctx ends, and then leaves the process with all. It does nothing where the process may have only
// one, or where GOMAXPROCS is set: then that counts.
func Keep(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	began := time.Now()
	m := meter{samples: newSamples()}
	g := newGovernor(m.read(began))
	t := time.NewTimer(lookAll)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		was := g.one
		next := g.look(m.read(began))
		switch {
		case g.one && !was:
			runtime.GOMAXPROCS(1)
		case was && !g.one:
			runtime.SetDefaultGOMAXPROCS()
		}
		t.Reset(next)
	}
}

// load is what the process has done and waited for, so far.
type load struct {
	at      time.Duration // when that was read, since the process was first looked at
	used    time.Duration // time of processors, of the process and of the kernel for it
	started uint64        // goroutines that had waited for a processor, of those that the runtime counts
	waited  uint64        // those of them that waited for longer than longWait
}

// meter reads the load.
type meter struct {
	samples []metrics.Sample
	used    time.Duration
}

func newSamples() []metrics.Sample { return []metrics.Sample{{Name: "/sched/latencies:seconds"}} }

func (m *meter) read(began time.Time) load {
	l := load{at: time.Since(began), used: m.used}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil { // it has no error for this process
		l.used = time.Duration(u.Utime.Nano() + u.Stime.Nano())
		m.used = l.used
	}
	metrics.Read(m.samples)
	h := m.samples[0].Value.Float64Histogram()
	for i, n := range h.Counts {
		l.started += n
		if h.Buckets[i] >= longWait.Seconds() {
			l.waited += n
		}
	}
	return l
}

// governor decides whether one processor is enough.
type governor struct {
	one      bool
	last     load          // at the last look
	from     load          // where the present window begins
	calm     int           // windows in a row with little to do, on all
	patience int           // how many it takes to go to one
	since    time.Duration // when it went there
}

func newGovernor(l load) *governor { return &governor{last: l, from: l, patience: 1} }

// look is told of the load and says when to look again; then one says whether the process is to be on one processor.
func (g *governor) look(l load) (next time.Duration) {
	share := ratio(l.used-g.last.used, l.at-g.last.at)
	g.last = l
	if g.one {
		return g.lookOnOne(l, share)
	}
	if l.at-g.from.at < window {
		return lookAll
	}
	if ratio(l.used-g.from.used, l.at-g.from.at) <= little && !g.waits(l) {
		g.calm++
	} else {
		g.calm = 0
	}
	g.from = l
	if g.calm < g.patience {
		return lookAll
	}
	g.one, g.calm, g.since = true, 0, l.at
	return lookBusy
}

// lookOnOne looks whether one processor is still enough.
func (g *governor) lookOnOne(l load, share float64) (next time.Duration) {
	waits := g.waits(l)
	switch {
	case share >= nearly || waits:
		if l.at-g.since >= calm {
			g.patience = 1
		}
		if waits {
			g.patience = min(2*g.patience, mostPatience)
		}
		g.one, g.from = false, l
		return lookAll
	case l.at-g.from.at >= window:
		g.from = l
	}
	if share < nothing {
		return lookQuiet
	}
	return lookBusy
}

// waits reports whether goroutines had to wait for a processor in the present window.
func (g *governor) waits(l load) bool {
	started, waited := l.started-g.from.started, l.waited-g.from.waited
	return waited >= fewWaits && waited*waitShare > started
}

func ratio(part, whole time.Duration) float64 { return float64(part) / float64(max(whole, 1)) }
