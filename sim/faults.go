package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
)

// planned is one fault, drawn before the simulation begins, so that leaving one out changes nothing about the others.
type planned struct {
	kind Fault
	at   time.Duration
	// a, b and c are drawn for the fault to use as it needs.
	a, b, c uint64
}

// plan draws which faults happen, and when. It has a source of randomness of its own, so that the load does not depend on it.
func (w *world) plan() []planned {
	rng := rand.New(rand.NewPCG(w.opt.Seed, 4))
	kinds := w.opt.Faults
	if kinds == nil {
		kinds = Faults
	}
	if len(kinds) == 0 {
		return nil
	}
	// A simulation has a character: few kinds of fault, so that a failure is not hidden by the noise of others.
	some := make([]Fault, 0, 3)
	for range 1 + rng.IntN(3) {
		some = append(some, kinds[rng.IntN(len(kinds))])
	}
	var ps []planned
	for at := time.Duration(0); ; {
		at += time.Duration(rng.Int64N(int64(3 * time.Second)))
		if at >= w.opt.For {
			return ps
		}
		p := planned{some[rng.IntN(len(some))], at, rng.Uint64(), rng.Uint64(), rng.Uint64()}
		if slices.Contains(w.opt.Skip, len(ps)) {
			p.kind = ""
		}
		ps = append(ps, p)
	}
}

// schedule has the planned faults happen, each when the node serves and no other one is under way.
func (w *world) schedule(ps []planned) {
	start := w.sim.Now()
	for i, p := range ps {
		if p.kind == "" {
			continue
		}
		w.sim.At(start+p.at, func() {
			if !w.loading || w.failed() || w.host == nil || !w.host.serving {
				return
			}
			w.injured = append(w.injured, fmt.Sprintf("%d: %s at %v", i, p.kind, w.sim.Now().Round(time.Millisecond)))
			w.say("FAULT %s", p.kind)
			w.inject(p)
		})
	}
}

func between(n uint64, low, high time.Duration) time.Duration {
	return low + time.Duration(n%uint64(high-low))
}

func (w *world) inject(p planned) {
	run := w.counts.Runs
	after := func(d time.Duration, f func()) {
		w.sim.At(w.sim.Now()+d, func() {
			if w.counts.Runs == run && w.loading {
				f()
			}
		})
	}
	switch p.kind {
	case FaultCrash:
		w.crash(p.a)
		w.boot()
	case FaultBoot:
		w.crash(p.a)
		w.boot()
		w.bootLoop(p.b%3, p.c)
	case FaultRestart:
		w.restart(p.a)
	case FaultWrite, FaultSync:
		w.disk.FailAfter(p.kind == FaultSync, int(p.a%20))
		w.broken, w.host.hurt = true, true
		soon := between(p.b, 0, 20*time.Millisecond) // before what failed has been taken note of, or long after
		if p.b>>32%2 == 0 {
			soon = between(p.b, 20*time.Millisecond, time.Second)
		}
		after(soon, func() {
			w.crash(p.c)
			w.boot()
		})
	case FaultFull:
		w.disk.Full(true)
		after(between(p.a, 300*time.Millisecond, 3*time.Second), func() { w.disk.Full(false) })
	case FaultStall:
		w.host.stall(p.a)
		after(between(p.b, time.Second, 5*time.Second), func() { w.host.stall(0) })
	case FaultPause:
		w.host.exec.Pause(between(p.a, 10*time.Millisecond, 4*time.Second))
	case FaultClock:
		w.clock.Skew(between(p.a, 0, 40*time.Second)-20*time.Second, int64(p.b%2000)-1000)
	case FaultFlip:
		w.see(check.Event{Kind: check.Injected})
		w.flipped = true
		if p.a>>32%3 == 0 { // under a node that runs
			w.say("flipped a bit of %s", w.disk.Flip(p.b, p.c))
			return
		}
		w.crash(p.a)
		w.say("flipped a bit of %s", w.disk.Flip(p.b, p.c))
		w.boot()
	}
}

// bootLoop crashes the node again while it starts.
func (w *world) bootLoop(times, draw uint64) {
	if times == 0 {
		return
	}
	w.sim.At(w.sim.Now()+between(draw, 0, 30*time.Millisecond), func() {
		if !w.loading || w.failed() {
			return
		}
		w.crash(draw)
		w.boot()
		w.bootLoop(times-1, draw*6364136223846793005+1442695040888963407)
	})
}

// heal takes away every fault that lasts, and starts the node anew if its storage has failed.
func (w *world) heal() {
	w.disk.Heal()
	w.clock.Skew(0, 0)
	if w.host != nil {
		w.host.stall(0)
	}
	if w.host == nil || w.host.hurt {
		w.crash(w.rng.Uint64())
		w.boot()
	}
}
