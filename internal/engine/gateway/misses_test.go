package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/value"
)

func exchange(name, kind, alternate string) catalog.Item {
	return catalog.DeclareExchange(catalog.Exchange{VHost: "/", Name: name, Type: kind, Durable: true, Alternate: alternate})
}

func binding(source, destination, key string, args ...value.Field) catalog.Item {
	return catalog.Bind(catalog.Binding{VHost: "/", Source: source, Destination: destination, Key: key, Args: args})
}

// answer gives the leader's answers to all that was asked, and to what is asked then.
func (b *behind) answer() {
	for len(b.later) > 0 {
		f := b.later[0]
		b.later = b.later[1:]
		f()
		b.settle()
	}
}

// Whatever was declared or bound on another node before a publish, the publish finds it, mandatory or not.
func TestAPublishFindsWhatWasMadeOnAnotherNode(t *testing.T) {
	for name, c := range map[string]struct {
		exchange string
		cc       []string
		makes    []catalog.Item
	}{
		"a queue":                {exchange: ""},
		"a queue, by CC":         {exchange: "", cc: []string{"elsewhere", "right"}},
		"a binding":              {exchange: "amq.direct", makes: []catalog.Item{binding("amq.direct", "right", "right")}},
		"a pattern":              {exchange: "amq.topic", makes: []catalog.Item{binding("amq.topic", "right", "#")}},
		"headers":                {exchange: "amq.headers", makes: []catalog.Item{binding("amq.headers", "right", "", value.Field{Name: "a", Value: value.Of("yes")})}},
		"an exchange":            {exchange: "new", makes: []catalog.Item{exchange("new", "fanout", ""), binding("new", "right", "")}},
		"a binding to exchanges": {exchange: "amq.fanout", makes: []catalog.Item{binding("amq.direct", "right", "right"), catalog.Bind(catalog.Binding{VHost: "/", Source: "amq.fanout", Destination: "amq.direct", ToExchange: true})}},
		"before the alternate":   {exchange: "orders", makes: []catalog.Item{binding("orders", "right", "right")}},
		"as the alternate":       {exchange: "lonely", makes: []catalog.Item{exchange("spare", "fanout", ""), binding("spare", "right", "")}},
	} {
		for _, mandatory := range []bool{false, true} {
			t.Run(fmt.Sprint(name, mandatory), func(t *testing.T) {
				b := newBehind(t)
				x := b.client()
				rest := x.declare(durable("rest"))
				b.propose(exchange("orders", "direct", "amq.fanout"), exchange("lonely", "direct", "spare"))
				if c.exchange == "orders" {
					b.propose(binding("amq.fanout", "rest", ""))
				}
				o := b.elsewhere(catalog.Resource{Name: "right", Durable: true})
				b.hold(append(c.makes, exchange("unused", "fanout", ""))...)
				m := message(c.exchange, "right", "body")
				if c.cc != nil {
					m.RoutingKey, m.CC = "nowhere", c.cc
				}
				header := "yes"
				m.Headers = func() value.Table { return value.Table{{Name: "a", Value: value.Of(header)}} }
				m.Mandatory = mandatory
				b.do(func() {
					if e := x.s.Publish(broker.Tag{Channel: 1, Seq: 1}, m); e != nil {
						t.Error(e)
					}
					header, m.Body[0] = "gone", nil // the front uses them again
				})
				if o.bodies() != "body" || rest.bodies() != "" || x.take() != "confirmed 1" {
					t.Errorf("stored %q there and %q here, outcome %v", o.bodies(), rest.bodies(), x.outcome(1))
				}
			})
		}
	}
}

