package sim

import (
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"
)

// TestClusterSeeds runs the same simulations of clusters every time, some of each kind of fault and some of all.
func TestClusterSeeds(t *testing.T) {
	kinds := [][]Fault{nil, {}}
	for _, f := range ClusterFaults {
		kinds = append(kinds, []Fault{f})
	}
	for _, k := range kinds {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			n := uint64(2)
			if testing.Short() {
				n = 1
			}
			for seed := range n {
				show(t, Run(Options{Seed: 2000 + seed, Nodes: 3, Faults: k}))
			}
		})
	}
}

// nodesOf is of how many nodes the clusters of fresh seeds are: most of three, some with nodes to spare.
func nodesOf(i uint64) int { return []int{3, 3, 4, 3, 5}[i%5] }

// TestFreshClusterSeeds runs simulations of clusters that nobody has seen: see TestFreshSeeds.
func TestFreshClusterSeeds(t *testing.T) {
	fresh(t, 20, func(i uint64) Options { return Options{Nodes: nodesOf(i)} })
}

// TestSmallClusterSeeds runs many simulations of clusters with little in them, which nobody has seen: see TestFreshSeeds.
func TestSmallClusterSeeds(t *testing.T) {
	fresh(t, 200, func(i uint64) Options { return Options{Nodes: nodesOf(i), Small: true} })
}

// TestClusterSeedsThatFailed runs what once failed, as it was found. What failed also has a smaller test where the mistake was, for a seed
// shows a mistake only as long as schedules stay what they were.
func TestClusterSeedsThatFailed(t *testing.T) {
	for what, opt := range map[string]Options{
		// A node that had not heard of the bindings yet returned a message that two queues should have taken.
		"bindings made on another node": {Seed: 158499631278960, Nodes: 3, For: 125 * time.Millisecond},
		// The same, with the mistake put back, once clients made bindings and used them on other nodes.
		"a binding, mandatory":     {Seed: 9, Nodes: 3, For: 250 * time.Millisecond},
		"a binding, not mandatory": {Seed: 1, Nodes: 3, For: time.Second},
		// A controller whose process had stood still held its own silence against the others.
		"a controller stands still": {Seed: 6097, Nodes: 3, Small: true},
		// A settle that came after its gateway had been away for long was taken for one that counts.
		"a settle too late": {Seed: 30084, Nodes: 3, Small: true},
		// An owner that was deposed had dropped what lay right below its successor's history, and took itself for damaged.
		"a cut at a snapshot": {Seed: 3004, Nodes: 3, Small: true, Faults: []Fault{}, Act: ActRelay},
		// A node that had just started told the controller nothing of whom it reached, and another was suspected that it did reach.
		"a start beside a new controller": {Seed: 80375, Nodes: 3, Small: true},
		// The simulation held what a copy had confirmed, before it broke, against what it held when it was started.
		"a copy that broke": {Seed: 127, Nodes: 3, Small: true, Act: ActFlip},
		// An owner that heard nobody went on delivering for as long again after its sessions had ended for silence.
		"an owner that hears nobody": {Seed: 90246, Nodes: 3, Small: true},
		// An owner that had been replaced while it was cut off delivered again, as soon as it reached copies that followed another by then.
		"a deposed owner comes back": {Seed: 67556929003896, Nodes: 3},
		// A node that had just started, and led, had not read its catalog yet and took every other voter for one without a node.
		"a leader without a catalog": {Seed: 6285, Nodes: 3, Small: true},
		// A copy that had said twice where it stands was read for twice, and the answer that came late ended the feed.
		"a late read": {Seed: 1051, Nodes: 4, Small: true, Faults: []Fault{FaultWish, FaultKill}},
		// What was admitted before a copy left waited for one that was away.
		"a copy leaves, another is away": {Seed: 1069, Nodes: 5, Small: true, Faults: []Fault{FaultWish, FaultDrain, FaultCut, FaultWipe}},
		// A copy that its owner had give up its log, twice over, was taken for one that had lost it.
		"reseeded twice": {Seed: 3036, Nodes: 5, Small: true, Act: ActReplace},
		// Not a mistake of the product: the owner was killed 10 ms after an image, of a log that was kept for 4 KiB, had begun to take the place of a
		// follower's, and the act demanded that the third copy serve alone.
		"an image without its owner": {Seed: 4067, Nodes: 3, Small: true, For: time.Second, Skip: []int{0}},
		// A gateway that had heard nothing of an owner in between let go of what that one had handed to another, whose accept then counted for nothing.
		"a claim of before":      {Seed: 5052, Nodes: 5, Small: true},
		"a claim of before, too": {Seed: 6274, Nodes: 3, Small: true},
		// An owner that its controller did not reach delivered what the one that was chosen had had settled: the copy that it did reach said nothing.
		"an owner that nobody tells": {Seed: 700, Nodes: 3, Faults: []Fault{}, Act: ActLease},
		// One that was given up did the same after its lease.
		"an owner that was given up": {Seed: 805, Nodes: 3, Small: true, Faults: []Fault{}, Act: ActLease},
		// A copy that was emptied at an accepted loss lost the beginning of the log that it was given anew: it had been let go of before.
		"a log taken anew": {Seed: 77356, Nodes: 3, Small: true, Faults: []Fault{}, Act: ActLease},
		// Not a mistake of the product: what two copies had confirmed was said right after the policy had become one that a lease fences.
		"confirmed before it was fenced": {Seed: 5114, Nodes: 3, Act: ActNone, Small: true, Skip: []int{4, 2, 1}, Clients: 1},
		// Not a mistake of the product: of what a loss was accepted for something was purged later, and passed for a hole.
		"purged after a loss": {Seed: 3198317321, Nodes: 7, Small: true, Skip: []int{1}},
		// Not a mistake of the product: claims came 0.1 ms after their time, what they named was being read for another, and their settle settled nothing.
		"claims right after their time": {Seed: 3467292990, Nodes: 3},
		// Not a mistake of the product: a session had a message twice; its reject was confirmed, and its word on the other delivery was taken for a later one.
		"a second word of the same session": {Seed: 4371, Nodes: 3, Small: true},
		// All disks were full as the first owner was replaced, and all nodes lost what they had in memory: nobody had the evidence.
		"evidence on full disks": {Seed: 991, Nodes: 3, Small: true},
		// Not a mistake of the product: a controller that had stood still gave nodes 300 ms to be heard, and one of them stood still for those.
		"halted one after the other": {Seed: 74, Nodes: 3, Act: ActNone, Skip: []int{3}, Clients: 1},
	} {
		t.Run(what, func(t *testing.T) { show(t, Run(opt)) })
	}
}

