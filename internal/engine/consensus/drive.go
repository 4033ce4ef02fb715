package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/trace"
)

// maxPiece bounds what one append to the log carries, in bytes, unless a single entry is larger.
const maxPiece = 512 << 10

// write is one append that raft asked for, with the messages that raft wants back once it is durable.
type write struct {
	seq       uint64
	since     time.Duration
	image     *image // a snapshot from the leader, which comes before the rest
	hard      []byte // set while the write waits for its turn
	entries   []*raftpb.Entry
	responses []*raftpb.Message
	left      int // pieces of it that are not durable yet
}

// process does what raft asks for until it asks for nothing.
func (c *Consensus) process() {
	for c.err == nil && c.node.HasReady() {
		rd := c.node.Ready()
		if rd.HardState != nil {
			c.turnTerm(rd.HardState)
		}
		if rd.SoftState != nil {
			c.turnLeader(*rd.SoftState)
		}
		c.tellLeader()
		for _, r := range rd.ReadStates {
			c.readAt(r)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				c.append(m)
			case raft.LocalApplyThread:
				c.apply(m)
			default:
				c.send(m)
			}
			if c.err != nil {
				return
			}
		}
		c.lead()
	}
	if c.err != nil {
		return
	}
	c.passBarriers()
	c.compact()
	c.leave()
}

func (c *Consensus) send(m *raftpb.Message) {
	if c.stall.mute {
		return // a leader that cannot sync is to be forgotten
	}
	b, err := encodeMessage(m)
	if err != nil {
		c.fail(fmt.Errorf("consensus: encode a message: %w", err))
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		c.noteShipped(m.GetTo(), len(b))
	}
	c.transmit(m.GetTo(), b)
}

func (c *Consensus) transmit(to uint64, b []byte) {
	if c.env.Transport == nil {
		trace.Warn(c.env.Trace, "consensus.message.dropped", slog.Uint64("to", to))
		return
	}
	c.env.Transport.Send(to, b)
}

// append writes hard state and entries, and before them a snapshot of the leader's. A hard state that nobody waits for, which is one
// whose commit index moved, is written with the next append: losing it costs nothing, and a sync is saved for each command.
func (c *Consensus) append(m *raftpb.Message) {
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		hard, err := proto.Marshal(&raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit})
		if err != nil {
			c.fail(fmt.Errorf("consensus: encode the hard state: %w", err))
			return
		}
		c.hard = hard
	}
	image := c.receiveImage(m.GetSnapshot())
	if c.err != nil || len(m.GetResponses()) == 0 && len(m.GetEntries()) == 0 && image == nil {
		return
	}
	c.writeSeq++
	w := &write{seq: c.writeSeq, since: c.now(), image: image, entries: m.GetEntries(), responses: m.GetResponses(), hard: c.hard}
	c.hard = nil
	c.writes = append(c.writes, w)
	c.watch()
	c.issue()
}

// issue gives writes to the log. They follow each other at once, except that a snapshot waits until everything before it is durable,
// and that what comes after it waits until it is.
func (c *Consensus) issue() {
	for ; c.issued < len(c.writes); c.issued++ {
		w := c.writes[c.issued]
		if w.image != nil {
			if c.issued == 0 && c.saving == nil && !c.imaging {
				c.saveImage(w)
			}
			return
		}
		if len(w.entries) == 0 && w.hard == nil {
			continue // nothing to write, but earlier writes come first
		}
		entries := make([]catalog.LogEntry, len(w.entries))
		for i, e := range w.entries {
			entries[i] = encodeEntry(e)
			c.grown += len(entries[i].Data)
		}
		c.write(w, entries)
	}
	c.settle()
}

