package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

func TestACopyThatLostWhatItHeldCountsForNothing(t *testing.T) {
	for _, learner := range []bool{false, true} {
		g := newTrio(t, 11, 2)
		if learner {
			g.declare(catalog.Queue)
			g.answer = func(catalog.Membership) error { return &catalog.Refusal{Code: catalog.Invalid} }
			a := *g.assignment()
			a.Version++
			a.Learners = []catalog.Member{g.nodes[1].place()}
			g.assign(a)
		} else {
			g.declare(catalog.Queue, 1)
		}
		c := g.client(0)
		for i := range 10 {
			c.publish(fmt.Sprint("m", i))
			g.run(2)
		}
		g.run(20)
		g.nodes[1].kill()
		lost := g.nodes[1].disk.copies[part]
		lost.batches = lost.batches[:3] // as after a disk that lied about its syncs
		lost.snap, lost.pages = partition.Snapshot{}, map[uint32][]byte{}
		g.answer = nil
		g.nodes[1].restart()
		g.run(2000)
		c.got = nil
		c.publish("x")
		g.run(100)
		switch {
		case learner && len(g.assignment().Followers) > 0:
			t.Fatal("it was admitted")
		case !learner && len(take[protocol.PublishRefused](c)) != 1:
			t.Fatal("it counts among the copies that a confirm needs")
		}
	}
}

// A follower's node comes back with an empty store. It learns while the place of the old store is kept, and then takes that place.
func TestANewStoreLearnsInItsOwnPlace(t *testing.T) {
	g := newTrio(t, 12, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	for i := range 5 {
		c.publish(fmt.Sprint("m", i))
	}
	g.run(20)
	lost := g.nodes[2]
	lost.kill()
	lost.disk = newDisk()
	lost.disk.id = ident.StoreID{33}
	lost.restart()
	a := *g.assignment()
	a.Version++
	a.Learners = []catalog.Member{lost.place()}
	g.assign(a)
	g.run(200)
	got := g.assignment()
	if len(got.Learners) != 0 || !slices.Equal(got.Followers, []catalog.Member{g.nodes[1].place(), lost.place()}) {
		t.Fatalf("followers %v, learners %v: the new store was not admitted", got.Followers, got.Learners)
	}
	g.nodes[1].kill()
	c.publish("x")
	g.run(20)
	if at := c.upTo(); at != 7 {
		t.Fatalf("confirmed below %d with the new store, want 7", at)
	}
	g.same(0, 2)
}

// The owner's own disk is the last to hold what a learner must. Nobody says anything afterwards, and the learner is admitted.
func TestALearnerIsAdmittedThatWasFasterThanTheOwner(t *testing.T) {
	g := newTrio(t, 13, 2)
	g.declare(catalog.Queue)
	owner := g.nodes[0]
	owner.kill()
	owner.restart()
	a := *g.assignment()
	bs := owner.disk.copies[part].batches
	end := bs[len(bs)-1].tail
	a.Epoch, a.Version, a.Owner, a.Learners = 2, a.Version+1, owner.local, []catalog.Member{g.nodes[1].place()}
	a.Starts = append(slices.Clone(a.Starts), catalog.HistoryStart{
		Epoch: 2, Position: end.Position, Offset: end.Offset, Link: end.Link, Node: owner.name,
	})
	g.assign(a)
	if !g.sim.RunUntil(func() bool { return owner.disk.copies[part].image.RoleEpoch == 2 }, time.Second) {
		t.Fatal("the owner does not begin its epoch")
	}
	owner.disk.stuck = true
	g.run(50)
	if s := g.nodes[1].status(); s.Durable != end.Position+1 {
		t.Fatalf("the learner holds the log up to %d, want %d, the epoch's mark", s.Durable, end.Position+1)
	}
	owner.disk.stuck = false
	owner.store.run()
	g.run(100)
	if got := g.assignment(); len(got.Followers) != 1 || len(got.Learners) != 0 {
		t.Fatalf("followers %v, learners %v", got.Followers, got.Learners)
	}
}

func TestAGatewayThatDoesNotComeBackHoldsNothing(t *testing.T) {
	g := newTrio(t, 13, 2)
	g.declare(catalog.Queue, 1)
	c := g.client(0)
	c.id.Node = "n2"
	c.stream++
	c.send(protocol.Attach{To: c.to(), Reply: c, Producer: c.prod, First: 1})
	c.send(protocol.Subscribe{To: c.to(), Consumer: 1, Credit: 1 << 20})
	c.publish("a", "b")
	g.run(20)
	if s := g.nodes[0].status(); s.Unsettled != 2 {
		t.Fatalf("the consumer holds %d of 2", s.Unsettled)
	}
	g.nodes[0].m.PeerDown("n2") // its Detach was lost with the session
	g.nodes[0].m.PeerUp(g.nodes[1].local)
	g.run(5000)
	if s := g.nodes[0].status(); s.Unsettled != 2 {
		t.Fatalf("taken from it at once: it holds %d of 2", s.Unsettled)
	}
	g.nodes[0].m.PeerDown("n2") // a second outage gives it as long again
	g.nodes[0].m.PeerUp(g.nodes[1].local)
	g.run(6000)
	if s := g.nodes[0].status(); s.Unsettled != 2 {
		t.Fatalf("taken from it before its time: it holds %d of 2", s.Unsettled)
	}
	g.run(5000)
	if s := g.nodes[0].status(); s.Unsettled != 0 || s.Consumers != 0 || s.Ready != 2 {
		t.Fatalf("%d unsettled, %d ready, %d consumers", s.Unsettled, s.Ready, s.Consumers)
	}
}

func TestFollowersKeepWhatAnAbsentOneNeeds(t *testing.T) {
	g := newTrio(t, 12, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("a", "b")
	g.run(20)
	g.nodes[2].kill()
	needs := g.nodes[2].disk.copies[part].batches
	at := needs[len(needs)-1].tail.Position
	for i := range 60 { // enough for several snapshots everywhere
		c.publish(fmt.Sprint("m", i))
		g.run(3)
	}
	for _, m := range g.nodes[:2] {
		log := m.store.logs[part]
		if len(log.retains) == 0 || log.from > at {
			t.Fatalf("%s keeps its log from %d on, after %d snapshots; the copy that is away ends at %d", m.name, log.from, len(log.retains), at)
		}
	}
	g.nodes[2].restart()
	g.run(50)
	for i := range 20 {
		c.publish(fmt.Sprint("n", i))
		g.run(3)
	}
	for _, m := range g.nodes[:2] {
		if log := m.store.logs[part]; log.from <= at {
			t.Fatalf("%s still keeps its log from %d on, which nobody needs", m.name, log.from)
		}
	}
}
