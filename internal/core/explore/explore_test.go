package explore_test

import (
	"fmt"
	"maps"
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
		seen: "3 copies admitted, joint, serves in epoch 2", long: true,
	},
	"a store that is lost, and admitted anew": {
		b:    explore.Bounds{Copies: 3, Appends: 1, Epochs: 1, Crashes: 1, Wipes: 1},
		seen: "a new store admitted, joint",
	},
	"a transition that overtakes another": {
		b: explore.Bounds{
			Copies: 3, Epochs: 3, Suspect: true, Depth: 9, Begin: steps("record; seal n0; sync n0; choose n0 0"),
		},
		seen: "confirmed 1",
	},
	"two controllers, and a transition that is withdrawn": {
		b:    explore.Bounds{Copies: 3, Epochs: 2, Suspect: true, Overlap: true, Cancels: 1},
		seen: "serves in epoch 1, serves in epoch 2, confirmed 2",
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

// featured are the bounds of full in pairs: each two of {logs of 4 entries, 3 epochs, a crash, a lost store, two controllers with withdrawn
// transitions} are searched completely in one of these, and all of them in two epochs. A store is lost with a crash only.
var featured = map[string]explore.Bounds{
	"entries and epochs":               {Suspect: true, Entries: 4, Epochs: 3},
	"entries and a crash":              {Suspect: true, Entries: 4, Epochs: 2, Crashes: 1},
	"entries and a lost store":         {Entries: 4, Epochs: 2, Crashes: 1, Wipes: 1},
	"entries and two controllers":      {Suspect: true, Entries: 4, Epochs: 2, Overlap: true, Cancels: 1},
	"epochs and two controllers":       {Suspect: true, Epochs: 3, Overlap: true, Cancels: 1},
	"epochs and a crash":               {Suspect: true, Epochs: 3, Crashes: 1},
	"epochs and a lost store":          {Suspect: true, Epochs: 3, Crashes: 1, Wipes: 1},
	"a crash and two controllers":      {Suspect: true, Epochs: 2, Crashes: 1, Overlap: true, Cancels: 1},
	"a lost store and two controllers": {Suspect: true, Epochs: 2, Crashes: 1, Wipes: 1, Overlap: true, Cancels: 1},
	"all in two epochs":                {Suspect: true, Entries: 4, Epochs: 2, Crashes: 1, Wipes: 1, Overlap: true, Cancels: 1},
}

// full is all of it at once.
var full = explore.Bounds{Suspect: true, Entries: 4, Epochs: 3, Crashes: 1, Wipes: 1, Overlap: true, Cancels: 1}

// reduced are bounds for a search without the schedules that are told by others (direct.go, lazy.go).
func reduced(b explore.Bounds) explore.Bounds {
	b.Copies, b.Direct, b.Lazy = 3, true, true
	return b
}

// TestFeatures goes through every schedule of three copies, for each two features, and for all in two epochs.
func TestFeatures(t *testing.T) {
	for name, b := range featured {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && (b.Entries > 0 || b.Epochs > 2) {
				t.Skip("-short")
			}
			r := search(t, reduced(b))
			if want := fmt.Sprintf("serves in epoch %d", b.Epochs); !r.Complete || r.Seen[want] == 0 {
				t.Errorf("complete: %v; never came by: %s", r.Complete, want)
			}
		})
	}
}

// TestFullFinds plants, within the bounds of full, each mistake that shows there in few steps: what is left out leaves out none of them. The others
// are found by lazy searches of TestPlanted and TestPlantedWishes, but for a stale frame, which a direct search does not have.
func TestFullFinds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, fault := range []explore.Fault{
		explore.HeldBeforeSync, explore.SealedBeforeSync, explore.CutBeforePromise, explore.RawTail, explore.WipedCounts, explore.SameEpoch,
		explore.LateSealTaken, explore.CancelUnanswered,
	} {
		b := reduced(full)
		b.States = 150_000
		r, err := explore.Search(b, fault)
		if err != nil || r.Violation == "" {
			t.Errorf("%s is not found among %d states, %v", fault, r.States, err)
		}
		t.Logf("%s: found in %d steps, among %d states: %s", fault, len(r.Schedule), r.States, r.Violation)
	}
}

// TestFull goes through every schedule with all features, as far as EXPLORE_FULL says: a number of states, 0 for all.
func TestFull(t *testing.T) {
	text := os.Getenv("EXPLORE_FULL")
	if text == "" {
		t.Skip("EXPLORE_FULL is not set")
	}
	states, err := strconv.Atoi(text)
	if err != nil || states < 0 {
		t.Fatalf("EXPLORE_FULL %q: want a number of states, or 0", text)
	}
	b := reduced(full)
	b.Deep, b.States = true, states
	began := time.Now()
	b.Watch = func(depth, states, todo int) {
		t.Logf("%d states, up to %d deep, %d to do, %v", states, depth, todo, time.Since(began).Round(time.Second))
	}
	if r := search(t, b); states == 0 && !r.Complete {
		t.Error("not complete")
	}
}

