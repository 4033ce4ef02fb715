// Package consensus agrees on the catalog's commands: it drives etcd's raft over the node's journal and applies what is committed to
// core/catalog. It decides nothing about the catalog itself.
//
// Up to MaxVoters members vote; further ones are learners, which apply everything and count for nothing. A cluster begins with one
// voter, and grows and shrinks by one member at a time.
//
// Raft's own timers decide nothing, since their jitter cannot be seeded: followers are never ticked. Who hears nothing of a leader
// forgets it and campaigns, later by its rank among the voters, so that a simulation replays exactly.
package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// ErrNotProposed is returned when a proposal was definitely not made, or a barrier not passed: consensus has stopped, has too much in
// flight, or the catalog has no quorum. A retry, here or elsewhere, is safe.
var ErrNotProposed = errors.New("consensus: not proposed")

// ErrUncertain is returned when it is not known what became of a proposal: the journal failed, consensus was stopped, or the catalog
// lost its quorum while it was in flight, or a snapshot came instead of the entry that told. It may or may not have taken effect, or
// may yet, but never twice. Retry only what is guarded or idempotent.
var ErrUncertain = errors.New("consensus: outcome unknown")

// ErrRemoved is given to Env.Failed when this store is not a member any more. It never becomes one again: its node may join with an
// empty data directory.
var ErrRemoved = errors.New("consensus: this store was removed from the cluster; its node can join again with an empty data directory")

// MaxVoters bounds how many members vote (design 2 §12).
const MaxVoters = 5

// Env is what Consensus stands on.
type Env struct {
	Loop  exec.Loop
	Clock clock.Clock
	Trace trace.Sink
	Log   Log
	Local ident.Instance
	// Transport carries messages to other members; nil where there are none.
	Transport Transport
	// Bootstrap makes the command that a catalog without a cluster id begins with. It is called at most once, on Loop.
	Bootstrap func() ([]byte, error)
	// Joining says that an empty log waits for the leader of a cluster to send its catalog, instead of making a cluster of one. It means
	// nothing for a log that has begun.
	Joining bool
	// Generation is the one that an empty log waits for, asked once the log is loaded; nil: the first.
	Generation func() ident.Generation
	// Leading is told, on Loop, when this member begins to lead, having applied everything that was committed before its term; and when
	// it ceases to. It may be nil.
	Leading func(term uint64, leading bool)
	// Leader is told, on Loop, which member leads as far as this one knows, at every change, a later term of the same leader included; 0 is
	// none. It may be nil.
	Leader func(term, id uint64)
	// Failed is called once, on Loop, when consensus had to stop: the journal failed, a command is unknown to this version, the store
	// was removed (ErrRemoved), or a *Superseded. The node must stop too.
	Failed func(error)
	// SnapshotBytes is how much the log grows before a snapshot replaces it, or twice the last snapshot if that is more;
	// 0: 4 MiB. A log that is left alone is replaced sooner: it is kept in memory, and read again by the next start. With other members,
	// the last entries, of a quarter of it or 256 KiB, are kept in memory for those that lag a little.
	SnapshotBytes int
	// MaxInFlight bounds the proposals, and the barriers, that wait for an outcome; 0: 65 536.
	MaxInFlight int
	// Heartbeat is how often a leader shows that it is there; 0: 100 ms.
	Heartbeat time.Duration
	// ElectionTimeout is how long a member hears nothing of its leader before it forgets it; 0: 500 ms. A leader that does not hear of a
	// majority for 1.25 times as long steps down.
	ElectionTimeout time.Duration
	// StallLimit is how long a leader's append to its journal may take before it hands leadership on; 0: 2 s (design 2 §4).
	StallLimit time.Duration
	// ProposeTimeout is how long a proposal or a barrier waits while there is no leader; 0: 10 s. With a leader that does not answer it
	// is three times as long.
	ProposeTimeout time.Duration
}

func (e *Env) fill() {
	fill(&e.SnapshotBytes, 4<<20)
	fill(&e.MaxInFlight, 1<<16)
	fill(&e.Heartbeat, 100*time.Millisecond)
	fill(&e.ElectionTimeout, 500*time.Millisecond)
	fill(&e.StallLimit, 2*time.Second)
	fill(&e.ProposeTimeout, 10*time.Second)
}

func fill[T comparable](v *T, standard T) {
	var zero T
	if *v == zero {
		*v = standard
	}
}

// Transport sends messages to other members. It may lose, delay, repeat and reorder them, and send a large one (a snapshot may have
// many MiB) on a way of its own. It must not block. The bytes are its own.
type Transport interface{ Send(to uint64, msg []byte) }

