package replica

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

// Manager holds the replicas of one node. Its methods may be called from any goroutine.
type Manager struct {
	env   Env
	lanes []*lane

	runs     atomic.Pointer[runs]
	tunables atomic.Pointer[catalog.Tunables]

	pacing sync.Mutex
	pace   partition.Pace // of what goes to copies that catch up from far

	mu      sync.RWMutex
	all     map[ident.Partition]*replica
	unowned map[ident.Partition]Log // found in the store; the catalog has not spoken of them
	// going are the replicas of former copies that are being dropped, with the newest assignment since, if there was one.
	going   map[ident.Partition]*assignment
	aside   aside
	stopped bool
	held    atomic.Pointer[string]    // why publishes are held; nil: they are not
	peers   map[string]ident.Instance // that there is a session with, by node
	silent  map[string]bool           // nodes whose last session ended because nothing was heard of them

	vows     sync.Mutex
	promises map[ident.Partition]uint64           // of copies that have promised an epoch above that of their role
	damages  map[ident.Partition]protocol.Damaged // of copies that are to own and are damaged

	// incarnations is the highest of a resource that the catalog has spoken of: what is not above it and not here was deleted, or is elsewhere.
	incarnations atomic.Uint64

	rights rights

	recovering atomic.Int64
	duplicates atomic.Uint64
	expired    atomic.Uint64
	formers    atomic.Uint64
}

// Duplicates counts the publishes that were stored already under their number, those that a gateway sent again included.
func (m *Manager) Duplicates() uint64 { return m.duplicates.Load() }

// Expired counts the messages whose time to live ended while they were ready. One is counted again where its end was decided and the owner
// was lost before that was stored.
func (m *Manager) Expired() uint64 { return m.expired.Load() }

// FormersDropped counts the former copies whose data was dropped here.
func (m *Manager) FormersDropped() uint64 { return m.formers.Load() }

// lane is what the replicas of one shared loop have in common. Only that loop touches it, so that none of it is needed per replica.
type lane struct {
	fx       *partition.Effects // nil while it is used
	assigned []queue.Assignment
	fetches  []stream.Fetch
	dead     []queue.DeadLetter
	builders []*batch.Builder
	windows  []*replica // that keep what they read of their log, oldest read first
	flights  int        // appends that storage has not answered
	loading  int        // replicas that read their state
	toLoad   []*replica // that wait for their turn to
}

// maxBuilders bounds the spare builders of a loop: one for each replica that appends in the same round, within reason.
const maxBuilders = 1024

// maxLoading bounds the replicas of one loop that read their state at a time.
const maxLoading = 64

// runs is which runs of nodes are alive, by the catalog. It is replaced, never changed.
type runs struct {
	of      map[string]run // by node
	highest uint32
}

type run struct {
	boot   uint64
	number uint32
	absent int64 // since when it is away, in milliseconds since 1970; 0: it is not
}

// New opens the copies that the store holds. They serve nothing until Apply tells what the catalog says of them.
func New(env Env) *Manager {
	m := &Manager{env: env, all: map[ident.Partition]*replica{}, promises: map[ident.Partition]uint64{}, damages: map[ident.Partition]protocol.Damaged{}, unowned: map[ident.Partition]Log{}}
	m.runs.Store(&runs{of: map[string]run{}})
	tunables := catalog.DefaultTunables()
	m.tunables.Store(&tunables)
	for range env.Exec.Shared() {
		m.lanes = append(m.lanes, &lane{})
	}
	if env.Leased {
		m.rights.now.Store(&right{})
	}
	for _, l := range env.Store.Copies() {
		m.unowned[l.Image().Partition] = l
	}
	return m
}

// Sender is where messages to a partition's owner go, nil if there is no replica of it here. A replica that does not own the
// partition answers Attach with NotServing.
func (m *Manager) Sender(p ident.Partition) protocol.Sender {
	if r := m.find(p); r != nil {
		return r
	}
	return nil
}

func (m *Manager) find(p ident.Partition) *replica {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.all[p]
}

// sorted gives all replicas in order of partition, so that nothing depends on the order of a map.
func (m *Manager) sorted() []*replica {
	m.mu.RLock()
	rs := make([]*replica, 0, len(m.all))
	for _, r := range m.all {
		rs = append(rs, r)
	}
	m.mu.RUnlock()
	slices.SortFunc(rs, func(a, b *replica) int { return a.id.Compare(b.id) })
	return rs
}

// Recovering is the number of partitions that this node is to own and does not serve yet: 0 when it is ready. Blocked ones do not
// count.
func (m *Manager) Recovering() int { return int(m.recovering.Load()) }

