package sim

import "testing"

// TestWhatWaitsForTheOneThatIsAway: only a copy that would be enough, were its image whole, excuses that nothing is served.
func TestWhatWaitsForTheOneThatIsAway(t *testing.T) {
	whole, remade := &holding{}, &holding{remade: true}
	for _, c := range []struct {
		what   string
		needed int
		copies []*holding
		waits  bool
	}{
		{"a copy beside one that an image is made in", 2, []*holding{whole, remade}, true},
		{"enough beside it", 2, []*holding{whole, whole, remade}, false},
		{"all are whole", 2, []*holding{whole, whole}, false},
		{"too few even if it were whole", 3, []*holding{whole, remade}, false},
		{"one that needs only itself", 1, []*holding{remade}, true},
		{"nothing is being made", 2, []*holding{whole}, false},
	} {
		if got := lacksRemade(c.needed, c.copies); got != c.waits {
			t.Errorf("%s: waits is %v", c.what, got)
		}
	}
}

// TestActs plays each act with some seeds, without other faults. Those of a lost disk and of copies made elsewhere need five nodes.
func TestActs(t *testing.T) {
	for _, a := range Acts[1:] {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			epochs, nodes := uint64(0), 3
			if a != ActWithout && a != ActController && a != ActRelay && a != ActRelapse && a != ActRaise {
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

// TestWhatBreaksIsMadeAnew turns bits of nodes that run: what comes to be known as damaged is made anew without anybody's help, but for what a node that
// does not start any more holds.
func TestWhatBreaksIsMadeAnew(t *testing.T) {
	t.Parallel()
	anew, stayed := uint64(0), uint64(0)
	for seed := range uint64(16) {
		r := Run(Options{Seed: 300 + seed, Nodes: 3, Small: true, Faults: []Fault{}, Act: ActFlip})
		show(t, r)
		anew, stayed = anew+r.Counts.Anew, stayed+r.Counts.Stayed
	}
	if anew < 3 || stayed > 0 {
		t.Errorf("%d copies were made anew, and %d disks replaced of nodes that ran", anew, stayed)
	}
}
