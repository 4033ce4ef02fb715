package sim

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/node"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// host is one run of a node. It is the sink of what the run says of itself.
type host struct {
	w       *world
	site    *site
	run     uint64 // of all runs
	exec    *exec.SimNode
	node    *node.Node
	loops   int
	serving bool  // started, and everything that simulations need is there
	refused error // it did not start
	hurt    bool  // its storage has failed: it needs to be started anew
	dozes   bool  // it stands still for a while that makes nobody doubt it who has heard it before
	ears    map[ident.Partition]*ear
	voters  int64  // of the catalog's consensus, as the run knows
	watched uint64 // index of the catalog that was read last
	tenure         // what it was leased
}

// boot starts the node over the disk as it is.
func (s *site) boot() {
	w := s.w
	w.counts.Runs++
	s.runs++
	s.ailed = w.sim.Now()
	h := &host{w: w, site: s, run: w.counts.Runs, loops: 1 + w.rng.IntN(3), ears: map[ident.Partition]*ear{}, tenure: tenure{began: w.sim.Now()}}
	s.host = h
	h.exec = w.sim.Node(s.name, h.loops)
	w.say("START of %s, run %d, on %d loops", s.name, h.run, h.loops)
	n, err := newNode(h)
	if err != nil {
		h.refuse(err)
		return
	}
	h.node = n
	if s.troubles > 0 {
		s.doubt(silenced)
	}
	w.stores[n.Local().Store] = s.witness
	if w.cluster() && (s != w.sites[0] || s.wiped) && s.enrolled != n.Local().Store {
		s.enrol(h)
		return
	}
	s.enrolled = n.Local().Store
	h.start()
}

func (h *host) start() {
	h.node.Start(func(err error) {
		if h.site.host != h {
			return
		}
		if err != nil {
			h.refuse(err)
			return
		}
		h.started()
	})
}

// instance names the run as the catalog does; empty if it came to nothing.
func (h *host) instance() string {
	if h.node == nil {
		return ""
	}
	return h.node.Local().String()
}

// refuse notes that the node does not start. On a disk that fails that is right; it is tried again.
func (h *host) refuse(err error) {
	s := h.site
	h.w.say("%s does not start: %v", s.name, err)
	h.exec.Stop()
	if s.flipped {
		h.refused = err
		if h.w.cluster() {
			h.w.net.Kill(s.name)
		}
		return
	}
	h.w.sim.At(h.w.sim.Now()+200*time.Millisecond, func() {
		if s.host == h {
			s.disk.Heal()
			s.crash(0)
			s.boot()
		}
	})
}

// started waits until the node is ready, records who owns what, makes what is missing, and lets the clients in.
func (h *host) started() {
	w := h.w
	if h.node.Ready() != nil {
		h.later(h.started)
		return
	}
	if w.cluster() {
		h.serving = true
		h.watch()
		w.fill()
		return
	}
	w.see(check.Event{Kind: check.Restarted})
	h.owners(func() { w.prepare(func() { h.serving, w.open, w.want = true, true, w.wanted(); w.fill() }) })
}

// client makes a client on one of the node's loops.
func (h *host) client(loop int) *client {
	c := &client{w: h.w, host: h, broker: h.node.Broker(loop), shard: uint32(loop)}
	c.box = h.exec.Loop(loop).Spawn("client", c)
	return c
}

// prepare has a client make what is not there, and calls then once everything is.
func (w *world) prepare(then func()) {
	h := w.sites[0].host
	if w.cluster() {
		h = w.anyHost()
	}
	if h == nil {
		w.sim.At(w.sim.Now()+50*time.Millisecond, func() { w.prepare(then) })
		return
	}
	c := h.client(0)
	w.setup = c
	if w.cluster() { // with one node, its next start begins anew
		c.orphan = func() { w.prepare(then) }
	}
	c.setUp(func() {
		c.leave()
		c.orphan, w.setup = nil, nil
		then()
	})
}

// restart stops the node in peace and starts it again.
func (s *site) restart(how uint64) {
	w, h := s.w, s.host
	h.serving = false
	stopped := false
	h.node.Stop(func(err error) {
		if err != nil {
			w.say("the stop failed: %v", err)
		}
		if s.host == h && !stopped {
			stopped = true
			w.sim.At(w.sim.Now(), func() {
				s.crash(how) // what a clean stop leaves unsynced does not matter
				s.boot()
			})
		}
	})
	w.sim.At(w.sim.Now()+patience/2, func() {
		if s.host == h && !stopped {
			w.fail("%s does not stop", s.name)
		}
	})
}