// What is published behind a miss on its channel does not pass it, nor does what else is asked of the session; other channels go on.
func TestWhatIsBehindAMissKeepsItsOrder(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	known := c.declare(durable("known"))
	b.slow = true
	b.hold(binding("amq.direct", "known", "k"))
	b.do(func() {
		c.publish(1, "amq.direct", "k", "a")
		c.publish(2, "", "known", "b")
		c.publish(3, "amq.direct", "k", "c")
		if e := c.s.Publish(broker.Tag{Channel: 2, Seq: 4}, message("", "known", "other")); e != nil {
			t.Error(e)
		}
		c.s.PurgeQueue("known", func(_ uint32, e *broker.Error) { c.result("purge", e) })
	})
	if known.bodies() != "other" || len(all[protocol.Purge](known)) != 0 {
		t.Fatalf("stored %q before the answer, and asked for %d purges", known.bodies(), len(all[protocol.Purge](known)))
	}
	b.answer()
	if known.bodies() != "other a b c" || len(all[protocol.Purge](known)) != 1 || b.asked != 1 {
		t.Errorf("stored %q and asked for %d purges after %d questions", known.bodies(), len(all[protocol.Purge](known)), b.asked)
	}
	for seq := uint64(1); seq <= 4; seq++ {
		if e := c.outcome(seq); len(e) != 1 || e[0] != broker.Confirmed {
			t.Errorf("publish %d ended as %v", seq, e)
		}
	}
}

// What was made after a question was asked may not be in its answer, so a publish waits for one that was asked after it came.
func TestAPublishIsNotAnsweredByAnOlderQuestion(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	b.slow = true
	b.do(func() { c.publish(1, "amq.fanout", "", "x") })
	early := b.later[0]
	b.later = nil
	b.do(func() { c.publish(2, "amq.direct", "k", "y") })
	o := b.elsewhere(catalog.Resource{Name: "q", Durable: true})
	b.hold(binding("amq.direct", "q", "k"))
	made := b.held
	b.held = nil
	early()
	b.sim.RunFor(time.Millisecond)
	if len(c.outcome(1)) != 1 || len(c.outcome(2)) != 0 || b.asked != 2 {
		t.Fatalf("outcomes %v and %v after %d questions", c.outcome(1), c.outcome(2), b.asked)
	}
	b.held = made
	b.answer()
	if o.bodies() != "y" {
		t.Errorf("stored %q", o.bodies())
	}
}

func TestAPublishToAnExchangeThatIsNowhere(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	known := c.declare(durable("known"))
	b.do(func() {
		c.publish(1, "none", "k", "a")
		c.publish(2, "", "known", "not heard: its channel has ended")
		if e := c.s.Publish(broker.Tag{Channel: 1, Opened: 1, Seq: 3}, message("", "known", "opened again")); e != nil {
			t.Error(e)
		}
	})
	if known.bodies() != "opened again" {
		t.Errorf("stored %q", known.bodies())
	}
	c.expect("publish 1: error 1 no exchange 'none' in vhost '/'; confirmed 3")
	if b.sh.bytes != 0 {
		t.Errorf("%d bytes are still counted", b.sh.bytes)
	}
}

// An exchange that nobody is bound to may get many messages: questions about them stay few, and what waits stays bounded.
func TestUnroutablePublishesCostLittle(t *testing.T) {
	b := newBehind(t)
	c, d := b.client(), b.client()
	const rounds = 10_000
	for range rounds {
		b.sh.post(func() {
			c.publish(1, "amq.fanout", "", "x")
			d.publish(1, "amq.fanout", "", "x")
		})
		b.sim.RunFor(100 * time.Microsecond)
	}
	b.sim.RunFor(time.Second)
	if len(c.outcome(1)) != rounds || len(d.outcome(1)) != rounds {
		t.Errorf("%d and %d of %d publishes have an outcome", len(c.outcome(1)), len(d.outcome(1)), rounds)
	}
	if most := int(time.Second/askPauseMost) + 10; b.asked > most {
		t.Errorf("%d questions in a second, want up to %d", b.asked, most)
	}
	c.take()
	b.slow = true
	n := uint64(0)
	big := strings.Repeat("x", 64<<10)
	b.do(func() {
		for n = 0; len(c.told) == 0 && n < 100; n++ {
			c.publish(n+2, "amq.fanout", "", big)
		}
	})
	c.expect("flow stop=true")
	if n != parkMost>>16 {
		t.Errorf("held after %d messages of 64 KiB", n)
	}
	b.sim.RunFor(askPauseMost)
	b.answer()
	if got := c.take(); !strings.Contains(got, "flow stop=false") || b.sh.bytes != 0 {
		t.Errorf("told %.200s; %d bytes are still counted", got, b.sh.bytes)
	}
}

