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
	site    uint64
}

// plan draws which faults happen, and when. It has a source of randomness of its own, so that the load does not depend on it.
func (w *world) plan() []planned {
	rng := rand.New(rand.NewPCG(w.opt.Seed, 4))
	kinds := w.opt.Faults
	if kinds == nil {
		if kinds = Faults; w.cluster() {
			kinds = ClusterFaults
		}
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
		at += time.Duration(rng.Int64N(int64(w.opt.For) * 3 / 4))
		if at >= w.opt.For {
			return ps
		}
		p := planned{some[rng.IntN(len(some))], at, rng.Uint64(), rng.Uint64(), rng.Uint64(), rng.Uint64()}
		if slices.Contains(w.opt.Skip, len(ps)) {
			p.kind = ""
		}
		ps = append(ps, p)
	}
}

// schedule has the planned faults happen, each when the nodes serve that it needs.
func (w *world) schedule(ps []planned) {
	start := w.sim.Now()
	for i, p := range ps {
		if p.kind == "" {
			continue
		}
		w.sim.At(start+p.at, func() {
			s := w.sites[p.site%uint64(len(w.sites))]
			if !w.loading || w.failed() || s.host == nil || !s.host.serving ||
				(p.kind == FaultWipe || p.kind == FaultFlip && w.cluster()) && !s.mayLose() {
				return
			}
			w.injured = append(w.injured, fmt.Sprintf("%d: %s at %v", i, p.kind, w.sim.Now().Round(time.Millisecond)))
			w.say("FAULT %s of %s", p.kind, s.name)
			s.inject(p)
		})
	}
}

func between(n uint64, low, high time.Duration) time.Duration {
	return low + time.Duration(n%uint64(high-low))
}

func (s *site) inject(p planned) {
	w, h := s.w, s.host
	if w.cluster() && p.kind != FaultClock && p.kind != FaultWish && p.kind != FaultDrain { // these change no owner
		w.disturb("")
	}
	after := func(d time.Duration, f func()) {
		w.sim.At(w.sim.Now()+d, func() {
			if s.host == h && w.loading {
				f()
			}
		})
	}
	switch p.kind {
	case FaultKill, FaultPower, FaultBreak, FaultCut, FaultSlow, FaultWipe, FaultWish, FaultDrain:
		s.injectCluster(p)
	case FaultCrash:
		s.crash(p.a)
		s.boot()
	case FaultBoot:
		s.crash(p.a)
		s.boot()
		s.bootLoop(p.b%3, p.c)
	case FaultRestart:
		s.restart(p.a)
	case FaultWrite, FaultSync:
		s.doubt(diskBroke)
		s.disk.FailAfter(p.kind == FaultSync, int(p.a%20))
		s.broken, h.hurt = true, true
		soon := between(p.b, 0, 20*time.Millisecond) // before what failed has been taken note of, or long after
		if p.b>>32%2 == 0 {
			soon = between(p.b, 20*time.Millisecond, time.Second)
		}
		after(soon, func() {
			s.crash(p.c)
			s.boot()
		})
	case FaultFull:
		s.doubt(diskBroke) // with no spare file left, a write fails, and the store closes
		s.disk.Full(true)
		after(between(p.a, 300*time.Millisecond, 3*time.Second), func() { s.disk.Full(false) })
	case FaultStall:
		s.stall(p.a)
		w.hurting++
		w.sim.At(w.sim.Now()+between(p.b, time.Second, 5*time.Second), func() {
			w.hurting--
			if s.host == h {
				s.doubt(stalled)
				s.stall(0)
			}
		})
	case FaultPause:
		h.pause(between(p.a, 10*time.Millisecond, 4*time.Second))
	case FaultClock:
		s.clock.Skew(between(p.a, 0, 40*time.Second)-20*time.Second, int64(p.b%2000)-1000)
	case FaultFlip:
		s.flip(p)
	}
}