// write gives a write to the log in pieces that fit a group of the journal. That they are not durable together does no harm: the
// hard state comes first, with no more committed than the log goes with its piece, and each piece continues the one before.
func (c *Consensus) write(w *write, entries []catalog.LogEntry) {
	hard, seq := w.hard, w.seq
	w.hard = nil
	for first := true; first || len(entries) > 0; first = false {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || size+len(entries[n].Data) <= maxPiece) {
			size += len(entries[n].Data)
			n++
		}
		w.left++
		if n < len(entries) && hard != nil {
			hard = c.committedTo(hard, entries[n-1].Index)
		}
		c.env.Log.Append(hard, entries[:n:n], func(err error) { c.box.Post(appended{seq, err}) })
		hard, entries = nil, entries[n:]
	}
}

// committedTo is a hard state whose commit index is not beyond an entry.
func (c *Consensus) committedTo(hard []byte, index uint64) []byte {
	h := &raftpb.HardState{}
	err := proto.Unmarshal(hard, h)
	if err == nil && h.GetCommit() > index {
		h.Commit = new(index)
		hard, err = proto.Marshal(h)
	}
	if err != nil {
		c.fail(fmt.Errorf("consensus: the hard state of an append in pieces: %w", err))
	}
	return hard
}

func (c *Consensus) receiveAppended(m appended) {
	if c.err != nil {
		return
	}
	if m.err != nil {
		c.fail(fmt.Errorf("consensus: write the log: %w", m.err))
		return
	}
	for _, w := range c.writes {
		if w.seq == m.seq {
			w.left--
		}
	}
	c.settle()
	c.issue()
}

// settle tells raft of the writes that are durable, oldest first.
func (c *Consensus) settle() {
	for c.issued > 0 && c.writes[0].left == 0 {
		w := c.writes[0]
		c.writes = c.writes[1:]
		c.issued--
		if err := c.mem.Append(w.entries); err != nil {
			c.fail(fmt.Errorf("consensus: %w", err))
			return
		}
		for _, r := range w.responses {
			c.respond(r)
		}
	}
}

func (c *Consensus) respond(m *raftpb.Message) {
	if m.GetTo() != c.id {
		c.send(m)
		return
	}
	if err := c.node.Step(m); err != nil {
		trace.Warn(c.env.Trace, "consensus.response.refused", slog.Any("error", err))
	}
}

// outcome is a proposal of this run that was applied.
type outcome struct {
	of     *proposal
	result catalog.Result
	again  bool // it had been applied before, where only a snapshot saw it
}

// apply applies committed entries, tells the listeners of them all, and then the proposers.
func (c *Consensus) apply(m *raftpb.Message) {
	c.applying = true
	term := c.appliedAt
	var changes []catalog.Change
	var outcomes []outcome
	for _, e := range m.GetEntries() {
		ch, o, err := c.applyEntry(e)
		if err != nil {
			c.fail(fmt.Errorf("consensus: apply entry %d: %w", e.GetIndex(), err))
			return
		}
		changes = append(changes, ch...)
		if o.of != nil {
			outcomes = append(outcomes, o)
		}
		c.applied, c.appliedAt = e.GetIndex(), e.GetTerm()
	}
	c.applying = false
	for _, r := range m.GetResponses() {
		c.respond(r)
	}
	c.tell(changes)
	for _, o := range outcomes {
		if o.again {
			c.lose(o.of)
		} else {
			o.of.done(o.result, nil)
		}
	}
	if c.appliedAt > term {
		c.endTerms()
	}
}

func (c *Consensus) tell(changes []catalog.Change) {
	if c.ready && len(changes) > 0 {
		for _, to := range c.listeners {
			to(changes)
		}
	}
}

func (c *Consensus) applyEntry(e *raftpb.Entry) ([]catalog.Change, outcome, error) {
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		return nil, outcome{}, c.applyChange(e)
	}
	if len(e.GetData()) == 0 {
		return nil, outcome{}, nil // a leader's first entry
	}
	h, cmd, err := decodeProposal(e.GetData())
	if err != nil {
		return nil, outcome{}, err
	}
	mine := h.id == c.id && h.boot == c.env.Local.Boot
	if !c.ledger.take(h) {
		if mine {
			return nil, outcome{of: c.proposals.take(h.seq), again: true}, nil
		}
		return nil, outcome{}, nil
	}
	result, changes, err := c.state.Apply(e.GetIndex(), cmd)
	if err != nil {
		return nil, outcome{}, err
	}
	o := outcome{result: result}
	if mine {
		o.of = c.proposals.take(h.seq)
	}
	return changes, o, nil
}

