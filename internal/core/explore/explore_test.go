package explore_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tanist/tanist/internal/core/explore"
)

// steps are the steps of a script in one line.
func steps(line string) []string {
	var out []string
	for _, s := range strings.Split(line, ";") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// search runs a search and says what it found. A broken rule fails the test with the script that shows it.
func search(t *testing.T, b explore.Bounds) explore.Result {
	t.Helper()
	began := time.Now()
	r, err := explore.Search(b, explore.NoFault)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d steps, up to %d deep, %v; %v", r.States, r.Steps, r.Depth, time.Since(began).Round(time.Millisecond), r.Seen)
	if r.Violation != "" {
		told, err := explore.Play(b, explore.NoFault, r.Schedule)
		if err != nil {
			t.Error(err)
		}
		t.Fatalf("%s; the script:\n\nplay copies=%d\n%s\n----\n%s", r.Violation, b.Copies, strings.Join(r.Schedule, "\n"), told)
	}
	return r
}

// complete are bounds within which everything is searched, and what a search must have come by, so that one that could not reach it fails.
var complete = map[string]struct {
	b    explore.Bounds
	seen string
	long bool // not with -short
	wide bool // with EXPLORE_WIDE only
}{
	"three copies, a session lost": {
		b:    explore.Bounds{Copies: 3, Appends: 2, Epochs: 1, Breaks: 1},
		seen: "confirmed 3",
	},
	"a crash and a restart": {
		b:    explore.Bounds{Copies: 3, Appends: 1, Epochs: 2, Crashes: 1},
		seen: "serves in epoch 2, confirmed 3", long: true,
	},
	"an owner that is suspected": {
		b:    explore.Bounds{Copies: 3, Appends: 1, Epochs: 2, Suspect: true},
		seen: "serves in epoch 1, serves in epoch 2, confirmed 3", long: true,
	},
	"growth from one copy": {
		b:    explore.Bounds{Copies: 1, Appends: 1, Epochs: 1},
		seen: "1 copies admitted, 2 copies admitted, 3 copies admitted, joint, confirmed 2", long: true,
	},
	"growth from two copies, a crash, a session or an answer lost": {
		b:    explore.Bounds{Copies: 2, Epochs: 1, Crashes: 1, Breaks: 1},
		seen: "3 copies admitted, joint, a proposal whose owner is gone",
	},
	"growth from two copies, an owner that is suspected": {
		b:    explore.Bounds{Copies: 2, Epochs: 2, Suspect: true},
		seen: "3 copies admitted, joint, a proposal whose owner is gone, serves in epoch 2", long: true,
	},
	"a store that is lost, and admitted anew": {
		b:    explore.Bounds{Copies: 3, Appends: 1, Epochs: 1, Crashes: 1, Wipes: 1},
		seen: "a new store admitted, joint",
	},
	"a transition that overtakes another": {
		b: explore.Bounds{
			Copies: 3, Epochs: 3, Suspect: true, Depth: 9, Begin: steps("record; apply n0; seal n0; sync n0; choose n0 0"),
		},
		seen: "confirmed 1",
	},
	"two stores that are lost": {
		b:    explore.Bounds{Copies: 3, Epochs: 1, Crashes: 2, Wipes: 2},
		seen: "a new store admitted, a proposal whose owner is gone",
	},
	"a crash or a lost store beside a suspicion": {
		b:    explore.Bounds{Copies: 3, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true},
		seen: "a new store admitted, joint, a proposal whose owner is gone, serves in epoch 2", wide: true,
	},
	"three epochs": {
		b:    explore.Bounds{Copies: 3, Epochs: 3, Suspect: true},
		seen: "serves in epoch 3", wide: true,
	},
	"a crash beside a suspicion": {
		b:    explore.Bounds{Copies: 3, Appends: 1, Epochs: 2, Crashes: 1, Suspect: true},
		seen: "serves in epoch 2, confirmed 3", wide: true,
	},
	"growth from two copies, an owner that crashes": {
		b:    explore.Bounds{Copies: 2, Epochs: 2, Crashes: 1},
		seen: "3 copies admitted, joint, a proposal whose owner is gone, serves in epoch 2", wide: true,
	},
	"one copy confirms": {
		b:    explore.Bounds{Copies: 3, Policy: "local_durable", Appends: 1, Epochs: 2, Crashes: 1},
		seen: "serves in epoch 2, confirmed 3", wide: true,
	},
	"all copies confirm": {
		b:    explore.Bounds{Copies: 3, Policy: "all_durable", Appends: 1, Epochs: 2, Suspect: true},
		seen: "serves in epoch 2, confirmed 3", wide: true,
	},
	"growth from two copies, one confirms": {
		b:    explore.Bounds{Copies: 2, Policy: "local_durable", Epochs: 2, Crashes: 1},
		seen: "3 copies admitted, joint, serves in epoch 2", wide: true,
	},
	"growth from two copies, all confirm": {
		b:    explore.Bounds{Copies: 2, Policy: "all_durable", Epochs: 2, Crashes: 1},
		seen: "3 copies admitted, joint, serves in epoch 2", wide: true,
	},
}

// TestComplete goes through every schedule of small clusters.
func TestComplete(t *testing.T) {
	for name, c := range complete {
		t.Run(name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("-short")
			}
			if c.wide && os.Getenv("EXPLORE_WIDE") == "" {
				t.Skip("EXPLORE_WIDE is not set")
			}
			c.b.Queue = 8
			r := search(t, c.b)
			if !r.Complete && c.b.Depth == 0 {
				t.Errorf("not complete: %d steps would have exceeded the messages on their way", r.Clogged)
			}
			for _, want := range strings.Split(c.seen, ", ") {
				if r.Seen[want] == 0 {
					t.Errorf("never came by: %s", want)
				}
			}
		})
	}
}

