package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// info asks for a queue's counts without declaring it.
func (u *user) info(name string) (i broker.QueueInfo) {
	u.w.t.Helper()
	u.ask("passive declare of "+name, func(done func(*broker.Error)) {
		u.s.DeclareQueue(broker.QueueSpec{Name: name, Passive: true}, func(got broker.QueueInfo, err *broker.Error) {
			i = got
			done(err)
		})
	})
	return i
}

// What one node's client made, another's finds at once, and both see the same counts.
func TestEveryNodeSpeaksTheTruth(t *testing.T) {
	c := newCluster(t, 7, 3)
	c.sim.RunFor(time.Second)
	u := []*user{c.nodes[0].login(0), c.nodes[1].login(1), c.nodes[2].login(0)}
	for i := range u {
		name := fmt.Sprint("q", i)
		maker, other, third := u[i], u[(i+1)%3], u[(i+2)%3]
		maker.declare(durable(name))
		if got := other.info(name); got.Name != name || got.Messages != 0 {
			t.Fatalf("%+v", got)
		}
		third.publish(name, "a", "b", "c") // by its name, as soon as it is there
		for _, v := range u {
			if got := v.info(name); got.Messages != 3 || got.Consumers != 0 {
				t.Fatalf("%s counts %+v", v.w.name, got)
			}
		}
		other.ask("get", func(done func(*broker.Error)) {
			other.s.Get(name, true, func(d broker.Delivery, ok bool, err *broker.Error) {
				if !ok || d.Left != 2 {
					t.Errorf("got %v, %d left", ok, d.Left)
				}
				done(err)
			})
		})
		third.ask("purge", func(done func(*broker.Error)) {
			third.s.PurgeQueue(name, func(n uint32, err *broker.Error) {
				if n != 2 {
					t.Errorf("purged %d", n)
				}
				done(err)
			})
		})
		other.ask("delete", func(done func(*broker.Error)) {
			other.s.DeleteQueue(name, true, true, func(_ uint32, err *broker.Error) { done(err) })
		})
	}
}

// A reply queue that the broker named takes replies from clients of every node, and a queue in one node's memory is there for all.
func TestQueuesInMemoryAreReachedFromEveryNode(t *testing.T) {
	c := newCluster(t, 8, 3)
	c.sim.RunFor(time.Second)
	asks := c.nodes[0].login(1)
	var reply string
	asks.ask("declare", func(done func(*broker.Error)) {
		asks.s.DeclareQueue(broker.QueueSpec{Kind: catalog.Queue, Exclusive: true}, func(i broker.QueueInfo, err *broker.Error) {
			reply = i.Name
			done(err)
		})
	})
	c.nodes[1].login(0).publish(reply, "one")
	answers := c.nodes[2].login(1)
	answers.publish(reply, "two")
	if got := asks.consume(reply, 2); got[0] != "one" || got[1] != "two" {
		t.Fatalf("replies %v", got)
	}
	refused := false
	answers.box.Post(func() {
		answers.s.Consume(broker.ConsumeSpec{Queue: reply, Consumer: 9}, func(err *broker.Error) { refused = err != nil && err.Code == broker.Locked })
	})
	c.await("the refusal", func() bool { return refused })

	asks.declare(broker.QueueSpec{Name: "m", Kind: catalog.Queue})
	answers.declare(broker.QueueSpec{Name: "m", Kind: catalog.Queue}) // the same, at its home
	answers.publish("m", "x")
	if got := c.nodes[1].login(1).consume("m", 1); got[0] != "x" {
		t.Fatalf("delivered %v", got)
	}
}

// Without a quorum of the catalog a declaration fails in bounded time and says what to do; what is there goes on, if its copies do.
func TestWithoutAQuorumOfTheCatalog(t *testing.T) {
	c := newCluster(t, 9, 3)
	c.sim.RunFor(3 * time.Second)
	alone := c.nodes[0].login(0)
	alone.ask("declare", func(done func(*broker.Error)) {
		one := durable("q")
		alone.s.DeclareQueue(one, func(_ broker.QueueInfo, err *broker.Error) { done(err) })
	})
	alone.declare(broker.QueueSpec{Name: "m", Kind: catalog.Queue}) // of one copy, here
	c.kill(1)
	c.kill(2)
	began := c.sim.Now()
	var said *broker.Error
	alone.box.Post(func() {
		alone.s.DeclareQueue(durable("late"), func(_ broker.QueueInfo, err *broker.Error) { said = err })
	})
	alone.publish("m", "x")
	if said != nil {
		t.Fatalf("publishing waited for the catalog")
	}
	c.await("the answer", func() bool { return said != nil })
	if took := c.sim.Now() - began; took > 35*time.Second || !said.Retryable() {
		t.Fatalf("after %s: %v", took, said)
	}
	t.Logf("after %s: %s", c.sim.Now()-began, said.Text)
	if len(said.Text) > 235 {
		t.Errorf("%d bytes do not fit into AMQP's reply: %s", len(said.Text), said.Text)
	}
	said = nil
	alone.box.Post(func() { alone.s.PurgeQueue("nowhere", func(_ uint32, err *broker.Error) { said = err }) })
	c.await("the answer", func() bool { return said != nil })
	if said.Code != broker.Unavailable || len(said.Text) > 235 {
		t.Errorf("what cannot be known was answered with %d bytes: %v", len(said.Text), said)
	}
	t.Log(said.Text)
}

// A publish that goes to queues of several owners is confirmed when all of them have it, and not before.
func TestAFanOutIsConfirmedByAllOwners(t *testing.T) {
	c := newCluster(t, 12, 3)
	c.sim.RunFor(3 * time.Second)
	u := c.nodes[0].login(0)
	owners := map[int]string{}
	for i := 0; len(owners) < 3; i++ {
		name := fmt.Sprint("q", i)
		u.declare(durable(name))
		owners[c.owner(name)] = name
		u.ask("bind", func(done func(*broker.Error)) {
			u.s.Bind(catalog.Binding{Source: "amq.fanout", Destination: name}, done)
		})
	}
	send := func(body string) {
		u.box.Post(func() {
			m := broker.Message{Exchange: "amq.fanout", Body: [][]byte{[]byte(body)}}
			if err := u.s.Publish(broker.Tag{Channel: 1, Seq: 1}, &m); err != nil {
				t.Error(err)
			}
		})
	}
	send("a")
	c.await("the confirm", func() bool { return u.confirmed == 1 })
	for _, name := range owners {
		if got := u.info(name); got.Messages != 1 {
			t.Fatalf("%s holds %d messages", name, got.Messages)
		}
	}
	c.kill(1)
	c.kill(2)
	send("b")
	c.sim.RunFor(5 * time.Second)
	if u.confirmed != 1 {
		t.Fatal("confirmed while two of its owners were gone, and with them the catalog's quorum")
	}
	c.restart(2)
	c.await("the confirm", func() bool { return u.confirmed == 2 })
	for _, name := range owners {
		if got := u.info(name); got.Messages != 2 {
			t.Fatalf("%s holds %d messages", name, got.Messages)
		}
	}
}
