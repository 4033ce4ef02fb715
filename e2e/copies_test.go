package e2e

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// everything is every resource that the load works with.
var everything = slices.Concat(queues, streams)

// reach is nil once the copies of a node hold all that owners had confirmed when it was first asked.
func (c *cluster) reach(node *broker) func() error {
	wanted := map[string]uint64{}
	return func() error {
		for _, name := range everything {
			if _, ok := wanted[name]; ok {
				continue
			}
			p, err := c.owned(name)
			if err != nil {
				return err
			}
			wanted[name] = p.Confirmed
		}
		by, err := node.partitions()
		if err != nil {
			return err
		}
		for name, want := range wanted {
			if have, ok := by[name].copyOn(node.name); !ok || have < want {
				return fmt.Errorf("%s has %s up to %d of %d", node.name, name, have, want)
			}
		}
		return nil
	}
}

// back waits until a node that was started again has sessions with all others, which have some with it, and has what it missed.
func (c *cluster) back(b *broker) {
	c.t.Helper()
	c.whole()
	b.await("what was missed", c.reach(b))
}

// served is nil once every resource is served, and those of one owner in an epoch above the one that they had.
func (c *cluster) served(by *broker, owner string, before map[string]partition) error {
	now, err := by.partitions()
	if err != nil {
		return err
	}
	for _, name := range everything {
		p, old := now[name], before[name]
		want := old.Epoch
		if old.Owner == owner {
			want++
		}
		if p.State != "serving" || p.Epoch != want {
			return fmt.Errorf("%s says that %s is %s in epoch %d, want it serving in %d", by.name, name, p.State, p.Epoch, want)
		}
	}
	return nil
}

// TestFollowersKilled kills and restarts each follower in turn, under publishers, consumers and readers that speak to all three nodes: no
// publish fails, no epoch changes, and the copies end identical (issue 3, "Proof").
func TestFollowersKilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 2))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1")
	before := r.owners("created")
	r.enter("all up")
	load := startLoad(r, rng)
	const rounds = 3
	for range rounds {
		for _, node := range []int{1, 2} {
			pause(time.Duration(100+rng.IntN(400)) * time.Millisecond)
			if rng.IntN(2) == 0 {
				load.settleAll(r)
			}
			r.enter("one killed")
			r.crash(node)
			load.resume()
			pause(time.Duration(rng.IntN(700)) * time.Millisecond)
			r.enter("it comes back")
			c.nodes[node].start()
			c.back(c.nodes[node])
			r.enter("all up")
			r.verdict()
			r.unharmed()
		}
	}
	load.finish(r)
	r.drainAll()
	r.verdict()
	after := r.owners("")
	for _, name := range everything {
		if b, a := before[name], after[name]; a.Epoch != b.Epoch || a.Owner != b.Owner || len(a.Followers) != 2 {
			t.Errorf("%s was owned by %s in epoch %d and is by %s in %d, followed by %v", name, b.Owner, b.Epoch, a.Owner, a.Epoch, a.Followers)
		}
	}
	c.identical(everything...)
	t.Logf("%d followers killed, %d messages, %d events; longest times without a confirm %s", 2*rounds, r.messages, r.judge.Events(), r.pauses())
}

// conclude ends a load: everything is settled and read, judged, and the copies are the same. It returns who owns what by then, with what moved it.
func (r *rig) conclude(load *load, cause string) map[string]partition {
	r.t.Helper()
	load.finish(r)
	owned := r.owners(cause)
	r.drainAll()
	r.verdict()
	r.c.identical(everything...)
	r.t.Logf("%d messages, %d events; longest times without a confirm %s", r.messages, r.judge.Events(), r.pauses())
	return owned
}

// sameEpochs fails where something changed its epoch.
func (r *rig) sameEpochs(before, after map[string]partition) {
	r.t.Helper()
	for _, name := range everything {
		if after[name].Epoch != before[name].Epoch {
			r.t.Errorf("%s was in epoch %d and is in %d", name, before[name].Epoch, after[name].Epoch)
		}
	}
}

