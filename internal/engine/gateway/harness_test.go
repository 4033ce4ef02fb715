package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// simClock tells a simulation's time.
type simClock struct{ sim *exec.Sim }

func (c simClock) Mono() time.Duration { return c.sim.Now() }
func (c simClock) Wall() time.Time     { return time.Unix(1_700_000_000, 0).Add(c.sim.Now()) }

// harness is one shard over a real catalog and owners that the test plays.
type harness struct {
	t      *testing.T
	sim    *exec.Sim
	sh     *Shard
	state  *catalog.State
	index  uint64
	refuse error // of proposals
	lose   error // what is told of proposals, which are done all the same
	mute   bool  // proposals are not answered
	// answerLater keeps what is to be called with the outcome of a proposal; may be nil.
	answerLater func(done func(catalog.Result, error))
	answer      func(cmd []byte) (r catalog.Result, is bool) // to a proposal, instead of the catalog; may be nil
	owners      map[ident.Partition]*fakeOwner
	started     map[ident.Partition]bool      // nil: all
	copies      map[ident.Partition]*fakeCopy // that follow, beside the shard
	events      []string                      // traced
}

var local = ident.Instance{Node: "n1", Store: ident.StoreID{1}, Boot: 1}

func newHarness(t *testing.T, limits Limits) *harness {
	h := &harness{t: t, sim: exec.NewSim(1), state: catalog.New(), owners: map[ident.Partition]*fakeOwner{}}
	h.sh = New(Env{
		Loop: h.sim.Node("n1", 1).Loop(0), Shards: 1, Local: local, Number: 1, Clock: simClock{h.sim},
		Trace:     trace.SinkFunc(func(e trace.Event) { h.events = append(h.events, e.Name) }),
		Directory: h, Passwords: plain{}, Proposer: h, Node: NewNode(nil), Limits: limits,
	})
	h.propose(
		catalog.RegisterBoot(catalog.Node{Name: "n1", Store: local.Store, Boot: 1}),
		catalog.CreateVHost("/"), catalog.PutUser(catalog.User{Name: "guest", Hash: "guest"}),
		catalog.PutPermission(catalog.Permission{User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}),
	)
	return h
}

// plain compares passwords with what stands for the hash.
type plain struct{}

func (plain) Verify(u *catalog.User, password string, done func(bool, *broker.Error)) {
	if password == busyPassword {
		done(false, broker.Errorf(broker.Unavailable, "too many wait"))
		return
	}
	done(u != nil && u.Hash == password, nil)
}

// busyPassword is one that plain has no time for.
const busyPassword = "\x00busy"

func (h *harness) propose(items ...catalog.Item) {
	h.t.Helper()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Propose(cmd, func(r catalog.Result, err error) {
		if err != nil || r.Err() != nil {
			h.t.Fatalf("proposal failed: %v, %v", err, r.Err())
		}
	})
	h.settle()
}

// Propose implements Proposer.
func (h *harness) Propose(cmd []byte, done func(catalog.Result, error)) {
	if h.mute {
		return
	}
	if h.answerLater != nil {
		h.answerLater(done)
		return
	}
	if h.answer != nil {
		if r, is := h.answer(cmd); is {
			done(r, nil)
			return
		}
	}
	if h.refuse != nil {
		done(catalog.Result{}, h.refuse)
		return
	}
	h.index++
	res, changes, err := h.state.Apply(h.index, cmd)
	if err != nil {
		h.t.Fatal(err)
	}
	h.sh.Apply(changes)
	if h.lose != nil {
		done(catalog.Result{}, h.lose)
		return
	}
	done(res, nil)
}

// Sender implements Directory.
func (h *harness) Sender(p ident.Partition) protocol.Sender {
	if h.started != nil && !h.started[p] {
		return nil
	}
	return h.owner(p)
}

// Reader implements Directory.
func (h *harness) Reader(p ident.Partition) protocol.Sender {
	if c := h.copies[p]; c != nil {
		return c
	}
	return nil
}

func (h *harness) owner(p ident.Partition) *fakeOwner {
	o := h.owners[p]
	if o == nil {
		o = &fakeOwner{h: h, p: p, last: map[uint64]uint64{}}
		h.owners[p] = o
	}
	return o
}

// settle lets everything happen that needs no time.
func (h *harness) settle() {
	h.t.Helper()
	if !h.sim.Settle(1_000_000) {
		h.t.Fatal("the simulation does not come to rest")
	}
}

// do runs f on the shard's loop and lets everything happen that follows.
func (h *harness) do(f func()) {
	h.t.Helper()
	h.sh.post(f)
	h.settle()
}

// fakeOwner is an owner whose answers the test decides on. By default it confirms publishes at once, keeping the sequence rule.
type fakeOwner struct {
	h      *harness
	p      ident.Partition
	reply  protocol.Sender
	stream uint64
	got    []any // all that came, in order
	last   map[uint64]uint64
	log    []stored
	quiet  bool // answers nothing but Attach
	silent bool // answers nothing at all
	refuse func(body string) string
	counts protocol.Counted
	ready  []protocol.Item // for Get
	full   bool            // the way to it is crowded

	lost     bool // it says that what lay from lostFrom on is gone
	lostFrom uint64
}