// Emit takes what the node says of itself: a journal that has closed needs another start.
func (h *host) Emit(e trace.Event) {
	w := h.w
	w.sim.Note(e.Name)
	if w.opt.Verbose != nil {
		w.say("%s %v %s %v", h.site.name, e.Level, e.Name, e.Attrs)
	}
	if e.Name == "consensus.leader" {
		w.noteLeader(e)
	}
	if e.Name == "copy.anew" {
		w.counts.Anew++
	}
	if e.Name == "replica.closed" && h.site.flipped && h.site.host == h { // what was turned in a run before is found in this one
		h.site.doubt(diskBroke)
	}
	closed := e.Name == "node.failed"
	for _, a := range e.Attrs {
		if a.Key == "voters" && strings.HasPrefix(e.Name, "consensus.") {
			h.voters = int64(attrNumber(a.Value))
		}
		closed = closed || e.Name == "storage.health" && a.Key == "closed" && a.Value.Kind() == slog.KindBool && a.Value.Bool()
	}
	h.hurt = h.hurt || closed
}

func attrNumber(v slog.Value) uint64 {
	switch v.Kind() {
	case slog.KindInt64:
		return uint64(v.Int64())
	case slog.KindUint64:
		return v.Uint64()
	}
	return 0
}

// why says what nodes that do not come up say of themselves.
func (w *world) why() (text string) {
	for _, s := range w.sites {
		switch h := s.host; {
		case h == nil:
			text += s.name + " is down; "
		case h.refused != nil:
			text += fmt.Sprintf("%s: %v; ", s.name, h.refused)
		case h.node == nil:
			text += s.name + " is starting; "
		default:
			text += fmt.Sprintf("%s ready: %v; ", s.name, h.node.Ready())
		}
	}
	waiting := 0
	for _, c := range w.clients {
		waiting += len(c.waiting)
	}
	text += fmt.Sprintf("%d publishes wait", waiting)
	if w.cluster() {
		text += "; " + w.alike() + w.evident()
	}
	for _, s := range w.last {
		t := w.target(s.name)
		if t == nil || s.State != replica.Serving || !w.quiet(s, t) {
			text += fmt.Sprintf("; %s: %+v", s.name, s.Status)
		}
	}
	return text
}

// lost notes that storage went back on its word.
func (w *world) lost(text string) { w.fail("%s", text) }

// empty takes everything out of every queue, reads every stream to its end, and says so to the judge.
func (w *world) empty() bool {
	h := w.anyHost()
	if h != nil && h.site.flipped && w.cluster() { // it may have to go
		h = h.site.other(0).host
	}
	if w.failed() || h == nil {
		return false
	}
	w.loading = false
	c := h.client(0)
	c.drains = true
	w.clients = []*client{c}
	c.next()
	from := w.asked + 3 // answers that were asked for before the client took anything do not count
	w.ask()
	done := func() bool { return len(c.held) == 0 && c.open && w.asked > from && w.allEmpty(c) && w.allRead(c) }
	if !w.await("an empty broker", done) {
		return false
	}
	w.asking++
	for _, t := range w.targets {
		if t.gone || t.damaged {
			continue
		}
		e := check.Event{Kind: check.Drained, Resource: t.key}
		for _, r := range c.readers {
			if r.t == t {
				e.Reader = r.id
			}
		}
		w.see(e)
	}
	c.leave()
	return !w.failed()
}

// allEmpty reports whether, by the node's own count, queues are empty, and the client has read every stream up to its end. What is
// damaged cannot be read; a partition that stays closed for another reason is waited for.
func (w *world) allEmpty(c *client) bool {
	for _, s := range w.last { // all of them first: what is damaged also holds up what dead-letters to it
		if t := w.target(s.name); t != nil && !t.gone && s.host.damaged(s) && !s.host.tended() {
			w.damage(t, s.Reason)
		}
	}
	told := map[*target]bool{}
	for _, s := range w.last {
		t := w.target(s.name)
		if t == nil || t.gone || t.damaged {
			continue
		}
		if s.State != replica.Serving || !w.quiet(s, t) {
			return false
		}
		told[t] = true
		read := func(r *reader) bool { return r.t == t && r.next >= s.Offset }
		if t.stream() && s.Offset > 0 && s.Ready > 0 && !slices.ContainsFunc(c.readers, read) {
			return false
		}
	}
	return !w.cluster() || !slices.ContainsFunc(w.targets, func(t *target) bool { return !t.gone && !t.damaged && !t.maker && !t.memory && !told[t] })
}

// tended reports whether an operator sees to what a node of a cluster says that is damaged, or has seen to it: the run is over.
func (h *host) tended() bool {
	return h.w.cluster() && (h.site.flipped || h.site.host != h)
}

// allRead reports whether the client reads every stream that can be read.
func (w *world) allRead(c *client) bool {
	for _, t := range w.targets {
		reads := func(r *reader) bool { return r.t == t && !r.gone }
		if t.stream() && !t.gone && !t.damaged && !slices.ContainsFunc(c.readers, reads) {
			return false
		}
	}
	return true
}

// quiet reports whether nothing is on its way in a partition: all is confirmed, and of a queue nothing is left.
func (w *world) quiet(s status, t *target) bool {
	if t.stream() {
		return s.Confirmed == s.Position
	}
	grave := w.target(t.dead)
	letters := s.DeadLetters > 0 && !(grave != nil && grave.damaged)
	return s.Confirmed == s.Position && s.Ready+s.Unsettled == 0 && !letters
}