// TestFollowersHalted halts each follower in turn under load (SIGSTOP), for less and for more than the 1.5 s after which nobody counts on it,
// and lets it go on: no publish fails, no epoch changes, and the copies end identical.
func TestFollowersHalted(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 5))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1")
	before := r.owners("created")
	r.enter("all up")
	load := startLoad(r, rng)
	for round, node := range []int{1, 2, 1, 2} {
		pause(time.Duration(100+rng.IntN(400)) * time.Millisecond)
		r.see(check.Event{Kind: check.Disturbed}) // what its clients hold may be given up
		r.enter("one halted")
		c.nodes[node].halt()
		pause(time.Duration(100+rng.IntN(900)+2000*(round/2)) * time.Millisecond)
		c.nodes[node].goOn()
		r.enter("it goes on")
		c.back(c.nodes[node])
		r.see(check.Event{Kind: check.Calm})
		r.enter("all up")
		r.verdict()
		r.unharmed()
	}
	r.sameEpochs(before, r.conclude(load, ""))
}

// statusWaits demands that `tanist status` says of a queue whose owner is gone that it waits, and for whom.
func statusWaits(t *testing.T, b *broker, owner string) {
	t.Helper()
	for _, args := range [][]string{{"status"}, {"status", "q"}} {
		out, code := run(t, append(args, "--admin-url", "http://"+b.admin)...)
		if code != 0 || !regexp.MustCompile(`q .*waiting`).MatchString(out) || !strings.Contains(out, owner) {
			t.Errorf("tanist %s ends with %d and does not say who is waited for:\n%s", strings.Join(args, " "), code, out)
		}
	}
}

// holder is a consumer that has taken the first messages of a queue and settled none.
type holder struct {
	t      *testing.T
	bodies []string
	ds     <-chan amqp.Delivery
	last   amqp.Delivery
}

