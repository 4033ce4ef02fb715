package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/controller"
)

// losesWithin is how long, in virtual time, an operator may have to ask again until an accepted loss is done.
const losesWithin = 15 * time.Second

// loss takes two of the three copies of something away, the third perhaps behind, and has an operator accept what is gone. It needs five nodes,
// or the catalog is lost with the copies.
func (g *stage) loss() bool {
	w := g.w
	t := w.targets[g.rng.IntN(len(w.targets))]
	copies := w.copiesOf(t)
	if !w.fiveVote() || len(copies) != 3 || t.memory || t.maker || t.dead != "" || t.spec.Name == "graves" {
		return true
	}
	w.operator.set(catalog.LearnerRate, "0") // of an owner that is left others learn; it is known for how long then
	left := g.rng.IntN(3)
	survivor, lost := copies[left], slices.Delete(slices.Clone(copies), left, left+1)
	if left > 0 && g.rng.IntN(3) > 0 { // what is confirmed meanwhile is on the others only
		copies[0].doubt(silenced)
		survivor.doubt(silenced)
		w.net.Cut(copies[0].name, survivor.name)
		w.sim.RunFor(between(g.rng.Uint64(), 20*time.Millisecond, 400*time.Millisecond))
	}
	var names []string
	copies[0].doubt(silenced)
	for _, s := range lost {
		if s.host == nil || w.failed() {
			return !w.failed()
		}
		names = append(names, s.name)
		s.crash(g.rng.Uint64())
		g.away = append(g.away, func() {
			if s.host == nil {
				s.boot()
			}
		})
	}
	w.net.Restore(copies[0].name, survivor.name)
	w.say("LOST %v, of %s", names, t.spec.Name)
	w.sim.RunFor(between(g.rng.Uint64(), 0, 2*time.Second))
	if !g.accept(t, names) {
		return false
	}
	return g.servesOne(t)
}

// fiveVote reports whether the catalog can lose any two nodes, as every node knows.
func (w *world) fiveVote() bool {
	return len(w.hosts()) >= 5 && !slices.ContainsFunc(w.hosts(), func(h *host) bool { return h.voters < 5 })
}

// accept has an operator plan the loss and carry it out, again and again until it is done.
func (g *stage) accept(t *target, stopped []string) bool {
	w := g.w
	p, ok := w.partitionOf(t)
	if !ok {
		return true
	}
	done, asking := false, false
	return w.awaitFor("accepted loss of "+t.spec.Name, losesWithin, w.now(func() bool {
		l := w.leader()
		if done || asking || l == nil || !l.host.serving || l.troubles > 0 { // one that is cut off may take itself for the leader
			return done
		}
		asking = true
		again := func() { w.sim.At(w.sim.Now()+100*time.Millisecond, func() { asking = false }) }
		h, answered := l.host, false
		w.sim.At(w.sim.Now()+10*time.Second, func() { asking = asking && answered })
		h.node.Loss(controller.LossRequest{Partition: p}, func(o controller.LossOutcome) {
			w.say("PLAN of a loss: %+v", o)
			answered = true
			if s := w.ownerOf(t); s == nil || s.troubles == 0 { // else it is not missed yet
				done = o.Refused == "" && strings.HasPrefix(o.Plan.Against, "nothing has to be given up")
			}
			if done {
				return // its owner was left, and has enough others by now
			}
			if o.Refused != "" || o.Plan.Against != "" {
				again()
				return
			}
			q := controller.LossRequest{Partition: p, Execute: true, Plan: o.Plan.Hash(), Reason: "simulated", Stopped: stopped}
			h.node.Loss(q, func(o controller.LossOutcome) {
				w.say("LOSS: %+v", o)
				if done = o.Refused == ""; !done {
					again()
				}
			})
		})
		return false
	}))
}

// servesOne waits until one resource is served: a publish to it is answered.
func (g *stage) servesOne(t *target) bool {
	w := g.w
	var p *probe
	return w.awaitFor("service of what is left", servesWithin, func() bool {
		if p == nil {
			h := w.anyHost()
			if h != nil && h.site.troubles > 0 {
				h = w.calmHost()
			}
			if h == nil {
				return false
			}
			p = &probe{c: h.client(0), t: t}
			w.clients = append(w.clients, p.c)
			p.c.connect()
		}
		return p.poll()
	})
}

// partitionOf is a resource's one partition, as some node knows.
func (w *world) partitionOf(t *target) (p ident.Partition, ok bool) {
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		if r.Name == t.spec.Name {
			p, ok = a.Partition, true
		}
	})
	return p, ok
}

// copiesOf are the places of a resource's copies that count, the owner's first, by the newest word of any node.
func (w *world) copiesOf(t *target) (copies []*site) {
	version := uint64(0)
	w.each(func(r *catalog.Resource, a *catalog.Assignment) {
		if r.Name != t.spec.Name || a.Version < version {
			return
		}
		version, copies = a.Version, nil
		names := []string{a.Owner.Node}
		for _, m := range a.Followers {
			names = append(names, m.Node)
		}
		for _, n := range names {
			copies = append(copies, w.siteOf(n))
		}
	})
	return copies
}

// looks learns of losses that were accepted, from the catalog as a node knows it, before anything that it does is judged by them.
func (h *history) looks(by *host) {
	if !h.w.losses || by == nil || by.node == nil {
		return
	}
	by.node.View(func(v *catalog.View) {
		if a, r := v.Assignment(h.p); a != nil && r.Home == nil {
			h.gaveUp(a, r.Name)
		}
	})
}

// gaveUp takes what an accepted loss gave up out of what is confirmed.
func (h *history) gaveUp(a *catalog.Assignment, name string) {
	for _, s := range a.Starts {
		if !s.Loss.Accepted || s.Epoch <= h.accepted {
			continue
		}
		h.accepted = s.Epoch
		h.w.say("GAVE UP %s from position %d, offset %d", name, s.Position, s.Offset)
		if h.confirmed > s.Position {
			h.confirmed, h.confirmedAs = s.Position, mark{}.tail
		}
		for at := range h.links {
			if at > s.Position {
				delete(h.links, at)
			}
		}
		h.from = s.Offset
		maps.DeleteFunc(h.given, func(offset, _ uint64) bool { return offset >= s.Offset })
		h.w.earsOf(h.p).gaveUp(s.Offset)
		if t := h.w.target(name); t != nil {
			h.w.offsets[t.key] = h.w.offsets[t.key][:min(uint64(len(h.w.offsets[t.key])), s.Offset)]
			h.w.tops[t.key] = min(h.w.tops[t.key], s.Offset)
			h.w.see(check.Event{Kind: check.GivenUp, Resource: t.key, Offset: s.Offset})
		}
	}
}

// gaveUp forgets the settles of what an accepted loss gave up: they are answered, and settle nothing.
func (e *ears) gaveUp(offset uint64) {
	gone := func(x handed) bool { return x.offset >= offset }
	e.handed = slices.DeleteFunc(e.handed, gone)
	for i := range e.said {
		e.said[i].messages = slices.DeleteFunc(e.said[i].messages, gone)
	}
}

// stale reports whether a delivery is of what was given up since.
func (w *world) stale(d delivery) bool {
	h := w.historyOf(d.ref.Partition)
	return d.era != h.accepted && d.ref.Offset >= h.from
}
