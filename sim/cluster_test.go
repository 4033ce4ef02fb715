package sim

import (
	"fmt"
	"reflect"
	"testing"
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

// TestClusterSeedsReplayExactly runs each seed twice.
func TestClusterSeedsReplayExactly(t *testing.T) {
	n := uint64(6)
	if testing.Short() {
		n = 2
	}
	for seed := range n {
		opt := Options{Seed: seed, Nodes: 3 + int(seed%2)*2}
		if a, b := Run(opt), Run(opt); !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d does not replay:\n%+v\n%+v", seed, a, b)
		}
	}
}
