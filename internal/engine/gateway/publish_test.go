package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/value"
)

func TestPublishIsConfirmedByTheOwner(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a", "b", "c")
	ps := all[protocol.Publish](o)
	if len(ps) != 1 || ps[0].First != 1 || ps[0].Count != 3 {
		t.Fatalf("publishes of one round: %+v; want one of three records", ps)
	}
	c.expect("")
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 3})
	h.settle()
	c.expect("confirmed 1 2")
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 4})
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 4})
	h.settle()
	c.expect("confirmed 3")
	if h.sh.bytes != 0 || h.sh.stats.Confirmed != 3 {
		t.Errorf("bytes %d, confirmed %d", h.sh.bytes, h.sh.stats.Confirmed)
	}
}

func TestRefusedMeansAbsent(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.refuse = func(body string) string {
		if strings.HasPrefix(body, "no") {
			return "full"
		}
		return ""
	}
	c.publishAll("q", 1, "a", "no1", "b", "no2")
	c.expect("confirmed 1 3; refused 2 4 (full)")
	if got := o.bodies(); got != "a b" {
		t.Errorf("stored %q", got)
	}
}

func TestResendsComeBeforeNewSends(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a", "b")
	c.publishAll("q", 3, "c")
	o.quiet = false
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream, Reason: "lost"})
	c.publishAll("q", 4, "d")
	h.sim.RunFor(time.Second)
	c.expect("confirmed 1 2; confirmed 3 4")
	if got := o.bodies(); got != "a b c d" {
		t.Errorf("stored %q", got)
	}
	if n := len(all[protocol.Attach](o)); n != 2 {
		t.Errorf("%d streams; want 2", n)
	}
}

func TestGoBackToTheNumberExpected(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.silent = true // this one is lost on the way
	c.publishAll("q", 1, "a")
	o.silent = false
	c.publishAll("q", 2, "b")
	h.sim.RunFor(time.Second)
	c.expect("confirmed 1; confirmed 2")
	if got := o.bodies(); got != "a b" {
		t.Errorf("stored %q", got)
	}
}

// A new owner knows what was logged and not what was refused; the refused numbers must leave no gap that it could not pass.
func TestRefusedInTheMiddleThenANewOwner(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a", "no", "b", "c")
	o.say(protocol.PublishRefused{Partition: o.p, Stream: o.stream, First: 2, Count: 1, Reason: "full"})
	h.settle()
	c.expect("refused 2 (full)")
	o.quiet = false
	o.last = map[uint64]uint64{} // the new owner has none of it
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.sim.RunFor(time.Second)
	c.expect("confirmed 1 3 4")
	if got := o.bodies(); got != "a b c" {
		t.Errorf("stored %q", got)
	}
	if o.log[1].sequence != 2 {
		t.Errorf("numbers have a gap: %+v", o.log)
	}
}

