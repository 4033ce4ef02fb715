package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// publisher publishes to one resource with confirms until the load is over, and reports when its last outcomes are in.
func (r *rig) publisher(who string, node int, target string, inFlight int, rng *rand.Rand) {
	for {
		r.steps.begin(who, "connects")
		c, err := r.connect(node)
		if err != nil {
			return
		}
		if err = c.publish(who, target, inFlight, rng); err == nil {
			c.close()
			return
		}
		r.fault(c, "publishing to %s: %v", target, err)
		c.close()
	}
}

// publish publishes until the load is over; an error means that the connection is gone.
func (c *client) publish(who, target string, inFlight int, rng *rand.Rand) error {
	if err := c.Confirm(false); err != nil {
		return err
	}
	outcomes := c.NotifyPublish(make(chan amqp.Confirmation, inFlight+1))
	waiting := map[uint64]uint64{} // by delivery tag
	var tag uint64
	for {
		over := c.r.over()
		if over && len(waiting) == 0 {
			return nil
		}
		if over || len(waiting) >= inFlight || rng.IntN(50) == 0 && len(waiting) > 0 {
			c.r.steps.begin(who, "waits on %s for one of %d outcomes", c.r.c.nodes[c.seat.node].name, len(waiting))
			if err := c.outcome(outcomes, waiting); err != nil {
				return err
			}
			continue
		}
		c.r.steps.begin(who, "publishes on %s", c.r.c.nodes[c.seat.node].name)
		id, err := c.give(target, rng)
		if err != nil {
			return err
		}
		tag++
		waiting[tag] = id
	}
}

// give publishes one message.
func (c *client) give(target string, rng *rand.Rand) (id uint64, err error) {
	id, body := c.r.message(rng)
	c.r.see(check.Event{
		Kind: check.Publish, Session: c.session, Lane: c.lane, Message: id, Digest: digest(body), Targets: []string{target},
	})
	return id, c.PublishWithContext(context.Background(), "", target, false, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(id), Body: body, Headers: amqp.Table{"n": int64(id)},
	})
}

// knocks is how many messages a client publishes to each resource when it knocks.
const knocks = 3

// knock publishes some messages to every resource, of which none can be confirmed now. Their outcomes are waited for as a part of the load.
func (l *load) knock(node int, rng *rand.Rand) {
	r := l.r
	r.t.Helper()
	c, err := r.connect(node)
	if err == nil {
		err = c.Confirm(false)
	}
	if err != nil {
		fatal(r.t, "knocking at %s: %v", r.c.nodes[node].name, err)
	}
	outcomes := c.NotifyPublish(make(chan amqp.Confirmation, knocks*len(everything)))
	waiting := map[uint64]uint64{}
	for range knocks {
		for _, target := range everything {
			id, err := c.give(target, rng)
			if err != nil {
				fatal(r.t, "knocking at %s: %v", r.c.nodes[node].name, err)
			}
			waiting[uint64(len(waiting)+1)] = id
		}
	}
	l.work(fmt.Sprintf("who knocked at %s in session %d", r.c.nodes[node].name, c.session), func(who string) {
		defer c.close()
		for len(waiting) > 0 {
			r.steps.begin(who, "waits for one of %d outcomes", len(waiting))
			if err := c.outcome(outcomes, waiting); err != nil {
				r.fault(c, "knocking: %v", err)
				return
			}
		}
	})
}

// outcome takes one outcome. A nack may mean refused or unknown: a client cannot tell.
func (c *client) outcome(outcomes <-chan amqp.Confirmation, waiting map[uint64]uint64) error {
	o, ok := <-outcomes
	if !ok {
		return amqp.ErrClosed
	}
	id := waiting[o.DeliveryTag]
	delete(waiting, o.DeliveryTag)
	e := check.Event{Kind: check.Resolved, Message: id, Outcome: check.Unknown}
	if o.Ack {
		e.Outcome = check.Confirmed
		c.r.confirmed(e)
		return nil
	}
	if c.r.refusals(c) {
		pause(5 * time.Millisecond) // it may go on refusing for a while
	} else {
		c.r.fault(c, "nack of message %d", id)
	}
	c.r.see(e)
	return nil
}

