package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestQueueArguments shows over AMQP, with a client that knows RabbitMQ, what each argument of a queue does.
func TestQueueArguments(t *testing.T) {
	b := newBroker(t)
	b.start()
	for _, test := range []struct {
		name string
		run  func(*testing.T, *broker, *amqp.Channel)
	}{
		{"message TTL", ttl},
		{"expiration of a message", expiration},
		{"max-length drops the head", dropHead},
		{"max-length refuses", rejectPublish},
		{"dead letters carry x-death", deadLetters},
		{"delivery limit", deliveryLimit},
		{"nack of several requeues to their places", requeueSeveral},
		{"single active consumer", singleActive},
		{"consumer priority", priority},
		{"delay", delay},
		{"expires", expires},
		{"inequivalent declare names the argument", inequivalent},
		{"exclusive elsewhere", exclusiveElsewhere},
		{"prefetch", prefetch},
		{"purge and conditional delete", purgeAndDelete},
		{"unsupported arguments", unsupported},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b, b.channel()) })
	}
}

// awaitBodies gets messages until as many as wanted have come, and compares.
func awaitBodies(t *testing.T, b *broker, ch *amqp.Channel, queue string, want ...string) []amqp.Delivery {
	t.Helper()
	var got []string
	var all []amqp.Delivery
	b.await(fmt.Sprintf("%q in %s", want, queue), func() error {
		for {
			d, ok, err := ch.Get(queue, true)
			if err != nil || !ok {
				if err == nil && len(got) < len(want) {
					err = fmt.Errorf("%q came", got)
				}
				return err
			}
			got, all = append(got, string(d.Body)), append(all, d)
		}
	})
	if !slices.Equal(got, want) {
		t.Fatalf("%s gave %q, want %q", queue, got, want)
	}
	return all
}

func buried(extra amqp.Table, key string) amqp.Table {
	args := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key}
	for k, v := range extra {
		args[k] = v
	}
	return args
}

func ttl(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "ttl-grave", nil)
	declare(t, ch, "ttl", buried(amqp.Table{"x-message-ttl": int32(50)}, "ttl-grave"))
	publishConfirmed(t, ch, "ttl", "short-lived")
	awaitBodies(t, b, ch, "ttl-grave", "short-lived")
	awaitBodies(t, b, ch, "ttl")
}

func expiration(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "exp-grave", nil)
	declare(t, ch, "exp", buried(nil, "exp-grave"))
	m := amqp.Publishing{Expiration: "40", Body: []byte("expires")}
	if err := ch.PublishWithContext(context.Background(), "", "exp", false, false, m); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, ch, "exp", "stays")
	d := awaitBodies(t, b, ch, "exp-grave", "expires")
	if d[0].Expiration != "" {
		t.Errorf("a dead letter keeps its expiration %q, and would die again", d[0].Expiration)
	}
	awaitBodies(t, b, ch, "exp", "stays")
}

func dropHead(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "short", amqp.Table{"x-max-length": int32(2)})
	publishConfirmed(t, ch, "short", "one", "two", "three")
	awaitBodies(t, b, ch, "short", "two", "three")
}

func rejectPublish(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "full", amqp.Table{"x-max-length": int32(2), "x-overflow": "reject-publish"})
	publishConfirmed(t, ch, "full", "one", "two")
	c, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", "full", false, false, amqp.Publishing{Body: []byte("three")})
	if err != nil {
		t.Fatal(err)
	}
	if outcomeOf(t, "a message over the length", c) {
		t.Fatal("a message over the length was confirmed")
	}
	awaitBodies(t, b, ch, "full", "one", "two")
}

func deadLetters(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "grave", nil)
	declare(t, ch, "buried", buried(nil, "grave"))
	publishConfirmed(t, ch, "buried", "rejected")
	d, ok, err := ch.Get("buried", false)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := d.Reject(false); err != nil {
		t.Fatal(err)
	}
	dead := awaitBodies(t, b, ch, "grave", "rejected")[0]
	deaths, _ := dead.Headers["x-death"].([]any)
	if len(deaths) != 1 {
		t.Fatalf("x-death is %v", dead.Headers["x-death"])
	}
	death, _ := deaths[0].(amqp.Table)
	if death["queue"] != "buried" || death["reason"] != "rejected" || death["count"] != int64(1) {
		t.Fatalf("x-death is %v", death)
	}
}

