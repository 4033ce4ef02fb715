package replica

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// trio is a few nodes that hold copies of one partition, in virtual time, with the catalog as the test says that it is.
type trio struct {
	t     *testing.T
	sim   *exec.Sim
	nodes []*member
	res   *catalog.Resource
	// stream is how streams are declared.
	stream stream.Settings
	// asked are the changes of members that owners proposed; answer says what becomes of them.
	asked  []catalog.Membership
	answer func(catalog.Membership) error
	// alone counts the messages that only told a copy what is confirmed.
	alone int
	// begun counts the images that were begun.
	begun int
	// sent counts the bytes of the log that nodes were sent, if it is made.
	sent map[string]int64
}

// member is one node of a group.
type member struct {
	keeping
	*world
	g       *trio
	name    string
	up      bool
	cut     map[string]bool // no session with these
	crowded map[string]bool
	deaf    bool // to the catalog
}

func newTrio(t *testing.T, seed uint64, n int) *trio {
	g := &trio{t: t, sim: exec.NewSim(seed)}
	for i := range n {
		d := newDisk()
		d.id = ident.StoreID{byte(i + 1)}
		w := &world{t: t, sim: g.sim, disk: d, number: uint32(i + 1)}
		m := &member{world: w, g: g, name: fmt.Sprintf("n%d", i+1), cut: map[string]bool{}, crowded: map[string]bool{}}
		g.nodes = append(g.nodes, m)
		m.start()
	}
	for _, m := range g.nodes {
		m.connect()
	}
	return g
}

func (x *member) start() {
	x.disk.boot++
	x.node = x.sim.Node(x.name, 1)
	x.local = ident.Instance{Node: x.name, Store: x.disk.id, Boot: x.disk.boot}
	x.store = openStore(x.disk, x.node)
	x.clock = clock.NewSim(x.sim.Now, time.UnixMilli(1_700_000_000_000))
	x.m = New(Env{
		Exec: x.node, Clock: x.clock, Trace: trace.Discard, Local: x.local,
		Store: x.store, Resources: x.world, Peers: x, Members: x, SnapshotEvery: 8, Became: x.became, Keep: x.keep,
	})
	x.up = true
}

// connect opens the sessions with all nodes that are up.
func (x *member) connect() {
	for _, o := range x.g.nodes {
		if o != x && o.up && x.up && !x.cut[o.name] {
			x.m.PeerUp(o.local)
			o.m.PeerUp(x.local)
		}
	}
}

func (x *member) kill() {
	x.up = false
	x.node.Stop()
	for _, o := range x.g.nodes {
		if o != x && o.up {
			o.m.PeerDown(x.name)
		}
	}
	x.disk.stuck, x.disk.failAfter = false, -1
}

func (x *member) restart() {
	x.number += 10
	x.start()
	x.m.Apply([]catalog.Change{{After: x.g.res}})
	x.connect()
}

// Send implements Peers: what is under way when either end's run ends is lost.
func (x *member) Send(msg any, nodes ...string) {
	for _, to := range nodes {
		x.send(to, msg)
	}
}

func (x *member) send(to string, msg any) {
	from := x.local
	i := slices.IndexFunc(x.g.nodes, func(o *member) bool { return o.name == to })
	o := x.g.nodes[i]
	run := o.local
	if e, ok := msg.(protocol.Extend); ok && len(e.Batches) == 0 {
		x.g.alone++
	}
	if c, ok := msg.(protocol.ImageChunk); ok {
		var k fakeChunk
		if dec(c.Chunk, &k); k.Number == 0 {
			x.g.begun++
		}
	}
	if x.g.sent != nil {
		x.g.sent[to] += size(msg)
	}
	x.sim.At(x.sim.Now()+time.Millisecond, func() {
		if o.up && o.local == run && x.up && x.local == from && !x.cut[to] && !o.cut[x.name] {
			o.m.Receive(from, msg)
		}
	})
}