// TestDeepestFirst sees the same states in another order, and finds what is planted.
func TestDeepestFirst(t *testing.T) {
	b := reduced(featured["a lost store and two controllers"])
	first, err := explore.Search(b, explore.NoFault)
	if err != nil {
		t.Fatal(err)
	}
	b.Deep = true
	deep, err := explore.Search(b, explore.NoFault)
	if err != nil || !deep.Complete || deep.States != first.States || deep.Steps != first.Steps || !maps.Equal(deep.Seen, first.Seen) {
		t.Errorf("deepest first: %+v, %v; shortest first: %+v", deep, err, first)
	}
	b.Depth = 1
	if _, err := explore.Search(b, explore.NoFault); err == nil {
		t.Error("a greatest depth is taken")
	}
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
	// n0 crashes with two records that n1 alone holds; n1 owns epoch 2 from behind them, and crashes before that epoch confirms anything.
	fallingStart = "append n0; append n0; feed n0 n1; feed n0 n1; crash n0; record; seal n1; seal n2; choose n1+n2 0;" +
		"apply n1; sync n1; crash n1;"
)

// planted are mistakes, the bounds that each is found within, and the rule that is broken then.
var planted = map[explore.Fault]struct {
	b    explore.Bounds
	rule string
}{
	explore.HeldBeforeSync:   {explore.Bounds{Copies: 3, Appends: 1, Epochs: 1}, "hold it durably"},
	explore.SealedBeforeSync: {explore.Bounds{Copies: 3, Epochs: 2, Suspect: true}, "has answered the seal"},
	explore.CutBeforePromise: {
		explore.Bounds{Copies: 3, Epochs: 2, Suspect: true, Begin: steps("append n0; sync n0;" + sealTwo)}, "with another history",
	},
	explore.RawTail: {
		explore.Bounds{Copies: 3, Epochs: 3, Crashes: 1, Suspect: true, Begin: steps("append n0; append n0; sync n0; sync n0;" + takeOver)},
		"5:",
	},
	explore.SurvivorsConfirm: {explore.Bounds{Copies: 3, Appends: 1, Epochs: 1, Crashes: 2}, "hold it durably"},
	explore.WipedCounts: {
		explore.Bounds{Copies: 3, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true, Begin: steps(confirmOne)}, "5:",
	},
	explore.SameEpoch:     {explore.Bounds{Copies: 3, Appends: 1, Epochs: 1, Crashes: 1}, "with another history"},
	explore.NoJoint:       {explore.Bounds{Copies: 1, Appends: 1, Epochs: 1}, "1 of 2 admitted copies hold it"},
	explore.LateSealTaken: {explore.Bounds{Copies: 3, Epochs: 2, Suspect: true, Direct: true}, "9:"},
	explore.ResendOutOfOrder: {
		explore.Bounds{Copies: 3, Publishes: 2, Epochs: 2, Suspect: true, Direct: true, Lazy: true}, "7:",
	},
	explore.StaleFrame: {explore.Bounds{Copies: 3, Appends: 1, Epochs: 2, Suspect: true}, "with another history"},
	explore.CutAtNext: {
		explore.Bounds{Copies: 3, Epochs: 3, Direct: true, Lazy: true, Suspect: true, Begin: steps(fallingStart)}, "3:",
	},
	explore.StartIsFloor: {
		explore.Bounds{Copies: 3, Epochs: 3, Direct: true, Lazy: true, Suspect: true, Begin: steps(fallingStart + "wipe n1")}, "9:",
	},
	explore.CancelUnanswered: {explore.Bounds{Copies: 3, Epochs: 2, Cancels: 1, Suspect: true, Direct: true}, "9:"},
}

// TestPlanted plants one mistake at a time, and has it found.
func TestPlanted(t *testing.T) {
	for fault := explore.Fault(1); fault.String() != "cancel-unanswered"; fault++ {
		if _, ok := planted[fault]; !ok {
			t.Errorf("%s is never planted", fault)
		}
	}
	for fault, c := range planted {
		t.Run(fault.String(), func(t *testing.T) {
			c.b.Queue, c.b.States = 8, 300_000
			r, err := explore.Search(c.b, fault)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("found in %d steps, among %d states: %s", len(r.Schedule), r.States, r.Violation)
			if !strings.Contains(r.Violation, c.rule) {
				t.Fatalf("found %q, want %q", r.Violation, c.rule)
			}
			told, err := explore.Play(c.b, fault, r.Schedule)
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
			copies, wanted, policy, rule, fault := 3, 0, "", "", explore.NoFault
			d.MaybeScanArgs(t, "copies", &copies)
			d.MaybeScanArgs(t, "wanted", &wanted)
			d.MaybeScanArgs(t, "policy", &policy)
			if d.MaybeScanArgs(t, "fault", &rule); rule != "" {
				var err error
				if fault, err = explore.ParseFault(rule); err != nil {
					d.Fatalf(t, "%v", err)
				}
			}
			b := explore.Bounds{Copies: copies, Wanted: wanted, Policy: policy, Direct: d.HasArg("direct")}
			told, err := explore.Play(b, fault, steps(strings.ReplaceAll(d.Input, "\n", ";")))
			if err != nil {
				d.Fatalf(t, "%v, after\n%s", err, told)
			}
			return told
		})
	})
}
