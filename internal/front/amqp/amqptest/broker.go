// Package amqptest is a small broker in memory for tests of front/amqp: just enough behind broker.Session for every method to have an
// answer. It keeps no promise of the real one's; nothing but tests may import it.
package amqptest

import (
	"slices"
	"strings"
	"sync"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Broker is the broker. All calls come on one loop.
type Broker struct {
	// Later makes answers wait until Run, as a real broker's do.
	Later    bool
	pending  []func()
	sessions []*Session
	queues   map[string]*queue
	types    map[string]string // of exchanges
	bindings []catalog.Binding
	named    int
	// Hold makes publishes wait for Resolve; Refuse makes them refused.
	Hold, Refuse bool
	Published    []broker.Message
	Specs        []broker.QueueSpec
	Consumes     []broker.ConsumeSpec
	mu           sync.Mutex
	drained      map[uint64]int
}

type queue struct {
	name     string
	number   uint64
	next     uint64
	ready    []broker.Delivery
	readers  []*reader
	settings broker.QueueSpec
	owner    *Session
}

type reader struct {
	s    *Session
	spec broker.ConsumeSpec
	held int
}

// New makes a broker with the exchanges that are always there.
func New() *Broker {
	return &Broker{queues: map[string]*queue{}, drained: map[uint64]int{}, types: map[string]string{
		"": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers",
	}}
}

// Run gives the answers that wait.
func (b *Broker) Run() {
	for len(b.pending) > 0 {
		f := b.pending[0]
		b.pending = b.pending[1:]
		f()
	}
}

func (b *Broker) answer(f func()) {
	if b.Later {
		b.pending = append(b.pending, f)
	} else {
		f()
	}
}

// Open implements broker.Broker.
func (b *Broker) Open(p broker.Peer, l broker.Listener) broker.Session {
	s := &Session{b: b, L: l, Peer: p, held: map[broker.Ref]heldDelivery{}}
	b.sessions = append(b.sessions, s)
	return s
}

// Session is a session. It knows one user, guest with password guest, and the virtual host "/". The password busy cannot be checked now.
type Session struct {
	b      *Broker
	L      broker.Listener
	Peer   broker.Peer
	held   map[broker.Ref]heldDelivery
	order  []broker.Ref
	Waits  []broker.Tag
	Closed bool
}

type heldDelivery struct {
	q *queue
	d broker.Delivery
	r *reader
}

// Last is the session that was opened last.
func (b *Broker) Last() *Session { return b.sessions[len(b.sessions)-1] }

// Authenticate implements broker.Session.
func (s *Session) Authenticate(user, password string, done func(*broker.Error)) {
	s.b.answer(func() {
		if password == "busy" {
			done(broker.Errorf(broker.Unavailable, "too many logins wait; try again"))
			return
		}
		if user != "guest" || password != "guest" {
			done(broker.Errorf(broker.AuthFailed, "wrong user name or password"))
			return
		}
		done(nil)
	})
}

// Login implements broker.Session.
func (s *Session) Login(_, _, vhost string, done func(*broker.Error)) {
	s.b.answer(func() {
		if vhost != "/" {
			done(broker.Errorf(broker.NotFound, "vhost '%s' not found", vhost))
			return
		}
		done(nil)
	})
}

// SetSecret implements broker.Session.
func (s *Session) SetSecret(password string, done func(*broker.Error)) {
	s.Authenticate("guest", password, done)
}

// DeclareExchange implements broker.Session.
func (s *Session) DeclareExchange(e catalog.Exchange, passive bool, done func(*broker.Error)) {
	s.b.answer(func() {
		typ, ok := s.b.types[e.Name]
		switch {
		case passive && !ok:
			done(broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '/'", e.Name))
			return
		case ok && !passive && typ != e.Type:
			done(broker.Errorf(broker.Precondition, "inequivalent arg 'type' for exchange '%s'", e.Name))
			return
		case !ok:
			s.b.types[e.Name] = e.Type
		}
		done(nil)
	})
}

// DeleteExchange implements broker.Session.
func (s *Session) DeleteExchange(name string, _ bool, done func(*broker.Error)) {
	s.b.answer(func() {
		delete(s.b.types, name)
		done(nil)
	})
}

// Bind implements broker.Session.
func (s *Session) Bind(x catalog.Binding, done func(*broker.Error)) {
	s.b.answer(func() {
		if _, ok := s.b.types[x.Source]; !ok {
			done(broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '/'", x.Source))
			return
		}
		s.b.bindings = append(s.b.bindings, x)
		done(nil)
	})
}

// Unbind implements broker.Session.
func (s *Session) Unbind(x catalog.Binding, done func(*broker.Error)) {
	s.b.answer(func() {
		s.b.bindings = slices.DeleteFunc(s.b.bindings, func(o catalog.Binding) bool {
			return o.Source == x.Source && o.Destination == x.Destination && o.Key == x.Key
		})
		done(nil)
	})
}

// DeclareQueue implements broker.Session.
func (s *Session) DeclareQueue(spec broker.QueueSpec, done func(broker.QueueInfo, *broker.Error)) {
	b := s.b
	b.answer(func() {
		b.Specs = append(b.Specs, spec)
		if spec.Name == "" {
			b.named++
			spec.Name = "amq.gen-" + string(rune('a'+b.named-1))
		}
		q := b.queues[spec.Name]
		switch {
		case q == nil && spec.Passive:
			done(broker.QueueInfo{}, b.noQueue(spec.Name))
			return
		case q != nil && q.owner != nil && q.owner != s:
			done(broker.QueueInfo{}, broker.Errorf(broker.Locked, "cannot obtain exclusive access to locked queue '%s'", spec.Name))
			return
		case q == nil:
			q = &queue{name: spec.Name, number: uint64(len(b.queues) + 1), settings: spec}
			if spec.Exclusive {
				q.owner = s
			}
			b.queues[spec.Name] = q
		}
		done(broker.QueueInfo{Name: q.name, Messages: uint32(len(q.ready)), Consumers: uint32(len(q.readers))}, nil)
	})
}

func (b *Broker) noQueue(name string) *broker.Error {
	return broker.Errorf(broker.NotFound, "no queue '%s' in vhost '/'", name)
}

// DeleteQueue implements broker.Session.
func (s *Session) DeleteQueue(name string, _, ifEmpty bool, done func(uint32, *broker.Error)) {
	s.b.answer(func() {
		q := s.b.queues[name]
		if q == nil {
			done(0, nil)
			return
		}
		n := uint32(len(q.ready))
		if ifEmpty && n > 0 {
			done(0, broker.Errorf(broker.Precondition, "queue '%s' in vhost '/' is not empty", name))
			return
		}
		delete(s.b.queues, name)
		for _, r := range q.readers {
			r.s.L.ConsumerGone(r.spec.Consumer, "deleted")
		}
		done(n, nil)
	})
}

// PurgeQueue implements broker.Session.
func (s *Session) PurgeQueue(name string, done func(uint32, *broker.Error)) {
	s.b.answer(func() {
		q := s.b.queues[name]
		if q == nil {
			done(0, s.b.noQueue(name))
			return
		}
		n := len(q.ready)
		q.ready = nil
		done(uint32(n), nil)
	})
}

// Publish implements broker.Session.
func (s *Session) Publish(tag broker.Tag, m *broker.Message) *broker.Error {
	b := s.b
	typ, ok := b.types[m.Exchange]
	if !ok {
		return broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '/'", m.Exchange)
	}
	kept := *m
	body := slices.Concat(m.Body...)
	kept.Properties, kept.Body = slices.Clone(m.Properties), [][]byte{body}
	if len(b.Published) < 1000 {
		b.Published = append(b.Published, kept)
	}
	var to []*queue
	if q := b.queues[m.RoutingKey]; m.Exchange == "" && q != nil {
		to = append(to, q)
	}
	for _, x := range b.bindings {
		q := b.queues[x.Destination]
		if x.Source == m.Exchange && q != nil && (typ == "fanout" || x.Key == m.RoutingKey || strings.HasSuffix(x.Key, "#")) {
			to = append(to, q)
		}
	}
	if len(to) == 0 && m.Mandatory {
		s.L.Returned(tag, m, "no route")
	}
	for _, q := range to {
		p := append(broker.AppendEnvelopeHead(nil, m.Exchange, m.RoutingKey, m.Properties), body...)
		d := broker.Delivery{Payload: p, Record: m.Record, Stream: q.settings.Kind == catalog.Stream}
		d.Ref.Partition = ident.Partition{Incarnation: q.number}
		d.Ref.Offset = q.next
		q.next++
		q.ready = append(q.ready, d)
	}
	if tag.Seq != 0 {
		s.Waits = append(s.Waits, tag)
		if !b.Hold {
			s.Resolve(len(s.Waits))
		}
	}
	for _, q := range to {
		q.pump()
	}
	return nil
}

// Resolve ends the first n publishes that wait.
func (s *Session) Resolve(n int) {
	o := broker.Confirmed
	if s.b.Refuse {
		o = broker.Refused
	}
	s.L.Resolved(s.Waits[:n], o, "")
	s.Waits = s.Waits[n:]
}

func (q *queue) pump() {
	for len(q.ready) > 0 {
		i := slices.IndexFunc(q.readers, func(r *reader) bool { return r.spec.Prefetch == 0 || r.held < int(r.spec.Prefetch) })
		if i < 0 {
			return
		}
		r := q.readers[i]
		q.readers = append(slices.Delete(q.readers, i, i+1), r) // in turn
		d := q.ready[0]
		q.ready = q.ready[1:]
		d.Ref.Consumer = r.spec.Consumer
		if !r.spec.NoAck {
			r.held++
			r.s.hold(q, d, r)
		}
		r.s.L.Delivered(r.spec.Consumer, []broker.Delivery{d})
	}
}

func (s *Session) hold(q *queue, d broker.Delivery, r *reader) {
	s.held[d.Ref] = heldDelivery{q, d, r}
	s.order = append(s.order, d.Ref)
}

// Get implements broker.Session.
func (s *Session) Get(name string, noAck bool, done func(broker.Delivery, bool, *broker.Error)) {
	s.b.answer(func() {
		q := s.b.queues[name]
		switch {
		case q == nil:
			done(broker.Delivery{}, false, s.b.noQueue(name))
		case len(q.ready) == 0:
			done(broker.Delivery{}, false, nil)
		default:
			d := q.ready[0]
			q.ready = q.ready[1:]
			d.Left = uint32(len(q.ready))
			if !noAck {
				s.hold(q, d, nil)
			}
			done(d, true, nil)
		}
	})
}

// Consume implements broker.Session.
func (s *Session) Consume(c broker.ConsumeSpec, done func(*broker.Error)) {
	s.b.answer(func() {
		q := s.b.queues[c.Queue]
		if q == nil {
			done(s.b.noQueue(c.Queue))
			return
		}
		s.b.Consumes = append(s.b.Consumes, c)
		q.readers = append(q.readers, &reader{s: s, spec: c})
		q.pump() // deliveries may come before the answer
		done(nil)
	})
}

// ConsumerTimeout implements broker.Session.
func (s *Session) ConsumerTimeout(name string) int64 {
	if q := s.b.queues[name]; q != nil {
		return q.settings.Queue.ConsumerTimeout
	}
	return 0
}

// Cancel implements broker.Session.
func (s *Session) Cancel(consumer uint64, done func()) {
	s.b.answer(func() {
		for _, q := range s.b.queues {
			q.readers = slices.DeleteFunc(q.readers, func(r *reader) bool { return r.s == s && r.spec.Consumer == consumer })
		}
		done()
	})
}

// Settle implements broker.Session.
func (s *Session) Settle(refs []broker.Ref, o broker.Settlement) {
	for _, ref := range refs {
		h, ok := s.held[ref]
		if !ok {
			continue
		}
		delete(s.held, ref)
		s.order = slices.DeleteFunc(s.order, func(r broker.Ref) bool { return r == ref })
		if h.r != nil {
			h.r.held--
		}
		if o == broker.Requeue || o == broker.Release {
			h.d.Redelivered = true
			h.d.Count++
			h.q.ready = append(h.q.ready, h.d)
			slices.SortFunc(h.q.ready, func(a, b broker.Delivery) int { return int(a.Ref.Offset) - int(b.Ref.Offset) })
		}
		h.q.pump()
	}
}

// Held is how many deliveries the session holds.
func (s *Session) Held() int { return len(s.held) }

// Drained implements broker.Session.
func (s *Session) Drained(consumer uint64, bytes int) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.drained[consumer] += bytes
}

// PaidBack is how many bytes a consumer's deliveries have paid back. It may be called from any goroutine.
func (b *Broker) PaidBack(consumer uint64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.drained[consumer]
}

// Close implements broker.Session.
func (s *Session) Close() {
	s.Closed = true
	for _, q := range s.b.queues {
		q.readers = slices.DeleteFunc(q.readers, func(r *reader) bool { return r.s == s })
	}
	s.Settle(slices.Clone(s.order), broker.Release)
	for name, q := range s.b.queues {
		if q.owner == s {
			delete(s.b.queues, name)
		}
	}
}
