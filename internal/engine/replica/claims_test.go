package replica

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// A new owner of a full queue does not know what is in clients' hands before the gateways have said so: it drops nothing, purges nothing
// and refuses nothing because of it, and answers a moment later.
func TestClaimsComeBeforeLimitsAndPurges(t *testing.T) {
	two := int64(2)
	for _, overflow := range []queue.Overflow{queue.DropHead, queue.RejectPublish} {
		w := newWorld(t, 1)
		w.declare(catalog.Queue, &queue.Settings{MaxLength: &two, Overflow: overflow}, nil)
		g := w.gateway(0)
		g.attach(1)
		g.subscribe(1, 2)
		w.settle()
		g.publish("a")
		w.settle()
		g.publish("b")
		w.settle()
		g.publish("c")
		w.settle()
		wantEqual(t, "deliveries", g.bodies(), []string{"a", "b"})
		h := w.gateway(1)
		w.claim = []protocol.Gateway{g.id, h.id}
		w.transition()
		h.attach(1)
		h.publish("d")
		h.send(protocol.Get{To: h.to(), Request: 1, NoAck: true}, protocol.Purge{To: h.to(), Request: 2}, protocol.Stats{To: h.to(), Request: 3})
		w.settle()
		if a, b := take[protocol.Counted](h), take[protocol.GetDone](h); len(a) > 0 || len(b) > 0 {
			t.Fatalf("%q: answered before the claims were in: %+v %+v", overflow, a, b)
		}
		w.sim.RunFor(100 * time.Millisecond)
		g.attach(4, protocol.Claim{Consumer: 1, Offset: 0}, protocol.Claim{Consumer: 1, Offset: 1})
		w.settle()
		if r := take[protocol.PublishRefused](h); len(r) > 0 {
			t.Fatalf("%q: refused %+v of a queue with one ready message", overflow, r)
		}
		if d := take[protocol.GetDone](h); len(d) != 1 || string(d[0].Item.Body) != "c" {
			t.Fatalf("%q: got %+v", overflow, d)
		}
		g.settleOne(1, 0, protocol.Accept)
		g.settleOne(1, 1, protocol.Requeue)
		w.settle()
		if s := w.status(); s.Unsettled != 0 || s.Ready == 0 || s.Ready > 2 {
			t.Fatalf("%q: status %+v", overflow, s)
		}
		h.send(protocol.Get{To: h.to(), Request: 4})
		w.settle()
		if d := take[protocol.GetDone](h); len(d) != 1 || string(d[0].Item.Body) != "b" {
			t.Fatalf("%q: what was given back was dropped: %+v", overflow, d)
		}
	}
}

// A gateway that holds nothing says so, perhaps before the new owner has applied its epoch, and is not waited for; what it said of one
// epoch does not count in the next.
func TestNewOwnerWaitsForNoGatewayThatHoldsNothing(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	g, idle := w.gateway(0), protocol.Gateway{Node: "n2", Boot: 3}
	g.attach(1)
	g.publish("a")
	g.subscribe(1, 1)
	w.settle()
	wantEqual(t, "deliveries", g.bodies(), []string{"a"})
	w.claim = []protocol.Gateway{g.id, idle}
	unclaimed := func(epoch uint64) {
		w.m.Unclaimed(protocol.Unclaimed{Gateway: idle, Items: []protocol.UnclaimedItem{{Partition: part, Epoch: epoch}}})
	}
	claiming := func() bool { return w.status().State == Recovering }

	unclaimed(1) // of the epoch that is served: no news
	unclaimed(2)
	w.transition()
	if !claiming() {
		t.Fatal("serves before the gateway that holds something has attached")
	}
	g.attach(2, protocol.Claim{Consumer: 1, Offset: 0})
	if claiming() {
		t.Fatal("waits for a gateway that holds nothing")
	}

	w.transition()
	g.attach(2, protocol.Claim{Consumer: 1, Offset: 0})
	if !claiming() {
		t.Fatal("what was said of an earlier epoch counted")
	}
	unclaimed(3)
	if claiming() {
		t.Fatal("waits for a gateway that holds nothing")
	}

	w.transition()
	g.attach(2, protocol.Claim{Consumer: 1, Offset: 0})
	w.clock.Skew(-time.Hour, 0) // changes nothing
	w.sim.RunFor(claimsWindow*time.Millisecond + time.Millisecond)
	if claiming() {
		t.Fatal("waits for longer than the window")
	}
}

