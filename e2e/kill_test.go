package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// cycles is how many times TestKill kills.
func cycles(t *testing.T) int {
	if text := os.Getenv("E2E_CYCLES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 50
}

func seed(t *testing.T) uint64 {
	n := uint64(time.Now().UnixNano())
	if text := os.Getenv("E2E_SEED"); text != "" {
		var err error
		if n, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("E2E_SEED=%d (of the moments; processes are not replayed exactly)", n)
	return n
}

// TestKill kills the broker with SIGKILL at random moments, under publishers, consumers and readers of queues and streams, and has
// everything judged that the clients saw: issue 2, "is right after any kill -9".
func TestKill(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 1))
	b := newBroker(t, "--disk-file", "4MiB", "--disk-low", "0", "--disk-high", "0")
	r := newRig(t, b)
	b.start()
	declareAll(r, "one")
	r.owners("created")
	load := startLoad(r, rng)
	var longest time.Duration
	n := cycles(t)
	for i := range n {
		pause(time.Duration(50+rng.IntN(700)) * time.Millisecond)
		if rng.IntN(4) == 0 {
			load.settleAll(r)
		}
		r.crash(0)
		began := time.Now()
		r.restart()
		longest = max(longest, time.Since(began))
		load.resume()
		r.verdict()
		if t.Failed() {
			t.Fatalf("in cycle %d of %d", i+1, n)
		}
	}
	load.finish(r)
	r.drainAll()
	r.verdict()
	t.Logf("%d kills, %d messages, %d events; the longest restart took %v", n, r.messages, r.judge.Events(), longest)
}

// What the load works with: queues that lose nothing, one of them with dead letters, and streams.
var (
	queues  = []string{"plain", "busy", "buried", "graves"}
	streams = []string{"river", "brook"}
)

// declareAll declares them, owned by the nodes in turn.
func declareAll(r *rig, owners ...string) {
	turn := 0
	owner := func() string {
		turn++
		return owners[turn%len(owners)]
	}
	ch := r.c.up().channel()
	for _, q := range []struct {
		name string
		dead string
	}{{"plain", ""}, {"busy", ""}, {"graves", ""}, {"buried", "graves"}} {
		args := amqp.Table{}
		if q.dead != "" {
			args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", q.dead
		}
		r.c.own(ch, owner(), q.name, args)
		r.see(check.Event{Kind: check.Declared, Resource: q.name, DeadLetter: q.dead})
	}
	for _, s := range streams {
		r.c.own(ch, owner(), s, amqp.Table{"x-queue-type": "stream"})
		r.see(check.Event{Kind: check.Declared, Resource: s, Stream: true})
	}
}

type load struct {
	r         *rig
	all       sync.WaitGroup
	consumers []*consumer
}

func startLoad(r *rig, rng *rand.Rand) *load {
	l := &load{r: r}
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }
	for i, to := range []string{"plain", "busy", "busy", "buried", "river", "river", "brook"} {
		own := fork()
		l.work(fmt.Sprintf("publisher %d of %s", i, to), func(who string) { r.publisher(who, i, to, 20, own) })
	}
	for i, from := range []string{"plain", "busy", "busy", "buried", "graves"} {
		c := newConsumer(r, from, from == "buried", fork())
		l.consumers = append(l.consumers, c)
		l.work(fmt.Sprintf("consumer %d of %s", i, from), c.work)
	}
	for _, from := range []struct{ stream, cursor string }{{"river", ""}, {"river", "rower"}, {"brook", "fisher"}} {
		own := fork()
		l.work(fmt.Sprintf("reader %q of %s", from.cursor, from.stream), func(who string) { r.follower(who, from.stream, from.cursor, own) })
	}
	return l
}

// work runs a part of the load.
func (l *load) work(who string, part func(who string)) {
	l.all.Go(func() {
		defer l.r.steps.end(who)
		part(who)
	})
}