// While the leader cannot be asked, only the first publish waits to learn so. Nothing is taken to be unroutable.
func TestPublishesWithoutTheLeadersWord(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	known := c.declare(durable("known"))
	b.propose(exchange("orders", "direct", "amq.fanout"), binding("amq.fanout", "known", ""))
	b.fails, b.slow = errors.New("no quorum"), true
	const reason = "nothing on this node takes it, and the catalog's leader could not be asked: no quorum"
	b.do(func() {
		c.publish(1, "amq.direct", "k", "x")
		c.publish(2, "none", "k", "x")
		c.publish(3, "", "known", "a")
		c.publish(4, "orders", "k", "b")
	})
	c.expect("")
	b.answer()
	c.expect("refused 1 2 (" + reason + "); confirmed 3 4")
	b.do(func() {
		m := message("amq.direct", "k", "back")
		m.Mandatory = true
		c.publish(5, "amq.direct", "k", "x")
		c.publish(6, "none", "k", "x")
		c.publish(7, "orders", "k", "c")
		if e := c.s.Publish(broker.Tag{Channel: 1}, m); e != nil {
			t.Error(e)
		}
	})
	c.expect("returned 0 " + reason + "; refused 5 6 (" + reason + "); confirmed 7")
	if known.bodies() != "a b c" {
		t.Errorf("stored %q", known.bodies())
	}
	b.sim.RunFor(askPauseMost)
	if len(b.later) != 1 {
		t.Fatalf("%d questions are open", len(b.later))
	}
	b.fails = nil
	b.hold(binding("amq.direct", "known", "k"))
	b.answer()
	c.publishAll("", 8)
	b.do(func() { c.publish(8, "amq.direct", "k", "d") })
	if known.bodies() != "a b c d" {
		t.Errorf("stored %q", known.bodies())
	}
}

// A client that publishes without confirms and closes has published.
func TestAParkedPublishOutlivesItsSession(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	o := b.elsewhere(catalog.Resource{Name: "q", Durable: true})
	b.slow = true
	b.do(func() {
		c.publish(0, "", "q", "a")
		c.s.Close()
	})
	b.answer()
	if o.bodies() != "a" || b.sh.bytes != 0 {
		t.Errorf("stored %q; %d bytes are still counted", o.bodies(), b.sh.bytes)
	}
}

// A dead letter goes to what was bound on another node, and is kept while that is not known.
func TestADeadLetterFindsWhatWasMadeOnAnotherNode(t *testing.T) {
	b := newBehind(t)
	x := "amq.direct"
	q := durable("source")
	q.Queue = queue.Settings{DeadLetterExchange: &x}
	source := b.client().declare(q)
	var kept []string
	die := func(number uint64) {
		b.sh.Send(protocol.DeadLetter{
			Partition: source.p, Number: number, Offset: number, Reason: "rejected", Body: broker.AppendEnvelopeHead(nil, "", "k", nil),
			Reply: sink(func(m any) { kept = append(kept, m.(protocol.DeadLettered).Kept) }),
		})
		b.settle()
	}
	b.fails = errors.New("no quorum")
	die(1)
	b.sim.RunFor(askPauseMost)
	b.fails = nil
	o := b.elsewhere(catalog.Resource{Name: "grave", Durable: true})
	b.hold(binding("amq.direct", "grave", "k"))
	die(1)
	if len(kept) != 2 || kept[0] == "" || kept[1] != "" || len(o.log) != 1 {
		t.Errorf("answers %q, %d messages in the grave", kept, len(o.log))
	}
}
