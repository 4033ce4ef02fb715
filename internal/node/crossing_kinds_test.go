package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/engine/mesh"
)

// These tests are about what is not the same for every message when an owner is lost: readers, kinds of consumers, times.

// Readers with and without a cursor, and one that has a bound on what it holds, go on from where they were while records come: none twice, none
// missing. A cursor goes on after what was settled, under the next owner too.
func TestReadersGoOnFromWhereTheyWere(t *testing.T) {
	c := ready(t, 81)
	name := c.make(0, broker.QueueSpec{Durable: true, Kind: catalog.Stream})
	x, y := c.nodes[1].login(0), c.nodes[2].login(0)
	sent := 0
	send := func(n int) {
		for range n {
			sent++
			x.send(name, uint64(sent), fmt.Sprint(sent))
		}
	}
	free, named, bounded := c.nodes[1].login(1), c.nodes[2].login(1), y
	first := stream.Start{Kind: stream.StartFirst}
	free.take(broker.ConsumeSpec{Queue: name, Consumer: 1, NoAck: true, Start: first})
	named.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 10, Cursor: "k", Start: first})
	bounded.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 3, Start: first})
	send(50)
	c.await("records", func() bool { return len(free.got) > 10 && len(named.got) == 10 && len(bounded.got) == 3 })
	lost, epoch := c.owner(name), c.assignment(0, name).Epoch
	send(20)
	c.kill(lost)
	named.settle(broker.Accept, 0, 1, 2, 3, 4)
	bounded.settle(broker.Accept, 1)
	send(20)
	c.taken(1, name, epoch+1)
	c.await("all records", func() bool { return len(free.got) == sent && len(named.got) == 15 && len(bounded.got) == 4 })
	c.sim.RunFor(time.Second)
	for _, u := range []*user{free, named, bounded} {
		u.dense(0)
	}
	if x.confirmed != sent || len(free.got) != sent || len(named.got) != 15 || len(bounded.got) != 4 {
		t.Fatalf("%d of %d confirmed; %d, %d and %d delivered", x.confirmed, sent, len(free.got), len(named.got), len(bounded.got))
	}
	named.settle(broker.Accept, 5, 6)
	c.sim.RunFor(time.Second)
	named.box.Post(named.s.Close)
	c.sim.RunFor(time.Second)
	again := c.nodes[1].login(0)
	again.take(broker.ConsumeSpec{Queue: name, Consumer: 1, NoAck: true, Cursor: "k", Start: first})
	c.await("the rest", func() bool { return len(again.got) == sent-7 })
	again.dense(7)
}

// An exclusive consumer stays alone: who would consume beside it is refused, also in the moment of the change.
func TestAnExclusiveConsumerStaysAlone(t *testing.T) {
	for _, at := range []time.Duration{0, 20, 40, 50, 55, 60, 80} {
		c := ready(t, 91)
		name := c.make(0, durable(""))
		x, y := c.nodes[1].login(0), c.nodes[2].login(0)
		x.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Exclusive: true})
		lost, epoch := c.owner(name), c.assignment(0, name).Epoch
		c.kill(lost)
		c.sim.RunFor(at * time.Millisecond)
		var refused *broker.Error
		answered := false
		y.box.Post(func() {
			y.s.Consume(broker.ConsumeSpec{Queue: name, Consumer: 1}, func(err *broker.Error) { answered, refused = true, err })
		})
		c.taken(1, name, epoch+1)
		c.await("the answer", func() bool { return answered })
		if refused == nil || refused.Code != broker.AccessRefused {
			t.Fatalf("%dms after the loss: a consumer beside an exclusive one was answered with %v", at, refused)
		}
		y.publish(name, "a")
		c.await("the message", func() bool { return len(x.got) == 1 })
	}
}

// Who has the highest priority is served first by the new owner too, though others come to it first.
func TestPrioritiesOutliveTheOwner(t *testing.T) {
	c := ready(t, 95)
	name := c.make(0, durable(""))
	lost, epoch := c.owner(name), c.assignment(0, name).Epoch
	high, low := c.nodes[1].login(0), c.nodes[2].login(0)
	plain := c.net.Delay
	c.net.Delay = func(from, to string, p mesh.Purpose) time.Duration {
		if p == mesh.Work && (from == high.w.name || to == high.w.name) {
			return 20 * time.Millisecond
		}
		return plain(from, to, p)
	}
	low.take(broker.ConsumeSpec{Queue: name, Consumer: 1})
	high.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Priority: 9})
	c.kill(lost)
	low.send(name, 1, "a", "b", "c")
	c.taken(2, name, epoch+1)
	c.await("deliveries", func() bool { return len(high.got)+len(low.got) == 3 })
	if len(low.got) > 0 {
		t.Fatalf("%q went to the lower priority", low.bodies())
	}
}

