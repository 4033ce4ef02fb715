package sim

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
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

// TestFreshClusterSeeds runs simulations of clusters that nobody has seen, for a bounded time: see TestFreshSeeds.
func TestFreshClusterSeeds(t *testing.T) {
	first := Fresh()
	t.Logf("seeds from %d on", first)
	n := 0
	for began := time.Now(); time.Since(began) < budget(t) && !t.Failed(); n++ {
		show(t, Run(Options{Seed: first + uint64(n), Nodes: 3 + n%5/4*2}))
	}
	t.Logf("%d simulations", n)
}

// TestClusterSeedsReplayExactly runs each seed twice: schedule, events and history must be the same. SIM_SEEDS is for how many.
func TestClusterSeedsReplayExactly(t *testing.T) {
	n := uint64(6)
	switch text := os.Getenv("SIM_SEEDS"); {
	case text != "":
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	case testing.Short():
		n = 2
	}
	for seed := range n {
		opt := Options{Seed: seed, Nodes: 3 + int(seed%4/3)*2}
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
