package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	amqp "github.com/rabbitmq/amqp091-go"
)

// declarers is how many connections declare or delete many resources at a time.
const declarers = 8

// declare makes the resources and remembers their names.
func (r *run) declare() error {
	for i := range r.load.Resources {
		r.names = append(r.names, fmt.Sprintf("%s-%d", r.load.Prefix, i))
	}
	args := amqp.Table{}
	maps.Copy(args, r.target.Arguments)
	if r.load.Kind == "stream" {
		args["x-queue-type"] = "stream"
	}
	return each(r.target.URLs[0], r.names, func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
}

// each does something with every name, on several connections.
func each(url string, names []string, do func(*amqp.Channel, string) error) error {
	workers := min(declarers, len(names))
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			conn, ch, err := connect(url, "setup")
			if err != nil {
				errs[w] = err
				return
			}
			defer conn.Close()
			for i := w; i < len(names); i += workers {
				if err := do(ch, names[i]); err != nil {
					errs[w] = fmt.Errorf("%s: %w", names[i], err)
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// remove deletes the resources. A broker that is gone keeps them, which is said by the error of the run.
func (r *run) remove() {
	if r.load.Keep {
		return
	}
	if err := each(r.target.URLs[0], r.names, func(ch *amqp.Channel, name string) error {
		_, err := ch.QueueDelete(name, false, false, false)
		return err
	}); err != nil {
		r.note(fmt.Errorf("deleting what was measured with: %w", err))
	}
}

// publish is one publisher until ctx ends; then it waits for what is in flight.
func (r *run) publish(ctx context.Context, place int) error {
	conn, ch, err := r.connect("publisher", place)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := ch.Confirm(false); err != nil {
		return err
	}
	p := &publisher{
		run: r, ch: ch, sent: make([]int64, r.load.InFlight), body: make([]byte, r.load.Size), times: newTimes(),
		confirms: ch.NotifyPublish(make(chan amqp.Confirmation, r.load.InFlight)), next: place, place: place,
	}
	p.first = p.missed()
	defer p.hand()
	for ctx.Err() == nil {
		for p.tag-p.done >= uint64(r.load.InFlight) {
			if !p.take(ctx.Done()) {
				break
			}
		}
		if ctx.Err() != nil || !p.pace(ctx) {
			break
		}
		if err := p.send(); err != nil {
			return err
		}
	}
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for p.done < p.tag {
		select {
		case c, ok := <-p.confirms:
			if !ok {
				return errors.New("the broker closed a publisher's channel")
			}
			p.resolved(c)
		case <-timeout.C:
			return fmt.Errorf("%d messages were not confirmed within 30 s of the last", p.tag-p.done)
		}
	}
	return nil
}

type publisher struct {
	*run
	ch        *amqp.Channel
	confirms  chan amqp.Confirmation
	sent      []int64 // nanoseconds since began, by tag modulo the window
	body      []byte
	times     *hdrhistogram.Histogram
	tag, done uint64
	next      int
	place     int
	first     uint64 // turns that were over before it was connected
}

func (p *publisher) send() error {
	p.tag++
	p.sent[p.tag%uint64(len(p.sent))] = int64(time.Since(p.began))
	name := p.names[p.next%len(p.names)]
	p.next += p.load.Connections
	if p.load.Connections%len(p.names) == 0 && len(p.names) > 1 {
		p.next++ // else a publisher would only ever meet one resource
	}
	return p.ch.PublishWithContext(context.Background(), "", name, false, false, amqp.Publishing{Body: p.body, DeliveryMode: amqp.Persistent})
}

// take waits for a confirm and takes what else is there.
func (p *publisher) take(stop <-chan struct{}) bool {
	select {
	case c, ok := <-p.confirms:
		if !ok {
			p.note(errors.New("the broker closed a publisher's channel"))
			return false
		}
		p.resolved(c)
	case <-stop:
		return false
	}
	now := time.Now()
	for n := 1; ; n++ {
		if n%32 == 0 {
			now = time.Now() // what is there already came before; to look at the clock for each costs as much as the rest
		}
		select {
		case c, ok := <-p.confirms:
			if !ok {
				return true
			}
			p.resolvedAt(c, now)
		default:
			return true
		}
	}
}

func (p *publisher) resolved(c amqp.Confirmation) { p.resolvedAt(c, time.Now()) }

func (p *publisher) resolvedAt(c amqp.Confirmation, now time.Time) {
	p.done++
	if !c.Ack {
		p.nacked.Add(1)
		return
	}
	p.confirmed.Add(1)
	p.gaps.note(now)
	if p.measuring.Load() {
		took := int64(now.Sub(p.began)) - p.sent[c.DeliveryTag%uint64(len(p.sent))]
		_ = p.times.RecordValue(min(max(took/1000, 1), p.times.HighestTrackableValue())) // within bounds: cannot fail
	}
}

// due is when a turn of this publisher's comes, since the run began. Publishers take turns, so that what is offered comes evenly whatever
// the moments at which they were connected.
func (p *publisher) due(turn uint64) time.Duration {
	return time.Duration((float64(turn)*float64(p.load.Connections) + float64(p.place)) / p.load.Rate * float64(time.Second))
}

// missed is how many turns are over.
func (p *publisher) missed() (turn uint64) {
	for now := time.Since(p.began); p.load.Rate > 0 && p.due(turn) < now; {
		turn++
	}
	return turn
}

// pace waits for the next message's time where a rate is asked for, and for consumers that are too far behind.
func (p *publisher) pace(ctx context.Context) bool {
	due := time.Duration(0)
	if p.load.Rate > 0 {
		due = p.due(p.first + p.tag)
	} else if !p.ahead() {
		return true
	}
	for {
		left := due - time.Since(p.began)
		if p.ahead() {
			left = max(left, time.Millisecond)
		}
		if left <= 0 {
			return true
		}
		t := time.NewTimer(left)
		select {
		case c, ok := <-p.confirms:
			t.Stop()
			if !ok {
				return false
			}
			p.resolved(c)
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
}

// hand adds what this publisher measured to the run's.
func (p *publisher) hand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run.times.Merge(p.times)
}

// prefetch of a consumer that is measured, and how many deliveries one acknowledgement covers at most.
const prefetch, ackEvery = 2000, 256

func (r *run) consume(ctx context.Context, place int) error {
	conn, ch, err := r.connect("consumer", place)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	merged := make(chan amqp.Delivery, prefetch)
	var feeds sync.WaitGroup
	for i := place; i < max(len(r.names), place+1); i += max(r.load.Consumers, 1) {
		args := amqp.Table{}
		if r.load.Kind == "stream" {
			args["x-stream-offset"] = "next"
		}
		ds, err := ch.Consume(r.names[i%len(r.names)], "", false, false, false, false, args)
		if err != nil {
			return err
		}
		feeds.Go(func() {
			for d := range ds {
				merged <- d
			}
		})
	}
	go func() {
		feeds.Wait()
		close(merged)
	}()
	return r.settleAll(ctx, ch, merged)
}

// settleAll acknowledges every delivery, several at a time while more are waiting. With several consumers on one channel a tag may
// only cover others once they were taken, so each is acknowledged by itself there.
func (r *run) settleAll(ctx context.Context, ch *amqp.Channel, ds <-chan amqp.Delivery) error {
	several := len(r.names) > r.load.Consumers
	waiting := 0
	for {
		select {
		case d, ok := <-ds:
			if !ok {
				return nil
			}
			r.consumed.Add(1)
			waiting++
			if !several && waiting < ackEvery && len(ds) > 0 {
				continue
			}
			if err := ch.Ack(d.DeliveryTag, !several); err != nil {
				return err
			}
			waiting = 0
		case <-ctx.Done():
			go func() { // the client library blocks on deliveries that nobody takes
				for range ds {
				}
			}()
			return nil
		}
	}
}