// hold publishes 20 messages to q and takes 10.
func hold(t *testing.T, ch *amqp.Channel) *holder {
	t.Helper()
	h := &holder{t: t}
	for i := range 20 {
		h.bodies = append(h.bodies, fmt.Sprint(i))
	}
	publishConfirmed(t, ch, "q", h.bodies...)
	if err := ch.Qos(10, 0, false); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.ds, err = ch.Consume("q", "", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	h.take(0, 10)
	return h
}

func (h *holder) take(from, to int) {
	h.t.Helper()
	for i := from; i < to; i++ {
		select {
		case d, ok := <-h.ds:
			// The new owner cannot know whether somebody of its own node had been handed what nobody claims: it may say so.
			if !ok || string(d.Body) != h.bodies[i] || d.DeliveryTag != uint64(i+1) {
				h.t.Fatalf("got %q with tag %d, %t; want %q", d.Body, d.DeliveryTag, ok, h.bodies[i])
			}
			h.last = d
		case <-time.After(patience):
			fatal(h.t, "waiting for %q: not after %v", h.bodies[i], patience)
		}
	}
}

func (h *holder) ack() {
	h.t.Helper()
	if err := h.last.Ack(true); err != nil {
		h.t.Fatal(err)
	}
}

// TestHeldAcrossAFailover kills the owner of a queue while a client of another node holds deliveries unsettled: they stay its own, under the
// tags that they have, and what it settles after the owner has changed is settled on the new one. The dead owner stays away.
func TestHeldAcrossAFailover(t *testing.T) {
	c := newCluster(t, 3)
	c.own(c.nodes[1].channel(), "n1", "q", nil)
	h := hold(t, c.nodes[1].channel())
	c.nodes[0].kill()
	publishConfirmed(t, c.nodes[2].channel(), "q", "after")
	h.bodies = append(h.bodies, "after")
	h.ack()
	h.take(10, 20)
	h.ack()
	h.take(20, 21)
	h.ack()
	c.nodes[1].await("an empty queue", func() error {
		n, err := c.count("q")
		if err == nil && n.Unsettled+n.Ready > 0 {
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	select {
	case d := <-h.ds:
		t.Fatalf("got %q once more", d.Body)
	default:
	}
}

// TestTwoOfThreeAway kills the owner of a queue and another node, for longer than a publish may take: its outcome is unknown then, and the
// queue waits and says for whom. Deliveries that clients of the node left hold unsettled stay theirs, under the tags that they have, and nothing
// is delivered again when the others are back.
func TestTwoOfThreeAway(t *testing.T) {
	c := newCluster(t, 3, "--confirm-timeout", "2s")
	c.own(c.nodes[1].channel(), "n1", "q", nil)
	h := hold(t, c.nodes[1].channel())
	c.nodes[2].kill()
	c.nodes[0].kill()

	publishInVain(t, c.nodes[1].channel(), "q", 2*time.Second)
	statusWaits(t, c.nodes[1], "n1")
	c.nodes[0].start()
	c.nodes[2].start()
	h.ack()
	h.take(10, 20)
	h.ack()
	c.up().await("an empty queue", func() error {
		n, err := c.count("q")
		if err == nil && (n.Unsettled > 1 || n.Ready > 0) { // what was in vain may be there, delivered
			err = fmt.Errorf("%+v", n)
		}
		return err
	})
	select {
	case d := <-h.ds:
		if string(d.Body) != "in vain" {
			t.Fatalf("got %q", d.Body)
		}
	default:
	}
}

// publishInVain publishes what must not be confirmed, and waits for the nack, which must not come early.
func publishInVain(t *testing.T, ch *amqp.Channel, queue string, least time.Duration) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	sent, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, false, false, amqp.Publishing{Body: []byte("in vain")})
	if err != nil {
		t.Fatal(err)
	}
	if acked, took := outcomeOf(t, "what is published in vain", sent), time.Since(began); acked || took < least || took > noQuorumBound {
		t.Fatalf("acked %t after %v", acked, took)
	}
}

// demand runs a verb that asks a node, and wants a yes.
func demand(t *testing.T, b *broker, args ...string) {
	t.Helper()
	if out, code := run(t, append(args, "--admin-url", "http://"+b.admin)...); code != 0 {
		t.Fatalf("tanist %s ends with %d:\n%s", strings.Join(args, " "), code, out)
	}
}

// TestRollingRestart stops and starts all three nodes in turn, in order, under load, when the verbs for it say that it is time: nothing
// confirmed is lost, what was settled stays settled, and clients of the nodes that run meet a pause and nothing else.
func TestRollingRestart(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 4))
	c := newCluster(t, 3)
	r := newRig(t, c.nodes...)
	declareAll(r, "n1", "n2", "n3")
	load := startLoad(r, rng)
	for node, b := range c.nodes {
		before := r.owners("restart")
		pause(time.Duration(200+rng.IntN(500)) * time.Millisecond)
		load.settleAll(r)
		load.resume()
		pause(time.Duration(rng.IntN(300)) * time.Millisecond)
		other := c.nodes[(node+1)%len(c.nodes)]
		demand(t, other, "check", "quorum-critical", b.name)
		r.disturb(node)
		r.leave(node)
		if code := b.stop(); code != 0 {
			t.Fatalf("%s ends with code %d", b.name, code)
		}
		b.start()
		r.isBack(node)
		demand(t, other, "wait", "healthy", "--timeout", "1m")
		if err := c.served(other, b.name, before); err != nil {
			t.Errorf("healthy, and yet %v", err)
		}
		for _, o := range c.nodes {
			o.await("the next epoch", func() error { return c.served(o, b.name, before) })
		}
		c.back(b)
		r.see(check.Event{Kind: check.Calm})
		r.verdict()
		r.unharmed()
	}
	load.settleAll(r)
	r.conclude(load, "restart")
}
