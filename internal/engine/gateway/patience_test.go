package gateway

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// A consumer that no owner takes, because there is none or it does not answer, ends with an error after as long as any request waits. An owner
// that comes later is not asked for it, and what one sends to it all the same goes back.
func TestAConsumerThatNoOwnerTakesEnds(t *testing.T) {
	for _, absent := range []bool{true, false} {
		h := newHarness(t, Limits{})
		c := h.client()
		o := c.declare(durable("q"))
		if o.quiet = true; absent {
			h.started = map[ident.Partition]bool{}
			h.sh.PeerDown("n1")
			h.settle()
		}
		h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, c.done("consume")) })
		h.sim.RunFor(requestTimeout - time.Second)
		c.expect("")
		h.sim.RunFor(2 * tickEvery)
		c.expect("consume: error 7 queue 'q' in vhost '/': its owner did not take the consumer within 30s")
		if absent {
			h.started[o.p] = true
			h.sim.RunFor(2 * lastBackoff)
			if s := all[protocol.Subscribe](o); len(s) != 0 {
				t.Errorf("the next owner was asked for it: %+v", s)
			}
			continue
		}
		if u := all[protocol.Unsubscribe](o); len(u) != 1 {
			t.Errorf("the owner was not told: %+v", u)
		}
		o.say(protocol.Subscribed{Partition: o.p, Stream: o.stream, Consumer: o.consumer(1)})
		o.deliver(1, item(3, "a"))
		h.settle()
		c.expect("")
		if got := o.settled(); got != "#1 release 3-3; " {
			t.Errorf("what was sent to it: settled %q", got)
		}
	}
}

// Who waits for a cancellation does not wait for another owner: with its stream the consumer has ended.
func TestACancellationIsAnsweredWhenItsOwnerIsLost(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, c.done("consume")) })
	o.quiet = true
	h.do(func() { c.s.Cancel(1, func() { c.say("cancelled") }) })
	c.expect("consume: ok")
	h.started = map[ident.Partition]bool{}
	h.sh.PeerDown("n1")
	h.settle()
	c.expect("cancelled")
	h.started[o.p] = true
	h.sim.RunFor(2 * lastBackoff)
	if s := all[protocol.Subscribe](o); len(s) != 1 {
		t.Errorf("it was subscribed again: %+v", s)
	}
}

// An exclusive queue is its session's as soon as it is there, whatever became of the answer to its declaration: it is found by the same session, it
// goes with it, and where the session has ended before, it goes at once.
func TestAnExclusiveQueueOfUnknownOutcomeGoesWithItsSession(t *testing.T) {
	for _, early := range []bool{false, true} {
		h := newHarness(t, Limits{})
		c := h.client()
		declare := func() {
			c.s.DeclareQueue(broker.QueueSpec{Name: "mine", Kind: catalog.Queue, Exclusive: true}, func(_ broker.QueueInfo, e *broker.Error) { c.result("queue", e) })
		}
		there := func() bool { return h.state.View().Resource("/", "mine") != nil }
		h.lose = errors.New("the leader was lost")
		h.do(func() {
			declare()
			if early {
				c.s.Close()
			}
		})
		h.lose = nil
		if early {
			h.sim.RunFor(2 * endAgain)
			if there() {
				t.Error("it came to be after its session had ended, and stays")
			}
			continue
		}
		if got := c.take(); !strings.Contains(got, "the leader was lost") || !there() {
			t.Fatalf("told %q, there: %v", got, there())
		}
		h.do(declare)
		c.expect("queue: ok")
		h.do(func() { c.s.Close() })
		if there() {
			t.Error("it outlived its session")
		}
	}
}
