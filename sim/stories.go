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

// balancesWithin is how long, in virtual time, it may take until copies are in balance, once all nodes are there and nothing else is to do: they
// move two at a time.
const balancesWithin = 20 * time.Second

// balance has a node be without copies, since it was away for longer than they were held or was to be left, and back: copies come to it again
// until no node has two more than another that could take one.
func (g *stage) balance() bool {
	w := g.w
	if len(w.sites) < 4 {
		return true
	}
	w.operator.set(catalog.FollowerLossHold, "1s")
	w.operator.set(catalog.LearnerRate, "0")
	w.operator.set(catalog.Rebalance, "on")
	s := w.sites[g.rng.IntN(len(w.sites))]
	if g.rng.IntN(2) == 0 {
		g.take(s)
		if !w.awaitFor("other copies in the place of those on "+s.name, replacesWithin, w.now(func() bool { return w.places(s) == "" })) {
			return false
		}
		g.giveBack()
	} else {
		w.operator.changed = true
		w.operator.draining(s, true)
		if !w.awaitFor("other followers than those on "+s.name, replacesWithin, w.now(func() bool { return !w.follows(s) })) {
			return false
		}
		w.operator.draining(s, false)
	}
	if !w.awaitFor("peace with "+s.name, healsWithin, w.now(w.peaceful)) {
		return false
	}
	return w.awaitBalance()
}

// awaitBalance waits until copies are in balance, and for a while longer: they must stay, unless clients make and delete what has copies.
func (w *world) awaitBalance() bool {
	text := ""
	even := w.now(func() bool { text = w.uneven(); return text == "" })
	w.sim.RunUntil(func() bool { return even() || w.failed() }, balancesWithin)
	if w.failed() || !w.loading {
		return false
	}
	if text != "" {
		w.fail("no balance within %v of virtual time: %s", balancesWithin, text)
		return false
	}
	if slices.ContainsFunc(w.targets, func(t *target) bool { return t.maker }) {
		return true
	}
	moves := w.moves()
	w.sim.RunFor(2 * time.Second)
	if text = w.uneven(); text != "" || w.moves() != moves {
		w.fail("copies do not stay where they were in balance: %d versions more; %s", w.moves()-moves, text)
	}
	return !w.failed()
}

// moves counts the versions of all assignments, as the node knows that knows of most.
func (w *world) moves() (most uint64) {
	for _, h := range w.hosts() {
		sum := uint64(0)
		h.node.View(func(v *catalog.View) {
			for _, r := range v.AllResources() {
				for _, a := range r.Partitions {
					sum += a.Version
				}
			}
		})
		most = max(most, sum)
	}
	return most
}

// follows reports whether a node has the copy of a follower, as any node knows.
func (w *world) follows(s *site) (yes bool) {
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		for _, m := range a.Followers {
			yes = yes || r.Durable && m.Node == s.name
		}
	})
	return yes
}

// uneven says what is not in balance, by the word of the node that the catalog is led on; empty if everything is. Owners stay where they are. A
// follower's copy is to move where its node has two or more copies more than another has, which has none of that partition and is in the
// same zone, or in one that has fewer of them.
func (w *world) uneven() (text string) {
	l := w.leader()
	if l == nil || !l.host.serving {
		return "nobody leads"
	}
	l.host.node.View(func(v *catalog.View) {
		copies := map[string]int{}
		for _, r := range v.AllResources() {
			for _, a := range r.Partitions {
				if r.Home != nil {
					continue
				}
				text += w.unfinished(r, a)
				for n := range nodesOfCopies(a) {
					copies[n]++
				}
			}
		}
		for _, r := range v.AllResources() {
			for _, a := range r.Partitions {
				if r.Home == nil {
					text += w.movable(r.Name, a, copies)
				}
			}
		}
	})
	return text
}

// movable says which follower's copy of a partition is to move, and to where.
func (w *world) movable(name string, a *catalog.Assignment, copies map[string]int) (text string) {
	nodes := nodesOfCopies(a)
	zones := map[string]int{}
	for n := range nodes {
		zones[w.siteOf(n).zone()]++
	}
	for _, m := range a.Followers {
		from := w.siteOf(m.Node)
		for _, to := range w.sites {
			apart := to.zone() != from.zone() && zones[to.zone()] >= zones[from.zone()]
			if !nodes[to.name] && !apart && copies[from.name] >= copies[to.name]+2 {
				text += fmt.Sprintf("%s has a copy on %s, which has %d, and %s has %d; ", name, from.name, copies[from.name], to.name, copies[to.name])
			}
		}
	}
	return text
}

