package explore_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/explore"
)

// given are schedules that begin with a record that n0 and n1 have confirmed, and n2 has not, and with both gone.
const given = "append n0; feed n0 n1; sync n0; sync n1; report n0 n1; tell n0 n1; crash n0; crash n1;"

// again is what begins after that: the loss is accepted, n1 and n0 come back and are admitted, n2 confirms a record with n1, and both are gone.
const again = "record; seal n2; sync n2; accept n2 0; apply n2; sync n2; sync n2;" +
	"restart n1; apply n1; sync n1; sync n1; sync n1; sync n1; stand n2 n1; feed n2 n1; sync n1; report n2 n1; decide 0; apply n2; apply n1; sync n1;" +
	"restart n0; apply n0; sync n0; sync n0; sync n0; stand n2 n0; feed n2 n0; sync n0; report n2 n0; decide 0; apply n2; apply n0; sync n0;" +
	"append n2; feed n2 n1; sync n2; sync n1; report n2 n1; tell n2 n1; crash n2; crash n1"

// wished are bounds within which copies and policies change in every way that somebody may wish, copies are made anew in their places, or
// losses are accepted, and everything is searched; and what a search must have come by.
var wished = map[string]struct {
	b    explore.Bounds
	seen string
	wide bool // with EXPLORE_WIDE only
}{
	"a learner in the stead of one that leaves": {
		b:    explore.Bounds{Copies: 2, Wanted: 2, Changes: 2, Epochs: 1, Queue: 8},
		seen: "a learner admitted, joint, majority_durable, 1 leave",
	},
	"a swap, and a crash": {
		b:    explore.Bounds{Copies: 2, Wanted: 2, Changes: 2, Epochs: 2, Crashes: 1, Direct: true, Lazy: true},
		seen: "a learner admitted, joint, a proposal whose owner is gone, serves in epoch 2",
	},
	"a swap, and a lost store": {
		b:    explore.Bounds{Copies: 2, Wanted: 2, Changes: 2, Epochs: 1, Crashes: 1, Wipes: 1, Direct: true, Lazy: true},
		seen: "a learner admitted, a new store admitted, joint",
	},
	"fewer copies are wanted": {
		b:    explore.Bounds{Copies: 3, Changes: 1, Wants: []uint8{2}, Epochs: 2, Suspect: true, Direct: true, Lazy: true},
		seen: "2 copies admitted, joint, serves in epoch 2",
	},
	"another policy, twice, beside records": {
		b:    explore.Bounds{Copies: 3, Changes: 2, Wishes: []uint8{1, 2}, Entries: 3, Epochs: 1, Direct: true, Lazy: true},
		seen: "all_durable, 0 leave, joint, confirmed 3",
	},
	"any policy, a record and a crash": {
		b:    explore.Bounds{Copies: 3, Changes: 1, Wishes: []uint8{0, 2}, Appends: 1, Epochs: 1, Crashes: 1, Direct: true},
		seen: "local_durable, 0 leave, all_durable, 0 leave, confirmed 2",
	},
	"another policy, and suspicion": {
		b:    explore.Bounds{Copies: 3, Changes: 2, Wishes: []uint8{1, 2}, Epochs: 2, Suspect: true, Direct: true, Lazy: true},
		seen: "all_durable, 0 leave, joint, serves in epoch 2", wide: true,
	},
	"a swap, a crash and suspicion": {
		b:    explore.Bounds{Copies: 2, Wanted: 2, Changes: 2, Epochs: 2, Crashes: 1, Suspect: true, Direct: true, Lazy: true},
		seen: "a learner admitted, joint, a proposal whose owner is gone, serves in epoch 2", wide: true,
	},
	"a copy made anew in its place, a record and a crash": {
		b:    explore.Bounds{Copies: 3, Reseeds: 1, Appends: 1, Epochs: 2, Crashes: 1, Direct: true},
		seen: "an image not whole, confirmed 3, serves in epoch 2",
	},
	"a copy made anew in its place, and a lost store": {
		b:    explore.Bounds{Copies: 3, Reseeds: 1, Appends: 1, Epochs: 1, Crashes: 1, Wipes: 1, Direct: true},
		seen: "an image not whole, a new store admitted, joint",
	},
	"a loss of one of two": {
		b:    explore.Bounds{Copies: 2, Wanted: 2, Crashes: 1, Losses: 1, Epochs: 2, Entries: 2, Direct: true},
		seen: "a loss accepted, joint, serves in epoch 2",
	},
	"a loss of two of three": {
		b:    explore.Bounds{Copies: 3, Crashes: 2, Losses: 1, Epochs: 2, Direct: true},
		seen: "a loss accepted, 1 copies admitted, joint, serves in epoch 2", wide: true,
	},
	"a loss of what was confirmed": {
		b:    explore.Bounds{Copies: 3, Losses: 1, Epochs: 2, Direct: true, Begin: steps(given)},
		seen: "a loss accepted, 1 copies admitted, 2 copies admitted, 3 copies admitted, joint",
	},
	"longer copies that return, and another epoch": {
		b:    explore.Bounds{Copies: 3, Epochs: 3, Direct: true, Begin: steps(given + "record; seal n2; sync n2; accept n2 0")},
		seen: "a loss accepted, 3 copies admitted, joint",
	},
	"a loss of what was confirmed, twice": {
		b:    explore.Bounds{Copies: 3, Losses: 1, Epochs: 3, Direct: true, Begin: steps(given + again)},
		seen: "a loss accepted, serves in epoch 3",
	},
}

