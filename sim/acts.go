package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/port/trace"
)

// Act is a story that a cluster goes through after the planned faults, under load, from a state in which nothing is wrong: what random
// faults alone come upon too seldom.
type Act string

// The acts.
const (
	ActNone Act = "none"
	// ActWithout takes one node away, by a kill, a halt, a disk that hangs or a cut, one way or both, and does not give it back: the others
	// serve everything.
	ActWithout Act = "without"
	// ActController kills an owner, and kills, halts or cuts off the controller's node in the middle of the transitions that follow.
	ActController Act = "controller"
	// ActWipe has a node of five lose its disk and another be killed, while the only other copy of something is behind.
	ActWipe Act = "wipe"
	// ActRelay takes an owner away, and as it comes back kills its successor.
	ActRelay Act = "relay"
	// ActReplace takes a node away for longer than followers are waited for, in a cluster that has another: its copies are made there, under
	// load and while other nodes fail. Of five nodes a second one is then taken away for good.
	ActReplace Act = "replace"
	// ActLoss takes two of the three copies of something away, in a cluster of five, and has an operator accept the loss.
	ActLoss Act = "loss"
	// ActFlip turns bits of what one node has stored, while it runs, and has an operator give it an empty disk once it says that something is
	// damaged.
	ActFlip Act = "flip"
	// ActLease keeps an owner from its controller for longer than its lease, where that fences it, and may have an operator give it up meanwhile.
	ActLease Act = "lease"
	// ActBalance has a node of four or five be without copies for a while, and come to have as many as the others again.
	ActBalance Act = "balance"
	// ActRelapse keeps an owner from its controller and starts a copy anew that has promised the next epoch.
	ActRelapse Act = "relapse"
	// ActRaise has something need all its copies, and keeps one of them from its owner while the catalog's answer is awaited.
	ActRaise Act = "raise"
)

// DrawnActs are the acts that a seed draws from. To add one is to make all seeds other simulations: new ones are played where they are asked for.
var DrawnActs = []Act{ActNone, ActWithout, ActController, ActRelay, ActWipe, ActReplace, ActLoss}

// Acts are all acts.
var Acts = append(slices.Clone(DrawnActs), ActFlip, ActLease, ActBalance, ActRelapse, ActRaise)

const (
	// servesWithin is how long, in virtual time, what is left of a cluster may take to serve everything: the liveness expiry, an election,
	// the transitions, and the claims of gateways, each of which may come after the other.
	servesWithin = 5 * time.Second
	// healsWithin is the same for a cluster to which all nodes have come back, some of which were started anew.
	healsWithin = 10 * time.Second
)

// stage is what an act is played on.
type stage struct {
	w   *world
	rng *rand.Rand
	// away ends what keeps a node away, if something does.
	away []func()
}

// drawAct is the act that is asked for, or drawn, and what else of it is drawn from.
func drawAct(o Options) (Act, *rand.Rand) {
	rng := rand.New(rand.NewPCG(o.Seed, 6))
	kind := DrawnActs[rng.IntN(len(DrawnActs))]
	if o.Act != "" {
		kind = o.Act
	}
	return kind, rng
}

// act plays the act that is asked for, or drawn.
func (w *world) act() bool {
	g := &stage{w: w}
	kind, rng := drawAct(w.opt)
	g.rng = rng
	if kind == ActNone || w.flipped() {
		return true
	}
	ready := func() bool { return w.peaceful() && w.sites[0].mayLose() && w.alike() == "" }
	if !w.await("copies of everything on every node", w.now(ready)) {
		return false
	}
	w.say("ACT %s", kind)
	w.injured = append(w.injured, "act: "+string(kind))
	w.loading = true
	w.fill()
	w.sim.RunFor(between(g.rng.Uint64(), 10*time.Millisecond, 300*time.Millisecond))
	w.disturb("")
	ok := false
	switch kind {
	case ActWithout:
		ok = g.without()
	case ActController:
		ok = g.controller()
	case ActRelay:
		ok = g.relay()
	case ActWipe:
		ok = g.wipe()
	case ActReplace:
		ok = g.replace()
	case ActLoss:
		w.losses = true
		ok = g.loss()
	case ActFlip:
		ok = g.flip()
	case ActLease:
		w.losses = true
		ok = g.lease()
	case ActBalance:
		ok = g.balance()
	case ActRelapse:
		ok = g.relapse()
	case ActRaise:
		ok = g.raise()
	}
	if !ok {
		return false
	}
	w.sim.RunFor(between(g.rng.Uint64(), 10*time.Millisecond, 300*time.Millisecond))
	w.loading = false
	g.giveBack()
	w.heal()
	return w.awaitFor("service after the act", healsWithin, w.now(w.peaceful))
}

// without takes a node away for good.
func (g *stage) without() bool {
	s := g.w.sites[g.rng.IntN(len(g.w.sites))]
	g.take(s)
	if !g.served("service without "+s.name, s) {
		return false
	}
	g.w.sim.RunFor(between(g.rng.Uint64(), 0, 3*time.Second)) // it may have been served by the one that is away, as long as that lasted
	return g.served("service without "+s.name, s)
}

// take takes a node away until giveBack.
func (g *stage) take(s *site) {
	w := g.w
	how := g.rng.IntN(6)
	w.say("AWAY %s, way %d", s.name, how)
	w.disturb("")
	if how == 0 {
		s.crash(g.rng.Uint64())
		g.away = append(g.away, func() {
			if s.host == nil {
				s.boot()
			}
		})
		return
	}
	w.hurting++
	s.troubles++
	s.doubt(silenced)
	end := func() { w.hurting--; s.troubles--; s.doubt(silenced) }
	if how == 1 {
		h := s.host
		h.exec.Pause(time.Hour)
		w.net.Pause(s.name)
		g.away = append(g.away, func() {
			end()
			if s.host == h {
				h.exec.Resume()
				w.net.Resume(s.name)
			}
		})
		return
	}
	if how == 2 {
		h := s.host
		s.doubt(stalled)
		h.exec.SetLatency(func(*rand.Rand) time.Duration { return time.Hour })
		g.away = append(g.away, func() {
			end()
			if s.host == h {
				s.doubt(stalled)
				h.exec.SetLatency(nil)
			}
		})
		return
	}
	for _, o := range w.sites {
		if o == s {
			continue
		}
		if how != 3 {
			w.net.Cut(s.name, o.name)
		}
		if how != 4 {
			w.net.Cut(o.name, s.name)
		}
	}
	g.away = append(g.away, func() { end(); w.net.Heal() })
}

func (g *stage) giveBack() {
	for _, f := range g.away {
		f()
	}
	g.away = nil
}

// controller kills a node, and then does something to the controller's at a stage of the transitions that follow.
func (g *stage) controller() bool {
	w := g.w
	s := w.sites[g.rng.IntN(len(w.sites))]
	when, late := g.rng.IntN(3), between(g.rng.Uint64(), 0, 3*time.Millisecond)
	if g.rng.IntN(2) == 0 {
		late = between(g.rng.Uint64(), 0, 30*time.Millisecond)
	}
	before := w.epochs()
	s.crash(g.rng.Uint64())
	s.bootAfter(between(g.rng.Uint64(), 0, 3*time.Second))
	reached := func() bool {
		switch when {
		case 0: // recorded
			return w.pending()
		case 1: // sealed somewhere
			return w.pending() && w.sealed
		default: // committed
			return w.epochs() > before
		}
	}
	w.sealed = false
	w.sim.RunUntil(func() bool { return reached() || w.failed() }, 3*time.Second)
	w.sim.RunFor(late)
	if l := w.leader(); l != nil && l.host != nil {
		w.say("CONTROLLER %s", l.name)
		g.takeLeader(l)
	}
	w.sim.RunFor(between(g.rng.Uint64(), 0, 4*time.Second))
	return !w.failed()
}

// takeLeader kills, halts or cuts off the controller's node, for a while.
func (g *stage) takeLeader(l *site) {
	w := g.w
	n := len(g.away)
	g.take(l)
	end := g.away[n]
	given := false
	once := func() {
		if !given {
			given = true
			end()
		}
	}
	g.away[n] = once
	w.sim.At(w.sim.Now()+between(g.rng.Uint64(), 50*time.Millisecond, 4*time.Second), once)
}

// relay takes the owner of something away and kills its successor as it comes back.
func (g *stage) relay() bool {
	w := g.w
	t := w.targets[g.rng.IntN(len(w.targets))]
	if t.memory || t.maker || t.gone {
		t = w.targets[0]
	}
	s := w.ownerOf(t)
	if s == nil {
		return true
	}
	g.take(s)
	others := func() bool { o := w.ownerOf(t); return o != nil && o != s }
	w.sim.RunUntil(func() bool { return others() || w.failed() }, servesWithin)
	w.sim.RunFor(between(g.rng.Uint64(), 0, time.Second))
	next := w.ownerOf(t)
	g.giveBack()
	w.sim.RunFor(between(g.rng.Uint64(), 0, []time.Duration{2 * time.Millisecond, 40 * time.Millisecond, 400 * time.Millisecond}[g.rng.IntN(3)]))
	if next == nil || next == s || next.host == nil {
		return !w.failed()
	}
	if !g.made() {
		return false
	}
	w.say("SUCCESSOR %s", next.name)
	next.crash(g.rng.Uint64())
	g.away = append(g.away, func() {
		if next.host == nil {
			next.boot()
		}
	})
	if s.host == nil || w.failed() {
		return !w.failed()
	}
	return g.served("service without "+next.name, next)
}

// made mostly lets an image that has begun to take a copy's place become whole before what it comes from is killed; otherwise what needs the copy
// waits for that one.
func (g *stage) made() bool {
	w := g.w
	if !w.remaking() || g.rng.IntN(3) == 0 {
		return true
	}
	return w.awaitFor("whole images", healsWithin, w.now(func() bool { return !w.remaking() }))
}

// remaking reports whether an image takes the place of a copy and is not whole.
func (w *world) remaking() (yes bool) {
	w.each(func(_ *catalog.Resource, a *catalog.Assignment) {
		for _, m := range a.Followers {
			c := w.historyOf(a.Partition).of(m.Store)
			yes = yes || c != nil && c.remade
		}
	})
	return yes
}

// wipe has one follower of something be behind, and then the other lose its disk and the owner be killed. What was confirmed with the help of
// the lost disk is then on the owner's alone, and nobody may be chosen before it is back.
func (g *stage) wipe() bool {
	w := g.w
	t := w.targets[g.rng.IntN(len(w.targets))]
	owner := w.ownerOf(t)
	if len(w.sites) < 5 || owner == nil || t.memory || t.maker {
		return true
	}
	var copies []*site
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		if r.Name == t.spec.Name && len(copies) == 0 {
			for _, f := range a.Followers {
				copies = append(copies, w.siteOf(f.Node))
			}
		}
	})
	if len(copies) != 2 {
		return true
	}
	behind, lost := copies[0], copies[1]
	if g.rng.IntN(2) == 0 {
		behind, lost = lost, behind
	}
	owner.doubt(silenced)
	behind.doubt(silenced)
	w.net.Cut(owner.name, behind.name)
	w.sim.RunFor(between(g.rng.Uint64(), 50*time.Millisecond, 500*time.Millisecond))
	if w.failed() || owner.host == nil || lost.host == nil {
		return !w.failed()
	}
	w.say("%s loses its disk, %s is killed, %s is behind", lost.name, owner.name, behind.name)
	lost.crash(g.rng.Uint64())
	lost.fresh()
	owner.crash(g.rng.Uint64())
	w.net.Restore(owner.name, behind.name)
	lost.boot()
	w.sim.RunFor(between(g.rng.Uint64(), 500*time.Millisecond, 4*time.Second))
	if owner.host == nil {
		owner.boot()
	}
	return !w.failed()
}

// served waits until everything is served by other nodes than one: a publish to each resource is answered, or rightly waits for that node.
func (g *stage) served(what string, without *site) bool {
	w := g.w
	var probes []*probe
	asked := false
	waits := map[*target]func() bool{}
	for _, t := range w.targets {
		waits[t] = w.now(func() bool { return w.waitsFor(without, t) })
	}
	return w.awaitFor(what, servesWithin, func() bool {
		if !w.loading || without.host != nil && without.host.serving && !w.awayNow(without) {
			return true
		}
		if !asked {
			probes, asked = g.probes(without)
		}
		done := asked
		for _, p := range probes {
			done = (p.poll() || waits[p.t]()) && done
		}
		return done
	})
}

// waitsFor reports whether a resource can have no other owner before the one that is away comes back: too few of the other copies answer, because
// an image was to take the place of one, and what it came from is away with the owner.
func (w *world) waitsFor(away *site, t *target) bool {
	var newest *catalog.Assignment
	kind := catalog.Queue
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		if r.Name == t.spec.Name && (newest == nil || a.Version >= newest.Version) {
			newest, kind = a, r.Kind
		}
	})
	if newest == nil || newest.Owner.Node != away.name {
		return false
	}
	p, err := w.judged(newest)
	if err != nil {
		w.fail("the policy of %s: %v", t.spec.Name, err)
		return false
	}
	var others []*holding
	for _, m := range newest.Followers {
		s := w.siteOf(m.Node)
		if c := w.historyOf(newest.Partition).of(m.Store); c != nil && s != away && !w.awayNow(s) {
			others = append(others, c)
		}
	}
	return lacksRemade(quorum.R(p, newest.Eligible(), kind), others)
}