// settleAll has the consumers settle everything and leave, and records that the broker has confirmed it.
func (l *load) settleAll(r *rig) {
	for _, c := range l.consumers {
		within(r.t, "a consumer of "+c.queue+" to settle everything and leave", r.steps.String, c.pause)
	}
	r.settled(queues...)
}

func (l *load) resume() {
	for _, c := range l.consumers {
		c.resume()
	}
}

// finish ends the load.
func (l *load) finish(r *rig) {
	r.stop()
	for _, c := range l.consumers {
		c.resume()
	}
	within(r.t, "the end of the load", r.steps.String, l.all.Wait)
	r.see(check.Event{Kind: check.Quiet})
}

// drainAll takes everything out of the queues, those that others are buried in last, and reads every stream from its head.
func (r *rig) drainAll() {
	r.mu.Lock()
	r.stopping = false
	r.mu.Unlock()
	for _, q := range queues {
		r.drainQueue(q)
	}
	// What is buried is judged by what came to the graves, so both are judged when both are empty.
	for _, q := range queues {
		r.see(check.Event{Kind: check.Drained, Resource: q})
	}
	for _, s := range streams {
		r.drainStream(s)
	}
}

func (r *rig) drainQueue(queue string) {
	r.t.Helper()
	c, err := r.connect(0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.close()
	reader := r.number()
	r.see(check.Event{Kind: check.Attached, Resource: queue, Session: c.session, Reader: reader})
	r.c.up().await(queue+" to be empty", func() error {
		for {
			d, ok, err := c.Get(queue, false)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			r.see(delivered(queue, c.session, reader, d))
			r.see(check.Event{Kind: check.Settle, Resource: queue, Session: c.session, Message: identify(d.Body), Settlement: check.Accept})
			if err := d.Ack(false); err != nil {
				return err
			}
		}
		n, err := r.c.count(queue)
		if err == nil && n.Ready+n.Unsettled > 0 {
			err = fmt.Errorf("%s has %d ready and %d unsettled", queue, n.Ready, n.Unsettled)
		}
		return err
	})
}

// drainStream publishes a last record and reads up to it.
func (r *rig) drainStream(stream string) {
	r.t.Helper()
	c, err := r.connect(0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.close()
	if err := c.Confirm(false); err != nil {
		r.t.Fatal(err)
	}
	last, body := r.message(rand.New(rand.NewPCG(1, 1)))
	r.see(check.Event{
		Kind: check.Publish, Session: c.session, Lane: c.lane, Message: last, Digest: digest(body), Targets: []string{stream},
	})
	sent, err := c.PublishWithDeferredConfirmWithContext(context.Background(), "", stream, false, false, amqp.Publishing{Body: body})
	if err != nil {
		r.t.Fatal(err)
	}
	if !outcomeOf(r.t, "the last record of "+stream, sent) {
		fatal(r.t, "the last record of %s is not confirmed", stream)
	}
	r.see(check.Event{Kind: check.Resolved, Message: last, Outcome: check.Confirmed})
	reader := r.number()
	r.see(check.Event{Kind: check.Attached, Resource: stream, Session: c.session, Reader: reader, HasOffset: true})
	if err := c.Qos(500, 0, false); err != nil {
		r.t.Fatal(err)
	}
	ds, err := c.Consume(stream, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	if err != nil {
		r.t.Fatal(err)
	}
	next := uint64(0)
	for {
		select {
		case d, ok := <-ds:
			if !ok {
				fatal(r.t, "reading %s ended at offset %d, before its last record", stream, next)
			}
			got := delivered(stream, c.session, reader, d)
			next = got.Offset + 1
			r.see(got)
			_ = d.Ack(false)
			if identify(d.Body) == last {
				r.see(check.Event{Kind: check.Drained, Resource: stream, Reader: reader})
				return
			}
		case <-time.After(patience):
			fatal(r.t, "waiting for %s at offset %d, before its last record: not after %v", stream, next, patience)
		}
	}
}
