package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// rig records what many clients do and see, in one order, and has it judged.
type rig struct {
	t *testing.T
	b *broker

	mu       sync.Mutex
	judge    *check.Checker
	history  []check.Event
	began    time.Time
	run      uint64
	messages uint64
	numbers  uint64            // sessions, lanes and readers
	sessions map[uint64]uint64 // the run in which each was opened
	settles  map[string][]check.Event
	stopping bool
}

func newRig(t *testing.T, b *broker) *rig {
	r := &rig{t: t, b: b, judge: check.New(), began: time.Now(), sessions: map[uint64]uint64{}, settles: map[string][]check.Event{}}
	t.Cleanup(r.dump)
	return r
}

// dump writes a history that failed where it can be looked at.
func (r *rig) dump() {
	if !r.t.Failed() {
		return
	}
	path := filepath.Join(os.TempDir(), "tanist-history.jsonl")
	f, err := os.Create(path)
	if err != nil {
		r.t.Log(err)
		return
	}
	defer f.Close()
	if err := check.Write(f, r.history); err != nil {
		r.t.Log(err)
		return
	}
	r.t.Logf("the history is in %s", path)
}

// see records events, next to each other.
func (r *rig) see(events ...check.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeLocked(events...)
}

func (r *rig) seeLocked(events ...check.Event) {
	for _, e := range events {
		e.At = int64(time.Since(r.began))
		r.history = append(r.history, e)
		r.judge.Observe(e)
		switch {
		case e.Kind == check.Opened:
			r.sessions[e.Session] = r.run
		case e.Kind == check.Settle && r.sessions[e.Session] == r.run: // else the broker that it speaks to is dead
			r.settles[e.Resource] = append(r.settles[e.Resource], e)
		}
	}
}

// verdict fails the test if a promise was broken so far.
func (r *rig) verdict() {
	r.t.Helper()
	r.mu.Lock()
	err := r.judge.Verdict()
	r.mu.Unlock()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) number() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers++
	return r.numbers
}

// crash kills the broker between two events of the history.
func (r *rig) crash() {
	r.mu.Lock()
	r.seeLocked(check.Event{Kind: check.Crashed})
	r.run++
	clear(r.settles) // what was not known to be confirmed by now may come back
	_ = r.b.cmd.Process.Kill()
	r.mu.Unlock()
	r.b.kill()
}

// restart starts the broker again and records who owns what.
func (r *rig) restart() {
	r.t.Helper()
	r.b.start()
	r.see(check.Event{Kind: check.Restarted})
	r.owners("restart")
}

// owners records who owns what. A run of the process is an owner of its own: a restarted owner that kept its epoch is found so.
func (r *rig) owners(cause string) {
	r.t.Helper()
	var parts []struct {
		Resource string `json:"resource"`
		Epoch    uint64 `json:"epoch"`
		Owner    string `json:"owner"`
	}
	if err := r.b.get("/api/v1/partitions", &parts); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range parts {
		owner := fmt.Sprintf("%s in run %d", p.Owner, r.run)
		r.seeLocked(check.Event{Kind: check.Owned, Resource: p.Resource, Epoch: p.Epoch, Owner: owner, Cause: cause})
	}
}

// settled waits until the broker holds nothing unsettled, with no consumer attached, and so has confirmed every settle.
func (r *rig) settled(queues ...string) {
	r.t.Helper()
	r.b.await("settles to be confirmed", func() error {
		all, err := r.b.resources()
		for _, q := range queues {
			if all[q].Unsettled > 0 {
				err = fmt.Errorf("%s has %d unsettled", q, all[q].Unsettled)
			}
		}
		return err
	})
	// What is not held any more is settled in the log's staged end: confirmed once the log is.
	r.b.await("the log to be confirmed", func() error { return r.b.quiet(queues) })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range queues {
		last := map[uint64]check.Event{}
		for _, e := range r.settles[q] {
			last[e.Message] = e
		}
		for _, e := range r.settles[q] {
			if l, ok := last[e.Message]; ok && l.Settlement != check.Requeue {
				r.seeLocked(check.Event{Kind: check.Settled, Resource: q, Message: e.Message})
			}
			delete(last, e.Message)
		}
		delete(r.settles, q)
	}
}

// message makes a body that names itself.
func (r *rig) message(rng *rand.Rand) (id uint64, body []byte) {
	r.mu.Lock()
	r.messages++
	id = r.messages
	r.mu.Unlock()
	size := 16 + rng.IntN(500)
	if rng.IntN(200) == 0 {
		size = 150_000 + rng.IntN(300_000)
	}
	body = make([]byte, size)
	binary.BigEndian.PutUint64(body, id)
	for i := 8; i < len(body); i++ {
		body[i] = byte(rng.Uint32())
	}
	return id, body
}

func digest(body []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(body)
	return h.Sum64()
}

func identify(body []byte) uint64 {
	if len(body) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(body)
}

// client is one connection with one channel.
type client struct {
	*amqp.Channel
	r       *rig
	conn    *amqp.Connection
	session uint64
	lane    uint64
	closed  chan *amqp.Error
}

var errOver = errors.New("the load is over")

// connect opens a client, again and again while the broker is down. The error is errOver.
func (r *rig) connect() (*client, error) {
	for {
		r.mu.Lock()
		run, stopping := r.run, r.stopping
		r.mu.Unlock()
		if stopping {
			return nil, errOver
		}
		conn, err := amqp.DialConfig(r.b.url(), amqp.Config{Heartbeat: 30 * time.Second, Locale: "en_US"})
		if err != nil {
			pause(10 * time.Millisecond)
			continue
		}
		ch, err := conn.Channel()
		if err != nil {
			_ = conn.Close()
			continue
		}
		c := &client{Channel: ch, r: r, conn: conn, session: r.number(), lane: r.number()}
		c.closed = conn.NotifyClose(make(chan *amqp.Error, 1))
		r.mu.Lock()
		current := r.run == run
		if current {
			r.seeLocked(check.Event{Kind: check.Opened, Session: c.session})
		}
		r.mu.Unlock()
		if !current { // it was opened on a run that has ended since
			_ = conn.Close()
			continue
		}
		return c, nil
	}
}

// pause keeps a client that finds nobody from asking without end; nothing is expected to have happened after it.
func pause(d time.Duration) { <-time.After(d) }

// close ends the client as a client should.
func (c *client) close() {
	c.r.see(check.Event{Kind: check.Closed, Session: c.session})
	_ = c.conn.Close()
}

func (r *rig) stop() {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
}

func (r *rig) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopping
}