// promised notes that a copy has promised an epoch above that of its role, or 0: that it has not.
func (m *Manager) promised(p ident.Partition, epoch uint64) {
	m.vows.Lock()
	defer m.vows.Unlock()
	if epoch > 0 {
		m.promises[p] = epoch
	} else {
		delete(m.promises, p)
	}
}

// damaged notes that a copy is to own and is damaged; with no reason, that it is not, or not to own.
func (m *Manager) damaged(d protocol.Damaged) {
	m.vows.Lock()
	defer m.vows.Unlock()
	if d.Reason != "" {
		m.damages[d.Partition] = d
	} else {
		delete(m.damages, d.Partition)
	}
}

// Damages are the copies here that are to own, by the newest assignment that they know, and are damaged, in order of partition; nil if there are
// none.
func (m *Manager) Damages() []protocol.Damaged {
	m.vows.Lock()
	defer m.vows.Unlock()
	var out []protocol.Damaged
	for _, d := range m.damages {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b protocol.Damaged) int { return a.Partition.Compare(b.Partition) })
	return out
}

// Damaged tells a copy that storage found it broken, on its own: nobody had asked for what is broken. It may be called again.
func (m *Manager) Damaged(p ident.Partition, reason string) {
	if r := m.find(p); r != nil {
		r.box.Post(call{func() { r.fail("storage", errors.New(reason)) }})
	}
}

// Promises are the copies here that have promised an epoch above that of their role, in order of partition; nil if there are none.
func (m *Manager) Promises() []protocol.Promised {
	m.vows.Lock()
	defer m.vows.Unlock()
	var out []protocol.Promised
	for p, epoch := range m.promises {
		out = append(out, protocol.Promised{Partition: p, Epoch: epoch})
	}
	slices.SortFunc(out, func(a, b protocol.Promised) int { return a.Partition.Compare(b.Partition) })
	return out
}

// Confirms are the copies here that have confirmed something as owners, with how far, in order of partition. told are those of an earlier
// call, which is brought up to date: what has not changed since is left out.
func (m *Manager) Confirms(told map[ident.Partition]protocol.Confirmed) []protocol.Confirmed {
	var out []protocol.Confirmed
	m.mu.RLock()
	for p, r := range m.all {
		c := protocol.Confirmed{Partition: p, Epoch: r.reign.Load(), Position: r.confirmed.Load()}
		if c.Epoch > 0 && told[p] != c {
			out = append(out, c)
		}
	}
	for p := range told {
		if m.all[p] == nil {
			delete(told, p)
		}
	}
	m.mu.RUnlock()
	slices.SortFunc(out, func(a, b protocol.Confirmed) int { return a.Partition.Compare(b.Partition) })
	for _, c := range out {
		told[c.Partition] = c
	}
	return out
}

// Hold stops the admission of publishes on all partitions while reason is not empty; settles go on. Held publishes wait. Copies that learn, or
// are made of an image, take nothing either: what room there is left is kept for what cannot wait (design 2 §10).
func (m *Manager) Hold(reason string) {
	if reason != "" {
		if m.held.Swap(&reason) == nil {
			for _, r := range m.sorted() {
				r.box.Post(roomless{})
			}
		}
		return
	}
	if m.held.Swap(nil) == nil {
		return
	}
	for _, r := range m.sorted() {
		r.box.Post(release{})
	}
}

// buried reports whether a gateway's producer is of a run that the catalog knows to be over.
func (m *Manager) buried(producer uint64) bool {
	number := uint32(producer >> 32)
	rs := m.runs.Load()
	if number > rs.highest {
		return false
	}
	for _, r := range rs.of {
		if r.number == number {
			return false
		}
	}
	return true
}

// gone reports whether the catalog has buried the run that a gateway is of.
func (m *Manager) gone(g protocol.Gateway) bool { return g.Boot < m.runs.Load().of[g.Node].boot }

// Unclaimed takes note of partitions of which a gateway holds nothing. Those that have no copy here are left out: their owner waits for
// the gateway no longer than for any.
func (m *Manager) Unclaimed(u protocol.Unclaimed) {
	for _, i := range u.Items {
		if r := m.find(i.Partition); r != nil {
			r.box.Post(unclaimed{u.Gateway, i.Epoch})
		}
	}
}

// gather collects one answer of each of n replicas and hands them over together.
type gather[T any] struct {
	mu   sync.Mutex
	left int
	got  []T
	done func([]T)
}

func newGather[T any](n int, done func([]T)) *gather[T] {
	return &gather[T]{left: n, got: make([]T, n), done: done}
}