// A queue that goes with its last consumer, or when it is unused for a while, is in use across the change, however slow the way to its consumer's
// node is; and it goes when that ends.
func TestQueuesInUseStayInUse(t *testing.T) {
	c := ready(t, 101)
	brief := c.make(0, broker.QueueSpec{Durable: true, Kind: catalog.Queue, Queue: queue.Settings{Expires: 20}})
	x := c.nodes[1].login(0)
	x.take(broker.ConsumeSpec{Queue: brief, Consumer: 1})
	shared := broker.QueueSpec{Name: "shared", Durable: true, AutoDelete: true, Kind: catalog.Queue}
	x.declare(shared)
	x.take(broker.ConsumeSpec{Queue: "shared", Consumer: 2})
	plain := c.net.Delay
	c.net.Delay = func(from, to string, p mesh.Purpose) time.Duration {
		if from == x.w.name && p == mesh.Work {
			return 100 * time.Millisecond
		}
		return plain(from, to, p)
	}
	c.lose(brief)
	c.sim.RunFor(3 * time.Second)
	if !x.exists(brief) || !x.exists("shared") {
		t.Fatalf("deleted while they are consumed: %t, %t", !x.exists(brief), !x.exists("shared"))
	}
	x.publish("shared", "a")
	x.publish(brief, "b")
	c.await("both", func() bool { return len(x.got) == 2 })
	for n := range uint64(2) {
		x.ask("cancel", func(done func(*broker.Error)) { x.s.Cancel(n+1, func() { done(nil) }) })
	}
	c.await("their deletion", func() bool { return !x.exists(brief) && !x.exists("shared") })
}

// A message's time to live and its delay count from when it was published, whoever owns the queue: what dies under the second owner is buried in a
// queue whose owner was lost too.
func TestTimesCountOnAcrossAChange(t *testing.T) {
	c := ready(t, 111)
	empty, graves, ttl := "", "", int64(2000)
	graves = c.make(0, durable(""))
	x := c.nodes[1].login(0)
	x.declare(broker.QueueSpec{Name: "mortal", Durable: true, Kind: catalog.Queue, Queue: queue.Settings{
		TTL: &ttl, DeadLetterExchange: &empty, DeadLetterRoutingKey: &graves,
	}})
	x.declare(durable("later"))
	began := c.sim.Now()
	x.publish("mortal", "dies")
	x.box.Post(func() {
		m := broker.Message{RoutingKey: "later", Body: [][]byte{[]byte("comes")}}
		m.Record.Delay = 3000
		if err := x.s.Publish(broker.Tag{Channel: 1, Seq: 9}, &m); err != nil {
			t.Error(err)
		}
	})
	c.await("the confirm", func() bool { return x.confirmed == 2 })
	c.sim.RunFor(time.Second)
	c.lose(graves)
	grave, late := c.nodes[1].login(1), c.nodes[2].login(1)
	grave.take(broker.ConsumeSpec{Queue: graves, Consumer: 1})
	late.take(broker.ConsumeSpec{Queue: "later", Consumer: 1})
	c.await("the dead letter", func() bool { return len(grave.got) == 1 })
	if at := c.sim.Now() - began; at < 2*time.Second || at > 2200*time.Millisecond {
		t.Errorf("what lives for 2s was buried after %v", at)
	}
	c.await("the delayed message", func() bool { return len(late.got) == 1 })
	if at := c.sim.Now() - began; at < 3*time.Second || at > 3200*time.Millisecond {
		t.Errorf("what is delayed by 3s came after %v", at)
	}
	c.sim.RunFor(2 * time.Second)
	if !slices.Equal(grave.bodies(), []string{"dies"}) || !slices.Equal(late.bodies(), []string{"comes"}) {
		t.Fatalf("delivered %q and %q", grave.bodies(), late.bodies())
	}
}