// compact replaces the log by a snapshot once it has grown by as much as a snapshot may cost.
func (c *Consensus) compact() {
	if c.grown >= max(c.env.SnapshotBytes, 2*c.lastSize) {
		c.save()
	}
}

const (
	// quietAfter is how long nothing is written before a smaller log is worth a snapshot.
	quietAfter = 5 * time.Second
	// quietBytes is how much it has grown then, or a quarter of the last snapshot if that is more.
	quietBytes = 64 << 10
)

// watch has the log looked at when it may have become quiet.
func (c *Consensus) watch() {
	if !c.watching {
		c.watching = true
		c.box.After(quietAfter, quiet{c.writeSeq})
	}
}

func (c *Consensus) receiveQuiet(m quiet) {
	c.watching = false
	switch {
	case c.err != nil:
	case m.writes != c.writeSeq || c.saving != nil || c.installing():
		c.watch()
	case c.grown >= max(min(quietBytes, c.env.SnapshotBytes), c.lastSize/4):
		c.save()
	}
}

// save writes a snapshot of what is applied.
func (c *Consensus) save() {
	if c.saving != nil || c.installing() || c.err != nil || c.state.Index() == 0 || c.applied == c.base {
		return
	}
	c.saving = c.conf
	s := c.snapshot(c.applied, c.appliedAt)
	c.grown, c.lastSize, c.base = 0, len(s.Data), c.applied
	c.env.Log.SaveSnapshot(s, func(err error) { c.box.Post(saved{s.Index, err}) })
}

func (c *Consensus) snapshot(index, term uint64) catalog.LogSnapshot {
	return catalog.LogSnapshot{Index: index, Term: term, Data: encodeSnapshot(c.conf, c.ledger, c.state.Snapshot())}
}

func (c *Consensus) receiveSaved(m saved) {
	if c.err != nil {
		return
	}
	if m.err != nil {
		c.fail(fmt.Errorf("consensus: write a snapshot: %w", m.err))
		return
	}
	if c.imaging {
		c.imaging = false
		c.install(c.writes[0])
		return
	}
	conf := c.saving
	c.saving = nil
	// Memory keeps no copy of the snapshot's data: what another member needs is made when it asks.
	if _, err := c.mem.CreateSnapshot(m.index, conf, nil); err != nil {
		c.fail(fmt.Errorf("consensus: snapshot at %d: %w", m.index, err))
		return
	}
	from, err := c.tail(m.index)
	if err == nil {
		err = c.mem.Compact(from)
	}
	if err != nil && !errors.Is(err, raft.ErrCompacted) {
		c.fail(fmt.Errorf("consensus: compact to %d: %w", from, err))
		return
	}
	trace.Info(c.env.Trace, "consensus.compacted", slog.Uint64("index", m.index), slog.Int("bytes", c.lastSize))
	c.issue()
}

// tail is up to where entries are dropped from memory when the log was compacted to index: with other members, some of what is in the
// snapshot is kept for those that lag a little.
func (c *Consensus) tail(index uint64) (uint64, error) {
	if c.alone() {
		return index, nil
	}
	low, err := c.mem.FirstIndex()
	if err != nil || low > index {
		return index, err
	}
	entries, err := c.mem.Entries(low, index+1, 1<<62)
	if err != nil {
		return index, err
	}
	left := min(c.env.SnapshotBytes/4, 256<<10)
	for i := len(entries) - 1; i >= 0; i-- {
		if left -= len(entries[i].GetData()) + entryOverhead; left < 0 {
			return entries[i].GetIndex(), nil
		}
	}
	return low - 1, nil
}

// entryOverhead is about what an entry takes in memory beside its data.
const entryOverhead = 100

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }
