package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
)

// replacesWithin is how long, in virtual time, it may take until no copy is counted on a node that is away, once its hold is over and nothing
// else fails: a controller that has just begun, the round in which copies are planned, learners that are fed, and the answer of the catalog.
const replacesWithin = 15 * time.Second

// replace takes a node away until its copies are made on others.
func (g *stage) replace() bool {
	w := g.w
	if len(w.sites) < 4 {
		return true
	}
	w.operator.set(catalog.FollowerLossHold, "1s")
	w.operator.set(catalog.LearnerRate, "0") // so that it is known for how long a copy may take
	s := w.sites[g.rng.IntN(len(w.sites))]
	five := w.fiveVote()
	g.take(s)
	g.disturbLater(s)
	if !w.awaitFor("other copies in the place of those on "+s.name, replacesWithin, w.now(func() bool { return w.places(s) == "" })) {
		return false
	}
	w.say("REPLACED %s", s.name)
	if !five || !g.served("service without "+s.name, s) {
		return !w.failed()
	}
	next := s.other(g.rng.Uint64())
	if next.host == nil || next.troubles > 0 || !w.up(3, next) {
		return true
	}
	g.take(next)
	return g.served(fmt.Sprintf("service without %s and %s", s.name, next.name), next)
}

// disturbLater has another node fail while one is away, mostly: it is killed and comes back.
func (g *stage) disturbLater(away *site) {
	w := g.w
	if g.rng.IntN(3) == 0 {
		return
	}
	o := away.other(g.rng.Uint64())
	how, back := g.rng.Uint64(), between(g.rng.Uint64(), 100*time.Millisecond, 3*time.Second)
	w.sim.At(w.sim.Now()+between(g.rng.Uint64(), 0, 5*time.Second), func() {
		if w.loading && o.host != nil && o.host.serving && o.troubles == 0 && w.up(2, o) {
			w.say("KILLED too: %s", o.name)
			o.crash(how)
			o.bootAfter(back)
		}
	})
}

// up reports whether so many nodes beside one serve, untroubled.
func (w *world) up(n int, beside *site) bool {
	for _, s := range w.sites {
		if s != beside && s.host != nil && s.host.serving && s.troubles == 0 {
			n--
		}
	}
	return n <= 0
}

// places says what counts a copy on a node, by the newest word of those that are not troubled; empty if nothing does.
func (w *world) places(s *site) (text string) {
	version := map[string]uint64{}
	places := map[string]bool{}
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		key := a.Partition.String()
		if a.Version < version[key] {
			return
		}
		version[key] = a.Version
		places[key] = a.Owner.Node == s.name
		for _, m := range a.Followers {
			places[key] = places[key] || m.Node == s.name
		}
		places[key] = places[key] && r.Durable
	})
	for _, r := range slices.Sorted(maps.Keys(places)) {
		if places[r] {
			text += r + " has a copy there; "
		}
	}
	return text
}

// flip turns some bits of one node, one after the other, and perhaps has another node be away for a while meanwhile.
func (g *stage) flip() bool {
	w := g.w
	for range 1 + g.rng.IntN(2) {
		s := w.sites[g.rng.IntN(len(w.sites))]
		if !s.mayLose() {
			break
		}
		for range 1 + g.rng.IntN(3) {
			if s.host == nil || !s.host.serving {
				break
			}
			s.flipRunning(planned{a: g.rng.Uint64(), b: g.rng.Uint64(), c: g.rng.Uint64()})
			w.sim.RunFor(between(g.rng.Uint64(), 0, 300*time.Millisecond))
		}
		g.disturbLater(s)
		w.sim.RunFor(between(g.rng.Uint64(), time.Second, 6*time.Second))
		if w.failed() {
			return false
		}
	}
	return true
}
