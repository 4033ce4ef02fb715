package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

func TestAnEmptyCatalogSettlesAtOnce(t *testing.T) {
	w := newWorld(t, 1)
	w.boot()
	w.settle()
	if len(w.settles) != 1 || len(w.settles[0]) != 0 || w.commands != 0 || w.sealings != 0 {
		t.Fatalf("settled %v with %d commands and %d seals", w.settles, w.commands, w.sealings)
	}
	w.declare(3) // a first owner is committed with the resource
	w.settle()
	if w.commands != 0 || w.sealings != 0 {
		t.Fatalf("what this run owns was touched: %d commands, %d seals", w.commands, w.sealings)
	}
}

func TestARestartCarriesEveryPartitionOn(t *testing.T) {
	const n = 5000
	w := newWorld(t, 2)
	w.boot()
	ps := w.declare(n)
	for range 3 {
		before := map[ident.Partition]uint64{}
		for i, p := range ps {
			before[p] = w.assignment(p).Epoch
			if i%3 == 0 {
				w.grow(p, 7)
			}
		}
		w.boot()
		w.settle()
		for _, p := range ps {
			w.owned(p)
			if e := w.assignment(p).Epoch; e != before[p]+1 {
				t.Fatalf("%v went from epoch %d to %d", p, before[p], e)
			}
		}
		if len(w.settles) != 1 || len(w.waits()) != 0 {
			t.Fatalf("settled %d times, %d wait", len(w.settles), len(w.waits()))
		}
		// Whole groups, not one by one: a sync is shared by all that go in one command, and by all promises of one seal.
		if w.commands > 20 || w.sealings > 10 {
			t.Fatalf("%d commands and %d seals for %d partitions", w.commands, w.sealings, n)
		}
	}
}

func TestACrashBetweenAnyTwoStepsIsCarriedOn(t *testing.T) {
	const n = 40
	for at := 1; ; at++ {
		w := newWorld(t, uint64(at))
		w.boot()
		ps := w.declare(n)
		w.settle()
		w.crashAt = at
		w.boot()
		w.settle()
		crashed := w.node == nil
		w.crashAt = 0
		if crashed {
			w.crashAt = at%5 + 1 // the next run does not live long either
			w.boot()
			w.settle()
			w.crashAt = 0
			w.boot()
			w.settle()
		}
		for _, p := range ps {
			w.owned(p)
		}
		if len(w.waits()) != 0 {
			t.Fatalf("a crash at step %d: %v wait", at, w.waits())
		}
		if !crashed {
			if at < 6 {
				t.Fatalf("only %d steps", at)
			}
			return
		}
	}
}

func TestADamagedCopyWaitsAndTheOthersGoOn(t *testing.T) {
	w := newWorld(t, 3)
	w.boot()
	ps := w.declare(10)
	w.damaged[ps[4]] = "a checksum"
	w.boot()
	w.settle()
	for i, p := range ps {
		if i != 4 {
			w.owned(p)
		}
	}
	ws := w.waits()
	if len(ws) != 1 || ws[0].Partition != ps[4] || ws[0].Transition == "" || !strings.Contains(ws[0].Reason, "a checksum") {
		t.Fatalf("waiting: %+v", ws)
	}
	seals := w.sealings
	w.sim.RunFor(10*retryAfter + retryAfter/2)
	if got := w.sealings - seals; got < 9 || got > 11 {
		t.Fatalf("asked %d times in ten times %v", got, retryAfter)
	}
	delete(w.damaged, ps[4])
	w.sim.RunFor(2 * retryAfter)
	w.owned(ps[4])
	if len(w.waits()) != 0 {
		t.Fatalf("waiting: %+v", w.waits())
	}
	seals = w.sealings
	w.sim.RunFor(10 * retryAfter)
	if w.sealings != seals {
		t.Fatal("there is nothing left to ask for")
	}
}

func TestAnOutcomeThatIsNotKnownIsDecidedAnew(t *testing.T) {
	for name, f := range map[string]faults{
		"record not done": {lostCommands: 1}, "record done": {lostAnswers: 1},
		"nothing done for a while": {lostCommands: 5}, "all done, none told": {lostAnswers: 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 4)
			w.boot()
			ps := w.declare(20)
			w.faults = f
			w.boot()
			w.settle()
			w.sim.RunFor(10 * retryAfter)
			for _, p := range ps {
				w.owned(p)
				if e := w.assignment(p).Epoch; e != 2 {
					t.Fatalf("%v is at epoch %d", p, e)
				}
			}
			if len(w.waits()) != 0 {
				t.Fatalf("waiting: %+v", w.waits())
			}
		})
	}
}

func TestACommitThatIsNotKnownIsDecidedAnew(t *testing.T) {
	for _, f := range []faults{{lostCommands: 1}, {lostAnswers: 1}} {
		w := newWorld(t, 5)
		w.boot()
		ps := w.declare(20)
		w.boot()
		w.sim.RunUntil(func() bool { return w.sealings > 0 }, time.Second)
		w.faults = f
		w.settle()
		w.sim.RunFor(5 * retryAfter)
		for _, p := range ps {
			w.owned(p)
		}
	}
}

func TestWhatIsDeletedMeanwhileIsForgotten(t *testing.T) {
	for at := range 8 {
		w := newWorld(t, uint64(at))
		w.boot()
		ps := w.declare(6)
		w.boot()
		w.sim.RunUntil(func() bool { return w.steps >= at }, time.Second)
		w.apply(catalog.DeleteResource(catalog.DefaultVHost, "q00002", 0, 0))
		w.settle()
		for _, p := range ps {
			if a, _ := w.state.View().Assignment(p); a != nil {
				w.owned(p)
			}
		}
		if len(w.waits()) != 0 || len(w.c.open) != 0 {
			t.Fatalf("deleted after %d steps: waiting %v, open %v", at, w.waits(), w.c.open)
		}
	}
}

func TestAWaitThatEndsByDeletionIsTold(t *testing.T) {
	w := newWorld(t, 6)
	w.boot()
	ps := w.declare(3)
	w.damaged[ps[0]] = "a checksum"
	w.boot()
	w.settle()
	if len(w.waits()) != 1 {
		t.Fatalf("waiting: %+v", w.waits())
	}
	w.apply(catalog.DeleteResource(catalog.DefaultVHost, "q00000", 0, 0))
	w.settle()
	if len(w.waits()) != 0 {
		t.Fatalf("waiting: %+v", w.waits())
	}
}

func TestOthersPartitionsAndTransientOnesAreLeftAlone(t *testing.T) {
	w := newWorld(t, 7)
	w.boot()
	other := ident.Instance{Node: "two", Store: ident.StoreID{2}, Boot: 1}
	durable := catalog.Resource{VHost: catalog.DefaultVHost, Name: "theirs", Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}, Policy: "majority_durable"}
	transient := catalog.Resource{
		VHost: catalog.DefaultVHost, Name: "memory", Kind: catalog.Queue, Queue: &queue.Settings{}, Policy: "majority_durable",
		Home: &catalog.Home{Node: w.local.Node, Boot: w.local.Boot},
	}
	w.apply(catalog.RegisterBoot(catalog.Node{Name: other.Node, Store: other.Store, Boot: other.Boot}))
	w.apply(catalog.DeclareResource(durable, other, nil, 1))
	w.apply(catalog.DeclareResource(transient, w.local, nil, 1))
	if len(w.state.View().AllResources()) != 2 {
		t.Fatal("nothing was declared")
	}
	w.boot()
	w.settle()
	if w.commands != 0 || w.sealings != 0 || len(w.waits()) != 0 {
		t.Fatalf("%d commands, %d seals, waiting %v", w.commands, w.sealings, w.waits())
	}
}

// TestRandomLives lets runs begin and end at random, with commands and answers lost, queues deleted and copies damaged and healed; in the
// end everything that is left is owned by the last run.
func TestRandomLives(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		w := newWorld(t, seed)
		rng := w.sim.Rand()
		w.boot()
		ps := w.declare(1 + rng.IntN(30))
		for range 2 + rng.IntN(6) {
			w.faults = faults{lostCommands: rng.IntN(3), lostAnswers: rng.IntN(3)}
			if w.crashAt = rng.IntN(12); rng.IntN(2) == 0 {
				w.crashAt = 0
			}
			p := ps[rng.IntN(len(ps))]
			switch rng.IntN(4) {
			case 0:
				w.damaged[p] = "a checksum"
			case 1:
				clear(w.damaged)
			case 2:
				if a, r := w.state.View().Assignment(p); a != nil {
					w.apply(catalog.DeleteResource(catalog.DefaultVHost, r.Name, 0, 0))
				}
			}
			if rng.IntN(3) > 0 || w.node == nil {
				w.boot()
			}
			w.sim.RunFor(time.Duration(rng.Int64N(int64(3 * retryAfter))))
		}
		w.faults, w.crashAt = faults{}, 0
		clear(w.damaged)
		w.boot()
		w.sim.RunFor(3 * retryAfter)
		for _, p := range ps {
			if a, _ := w.state.View().Assignment(p); a != nil {
				w.owned(p)
			}
		}
		if len(w.waits()) != 0 || len(w.c.open) != 0 {
			t.Fatalf("seed %d: waiting %v", seed, w.waits())
		}
	}
}
