package sim

import (
	"cmp"
	"slices"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// remake deletes a resource that may be deleted, or declares it again.
func (c *client) remake() {
	if c.asking > 0 || c.w.restless {
		return // a node that has not heard of a deletion yet takes the old one for what is declared
	}
	if c.w.cluster() {
		if i := slices.IndexFunc(c.w.targets, func(t *target) bool { return t.gone && !t.busy && !t.damaged }); i >= 0 {
			c.find(c.w.targets[i], func(bool) {})
			return
		}
	}
	i := slices.IndexFunc(c.w.targets, func(t *target) bool { return t.maker && !t.busy && !t.damaged })
	if i < 0 {
		return
	}
	t := c.w.targets[i]
	if t.gone {
		t.next()
		c.w.see(t.event())
		c.declare(t, func(bool) {})
		return
	}
	if c.w.rng.IntN(3) > 0 {
		return
	}
	c.w.see(check.Event{Kind: check.Deleted, Resource: t.key})
	c.w.counts.Deleted++
	t.busy, t.by = true, c.host
	id, h := c.id, c.host
	c.asking++
	c.session.DeleteQueue(t.spec.Name, false, false, func(_ uint32, err *broker.Error) {
		if h.site.host != h {
			return
		}
		t.busy, t.gone = false, err == nil || err.Code == broker.NotFound
		if c.id == id {
			c.asking--
		}
	})
}

// declare declares a resource whose incarnation has been named already. done hears whether it is there.
func (c *client) declare(t *target, done func(bool)) {
	t.busy, t.by, t.home = true, c.host, c.host
	id, h := c.id, c.host
	c.asking++
	c.w.counts.Declared++
	spec := t.spec
	if spec.Durable {
		spec.Policy = cmp.Or(c.w.opt.plant.policy(), c.w.policy)
	}
	c.session.DeclareQueue(spec, func(_ broker.QueueInfo, err *broker.Error) {
		if h.site.host != h {
			return
		}
		t.busy, t.gone = false, err != nil
		if c.id == id {
			c.asking--
		}
		if err != nil && !err.Retryable() && err.Code != broker.NotFound {
			c.w.fail("declaring %s: %v", t.spec.Name, err)
		}
		done(err == nil)
	})
}

// purge drops what is ready in a queue.
func (c *client) purge() {
	t := c.pick(func(t *target) bool { return isQueue(t) && !t.maker && !t.delays && t.spec.Name != "graves" })
	if t == nil || c.asking > 0 {
		return
	}
	key := t.key
	c.w.counts.Purges++
	c.w.see(check.Event{Kind: check.Purge, Resource: key})
	t.busy, t.by, t.purging = true, c.host, true // one purge of a queue at a time, and nothing else meanwhile, so that the history can be judged
	id, h := c.id, c.host
	c.asking++
	c.session.PurgeQueue(t.spec.Name, func(_ uint32, err *broker.Error) {
		if h.site.host != h {
			return
		}
		t.busy, t.purging = false, false
		if c.id == id {
			c.asking--
		}
		if err == nil {
			c.w.see(check.Event{Kind: check.Purged, Resource: key})
		}
	})
}

// count asks for a queue passively.
func (c *client) count() {
	t := c.pick(anything)
	if t == nil || c.asking > 0 {
		return
	}
	spec := t.spec
	spec.Passive = true
	id := c.id
	c.asking++
	c.session.DeclareQueue(spec, func(_ broker.QueueInfo, err *broker.Error) {
		if c.id != id || c.ended {
			return
		}
		c.asking--
		if err != nil && err.Code == broker.NotFound && !t.maker && !t.memory && (c.w.cluster() || !c.w.flipped()) {
			c.w.fail("%s is not found: %v", t.spec.Name, err)
		}
	})
}

// drain empties queues and reads streams, for the end of a simulation: it accepts everything it gets.
func (c *client) drain() {
	for _, r := range c.readers {
		if r.undrawn > 0 {
			c.session.Drained(r.number, r.undrawn)
			r.undrawn = 0
		}
	}
	if len(c.held) > 0 {
		c.settleSome(len(c.held), broker.Accept, check.Accept)
	}
	for _, t := range c.w.targets {
		if t.gone || t.damaged || slices.ContainsFunc(c.readers, func(r *reader) bool { return r.t == t && !r.gone }) {
			continue
		}
		spec := broker.ConsumeSpec{Queue: t.spec.Name, Prefetch: 100}
		e := check.Event{Kind: check.Attached}
		if t.stream() {
			spec.Start.Kind, e.HasOffset = 1, true // from the first
		}
		c.consume(t, spec, e)
	}
}

// setUp makes what every simulation needs: the fanout exchange and its bindings, and all resources that are not there. Each thing is
// asked for again until it is.
func (c *client) setUp(then func()) {
	id := c.id
	again := func() { c.host.later(func() { c.setUp(then) }) }
	if c.session == nil || c.ended || !c.open {
		if c.session == nil || c.ended {
			c.connect()
		}
		again()
		return
	}
	for _, t := range c.w.targets {
		if t.gone && !t.busy && !t.damaged {
			c.find(t, func(bool) { again() })
			return
		}
	}
	c.session.DeclareExchange(fan, false, func(err *broker.Error) {
		if c.id != id || err != nil {
			again()
			return
		}
		there := c.w.fanTargets()
		left := len(there)
		if left == 0 {
			then()
			return
		}
		for _, to := range there {
			c.session.Bind(catalog.Binding{VHost: "/", Source: fan.Name, Destination: to}, func(err *broker.Error) {
				if left--; err != nil {
					left = -1
					again()
				}
				if left == 0 {
					then()
				}
			})
		}
	})
}

// find learns whether a resource is there, of which that is not known, and declares it if it is not.
func (c *client) find(t *target, done func(bool)) {
	spec := t.spec
	spec.Passive = true
	t.busy, t.by = true, c.host
	h := c.host
	c.session.DeclareQueue(spec, func(_ broker.QueueInfo, err *broker.Error) {
		if h.site.host != h {
			return
		}
		t.busy = false
		switch {
		case err == nil:
			t.gone = false
			done(true)
		case err.Code == broker.NotFound:
			if t.born == 0 || t.maker || t.memory {
				t.next()
				t.lost = false
				c.w.see(t.event())
			}
			c.declare(t, done)
		default:
			done(false)
		}
	})
}
