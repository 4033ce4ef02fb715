package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

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
	if l.Snapshot.Index != 0 {
		c.begin(l)
		return
	}
	if len(l.Hard) > 0 || len(l.Entries) > 0 {
		c.fail(errors.New("consensus: the log has no beginning: its snapshot is missing"))
		return
	}
	c.conf = &raftpb.ConfState{Voters: []uint64{ID(c.env.Local.Store)}}
	c.env.Log.SaveSnapshot(c.snapshot(firstIndex, firstTerm), func(err error) { c.box.Post(first{err}) })
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

// begin makes raft of a log and campaigns if this is the only voter.
func (c *Consensus) begin(l catalog.LogState) {
	hard, err := c.restore(l)
	if err != nil {
		c.fail(err)
		return
	}
	id := ID(c.env.Local.Store)
	c.node, err = raft.NewRawNode(&raft.Config{
		ID:                        id,
		ElectionTick:              10,
		HeartbeatTick:             1,
		Storage:                   c.mem,
		Applied:                   c.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             1 << 20,
		MaxUncommittedEntriesSize: 64 << 20,
		MaxInflightMsgs:           64,
		CheckQuorum:               true,
		PreVote:                   true,
		Logger:                    logger{c.env.Trace},
	})
	if err != nil {
		c.fail(fmt.Errorf("consensus: %w", err))
		return
	}
	trace.Info(c.env.Trace, "consensus.loaded", slog.Uint64("id", id), slog.Uint64("term", hard.GetTerm()),
		slog.Uint64("snapshot", l.Snapshot.Index), slog.Int("entries", len(l.Entries)))
	c.process() // what is known to be committed is applied first: raft refuses to campaign before
	if c.err == nil && len(c.conf.GetVoters()) == 1 && c.conf.GetVoters()[0] == id {
		if err := c.node.Campaign(); err != nil {
			c.fail(fmt.Errorf("consensus: campaign: %w", err))
			return
		}
		c.process()
	}
}

// restore fills the state and raft's memory from a log, after checking all that raft would panic at.
func (c *Consensus) restore(l catalog.LogState) (*raftpb.HardState, error) {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("consensus: the log is damaged: %s", fmt.Sprintf(format, a...))
	}
	conf, data, err := decodeSnapshot(l.Snapshot.Data)
	if err != nil {
		return nil, bad("snapshot at %d: %v", l.Snapshot.Index, err)
	}
	if c.state, err = catalog.Restore(data); err != nil {
		return nil, err
	}
	c.conf = conf
	if id := ID(c.env.Local.Store); !slices.Contains(conf.GetVoters(), id) && !slices.Contains(conf.GetLearners(), id) {
		return nil, fmt.Errorf("consensus: the log is another store's: raft id %d is not among its members", id)
	}
	hard := &raftpb.HardState{}
	if len(l.Hard) > 0 {
		if err := proto.Unmarshal(l.Hard, hard); err != nil {
			return nil, bad("hard state: %v", err)
		}
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
		hard.Term = new(term)
	}
	hard.Commit = new(max(hard.GetCommit(), l.Snapshot.Index))
	c.mem = raft.NewMemoryStorage()
	snap := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		ConfState: conf, Index: new(l.Snapshot.Index), Term: new(l.Snapshot.Term),
	}}
	if err := errors.Join(c.mem.ApplySnapshot(snap), c.mem.SetHardState(hard), c.mem.Append(entries)); err != nil {
		return nil, fmt.Errorf("consensus: %w", err)
	}
	c.applied, c.appliedTerm, c.lastSize = l.Snapshot.Index, l.Snapshot.Term, len(l.Snapshot.Data)
	return hard, nil
}

// lead notices that this node has begun to lead and has applied all that was committed before it did: the first entry of its own
// term is the proof.
func (c *Consensus) lead() {
	b := c.node.BasicStatus()
	if c.ready || c.booting || b.RaftState != raft.StateLeader || c.appliedTerm != b.HardState.GetTerm() {
		return
	}
	if c.state.View().Cluster() == nil && c.env.Bootstrap != nil {
		c.booting = true
		cmd, err := c.env.Bootstrap()
		if err != nil {
			c.fail(fmt.Errorf("consensus: bootstrap: %w", err))
			return
		}
		c.submit([]proposal{{cmd, func(r catalog.Result, err error) {
			if err == nil {
				err = r.Err()
			}
			if err != nil {
				c.fail(fmt.Errorf("consensus: bootstrap: %w", err))
				return
			}
			c.becomeReady()
		}}})
		return
	}
	c.becomeReady()
}

func (c *Consensus) becomeReady() {
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
