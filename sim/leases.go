package sim

import (
	"slices"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/quorum"
)

// tenure is what a run was leased, by true time, and what it has confirmed by that.
type tenure struct {
	began time.Duration
	until time.Duration              // then the last lease that it was granted is over
	said  map[ident.Partition]saying // what it has acted on as confirmed last
}

// saying is up to where a run has acted on a partition as confirmed, in the last epoch in which it did.
type saying struct{ epoch, position uint64 }

// again reports whether a run has acted on a position as confirmed before, in the same epoch, and notes that it does.
func (h *host) again(p ident.Partition, epoch, position uint64) bool {
	if h.said == nil {
		h.said = map[ident.Partition]saying{}
	}
	last := h.said[p]
	if epoch == last.epoch && position <= last.position || epoch < last.epoch {
		return true
	}
	h.said[p] = saying{epoch, position}
	return false
}

// granted notes what a controller grants a run: it counts from the heartbeat that it answers, on the run's clock, which may drift as much as the
// product takes clocks to. Nothing is taken off for safety, as the run itself must.
func (h *host) granted(g lease.Grant) {
	now, clock := h.w.sim.Now(), h.site.clock.Mono()
	age, ttl := clock-g.Sent, g.TTL
	h.until = max(h.until, now-age+(age+ttl)/100+ttl)
	if g.TTL == 0 {
		h.until = now
	}
}

// fencing is an assignment whose lease fences, and when that was seen first.
type fencing struct {
	epoch, version uint64
	seen           time.Duration
}

// mayConfirm judges that a run acts on everything below a position as confirmed. If nobody has before it, or only owners of later epochs, its lease
// must let it where it fences (design 2 §7). What as many copies held durably before its end as must may have been confirmed then, and is said later.
func (h *history) mayConfirm(by *host, epoch, position uint64) {
	h.latest = max(h.latest, epoch)
	if position <= h.confirmed && epoch == h.latest {
		return
	}
	now := h.w.sim.Now()
	if now < by.until || !h.w.cluster() {
		return
	}
	by.node.View(func(v *catalog.View) {
		a, r := v.Assignment(h.p)
		if a == nil || a.Epoch != epoch || !lease.Fences(r, a, v.Tunables().FenceAlways) {
			return
		}
		p, err := h.w.judged(a)
		if err != nil {
			return // said elsewhere
		}
		if h.fencedAs.epoch != a.Epoch || h.fencedAs.version != a.Version {
			h.fencedAs = fencing{a.Epoch, a.Version, now}
		}
		since := h.since(a, quorum.W(p, a.Eligible(), r.Kind), by.site.witness, position)
		// What was there before the run another one may have confirmed, and what was before a change of policy or members may have been by that.
		if since > by.began && since >= h.fencedAs.seen && since >= by.until {
			h.w.fail("%s: %s confirms position %d in epoch %d at %v, and its lease was over at %v", h.name(), by.instance(), position, epoch, now, by.until)
		}
	})
}

// since is from when on so many copies of an assignment, the owner's among them, have held durably what ends at a position or beyond it; 0 if that
// is not known.
func (h *history) since(a *catalog.Assignment, enough int, owner *witness, position uint64) time.Duration {
	m, ok := h.in(owner).at(position, false)
	if !ok {
		return 0
	}
	var times []time.Duration
	for _, f := range a.Followers {
		if c := h.of(f.Store); c != nil && c.holds(m) {
			x, _ := c.at(m.tail.Position, false)
			times = append(times, x.at)
		}
	}
	if slices.Sort(times); enough-1 > len(times) {
		return 0
	}
	if enough > 1 {
		return max(m.at, times[enough-2])
	}
	return m.at
}

// fenced judges that an owner refuses what was published because of its lease: not where nothing has disturbed the cluster for a while.
func (m *mouth) fenced(r protocol.PublishRefused) {
	if w := m.e.w; r.Cause == protocol.CauseLease && !w.restless && w.still > 0 {
		w.fail("%s: %s refuses what is published though nothing is wrong: %s", w.historyOf(m.e.p).name(), m.e.h.instance(), r.Reason)
	}
}

// leaseOf is how long leases are in this act: as short as they can be, or as they are by default.
var leaseOf = []time.Duration{3 * time.Second, 10 * time.Second}