// Consensus is the actor. Its methods may be called from any goroutine; callbacks are called on Env.Loop.
type Consensus struct {
	env Env
	id  uint64
	box exec.Mailbox

	state     *catalog.State
	ledger    *ledger
	node      *raft.RawNode // nil before Start
	mem       *raft.MemoryStorage
	conf      *raftpb.ConfState
	soft      raft.SoftState
	term      uint64
	hard      []byte // newest, encoded; nil: nothing new since the last write
	listeners []func([]catalog.Change)
	started   []func(error)
	ready     bool   // everything that was committed when we began to lead, or asked the leader first, is applied
	booting   bool   // the bootstrap command is on its way
	led       uint64 // the term that Env.Leading was told of; 0: none
	saidTerm  uint64 // what Env.Leader was told last
	saidLead  uint64
	err       error // why stopped

	proposals proposals
	barriers  []barrier
	asked     uint64 // contexts given to barriers
	changing  *changing

	writes    []*write // in the order of raft
	issued    int      // how many of them were given to the log
	imaging   bool     // the first of them is a snapshot on its way to the log
	writeSeq  uint64
	applied   uint64
	appliedAt uint64            // its term
	applying  bool              // the state is between two entries
	grown     int               // bytes of entries since the last snapshot
	lastSize  int               // of the last snapshot
	base      uint64            // its index
	saving    *raftpb.ConfState // of the snapshot being written; nil: none is
	watching  bool              // a look whether the log is quiet is to come

	election election
	ticking  bool
	tickAt   time.Duration            // when the tick that is set is due
	heard    map[uint64]time.Duration // when a member was last heard of
	down     map[uint64]time.Duration // when a member could not be reached any more
	shipped  map[uint64]time.Duration // when a snapshot on its way to a member is given up
	stall    stall
	told     time.Duration // when the start last said what it waits for
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
	peerDown  struct{ id uint64 }
	peerUp    struct{ id uint64 }
	transfer  struct{ to uint64 }
)

// Status is what an operator sees.
type Status struct {
	Leading  bool
	Term     uint64
	Leader   uint64 // raft id; 0: none known
	ID       uint64
	Voters   []uint64 // ascending
	Learners []uint64
	Ready    []uint64 // learners that have caught up with the log; known to the leader alone
	Applied  uint64
	Log      int // bytes since the last snapshot
	Waiting  int // proposals without an outcome
	// Generation is the line of the catalog, and Recoveries how it came about, oldest first.
	Generation ident.Generation
	Recoveries []Recovery
	Err        error
}

