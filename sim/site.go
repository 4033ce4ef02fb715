package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/vfs"
)

// site is the place of one node: its disk, its clock, what it keeps beside its data, and the run that it is in, if it is.
type site struct {
	w       *world
	name    string
	disk    *vfs.Memory
	clock   *clock.Sim
	witness *witness
	host    *host
	runs    uint64
	flipped bool
	broken  bool // a write or sync of this run was made to fail

	peers    []mesh.Peer // that the node was told of last
	enrolled ident.StoreID
	before   ident.StoreID // of the disk that was lost last
	wiped    bool          // it has lost its disk once
	troubles int           // faults that last, of which its runs may lose what they own
	drains   int           // how often an operator has said whether it is to be left
	ailed    time.Duration // when something was done to it last, or a run began
}

// newSite makes the place of node i, counted from 0.
func newSite(w *world, i int) *site {
	s := &site{w: w, name: fmt.Sprint("n", i+1), disk: vfs.NewMemory(w.opt.Seed + uint64(i)<<48)}
	s.clock = clock.NewSim(w.sim.Now, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	s.syncs()
	s.witness = newWitness(s)
	return s
}

// cluster reports whether there is more than one node.
func (w *world) cluster() bool { return len(w.sites) > 1 }

// hosts are the runs that take clients, in order of node.
func (w *world) hosts() (up []*host) {
	for _, s := range w.sites {
		if s.host != nil && s.host.serving {
			up = append(up, s.host)
		}
	}
	return up
}

// serving reports whether every node takes clients.
func (w *world) serving() bool { return len(w.hosts()) == len(w.sites) }

// anyHost draws a run that takes clients; nil if there is none.
func (w *world) anyHost() *host {
	up := w.hosts()
	if len(up) == 0 {
		return nil
	}
	return up[w.rng.IntN(len(up))]
}

// mesh makes the end of a run.
func (s *site) mesh(local ident.Instance, g ident.Generation, waits func() bool) (mesh.Mesh, error) {
	return end{s.w.net.EndOf(local, g, waits), s}, nil
}

// enrol has a node that is up record this one's store, as a registrar does whom a token has convinced: a name's second store takes the
// place of the first.
func (s *site) enrol(h *host) {
	w, local := s.w, h.node.Local()
	by := w.anyHost()
	if by == nil {
		w.retry(h, func() { s.enrol(h) })
		return
	}
	n := catalog.Node{Name: s.name, Store: local.Store, Boot: local.Boot, Mesh: s.address(), Zone: s.zone()}
	item := catalog.RegisterBoot(n)
	if !s.enrolled.IsZero() {
		item = catalog.ReplaceNode(s.enrolled, n)
	}
	cmd, err := catalog.Encode(item)
	if err != nil {
		w.fail("the enrolment of %s: %v", s.name, err)
		return
	}
	by.node.Propose(cmd, func(r catalog.Result, err error) {
		w.sim.At(w.sim.Now(), func() {
			switch {
			case s.host != h:
			case err == nil && r.Err() != nil:
				w.fail("the enrolment of %s is refused: %v", s.name, r.Err())
			case err != nil:
				w.retry(h, func() { s.enrol(h) })
			default:
				s.enrolled = local.Store
				h.start()
			}
		})
	})
	run := by.site.runs
	w.sim.At(w.sim.Now()+5*time.Second, func() { // the registrar may have died with the question
		if s.host == h && s.enrolled != local.Store && by.site.runs != run {
			s.enrol(h)
		}
	})
}

func (s *site) address() string { return s.name + ":1" }

// zone puts the nodes into two zones in every other simulation.
func (s *site) zone() string {
	if s.w.opt.Seed%2 == 0 {
		return ""
	}
	return fmt.Sprint("zone-", slices.Index(s.w.sites, s)%2)
}

// retry calls f in a while, if the run is still on.
func (w *world) retry(h *host, f func()) {
	w.sim.At(w.sim.Now()+time.Duration(20+w.rng.IntN(100))*time.Millisecond, func() {
		if h.site.host == h {
			f()
		}
	})
}

// crash ends the node's run at once and leaves the disk as a kernel may.
func (s *site) crash(how uint64) {
	w := s.w
	if h := s.host; h != nil {
		if w.cluster() {
			w.net.Kill(s.name)
		}
		h.exec.Stop()
		w.ended(h)
		s.host = nil
	}
	s.disk.Crash(how)
	s.broken = false
}

// ended records that a run is over, with all that was true of it only.
func (w *world) ended(h *host) {
	if !w.cluster() {
		w.see(check.Event{Kind: check.Crashed})
	}
	gone := func(c *client) bool { return c.host == h }
	for _, c := range w.clients {
		if gone(c) {
			c.die()
		}
	}
	w.clients = slices.DeleteFunc(w.clients, gone)
	if w.setup != nil && w.setup.host == h {
		w.setup.die()
	}
	if w.cluster() {
		w.harms[h.instance()] |= ended
		w.disturb(h.instance())
	}
	for _, p := range w.producers {
		if p.owner != nil && p.owner.host == h {
			p.owner = nil
		}
	}
	w.forget(h)
	w.sim.At(w.sim.Now()+time.Duration(w.rng.IntN(200))*time.Millisecond, w.fill)
}

// forget drops what was only true of the run that has ended.
func (w *world) forget(h *host) {
	for _, e := range w.sortedEars() {
		e.forget(h)
	}
	for _, t := range w.targets {
		if !w.cluster() {
			t.gone = t.gone || t.maker || t.memory || t.busy
			t.busy = false
			if t.memory && t.born > 0 {
				w.see(check.Event{Kind: check.Deleted, Resource: t.key})
			}
			continue
		}
		if t.busy && t.by == h {
			if t.purging {
				w.losePurge(t)
			} else {
				t.gone, t.busy = true, false
			}
		}
		if t.memory && t.born > 0 && t.home == h && !t.lost {
			t.gone, t.lost = true, true
			w.see(check.Event{Kind: check.Deleted, Resource: t.key})
		}
	}
}

// onTheWay is for how long what a node has said may still arrive after its end.
const onTheWay = 2 * time.Second

// losePurge gives a purge up whose client is gone, once nothing of it can be on its way any more. Until then it may be done at any time.
func (w *world) losePurge(t *target) {
	t.by = nil
	w.sim.At(w.sim.Now()+onTheWay, func() {
		w.see(check.Event{Kind: check.PurgeLost, Resource: t.key})
		t.busy, t.purging = false, false
	})
}

// fill has clients come until there are as many as there should be, each at a node of its choice.
func (w *world) fill() {
	for len(w.clients) < w.want && w.open {
		h := w.anyHost()
		if h == nil {
			return
		}
		c := h.client(w.rng.IntN(h.loops))
		w.clients = append(w.clients, c)
		c.next()
	}
}

// wanted draws how many clients work at a time.
func (w *world) wanted() int {
	if w.opt.Clients > 0 {
		return w.opt.Clients
	}
	if w.opt.Small {
		return 1 + w.rng.IntN(2)
	}
	return 1 + w.rng.IntN(6)
}

// flipped reports whether a bit of any disk was turned.
func (w *world) flipped() bool {
	return slices.ContainsFunc(w.sites, func(s *site) bool { return s.flipped })
}

// syncs has a sync of the journal be under way for as long as it takes: until then what it writes is not durable, and the node knows that it
// waits.
func (s *site) syncs() {
	s.disk.Syncing = func(name string) {
		if s.host != nil && strings.HasSuffix(name, ".log") {
			s.host.exec.Block()
		}
	}
}

// stall makes syncs slow, or as fast as they were. One that takes long is a reason to replace the owners of its node.
func (s *site) stall(draw uint64) {
	if s.host == nil {
		return
	}
	if draw == 0 {
		s.host.exec.SetLatency(nil)
		return
	}
	s.doubt(stalled)
	most := between(draw, 50*time.Millisecond, 4*time.Second)
	s.host.exec.SetLatency(func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(most))) })
}

