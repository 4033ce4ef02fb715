package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/node"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// host is one run of the node.
type host struct {
	w       *world
	run     uint64
	exec    *exec.SimNode
	node    *node.Node
	loops   int
	serving bool  // started, and everything that simulations need is there
	refused error // it did not start
	hurt    bool  // its storage has failed: it needs to be started anew
	setup   *client
	last    []status // as the node said last
	asked   uint64
}

// boot starts the node over the disk as it is.
func (w *world) boot() {
	w.counts.Runs++
	h := &host{w: w, run: w.counts.Runs, loops: 1 + w.rng.IntN(3)}
	w.host = h
	h.exec = w.sim.Node("one", h.loops)
	w.say("START of run %d on %d loops", h.run, h.loops)
	n, err := newNode(w, h)
	if err != nil {
		h.refuse(err)
		return
	}
	h.node = n
	n.Start(func(err error) {
		if w.host != h {
			return
		}
		if err != nil {
			h.refuse(err)
			return
		}
		h.started()
	})
}

// refuse notes that the node does not start. On a disk that fails that is right; it is tried again.
func (h *host) refuse(err error) {
	h.w.say("the node does not start: %v", err)
	h.exec.Stop()
	if h.w.flipped {
		h.refused = err
		return
	}
	h.w.sim.At(h.w.sim.Now()+200*time.Millisecond, func() {
		if h.w.host == h {
			h.w.disk.Heal()
			h.w.crash(0)
			h.w.boot()
		}
	})
}

// started waits until the node is ready, records who owns what, makes what is missing, and lets the clients in.
func (h *host) started() {
	w := h.w
	if h.node.Ready() != nil {
		w.later(h.started)
		return
	}
	w.see(check.Event{Kind: check.Restarted})
	h.owners(func() {
		h.setup = h.client(0)
		h.setup.setUp(func() {
			h.setup.leave()
			h.letIn()
		})
	})
}

// letIn starts the clients of this run.
func (h *host) letIn() {
	w := h.w
	n := w.opt.Clients
	if n == 0 {
		n = 1 + w.rng.IntN(6)
	}
	w.clients = nil
	for i := range n {
		c := h.client(i % h.loops)
		w.clients = append(w.clients, c)
		c.next()
	}
	h.serving = true
}

// client makes a client on one of the node's loops.
func (h *host) client(loop int) *client {
	c := &client{w: h.w, broker: h.node.Broker(loop), shard: uint32(loop)}
	c.box = h.exec.Loop(loop).Spawn("client", c)
	return c
}

// crash ends the node at once and leaves the disk as a kernel may.
func (w *world) crash(how uint64) {
	if w.host != nil {
		w.host.exec.Stop()
		w.see(check.Event{Kind: check.Crashed})
		w.host = nil
	}
	w.disk.Crash(how)
	w.broken = false
	w.forget()
}

// forget drops what was only true of the run that has ended.
func (w *world) forget() {
	w.clients = nil
	clear(w.taken)
	for _, p := range w.producers {
		p.owner = nil
	}
	for _, e := range w.ears {
		e.said, e.handed, e.order = nil, nil, nil
		clear(e.mouths)
	}
	for _, t := range w.targets {
		t.gone = t.gone || t.maker || t.memory || t.busy
		t.busy = false
		if t.memory && t.born > 0 {
			w.see(check.Event{Kind: check.Deleted, Resource: t.key})
		}
	}
}

// restart stops the node in peace and starts it again.
func (w *world) restart(how uint64) {
	h := w.host
	h.serving = false
	stopped := false
	h.node.Stop(func(err error) {
		if err != nil {
			w.say("the stop failed: %v", err)
		}
		if w.host == h && !stopped {
			stopped = true
			w.sim.At(w.sim.Now(), func() {
				w.crash(how) // what a clean stop leaves unsynced does not matter
				w.boot()
			})
		}
	})
	w.sim.At(w.sim.Now()+patience/2, func() {
		if w.host == h && !stopped {
			w.fail("the node does not stop")
		}
	})
}

// stall makes syncs slow, or as fast as they were.
func (h *host) stall(draw uint64) {
	if draw == 0 {
		h.exec.SetLatency(nil)
		return
	}
	most := between(draw, 50*time.Millisecond, 3*time.Second)
	h.exec.SetLatency(func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(most))) })
}

// hear listens to what the node says of itself: a journal that has closed needs another start.
func (h *host) hear(e trace.Event) {
	closed := e.Name == "node.failed"
	for _, a := range e.Attrs {
		closed = closed || e.Name == "storage.health" && a.Key == "closed" && a.Value.Kind() == slog.KindBool && a.Value.Bool()
	}
	h.hurt = h.hurt || closed
}

// why says what a node that does not come up says of itself.
func (w *world) why() string {
	switch {
	case w.host == nil:
		return "the node is down"
	case w.host.refused != nil:
		return w.host.refused.Error()
	case w.host.node == nil:
		return "it is starting"
	}
	waiting := 0
	for _, c := range w.clients {
		waiting += len(c.waiting)
	}
	text := fmt.Sprintf("ready: %v; %d publishes wait", w.host.node.Ready(), waiting)
	for _, s := range w.host.last {
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
	if w.failed() || w.host == nil {
		return false
	}
	h := w.host
	w.loading = false
	c := h.client(0)
	c.drains = true
	w.clients = []*client{c}
	c.next()
	from := h.asked + 3 // answers that were asked for before the client took anything do not count
	h.ask()
	done := func() bool { return len(c.held) == 0 && c.open && h.asked > from && w.allEmpty(c) && w.allRead(c) }
	if !w.await("an empty broker", done) {
		return false
	}
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
	for _, s := range w.host.last { // all of them first: what is damaged also holds up what dead-letters to it
		if t := w.target(s.name); t != nil && !t.gone && w.host.damaged(s) {
			w.damage(t, s.Reason)
		}
	}
	for _, s := range w.host.last {
		t := w.target(s.name)
		if t == nil || t.gone || t.damaged {
			continue
		}
		if s.State != replica.Serving || !w.quiet(s, t) {
			return false
		}
		read := func(r *reader) bool { return r.t == t && r.next >= s.Offset }
		if t.stream() && s.Offset > 0 && s.Ready > 0 && !slices.ContainsFunc(c.readers, read) {
			return false
		}
	}
	return true
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