// TestClusterSeedsReplayExactly runs each seed twice: schedule, events and history must be the same. SIM_SEEDS is for how many, and with
// SIM_SMALL there is little in them.
func TestClusterSeedsReplayExactly(t *testing.T) {
	n := uint64(6)
	if testing.Short() {
		n = 2
	}
	n = number(t, "SIM_SEEDS", n)
	for seed := range n {
		opt := Options{Seed: seed, Nodes: 3 + int(seed%4/3)*2, Small: os.Getenv("SIM_SMALL") != ""}
		a, b := Run(opt), Run(opt)
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d does not replay:\n%+v\n%+v", seed, a, b)
		}
		show(t, a)
	}
}

// TestEveryClusterFaultHappens keeps a fault from being planned and never coming to pass.
func TestEveryClusterFaultHappens(t *testing.T) {
	for _, f := range ClusterFaults {
		happened := false
		for seed := uint64(0); seed < 5 && !happened; seed++ {
			happened = len(Run(Options{Seed: seed, Nodes: 3, Faults: []Fault{f}}).Injured) > 0
		}
		if !happened {
			t.Errorf("%s never happened", f)
		}
	}
}

// TestAimedSeeds plays the acts that no seed draws: see TestFreshSeeds.
func TestAimedSeeds(t *testing.T) {
	fresh(t, 100, func(i uint64) Options {
		o := Options{Nodes: nodesOf(i), Small: i%9 > 0, Faults: []Fault{}}
		switch i % 5 {
		case 0:
			o.Act = ActFlip
		case 1:
			o.Act = ActLease
		case 2:
			o.Act = ActRelapse
		case 3:
			o.Act = ActRaise
		default:
			o.Act, o.Nodes = ActBalance, 4+int(i/5%2)
		}
		return o
	})
}
