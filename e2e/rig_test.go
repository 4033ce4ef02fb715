package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/tanist/tanist/check"
)

// rig records what many clients do and see, in one order, and has it judged.
type rig struct {
	t *testing.T
	c *cluster

	mu       sync.Mutex
	judge    *check.Checker
	history  []check.Event
	began    time.Time
	runs     []uint64 // by node
	leaving  []bool   // by node: it has been told to stop, and may still take who connects
	excused  []bool   // by node: it may refuse what its clients publish
	messages uint64
	numbers  uint64          // sessions, lanes and readers
	sessions map[uint64]seat // where each was opened
	settles  map[string][]check.Event
	looking  map[uint64]bool   // sessions that take deliveries
	ends     map[string]uint64 // where streams ended that lost an end, by name
	steps    steps
	faults   []string // what befell clients of nodes that run
	silent   bool     // too few nodes are left to confirm anything
	spoken   uint64   // the last message before that
	stopping bool
	last     time.Time                // when the last publish was confirmed
	phase    string                   // of the test
	gaps     map[string]time.Duration // the longest time between two confirms that ended in each phase
}

// seat is a run of a node.
type seat struct {
	node int
	run  uint64
}

func newRig(t *testing.T, nodes ...*broker) *rig {
	r := &rig{
		t: t, c: &cluster{t: t, nodes: nodes}, judge: check.New(), began: time.Now(), runs: make([]uint64, len(nodes)), leaving: make([]bool, len(nodes)), excused: make([]bool, len(nodes)),
		sessions: map[uint64]seat{}, settles: map[string][]check.Event{}, looking: map[uint64]bool{}, ends: map[string]uint64{}, gaps: map[string]time.Duration{},
	}
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
		if e.Kind == check.Settle && r.current(r.sessions[e.Session]) { // else the broker that it speaks to is dead
			r.settles[e.Resource] = append(r.settles[e.Resource], e)
		}
	}
}

// current reports whether a run is on. The lock is held.
func (r *rig) current(s seat) bool { return r.runs[s.node] == s.run }

// fault notes what a client of a node that runs should never meet.
func (r *rig) fault(c *client, format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current(c.seat) && !r.stopping {
		r.faults = append(r.faults, fmt.Sprintf("after %v, on %s: %s", time.Since(r.began).Round(time.Millisecond),
			r.c.nodes[c.seat.node].name, fmt.Sprintf(format, a...)))
	}
}

// unharmed fails the test if a client of a node that ran met a fault.
func (r *rig) unharmed() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) > 0 {
		fatal(r.t, "%d faults, the first:\n%s", len(r.faults), strings.Join(r.faults[:min(len(r.faults), 10)], "\n"))
	}
}

// verdict fails the test if a promise was broken so far.
func (r *rig) verdict() {
	r.t.Helper()
	r.mu.Lock()
	err := r.judge.Verdict()
	r.mu.Unlock()
	if err != nil {
		fatal(r.t, "%v", err)
	}
}

func (r *rig) number() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.numbers++
	return r.numbers
}

// crash kills nodes between two events of the history, all at once.
func (r *rig) crash(nodes ...int) {
	r.mu.Lock()
	for _, node := range nodes {
		r.finishes(node)
	}
	for _, node := range nodes {
		_ = r.c.nodes[node].cmd.Process.Kill()
	}
	r.mu.Unlock()
	for _, node := range nodes {
		r.c.nodes[node].kill()
	}
}

// silence says that from now on too few nodes are left to confirm what is published.
func (r *rig) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent, r.spoken = true, r.messages
}

// looks records that a session begins or ends to take deliveries.
func (r *rig) looks(session uint64, does bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if does {
		r.looking[session] = true
	} else {
		delete(r.looking, session)
	}
}

// renewed is nil once no session takes deliveries that had begun to before a number was given out.
func (r *rig) renewed(number uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.looking {
		if s < number {
			return fmt.Errorf("session %d still takes deliveries on %s", s, r.c.nodes[r.sessions[s].node].name)
		}
	}
	return nil
}

// givesUp records that an operator is about to give up what a resource has from an offset on.
func (r *rig) givesUp(name string, offset uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends[name] = offset
	r.seeLocked(check.Event{Kind: check.GivenUp, Resource: name, Offset: offset})
}

// speak ends a silence, and gives how many messages were published in it.
func (r *rig) speak() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = false
	return r.messages - r.spoken
}