// Crowded implements Peers.
func (x *member) Crowded(to string) bool { return x.crowded[to] }

// ChangeMembers implements Members.
func (x *member) ChangeMembers(m catalog.Membership, done func(error)) {
	g := x.g
	g.asked = append(g.asked, m)
	if g.answer != nil {
		if err := g.answer(m); err != nil {
			x.sim.At(x.sim.Now()+time.Millisecond, func() { done(err) })
			return
		}
	}
	a := *g.assignment()
	if a.Version != m.Version {
		done(&catalog.Refusal{Code: catalog.VersionMoved})
		return
	}
	a.Version++
	a.Followers, a.Learners, a.Policy = m.Followers, m.Learners, m.Policy
	a.Leaving = slices.DeleteFunc(slices.Clone(a.Leaving), func(l catalog.Member) bool { return !slices.Contains(m.Followers, l) })
	x.sim.At(x.sim.Now()+time.Millisecond, func() {
		g.assign(a)
		done(nil)
	})
}

func (g *trio) assignment() *catalog.Assignment { return g.res.Partitions[0] }

// assign is what the catalog says from now on.
func (g *trio) assign(a catalog.Assignment) {
	res := *g.res
	res.Partitions = []*catalog.Assignment{&a}
	g.res = &res
	for _, m := range g.nodes {
		if m.up && !m.deaf {
			m.m.Apply([]catalog.Change{{After: g.res}})
		}
	}
}

// declare makes a resource that the first node owns, with the given numbers of followers.
func (g *trio) declare(kind catalog.Kind, followers ...int) {
	g.res = &catalog.Resource{
		Incarnation: part.Incarnation, VHost: "/", Name: "r", Kind: kind, Durable: true, Policy: "majority_durable",
	}
	if kind == catalog.Queue {
		g.res.Queue = &queue.Settings{}
	} else {
		g.res.Stream = &g.stream
	}
	a := catalog.Assignment{
		Partition: part, Epoch: 1, Version: 1, Owner: g.nodes[0].local, Starts: []catalog.HistoryStart{{Epoch: 1, Node: "n1"}},
	}
	for _, i := range followers {
		a.Followers = append(a.Followers, g.nodes[i].place())
	}
	g.assign(a)
	g.run(50)
}

func (x *member) place() catalog.Member { return catalog.Member{Node: x.name, Store: x.disk.id} }

// run lets so many milliseconds pass.
func (g *trio) run(ms int) {
	g.sim.RunFor(time.Duration(ms) * time.Millisecond)
}

// status is what a node says of its copy.
func (x *member) status() Status {
	x.t.Helper()
	var got []Status
	x.m.Status([]ident.Partition{part}, func(s []Status) { got = s })
	x.g.run(1)
	if len(got) != 1 {
		x.t.Fatalf("%s: status %+v", x.name, got)
	}
	return got[0]
}

// same fails unless the copies of the given nodes hold the same log, up to and with the given confirmed position.
func (g *trio) same(nodes ...int) {
	g.t.Helper()
	g.sim.RunFor(tellEvery + 2*time.Millisecond)
	first := g.nodes[nodes[0]]
	want := first.status()
	for _, i := range nodes[1:] {
		if s := g.nodes[i].status(); s.Durable != want.Durable || s.Confirmed != want.Confirmed {
			g.t.Fatalf("%s stands at %+v, %s at %+v", first.name, want, g.nodes[i].name, s)
		}
		a, b := first.disk.copies[part].batches, g.nodes[i].disk.copies[part].batches
		if a[len(a)-1].tail != b[len(b)-1].tail {
			g.t.Fatalf("%s ends with %+v, %s with %+v", first.name, a[len(a)-1].tail, g.nodes[i].name, b[len(b)-1].tail)
		}
	}
}

// client attaches to the owner and publishes.
func (g *trio) client(owner int) *fakeGateway {
	gw := g.nodes[owner].gateway(0)
	gw.id.Node = "client"
	gw.stream++
	gw.send(protocol.Attach{To: gw.to(), Reply: gw, Producer: gw.prod, First: 1})
	g.run(5)
	return gw
}

