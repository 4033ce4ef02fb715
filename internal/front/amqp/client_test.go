package amqp_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp"
	"github.com/tanist/tanist/internal/front/amqp/amqptest"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// serve starts a server over a broker in memory and returns where it listens.
func serve(t testing.TB, b broker.Broker, change func(*amqp.Env)) (*amqp.Server, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := exec.New(1)
	env := amqp.Env{
		Executor: x, BrokerFor: func(int) broker.Broker { return b }, Clock: clock.System(), Product: "Tanist", Version: "0",
	}
	if change != nil {
		change(&env)
	}
	s := amqp.New(env)
	s.Listen(ln, nil)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		x.Stop()
	})
	return s, "amqp://guest:guest@" + ln.Addr().String() + "/"
}

func dial(t testing.TB, url string) (*client.Connection, *client.Channel) {
	t.Helper()
	conn, err := client.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return conn, ch
}

func TestClientPublishesAndConsumes(t *testing.T) {
	_, url := serve(t, amqptest.New(), nil)
	conn, ch := dial(t, url)
	if got := conn.Properties["product"]; got != "Tanist" {
		t.Errorf("product %v", got)
	}
	q, err := ch.QueueDeclare("q", true, false, false, false, client.Table{"x-queue-type": "quorum"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	const n = 500
	large := make([]byte, 300_000) // more than two frames, more than one input
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var waits []*client.DeferredConfirmation
	for i := range n {
		body := []byte(fmt.Sprintf("message %d", i))
		if i%100 == 7 {
			body = append(body, large...)
		}
		w, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", q.Name, false, false, client.Publishing{
			Body: body, ContentType: "text/plain", Headers: client.Table{"n": int32(i), "deep": client.Table{"a": []any{int64(1), "x"}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, w)
	}
	for i, w := range waits {
		if ok, err := w.WaitContext(ctx); err != nil || !ok {
			t.Fatalf("publish %d: confirmed %v, %v", i, ok, err)
		}
	}
	if err := ch.Qos(10, 0, false); err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume(q.Name, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		d := <-ds
		if d.Headers["n"] != int32(i) || d.ContentType != "text/plain" {
			t.Fatalf("delivery %d: %v %v", i, d.Headers, d.ContentType)
		}
		if i%100 == 7 && len(d.Body) < len(large) {
			t.Fatalf("delivery %d has %d bytes", i, len(d.Body))
		}
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	left, err := ch.QueueDelete(q.Name, false, false, false)
	if err != nil || left != 0 {
		t.Fatalf("deleted with %d left, %v", left, err)
	}
}

func TestWrongPasswordClosesAsTheClientExpects(t *testing.T) {
	seen := make(chan string, 10)
	_, url := serve(t, amqptest.New(), func(e *amqp.Env) {
		e.Trace = trace.SinkFunc(func(e trace.Event) { seen <- fmt.Sprint(e.Level, " ", e.Name, " ", e.Attrs) })
	})
	_, err := client.Dial("amqp://guest:wrong@" + url[len("amqp://guest:guest@"):])
	if err == nil {
		t.Fatal("let in")
	}
	t.Log(err)
	if e, ok := err.(*client.Error); !ok || e.Code != client.AccessRefused {
		t.Fatalf("got %v", err)
	}
	// Who runs the broker sees who was refused, and why.
	if got := <-seen; !strings.HasPrefix(got, "WARN amqp.connection.refused ") || !strings.Contains(got, "user=guest") ||
		!strings.Contains(got, "wrong user name or password") {
		t.Errorf("logged %s", got)
	}
}

func TestShutdownSays320(t *testing.T) {
	s, url := serve(t, amqptest.New(), nil)
	conn, _ := dial(t, url)
	closed := conn.NotifyClose(make(chan *client.Error, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if e := <-closed; e == nil || e.Code != client.ConnectionForced {
		t.Fatalf("closed with %v", e)
	}
}

// Connections that are sent much at a time share the memory that it is put together in: each gets its own bytes.
func TestClientsAreSentMuch(t *testing.T) {
	_, url := serve(t, amqptest.New(), nil)
	const clients, n = 3, 60
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for c := range clients {
		_, ch := dial(t, url)
		name := fmt.Sprint("q", c)
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		body := func(i int) []byte { return bytes.Repeat([]byte{byte(c*n + i)}, 100_000+i) }
		for i := range n {
			if err := ch.PublishWithContext(ctx, "", name, false, false, client.Publishing{Body: body(i)}); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			ds, err := ch.Consume(name, "", true, false, false, false, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range n {
				select {
				case d := <-ds:
					if !bytes.Equal(d.Body, body(i)) {
						t.Errorf("client %d: message %d has other bytes", c, i)
						return
					}
				case <-ctx.Done():
					t.Errorf("client %d: message %d did not come", c, i)
					return
				}
			}
		})
	}
	all.Wait()
}
