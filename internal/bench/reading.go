package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/bench/account"
)

const (
	readPrefetch = 1000
	readAck      = 250              // deliveries that one acknowledgement covers
	readTimeout  = 60 * time.Second // without a delivery
	mostReaders  = 16               // of streams while the load goes on
)

// watchers read streams while the load goes on, and note which record is at which offset.
type watchers struct {
	conns []*amqp.Connection
	wg    sync.WaitGroup
	mu    sync.Mutex
	err   error
}

// watch starts a reader of each of the first lanes, from the head, spread over the addresses.
func (c *crowd) watch(urls []string) (*watchers, error) {
	w := &watchers{}
	for i, l := range c.lanes[:min(len(c.lanes), mostReaders)] {
		conn, ch, err := connect(urls[i%len(urls)], "reader")
		if err != nil {
			return w, errors.Join(err, w.stop())
		}
		w.conns = append(w.conns, conn)
		ds, err := deliveries(ch, l.name, true)
		if err != nil {
			return w, errors.Join(err, w.stop())
		}
		w.wg.Go(func() { w.note(l.watch(ch, ds)) })
	}
	return w, nil
}

func (w *watchers) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, err)
}

// stop ends the readers. The error is theirs: one that lost its connection before, or was given what is no record of the load.
func (w *watchers) stop() error {
	for _, c := range w.conns {
		if err := c.Close(); err != nil {
			w.note(fmt.Errorf("a reader's connection: %w", err))
		}
	}
	w.wg.Wait()
	return w.err
}

func (l *lane) watch(ch *amqp.Channel, ds <-chan amqp.Delivery) error {
	for d := range ds {
		offset, ok := d.Headers["x-stream-offset"].(int64)
		if !ok {
			return fmt.Errorf("%s: a record came without its offset", l.name)
		}
		l.mu.Lock()
		l.book.Saw(uint64(offset), d.Body)
		l.mu.Unlock()
		if d.DeliveryTag%readAck == 0 {
			if err := ch.Ack(d.DeliveryTag, true); err != nil && !errors.Is(err, amqp.ErrClosed) {
				return err
			}
		}
	}
	return nil
}

// deliveries begins to consume a queue, or a stream from its head.
func deliveries(ch *amqp.Channel, name string, stream bool) (<-chan amqp.Delivery, error) {
	if err := ch.Qos(readPrefetch, 0, false); err != nil {
		return nil, err
	}
	args := amqp.Table{}
	if stream {
		args["x-stream-offset"] = "first"
	}
	return ch.Consume(name, name, !stream, false, false, false, args)
}

// readBack reads everything back, once all outcomes are known: a last message is published to each resource, and it is read until that
// one comes.
func (c *crowd) readBack(ctx context.Context, url string, stream bool) error {
	of := map[string]*lane{}
	names := make([]string, len(c.lanes))
	for i, l := range c.lanes {
		names[i], of[l.name] = l.name, l
	}
	session := c.sessions.Add(1)
	return each(url, names, func(ch *amqp.Channel, name string) error {
		l := of[name]
		number, err := c.last(ctx, ch, l, session)
		if err != nil {
			return err
		}
		ds, err := deliveries(ch, name, stream)
		if err != nil {
			return err
		}
		if err := l.read(ctx, ch, ds, stream, number); err != nil {
			return err
		}
		go func() { // the library blocks on deliveries that nobody takes
			for range ds {
			}
		}()
		return ch.Cancel(name, false)
	})
}

// last publishes the message that ends a resource.
func (c *crowd) last(ctx context.Context, ch *amqp.Channel, l *lane, session uint32) (uint64, error) {
	if err := ch.Confirm(false); err != nil {
		return 0, err
	}
	l.mu.Lock()
	id := l.book.Publish(session, c.now())
	l.open++
	l.mu.Unlock()
	body := make([]byte, c.size)
	id.Body(body)
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", l.name, false, false, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithTimeout(ctx, readTimeout)
	defer stop()
	ok, err := confirm.WaitContext(ctx)
	if err != nil || !ok {
		return 0, fmt.Errorf("the last message was not confirmed (%v)", err)
	}
	l.resolve(id.Number, account.Confirmed, c.now())
	return id.Number, nil
}

// read takes deliveries until the message with the number, which is the last.
func (l *lane) read(ctx context.Context, ch *amqp.Channel, ds <-chan amqp.Delivery, stream bool, last uint64) error {
	timeout := time.NewTimer(readTimeout)
	defer timeout.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-timeout.C:
			return fmt.Errorf("nothing more came for %s, and the last message was not read", readTimeout)
		case d, ok := <-ds:
			if !ok {
				return errors.New("the connection was lost while reading back")
			}
			if err := l.take(d, stream); err != nil {
				return err
			}
			if stream && n%readAck == 0 {
				if err := ch.Ack(d.DeliveryTag, true); err != nil {
					return err
				}
			}
			if l.book.Has(last) {
				return nil
			}
			timeout.Reset(readTimeout)
		}
	}
}

func (l *lane) take(d amqp.Delivery, stream bool) error {
	if !stream {
		l.book.Found(d.Body)
		return nil
	}
	offset, ok := d.Headers["x-stream-offset"].(int64)
	if !ok {
		return errors.New("a record came without its offset")
	}
	l.book.FoundAt(uint64(offset), d.Body)
	return nil
}