func (g *gather[T]) put(i int, v T) {
	g.mu.Lock()
	g.got[i] = v
	g.left--
	last := g.left == 0
	g.mu.Unlock()
	if last {
		g.done(g.got)
	}
}

// sealedAfter gathers the answers of copies that are sealed together: one that takes longer, over a cut say, holds up none of the others.
const sealedAfter = 10 * time.Millisecond

// sealing hands over what copies answer, together as far as that is quick.
type sealing struct {
	mu    sync.Mutex
	left  int
	got   []SealAnswer
	timer bool
	done  func([]SealAnswer)
}

// put takes the answer of a replica, on its loop.
func (s *sealing) put(r *replica, a SealAnswer) {
	s.mu.Lock()
	s.got = append(s.got, a)
	s.left--
	last, first := s.left == 0, !s.timer
	s.timer = true
	s.mu.Unlock()
	switch {
	case last:
		s.give()
	case first:
		r.box.After(sealedAfter, call{s.give})
	}
}

func (s *sealing) give() {
	s.mu.Lock()
	got := s.got
	s.got, s.timer = nil, false
	s.mu.Unlock()
	if len(got) > 0 {
		s.done(got)
	}
}

// Seal seals copies. done is called from any goroutine, with one answer for each request, in parts as they come. A copy that this store
// never had is made, and answers as empty: only a store that the catalog names has a say. One that was deleted while its seal was on its way
// is not made anew: nobody would delete it again.
func (m *Manager) Seal(reqs []SealRequest, done func([]SealAnswer)) {
	s := &sealing{left: len(reqs), done: done}
	for _, req := range reqs {
		a := SealAnswer{Partition: req.Partition}
		a.Transition, a.Instance = req.Transition, m.env.Local
		if req.Partition.Incarnation <= m.incarnations.Load() && m.find(req.Partition) == nil && !m.known(req.Partition) {
			a.Refused = "it was deleted, or has no place here"
			done([]SealAnswer{a})
			continue
		}
		r, err := m.obtain(req.Partition)
		if err != nil {
			a.Damaged = err.Error()
			done([]SealAnswer{a})
			continue
		}
		r.box.Post(sealCopy{req, func(a SealAnswer) { s.put(r, a) }})
	}
}

// Status asks the replicas of the given partitions, all if nil, what they do. done is called once, from any goroutine, with those
// that are here, in order of partition; of all, those that were put aside come last.
func (m *Manager) Status(of []ident.Partition, done func([]Status)) {
	var rs []*replica
	if of == nil {
		rs = m.sorted()
		if aside := m.asides(); len(aside) > 0 {
			give := done
			done = func(list []Status) { give(append(list, aside...)) }
		}
	} else {
		for _, p := range of {
			if r := m.find(p); r != nil {
				rs = append(rs, r)
			}
		}
		slices.SortFunc(rs, func(a, b *replica) int { return a.id.Compare(b.id) })
		rs = slices.Compact(rs)
	}
	if len(rs) == 0 {
		done(nil)
		return
	}
	g := newGather(len(rs), done)
	for i, r := range rs {
		r.box.Post(askStatus{func(s Status) { g.put(i, s) }})
	}
}

// Stop ends admission, lets what was admitted become durable, writes snapshots where they save work at the next start, and calls
// done once nothing more will be written.
func (m *Manager) Stop(done func()) {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	rs := m.sorted()
	if len(rs) == 0 {
		done()
		return
	}
	g := newGather(len(rs), func([]struct{}) { done() })
	for i, r := range rs {
		r.box.Post(stop{func() { g.put(i, struct{}{}) }})
	}
}

// Cursors asks the owner of a stream's partition for its confirmed named cursors, after it has been asked to forget one, where one is named. done is
// called once, from any goroutine; its answer is refused where this node does not own. Repeating it is safe.
func (m *Manager) Cursors(p ident.Partition, forget string, done func(protocol.CursorsAnswer)) {
	r := m.find(p)
	if r == nil {
		done(protocol.CursorsAnswer{Refused: "its owner has moved"})
		return
	}
	r.box.Post(call{func() { done(r.cursors(forget)) }})
}

// Links asks the copy of a partition for its links at positions. done is called once, from any goroutine, with those that the log can
// still say.
func (m *Manager) Links(p ident.Partition, positions []uint64, done func(map[uint64]batch.Link)) {
	r := m.find(p)
	if r == nil {
		done(nil)
		return
	}
	r.box.Post(call{func() { r.linksAt(positions, map[uint64]batch.Link{}, done) }})
}
