// Package consensus agrees on the catalog's commands: it drives etcd's raft over the node's journal and applies what is committed to
// core/catalog. It decides nothing about the catalog itself.
//
// One voter works today. More need only a Transport, ticks, and changes of membership: messages already go out through the one
// and come in through Deliver, and entries and snapshots already carry what a change of membership needs.
//
// Nothing here depends on raft's timers, whose jitter cannot be seeded: a sole voter campaigns at once.
package consensus

import (
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// ErrNotProposed is returned when a proposal was definitely not made: consensus has stopped, does not lead, or has too much in
// flight. A retry, here or elsewhere, is safe.
var ErrNotProposed = errors.New("consensus: not proposed")

// ErrUncertain is returned when the journal failed, or consensus was stopped, while a proposal was in flight: it may or may not take
// effect when the node starts again. Retry only what is guarded or idempotent.
var ErrUncertain = errors.New("consensus: outcome unknown")

// Env is what Consensus stands on.
type Env struct {
	Loop  exec.Loop
	Trace trace.Sink
	Log   Log
	Local ident.Instance
	// Transport carries messages to other voters; nil where there are none.
	Transport Transport
	// Bootstrap makes the command that a catalog without a cluster id begins with. It is called at most once, on Loop.
	Bootstrap func() ([]byte, error)
	// Failed is called once, on Loop, when consensus had to stop: the journal failed, or a command is unknown to this version.
	// The node must stop too.
	Failed func(error)
	// SnapshotBytes is how much the log grows before a snapshot replaces it, or twice the last snapshot if that is more;
	// 0: 4 MiB. A log that is left alone is replaced sooner: it is kept in memory, and read again by the next start.
	SnapshotBytes int
	// MaxInFlight bounds the proposals that wait for an outcome; 0: 65 536.
	MaxInFlight int
}

// Transport sends messages to other voters. It may lose, delay, repeat and reorder them. It must not block or keep the bytes.
type Transport interface{ Send(to uint64, msg []byte) }

// Consensus is the actor. Its methods may be called from any goroutine; callbacks are called on Env.Loop.
type Consensus struct {
	env Env
	box exec.Mailbox

	state     *catalog.State
	node      *raft.RawNode // nil before Start
	mem       *raft.MemoryStorage
	conf      *raftpb.ConfState
	hard      []byte // newest, encoded; nil: nothing new since the last write
	listeners []func([]catalog.Change)
	started   []func(error)
	ready     bool  // everything that was committed when we began to lead is applied
	booting   bool  // the bootstrap command is on its way
	err       error // why stopped

	seq      uint64
	gathered []proposal // to be proposed at the next Flush
	waiting  map[uint64]func(catalog.Result, error)
	barriers []barrier

	writes   []*write // in the order given to the log
	writeSeq uint64

	applied     uint64
	appliedTerm uint64
	grown       int               // bytes of entries since the last snapshot
	lastSize    int               // of the last snapshot
	saving      *raftpb.ConfState // of the snapshot being written; nil: none is
	watching    bool              // a look whether the log is quiet is to come
}

type proposal struct {
	cmd  []byte
	done func(catalog.Result, error)
}

// write is one append that raft asked for, with the messages that raft wants back once it is durable.
type write struct {
	seq       uint64
	entries   []*raftpb.Entry
	responses []*raftpb.Message
	left      int // pieces of it that are not durable yet
}

type barrier struct {
	index uint64 // 0: not known yet
	ctx   uint64
	done  func(error)
}

// Messages to the actor.
type (
	start    struct{ done func(error) }
	stop     struct{ done func() }
	listen   struct{ to func([]catalog.Change) }
	appended struct {
		seq uint64
		err error
	}
	saved struct {
		index uint64
		err   error
	}
	first     struct{ err error } // the snapshot that a new log begins with
	delivered struct{ msg []byte }
	quiet     struct{ writes uint64 } // as many as there were
	wanted    struct{ done func(Status) }
	reading   struct{ done func(error) }
)

// Status is what an operator sees.
type Status struct {
	Leading bool
	Term    uint64
	Leader  uint64 // raft id; 0: none known
	ID      uint64
	Applied uint64
	Log     int // bytes since the last snapshot
	Waiting int // proposals without an outcome
	Err     error
}

// New makes a consensus that is not started.
func New(env Env) *Consensus {
	if env.SnapshotBytes == 0 {
		env.SnapshotBytes = 4 << 20
	}
	if env.MaxInFlight == 0 {
		env.MaxInFlight = 1 << 16
	}
	c := &Consensus{env: env, state: catalog.New(), waiting: map[uint64]func(catalog.Result, error){}}
	c.box = env.Loop.Spawn("consensus", c)
	return c
}

// ID is the raft id of a store. It comes from the store and not from the node's name: a wiped voter must not vote as its former self
// (design 2 §12). It is never 0 nor one of raft's own.
func ID(s ident.StoreID) uint64 {
	var id uint64
	for _, b := range s[:8] {
		id = id<<8 | uint64(b)
	}
	if id &= 1<<63 - 1; id == 0 {
		id = 1
	}
	return id
}

// Start loads the log. done is called once: with nil when everything that was committed has been applied, the listeners have been
// told, and proposals are taken; with an error if the log cannot be read or fails first.
func (c *Consensus) Start(done func(error)) { c.box.Post(start{done}) }

// Stop ends work: what waits is answered with ErrUncertain, later proposals with ErrNotProposed. done is called after that.
func (c *Consensus) Stop(done func()) { c.box.Post(stop{done}) }

// OnApply adds a listener. It is first called with the whole catalog as additions, once that is ready, and then with every change in
// order; always on Env.Loop and before the proposal's done.
func (c *Consensus) OnApply(listener func([]catalog.Change)) { c.box.Post(listen{listener}) }

// Propose proposes a command made by catalog.Encode. done is called once, on Env.Loop: with the outcome once the command is committed
// and applied here, or with ErrNotProposed or ErrUncertain.
func (c *Consensus) Propose(cmd []byte, done func(catalog.Result, error)) {
	c.box.Post(proposal{cmd, done})
}

// Barrier calls done once everything that was committed anywhere before the call has been applied here, or with ErrNotProposed.
func (c *Consensus) Barrier(done func(error)) { c.box.Post(reading{done}) }

// Deliver takes a message that another voter's Transport sent. It keeps the bytes.
func (c *Consensus) Deliver(msg []byte) { c.box.Post(delivered{msg}) }

// Status asks for the present state.
func (c *Consensus) Status(done func(Status)) { c.box.Post(wanted{done}) }

// State is the catalog itself. It may only be read, and only on Env.Loop.
func (c *Consensus) State() *catalog.State { return c.state }

// Receive handles one message of the mailbox.
func (c *Consensus) Receive(msg any) {
	switch m := msg.(type) {
	case proposal:
		c.receiveProposal(m)
	case appended:
		c.receiveAppended(m)
	case listen:
		c.receiveListener(m.to)
	case start:
		c.receiveStart(m.done)
	case first:
		c.receiveFirst(m.err)
	case saved:
		c.receiveSaved(m)
	case delivered:
		c.receiveMessage(m.msg)
	case reading:
		c.receiveBarrier(m.done)
	case quiet:
		c.receiveQuiet(m)
	case wanted:
		m.done(c.status())
	case stop:
		c.fail(nil)
		m.done()
	}
}

func (c *Consensus) receiveProposal(p proposal) {
	switch {
	case c.err != nil:
		p.done(catalog.Result{}, fmt.Errorf("%w: %w", ErrNotProposed, c.err))
	case len(c.waiting)+len(c.gathered) >= c.env.MaxInFlight:
		p.done(catalog.Result{}, fmt.Errorf("%w: %d proposals wait already", ErrNotProposed, len(c.waiting)+len(c.gathered)))
	default:
		c.gathered = append(c.gathered, p)
	}
}

func (c *Consensus) receiveListener(to func([]catalog.Change)) {
	c.listeners = append(c.listeners, to)
	if c.ready {
		to(c.state.Changes())
	}
}

func (c *Consensus) receiveMessage(b []byte) {
	m := &raftpb.Message{}
	if err := unmarshal(b, m); err != nil {
		trace.Warn(c.env.Trace, "consensus.message.malformed", slog.Any("error", err))
		return
	}
	if c.node == nil || c.err != nil {
		return // as good as lost, which a transport may do
	}
	if err := c.node.Step(m); err != nil {
		trace.Warn(c.env.Trace, "consensus.message.refused", slog.Any("error", err))
	}
}

func (c *Consensus) receiveBarrier(done func(error)) {
	if c.err != nil || !c.ready {
		done(ErrNotProposed)
		return
	}
	c.seq++
	c.barriers = append(c.barriers, barrier{ctx: c.seq, done: done})
	c.node.ReadIndex(marshalContext(c.seq))
}

func (c *Consensus) status() Status {
	s := Status{ID: ID(c.env.Local.Store), Applied: c.applied, Log: c.grown, Waiting: len(c.waiting), Err: c.err}
	if c.node != nil {
		b := c.node.BasicStatus()
		s.Term, s.Leader, s.Leading = b.HardState.GetTerm(), b.Lead, b.RaftState == raft.StateLeader
	}
	return s
}

// Flush proposes what was gathered, in one go, and does what raft asks for.
func (c *Consensus) Flush() {
	if c.node == nil || c.err != nil {
		return
	}
	if c.ready {
		c.propose()
	}
	c.process()
}

// fail stops for good. err nil means that it was asked for.
func (c *Consensus) fail(err error) {
	if c.err != nil {
		return
	}
	asked := err == nil
	if asked {
		err = errors.New("consensus: stopped")
	} else {
		trace.Error(c.env.Trace, "consensus.failed", slog.Any("error", err))
	}
	c.err = err
	for _, p := range c.gathered {
		p.done(catalog.Result{}, fmt.Errorf("%w: %w", ErrNotProposed, err))
	}
	for _, seq := range sortedKeys(c.waiting) {
		c.waiting[seq](catalog.Result{}, fmt.Errorf("%w: %w", ErrUncertain, err))
	}
	for _, b := range c.barriers {
		b.done(fmt.Errorf("%w: %w", ErrNotProposed, err))
	}
	for _, done := range c.started {
		done(err)
	}
	c.gathered, c.barriers, c.started, c.writes = nil, nil, nil, nil
	clear(c.waiting)
	if !asked && c.env.Failed != nil {
		c.env.Failed(err)
	}
}
