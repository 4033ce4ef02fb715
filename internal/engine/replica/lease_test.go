package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// leased declares a queue of one copy on a node whose owners go by leases, attaches a gateway, and grants a first lease of 5 s.
func leased(t *testing.T) (*world, *fakeGateway) {
	w := newWorld(t, 1)
	w.m.rights.now.Store(&right{})
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	g := w.gateway(0)
	g.stream++
	g.send(protocol.Attach{To: g.to(), Reply: g, Producer: g.prod, First: 1})
	w.m.SetTerm(1)
	w.pass(10)
	if s := w.at(); s.State == Serving {
		t.Fatalf("serves before it has a lease: %+v", s)
	}
	w.grant(1, 5*time.Second)
	w.pass(10)
	g.got = nil
	return w, g
}

// grant gives the run a lease from now on.
func (w *world) grant(term uint64, ttl time.Duration) {
	now := w.clock.Mono()
	w.m.SetLease(lease.Lease{Term: term, Sent: now, Expires: now + ttl})
}

func (w *world) pass(ms int) { w.sim.RunFor(time.Duration(ms) * time.Millisecond) }

// at is the status where timers are not to be waited for.
func (w *world) at() (s Status) {
	told := false
	w.m.Status(nil, func(all []Status) { s, told = all[0], true })
	w.sim.RunUntil(func() bool { return told }, time.Millisecond)
	return s
}

func refusedFor(g *fakeGateway) (causes []protocol.Cause) {
	for _, r := range take[protocol.PublishRefused](g) {
		causes = append(causes, r.Cause)
	}
	return causes
}

func TestAnExpiredLeaseClosesAnOwnerToWhatIsDurable(t *testing.T) {
	w, g := leased(t)
	g.send(protocol.Subscribe{To: g.to(), Consumer: 1, Credit: 1 << 20, Prefetch: 2})
	g.publish("a", "b", "c")
	w.pass(100)
	if at := g.upTo(); at != 4 {
		t.Fatalf("with a lease: confirmed below %d", at)
	}
	wantEqual(t, "delivered", g.bodies(), []string{"a", "b"})
	g.got = nil
	w.pass(4888)
	g.publish("d")
	w.pass(1) // another is left
	if at := g.upTo(); at != 5 {
		t.Fatalf("just before its end: confirmed below %d", at)
	}
	w.pass(1)
	end := w.at().Position
	g.publish("e") // at its end
	g.send(protocol.Purge{To: g.to(), Request: 9}, protocol.Subscribe{To: g.to(), Consumer: 2, Credit: 1 << 20})
	w.pass(100)
	wantEqual(t, "refused", refusedFor(g), []protocol.Cause{protocol.CauseLease})
	if c := take[protocol.Counted](g); len(c) != 1 || c[0].Refused == "" {
		t.Errorf("a purge was answered %+v", c)
	}
	wantEqual(t, "delivered where another may own by now", g.bodies(), nil)
	g.send(protocol.Settle{To: g.to(), Seq: 1, Items: []protocol.SettleItem{{Consumer: 1, First: 0, Last: 1}}})
	w.pass(100)
	if s := take[protocol.Settled](g); len(s) > 0 {
		t.Errorf("a settle was answered %+v", s)
	}
	if s := w.at(); s.State != Serving || s.Reason == "" {
		t.Errorf("it does not say that it is fenced: %+v", s)
	}
	if at := w.at().Position; at != end {
		t.Errorf("its log grew from %d to %d", end, at)
	}

	w.grant(1, 5*time.Second)
	g.publish("f")
	w.pass(100)
	if at := g.upTo(); at != 7 {
		t.Errorf("with a new lease: confirmed below %d, want 7", at)
	}
	if s := take[protocol.Settled](g); len(s) != 1 {
		t.Errorf("the settle was answered %+v", s)
	}
	wantEqual(t, "delivered with a new lease", slices.Sorted(slices.Values(g.bodies())), []string{"c", "d", "f"})
}

