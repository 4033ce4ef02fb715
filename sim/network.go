package sim

import (
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
)

// link is one direction between two nodes.
type link struct{ from, to string }

// calmAfter is how long nothing must disturb a cluster before what its nodes agree on may be held against them.
const calmAfter = 2 * time.Second

// delay is how long a message takes.
func (w *world) delay(from, to string, p mesh.Purpose) time.Duration {
	d := 50*time.Microsecond + time.Duration(w.sim.Rand().Int64N(int64(500*time.Microsecond)))
	if most := w.links[link{from, to}]; most > 0 {
		d += time.Duration(w.sim.Rand().Int64N(int64(most)))
	}
	if p == mesh.Bulk {
		d *= 4
	}
	return d
}

// injectCluster does what only a cluster meets.
func (s *site) injectCluster(p planned) {
	w := s.w
	switch p.kind {
	case FaultKill:
		s.crash(p.a)
		s.bootAfter(between(p.b, 0, 5*time.Second))
	case FaultPower:
		for _, o := range w.sites {
			o.crash(p.a)
			o.bootAfter(between(p.b>>(8*o.index()), 0, 2*time.Second))
		}
	case FaultBreak:
		s.doubt(broken)
		s.other(p.a).doubt(broken)
		w.net.Break(s.name, s.other(p.a).name)
	case FaultCut:
		w.cut(s, p)
	case FaultSlow:
		w.slow(s, p)
	case FaultWipe:
		s.wipe(p)
	case FaultWish:
		w.operator.wish(p)
	case FaultDrain:
		w.operator.drain(s, p)
	}
}

func (s *site) index() int {
	for i, o := range s.w.sites {
		if o == s {
			return i
		}
	}
	return -1
}

// other draws another place.
func (s *site) other(draw uint64) *site {
	n := uint64(len(s.w.sites))
	return s.w.sites[(uint64(s.index())+1+draw%(n-1))%n]
}

// bootAfter starts the node in a while, unless something else does.
func (s *site) bootAfter(d time.Duration) {
	runs := s.runs
	s.w.sim.At(s.w.sim.Now()+d, func() {
		if s.host == nil && s.runs == runs {
			s.boot()
		}
	})
}

// cut keeps a node from hearing another, or being heard by it, or both; or from all others; for a while.
func (w *world) cut(s *site, p planned) {
	var cuts []link
	troubled := []*site{s}
	for i, o := range w.sites {
		if o == s || p.a%3 > 0 && o != s.other(p.b) {
			continue
		}
		troubled = append(troubled, o)
		if way := p.c >> (2 * i) % 4; way != 1 {
			cuts = append(cuts, link{s.name, o.name})
		}
		if way := p.c >> (2 * i) % 4; way != 2 {
			cuts = append(cuts, link{o.name, s.name})
		}
	}
	for _, c := range cuts {
		w.say("CUT %s → %s", c.from, c.to)
		w.net.Cut(c.from, c.to)
	}
	w.lasts(between(p.a>>8, 50*time.Millisecond, 5*time.Second), troubled, func() {
		for _, c := range cuts {
			w.net.Restore(c.from, c.to)
		}
	})
}

// slow makes some ways of a node slow for a while.
func (w *world) slow(s *site, p planned) {
	most := between(p.a, time.Millisecond, 30*time.Millisecond)
	if p.a>>32%3 == 0 {
		most = between(p.a, 30*time.Millisecond, 700*time.Millisecond)
	}
	var slowed []link
	troubled := []*site{s}
	for i, o := range w.sites {
		if o == s {
			continue
		}
		if p.c>>(2*i)&1 == 0 {
			slowed = append(slowed, link{s.name, o.name})
		}
		if p.c>>(2*i)&2 == 0 {
			slowed = append(slowed, link{o.name, s.name})
		}
		troubled = append(troubled, o)
	}
	for _, l := range slowed {
		w.links[l] = most
	}
	w.lasts(between(p.b, 100*time.Millisecond, 5*time.Second), troubled, func() {
		for _, l := range slowed {
			delete(w.links, l)
		}
	})
}

// silentFor is how long a node may stand still without its owners being doubted: less than the liveness expiry, by what a heartbeat takes.
const silentFor = 1200 * time.Millisecond

// heardWithin is how long a node may stand still without its owners being doubted while a controller is new or could not run itself: less than
// it then gives nodes to be heard (control.Limits.TakeoverGrace), by what a heartbeat takes.
const heardWithin = 200 * time.Millisecond