func (g *trio) transition(owner int, answers ...int) {
	g.t.Helper()
	a := *g.assignment()
	var got []SealAnswer
	for _, i := range answers {
		g.nodes[i].m.Seal([]SealRequest{{Partition: part, Epoch: a.Epoch + 1, Transition: "t"}}, func(as []SealAnswer) { got = append(got, as...) })
	}
	g.run(20)
	if len(got) != len(answers) {
		g.t.Fatalf("seal answers %+v", got)
	}
	var tail SealAnswer
	for _, x := range got {
		if x.Damaged != "" || x.Refused != "" {
			g.t.Fatalf("seal answer %+v", x)
		}
		if x.Instance == g.nodes[owner].local {
			tail = x
		}
	}
	old := a.Owner
	a.Epoch++
	a.Version++
	a.Owner = g.nodes[owner].local
	a.Followers = nil
	for _, m := range g.nodes {
		if m.name != a.Owner.Node && (m.name == old.Node || slices.ContainsFunc(g.assignment().Followers, func(f catalog.Member) bool { return f.Node == m.name })) {
			a.Followers = append(a.Followers, m.place())
		}
	}
	a.Starts = append(slices.Clone(a.Starts), catalog.HistoryStart{
		Epoch: a.Epoch, Position: tail.Tail.Position, Offset: tail.Tail.Offset, Link: tail.Tail.Link, Node: a.Owner.Node,
	})
	g.assign(a)
	g.run(50)
}

