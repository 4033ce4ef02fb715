package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/check"
)

// TestCuts cuts an owner off, in one direction and in both, and from the controller alone, under load through all three nodes: others take over
// in bounded time, and when the wires are mended the old owner, whose log has an end that nobody else has, is cut back and follows. Clients of
// every node, the one that was cut off included, meet a pause and nothing else.
func TestCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 6))
	w := newWires(t, 3)
	c := newClusterIn(t, w, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1")
	load := startLoad(r, rng)
	for _, kind := range []string{"cut off", "not heard", "deaf", "cut off from the controller", "cut off"} {
		before := r.owners("failover")
		lost := slices.Index(c.nodes, c.named(before["plain"].Owner))
		others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == lost })
		if kind == "cut off from the controller" {
			// The one of the two ends that is not the controller is lost to it, whichever owns.
			leads := c.controller()
			others = []int{leads}
			if lost == leads {
				lost = (leads + 1) % 3
			}
		}
		r.disturb(lost)
		r.enter(kind)
		began := time.Now()
		for _, o := range others {
			if kind != "deaf" {
				w.cut(lost, o)
			}
			if kind != "not heard" {
				w.cut(o, lost)
			}
		}
		name := c.nodes[lost].name
		for _, o := range others {
			b := c.nodes[o]
			b.await(fmt.Sprintf("another owner than %s, %s", name, kind), func() error { return c.served(b, name, before) })
		}
		t.Logf("%s, %s: all is served after %v", name, kind, time.Since(began).Round(time.Millisecond))
		pause(time.Duration(rng.IntN(1000)) * time.Millisecond) // what the old owner is given meanwhile is an end of its own
		w.mendAll()
		c.back(c.nodes[lost])
		r.see(check.Event{Kind: check.Calm})
		r.enter("all up")
		r.verdict()
		r.unharmed()
	}
	r.conclude(load, "failover")
}

// controller is the node whose controller decides.
func (c *cluster) controller() int {
	c.t.Helper()
	at := -1
	c.nodes[0].await("a controller", func() error {
		var all []struct {
			Name       string
			Controller bool
		}
		err := c.nodes[0].get("/api/v1/nodes", &all)
		for _, n := range all {
			if n.Controller {
				at = slices.IndexFunc(c.nodes, func(b *broker) bool { return b.name == n.Name })
			}
		}
		if err == nil && at < 0 {
			err = fmt.Errorf("no node says that it is the controller's")
		}
		return err
	})
	return at
}
