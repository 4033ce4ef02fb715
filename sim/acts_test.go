package sim

import "testing"

// TestActs plays each act with some seeds, without other faults. Those of a lost disk and of copies made elsewhere need five nodes.
func TestActs(t *testing.T) {
	for _, a := range Acts[1:] {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			epochs, nodes := uint64(0), 3
			if a != ActWithout && a != ActController && a != ActRelay {
				nodes = 5
			}
			for seed := range uint64(6) {
				r := Run(Options{Seed: 3000 + seed, Nodes: nodes, Small: true, Faults: []Fault{}, Act: a})
				show(t, r)
				epochs += r.Counts.Epochs
			}
			if epochs == 0 {
				t.Error("no owner changed")
			}
		})
	}
}
