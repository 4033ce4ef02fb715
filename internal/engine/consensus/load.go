package consensus

import (
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/trace"
)

// A log that is empty begins with a snapshot at this index and term, which says who the voters are: this store alone.
const (
	firstIndex = 1
	firstTerm  = 1
)

func (c *Consensus) receiveStart(done func(error)) {
	if c.err != nil {
		done(c.err)
		return
	}
	c.started = append(c.started, done)
	if len(c.started) > 1 || c.node != nil {
		c.answerStart()
		return
	}
	l, err := c.env.Log.Load()
	if err != nil {
		c.fail(fmt.Errorf("consensus: load the log: %w", err))
		return
	}
	switch {
	case l.Snapshot.Index != 0:
		c.begin(l)
	case len(l.Entries) > 0 || len(l.Hard) > 0 && !c.env.Joining:
		c.fail(errors.New("consensus: the log has no beginning: its snapshot is missing"))
	case c.env.Joining:
		c.begin(l)
	default:
		c.conf = &raftpb.ConfState{Voters: []uint64{c.id}}
		c.env.Log.SaveSnapshot(c.snapshot(firstIndex, firstTerm), func(err error) { c.box.Post(first{err}) })
	}
}

// receiveFirst goes on once the snapshot of an empty log is durable.
func (c *Consensus) receiveFirst(err error) {
	if c.err != nil {
		return
	}
	if err != nil {
		c.fail(fmt.Errorf("consensus: begin the log: %w", err))
		return
	}
	c.begin(catalog.LogState{Snapshot: c.snapshot(firstIndex, firstTerm)})
}

// begin makes raft of a log. The only voter campaigns; with others it waits for their leader, or for its turn to campaign.
func (c *Consensus) begin(l catalog.LogState) {
	hard, err := c.restore(l)
	if err == nil {
		c.node, err = c.makeNode()
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.term = hard.GetTerm()
	trace.Info(c.env.Trace, "consensus.loaded", slog.String("id", name(c.id)), slog.Uint64("term", c.term),
		slog.Uint64("snapshot", l.Snapshot.Index), slog.Int("entries", len(l.Entries)), slog.Int("voters", len(c.conf.GetVoters())), slog.String("generation", c.generation().String()))
	for _, r := range c.ledger.recoveries {
		trace.Info(c.env.Trace, "consensus.recovered", slog.String("generation", r.Generation().String()), slog.String("node", r.Node), slog.Int64("at", r.At),
			slog.Uint64("index", r.Index), slog.String("lost", listed(r.Lost)), slog.String("reason", r.Reason))
	}
	now := c.now()
	c.election.leaderless, c.told = now, now
	c.process() // what is known to be committed is applied first: raft refuses to campaign before
	if c.err != nil {
		return
	}
	if c.alone() {
		if err := c.node.Campaign(); err != nil {
			c.fail(fmt.Errorf("consensus: campaign: %w", err))
			return
		}
		c.process()
		return
	}
	c.barriers = append(c.barriers, barrier{at: now, lasting: true, done: func(error) { c.becomeReady() }})
	c.armStart()
	c.keepTicking()
}

// makeNode makes raft. Its election tick is used by leaders only, to ask whether a majority still answers.
func (c *Consensus) makeNode() (*raft.RawNode, error) {
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        c.id,
		ElectionTick:              max(2, int((c.env.ElectionTimeout*5/4+c.env.Heartbeat-1)/c.env.Heartbeat)),
		HeartbeatTick:             1,
		Storage:                   memory{c.mem, c},
		Applied:                   c.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxUncommittedEntriesSize: 64 << 20,
		MaxInflightMsgs:           64,
		CheckQuorum:               true,
		PreVote:                   true,
		StepDownOnRemoval:         true,
		Logger:                    logger{c.env.Trace},
	})
	if err != nil {
		return nil, fmt.Errorf("consensus: %w", err)
	}
	return node, nil
}