// Crowded implements protocol.Crowder.
func (o *fakeOwner) Crowded() bool { return o.full }

type stored struct {
	producer, sequence uint64
	body               string
}

func (o *fakeOwner) bodies() string {
	var b []string
	for _, s := range o.log {
		b = append(b, s.body)
	}
	return strings.Join(b, " ")
}

// Send implements protocol.Sender.
func (o *fakeOwner) Send(msg any) {
	if p, ok := msg.(protocol.Publish); ok {
		p.Records = append([]byte(nil), p.Records...) // the gateway uses the bytes again once they are resolved
		msg = p
	}
	o.got = append(o.got, msg)
	if o.silent {
		return
	}
	switch m := msg.(type) {
	case protocol.Attach:
		o.reply, o.stream = m.Reply, m.Stream
		o.last[m.Producer] = max(o.last[m.Producer], m.First-1)
		o.say(protocol.Attached{Partition: o.p, Stream: m.Stream, Epoch: 1, Expect: o.last[m.Producer] + 1, Lost: o.lost, LostFrom: o.lostFrom})
		return
	case protocol.Publish:
		o.publish(m)
	}
	if o.quiet {
		return
	}
	switch m := msg.(type) {
	case protocol.Subscribe:
		o.say(protocol.Subscribed{Partition: o.p, Stream: o.stream, Consumer: m.Consumer, Next: 7})
	case protocol.Unsubscribe:
		o.say(protocol.Unsubscribed{Partition: o.p, Stream: o.stream, Consumer: m.Consumer})
	case protocol.Settle:
		o.say(protocol.Settled{Partition: o.p, Stream: o.stream, Seq: m.Seq})
	case protocol.Cursor:
		o.say(protocol.Settled{Partition: o.p, Stream: o.stream, Seq: m.Seq})
	case protocol.Stats:
		o.count(m.Request)
	case protocol.Purge:
		o.count(m.Request)
	case protocol.Close:
		o.count(m.Request)
	case protocol.Get:
		o.get(m)
	}
}

func (o *fakeOwner) say(msg any) { o.reply.Send(msg) }

func (o *fakeOwner) count(request uint64) {
	c := o.counts
	c.Partition, c.Stream, c.Request = o.p, o.stream, request
	o.say(c)
}

func (o *fakeOwner) get(m protocol.Get) {
	a := protocol.GetDone{Partition: o.p, Stream: o.stream, Request: m.Request}
	if len(o.ready) > 0 {
		a.OK, a.Item, a.Left = true, o.ready[0], uint64(len(o.ready)-1)
		o.ready = o.ready[1:]
	}
	o.say(a)
}

func (o *fakeOwner) publish(m protocol.Publish) {
	if m.Stream != o.stream || o.quiet {
		return
	}
	gateway := protocol.ProducerID(1, 0, o.h.sh.generation)
	if want := o.last[gateway] + 1; m.First > want {
		o.say(protocol.PublishExpected{Partition: o.p, Stream: o.stream, Expect: want})
		return
	}
	rest, seq := m.Records, m.First
	for _, r := range m.Runs {
		for n := range uint64(r.Count) {
			h, body, after, err := batch.ParseRecord(rest)
			if err != nil {
				o.h.t.Errorf("record %d: %v", seq, err)
				return
			}
			rest = after
			o.take(h, stored{r.Producer, r.First + n, text(body)}, gateway, seq)
			seq++
		}
	}
	if len(rest) != 0 || seq != m.First+uint64(m.Count) {
		o.h.t.Errorf("a publish of %d records had %d, and %d bytes left", m.Count, seq-m.First, len(rest))
	}
	o.say(protocol.Published{Partition: o.p, Stream: o.stream, UpTo: seq})
}

func (o *fakeOwner) take(_ batch.RecordHeader, s stored, gateway, seq uint64) {
	if seq <= o.last[gateway] {
		return
	}
	if o.refuse != nil {
		if why := o.refuse(s.body); why != "" {
			o.last[gateway] = seq
			o.say(protocol.PublishRefused{Partition: o.p, Stream: o.stream, First: seq, Count: 1, Reason: why})
			return
		}
	}
	o.last[gateway] = seq
	if s.producer != gateway {
		if s.sequence <= o.last[s.producer] {
			return
		}
		o.last[s.producer] = s.sequence
	}
	o.log = append(o.log, s)
}

func text(envelope []byte) string {
	e, err := broker.DecodeEnvelope(envelope)
	if err != nil {
		return err.Error()
	}
	return string(e.Body)
}

// all gives the messages of one type that the owner got.
func all[M any](o *fakeOwner) []M {
	var ms []M
	for _, g := range o.got {
		if m, ok := g.(M); ok {
			ms = append(ms, m)
		}
	}
	return ms
}