func TestUnknownAfterTheConfirmTimeoutTakesANewProducer(t *testing.T) {
	h := newHarness(t, Limits{ConfirmTimeout: 5 * time.Second})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a")
	h.sim.RunFor(7 * time.Second)
	c.expect("unknown 1 (not confirmed within 5s)")
	o.quiet = false
	c.publishAll("q", 2, "b")
	h.sim.RunFor(time.Second)
	c.expect("confirmed 2")
	ps := all[protocol.Publish](o)
	first, last := ps[0].Runs[0], ps[len(ps)-1].Runs[0]
	if first.Producer == last.Producer || last.First != 1 {
		t.Errorf("runs %+v, then %+v; want another producer from 1", first, last)
	}
	if h.sh.stats.Unknown != 1 || !contains(h.events, "gateway.publish.unknown") {
		t.Errorf("unknown %d, events %v", h.sh.stats.Unknown, h.events)
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func TestWhatWasNeverSentIsRefused(t *testing.T) {
	h := newHarness(t, Limits{ConfirmTimeout: 5 * time.Second})
	c := h.client()
	o := c.declare(durable("q"))
	o.silent = true
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.settle()
	c.publishAll("q", 1, "a")
	h.sim.RunFor(7 * time.Second)
	c.expect("refused 1 (the partition's owner was not reached within 5s)")
	o.silent = false
	c.publishAll("q", 2, "b")
	h.sim.RunFor(3 * time.Second)
	c.expect("confirmed 2")
	if got := o.bodies(); got != "b" {
		t.Errorf("stored %q", got)
	}
}

func TestFanOutIsConfirmedWhenAllAre(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	a, b := c.declare(durable("a")), c.declare(durable("b"))
	for _, q := range []string{"a", "b"} {
		h.do(func() {
			c.s.Bind(catalog.Binding{Source: "amq.fanout", Destination: q}, c.done("bind"))
		})
	}
	c.expect("bind: ok; bind: ok")
	a.quiet, b.quiet = true, true
	h.do(func() {
		c.publish(1, "amq.fanout", "", "x")
		c.publish(2, "amq.fanout", "", "y")
	})
	a.say(protocol.Published{Partition: a.p, Stream: a.stream, UpTo: 3})
	h.settle()
	c.expect("")
	b.say(protocol.PublishRefused{Partition: b.p, Stream: b.stream, First: 2, Count: 1, Reason: "full"})
	b.say(protocol.Published{Partition: b.p, Stream: b.stream, UpTo: 3})
	h.settle()
	c.expect("refused 2 (full); confirmed 1")
}

func TestUnroutable(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	h.do(func() {
		c.publish(1, "", "nowhere", "a")
		m := message("", "nowhere", "b")
		m.Mandatory = true
		if e := c.s.Publish(broker.Tag{Channel: 1, Seq: 2}, m); e != nil {
			t.Error(e)
		}
		c.publish(3, "missing", "", "c")
	})
	c.expect("returned 2 NO_ROUTE; publish 3: error 1 no exchange 'missing' in vhost '/'; confirmed 1 2")
}

func TestAlternateExchangeAndFurtherKeys(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	rest, q2 := c.declare(durable("rest")), c.declare(durable("q2"))
	h.do(func() {
		c.s.DeclareExchange(catalog.Exchange{Name: "x", Type: "direct", Durable: true, Alternate: "amq.fanout"}, false, c.done("x"))
		c.s.Bind(catalog.Binding{Source: "amq.fanout", Destination: "rest"}, c.done("bind"))
	})
	c.expect("x: ok; bind: ok")
	h.do(func() {
		c.publish(1, "x", "k", "lost and found")
		m := message("", "nobody", "copy")
		m.CC = []string{"q2"}
		if e := c.s.Publish(broker.Tag{Channel: 1, Seq: 2}, m); e != nil {
			t.Error(e)
		}
	})
	if rest.bodies() != "lost and found" || q2.bodies() != "copy" {
		t.Errorf("stored %q and %q", rest.bodies(), q2.bodies())
	}
}

func TestHeadersAreAskedForEachMessage(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() {
		c.s.Bind(catalog.Binding{
			Source: "amq.headers", Destination: "q", Args: value.Table{{Name: "color", Value: value.Of("red")}},
		}, c.done("bind"))
	})
	h.do(func() {
		for i, color := range []string{"red", "blue", "red"} {
			m := message("amq.headers", "", color)
			m.Headers = func() value.Table { return value.Table{{Name: "color", Value: value.Of(color)}} }
			if e := c.s.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, m); e != nil {
				t.Error(e)
			}
		}
	})
	if got := o.bodies(); got != "red red" {
		t.Errorf("stored %q", got)
	}
}

func TestNamedProducers(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() {
		for i, seq := range []uint64{5, 6, 6, 9} {
			m := message("", "q", string(rune('a'+i)))
			m.Producer, m.Sequence = "p1", seq
			if e := c.s.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, m); e != nil {
				t.Error(e)
			}
		}
		c.publish(5, "", "q", "z")
	})
	c.expect("confirmed 1 2 3 4 5")
	if got := o.bodies(); got != "a b d z" {
		t.Errorf("stored %q", got)
	}
	runs := all[protocol.Publish](o)[0].Runs
	if len(runs) != 4 || runs[0].Count != 2 || runs[3].First != 5 {
		t.Errorf("runs %+v", runs)
	}
}