// A gateway of a node that hangs has had more than the time for claims already: consumers elsewhere wait no longer than publishers do. One whose
// session broke is waited for, since it may be on its way, and so is one that is heard again.
func TestNewOwnerWaitsForNoGatewayOfANodeThatHangs(t *testing.T) {
	hung := protocol.Gateway{Node: "n2", Boot: 3}
	for _, c := range []struct {
		name          string
		before, later func(m *Manager)
		waits, then   bool
	}{
		{"it hangs", func(m *Manager) { m.PeerSilent("n2") }, func(*Manager) {}, false, false},
		{"its session broke", func(m *Manager) { m.PeerDown("n2") }, func(*Manager) {}, true, true},
		{"it is missed meanwhile", func(*Manager) {}, func(m *Manager) { m.PeerSilent("n2") }, true, false},
		{"it is heard again", func(m *Manager) {
			m.PeerSilent("n2")
			m.PeerUp(ident.Instance{Node: "n2", Boot: 3})
		}, func(*Manager) {}, true, true},
		{"another hangs", func(m *Manager) { m.PeerSilent("n3") }, func(*Manager) {}, true, true},
	} {
		w := newWorld(t, 1)
		w.declare(catalog.Queue, &queue.Settings{}, nil)
		w.claim = []protocol.Gateway{hung}
		w.m.PeerUp(ident.Instance{Node: "n2", Boot: 3})
		c.before(w.m)
		w.transition()
		if waits := w.status().State == Recovering; waits != c.waits {
			t.Errorf("%s: waits %v, want %v", c.name, waits, c.waits)
		}
		c.later(w.m)
		w.settle()
		if waits := w.status().State == Recovering; waits != c.then {
			t.Errorf("%s: then waits %v, want %v", c.name, waits, c.then)
		}
	}
}

// A node that comes back with another store counts its runs from 1 again: its gateway has the name of one that is gone, and a producer of
// a later run. What the old one held goes back to the queue.
func TestAGatewayOfAnotherStoreIsAnother(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	old := w.gateway(0)
	old.stream = 6
	old.attach(1)
	old.subscribe(1, 2)
	w.settle()
	old.publish("a")
	w.settle()
	wantEqual(t, "deliveries", old.bodies(), []string{"a"})
	w.number++
	g := w.gateway(0)
	if g.id != old.id {
		t.Fatalf("gateways %v and %v", g.id, old.id)
	}
	g.attach(1)
	if a := take[protocol.Attached](g); len(a) != 1 {
		t.Fatalf("attached %+v", a)
	}
	if s := w.status(); s.Unsettled != 0 || s.Ready != 1 {
		t.Fatalf("status %+v", s)
	}
}

// No later run of a node that leaves the cluster will ever be registered: its gateways go with it, and their producers.
func TestNothingIsKeptOfTheGatewaysOfANodeThatLeaves(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	n2 := &catalog.Node{Name: "n2", Store: ident.StoreID{2}, Boot: 1, Number: 2}
	w.m.Apply([]catalog.Change{{After: n2}})
	g, h := w.gateway(0), w.gateway(0)
	h.id.Node, h.id.Boot, h.prod = n2.Name, n2.Boot, protocol.ProducerID(n2.Number, 0, 0)
	for _, x := range []*fakeGateway{g, h} {
		x.attach(1)
		x.publish("a")
	}
	h.subscribe(1, 5)
	w.settle()
	known := func() int { n, _ := w.m.find(part).producers.Len(); return n }
	if s := w.status(); s.Unsettled != 2 || known() != 2 {
		t.Fatalf("%+v, %d producers", s, known())
	}
	w.m.Apply([]catalog.Change{{Before: n2}})
	w.settle()
	g.publish("b") // what was given back, and who goes, is logged with it
	w.settle()
	if s := w.status(); s.Unsettled != 0 || s.Ready != 3 || s.Consumers != 0 || known() != 1 {
		t.Errorf("%+v, %d producers", s, known())
	}
}

// A gateway that was away while an owner in between handed on what it held comes first to the next owner, claims that, and gives it back, or is lost.
// Who has it now comes later, and accepts it: that counts.
func TestWhatIsSaidBeforeTheClaimsAreInWaitsForThem(t *testing.T) {
	for _, how := range []string{"requeues", "rejects", "is lost"} {
		w := newWorld(t, 1)
		dlx := "dlx"
		w.declare(catalog.Queue, &queue.Settings{DeadLetterExchange: &dlx}, nil)
		stale, now := w.gateway(0), w.gateway(1)
		stale.id.Node = "n2"
		now.attach(1)
		now.publish("a")
		w.settle()
		w.claim = []protocol.Gateway{stale.id, now.id}
		w.transition()
		w.transition()
		claims := func(g *fakeGateway, epoch uint64) {
			g.stream += 5
			g.send(protocol.Attach{To: g.to(), Reply: g, Producer: g.prod, First: g.next, Epoch: epoch, Claims: []protocol.Claim{{Consumer: 1, Offset: 0}}})
			w.settle()
		}
		claims(stale, 1)
		w.disk.stuck = true // what follows from it is still on its way
		switch how {
		case "requeues":
			stale.settleOne(1, 0, protocol.Requeue)
		case "rejects":
			stale.settleOne(1, 0, protocol.Reject)
		case "is lost":
			w.m.PeerGone("n2")
		}
		w.settle()
		claims(now, 2)
		now.settleOne(1, 0, protocol.Accept)
		w.disk.stuck = false
		w.store.run()
		w.sim.RunFor(claimsWindow*time.Millisecond + 20*time.Millisecond)
		if got := take[protocol.Settled](now); len(got) == 0 {
			t.Errorf("%s: the accept is not answered", how)
		}
		if s := w.status(); s.Ready != 0 || s.Unsettled != 0 || s.DeadLetters != 0 || w.m.find(part).side.(*queueSide).m.Counts().Messages != 0 {
			t.Errorf("%s: what was accepted is still there: %+v", how, s)
		}
	}
}