// A process that was stopped between admitting a publish and confirming it, and goes on after its lease, confirms nothing: another copy may own
// by then, without it.
func TestAHaltedOwnerConfirmsNothingAfterItsLease(t *testing.T) {
	w, g := leased(t)
	w.disk.stuck = true
	g.publish("a")
	w.pass(6000)
	w.disk.stuck = false
	w.store.box.Post(func() {})
	g.publish("b")
	w.pass(100)
	if at := g.upTo(); at != 0 {
		t.Fatalf("confirmed below %d after its lease", at)
	}
	wantEqual(t, "refused", refusedFor(g), []protocol.Cause{protocol.CauseLease})
	w.grant(1, 5*time.Second)
	w.pass(100)
	if at := g.upTo(); at != 3 {
		t.Fatalf("with a new lease: confirmed below %d, want 3", at)
	}
}

func TestPublishesWaitAMomentForANewController(t *testing.T) {
	w, g := leased(t)
	w.m.SetTerm(2)
	g.publish("a")
	w.pass(500)
	if at, refused := g.upTo(), refusedFor(g); at != 0 || len(refused) > 0 {
		t.Fatalf("between two controllers: confirmed below %d, refused %v", at, refused)
	}
	w.grant(2, 5*time.Second)
	w.pass(10)
	if at := g.upTo(); at != 2 {
		t.Fatalf("confirmed below %d", at)
	}
	w.m.SetTerm(3)
	g.publish("b")
	w.pass(fencedFor + 10)
	wantEqual(t, "refused where none speaks", refusedFor(g), []protocol.Cause{protocol.CauseLease})
	w.m.SetLease(lease.Lease{Term: 3, Revoked: true})
	g.publish("c")
	w.pass(10)
	wantEqual(t, "refused at once where it was taken back", refusedFor(g), []protocol.Cause{protocol.CauseLease})
}

// Where epochs fence an owner no lease is asked for, unless that is set.
func TestLeasesFenceAMajorityOnlyIfSet(t *testing.T) {
	g := newTrio(t, 3, 3)
	for _, x := range g.nodes {
		x.m.rights.now.Store(&right{})
	}
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("a")
	g.run(10)
	if at := c.upTo(); at != 2 {
		t.Fatalf("confirmed below %d", at)
	}
	g.nodes[0].m.FenceAlways(true)
	c.publish("b")
	g.run(fencedFor + 10)
	wantEqual(t, "refused", refusedFor(c), []protocol.Cause{protocol.CauseLease})
	g.nodes[0].m.FenceAlways(false)
	c.publish("c")
	g.run(10)
	if at := c.upTo(); at != 4 {
		t.Fatalf("confirmed below %d, want 4", at)
	}
}

// A node that stops does not wait for a lease.
func TestAFencedOwnerStops(t *testing.T) {
	w, g := leased(t)
	w.disk.stuck = true
	for range maxFlights + 1 {
		g.publish("a")
		w.sim.RunFor(time.Millisecond)
	}
	w.pass(6000)
	stopped := false
	w.m.Stop(func() { stopped = true })
	w.disk.stuck = false
	w.store.box.Post(func() {})
	w.pass(100)
	if !stopped {
		t.Fatal("it waits for ever")
	}
}

// An owner that was given up while it was fenced learns of it before a new lease lets it confirm: a lease is for what the run owns by then.
func TestANewLeaseIsForWhatTheCatalogSaysByThen(t *testing.T) {
	w, g := leased(t)
	w.disk.stuck = true
	g.publish("a")
	w.pass(6000)
	w.disk.stuck = false
	w.store.box.Post(func() {})
	w.pass(10)
	next := *w.res.Partitions[0]
	next.Epoch, next.Version, next.Owner.Node, next.Owner.Store = 2, 2, "n2", [16]byte{2}
	res := *w.res
	res.Partitions = []*catalog.Assignment{&next}
	r := w.m.find(part)
	r.box.Post(call{func() { // both come while the owner is busy
		w.m.Apply([]catalog.Change{{After: &res}})
		w.grant(1, 5*time.Second)
		if err := r.fenced(); err == nil {
			t.Error("it goes by a lease that is not for what it owned before")
		}
		r.step(func(*partition.Effects) {})
	}})
	w.pass(100)
	if at := g.upTo(); at != 0 {
		t.Errorf("confirmed below %d", at)
	}
}
