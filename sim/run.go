package sim

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
)

// Run runs one simulation. It never fails other than in the Result.
func Run(opt Options) Result {
	w := newWorld(opt)
	w.runSafely()
	r := Result{
		Options: w.opt, Hash: w.sim.Hash(), Steps: w.sim.Steps(), Events: w.judge.Events(), Virtual: w.sim.Now(), Injured: w.injured,
		Counts: w.counts,
	}
	switch {
	case w.fault != nil && w.judge.Failed():
		r.Failure = fmt.Sprintf("%v\n%v", w.judge.Verdict(), w.fault)
	case w.fault != nil:
		r.Failure = w.fault.Error()
	case w.judge.Failed():
		r.Failure = w.judge.Verdict().Error()
	}
	w.say("END %s", r.Failure)
	return r
}

// runSafely makes a panic of the product a failure with a seed.
func (w *world) runSafely() {
	defer func() {
		if p := recover(); p != nil {
			w.fail("panic: %v\n%s", p, debug.Stack())
		}
	}()
	w.run()
}

// run is a simulation from its first start to the verdict.
func (w *world) run() {
	faults := w.plan()
	w.found()
	if !w.await("the first start", func() bool { return w.open && w.serving() }) {
		return
	}
	w.load(faults)
	w.heal()
	if w.refusesDamage() || !w.await("service after the faults", w.serving) {
		return
	}
	if w.cluster() && (!w.awaitFor("service after the faults", healsWithin, w.now(w.peaceful)) || !w.act()) {
		return
	}
	if !w.quiesce() || !w.empty() {
		return
	}
	// What was confirmed as settled stays so over one more crash, and what was read is where it was.
	for _, s := range w.sites {
		s.crash(w.rng.Uint64())
	}
	for _, s := range w.sites {
		s.boot()
	}
	if w.await("service after the last crash", w.serving) && w.empty() && w.cluster() {
		_ = w.await("identical copies", w.now(func() bool { return w.alike() == "" })) &&
			w.await("evidence of every change of owner on every node", w.now(func() bool { return w.evident() == "" }))
	}
}

// found starts the first node, and has the others join it, before or after there is anything to copy.
func (w *world) found() {
	first := w.sites[0]
	first.boot()
	if !w.cluster() {
		return
	}
	begin := func() { w.operator.settle(); w.prepare(func() { w.open, w.want = true, w.wanted(); w.fill() }) }
	if !w.await("the first node", func() bool { return first.host != nil && first.host.serving }) {
		return
	}
	if w.opt.Seed%3 == 0 {
		w.loading = true // copies are added under load
		begin()
		if w.opt.Seed%2 != 0 { // to what holds something
			w.sim.RunFor(between(w.rng.Uint64(), 300*time.Millisecond, time.Second))
		}
	}
	for _, s := range w.sites[1:] {
		s.boot()
	}
	if w.await("the other nodes", w.serving) && w.opt.Seed%3 != 0 {
		begin()
	}
}

// await lets virtual time pass until cond holds, for as long as the node may take.
func (w *world) await(what string, cond func() bool) bool { return w.awaitFor(what, patience, cond) }

// awaitFor is await with a limit of its own.
func (w *world) awaitFor(what string, limit time.Duration, cond func() bool) bool {
	w.sim.RunUntil(func() bool { return cond() || w.failed() || w.refusesDamage() }, limit)
	if w.failed() || w.refusesDamage() {
		return false
	}
	if !cond() {
		w.fail("no %s within %v of virtual time: %s", what, limit, w.why())
		return false
	}
	return true
}

// now makes a condition that is dear to ask one that is asked every few milliseconds.
func (w *world) now(cond func() bool) func() bool {
	var next time.Duration
	ok := false
	return func() bool {
		if now := w.sim.Now(); now >= next {
			ok, next = cond(), now+5*time.Millisecond
		}
		return ok
	}
}

// refusesDamage reports whether the node does not start because what it kept was damaged on purpose, and says so. That is as good an
// end as any: there is no other copy to repair it from.
func (w *world) refusesDamage() bool {
	h := w.sites[0].host
	return !w.cluster() && w.sites[0].flipped && h != nil && h.refused != nil
}

// load has clients work while the planned faults happen.
func (w *world) load(faults []planned) {
	w.loading = true
	w.schedule(faults)
	end := w.sim.Now() + w.opt.For
	w.sim.RunUntil(func() bool { return w.failed() || w.sim.Now() >= end }, w.opt.For)
	w.loading = false
}

// quiesce has the clients stop and waits for every outcome.
func (w *world) quiesce() bool {
	ok := w.await("outcome of every publish", func() bool {
		return !slices.ContainsFunc(w.clients, func(c *client) bool { return !c.ended && len(c.waiting) > 0 })
	})
	if !ok {
		return false
	}
	w.see(check.Event{Kind: check.Quiet})
	for _, c := range w.clients {
		c.box.Post(stop{func() {}})
	}
	return w.await("end of every session", func() bool {
		return !slices.ContainsFunc(w.clients, func(c *client) bool { return c.session != nil && !c.ended })
	})
}

// Many runs simulations with seeds from first on, n of them or for as long as limit, whichever ends first, and stops at the first
// that fails, which is shrunk. Zero means no bound. report hears of each.
func Many(ctx context.Context, opt Options, n int, limit time.Duration, report func(Result)) (failed *Result) {
	began := time.Now()
	for i := 0; (n == 0 || i < n) && (limit == 0 || time.Since(began) < limit) && ctx.Err() == nil; i++ {
		r := Run(opt)
		if r.Failed() {
			r = Shrink(r)
		}
		if report != nil {
			report(r)
		}
		if r.Failed() {
			return &r
		}
		opt.Seed++
	}
	return nil
}

// Shrink looks for a smaller simulation that fails too: fewer faults, less time, fewer clients. It runs some dozens of simulations.
func Shrink(r Result) Result {
	try := func(change func(*Options)) bool {
		opt := r.Options
		opt.Skip = slices.Clone(opt.Skip)
		change(&opt)
		if smaller := Run(opt); smaller.Failed() {
			r = smaller
			return true
		}
		return false
	}
	try(func(o *Options) { o.Act = ActNone })
	for range 8 {
		if r.Options.For < 200*time.Millisecond || !try(func(o *Options) { o.For = o.For / 2 }) {
			break
		}
	}
	plan := newWorld(r.Options).plan()
	for i := len(plan) - 1; i >= 0; i-- {
		if plan[i].kind != "" {
			try(func(o *Options) { o.Skip = append(o.Skip, i) })
		}
	}
	for n := 1; n <= 3; n++ {
		if try(func(o *Options) { o.Clients = n }) {
			break
		}
	}
	return r
}

// Print writes a result for people.
func Print(out io.Writer, r Result) {
	c := r.Counts
	fmt.Fprintf(out, "seed %d: %d steps, %v virtual, %d runs of the node, %d faults, %d published (%d confirmed, %d refused, %d unknown), "+
		"%d delivered, %d settles confirmed, %d read, hash %016x\n", r.Options.Seed, r.Steps, r.Virtual.Round(time.Millisecond), c.Runs,
		len(r.Injured), c.Published, c.Confirmed, c.Refused, c.Unknown, c.Delivered, c.Settled, c.Read, r.Hash)
	if !r.Failed() {
		return
	}
	fmt.Fprintf(out, "FAILED: %s\nfaults:\n", r.Failure)
	for _, f := range r.Injured {
		fmt.Fprintf(out, "  %s\n", f)
	}
	fmt.Fprintf(out, "again with: %s\n", r.Command())
}
