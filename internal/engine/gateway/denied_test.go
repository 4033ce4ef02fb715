package gateway

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
)

// What its clients do not hold any more, since its claims came too late, a gateway lets go of, says so, and sends nothing that they say of it.
func TestDeniedClaimsAreLetGoOf(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume")) })
	o.deliver(1, item(1, "a"), item(2, "b"), item(3, "c"))
	h.settle()
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.sim.RunFor(100 * time.Millisecond)
	attaches := all[protocol.Attach](o)
	if last := attaches[len(attaches)-1]; len(last.Claims) != 3 || last.Away == 0 || last.Away > 10 {
		t.Errorf("attached with %+v", last)
	}
	o.say(protocol.Denied{Partition: o.p, Stream: o.stream, Claims: []protocol.Claim{{Consumer: o.consumer(1), Offset: 2}, {Consumer: 99, Offset: 3}}})
	h.settle()
	h.do(func() { c.s.Settle(c.refs, broker.Accept) })
	if got := o.settled(); got != "#1 accept 1-1 accept 3-3; " {
		t.Errorf("settled %q", got)
	}
	if !slices.Contains(h.events, "gateway.claims.denied") || h.sh.stats.Denied != 1 {
		t.Errorf("%d denied, traced %v", h.sh.stats.Denied, h.events)
	}
}

// A node that stood still longer than a new owner waits for claims takes nothing of what lay in its mailboxes: another owner may have been chosen, and
// have given it to others. It says again what its clients hold.
func TestANodeThatStoodStillBeginsItsStreamsAnew(t *testing.T) {
	for _, d := range []time.Duration{clock.HaltAfter / 2, 2 * clock.HaltAfter} {
		h := newHarness(t, Limits{})
		c := h.client()
		o := c.declare(durable("q"))
		h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume")) })
		o.deliver(1, item(1, "a"))
		h.sh.env.Pulse = new(clock.Pulse)
		h.sh.env.Pulse.Beat(h.sim.Now())
		h.settle()
		c.expect("consume: ok; delivered to 5: 1=a")
		h.sim.RunFor(d)
		o.deliver(1, item(2, "b"))
		h.settle()
		attaches := all[protocol.Attach](o)
		if d < clock.HaltAfter {
			c.expect("delivered to 5: 2=b")
			if len(attaches) != 1 {
				t.Errorf("after %v: attached %d times", d, len(attaches))
			}
			continue
		}
		c.expect("")
		last := attaches[len(attaches)-1]
		if len(attaches) != 2 || len(last.Claims) != 1 || last.Claims[0].Offset != 1 || time.Duration(last.Away)*time.Millisecond < d-2*time.Millisecond {
			t.Errorf("after %v: attached %d times, last %+v", d, len(attaches), last)
		}
	}
}
