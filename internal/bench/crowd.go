package bench

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/internal/bench/account"
)

// Bounds of the clients of a failover.
const (
	outcomeTimeout = 40 * time.Second // for the last confirms: past the broker's own limit, after which it says nack
	dialTimeout    = time.Second
	redial         = 5 * time.Millisecond
	mostBehind     = 50 * time.Millisecond // of a publisher's schedule that is made up for, after it could not send
)

// lane is one resource with its book and the publisher that it has.
type lane struct {
	name string

	mu   sync.Mutex
	book *account.Ledger
	open int // published and without an outcome
}

// crowd is the publishers of a run: connections, each with a channel for each of its lanes.
type crowd struct {
	lanes []*lane
	conns int
	rate  float64 // messages a second, of all
	size  int
	began time.Time
	// killed is closed when the node is killed: each lane is then sent a message at once, whose confirm says that it serves.
	killed   chan struct{}
	closed   atomic.Int64 // connections that were lost
	sessions atomic.Uint32
	wg       sync.WaitGroup

	mu     sync.Mutex
	opened map[uint32]time.Duration // when each session was ready to publish
	places map[uint32]int           // of the publisher that each session is of
}

func newCrowd(names []string, conns, size int, rate float64) *crowd {
	c := &crowd{
		conns: min(conns, len(names)), rate: rate, size: max(size, account.LeastBody), began: time.Now(), killed: make(chan struct{}),
		opened: map[uint32]time.Duration{}, places: map[uint32]int{},
	}
	for i, n := range names {
		c.lanes = append(c.lanes, &lane{name: n, book: account.New(uint32(i))})
	}
	return c
}

func (c *crowd) now() time.Duration { return time.Since(c.began) }

// publish starts the publishers. Each begins at the first of its addresses, and goes on to the next when it loses its connection. It
// returns once all could publish.
func (c *crowd) publish(ctx context.Context, urls func(place int) []string) error {
	ready := make(chan error, c.conns)
	for place := range c.conns {
		c.wg.Go(func() { c.client(ctx, place, urls(place), ready) })
	}
	for range c.conns {
		if err := <-ready; err != nil {
			return err
		}
	}
	return nil
}

func (c *crowd) client(ctx context.Context, place int, urls []string, ready chan<- error) {
	for attempt := 0; ctx.Err() == nil; attempt++ {
		s, err := c.open(place, urls[attempt%len(urls)])
		if attempt == 0 {
			ready <- err
		}
		if err != nil {
			if attempt == 0 || !wait(ctx, redial) {
				return
			}
			continue
		}
		s.run(ctx)
	}
}

// session is one connection of a publisher.
type session struct {
	*crowd
	id       uint32
	conn     *amqp.Connection
	lost     chan *amqp.Error
	channels []*amqp.Channel
	lanes    []*lane
	every    time.Duration
	receive  sync.WaitGroup
}

func (c *crowd) open(place int, url string) (*session, error) {
	conn, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: 30 * time.Second, Locale: "en_US", Properties: amqp.Table{"connection_name": "tanist bench publisher"},
		ChannelMax: 2047, Dial: func(network, addr string) (net.Conn, error) { return net.DialTimeout(network, addr, dialTimeout) },
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Redact(url), err)
	}
	s := &session{crowd: c, id: c.sessions.Add(1), conn: conn, lost: conn.NotifyClose(make(chan *amqp.Error, 1))}
	for i := place; i < len(c.lanes); i += c.conns {
		if err := s.add(c.lanes[i]); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("%s: %w", Redact(url), err)
		}
	}
	s.every = time.Duration(float64(c.conns) / c.rate * float64(time.Second))
	c.mu.Lock()
	c.opened[s.id], c.places[s.id] = c.now(), place
	c.mu.Unlock()
	return s, nil
}

// add opens a lane's channel and takes its confirms.
func (s *session) add(l *lane) error {
	ch, err := s.conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	l.mu.Lock()
	before := uint64(l.book.Published())
	l.mu.Unlock()
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1024))
	s.channels, s.lanes = append(s.channels, ch), append(s.lanes, l)
	s.receive.Go(func() {
		for c := range confirms {
			outcome := account.Nacked
			if c.Ack {
				outcome = account.Confirmed
			}
			l.resolve(before+c.DeliveryTag, outcome, s.now())
		}
	})
	return nil
}

func (l *lane) resolve(number uint64, o account.Outcome, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.Resolve(number, o, at)
	l.open--
}

// giveUp notes that a session ended: what it published and was told nothing of is unknown.
func (l *lane) giveUp(session uint32, at time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open -= l.book.GiveUp(session, at)
}

// run publishes until ctx ends and all is answered, or the connection is lost.
func (s *session) run(ctx context.Context) {
	if lost := s.until(ctx); !lost {
		_ = s.conn.Close() // all was answered, or will not be
		s.receive.Wait()
		return
	}
	s.closed.Add(1)
	s.receive.Wait() // for what was said before the end
	for _, l := range s.lanes {
		l.giveUp(s.id, s.now())
	}
}

// until publishes, and reports whether the connection was lost.
func (s *session) until(ctx context.Context) (lost bool) {
	due, killed := time.Now(), s.killed
	timer := time.NewTimer(0)
	defer timer.Stop()
	for turn := 0; ; {
		select {
		case <-ctx.Done():
			return s.finish()
		case <-s.lost:
			return true
		case <-killed:
			killed = nil
			for i := range s.lanes {
				s.send(i)
			}
			continue
		case <-timer.C:
		}
		s.send(turn % len(s.lanes))
		turn++
		due = due.Add(s.every)
		if late := time.Now().Add(-mostBehind); due.Before(late) {
			due = late
		}
		timer.Reset(time.Until(due))
	}
}

// send publishes one message. An error means that the connection is being lost, which run hears of by itself.
func (s *session) send(i int) {
	l := s.lanes[i]
	l.mu.Lock()
	id := l.book.Publish(s.id, s.now())
	l.open++
	l.mu.Unlock()
	body := make([]byte, s.size)
	id.Body(body)
	_ = s.channels[i].PublishWithContext(context.Background(), "", l.name, false, false, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
}

// finish waits for the outcomes of what is under way. What has none in the time that it may take is left without. It reports whether the
// connection was lost.
func (s *session) finish() (lost bool) {
	deadline := time.Now().Add(outcomeTimeout)
	for _, l := range s.lanes {
		for l.waits() > 0 {
			select {
			case <-s.lost:
				return true
			case <-time.After(5 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				return false
			}
		}
	}
	return false
}

func (l *lane) waits() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// reconnected is how long after each later session was ready its first messages were confirmed, the longest of all lanes; 0 if there was
// no such session. One that has confirmed nothing by now counts until then.
func (c *crowd) reconnected() (longest time.Duration) {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, ready := range c.opened {
		if id <= uint32(c.conns) {
			continue
		}
		for i, l := range c.lanes {
			if i%c.conns != c.places[id] {
				continue
			}
			l.mu.Lock()
			at, ok := l.book.ServedIn(id)
			l.mu.Unlock()
			if !ok {
				at = now
			}
			longest = max(longest, at-ready)
		}
	}
	return longest
}
