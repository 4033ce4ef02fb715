package node

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
)

// A client is lost with the node that it is connected to. What it held, and what its consumer would be given next, goes to others although the
// queue's owner stays and that node never comes back: at once where its process is gone, and in a while where nothing is heard of it.
func TestWhatAClientHeldIsGivenToOthersOnceItsNodeIsLost(t *testing.T) {
	for _, x := range []struct {
		how    string
		lose   func(*cluster)
		within time.Duration // what it held
		next   time.Duration // what it would have been given
	}{
		{"killed", func(c *cluster) { c.kill(2) }, time.Second, time.Second},
		{"cut off", func(c *cluster) { c.isolate(2) }, 15 * time.Second, 100 * time.Millisecond},
	} {
		c := ready(t, 71)
		name := c.make(0, durable(""))
		lost, other := c.nodes[2].login(0), c.nodes[1].login(0)
		lost.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 2})
		other.publish(name, "a")
		c.await("a delivery", func() bool { return len(lost.got) == 1 })
		x.lose(c)
		c.sim.RunFor(3 * time.Second) // it is known to be lost
		other.take(broker.ConsumeSpec{Queue: name, Consumer: 1})
		other.publish(name, "b", "c")
		c.sim.RunFor(x.next)
		if got := other.bodies(); !slices.Contains(got, "b") || !slices.Contains(got, "c") {
			t.Errorf("%s: %q were delivered to others, and not what it would have been given", x.how, got)
		}
		c.sim.RunFor(x.within)
		if got := slices.Sorted(slices.Values(other.bodies())); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%s: %q were delivered to others", x.how, got)
		}
		if epoch := c.assignment(1, name).Epoch; epoch != 1 {
			t.Errorf("%s: its owner has changed: epoch %d", x.how, epoch)
		}
	}
}