// lacksRemade reports whether fewer copies answer than are needed, and would be enough if the images were whole that take the place of some.
func lacksRemade(needed int, copies []*holding) bool {
	whole := 0
	for _, c := range copies {
		if !c.remade {
			whole++
		}
	}
	return whole < needed && len(copies) >= needed
}

// awayNow reports whether something keeps a node from the others.
func (w *world) awayNow(s *site) bool { return s.host == nil || s.troubles > 0 }

// probe is a client of its own that publishes to one resource again and again until that is served.
type probe struct {
	c       *client
	t       *target
	message uint64
	done    bool
}

func (g *stage) probes(without *site) (ps []*probe, ok bool) {
	w := g.w
	i := slices.IndexFunc(w.sites, func(s *site) bool { return s != without && s.host != nil && s.host.serving && s.troubles == 0 })
	if i < 0 {
		return nil, false
	}
	c := w.sites[i].host.client(0)
	w.clients = append(w.clients, c)
	c.connect()
	for _, t := range w.targets {
		if !t.memory && !t.maker && !t.gone && !t.damaged {
			ps = append(ps, &probe{c: c, t: t})
		}
	}
	return ps, true
}

// poll reports whether the resource is served, and publishes if that is not known.
func (p *probe) poll() bool {
	w := p.c.w
	if p.done || p.t.gone || p.t.damaged || p.c.host.site.host != p.c.host {
		return true
	}
	if p.c.ended || p.c.session == nil {
		p.c.connect()
	}
	if !p.c.open {
		return false
	}
	o, answered := w.answers[p.message]
	switch {
	case p.message == 0, answered && o == check.Unknown, p.c.session == nil:
		if p.c.stopped || p.c.blocked {
			return false
		}
		p.message = w.messages + 1
		w.answers[p.message] = ""
		p.c.publishOne("", p.t.spec.Name, p.t, []*target{p.t}, 0)
	case answered && o != "":
		p.done = true
	}
	return p.done
}

// noteLeader remembers who leads the catalog's consensus.
func (w *world) noteLeader(e trace.Event) {
	var who string
	var term uint64
	for _, a := range e.Attrs {
		switch a.Key {
		case "leader":
			who = a.Value.String()
		case "term":
			term = attrNumber(a.Value)
		}
	}
	if term >= w.term && who != "none" {
		w.led, w.term = who, term
	}
}

// leader is where the catalog's consensus is led, as far as it is known.
func (w *world) leader() *site {
	for _, s := range w.sites {
		if s.host != nil && s.host.node != nil && w.led == fmt.Sprintf("%x", consensus.ID(s.host.node.Local().Store)) {
			return s
		}
	}
	return nil
}

// each calls f with every assignment that any node knows of.
func (w *world) each(f func(r *catalog.Resource, a *catalog.Assignment)) {
	for _, h := range w.hosts() {
		h.node.View(func(v *catalog.View) {
			for _, r := range v.AllResources() {
				for _, a := range r.Partitions {
					if r.Home == nil {
						f(r, a)
					}
				}
			}
		})
	}
}

// pending reports whether a transition is recorded.
func (w *world) pending() (yes bool) {
	w.each(func(_ *catalog.Resource, a *catalog.Assignment) { yes = yes || a.Pending != nil })
	return yes
}

// epochs is the sum of all epochs, as the node knows that knows of most.
func (w *world) epochs() (most uint64) {
	for _, h := range w.hosts() {
		sum := uint64(0)
		h.node.View(func(v *catalog.View) {
			for _, r := range v.AllResources() {
				for _, a := range r.Partitions {
					sum += a.Epoch
				}
			}
		})
		most = max(most, sum)
	}
	return most
}

// ownerOf is where a resource is owned, by the newest word of any node; nil if nobody knows.
func (w *world) ownerOf(t *target) (s *site) {
	epoch := uint64(0)
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		if r.Name != t.spec.Name || a.Epoch < epoch {
			return
		}
		epoch, s = a.Epoch, w.siteOf(a.Owner.Node)
	})
	return s
}

// siteOf is the site of a node; nil if there is none of that name.
func (w *world) siteOf(node string) *site {
	i := slices.IndexFunc(w.sites, func(s *site) bool { return s.name == node })
	if i < 0 {
		return nil
	}
	return w.sites[i]
}