// consumer consumes one queue, a session after the other, until calm is asked for or the load is over. Every delivery that it still
// holds when it goes is accepted first if it goes in peace.
type consumer struct {
	r      *rig
	queue  string
	reject bool
	rng    *rand.Rand

	mu    sync.Mutex
	calm  bool
	state *sync.Cond
	idle  bool
}

func newConsumer(r *rig, queue string, reject bool, rng *rand.Rand) *consumer {
	c := &consumer{r: r, queue: queue, reject: reject, rng: rng}
	c.state = sync.NewCond(&c.mu)
	return c
}

// pause has the consumer settle what it holds and leave, and waits until it has.
func (c *consumer) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = true
	for !c.idle {
		c.state.Wait()
	}
}

func (c *consumer) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calm = false
	c.state.Broadcast()
}

// rest waits while the consumer is paused.
func (c *consumer) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.calm && !c.r.over() {
		c.idle = true
		c.state.Broadcast()
		c.state.Wait()
	}
	c.idle = false
}

func (c *consumer) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.calm
}

func (c *consumer) work(who string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = true
		c.state.Broadcast()
	}()
	for node := c.rng.IntN(len(c.r.c.nodes)); ; node++ {
		c.r.steps.begin(who, "rests")
		c.rest()
		c.r.steps.begin(who, "connects")
		cl, err := c.r.connect(node)
		if err != nil {
			return
		}
		c.r.steps.begin(who, "consumes on %s", c.r.c.nodes[cl.seat.node].name)
		err = c.consume(cl)
		// A consumer that holds what was given up with lost copies ends.
		if err != nil && !(errors.Is(err, errEnded) && c.r.refusals(cl)) {
			c.r.fault(cl, "consuming %s: %v", c.queue, err)
		}
		cl.close()
	}
}

var errEnded = errors.New("the deliveries ended")

// consume takes deliveries for a while. An error means that it was not the client that ended it.
func (c *consumer) consume(cl *client) error {
	if err := cl.Qos(1+c.rng.IntN(100), 0, false); err != nil {
		return err
	}
	reader := c.r.number()
	c.r.see(check.Event{Kind: check.Attached, Resource: c.queue, Session: cl.session, Reader: reader})
	tag := fmt.Sprint("c", reader)
	ds, err := cl.Consume(c.queue, tag, false, false, false, false, nil)
	if err != nil {
		return err
	}
	c.r.looks(cl.session, true) // not before: it is answered when an owner has heard of it
	defer c.r.looks(cl.session, false)
	end := time.NewTimer(time.Duration(300+c.rng.IntN(2000)) * time.Millisecond)
	defer end.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	var held []amqp.Delivery
	for {
		select {
		case d, ok := <-ds:
			if !ok {
				return errEnded
			}
			c.r.see(delivered(c.queue, cl.session, reader, d))
			held = c.decide(cl, append(held, d))
		case <-end.C:
			return nil // what is held is released by the end of the connection
		case <-look.C:
			if !c.wanted() || c.r.over() {
				c.leave(cl, tag, reader, ds, held)
				return nil
			}
		}
	}
}

func delivered(queue string, session, reader uint64, d amqp.Delivery) check.Event {
	e := check.Event{
		Kind: check.Delivered, Resource: queue, Session: session, Reader: reader, Message: identify(d.Body), Digest: digest(d.Body),
		Redelivered: d.Redelivered,
	}
	if offset, ok := d.Headers["x-stream-offset"].(int64); ok {
		e.Offset, e.HasOffset = uint64(offset), true
	}
	return e
}