func deliveryLimit(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "limit-grave", nil)
	declare(t, ch, "limit", buried(amqp.Table{"x-delivery-limit": int32(2)}, "limit-grave"))
	publishConfirmed(t, ch, "limit", "poison")
	for range 3 {
		b.await("the message", func() error {
			d, ok, err := ch.Get("limit", false)
			if err == nil && !ok {
				err = fmt.Errorf("not there")
			}
			if err == nil {
				err = d.Nack(false, true)
			}
			return err
		})
	}
	awaitBodies(t, b, ch, "limit-grave", "poison")
}

func requeueSeveral(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "places", nil)
	publishConfirmed(t, ch, "places", "one", "two", "three", "four")
	var last amqp.Delivery
	for range 3 {
		d, ok, err := ch.Get("places", false)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		last = d
	}
	if err := last.Nack(true, true); err != nil {
		t.Fatal(err)
	}
	again := awaitBodies(t, b, ch, "places", "one", "two", "three", "four")
	for i, d := range again {
		if d.Redelivered != (i < 3) {
			t.Errorf("%s has redelivered = %v", d.Body, d.Redelivered)
		}
	}
}

// receive takes deliveries from a consumer.
func receive(t *testing.T, ds <-chan amqp.Delivery, n int) []amqp.Delivery {
	t.Helper()
	var all []amqp.Delivery
	deadline := time.After(patience)
	for len(all) < n {
		select {
		case d, ok := <-ds:
			if !ok {
				t.Fatal("the consumer ended")
			}
			all = append(all, d)
		case <-deadline:
			t.Fatalf("%d of %d deliveries came", len(all), n)
		}
	}
	return all
}

func consume(t *testing.T, ch *amqp.Channel, queue, tag string, args amqp.Table) <-chan amqp.Delivery {
	t.Helper()
	ds, err := ch.Consume(queue, tag, false, false, false, false, args)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

func singleActive(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "single", amqp.Table{"x-single-active-consumer": true})
	first := consume(t, ch, "single", "first", nil)
	other := b.channel()
	second := consume(t, other, "single", "second", nil)
	publishConfirmed(t, ch, "single", "one", "two")
	for _, d := range receive(t, first, 2) {
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Cancel("first", false); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, ch, "single", "three")
	if d := receive(t, second, 1)[0]; string(d.Body) != "three" {
		t.Fatalf("the next in line got %q", d.Body)
	}
}

func priority(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "ranked", nil)
	low := consume(t, ch, "ranked", "low", nil)
	high := consume(t, b.channel(), "ranked", "high", amqp.Table{"x-priority": int32(5)})
	publishConfirmed(t, ch, "ranked", "one", "two", "three")
	receive(t, high, 3)
	select {
	case d := <-low:
		t.Fatalf("the lower priority got %q", d.Body)
	default:
	}
}

func delay(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "delayed", nil)
	began := time.Now()
	m := amqp.Publishing{Headers: amqp.Table{"x-delay": int32(150)}, Body: []byte("later")}
	if err := ch.PublishWithContext(context.Background(), "", "delayed", false, false, m); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, ch, "delayed", "now")
	awaitBodies(t, b, ch, "delayed", "now", "later")
	if d := time.Since(began); d < 150*time.Millisecond {
		t.Errorf("the delayed message came after %v", d)
	}
}

func expires(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "unused", amqp.Table{"x-expires": int32(50)})
	b.await("the queue to go", func() error {
		all, err := b.resources()
		if _, there := all["unused"]; err == nil && there {
			err = fmt.Errorf("it is there")
		}
		return err
	})
}

// refused demands that a declaration ends its channel with a code and a text.
func refused(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	e, ok := err.(*amqp.Error)
	if !ok || e.Code != code {
		t.Fatalf("%v, want %d", err, code)
	}
	for _, w := range words {
		if !strings.Contains(e.Reason, w) {
			t.Errorf("%q does not say %q", e.Reason, w)
		}
	}
}

func inequivalent(t *testing.T, _ *broker, ch *amqp.Channel) {
	declare(t, ch, "fixed", amqp.Table{"x-max-length": int32(5)})
	_, err := ch.QueueDeclare("fixed", true, false, false, false, amqp.Table{"x-max-length": int32(6)})
	refused(t, err, amqp.PreconditionFailed, "x-max-length", "fixed")
}