func TestWhatIsConfirmedIsOnAMajority(t *testing.T) {
	g := newTrio(t, 1, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("a", "b")
	g.run(10)
	if at := c.upTo(); at != 3 {
		t.Fatalf("confirmed below %d, want 3", at)
	}
	g.same(0, 1, 2)

	g.nodes[2].disk.stuck = true // one follower cannot sync: the other is enough
	c.publish("c")
	g.run(10)
	if at := c.upTo(); at != 4 {
		t.Fatalf("with one follower: confirmed below %d, want 4", at)
	}
	g.nodes[1].disk.stuck = true
	c.publish("d")
	g.run(10)
	if at := c.upTo(); at != 0 {
		t.Fatalf("on the owner alone: confirmed below %d", at)
	}
	g.nodes[1].disk.stuck = false
	g.nodes[1].store.run()
	g.run(10)
	if at := c.upTo(); at != 5 {
		t.Fatalf("confirmed below %d, want 5", at)
	}
	g.nodes[0].disk.stuck = true // followers never stand in for the owner
	c.publish("e")
	g.run(10)
	if at := c.upTo(); at != 0 {
		t.Fatalf("without the owner: confirmed below %d", at)
	}
}

func TestAFollowerGoesOnWhereItWas(t *testing.T) {
	for _, kind := range []catalog.Kind{catalog.Queue, catalog.Stream} {
		g := newTrio(t, 2, 3)
		g.declare(kind, 1, 2)
		c := g.client(0)
		for i := range 40 {
			c.publish(fmt.Sprint("m", i))
			g.run(3)
			switch i {
			case 10:
				g.nodes[1].kill()
			case 20:
				g.nodes[1].restart()
			case 25:
				g.nodes[2].kill()
			case 30:
				g.nodes[2].restart()
			}
		}
		g.run(20)
		if at := c.upTo(); at != 41 {
			t.Fatalf("confirmed below %d, want 41", at)
		}
		g.same(0, 1, 2)
		if s := g.nodes[1].status(); s.Epoch != 1 || s.Role != "follower" {
			t.Fatalf("after its return the follower is %+v", s)
		}
	}
}

func TestTooFewCopiesRefuseAtOnce(t *testing.T) {
	g := newTrio(t, 3, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("a")
	g.run(10)
	g.nodes[1].kill()
	g.nodes[2].kill()
	g.run(5)
	c.got = nil
	c.publish("b")
	g.run(10)
	if r := take[protocol.PublishRefused](c); len(r) != 1 || r[0].First != 2 || r[0].Unknown {
		t.Fatalf("refused %+v", r)
	}
	g.nodes[1].restart()
	g.run(30)
	c.publish("c")
	g.run(20)
	if at := c.upTo(); at != 4 {
		t.Fatalf("confirmed below %d, want 4", at)
	}
}

func TestALearnerIsAdmittedWhenItHoldsEverything(t *testing.T) {
	g := newTrio(t, 4, 3)
	g.declare(catalog.Queue)
	c := g.client(0)
	for i := range 30 {
		c.publish(fmt.Sprint("m", i))
		g.run(2)
	}
	for i := 1; i < 3; i++ {
		a := *g.assignment()
		a.Version++
		a.Learners = []catalog.Member{g.nodes[i].place()}
		g.assign(a)
		g.run(60)
		if got := g.assignment(); len(got.Followers) != i || len(got.Learners) != 0 || got.Epoch != 1 {
			t.Fatalf("after a learner came: %+v", got)
		}
	}
	for _, m := range g.asked {
		if at := slices.IndexFunc(m.Evidence, func(e catalog.Evidence) bool { return e.Position < m.Floor }); at >= 0 && len(m.Followers) < 2 {
			t.Fatalf("proposed with evidence %+v below %d", m.Evidence, m.Floor)
		}
	}
	c.publish("last")
	g.run(20)
	if at := c.upTo(); at != 32 {
		t.Fatalf("confirmed below %d, want 32", at)
	}
	g.same(0, 1, 2)
	if s := g.nodes[2].status(); s.Role != "follower" {
		t.Fatalf("the learner is %+v", s)
	}
}

func TestBothSetsConfirmUntilTheCatalogHasAnswered(t *testing.T) {
	g := newTrio(t, 5, 3)
	g.declare(catalog.Queue)
	c := g.client(0)
	c.publish("a")
	g.run(5)
	unknown := true
	g.answer = func(catalog.Membership) error {
		if unknown {
			return fmt.Errorf("nobody leads")
		}
		return nil
	}
	a := *g.assignment()
	a.Version++
	a.Learners = []catalog.Member{g.nodes[1].place()}
	g.assign(a)
	g.run(30)
	if len(g.asked) == 0 {
		t.Fatal("nothing was proposed")
	}
	g.nodes[1].disk.stuck = true
	c.got = nil
	c.publish("b")
	g.run(30)
	if at := c.upTo(); at != 0 {
		t.Fatalf("confirmed below %d by the old set alone, while the new one may be in force", at)
	}
	g.nodes[1].disk.stuck = false
	g.nodes[1].store.run()
	g.run(30)
	if at := c.upTo(); at != 3 {
		t.Fatalf("confirmed below %d, want 3", at)
	}
	unknown = false
	g.run(1500)
	if got := g.assignment(); len(got.Followers) != 1 {
		t.Fatalf("asked again, the assignment is %+v", got)
	}
}

func TestAFollowerOwnsWithWhatWasConfirmed(t *testing.T) {
	g := newTrio(t, 6, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	for i := range 30 {
		c.publish(fmt.Sprint("m", i))
		g.run(2)
	}
	g.run(10)
	if at := c.upTo(); at != 31 {
		t.Fatalf("confirmed below %d, want 31", at)
	}
	g.nodes[0].kill()
	g.transition(1, 1, 2)
	d := g.client(1)
	d.send(protocol.Subscribe{To: d.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
	g.run(20)
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprint("m", i))
	}
	wantEqual(t, "delivered by the new owner", d.bodies(), want)
	g.nodes[0].restart()
	g.run(50)
	g.same(1, 2, 0)
	if s := g.nodes[0].status(); s.Role != "follower" || s.Epoch != 2 {
		t.Fatalf("the old owner is %+v", s)
	}
}

func TestAnOldOwnersUnconfirmedEndIsCut(t *testing.T) {
	g := newTrio(t, 7, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("kept")
	g.run(10)
	g.nodes[0].cut["n2"], g.nodes[0].cut["n3"] = true, true // its batches do not arrive; nobody knows yet
	c.publish("lost")
	g.run(10)
	g.nodes[0].kill()
	clear(g.nodes[0].cut)
	g.transition(2, 1, 2)
	d := g.client(2)
	d.publish("new")
	g.run(20)
	g.nodes[0].restart()
	g.run(50)
	g.same(2, 0, 1)
}

func TestAStrangerIsNotHeard(t *testing.T) {
	g := newTrio(t, 8, 3)
	g.declare(catalog.Queue, 1, 2)
	before := g.nodes[1].status()
	liar := ident.Instance{Node: "n3", Store: g.nodes[2].disk.id, Boot: 9}
	g.nodes[1].m.Receive(liar, protocol.Extend{Partition: part, Epoch: 1, From: g.nodes[0].local, Confirmed: 99})
	g.nodes[1].m.Receive(liar, protocol.Extend{Partition: part, Epoch: 1, From: liar, Confirmed: 99})
	g.nodes[0].m.Receive(liar, protocol.Held{Partition: part, Epoch: 2, From: liar, Durable: 99})
	g.run(5)
	if after := g.nodes[1].status(); !reflect.DeepEqual(after, before) {
		t.Fatalf("was %+v, is %+v", before, after)
	}
}

func TestFeedSendsInOrderWithinItsWindow(t *testing.T) {
	var f partition.Feed
	if f.Takes(0) {
		t.Fatal("takes batches before it is known where the copy stands")
	}
	f.Stand(10, 10)
	if _, ok := f.Behind(10); ok || !f.Takes(10) || f.Takes(9) {
		t.Fatal("at the end of the log, only what comes next is sent")
	}
	f.Sent(20, partition.FeedWindow, 10)
	if f.Takes(20) {
		t.Fatal("takes more than its window")
	}
	if _, ok := f.Behind(30); ok {
		t.Fatal("reads on while the window is full")
	}
	if !f.Held(20) || f.Durable() != 20 {
		t.Fatalf("no room after all was held; durable %d", f.Durable())
	}
	from, ok := f.Behind(30)
	if !ok || from != 20 || f.Takes(20) {
		t.Fatalf("behind: %d %v; nothing live goes while it reads", from, ok)
	}
	f.Lose()
	if f.Read(from) {
		t.Fatal("wants what was read for a session that has ended")
	}
}

func TestAnOwnerThatIsChosenAgainFeedsItsCopies(t *testing.T) {
	g := newTrio(t, 10, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("a")
	g.run(20)
	g.transition(0, 0, 1, 2)
	d := g.client(0)
	d.publish("b")
	g.run(20)
	if at := d.upTo(); at != 2 {
		t.Fatalf("confirmed below %d in the next epoch, want 2", at)
	}
	g.same(0, 1, 2)
}

// A node that comes back with another store takes its own place again: it learns beside the place that is kept for the old store.
func TestANodeWithAnotherStoreTakesItsPlaceAgain(t *testing.T) {
	g := newTrio(t, 12, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	for i := range 10 {
		c.publish(fmt.Sprint("m", i))
		g.run(2)
	}
	g.nodes[1].kill()
	g.nodes[1].disk = newDisk()
	g.nodes[1].disk.id = ident.StoreID{9}
	a := *g.assignment()
	a.Version++
	a.Learners = []catalog.Member{g.nodes[1].place()}
	g.assign(a)
	g.nodes[1].restart()
	g.run(100)
	c.publish("last")
	g.run(100)
	if got := g.assignment(); len(got.Learners) != 0 || len(got.Followers) != 2 || !got.Member(ident.StoreID{9}) || got.Member(ident.StoreID{2}) {
		t.Fatalf("the members are %+v, learners %+v", got.Followers, got.Learners)
	}
	g.same(0, 1, 2)
}