// bootLoop crashes the node again while it starts.
func (s *site) bootLoop(times, draw uint64) {
	if times == 0 {
		return
	}
	w := s.w
	w.sim.At(w.sim.Now()+between(draw, 0, 30*time.Millisecond), func() {
		if !w.loading || w.failed() {
			return
		}
		s.crash(draw)
		s.boot()
		s.bootLoop(times-1, draw*6364136223846793005+1442695040888963407)
	})
}

// heal takes away every fault that lasts, and starts nodes anew whose storage has failed.
func (w *world) heal() {
	if w.cluster() {
		w.healNetwork()
		w.operator.restore()
	}
	for _, s := range w.sites {
		s.disk.Heal()
		s.clock.Skew(0, 0)
		s.stall(0)
		if s.host == nil || s.host.hurt {
			s.crash(w.rng.Uint64())
			s.boot()
		}
	}
}

const (
	// looksEvery is how often an operator looks at a node of which a bit was turned.
	looksEvery = 100 * time.Millisecond
	// mendsWithin is for how long what is damaged there may mend itself, before the operator does.
	mendsWithin = 5 * time.Second
)

// flip turns a bit of what a node has stored.
func (s *site) flip(p planned) {
	w := s.w
	if w.cluster() {
		s.flipRunning(p)
		return
	}
	w.see(check.Event{Kind: check.Injected})
	s.flipped = true
	if p.a>>32%3 == 0 { // under a node that runs
		w.say("flipped a bit of %s", s.disk.Flip(p.b, p.c))
		return
	}
	s.crash(p.a)
	w.say("flipped a bit of %s", s.disk.Flip(p.b, p.c))
	s.boot()
}

// flipRunning turns a bit of what a node of a cluster has stored, while it runs. It comes upon it then, or when it is started anew, or never. What
// is confirmed is on other disks too: nothing of it may be lost or served otherwise.
func (s *site) flipRunning(p planned) {
	w, h, at := s.w, s.host, s.w.sim.Now()
	s.doubt(diskBroke)
	w.say("flipped a bit of %s on %s", s.disk.Flip(p.b, p.c), s.name)
	if !s.flipped {
		s.flipped = true
		s.tend(0)
	}
	if p.a%4 == 0 {
		return
	}
	w.sim.At(w.sim.Now()+between(p.a>>8, 200*time.Millisecond, time.Second), func() {
		switch {
		case s.host != h || !w.loading || w.failed():
		case s.witness.last <= at: // nothing says yet that what turned had been synced: it would pass for a torn end
		case p.a%4 == 1 && h.serving:
			s.restart(p.a >> 32)
		default:
			s.crash(p.a >> 32)
			s.boot()
		}
	})
}

// tend has an operator look after a node of which a bit was turned, as long as it has that disk: where the node does not start, since its catalog is
// damaged, or says for long that a copy is, which is made anew by itself as a rule, he gives it an empty one, as `node replace` does. The other
// copies hold what was confirmed: a bit is turned on one node at a time.
func (s *site) tend(ill time.Duration) {
	w, disk := s.w, s.disk
	w.sim.At(w.sim.Now()+looksEvery, func() {
		h := s.host
		switch {
		case s.disk != disk || w.failed():
			return
		case ill >= mendsWithin:
			w.say("REPLACED: the disk of %s", s.name)
			w.counts.Damaged++
			if h != nil && h.refused == nil {
				w.counts.Stayed++
			}
			s.crash(0)
			s.fresh()
			s.boot()
			return
		case h == nil || h.refused == nil && !h.serving:
			s.tend(ill)
		case h.refused != nil:
			s.tend(ill + looksEvery)
		default:
			h.statuses(func(list []status) {
				if slices.ContainsFunc(list, h.damaged) {
					s.tend(ill + looksEvery)
				} else {
					s.tend(0)
				}
			})
		}
	})
}