// client is a session and what its front was told.
type client struct {
	h    *harness
	s    broker.Session
	told []string
	refs []broker.Ref
	auto int // Drained at once, if not 0
	ends map[uint64][]broker.Outcome
}

func (c *client) outcome(seq uint64) []broker.Outcome { return c.ends[seq] }

type partitionID = ident.Partition

func (h *harness) client() *client {
	h.t.Helper()
	c := &client{h: h}
	h.do(func() {
		c.s = h.sh.Open(broker.Peer{Address: "127.0.0.1:1", Loopback: true, Front: "test"}, c)
		c.s.Login("guest", "guest", "/", func(e *broker.Error) {
			if e != nil {
				h.t.Errorf("login: %v", e)
			}
		})
	})
	return c
}

func (c *client) say(f string, a ...any) { c.told = append(c.told, fmt.Sprintf(f, a...)) }

// take gives what the front was told since the last take.
func (c *client) take() string {
	s := strings.Join(c.told, "; ")
	c.told = nil
	return s
}

func (c *client) expect(want string) {
	c.h.t.Helper()
	if got := c.take(); got != want {
		c.h.t.Errorf("the front was told\n  %s\nwant\n  %s", got, want)
	}
}

var outcomes = map[broker.Outcome]string{broker.Confirmed: "confirmed", broker.Refused: "refused", broker.Unknown: "unknown"}

func (c *client) Resolved(tags []broker.Tag, o broker.Outcome, reason string) {
	var b []string
	for _, t := range tags {
		if c.ends == nil {
			c.ends = map[uint64][]broker.Outcome{}
		}
		c.ends[t.Seq] = append(c.ends[t.Seq], o)
		b = append(b, fmt.Sprint(t.Seq))
	}
	if reason != "" {
		reason = " (" + reason + ")"
	}
	c.say("%s %s%s", outcomes[o], strings.Join(b, " "), reason)
}

func (c *client) Returned(tag broker.Tag, m *broker.Message, reason string) {
	c.say("returned %d %s", tag.Seq, reason)
}

func (c *client) Rejected(tag broker.Tag, e *broker.Error) {
	c.say("publish %d: error %d %s", tag.Seq, e.Code, e.Text)
}

func (c *client) Delivered(n uint64, ds []broker.Delivery) {
	var b []string
	bytes := 0
	for _, d := range ds {
		again := ""
		if d.Redelivered {
			again = "!"
		}
		b = append(b, fmt.Sprintf("%d%s=%s", d.Ref.Offset, again, text(d.Payload)))
		c.refs = append(c.refs, d.Ref)
		bytes += len(d.Payload)
	}
	c.say("delivered to %d: %s", n, strings.Join(b, " "))
	if c.auto != 0 {
		c.s.Drained(n, bytes)
	}
}

func (c *client) GetsGone(_ ident.Partition, from uint64, reason string) {
	c.say("fetched from %d gone: %s", from, reason)
}
func (c *client) ConsumerGone(n uint64, reason string) { c.say("consumer %d gone: %s", n, reason) }
func (c *client) Flow(stop bool)                       { c.say("flow stop=%v", stop) }
func (c *client) Blocked(reason string)                { c.say("blocked %q", reason) }
func (c *client) Close(err *broker.Error)              { c.say("close: %s", err.Text) }

func (c *client) done(what string) func(*broker.Error) {
	return func(e *broker.Error) { c.result(what, e) }
}

func (c *client) result(what string, e *broker.Error) {
	if e != nil {
		c.say("%s: error %d %s", what, e.Code, e.Text)
		return
	}
	c.say("%s: ok", what)
}

// declare makes a queue and gives its owner.
func (c *client) declare(q broker.QueueSpec) *fakeOwner {
	c.h.t.Helper()
	var name string
	c.h.do(func() {
		c.s.DeclareQueue(q, func(i broker.QueueInfo, e *broker.Error) {
			if e != nil {
				c.h.t.Errorf("declare %s: %v", q.Name, e)
			}
			name = i.Name
		})
	})
	r := c.h.state.View().Resource("/", name)
	if r == nil {
		c.h.t.Fatalf("queue %q is not in the catalog", name)
	}
	return c.h.owner(partition(r))
}

func durable(name string) broker.QueueSpec {
	return broker.QueueSpec{Name: name, Durable: true, Kind: catalog.Queue, Queue: queue.Settings{}}
}

func (c *client) publish(seq uint64, exchange, key, body string) {
	if e := c.s.Publish(broker.Tag{Channel: 1, Seq: seq}, message(exchange, key, body)); e != nil {
		c.say("publish %d: error %d %s", seq, e.Code, e.Text)
	}
}

func message(exchange, key, body string) *broker.Message {
	return &broker.Message{Exchange: exchange, RoutingKey: key, Body: [][]byte{[]byte(body)}}
}

func (c *client) publishAll(key string, from uint64, bodies ...string) {
	c.h.t.Helper()
	c.h.do(func() {
		for i, b := range bodies {
			c.publish(from+uint64(i), "", key, b)
		}
	})
}
