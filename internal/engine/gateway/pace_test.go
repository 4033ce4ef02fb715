package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/protocol"
)

// While much waits to be sent to an owner's node, publishes wait here, in order and within the shard's bounds, and go on by themselves.
func TestPublishesWaitForRoomOnTheWay(t *testing.T) {
	h := newHarness(t, Limits{PartitionBytes: 4 << 10})
	c := h.client()
	o, free := c.declare(durable("q")), c.declare(durable("free"))
	c.publishAll("q", 1, "a")
	o.full = true
	c.take()
	large := strings.Repeat("x", 1<<10)
	c.publishAll("q", 2, large, large, large, large, "last")
	c.publishAll("free", 7, "y")
	h.sim.RunFor(time.Second)
	if n := len(all[protocol.Publish](o)); n != 1 || free.bodies() != "y" {
		t.Fatalf("%d messages were sent to an owner behind a crowded way, and %q to another", n, free.bodies())
	}
	if got := c.take(); !strings.Contains(got, "flow stop=true") {
		t.Errorf("the client was told %q: what waits is not bounded", got)
	}
	o.full = false
	h.sim.RunFor(5 * time.Millisecond)
	if got := o.bodies(); got != strings.Join([]string{"a", large, large, large, large, "last"}, " ") {
		t.Errorf("stored %d bytes", len(got))
	}
	if got := c.take(); !strings.Contains(got, "flow stop=false") {
		t.Errorf("the client was told %q", got)
	}
	steps := h.sim.Steps()
	h.sim.RunFor(500 * time.Millisecond)
	if n := h.sim.Steps() - steps; n > 10 {
		t.Errorf("%d steps while nothing waits", n)
	}
}