// nodesOfCopies are the nodes of the copies of a partition that count.
func nodesOfCopies(a *catalog.Assignment) map[string]bool {
	nodes := map[string]bool{a.Owner.Node: true}
	for _, m := range a.Followers {
		nodes[m.Node] = true
	}
	return nodes
}

// relapse keeps an owner from its controller, which has the other copies promise another epoch; one of those is started anew at once, and hears the
// owner, while the way to the catalog's answer is slow. What it holds was counted on by then: it must follow nobody of the epoch before.
func (g *stage) relapse() bool {
	w := g.w
	l := w.leader()
	var fit []*target
	for _, t := range w.targets {
		if s := w.ownerOf(t); !t.memory && !t.maker && s != nil && s != l && s.host != nil && len(w.copiesOf(t)) == 3 {
			fit = append(fit, t)
		}
	}
	if l == nil || len(fit) == 0 {
		return true
	}
	t := fit[g.rng.IntN(len(fit))]
	owner, copies := w.ownerOf(t), w.copiesOf(t)
	p, _ := w.partitionOf(t)
	beside := copies[1+g.rng.IntN(2)]
	if beside == l {
		beside = copies[1+copies[2].index()%2]
	}
	if beside == l || beside.host == nil {
		return true
	}
	g.apart([]*site{owner}, []*site{l})
	w.sim.RunUntil(func() bool { return w.pending() || w.failed() }, servesWithin)
	g.slowed(l, between(g.rng.Uint64(), 50*time.Millisecond, 500*time.Millisecond))
	had := beside.witness.of(p).promise
	w.sim.RunUntil(func() bool { return beside.witness.of(p).promise > had || w.failed() }, servesWithin)
	w.sim.RunFor(between(g.rng.Uint64(), 0, 40*time.Millisecond))
	if w.failed() || beside.host == nil {
		return !w.failed()
	}
	w.say("PROMISED and started anew: %s", beside.name)
	beside.crash(g.rng.Uint64())
	beside.boot()
	w.sim.RunFor(between(g.rng.Uint64(), 10*time.Millisecond, time.Second))
	g.giveBack()
	w.sim.RunFor(between(g.rng.Uint64(), 0, 2*time.Second))
	return !w.failed()
}

// slowed has what a node sends to others take long until giveBack.
func (g *stage) slowed(s *site, most time.Duration) {
	w := g.w
	end := w.ails(s)
	for _, o := range w.sites {
		if o != s {
			o.doubt(silenced)
			w.links[link{s.name, o.name}] = most
		}
	}
	g.away = append(g.away, func() {
		end()
		clear(w.links)
	})
}

// raise has something need all its copies, and keeps one of them from its owner as soon as that asks the catalog: nothing is confirmed without it
// from before the evidence is read (design 2 §5, joint rule), however long the answer takes.
func (g *stage) raise() bool {
	w := g.w
	t := w.targets[g.rng.IntN(len(w.targets))]
	owner, copies := w.ownerOf(t), w.copiesOf(t)
	p, known := w.partitionOf(t)
	if t.memory || t.maker || !known || owner == nil || owner.host == nil || len(copies) != 3 {
		return true
	}
	with, most := copies[1+g.rng.IntN(2)], between(g.rng.Uint64(), 50*time.Millisecond, 500*time.Millisecond)
	asked := false
	w.proposed = func(by *site, m catalog.Membership) {
		if asked || by != owner || m.Partition != p || m.Policy != "all_durable" {
			return
		}
		asked = true
		g.apart([]*site{owner}, []*site{with})
		if l := w.leader(); l != nil {
			g.slowed(l, most)
		}
	}
	w.operator.changed = true
	w.operator.want(t.spec.Name, "all_durable", 0)
	w.sim.RunUntil(func() bool { return asked || w.failed() }, servesWithin)
	w.proposed = nil
	w.sim.RunFor(between(g.rng.Uint64(), 50*time.Millisecond, time.Second))
	g.giveBack()
	return !w.failed()
}
