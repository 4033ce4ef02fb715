package sim

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Options say what to simulate. The zero value of everything but Seed is a sensible default.
type Options struct {
	Seed uint64 `json:"seed"`
	// Nodes is how many nodes make a cluster; 0 and 1 are one node alone.
	Nodes int `json:"nodes,omitempty"`
	// For is how long clients work, in virtual time; default 4 s, or 2 s if Small. Faults come within it, healing and judging after.
	For time.Duration `json:"for"`
	// Faults are those that may happen; nil means all of them, of a cluster ClusterFaults. Which of them do is drawn from the seed.
	Faults []Fault `json:"faults"`
	// Skip leaves out the faults at these places of the plan, without changing anything that is drawn for the others.
	Skip []int `json:"skip,omitempty"`
	// Clients is how many work at a time; default drawn, 1 to 6, or 1 to 2 if Small.
	Clients int `json:"clients,omitempty"`
	// Act is what a cluster goes through after the faults; drawn from the seed if empty.
	Act Act `json:"act,omitempty"`
	// Small has clients work with one resource or two instead of fifteen, fewer of them and for a shorter time: most faults of a protocol
	// need no more, and many more seeds can be run.
	Small bool `json:"small,omitempty"`
	// Verbose receives what happens, line by line; nil for nothing.
	Verbose func(line string) `json:"-"`

	plant plant
}

// Fault is a kind of fault.
type Fault string

// The kinds of fault that one node can meet.
const (
	FaultCrash   Fault = "crash"    // unsynced data lost, kept or torn, as a kernel may
	FaultRestart Fault = "restart"  // a clean stop and start
	FaultWrite   Fault = "write"    // EIO on the nth write
	FaultSync    Fault = "sync"     // EIO on the nth sync
	FaultFull    Fault = "full"     // no space left, and later again
	FaultStall   Fault = "stall"    // syncs take very long
	FaultPause   Fault = "pause"    // the process stands still
	FaultFlip    Fault = "flip"     // a bit of stored bytes turns
	FaultClock   Fault = "clock"    // the wall clock jumps
	FaultBoot    Fault = "bootloop" // crashes again while it starts
)

// The kinds of fault that only a cluster can meet, or meets in another way.
const (
	FaultKill  Fault = "kill"  // a crash, after which the node is down for a while
	FaultPower Fault = "power" // all nodes crash at once
	FaultBreak Fault = "break" // a session between two nodes breaks
	FaultCut   Fault = "cut"   // some nodes do not hear some others for a while, one way or both
	FaultSlow  Fault = "slow"  // what some nodes send to others takes long
	FaultWipe  Fault = "wipe"  // a node comes back with an empty disk, as a new store
	FaultWish  Fault = "wish"  // an operator wishes for another policy, or more or fewer copies
	FaultDrain Fault = "drain" // an operator has a node be left for a while
)

// NoFaults is what the command says for a simulation without faults.
const NoFaults = "none"

// ClusterFaults are the kinds of fault of a cluster that a seed draws from. To add one is to make all seeds other simulations: bits turn
// (FaultFlip) where that is asked for.
var ClusterFaults = []Fault{
	FaultKill, FaultRestart, FaultPower, FaultBreak, FaultCut, FaultSlow, FaultPause, FaultStall, FaultBoot, FaultWrite, FaultSync, FaultFull, FaultWipe,
	FaultClock, FaultWish, FaultDrain,
}

// Faults are all kinds of fault.
var Faults = []Fault{
	FaultCrash, FaultRestart, FaultWrite, FaultSync, FaultFull, FaultStall, FaultPause, FaultFlip, FaultClock, FaultBoot,
}

// FaultsOf are the kinds of fault that so many nodes can meet.
func FaultsOf(nodes int) []Fault {
	if nodes > 1 {
		return append(slices.Clone(ClusterFaults), FaultFlip)
	}
	return Faults
}

// Result is what came of a simulation.
type Result struct {
	Options Options       `json:"options"`
	Hash    uint64        `json:"hash"`   // of schedule, events and history: the same for the same Options
	Steps   uint64        `json:"steps"`  // of the schedule
	Events  uint64        `json:"events"` // judged
	Virtual time.Duration `json:"virtual"`
	Injured []string      `json:"faults"` // what was injected, in order
	Counts  Counts        `json:"counts"`
	// Failure is empty if every promise was kept.
	Failure string `json:"failure,omitempty"`
}

// Counts say how much a simulation has put to the test.
type Counts struct {
	Published, Confirmed, Refused, Unknown   uint64
	Delivered, Settled, Requeued, Rejected   uint64
	Read, Cursors, Declared, Deleted, Purges uint64
	Runs, Sessions                           uint64
	Damaged                                  uint64
	Anew                                     uint64 // damaged copies that were made anew by themselves,
	Stayed                                   uint64 // and disks that an operator had to replace though their nodes ran
	Epochs                                   uint64 // begun after a resource's first
}

// Failed reports whether a promise was broken.
func (r Result) Failed() bool { return r.Failure != "" }

// Command is the command that repeats the simulation.
func (r Result) Command() string {
	var b strings.Builder
	fmt.Fprintf(&b, "tanist sim --seed %d", r.Options.Seed)
	if r.Options.Nodes > 1 {
		fmt.Fprintf(&b, " --nodes %d", r.Options.Nodes)
	}
	if r.Options.Act != "" {
		fmt.Fprintf(&b, " --act %s", r.Options.Act)
	}
	if r.Options.Small {
		b.WriteString(" --small")
	}
	if r.Options.For != (Options{Small: r.Options.Small}).withDefaults().For {
		fmt.Fprintf(&b, " --virtual %s", r.Options.For)
	}
	if r.Options.Faults != nil {
		names := make([]string, len(r.Options.Faults))
		for i, f := range r.Options.Faults {
			names[i] = string(f)
		}
		fmt.Fprintf(&b, " --faults %s", cmp.Or(strings.Join(names, ","), NoFaults))
	}
	if len(r.Options.Skip) > 0 {
		fmt.Fprintf(&b, " --skip %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Options.Skip), " ", ","), "[]"))
	}
	if r.Options.Clients > 0 {
		fmt.Fprintf(&b, " --clients %d", r.Options.Clients)
	}
	return b.String()
}

func (o Options) withDefaults() Options {
	if o.plant == nil {
		o.plant = honest{}
	}
	if o.For == 0 {
		o.For = 4 * time.Second
		if o.Small {
			o.For = 2 * time.Second
		}
	}
	return o
}

// Fresh gives the first seed to look for failures with, and says what it was made of. It is drawn from the commit under test: what passed
// once does not fail later by luck, and every commit tries seeds of its own. Where there is no commit, it is drawn from the clock.
func Fresh() (first uint64, from string) {
	if commit := underTest(); commit != "" {
		return seedOf(commit), "commit " + commit
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return seedOf(now), "the time " + now
}

// seedOf is below 2^48, so that it is easy to type.
func seedOf(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:]) >> 16
}

// underTest is the commit that this program was built of; empty if nobody knows.
func underTest() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && s.Value != "" {
				return s.Value
			}
		}
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output() // programs of tests do not carry it
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
