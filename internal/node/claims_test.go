package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/engine/replica"
)

// owner is the place of the node that owns a queue.
func (c *cluster) owner(name string) int {
	of := c.assignment(0, name).Owner.Node
	return slices.IndexFunc(c.nodes, func(w *world) bool { return w.name == of })
}

// A consumer on another node holds a delivery while the owner dies and returns: the new owner hears of it, and of all gateways that hold
// nothing, without letting the time for claims pass, and gives the rest to others.
func TestWhatAClientHoldsOutlivesTheOwner(t *testing.T) {
	c := newCluster(t, 5, 3)
	c.sim.RunFor(time.Second)
	u := c.nodes[0].login(0)
	u.declare(durable("q"))
	u.publish("q", "a", "b", "c")
	i := c.owner("q")
	x, y := (i+1)%3, (i+2)%3
	h := c.nodes[x].login(1)
	h.ask("consume", func(done func(*broker.Error)) {
		h.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1, Prefetch: 1}, done)
	})
	c.await("a delivery", func() bool { return len(h.got) == 1 })
	c.kill(i)
	c.sim.RunFor(time.Second)
	c.restart(i)
	c.await("another epoch", func() bool { a := c.assignment(i, "q"); return a.Epoch == 2 && a.Pending == nil })
	began := c.sim.Now()
	c.await("the owner", func() bool {
		s, _ := c.nodes[i].one("q")
		return s.State == replica.Serving
	})
	if took := c.sim.Now() - began; took > 100*time.Millisecond {
		t.Errorf("the new owner began to serve %s after it was chosen", took)
	}
	v := c.nodes[y].login(0)
	if got := v.consume("q", 2); !slices.Equal(got, []string{"b", "c"}) {
		t.Fatalf("while a is held, another consumer got %v", got)
	}
	settle := func(u *user) {
		u.box.Post(func() {
			for _, d := range u.got {
				u.s.Settle([]broker.Ref{d.Ref}, broker.Accept)
			}
		})
	}
	settle(v)
	settle(h)
	c.sim.RunFor(time.Second)
	if s, _ := c.nodes[i].one("q"); s.Ready+s.Unsettled != 0 || len(h.got) != 1 || len(v.got) != 2 {
		t.Fatalf("after all was settled: %+v, delivered %d and %d", s, len(h.got), len(v.got))
	}
}

// Many queues that nobody works with are all served soon after their owner's return, be it on that node or, for those that another one
// was chosen for, elsewhere.
func TestManyIdleQueuesOfAClusterWaitForNoClaims(t *testing.T) {
	const n = 60
	c := newCluster(t, 6, 3)
	c.sim.RunFor(time.Second)
	u := c.nodes[0].login(0)
	for i := range n {
		u.declare(durable(fmt.Sprint("q", i)))
	}
	c.sim.RunFor(5 * time.Second) // the gateways leave them
	owner := c.owner("q0")
	c.kill(owner)
	c.sim.RunFor(time.Second)
	c.restart(owner)
	c.await("another epoch", func() bool { a := c.assignment(owner, "q0"); return a.Epoch == 2 && a.Pending == nil })
	began := c.sim.Now()
	c.await("readiness", func() bool { return c.nodes[owner].n.Ready() == nil })
	if took := c.sim.Now() - began; took > 200*time.Millisecond {
		t.Errorf("the queues were served %s after their owner was chosen", took)
	}
}
