package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/engine/replica"
)

// These tests are about a change of owner as clients of the nodes that stay see it (design 2 §2, "Order and claims"; design 5, "Across a change
// of owner"): a pause.

// ready is a cluster of three whose voters are settled.
func ready(t *testing.T, seed uint64) *cluster {
	c := newCluster(t, seed, 3)
	c.await("three voters", func() bool { return c.voters(0) == 3 })
	c.sim.RunFor(2 * time.Second)
	return c
}

// make declares a resource that a certain node owns, and gives its name.
func (c *cluster) make(owner int, q broker.QueueSpec) string {
	c.t.Helper()
	u := c.nodes[owner].login(0)
	for i := range 100 {
		q.Name = fmt.Sprint("q", i)
		u.declare(q)
		if c.assignment(owner, q.Name).Owner.Node == c.nodes[owner].name {
			c.await("three copies", func() bool { return len(c.assignment(owner, q.Name).Followers) == 2 })
			return q.Name
		}
	}
	c.t.Fatal("it is never placed where it is to be")
	return ""
}

// lose kills the owner of a resource and waits until another serves it, as the node next to it sees.
func (c *cluster) lose(name string) (lost int) {
	c.t.Helper()
	lost = c.owner(name)
	epoch := c.assignment(lost, name).Epoch
	c.kill(lost)
	c.taken((lost+1)%3, name, epoch+1)
	return lost
}

// taken waits until a resource is served in an epoch.
func (c *cluster) taken(see int, name string, epoch uint64) {
	c.t.Helper()
	c.await("another owner", func() bool {
		a := c.assignment(see, name)
		return a.Epoch == epoch && a.Pending == nil
	})
	own := c.nodes[slices.IndexFunc(c.nodes, func(w *world) bool { return w.name == c.assignment(see, name).Owner.Node })]
	c.await("the new owner to serve", func() bool {
		s, _ := own.one(name)
		return s.State == replica.Serving
	})
}

// take consumes without waiting for deliveries.
func (u *user) take(spec broker.ConsumeSpec) {
	u.w.t.Helper()
	u.ask("consume", func(done func(*broker.Error)) { u.s.Consume(spec, done) })
}

// bodies are those of what was delivered.
func (u *user) bodies() (out []string) {
	u.w.t.Helper()
	for _, d := range u.got {
		m, err := broker.DecodeEnvelope(d.Payload)
		if err != nil {
			u.w.t.Fatal(err)
		}
		out = append(out, string(m.Body))
	}
	return out
}

// settle settles deliveries by their place in what was delivered.
func (u *user) settle(o broker.Settlement, places ...int) {
	u.box.Post(func() {
		for _, i := range places {
			u.s.Settle([]broker.Ref{u.got[i].Ref}, o)
		}
	})
}

// The single active consumer is the same one after a change of owner, whichever gateway comes first to the new owner: another would be handed
// the next message while it still works on the one before.
func TestTheSingleActiveConsumerStays(t *testing.T) {
	for active := range 2 {
		c := ready(t, 21)
		name := c.make(0, broker.QueueSpec{Durable: true, Kind: catalog.Queue, Queue: queue.Settings{SingleActive: true}})
		a, b := c.nodes[1+active].login(0), c.nodes[2-active].login(1)
		a.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 1})
		b.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 1, Priority: 5})
		a.publish(name, "1", "2", "3")
		c.await("the first delivery", func() bool { return len(a.got) == 1 })
		c.lose(name)
		b.publish(name, "4")
		c.sim.RunFor(time.Second)
		if len(a.got) != 1 || len(b.got) != 0 {
			t.Fatalf("while 1 is held, %q and %q were delivered", a.bodies(), b.bodies())
		}
		for i := range 4 {
			a.settle(broker.Accept, i)
			c.await("the next delivery", func() bool { return len(a.got) == min(i+2, 4) })
		}
		c.sim.RunFor(time.Second)
		if got := a.bodies(); !slices.Equal(got, []string{"1", "2", "3", "4"}) || len(b.got) != 0 {
			t.Fatalf("%q and %q were delivered", got, b.bodies())
		}
	}
}
