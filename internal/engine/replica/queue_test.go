package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

func (g *fakeGateway) subscribe(consumer uint64, prefetch uint32) {
	g.send(protocol.Subscribe{To: g.to(), Consumer: consumer, Prefetch: prefetch, Credit: 1 << 30})
}

func (g *fakeGateway) settleOne(consumer, offset uint64, o protocol.Outcome) {
	g.seq++
	g.send(protocol.Settle{To: g.to(), Seq: g.seq, Items: []protocol.SettleItem{{Consumer: consumer, First: offset, Last: offset, Outcome: o}}})
}

func items(g *fakeGateway) (out []protocol.Item) {
	for _, d := range take[protocol.Deliver](g) {
		out = append(out, d.Items...)
	}
	return out
}

func TestRequeueGoesBackToItsPlace(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a", "b", "c")
	g.subscribe(1, 2)
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a", "b"})
	g.settleOne(1, 0, protocol.Requeue)
	w.settle()
	wantEqual(t, "while the requeue is not confirmed", g.bodies(), []string{"c"})
	g.publish("d")
	w.settle()
	g.settleOne(1, 1, protocol.Accept)
	w.settle()
	got := items(g)
	if len(got) != 1 || string(got[0].Body) != "a" || got[0].Count != 1 || !got[0].Again {
		t.Fatalf("deliveries %+v", got)
	}
}

// Bodies that have to be read hold back what was decided later: the order stays.
func TestOrderIsKeptWhenBodiesAreRead(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.declare(catalog.Queue, nil, nil)
		g := w.gateway(0)
		g.attach(1)
		w.disk.slow = true
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			g.publish(want[i])
			if i%7 == 0 {
				w.settle()
			}
		}
		g.subscribe(1, 0)
		for i := 50; i < 100; i++ {
			want = append(want, fmt.Sprint(i))
			g.publish(want[i])
		}
		w.settle()
		wantEqual(t, "deliveries", g.bodies(), want)
	}
}

func TestUnsubscribedComesAfterTheLastDelivery(t *testing.T) {
	w, g := queueWorld(t, nil)
	w.disk.slow = true
	g.publish("a", "b")
	w.settle()
	g.subscribe(1, 0)
	g.send(protocol.Credit{To: g.to(), Consumer: 1, Bytes: 5})
	g.send(protocol.Unsubscribe{To: g.to(), Consumer: 1})
	w.settle()
	ended := false
	for _, m := range g.got {
		switch m.(type) {
		case protocol.Unsubscribed:
			ended = true
		case protocol.Deliver:
			if ended {
				t.Fatal("a delivery after Unsubscribed")
			}
		}
	}
	if !ended {
		t.Fatal("no Unsubscribed")
	}
	// What it holds stays held until it is settled or released.
	n := len(g.bodies())
	g.subscribe(2, 0)
	w.settle()
	if m := len(g.bodies()); n+m != 2 {
		t.Fatalf("%d and then %d deliveries", n, m)
	}
}

