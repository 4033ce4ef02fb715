package sim

import (
	"reflect"
	"testing"
)

// TestClusterSeeds runs the same simulations of three nodes every time.
func TestClusterSeeds(t *testing.T) {
	for seed := range uint64(4) {
		show(t, Run(Options{Seed: seed, Nodes: 3, Faults: []Fault{}}))
	}
}

// TestClusterSeedsReplayExactly runs each seed twice.
func TestClusterSeedsReplayExactly(t *testing.T) {
	for seed := range uint64(2) {
		opt := Options{Seed: 50 + seed, Nodes: 3, Faults: []Fault{}}
		if a, b := Run(opt), Run(opt); !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d does not replay:\n%+v\n%+v", opt.Seed, a, b)
		}
	}
}
