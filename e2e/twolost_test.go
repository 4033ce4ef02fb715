package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/check"
)

// servedAfter is nil once every resource is served by a node that runs, in an epoch that may follow the one that it had: the same where nothing
// was done to its owner; where that was killed, one more, or two, since the other victim may have taken over before it was killed itself; where
// it was halted perhaps the same.
func (c *cluster) servedAfter(by *broker, victims []*broker, how loss, before map[string]partition) error {
	now, err := by.partitions()
	if err != nil {
		return err
	}
	for _, name := range everything {
		p, old := now[name], before[name]
		least, most := old.Epoch, old.Epoch
		if slices.Contains(victims, c.named(old.Owner)) {
			most += 2
			if how == killed {
				least++
			}
		}
		if owner := c.named(p.Owner); p.State != "serving" || p.Epoch < least || p.Epoch > most || owner.cmd == nil || owner.still {
			return fmt.Errorf("%s says that %s is %s on %s in epoch %d; it was on %s in %d", by.name, name, p.State, p.Owner, p.Epoch, old.Owner, old.Epoch)
		}
	}
	return nil
}

// asBefore is nil if every resource is served by the same owner in the same epoch as before.
func asBefore(by *broker, before map[string]partition) error {
	now, err := by.partitions()
	for _, name := range everything {
		if p, old := now[name], before[name]; err == nil && (p.State != "serving" || p.Epoch != old.Epoch || p.Owner != old.Owner) {
			err = fmt.Errorf("%s says that %s is %s on %s in epoch %d; it was on %s in %d", by.name, name, p.State, p.Owner, p.Epoch, old.Owner, old.Epoch)
		}
	}
	return err
}

// aloneFor is how long a node is without the other two: longer than anybody waits for a silent node (liveness_ttl, 1.5 s).
const aloneFor = 2500 * time.Millisecond

// loseTwo loses all nodes but one at once, and brings them back one after the other. Nothing that is published meanwhile is confirmed, and the
// node left goes on serving readers of streams that it owns. With the first back everything is served, and nothing moves for the second.
func (r *rig) loseTwo(left int, how loss, load *load, rng *rand.Rand) {
	r.t.Helper()
	c, t := r.c, r.t
	before := r.owners("failover")
	alone := c.nodes[left]
	back := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == left })
	rng.Shuffle(2, func(i, j int) { back[i], back[j] = back[j], back[i] })
	victims := []*broker{c.nodes[back[0]], c.nodes[back[1]]}
	for node := range c.nodes {
		r.excuse(node, true) // owners with too few copies refuse what is new
	}
	for _, node := range back {
		r.disturb(node)
	}
	r.enter("two " + string(how))
	r.strike(how, back...)
	r.silence()
	load.resume()
	began := time.Now()
	load.knock(left, rng)
	for _, s := range streams {
		if before[s].Owner == alone.name {
			readStream(t, alone, s, 1)
		}
	}
	pause(aloneFor - time.Since(began) + time.Duration(rng.IntN(500))*time.Millisecond)
	if n := r.speak(); n < uint64(knocks*len(everything)) {
		t.Errorf("only %d messages were published while %s was alone", n, alone.name)
	}

	r.enter("one is back")
	began = time.Now()
	r.recover(back[0], how)
	for _, b := range []*broker{alone, victims[0]} {
		b.await("everything to be served by two", func() error { return c.servedAfter(b, victims, how, before) })
	}
	t.Logf("%s is left, the others are %s; with %s back all is served after %v",
		alone.name, how, victims[0].name, time.Since(began).Round(time.Millisecond))
	pause(time.Duration(rng.IntN(500)) * time.Millisecond)

	r.enter("the other is back")
	now, err := alone.partitions()
	if err != nil {
		fatal(t, "%v", err)
	}
	r.recover(back[1], how)
	c.back(victims[1])
	for _, b := range c.nodes {
		b.await("everything to be served by three", func() error {
			if how == halted { // a node that goes on may find its own last sync too slow, and leave what it owns, once all was served already
				return c.servedAfter(b, victims, how, before)
			}
			return asBefore(b, now)
		})
	}
	for node := range c.nodes {
		r.excuse(node, false)
	}
	r.see(check.Event{Kind: check.Calm})
	r.enter("all up")
	r.verdict()
	r.unharmed()
}

// TestTwoOfThreeLostUnderLoad kills two nodes of three at once, and halts two at once, while publishers, consumers and readers work on all three.
// Nothing is confirmed that only one node has; the two come back one after the other, all is served from the first on, and nobody's promise was
// broken (issue 4, "Proof").
func TestTwoOfThreeLostUnderLoad(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 8))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1", "n2", "n3")
	r.enter("all up")
	load := startLoad(r, rng)
	for _, how := range []loss{killed, halted} {
		pause(time.Duration(200+rng.IntN(500)) * time.Millisecond)
		if rng.IntN(2) == 0 {
			load.settleAll(r)
		}
		r.loseTwo(rng.IntN(3), how, load, rng)
	}
	r.conclude(load, "failover")
}