func TestNoAckSettlesAtDelivery(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a", "b")
	g.send(protocol.Subscribe{To: g.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a", "b"})
	w.crash()
	w.start()
	w.transition()
	if s := w.status(); s.Ready != 0 {
		t.Fatalf("status %+v", s)
	}
}

func TestClaimsKeepDeliveriesAcrossStreams(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a", "b", "c")
	g.subscribe(1, 0)
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a", "b", "c"})
	g.attach(4, protocol.Claim{Consumer: 1, Offset: 1})
	g.subscribe(1, 0)
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a", "c"}) // b is held; the others never arrived
	g.settleOne(1, 1, protocol.Accept)
	w.settle()
	if s := take[protocol.Settled](g); len(s) != 1 || s[0].Seq != 1 {
		t.Fatalf("settled %+v", s)
	}
	g.send(protocol.Stats{To: g.to(), Request: 8})
	w.settle()
	if c := take[protocol.Counted](g); len(c) != 1 || c[0].Request != 8 || c[0].Unsettled != 2 || c[0].Ready != 0 || c[0].Consumers != 1 {
		t.Fatalf("counted %+v", c)
	}
	g.send(protocol.Detach{To: g.to()})
	w.settle()
	if s := w.status(); s.Ready != 2 || s.Consumers != 0 {
		t.Fatalf("status %+v", s)
	}
}

func TestANewOwnerWaitsForClaims(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a", "b")
	g.subscribe(1, 0)
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a", "b"})
	h := w.gateway(1) // lives, and will not say anything
	w.claim = []protocol.Gateway{g.id, h.id}
	w.transition()
	g.attach(3, protocol.Claim{Consumer: 1, Offset: 0})
	g.subscribe(1, 0)
	w.settle()
	wantEqual(t, "deliveries within the window", g.bodies(), nil)
	if s := w.status(); s.State != Recovering {
		t.Fatalf("status %+v", s)
	}
	w.sim.RunFor(600 * time.Millisecond)
	wantEqual(t, "deliveries after it", g.bodies(), []string{"b"})
	// Where all have spoken, nobody waits.
	w.transition()
	g.attach(3, protocol.Claim{Consumer: 1, Offset: 0})
	h.attach(1)
	g.subscribe(1, 0)
	w.settle()
	wantEqual(t, "deliveries once all have spoken", g.bodies(), []string{"b"})
}

func TestGet(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.send(protocol.Get{To: g.to(), Request: 1})
	w.settle()
	if d := take[protocol.GetDone](g); len(d) != 1 || d[0].OK || d[0].Refused != "" {
		t.Fatalf("got %+v", d)
	}
	g.publish("a", "b")
	w.settle()
	g.send(protocol.Get{To: g.to(), Request: 2})
	w.settle()
	if d := take[protocol.GetDone](g); len(d) != 1 || !d[0].OK || d[0].Left != 1 || d[0].Request != 2 {
		t.Fatalf("got %+v", d)
	}
	g.settleOne(0, 0, protocol.Accept)
	w.settle()
	if s := w.status(); s.Ready != 1 || s.Unsettled != 0 {
		t.Fatalf("status %+v", s)
	}
}

func TestCloseAndReopen(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	g.subscribe(1, 1)
	w.settle()
	ask := func(c protocol.Close) string {
		c.To = g.to()
		g.send(c)
		w.settle()
		a := take[protocol.Counted](g)
		if len(a) != 1 {
			t.Fatalf("answers %+v", a)
		}
		return a[0].Refused
	}
	if why := ask(protocol.Close{IfUnused: true}); why != "in use" {
		t.Fatalf("refused %q", why)
	}
	if why := ask(protocol.Close{IfEmpty: true}); why != "not empty" {
		t.Fatalf("refused %q", why)
	}
	if why := ask(protocol.Close{}); why != "" {
		t.Fatalf("refused %q", why)
	}
	g.upTo()
	g.publish("b")
	w.settle()
	if up := g.upTo(); up != 0 {
		t.Fatalf("a closed queue took a message: %d", up)
	}
	g.send(protocol.Reopen{To: g.to()})
	w.settle()
	if up := g.upTo(); up != 3 {
		t.Fatalf("published up to %d", up)
	}
	w.m.Apply([]catalog.Change{{Before: w.res}})
	w.settle()
	if n := take[protocol.NotServing](g); len(n) != 1 || !n[0].Gone {
		t.Fatalf("not serving %+v", n)
	}
	if w.m.Sender(part) != nil || w.disk.copies[part] != nil {
		t.Fatal("the deleted copy is still there")
	}
}

// A gateway that is cut off asks again for what it has no answer to: its own Close is no reason to refuse it. Nobody but who closed a
// queue reopens it.
func TestCloseIsAskedAgain(t *testing.T) {
	w, g := queueWorld(t, nil)
	other := w.gateway(1)
	other.attach(1)
	ask := func(g *fakeGateway, request uint64) string {
		g.send(protocol.Close{To: g.to(), Request: request})
		w.settle()
		a := take[protocol.Counted](g)
		if len(a) != 1 || a[0].Request != request {
			t.Fatalf("answers %+v", a)
		}
		return a[0].Refused
	}
	if why := ask(g, 7); why != "" {
		t.Fatal(why)
	}
	g.attach(1)
	if why := ask(g, 7); why != "" {
		t.Errorf("asked again: %s", why)
	}
	if why := ask(g, 8); why == "" {
		t.Error("another deletion was let in")
	}
	other.send(protocol.Reopen{To: other.to()})
	w.settle()
	if why := ask(other, 7); why == "" {
		t.Error("a gateway reopened what another had closed")
	}
	g.send(protocol.Reopen{To: g.to()})
	w.settle()
	if why := ask(other, 8); why != "" {
		t.Errorf("after it was reopened: %s", why)
	}
}

// TestStoppingRefusesNothing shows that what comes while an owner stops is not refused: it has no answer but that the stream ends, and
// is asked again where the partition is owned next.
func TestStoppingRefusesNothing(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.publish("a")
	w.m.Stop(func() {})
	g.subscribe(1, 1)
	g.send(protocol.Close{To: g.to(), Request: 1}, protocol.Get{To: g.to(), Request: 2}, protocol.Purge{To: g.to(), Request: 3})
	w.settle()
	if up := g.upTo(); up != 2 {
		t.Errorf("published up to %d", up)
	}
	for _, m := range g.got {
		switch m := m.(type) {
		case protocol.Subscribed:
			t.Errorf("%+v", m)
		case protocol.Counted:
			if m.Refused != "" {
				t.Errorf("%+v", m)
			}
		case protocol.GetDone:
			if m.Refused != "" {
				t.Errorf("%+v", m)
			}
		}
	}
	if n := take[protocol.NotServing](g); len(n) != 1 {
		t.Errorf("not serving %+v", n)
	}
}

func TestExpiryAndAutoDelete(t *testing.T) {
	w, g := queueWorld(t, &queue.Settings{Expires: 1000})
	g.send(protocol.Detach{To: g.to()})
	w.settle()
	w.refuse = errors.New("busy")
	w.sim.RunFor(1500 * time.Millisecond)
	if len(w.deletes) != 1 {
		t.Fatalf("deletes %v", w.deletes)
	}
	w.refuse = nil
	w.sim.RunFor(1500 * time.Millisecond) // refused once: asked again after as long
	if len(w.deletes) != 2 {
		t.Fatalf("deletes %v", w.deletes)
	}

	w = newWorld(t, 2)
	w.declare(catalog.Queue, nil, nil)
	w.res.AutoDelete = true
	g = w.gateway(0)
	g.attach(1)
	w.sim.RunFor(time.Second)
	if len(w.deletes) != 0 {
		t.Fatalf("deleted before it had a consumer: %v", w.deletes)
	}
	g.subscribe(1, 0)
	w.settle()
	w.refuse = errors.New("no leader")
	g.send(protocol.Unsubscribe{To: g.to(), Consumer: 1})
	w.settle()
	if len(w.deletes) != 1 {
		t.Fatalf("deletes %v", w.deletes)
	}
	w.sim.RunFor(2500 * time.Millisecond) // asked again, not all the time
	if len(w.deletes) != 3 {
		t.Fatalf("deletes %v", w.deletes)
	}
}

func TestMessageTTLNeedsNoTraffic(t *testing.T) {
	ttl := int64(200)
	w, g := queueWorld(t, &queue.Settings{TTL: &ttl})
	g.publish("a", "b")
	w.settle()
	w.sim.RunFor(100 * time.Millisecond)
	if s := w.status(); s.Ready != 2 {
		t.Fatalf("status %+v", s)
	}
	w.sim.RunFor(300 * time.Millisecond)
	if s := w.status(); s.Ready != 0 {
		t.Fatalf("status %+v", s)
	}
}

// Dead letters carry the number that the log gave them, also when a later owner asks again.
func TestDeadLettersKeepTheirNumber(t *testing.T) {
	dlx := "dlx"
	w := newWorld(t, 3)
	w.courier = &fakeGateway{w: w}
	w.declare(catalog.Queue, &queue.Settings{DeadLetterExchange: &dlx}, nil)
	g := w.gateway(0)
	g.attach(1)
	g.publish("a", "b")
	g.subscribe(1, 0)
	w.settle()
	g.settleOne(1, 1, protocol.Reject)
	w.settle()
	first := take[protocol.DeadLetter](w.courier)
	if len(first) != 1 || string(first[0].Body) != "b" || first[0].Reason != "rejected" || first[0].Number != 1 {
		t.Fatalf("dead letters %+v", first)
	}
	// Kept: asked again later, under its number.
	first[0].Reply.Send(protocol.DeadLettered{Partition: part, Number: 1, Offset: 1, Kept: "full"})
	w.settle()
	if s := w.status(); s.DeadLetters != 1 || s.Stuck != "full" {
		t.Fatalf("status %+v", s)
	}
	w.sim.RunFor(2 * time.Second)
	if again := take[protocol.DeadLetter](w.courier); len(again) == 0 || again[0].Number != 1 {
		t.Fatalf("dead letters %+v", again)
	}
	w.crash()
	w.start()
	w.transition()
	again := take[protocol.DeadLetter](w.courier)
	if len(again) != 1 || again[0].Number != 1 || string(again[0].Body) != "b" {
		t.Fatalf("after a restart: %+v", again)
	}
	again[0].Reply.Send(protocol.DeadLettered{Partition: part, Number: 1, Offset: 1})
	w.settle()
	if s := w.status(); s.DeadLetters != 0 || s.Ready != 1 {
		t.Fatalf("status %+v", s)
	}
	w.crash()
	w.start()
	w.transition()
	if more := take[protocol.DeadLetter](w.courier); len(more) != 0 {
		t.Fatalf("a settled dead letter came back: %+v", more)
	}
}

// Snapshots bound what a restart reads, and say to the log what may go.
func TestSnapshotsAndRetain(t *testing.T) {
	w, g := queueWorld(t, nil)
	g.subscribe(1, 0)
	for i := range 700 {
		var bodies []string
		for n := range 100 {
			bodies = append(bodies, fmt.Sprint(i*100+n))
		}
		g.publish(bodies...)
		w.settle()
		if i < 690 {
			g.seq++
			g.send(protocol.Settle{To: g.to(), Seq: g.seq, Items: []protocol.SettleItem{{Consumer: 1, First: uint64(i * 100), Last: uint64(i*100 + 99)}}})
		}
	}
	w.settle()
	c := w.disk.copies[part]
	if c.snap.At.Position < saveEntries {
		t.Fatalf("snapshot at %d", c.snap.At.Position)
	}
	l := w.store.logs[part]
	if l.from != c.snap.At.Position || len(l.retains) == 0 {
		t.Fatalf("retain from %d, snapshot at %d", l.from, c.snap.At.Position)
	}
	w.crash()
	w.start()
	w.transition()
	if s := w.status(); s.Ready != 1000 || s.State != Serving {
		t.Fatalf("status %+v", s)
	}
	h := w.gateway(0)
	h.attach(1)
	h.subscribe(1, 0)
	w.settle()
	got := h.bodies()
	if len(got) != 1000 || got[0] != "69000" || got[999] != "69999" {
		t.Fatalf("%d deliveries, first %s", len(got), got[0])
	}
	// A clean stop leaves little to read.
	stopped := false
	w.m.Stop(func() { stopped = true })
	w.settle()
	if !stopped {
		t.Fatal("not stopped")
	}
	if n := take[protocol.NotServing](h); len(n) != 1 {
		t.Fatalf("not serving %+v", n)
	}
}