// New makes a consensus that is not started.
func New(env Env) *Consensus {
	env.fill()
	c := &Consensus{
		env: env, id: ID(env.Local.Store), state: catalog.New(), ledger: newLedger(), conf: &raftpb.ConfState{},
		proposals: newProposals(), heard: map[uint64]time.Duration{}, down: map[uint64]time.Duration{}, shipped: map[uint64]time.Duration{},
	}
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

// Start loads the log. done is called once: with nil when everything that had been committed anywhere has been applied, the listeners
// have been told, and proposals are taken; with an error if the log cannot be read or fails first. That takes a leader, and so a quorum:
// while there is none, it waits, and says every few seconds in "consensus.waiting" for whom.
func (c *Consensus) Start(done func(error)) { c.box.Post(start{done}) }

// Stop ends work: what waits is answered with ErrUncertain, later proposals with ErrNotProposed. done is called after that.
func (c *Consensus) Stop(done func()) { c.box.Post(stop{done}) }

// OnApply adds a listener. It is first called with the whole catalog as additions, once that is ready, and then with every change in
// order; always on Env.Loop and before the proposal's done. Where the catalog comes as a snapshot, the changes are the difference: an
// object may then have changed several times at once.
func (c *Consensus) OnApply(listener func([]catalog.Change)) { c.box.Post(listen{listener}) }

// Propose proposes a command made by catalog.Encode, on any member. done is called once, on Env.Loop: with the outcome once the command
// is committed and applied here, or with ErrNotProposed or ErrUncertain. It is applied at most once, however often it had to be sent.
func (c *Consensus) Propose(cmd []byte, done func(catalog.Result, error)) {
	c.box.Post(proposal{cmd: cmd, done: done})
}

// ProposeIn is Propose for what this member decided as the leader of a term, which must not outlive that: it is appended by this member, in that
// term, or never, and is not given to the next leader. Applied, it comes before everything that the next leader decides. The error is
// ErrNotProposed also where it was appended and the next leader's log is without it; ErrUncertain only as for Propose.
func (c *Consensus) ProposeIn(term uint64, cmd []byte, done func(catalog.Result, error)) {
	c.box.Post(proposal{cmd: cmd, done: done, term: term})
}

// Barrier calls done once everything that was committed anywhere before the call has been applied here, or with ErrNotProposed.
func (c *Consensus) Barrier(done func(error)) { c.box.Post(reading{done}) }

// Deliver takes a message that another member's Transport sent. It keeps the bytes.
func (c *Consensus) Deliver(msg []byte) { c.box.Post(delivered{msg}) }

// PeerUp says that a member can be reached again, which needs saying only after PeerDown.
func (c *Consensus) PeerUp(id uint64) { c.box.Post(peerUp{id}) }

// PeerDown says that a member cannot be reached any more. Members that it led forget it, and voters campaign at once, one after the
// other. What comes from it before PeerUp, in the next election timeout, was sent before it was lost, and is dropped.
func (c *Consensus) PeerDown(id uint64) { c.box.Post(peerDown{id}) }

// Transfer asks the leader to hand leadership to a voter; 0: to the one that has most of its log. Elsewhere, or where the voter does not
// take it within the election timeout, nothing changes.
func (c *Consensus) Transfer(to uint64) { c.box.Post(transfer{to}) }

// Status asks for the present state.
func (c *Consensus) Status(done func(Status)) { c.box.Post(wanted{done}) }

// State is the catalog itself. It may only be read, and only on Env.Loop; a snapshot replaces it, so it must be asked for each time.
func (c *Consensus) State() *catalog.State { return c.state }

// Receive handles one message of the mailbox.
func (c *Consensus) Receive(msg any) {
	switch m := msg.(type) {
	case proposal:
		c.receiveProposal(m)
	case appended:
		c.receiveAppended(m)
	case delivered:
		c.receiveMessage(m.msg)
	case tick:
		c.receiveTick()
	case silence:
		c.receiveSilence(m)
	case campaign:
		c.receiveCampaign(m)
	case listen:
		c.receiveListener(m.to)
	case start:
		c.receiveStart(m.done)
	case first:
		c.receiveFirst(m.err)
	case saved:
		c.receiveSaved(m)
	case reading:
		c.receiveBarrier(m.done)
	case quiet:
		c.receiveQuiet(m)
	case change:
		c.receiveChange(m)
	case peerDown:
		c.receiveDown(m.id)
	case peerUp:
		c.receiveUp(m.id)
	case transfer:
		c.receiveTransfer(m.to)
	case superseded:
		c.receiveSuperseded(m)
	case wanted:
		m.done(c.status())
	case stop:
		c.fail(nil)
		m.done()
	}
}

func (c *Consensus) receiveListener(to func([]catalog.Change)) {
	c.listeners = append(c.listeners, to)
	if c.ready {
		to(c.state.Changes())
	}
}

func (c *Consensus) status() Status {
	s := Status{
		ID: c.id, Applied: c.applied, Log: c.grown, Waiting: len(c.proposals.waiting), Err: c.err,
		Voters: slices.Clone(c.conf.GetVoters()), Learners: slices.Clone(c.conf.GetLearners()),
		Generation: c.generation(), Recoveries: c.ledger.recoveries,
	}
	if c.node != nil {
		s.Term, s.Leader, s.Leading = c.term, c.soft.Lead, c.leads()
		if s.Leading {
			s.Ready = slices.DeleteFunc(slices.Clone(s.Learners), func(id uint64) bool { return !c.caughtUp(id) })
		}
	}
	return s
}

// leads says whether raft leads here. Whether everything committed is applied is another question (see lead).
func (c *Consensus) leads() bool { return c.soft.RaftState == raft.StateLeader }

// alone says whether there is nobody else to speak to.
func (c *Consensus) alone() bool {
	return len(c.conf.GetVoters()) == 1 && len(c.conf.GetLearners()) == 0 && c.conf.GetVoters()[0] == c.id
}

func (c *Consensus) now() time.Duration { return c.env.Clock.Mono() }

// Flush proposes what was gathered, in one go, and does what raft asks for.
func (c *Consensus) Flush() {
	if c.node == nil || c.err != nil {
		return
	}
	if c.ready {
		c.propose()
	}
	c.ask()
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
	c.proposals.end(err)
	for _, b := range c.barriers {
		b.done(fmt.Errorf("%w: %w", ErrNotProposed, err))
	}
	if c.changing != nil {
		c.changing.done(fmt.Errorf("%w: %w", ErrUncertain, err))
	}
	for _, done := range c.started {
		done(err)
	}
	if c.led != 0 && c.env.Leading != nil {
		c.env.Leading(c.led, false)
	}
	c.barriers, c.changing, c.started, c.writes, c.issued, c.led = nil, nil, nil, nil, 0, 0
	if !asked && c.env.Failed != nil {
		c.env.Failed(err)
	}
}