// decide settles some of what is held.
func (c *consumer) decide(cl *client, held []amqp.Delivery) []amqp.Delivery {
	last := held[len(held)-1]
	switch n := c.rng.IntN(100); {
	case n < 8 && len(held) < 100:
		return held
	case n < 15:
		c.settle(cl, check.Requeue, last)
		_ = last.Nack(false, true)
		return held[:len(held)-1]
	case n < 20 && c.reject:
		c.settle(cl, check.Reject, last)
		_ = last.Reject(false)
		return held[:len(held)-1]
	case n < 40 || len(held) >= 100:
		c.settle(cl, check.Accept, held...)
		_ = last.Ack(true)
		return held[:0]
	}
	c.settle(cl, check.Accept, last)
	_ = last.Ack(false)
	return held[:len(held)-1]
}

func (c *consumer) settle(cl *client, s check.Settlement, ds ...amqp.Delivery) {
	events := make([]check.Event, len(ds))
	for i, d := range ds {
		events[i] = check.Event{Kind: check.Settle, Resource: c.queue, Session: cl.session, Message: identify(d.Body), Settlement: s}
	}
	c.r.see(events...)
}

// leave cancels the consumer, takes what was still on its way, and accepts everything.
func (c *consumer) leave(cl *client, tag string, reader uint64, ds <-chan amqp.Delivery, held []amqp.Delivery) {
	go func() { _ = cl.Cancel(tag, false) }()
	for d := range ds {
		c.r.see(delivered(c.queue, cl.session, reader, d))
		held = append(held, d)
	}
	if len(held) > 0 {
		c.settle(cl, check.Accept, held...)
		_ = held[len(held)-1].Ack(true)
	}
}

// follower reads a stream from an offset that it has seen, or under a cursor, a session after the other.
func (r *rig) follower(who, stream, cursor string, rng *rand.Rand) {
	var next uint64
	for node := rng.IntN(len(r.c.nodes)); ; node++ {
		r.steps.begin(who, "connects")
		c, err := r.connect(node)
		if err != nil {
			return
		}
		r.steps.begin(who, "reads on %s", r.c.nodes[c.seat.node].name)
		seen, err := c.follow(stream, cursor, next, rng)
		if err != nil {
			r.fault(c, "reading %s: %v", stream, err)
		}
		next = max(next, seen)
		c.close()
	}
}

// follow reads from a place below one that was seen, or from where the cursor stands.
func (c *client) follow(stream, cursor string, below uint64, rng *rand.Rand) (next uint64, err error) {
	e := check.Event{Kind: check.Attached, Resource: stream, Session: c.session, Reader: c.r.number(), HasOffset: true}
	args := amqp.Table{"x-stream-offset": "first", "x-cursor": cursor}
	if err := c.Qos(200, 0, false); err != nil {
		return 0, err
	}
	c.r.mu.Lock()
	if cursor != "" {
		e.Cursor = cursor
	} else {
		if end, ok := c.r.ends[stream]; ok {
			below = min(below, end)
		}
		if below > 0 {
			e.Offset = rng.Uint64N(below)
		}
		args = amqp.Table{"x-stream-offset": int64(e.Offset)}
	}
	c.r.seeLocked(e)
	c.r.mu.Unlock()
	ds, err := c.Consume(stream, "", false, false, false, false, args)
	if err != nil {
		return 0, err
	}
	c.r.looks(c.session, true)
	defer c.r.looks(c.session, false)
	end := time.NewTimer(time.Duration(100+rng.IntN(1500)) * time.Millisecond)
	defer end.Stop()
	for {
		select {
		case d, ok := <-ds:
			if !ok {
				return next, errEnded
			}
			got := delivered(stream, c.session, e.Reader, d)
			c.r.see(got)
			next = got.Offset + 1
			if cursor != "" {
				c.r.see(check.Event{Kind: check.CursorSent, Resource: stream, Cursor: cursor, Offset: next})
			}
			_ = d.Ack(false)
		case <-end.C:
			return next, nil
		}
	}
}