// TestDeep goes through all schedules of wider bounds up to a depth: EXPLORE_DEPTH, or one that takes seconds.
func TestDeep(t *testing.T) {
	depth := 7
	if text := os.Getenv("EXPLORE_DEPTH"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("EXPLORE_DEPTH %q: want a number of steps", text)
		}
		depth = n
	} else if testing.Short() {
		depth = 5
	}
	for _, copies := range []int{1, 2, 3} {
		t.Run(strconv.Itoa(copies), func(t *testing.T) {
			search(t, explore.Bounds{
				Copies: copies, Appends: 3, Epochs: 3, Crashes: 1, Wipes: 1, Breaks: 1, Queue: 8, Suspect: true, Depth: depth,
			})
		})
	}
}

const (
	confirmOne = "append n0; deliver n0 n1; sync n0; sync n1; deliver n1 n0;"
	sealTwo    = "record; seal n1; sync n1; seal n2; sync n2; choose n1+n2 0;"
	takeOver   = sealTwo + "apply n1; sync n1; sync n1; apply n2; sync n2; deliver n2 n1; deliver n1 n2; deliver n1 n2; sync n2; deliver n2 n1; deliver n2 n1;"
)

// TestPlanted plants one mistake at a time, and has it found.
func TestPlanted(t *testing.T) {
	for name, c := range map[string]struct {
		fault explore.Fault
		b     explore.Bounds
		rule  string
	}{
		"held before sync": {
			explore.HeldBeforeSync, explore.Bounds{Copies: 3, Appends: 1, Epochs: 1}, "hold it durably",
		},
		"sealed before sync": {
			explore.SealedBeforeSync, explore.Bounds{Copies: 3, Epochs: 2, Suspect: true}, "has answered the seal",
		},
		"cut before promise": {
			explore.CutBeforePromise,
			explore.Bounds{Copies: 3, Epochs: 2, Suspect: true, Begin: steps("append n0; sync n0;" + sealTwo)},
			"with another history",
		},
		"raw tail": {
			explore.RawTail,
			explore.Bounds{
				Copies: 3, Epochs: 3, Crashes: 1, Suspect: true, Begin: steps("append n0; append n0; sync n0; sync n0;" + takeOver),
			},
			"5:",
		},
		"survivors confirm": {
			explore.SurvivorsConfirm, explore.Bounds{Copies: 3, Appends: 1, Epochs: 1, Crashes: 2}, "hold it durably",
		},
		"wiped counts": {
			explore.WipedCounts,
			explore.Bounds{Copies: 3, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true, Begin: steps(confirmOne)},
			"5:",
		},
		"same epoch": {
			explore.SameEpoch, explore.Bounds{Copies: 3, Appends: 1, Epochs: 1, Crashes: 1}, "with another history",
		},
		"no joint rule": {
			explore.NoJoint, explore.Bounds{Copies: 1, Appends: 1, Epochs: 1}, "1 of 2 admitted copies hold it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.b.Queue, c.b.States = 8, 300_000
			r, err := explore.Search(c.b, c.fault)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states; %s", r.States, r.Violation)
			if !strings.Contains(r.Violation, c.rule) {
				t.Fatalf("found %q, want %q", r.Violation, c.rule)
			}
			told, err := explore.Play(c.b, c.fault, r.Schedule)
			if err != nil || !strings.Contains(told, r.Violation) {
				t.Errorf("played again, the schedule shows %q, %v", told, err)
			}
			if told, err = explore.Play(c.b, explore.NoFault, r.Schedule); err == nil && strings.Contains(told, "BROKEN") {
				t.Errorf("without the fault, the schedule shows %q", told)
			}
		})
	}
}

// TestScripts plays schedules that are worth a name: those that a search found a mistake by, and those that a rule of design 2 is there
// for.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "play" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			copies, fault := 3, 0
			d.MaybeScanArgs(t, "copies", &copies)
			d.MaybeScanArgs(t, "fault", &fault)
			told, err := explore.Play(explore.Bounds{Copies: copies}, explore.Fault(fault), steps(strings.ReplaceAll(d.Input, "\n", ";")))
			if err != nil {
				d.Fatalf(t, "%v, after\n%s", err, told)
			}
			return told
		})
	})
}
