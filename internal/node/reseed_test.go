package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/engine/mesh"
)

// A follower was away for longer than its owner keeps the log for it: it takes an image in place of its log, over and over interrupted by its
// own crash, and follows in its old place.
func TestAFollowerTooFarBehindTakesAnImageInItsPlace(t *testing.T) {
	c := newCluster(t, 71, 3)
	for i, w := range c.nodes { // what is in memory can be sent, whatever was let go of
		cfg := w.cfg
		w.cfg = func(c *Config) {
			cfg(c)
			c.Storage.CacheBytes = 1
		}
		c.kill(i)
		c.restart(i)
		c.sim.RunFor(time.Second)
	}
	c.propose(0, catalog.PutSetting(catalog.RetainForAbsent, "0", 0))
	large := strings.Repeat("x", 16<<10)
	u := c.nodes[0].login(0)
	u.declare(durable("q"))
	owner := c.assignment(0, "q").Owner.Node
	follower := slices.IndexFunc(c.nodes, func(w *world) bool { return w.name != owner && w.name != "n1" })
	for i := range 50 {
		u.publish("q", fmt.Sprint("a", i)+large)
	}
	c.kill(follower)
	for range 2 {
		for i := range 300 {
			u.publish("q", fmt.Sprint("m", i)+large)
		}
		u.ask("purge", func(done func(*broker.Error)) { u.s.PurgeQueue("q", func(_ uint32, err *broker.Error) { done(err) }) })
		c.sim.RunFor(2 * time.Second)
	}
	for i := range 40 { // what a snapshot makes unnecessary goes with the next
		u.publish("q", fmt.Sprint("n", i)+large)
	}
	c.sim.RunFor(2 * time.Second)
	before := c.assignment(0, "q")
	images := 0
	c.seen = func(p mesh.Purpose) {
		if p == mesh.Bulk {
			images++
		}
	}
	interrupted := 0
	for range 6 {
		c.restart(follower)
		seen := images
		if c.sim.RunUntil(func() bool { return images > seen }, time.Second) {
			interrupted++
		}
		c.kill(follower)
	}
	c.restart(follower)
	c.sim.RunFor(3 * time.Second)
	if interrupted < 2 {
		t.Fatalf("an image was interrupted %d times: the test shows nothing", interrupted)
	}
	copies := c.copies("q")
	for _, s := range copies {
		if len(copies) != 3 || s.Durable != copies[0].Durable || s.Confirmed != s.Durable {
			t.Fatalf("copies %+v", copies)
		}
	}
	if a := c.assignment(0, "q"); a.Epoch != before.Epoch || !slices.Equal(a.Followers, before.Followers) {
		t.Fatalf("the assignment was %+v, is %+v", before, a)
	}
}