// watch reads the catalog as a node knows it, now and again, and records who owns what.
func (h *host) watch() {
	w := h.w
	h.node.View(func(v *catalog.View) {
		if v.Index() == h.watched {
			return
		}
		h.watched = v.Index()
		w.agrees(h, v)
		for _, r := range v.AllResources() {
			for _, a := range r.Partitions {
				if r.Home == nil {
					w.historyOf(a.Partition).assigned(r, a)
				}
			}
			t := w.target(r.Name)
			if r.Home != nil || t == nil || t.born == 0 || t.maker || t.memory {
				continue
			}
			a := r.Partitions[0]
			k := w.known[t.key]
			if a.Epoch < k.epoch || a.Epoch == k.epoch && a.Owner.String() == k.owner {
				continue
			}
			if k.owner != "" {
				w.counts.Epochs++
			}
			w.known[t.key] = known{a.Epoch, a.Owner.String()}
			w.see(check.Event{Kind: check.Owned, Resource: t.key, Epoch: a.Epoch, Owner: a.Owner.String()})
		}
	})
	w.sim.At(w.sim.Now()+10*time.Millisecond, func() {
		if h.site.host == h {
			h.watch()
		}
	})
}

// known is who owns a resource, as far as any node has said.
type known struct {
	epoch uint64
	owner string
}

// fresh gives the place an empty disk.
func (s *site) fresh() {
	s.wiped, s.flipped, s.peers, s.before = true, false, nil, s.enrolled
	s.disk = vfs.NewMemory(s.w.rng.Uint64())
	s.syncs()
	s.witness = newWitness(s)
}

// mayLose reports whether a node may lose its disk and nothing that was confirmed with it: everything has the copies that it is to have,
// each on the disk that its node has now, and the catalog has three voters or more, as every node knows.
func (s *site) mayLose() bool {
	w := s.w
	for _, o := range w.sites {
		if o.host == nil || !o.host.serving || o.enrolled != o.host.node.Local().Store || o.flipped || o.host.voters < 3 {
			return false
		}
	}
	ok := true
	for _, h := range w.hosts() {
		h.node.View(func(v *catalog.View) {
			for _, r := range v.AllResources() {
				for _, a := range r.Partitions {
					if r.Home == nil && (len(a.Followers) < 2 || !w.spared(a, r)) {
						ok = false
					}
					for _, m := range append([]catalog.Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers...) {
						n := v.Node(m.Node)
						ok = ok && n != nil && n.Store == m.Store
					}
				}
			}
		})
	}
	return ok
}