// restore fills the state and raft's memory from a log, after checking all that raft would panic at.
func (c *Consensus) restore(l catalog.LogState) (*raftpb.HardState, error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("consensus: the log is damaged: %s", fmt.Sprintf(format, a...))
	}
	hard := &raftpb.HardState{}
	if len(l.Hard) > 0 {
		if err := proto.Unmarshal(l.Hard, hard); err != nil {
			return nil, bad("hard state: %v", err)
		}
	}
	c.mem = raft.NewMemoryStorage()
	if l.Snapshot.Index == 0 { // joining
		if hard.GetCommit() > 0 {
			return nil, bad("committed up to %d, but empty", hard.GetCommit())
		}
		return hard, c.mem.SetHardState(hard)
	}
	conf, book, data, err := decodeSnapshot(l.Snapshot.Data)
	if err != nil {
		return nil, bad("snapshot at %d: %v", l.Snapshot.Index, err)
	}
	if c.state, err = catalog.Restore(data); err != nil {
		return nil, err
	}
	c.conf, c.ledger = conf, book
	if !c.member(c.id) {
		return nil, fmt.Errorf("consensus: the log is another store's: raft id %s is not among its members", name(c.id))
	}
	entries := make([]*raftpb.Entry, len(l.Entries))
	last, term := l.Snapshot.Index, l.Snapshot.Term
	for i, e := range l.Entries {
		if e.Index != last+1 || e.Term < term {
			return nil, bad("entry (%d, term %d) after (%d, term %d)", e.Index, e.Term, last, term)
		}
		last, term = e.Index, e.Term
		if entries[i], err = decodeEntry(e); err != nil {
			return nil, bad("entry %d: %v", e.Index, err)
		}
		c.grown += len(e.Data)
	}
	// The commit index is written with the next append after it moved, so it may lag behind a snapshot, never run ahead.
	if hard.GetCommit() > last {
		return nil, bad("committed up to %d, but ends at %d", hard.GetCommit(), last)
	}
	if hard.GetTerm() < term {
		if len(l.Hard) > 0 && len(entries) > 0 {
			return nil, bad("term %d with an entry of term %d", hard.GetTerm(), term)
		}
		hard.Term, hard.Vote = new(term), nil // a crash between a snapshot of the leader's and the hard state that came with it
	}
	hard.Commit = new(max(hard.GetCommit(), l.Snapshot.Index))
	snap := &raftpb.Snapshot{Metadata: metadata(conf, l.Snapshot)}
	if err := errors.Join(c.mem.ApplySnapshot(snap), c.mem.SetHardState(hard), c.mem.Append(entries)); err != nil {
		return nil, fmt.Errorf("consensus: %w", err)
	}
	c.applied, c.appliedAt, c.lastSize, c.base = l.Snapshot.Index, l.Snapshot.Term, len(l.Snapshot.Data), l.Snapshot.Index
	return hard, nil
}

// lead notices that this member leads and has applied all that was committed before it did: the first entry of its own term is the
// proof.
func (c *Consensus) lead() {
	if !c.leads() || c.appliedAt != c.term || c.led == c.term || c.booting || c.err != nil {
		return
	}
	if c.state.View().Cluster() == nil && c.env.Bootstrap != nil && !c.ready {
		c.bootstrap()
		return
	}
	c.becomeReady()
	if c.led != 0 {
		c.stepDown()
	}
	c.led = c.term
	if c.env.Leading != nil {
		c.env.Leading(c.term, true)
	}
}

func (c *Consensus) bootstrap() {
	c.booting = true
	cmd, err := c.env.Bootstrap()
	if err != nil {
		c.fail(fmt.Errorf("consensus: bootstrap: %w", err))
		return
	}
	c.submit([]proposal{{cmd: cmd, at: c.now(), done: func(r catalog.Result, err error) {
		c.booting = false
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			c.fail(fmt.Errorf("consensus: bootstrap: %w", err))
			return
		}
		c.lead()
	}}})
}

func (c *Consensus) becomeReady() {
	if c.ready || c.err != nil {
		return
	}
	c.ready = true
	all := c.state.Changes()
	for _, to := range c.listeners {
		to(all)
	}
	c.answerStart()
	c.box.Touch() // for what was proposed in the meantime
}

func (c *Consensus) answerStart() {
	if !c.ready {
		return
	}
	for _, done := range c.started {
		done(nil)
	}
	c.started = nil
}