// TestNamedProducerIsNotRefusedByAnAbsentOwner gives a number again while its owner is away: it may have been stored before.
func TestNamedProducerIsNotRefusedByAnAbsentOwner(t *testing.T) {
	h := newHarness(t, Limits{ConfirmTimeout: 5 * time.Second})
	c := h.client()
	o := c.declare(durable("q"))
	o.silent = true
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.settle()
	h.do(func() {
		for i, producer := range []string{"", "p1", ""} {
			m := message("", "q", "x")
			if m.Producer = producer; producer != "" {
				m.Sequence = 7
			}
			if e := c.s.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, m); e != nil {
				t.Error(e)
			}
		}
	})
	h.sim.RunFor(7 * time.Second)
	const why = "(the partition's owner was not reached within 5s)"
	c.expect("refused 1 " + why + "; unknown 2 " + why + "; refused 3 " + why)
}

func TestPublishersAreHeldByCredit(t *testing.T) {
	h := newHarness(t, Limits{PartitionBytes: 1000})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	body := strings.Repeat("x", 300)
	c.publishAll("q", 1, body, body, body, body)
	c.expect("flow stop=true")
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 3})
	h.settle()
	c.expect("confirmed 1 2")
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 5})
	h.settle()
	c.expect("flow stop=false; confirmed 3 4")
}

func TestAPublisherThatIsHeldForLongIsTold(t *testing.T) {
	h := newHarness(t, Limits{PartitionBytes: 1000})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	body := strings.Repeat("x", 300)
	c.publishAll("q", 1, body, body, body, body)
	h.sim.RunFor(blockedAfter / 2)
	c.expect("flow stop=true")
	h.sim.RunFor(2 * blockedAfter)
	c.expect(`blocked "the memory for messages that are not confirmed yet is used up"`)
	h.sh.SetBlocked("disk low") // the other reason comes first, and does not end with the memory's
	h.settle()
	c.expect(`blocked "disk low"`)
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: 5})
	h.settle()
	c.expect("flow stop=false; confirmed 1 2 3 4")
	h.sh.SetBlocked("")
	h.settle()
	c.expect(`blocked ""`)
	h.sim.RunFor(5 * blockedAfter)
	c.expect("")
}

func TestBlockedHoldsPublishesAndSettlesGoOn(t *testing.T) {
	h := newHarness(t, Limits{ConfirmTimeout: 5 * time.Second})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, c.done("consume")) })
	o.deliver(1, item(10, "m"))
	h.settle()
	h.sh.SetBlocked("disk low")
	c.publishAll("q", 1, "a")
	h.sim.RunFor(20 * time.Second)
	c.expect(`consume: ok; delivered to 1: 10=m; blocked "disk low"`)
	if o.bodies() != "" {
		t.Errorf("stored %q while blocked", o.bodies())
	}
	h.do(func() { c.s.Settle(c.refs, broker.Accept) })
	if n := len(all[protocol.Settle](o)); n != 1 {
		t.Errorf("%d settles went out while blocked; want 1", n)
	}
	h.sh.SetBlocked("")
	h.settle()
	c.expect(`blocked ""; confirmed 1`)
}

func TestPartitionDeleted(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, c.done("consume")) })
	o.quiet = true
	c.publishAll("q", 1, "a")
	h.propose(catalog.DeleteResource("/", "q", 0, 0))
	c.expect("consume: ok; consumer 1 gone: queue 'q' in vhost '/' was deleted; unknown 1 (queue 'q' in vhost '/' was deleted)")
	if len(h.sh.attachments) != 0 || h.sh.bytes != 0 {
		t.Errorf("%d attachments, %d bytes are left", len(h.sh.attachments), h.sh.bytes)
	}
}

func TestIdlePartitionsAreLeftAndNumbersGoOn(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	c.publishAll("q", 1, "a", "b")
	h.sim.RunFor(10 * time.Second)
	if len(h.sh.attachments) != 0 || len(all[protocol.Detach](o)) != 1 {
		t.Fatalf("%d attachments, %d detaches", len(h.sh.attachments), len(all[protocol.Detach](o)))
	}
	c.publishAll("q", 3, "c")
	c.expect("confirmed 1 2; confirmed 3")
	if ps := all[protocol.Publish](o); ps[len(ps)-1].First != 3 {
		t.Errorf("numbers went on at %d; want 3", ps[len(ps)-1].First)
	}
}
