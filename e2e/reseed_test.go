package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// flood publishes messages of 128 KiB as fast as they are taken, and waits until all are confirmed.
func flood(t *testing.T, ch *amqp.Channel, queue string, bodies []string) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	fill := strings.Repeat("x", 128<<10)
	var sent []*amqp.DeferredConfirmation
	for _, body := range bodies {
		d, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: body, Body: []byte(fill)})
		if err != nil {
			t.Fatal(err)
		}
		sent = append(sent, d)
	}
	for i, d := range sent {
		if !outcomeOf(t, bodies[i], d) {
			fatal(t, "%s was not confirmed", bodies[i])
		}
	}
}

func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// reseeds is nil while the copy of a queue on a node takes an image in place of its log.
func (c *cluster) reseeds(name, node string) error {
	p, err := c.owned(name)
	if err != nil {
		return err
	}
	for _, x := range p.Copies {
		if x.Node == node && strings.Contains(x.Reason, "takes an image") {
			return nil
		}
	}
	return fmt.Errorf("the copies of %s are %+v", name, p.Copies)
}

// churned is what passes through a queue while a follower is away, more than a node keeps of its logs in memory (64 MiB): what is in memory can be
// sent to whoever comes back, whatever was let go of on the disk.
const churned = 640 // messages of 128 KiB

// TestAFollowerAwayForTooLongIsReseededInPlace kills a follower under load, has its owner let go of what it misses, and starts it again: it is made anew
// in its place from an image, killed once more in the midst of that, and follows. No publish fails, no epoch changes, nobody learns in its
// stead, and the copies end identical (issue 5, "Build" 1).
func TestAFollowerAwayForTooLongIsReseededInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 9))
	c := newCluster(t, 3)
	c.set("retain_for_absent", "0")
	r := newRig(t, c.nodes...)
	declareAll(r, "n1")
	ch := c.nodes[0].channel()
	c.own(ch, "n1", "far", nil)
	publishConfirmed(t, ch, "far", "what it has")
	c.up().await("copies to be level", func() error { return c.level("far") })
	before := r.owners("created")
	first := before["far"]
	load := startLoad(r, rng)
	const node = 2
	away := c.nodes[node]
	r.crash(node)
	began := time.Now()
	flood(t, ch, "far", numbered("gone ", churned))
	if _, err := ch.QueuePurge("far", false); err != nil {
		t.Fatal(err)
	}
	c.set("learner_rate", "1MiB")
	want := numbered("kept ", 32)
	flood(t, ch, "far", want)
	t.Logf("%s was away for %v", away.name, time.Since(began).Round(time.Millisecond))

	away.start()
	c.up().await("an image for "+away.name, func() error { return c.reseeds("far", away.name) })
	pause(time.Duration(rng.IntN(1000)) * time.Millisecond)
	if err := c.reseeds("far", away.name); err != nil {
		fatal(t, "the image was to take longer: %v", err)
	}
	r.crash(node)
	pause(time.Duration(rng.IntN(500)) * time.Millisecond)
	away.start()
	c.up().await("the image for "+away.name+" to go on", func() error { return c.reseeds("far", away.name) })
	c.set("learner_rate", "1GiB")
	c.back(away)
	c.up().await("a follower that is made anew", func() error { return c.level("far") })
	r.verdict()
	r.unharmed()
	c.sameEpochs(before)
	if now, err := c.owned("far"); err != nil || now.Epoch != first.Epoch || !slices.Equal(now.Followers, first.Followers) || len(now.Learners) > 0 {
		t.Errorf("it was %+v and is %+v, %v", first, now, err)
	}
	if err := away.said("replica.reseeded"); err != nil {
		t.Error(err)
	}
	load.finish(r)
	r.drainAll()
	r.verdict()
	c.identical(append(slices.Clone(everything), "far")...)
	for _, b := range c.nodes {
		b.launch()
	}
	c.up().await("the queue", func() error { return c.level("far") })
	ch = c.nodes[0].channel()
	for _, id := range want {
		d, ok, err := ch.Get("far", true)
		if err != nil || !ok || d.MessageId != id {
			t.Fatalf("got %q, %t, %v; want %q", d.MessageId, ok, err, id)
		}
	}
	t.Logf("%d messages, %d events; longest times without a confirm %s", r.messages, r.judge.Events(), r.pauses())
}