// lasts counts a fault among those that are on, until end is called. What the troubled places own may rightly be taken from them, and from
// runs that begin there meanwhile.
func (w *world) lasts(d time.Duration, troubled []*site, end func()) {
	w.hurting++
	for _, s := range troubled {
		s.troubles++
		s.doubt(silenced)
	}
	w.sim.At(w.sim.Now()+d, func() {
		w.hurting--
		for _, s := range troubled {
			s.troubles--
			s.doubt(silenced)
		}
		end()
	})
}

// pause stops the process of a node as SIGSTOP does.
func (h *host) pause(d time.Duration) {
	w := h.w
	h.exec.Pause(d)
	if !w.cluster() {
		return
	}
	w.net.Pause(h.site.name)
	var troubled []*site
	switch {
	case d > silentFor:
		troubled = append(troubled, h.site)
	case d > heardWithin:
		if h.dozes = true; w.hurting > 0 {
			h.site.doubt(silenced)
		}
	}
	w.lasts(d, troubled, func() {
		h.dozes = false
		if h.site.host == h && !h.exec.Paused() {
			w.net.Resume(h.site.name)
		}
	})
}

// healNetwork takes away what troubles links and processes.
func (w *world) healNetwork() {
	w.net.Heal()
	clear(w.links)
	for _, s := range w.sites {
		if s.host != nil {
			s.host.exec.Resume()
			w.net.Resume(s.name)
		}
	}
}

// disturb says that something has happened that not every node may know of for a while. owner is the run that has ended, if one has.
func (w *world) disturb(owner string) {
	w.see(check.Event{Kind: check.Disturbed, Owner: owner})
	for _, s := range w.sites {
		if s.host != nil && s.host.dozes { // this may be what another controller comes from, who waits less long for it
			s.doubt(silenced)
		}
	}
	w.still = w.sim.Now()
	if !w.restless {
		w.restless = true
		w.calm()
	}
}

// calm waits until nothing has disturbed the nodes for a while.
func (w *world) calm() {
	w.sim.At(w.sim.Now()+50*time.Millisecond, func() {
		if !w.peaceful() {
			w.still = w.sim.Now()
		}
		if w.sim.Now()-w.still < calmAfter {
			w.calm()
			return
		}
		w.restless = false
		w.see(check.Event{Kind: check.Calm})
	})
}

// peaceful reports whether all nodes are up, hear each other, and know who owns what.
func (w *world) peaceful() bool {
	n := len(w.sites)
	if w.hurting > 0 || !w.serving() || w.net.Sessions() < n*(n-1)/2 {
		return false
	}
	live := map[string]bool{}
	for _, h := range w.hosts() {
		if h.hurt {
			return false
		}
		live[h.instance()] = true
	}
	ok := true
	for _, h := range w.hosts() {
		h.node.View(func(v *catalog.View) {
			for _, r := range v.AllResources() {
				for _, a := range r.Partitions {
					ok = ok && a.Pending == nil && live[a.Owner.String()]
				}
			}
		})
	}
	return ok
}

// wipe ends a node and takes its disk away. It comes back as a new store under the old name.
func (s *site) wipe(p planned) {
	w := s.w
	s.crash(p.a)
	w.say("%s loses its disk", s.name)
	s.fresh()
	s.bootAfter(between(p.b, 0, 3*time.Second))
}

// heedful holds what a node is told of its sessions against what the mesh promises: one at a time with each other node, and none begins
// before the end of the last was told.
type heedful struct {
	mesh.Handler
	s  *site
	up map[string]ident.Instance
}

// Up implements mesh.Handler.
func (h heedful) Up(peer ident.Instance) {
	if old, is := h.up[peer.Node]; is {
		h.s.w.fail("the mesh tells %s of a session with %v, and of one with %v before whose end it has not told", h.s.name, peer, old)
	}
	h.up[peer.Node] = peer
	h.Handler.Up(peer)
}

// Down implements mesh.Handler.
func (h heedful) Down(peer ident.Instance, cause mesh.Cause, reason string) {
	if h.up[peer.Node] != peer {
		h.s.w.fail("the mesh tells %s of the end of a session with %v, which there was not", h.s.name, peer)
	}
	delete(h.up, peer.Node)
	h.Handler.Down(peer, cause, reason)
}