// lease keeps the owner of something from its controller until its lease is over, and longer.
func (g *stage) lease() bool {
	w := g.w
	t := w.targets[g.rng.IntN(len(w.targets))]
	if t.memory || t.maker || t.dead != "" || t.spec.Name == "graves" {
		return true
	}
	always, alone, single := g.rng.IntN(2) == 0, g.rng.IntN(2) == 0, g.rng.IntN(3) == 0
	ttl := leaseOf[g.rng.IntN(3)/2]
	if !g.leased(t, always, alone, single, ttl) {
		return false
	}
	owner, l := w.ownerOf(t), w.leader()
	copies := w.copiesOf(t)
	if owner == nil || owner.host == nil || l == nil {
		return true
	}
	beyond := between(g.rng.Uint64(), ttl-2*time.Second, ttl+4*time.Second)
	switch way := g.rng.IntN(3); {
	case way == 0:
		w.say("HALTED %s, which owns %s", owner.name, t.spec.Name)
		g.halt(owner)
		w.sim.RunFor(beyond)
	case way == 1 && owner != l:
		g.apart([]*site{owner}, []*site{l})
		w.sim.RunFor(beyond)
	default:
		with := []*site{owner}
		if !alone && !single && always && w.fiveVote() && len(copies) == 3 {
			with = append(with, copies[1+g.rng.IntN(2)])
		}
		g.apart(with, slices.DeleteFunc(slices.Clone(w.sites), func(s *site) bool { return slices.Contains(with, s) }))
		w.sim.RunFor(between(g.rng.Uint64(), 0, 2*time.Second))
		if len(copies) == 3 && (alone || len(with) == 2) && g.rng.IntN(4) > 0 {
			if !g.accept(t, nil) || !g.servesOne(t) {
				return false
			}
		} else {
			w.sim.RunFor(beyond)
		}
	}
	if w.failed() {
		return false
	}
	g.giveBack()
	return g.unfenced(t)
}

// leased has leases fence something: always, or because one copy confirms it, alone or by its policy.
func (g *stage) leased(t *target, always, alone, single bool, ttl time.Duration) bool {
	w := g.w
	fences := "single_copy"
	if always {
		fences = "always"
	}
	w.operator.set(catalog.Lease, ttl.String())
	w.operator.set(catalog.FenceOnLeaseExpiry, fences)
	w.operator.set(catalog.LearnerRate, "0")
	policy, copies := "", uint32(0)
	if alone {
		policy = "local_durable"
	}
	if single {
		copies = 1
	}
	if policy != "" || copies > 0 {
		w.operator.changed = true
		w.operator.want(t.spec.Name, policy, copies)
	}
	known := func() bool {
		ok := w.peaceful() && w.alike() == ""
		for _, h := range w.hosts() {
			h.node.View(func(v *catalog.View) { ok = ok && v.Tunables().Lease == ttl && v.Tunables().FenceAlways == always })
		}
		return ok
	}
	return w.awaitFor("leases that fence", replacesWithin, w.now(known))
}

// halt stops a node's process until giveBack.
func (g *stage) halt(s *site) {
	w, h := g.w, s.host
	end := w.ails(s)
	h.exec.Pause(time.Hour)
	w.net.Pause(s.name)
	g.away = append(g.away, func() {
		end()
		if s.host == h {
			h.exec.Resume()
			w.net.Resume(s.name)
		}
	})
}

// apart lets some nodes and some others not hear each other until giveBack.
func (g *stage) apart(some, others []*site) {
	w := g.w
	var ends []func()
	for _, s := range some {
		ends = append(ends, w.ails(s))
		for _, o := range others {
			w.say("CUT %s, %s", s.name, o.name)
			w.net.Cut(s.name, o.name)
			w.net.Cut(o.name, s.name)
		}
	}
	for _, o := range others {
		o.doubt(silenced)
	}
	g.away = append(g.away, func() {
		for _, end := range ends {
			end()
		}
		w.net.Heal()
	})
}

// ails says that something keeps a node from the others, until the end is called.
func (w *world) ails(s *site) (end func()) {
	w.hurting++
	s.troubles++
	s.doubt(silenced)
	return func() { w.hurting--; s.troubles--; s.doubt(silenced) }
}

// unfenced demands that nothing is fenced once nothing keeps anybody from the controller.
func (g *stage) unfenced(t *target) bool {
	w := g.w
	if !w.awaitFor("peace after an owner was kept from its controller", healsWithin, w.now(w.peaceful)) {
		return false
	}
	w.sim.RunFor(calmAfter + time.Second)
	h := w.calmHost()
	if w.failed() || h == nil {
		return !w.failed()
	}
	p := &probe{c: h.client(0), t: t}
	w.clients = append(w.clients, p.c)
	p.c.connect()
	if !w.awaitFor("an answer to what is published", servesWithin, p.poll) {
		return false
	}
	if w.answers[p.message] == check.Refused && !t.limited && h.site.host == h && !t.gone {
		w.fail("%s refuses what is published once nothing is wrong", t.spec.Name)
	}
	return !w.failed()
}

// calmHost is a run that takes clients on a node that nothing keeps from the others; nil if there is none.
func (w *world) calmHost() *host {
	for _, h := range w.hosts() {
		if h.site.troubles == 0 {
			return h
		}
	}
	return nil
}
