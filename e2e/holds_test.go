package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/check"
)

// set changes a setting of the cluster.
func (c *cluster) set(name, value string) {
	c.t.Helper()
	if out, code := run(c.t, "setting", "set", name, value, "--admin-url", "http://"+c.up().admin); code != 0 {
		c.t.Fatalf("tanist setting set %s %s ends with %d: %s", name, value, code, out)
	}
}

// replaced is nil once every resource has two followers, a node has none of them, and nobody learns.
func (c *cluster) replaced(lost string) error {
	by, err := c.up().partitions()
	for _, name := range everything {
		if p := by[name]; err == nil && (len(p.Followers) != 2 || len(p.Learners) > 0 || slices.Contains(p.Followers, lost)) {
			err = fmt.Errorf("%s is followed by %v, learners %v", name, p.Followers, p.Learners)
		}
	}
	return err
}

// sameEpochs demands that no resource has another epoch than before.
func (c *cluster) sameEpochs(before map[string]partition) {
	c.t.Helper()
	by, err := c.up().partitions()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range everything {
		if by[name].Epoch != before[name].Epoch || by[name].Owner != before[name].Owner {
			c.t.Errorf("%s was owned by %s in epoch %d and is by %s in %d", name, before[name].Owner, before[name].Epoch, by[name].Owner, by[name].Epoch)
		}
	}
}

// TestHeldThenReplaced kills a node of four that only follows, and leaves it away: its places are kept for the hold, then the fourth node learns
// in its stead. No epoch changes and no publish fails. Then the owner of everything is killed as well: nothing that was confirmed is missing
// (issue 5, "Proof").
func TestHeldThenReplaced(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 7))
	c := newCluster(t, 4)
	const holds = 5 * time.Second
	c.set("follower_loss_hold", holds.String())
	r := newRig(t, c.nodes...)
	declareAll(r, "n1")
	before := r.owners("created")
	node := 3
	if c.controller() == node {
		node = 2
	}
	lost := c.nodes[node]
	r.enter("all up")
	load := startLoad(r, rng)
	pause(time.Second)
	r.enter("one killed")
	r.crash(node)
	killed := time.Now()
	pause(holds / 2)
	by, err := c.up().partitions()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range everything {
		if p := by[name]; !slices.Equal(p.Followers, before[name].Followers) || len(p.Learners) > 0 {
			t.Errorf("%v after %s was killed, %s is followed by %v, learners %v; before %v", time.Since(killed), lost.name, name, p.Followers, p.Learners, before[name].Followers)
		}
	}
	c.up().await("copies in the stead of those that are lost", func() error { return c.replaced(lost.name) })
	t.Logf("replaced %v after it was killed", time.Since(killed).Round(time.Millisecond))
	c.sameEpochs(before)
	r.verdict()
	r.unharmed()

	if out, code := run(t, "node", "remove", lost.name, "--admin-url", "http://"+c.up().admin); code != 0 {
		t.Fatalf("tanist node remove ends with %d: %s", code, out)
	}
	c.nodes = slices.Delete(slices.Clone(c.nodes), node, node+1)
	if out, code := run(t, "wait", "healthy", "--timeout", "60s", "--admin-url", "http://"+c.up().admin); code != 0 {
		t.Fatalf("tanist wait healthy ends with %d: %s", code, out)
	}
	r.disturb(0)
	r.enter("owner killed")
	r.crash(0)
	load.resume()
	for _, b := range c.nodes[1:] {
		b.await("another owner", func() error { return c.served(b, "n1", before) })
	}
	c.nodes[0].start()
	c.back(c.nodes[0])
	r.see(check.Event{Kind: check.Calm})
	r.owners("failover")
	r.verdict()
	r.unharmed()
	load.finish(r)
	r.drainAll()
	r.verdict()
	c.identical(everything...)
	t.Logf("%d messages, %d events; longest times without a confirm %s", r.messages, r.judge.Events(), r.pauses())
}