func exclusiveElsewhere(t *testing.T, b *broker, ch *amqp.Channel) {
	if _, err := ch.QueueDeclare("mine", false, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	_, err := b.channel().QueueDeclare("mine", false, false, true, false, nil)
	refused(t, err, amqp.ResourceLocked, "mine")
}

func prefetch(t *testing.T, _ *broker, ch *amqp.Channel) {
	declare(t, ch, "few", nil)
	if err := ch.Qos(2, 0, false); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, ch, "few", "one", "two", "three")
	ds := consume(t, ch, "few", "", nil)
	first := receive(t, ds, 2)
	select {
	case d := <-ds:
		t.Fatalf("%q came over the prefetch", d.Body)
	default:
	}
	if err := first[0].Ack(false); err != nil {
		t.Fatal(err)
	}
	receive(t, ds, 1)
}

func purgeAndDelete(t *testing.T, b *broker, ch *amqp.Channel) {
	declare(t, ch, "kept", nil)
	publishConfirmed(t, ch, "kept", "one", "two")
	other := b.channel()
	_, err := other.QueueDelete("kept", false, true, false)
	refused(t, err, amqp.PreconditionFailed, "kept")
	if n, err := ch.QueuePurge("kept", false); err != nil || n != 2 {
		t.Fatalf("purged %d: %v", n, err)
	}
	consume(t, ch, "kept", "user", nil)
	other = b.channel()
	_, err = other.QueueDelete("kept", true, false, false)
	refused(t, err, amqp.PreconditionFailed, "kept")
	if err := ch.Cancel("user", false); err != nil {
		t.Fatal(err)
	}
	if n, err := ch.QueueDelete("kept", true, true, false); err != nil || n != 0 {
		t.Fatalf("deleted with %d: %v", n, err)
	}
	_, err = ch.QueueDeclarePassive("kept", true, false, false, false, nil)
	refused(t, err, amqp.NotFound, "kept")
}

func unsupported(t *testing.T, b *broker, _ *amqp.Channel) {
	for name, args := range map[string]amqp.Table{
		"x-max-priority": {"x-max-priority": int32(5)}, "x-partitions": {"x-partitions": int32(3)}, "x-message-ttl": {"x-message-ttl": int32(-1)},
	} {
		_, err := b.channel().QueueDeclare("not-"+name, true, false, false, false, args)
		e, ok := err.(*amqp.Error)
		if !ok || e.Code != amqp.NotImplemented && e.Code != amqp.PreconditionFailed {
			t.Errorf("%s: %v, want 540 or 406", name, err)
		}
	}
	if err := b.channel().Tx(); err == nil {
		t.Error("tx was taken")
	} else if e, ok := err.(*amqp.Error); !ok || e.Code != amqp.NotImplemented {
		t.Errorf("tx: %v, want 540", err)
	}
}

// TestDeadLettersComeSoon measures how long a message takes from its publish to its consumer, and from its rejection to a consumer of the queue
// that takes dead letters. The second is the way of the first and a settle: it may take three times as long, and waits for nothing else.
func TestDeadLettersComeSoon(t *testing.T) {
	b := newBroker(t)
	b.start()
	for _, durable := range []bool{false, true} {
		ch := b.channel()
		dead, q := fmt.Sprint("dead ", durable), fmt.Sprint("q ", durable)
		for name, args := range map[string]amqp.Table{dead: nil, q: buried(nil, dead)} {
			if _, err := ch.QueueDeclare(name, durable, false, !durable, false, args); err != nil {
				t.Fatal(err)
			}
		}
		handed, err := ch.Consume(q, "", false, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		letters, err := ch.Consume(dead, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		next := func(ds <-chan amqp.Delivery) amqp.Delivery {
			select {
			case d := <-ds:
				return d
			case <-time.After(patience):
				fatal(t, "waiting for a message of %s or %s: not after %v", q, dead, patience)
				return amqp.Delivery{}
			}
		}
		const messages = 300
		delivery, letter := make([]time.Duration, messages), make([]time.Duration, messages)
		for i := range messages {
			began := time.Now()
			if err := ch.PublishWithContext(t.Context(), "", q, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			d := next(handed)
			rejected := time.Now()
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
			next(letters)
			delivery[i], letter[i] = rejected.Sub(began), time.Since(rejected)
		}
		slices.Sort(delivery)
		slices.Sort(letter)
		half, most := messages/2, messages*99/100
		ratio := float64(letter[half]) / float64(delivery[half])
		t.Logf("durable %t: a delivery takes %v (p99 %v), a dead letter %v (p99 %v): %.1f times", durable, delivery[half], delivery[most], letter[half], letter[most], ratio)
		if ratio > 4 {
			t.Errorf("durable %t: a dead letter takes %.1f times as long as a delivery", durable, ratio)
		}
	}
}
