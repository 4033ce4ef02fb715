package sim

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestMain lets garbage gather: a simulation makes much of it and keeps little.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}

// show gives what people need to look into a failure.
func show(t *testing.T, r Result) {
	t.Helper()
	if r.Failed() {
		r = Shrink(r)
		t.Errorf("%s\nagain with: %s\nfaults: %q", r.Failure, r.Command(), r.Injured)
	}
}

// number reads how many from an environment variable, if it is set.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// fresh runs so many simulations that nobody has seen, or SIM_SEEDS, from a seed that the commit under test gives, or SIM_FIRST.
func fresh(t *testing.T, n uint64, options func(i uint64) Options) {
	t.Helper()
	if testing.Short() {
		n /= 4
	}
	n = number(t, "SIM_SEEDS", n)
	first, from := Fresh()
	if given := number(t, "SIM_FIRST", first); given != first {
		first, from = given, "SIM_FIRST"
	}
	t.Logf("%d simulations, seeds from %d on, of %s", n, first, from)
	var next atomic.Uint64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < n && !t.Failed(); i = next.Add(1) - 1 {
				opt := options(i)
				opt.Seed = first + i
				show(t, Run(opt))
			}
		})
	}
	all.Wait()
}

// TestFixedSeeds runs the same simulations every time, some of each kind of fault and some of all.
func TestFixedSeeds(t *testing.T) {
	kinds := append([][]Fault{nil, {}}, single()...)
	for _, k := range kinds {
		t.Run(fmt.Sprintf("%v", k), func(t *testing.T) {
			t.Parallel()
			n := uint64(6)
			if testing.Short() {
				n = 2
			}
			for seed := range n {
				show(t, Run(Options{Seed: 1000 + seed, Faults: k}))
			}
		})
	}
}

func single() [][]Fault {
	var all [][]Fault
	for _, f := range Faults {
		all = append(all, []Fault{f})
	}
	return all
}

// TestFreshSeeds runs simulations that nobody has seen. A seed that fails is printed, with the command that repeats it; the reason, once
// found, gets the smallest test that shows it.
func TestFreshSeeds(t *testing.T) {
	fresh(t, 60, func(uint64) Options { return Options{} })
}

// TestFreshSeedsFollowTheCommit keeps a commit that passed from failing later by luck.
func TestFreshSeedsFollowTheCommit(t *testing.T) {
	if a, b := seedOf("a"), seedOf("b"); a == b || a>>48 != 0 {
		t.Error("seeds do not follow from what they are made of")
	}
	if underTest() == "" {
		t.Skip("not built of a commit")
	}
	a, from := Fresh()
	if b, _ := Fresh(); a != b || from != "commit "+underTest() {
		t.Errorf("%d, then %d, of %s", a, b, from)
	}
}

// TestSeedsReplayExactly runs each seed twice: schedule, events and history must be the same, whatever the faults are.
func TestSeedsReplayExactly(t *testing.T) {
	seen := map[uint64]bool{}
	n := uint64(24)
	if testing.Short() {
		n = 8
	}
	for seed := range n {
		a, b := Run(Options{Seed: seed}), Run(Options{Seed: seed})
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d does not replay:\n%+v\n%+v", seed, a, b)
		}
		if seen[a.Hash] {
			t.Fatalf("seed %d has the hash of another", seed)
		}
		seen[a.Hash] = true
	}
}

// TestShrink plants a fault and demands that what is left of a failure is smaller and still one.
func TestShrink(t *testing.T) {
	var r Result
	for seed := uint64(0); !r.Failed(); seed++ {
		r = Run(Options{Seed: seed, plant: refuse{}})
	}
	small := Shrink(r)
	if !small.Failed() {
		t.Fatal("what was shrunk does not fail")
	}
	if small.Options.For >= r.Options.For || small.Options.Clients == 0 {
		t.Fatalf("nothing was taken away: %+v", small.Options)
	}
	if again := Run(small.Options); again.Hash != small.Hash {
		t.Fatal("what was shrunk does not replay")
	}
}

// TestEveryFaultHappens keeps a fault from being planned and never coming to pass.
func TestEveryFaultHappens(t *testing.T) {
	for _, f := range Faults {
		happened := false
		for seed := uint64(0); seed < 5 && !happened; seed++ {
			happened = len(Run(Options{Seed: seed, Faults: []Fault{f}}).Injured) > 0
		}
		if !happened {
			t.Errorf("%s never happened", f)
		}
	}
}

// TestOneSeed runs the seed of SIM_SEED, and says everything that happens.
func TestOneSeed(t *testing.T) {
	text := os.Getenv("SIM_SEED")
	if text == "" {
		t.Skip("SIM_SEED is not set")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Seed: seed, Verbose: func(line string) { t.Log(line) }}
	if n := os.Getenv("SIM_NODES"); n != "" {
		if opt.Nodes, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	opt.Small, opt.Act = os.Getenv("SIM_SMALL") != "", Act(os.Getenv("SIM_ACT"))
	switch f := os.Getenv("SIM_FAULTS"); f {
	case "":
	case "none":
		opt.Faults = []Fault{}
	default:
		for _, name := range strings.Split(f, ",") {
			opt.Faults = append(opt.Faults, Fault(name))
		}
	}
	r := Run(opt)
	Print(os.Stdout, r)
	if r.Failed() {
		t.Fatal("failed")
	}
}