// finishes records that a run is about to end. The lock is held.
func (r *rig) finishes(node int) {
	if len(r.c.nodes) == 1 {
		r.seeLocked(check.Event{Kind: check.Crashed})
	} else {
		for _, s := range slices.Sorted(maps.Keys(r.sessions)) { // those that were closed too: their last words may be lost
			if here := r.sessions[s]; here.node == node && r.current(here) {
				r.seeLocked(check.Event{Kind: check.Lost, Session: s})
			}
		}
	}
	r.runs[node]++
	for q, all := range r.settles { // what was not known to be confirmed by now may come back
		r.settles[q] = slices.DeleteFunc(all, func(e check.Event) bool { return !r.current(r.sessions[e.Session]) })
	}
}

// leave records that a node is about to be told to stop; it is back when the test says so.
func (r *rig) leave(node int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishes(node)
	r.leaving[node] = true
}

// excuse says whether a node may refuse what its clients publish: one that owned something and was halted finds no copies when it goes on,
// until it hears that another owns.
func (r *rig) excuse(node int, may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.excused[node] = may
}

// refusals reports whether a client may be refused.
func (r *rig) refusals(c *client) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.excused[c.seat.node]
}

func (r *rig) isBack(node int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving[node] = false
}

// disturb records that a node is about to end that may own something: until Calm, what it owned may not answer.
func (r *rig) disturb(node int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seeLocked(check.Event{Kind: check.Disturbed, Owner: r.instance(node)})
}

// enter begins a phase of the test.
func (r *rig) enter(phase string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
}

// pauses are the longest times without a confirm, by phase.
func (r *rig) pauses() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprint(r.gaps)
}

// confirmed records a confirm, and how long there had been none.
func (r *rig) confirmed(e check.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.last.IsZero() {
		r.gaps[r.phase] = max(r.gaps[r.phase], now.Sub(r.last).Round(time.Millisecond))
	}
	r.last = now
	r.seeLocked(e)
	if r.silent && e.Message > r.spoken {
		r.faults = append(r.faults, fmt.Sprintf("message %d is confirmed, and was published when too few nodes were left", e.Message))
	}
}

// restart starts a broker that is alone again, and records who owns what.
func (r *rig) restart() {
	r.t.Helper()
	r.c.nodes[0].start()
	r.see(check.Event{Kind: check.Restarted})
	r.owners("restart")
}

// instance names a run of a node. A run of the process is an owner of its own: a restarted owner that kept its epoch is found so.
func (r *rig) instance(node int) string {
	return fmt.Sprintf("%s in run %d", r.c.nodes[node].name, r.runs[node])
}

// owners records who owns what.
func (r *rig) owners(cause string) map[string]partition {
	r.t.Helper()
	by, err := r.c.up().partitions()
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if slices.Contains(queues, name) || slices.Contains(streams, name) {
			p := by[name]
			owner := r.instance(slices.Index(r.c.nodes, r.c.named(p.Owner)))
			r.seeLocked(check.Event{Kind: check.Owned, Resource: name, Epoch: p.Epoch, Owner: owner, Cause: cause})
		}
	}
	return by
}

// settled waits until the broker holds nothing unsettled, with no consumer attached, and so has confirmed every settle.
func (r *rig) settled(queues ...string) {
	r.t.Helper()
	r.c.up().await("settles to be confirmed", func() error {
		for _, q := range queues {
			n, err := r.c.count(q)
			if err != nil {
				return err
			}
			if n.Unsettled > 0 {
				return fmt.Errorf("%s has %d unsettled", q, n.Unsettled)
			}
		}
		return nil
	})
	// What is not held any more is settled in the log's staged end: confirmed once the log is.
	r.c.up().await("the log to be confirmed", r.c.confirms(queues...))
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
	seat    seat
	session uint64
	lane    uint64
	closed  chan *amqp.Error
}

var errOver = errors.New("the load is over")

// connect opens a client of a node, again and again while that is down. The error is errOver.
func (r *rig) connect(node int) (*client, error) {
	node %= len(r.c.nodes)
	for {
		r.mu.Lock()
		here, stopping := seat{node, r.runs[node]}, r.stopping
		r.mu.Unlock()
		if stopping {
			return nil, errOver
		}
		conn, err := r.c.nodes[node].connect()
		if err != nil {
			pause(10 * time.Millisecond)
			continue
		}
		ch, err := conn.Channel()
		if err != nil {
			_ = conn.Close()
			continue
		}
		c := &client{Channel: ch, r: r, conn: conn, seat: here, session: r.number(), lane: r.number()}
		c.closed = conn.NotifyClose(make(chan *amqp.Error, 1))
		r.mu.Lock()
		current := r.current(here) && !r.leaving[node]
		if current {
			r.sessions[c.session] = here
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
	c.r.mu.Lock()
	if c.r.current(c.seat) { // else it was lost with its node
		c.r.seeLocked(check.Event{Kind: check.Closed, Session: c.session})
	}
	c.r.mu.Unlock()
	_ = c.conn.CloseDeadline(time.Now().Add(answerBound)) // the node may be halted
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