// TestWishes goes through every schedule of changes that somebody wishes, of copies made anew, and of losses that are accepted.
func TestWishes(t *testing.T) {
	for name, c := range wished {
		t.Run(name, func(t *testing.T) {
			if c.wide && os.Getenv("EXPLORE_WIDE") == "" {
				t.Skip("EXPLORE_WIDE is not set")
			}
			if testing.Short() {
				t.Skip("-short")
			}
			c.b.Deep = c.wide
			r := search(t, c.b)
			if !r.Complete {
				t.Error("not complete")
			}
			for _, want := range strings.Split(c.seen, ", ") {
				found := r.Seen[want]
				for s, n := range r.Seen {
					if strings.Contains(s, want) {
						found += n
					}
				}
				if found == 0 {
					t.Errorf("never came by: %s", want)
				}
			}
		})
	}
}

// TestPlantedWishes plants mistakes that only changes of copies and policies show.
func TestPlantedWishes(t *testing.T) {
	for name, c := range map[string]struct {
		fault explore.Fault
		b     explore.Bounds
		rule  string
	}{
		"a swap without the joint rule": {
			explore.NoJoint,
			explore.Bounds{Copies: 2, Wanted: 2, Changes: 2, Appends: 1, Epochs: 1, Direct: true, Lazy: true},
			"1 of 2 admitted copies hold it",
		},
		"another policy without the joint rule": {
			explore.NoJoint,
			explore.Bounds{Copies: 3, Changes: 1, Wishes: []uint8{2}, Appends: 1, Epochs: 1, Direct: true, Lazy: true},
			"2 of 3 admitted copies hold it",
		},
		"fewer copies for what needed more": {
			explore.LoweredAtOnce,
			explore.Bounds{
				Copies: 3, Policy: "all_durable", Changes: 1, Wishes: []uint8{1}, Appends: 1, Epochs: 1, Direct: true,
			},
			"and needed 3 when it was appended",
		},
		"W from the survivors": {
			explore.SurvivorsConfirm,
			explore.Bounds{Copies: 2, Wanted: 2, Changes: 2, Appends: 1, Epochs: 1, Crashes: 1, Direct: true, Lazy: true},
			"1 of 2 copies hold it durably",
		},
		"a new store that learns, for the old one": {
			explore.WipedReports,
			explore.Bounds{
				Copies: 2, Wanted: 2, Appends: 1, Epochs: 1, Crashes: 1, Wipes: 1, Direct: true, Lazy: true,
			},
			"came back shorter",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.b.States = 100_000
			r, err := explore.Search(c.b, c.fault)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("found in %d steps, among %d states: %s\n%s", len(r.Schedule), r.States, r.Violation, strings.Join(r.Schedule, "; "))
			if !strings.Contains(r.Violation, c.rule) {
				t.Fatalf("found %q, want %q", r.Violation, c.rule)
			}
			if told, err := explore.Play(c.b, explore.NoFault, r.Schedule); err == nil && strings.Contains(told, "BROKEN") {
				t.Errorf("without the fault, the schedule shows %q", told)
			}
		})
	}
}
