package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

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

// TestWipedIsNotCounted has a follower's node come back with an empty disk, and kills the other follower while it learns: nothing is confirmed, for
// what it holds does not count. The other returns, the new copy is admitted, and from then on the same loss stops nothing.
func TestWipedIsNotCounted(t *testing.T) {
	c := newCluster(t, 3)
	ch := c.nodes[0].channel()
	c.own(ch, "n1", "q", amqp.Table{"x-queue-type": "stream"})
	body := string(make([]byte, 256<<10))
	for range 512 {
		publishConfirmed(t, ch, "q", body)
	}
	first, err := c.owned("q")
	if err != nil {
		t.Fatal(err)
	}
	c.set("learner_rate", "2MiB") // 128 MiB to learn: where too few copies are in step they come as fast as they can
	wiped, other := c.nodes[2], c.nodes[1]
	wiped.kill()
	if err := os.RemoveAll(wiped.dir); err != nil {
		t.Fatal(err)
	}
	wiped.env = []string{"TANIST_JOIN_TOKEN=" + c.make("node", "replace", wiped.name)}
	wiped.launch()
	wiped.env = nil
	place := func(want string) func() error {
		return func() error {
			p, err := c.owned("q")
			if err == nil && p.roleOf("n3") != want {
				err = fmt.Errorf("n3 is %q, want %q", p.roleOf("n3"), want)
			}
			return err
		}
	}
	c.up().await("the new store to learn", place("learner"))
	other.kill()
	waits := c.refuses(ch)
	if err := place("learner")(); err != nil {
		t.Fatalf("it was to learn for longer: %v", err)
	}
	other.start()
	for _, d := range waits { // what was taken before the loss was noticed
		if ok, err := d.WaitContext(deadline(t)); err != nil || !ok {
			t.Errorf("a publish that waited: confirmed %t, %v", ok, err)
		}
	}
	publishConfirmed(t, c.nodes[0].channel(), "q", "the other is back")
	c.set("learner_rate", "1GiB")
	c.up().await("the new copy to count", place("follower"))
	other.kill()
	publishConfirmed(t, c.nodes[0].channel(), "q", "the new copy counts")
	other.start()
	if now, err := c.owned("q"); err != nil || now.Epoch != first.Epoch || now.Owner != "n1" {
		t.Errorf("owned by %s in epoch %d, %v; was in %d", now.Owner, now.Epoch, err, first.Epoch)
	}
}

func deadline(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), patience)
	t.Cleanup(stop)
	return ctx
}

// roleOf is what the assignment has a node do. The place of an old store is kept while the new one learns.
func (p partition) roleOf(node string) string {
	switch {
	case p.Owner == node:
		return "owner"
	case slices.Contains(p.Learners, node):
		return "learner"
	case slices.Contains(p.Followers, node):
		return "follower"
	}
	return ""
}

// refuses publishes until the owner refuses, and returns what it took before; none of that may be confirmed.
func (c *cluster) refuses(ch *amqp.Channel) (waits []*amqp.DeferredConfirmation) {
	c.t.Helper()
	for range 10_000 {
		d, err := ch.PublishWithDeferredConfirmWithContext(c.t.Context(), "", "q", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x")})
		if err != nil {
			c.t.Fatal(err)
		}
		waits = append(waits, d)
		select {
		case <-d.Done():
		case <-time.After(20 * time.Millisecond):
			continue
		}
		if d.Acked() {
			c.t.Fatal("a publish was confirmed that only one copy counts for")
		}
		return waits[:len(waits)-1]
	}
	c.t.Fatal("the owner never refuses")
	return nil
}
