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

// propose hands to raft what was gathered since the last Flush.
func (c *Consensus) propose() {
	if len(c.gathered) == 0 {
		return
	}
	ps := c.gathered
	c.gathered = nil
	c.submit(ps)
}

// submit proposes commands in one message to raft, so that they are one append.
func (c *Consensus) submit(ps []proposal) {
	m := &raftpb.Message{
		Type: raftpb.MsgProp.Enum(), From: new(ID(c.env.Local.Store)), Entries: make([]*raftpb.Entry, len(ps)),
	}
	from := c.seq + 1
	for i, p := range ps {
		c.seq++
		c.waiting[c.seq] = p.done
		m.Entries[i] = &raftpb.Entry{Data: encodeProposal(header{m.GetFrom(), c.env.Local.Boot, c.seq}, p.cmd)}
	}
	err := c.node.Step(m)
	if err == nil {
		return
	}
	for seq := from; seq <= c.seq; seq++ {
		done := c.waiting[seq]
		delete(c.waiting, seq)
		done(catalog.Result{}, fmt.Errorf("%w: %w", ErrNotProposed, err))
	}
}

// process does what raft asks for until it asks for nothing.
func (c *Consensus) process() {
	for c.err == nil && c.node.HasReady() {
		rd := c.node.Ready()
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
	c.passBarriers()
	c.compact()
}

func (c *Consensus) send(m *raftpb.Message) {
	if c.env.Transport == nil {
		trace.Warn(c.env.Trace, "consensus.message.dropped", slog.Uint64("to", m.GetTo()))
		return
	}
	b, err := proto.Marshal(m)
	if err != nil {
		c.fail(fmt.Errorf("consensus: encode a message: %w", err))
		return
	}
	c.env.Transport.Send(m.GetTo(), b)
}

// append writes hard state and entries. A hard state that nobody waits for, which is one whose commit index moved, is written with
// the next append: losing it costs nothing, and a sync is saved for each command.
func (c *Consensus) append(m *raftpb.Message) {
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		c.fail(errors.New("consensus: got a snapshot from another voter, which this version cannot take"))
		return
	}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		hard, err := proto.Marshal(&raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit})
		if err != nil {
			c.fail(fmt.Errorf("consensus: encode the hard state: %w", err))
			return
		}
		c.hard = hard
	}
	if len(m.GetResponses()) == 0 && len(m.GetEntries()) == 0 {
		return
	}
	c.writeSeq++
	w := &write{seq: c.writeSeq, entries: m.GetEntries(), responses: m.GetResponses()}
	c.writes = append(c.writes, w)
	c.watch()
	if len(w.entries) == 0 && c.hard == nil {
		c.settle() // nothing to write, but earlier writes come first
		return
	}
	entries := make([]catalog.LogEntry, len(w.entries))
	for i, e := range w.entries {
		entries[i] = encodeEntry(e)
		c.grown += len(entries[i].Data)
	}
	c.write(w, entries)
}

// write gives a write to the log in pieces that fit a group of the journal. That they are not durable together does no harm: the
// hard state comes first, and each piece continues the one before.
func (c *Consensus) write(w *write, entries []catalog.LogEntry) {
	hard, seq := c.hard, w.seq
	c.hard = nil
	for first := true; first || len(entries) > 0; first = false {
		n, size := 0, 0
		for n < len(entries) && (n == 0 || size+len(entries[n].Data) <= maxPiece) {
			size += len(entries[n].Data)
			n++
		}
		w.left++
		c.env.Log.Append(hard, entries[:n:n], func(err error) { c.box.Post(appended{seq, err}) })
		hard, entries = nil, entries[n:]
	}
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
}

// settle tells raft of the writes that are durable, oldest first.
func (c *Consensus) settle() {
	for len(c.writes) > 0 && c.writes[0].left == 0 {
		w := c.writes[0]
		c.writes = c.writes[1:]
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
	if m.GetTo() != ID(c.env.Local.Store) {
		c.send(m)
		return
	}
	if err := c.node.Step(m); err != nil {
		trace.Warn(c.env.Trace, "consensus.response.refused", slog.Any("error", err))
	}
}

// outcome is a proposal of this run that was applied.
type outcome struct {
	done   func(catalog.Result, error)
	result catalog.Result
}

// apply applies committed entries, tells the listeners of them all, and then the proposers.
func (c *Consensus) apply(m *raftpb.Message) {
	var changes []catalog.Change
	var outcomes []outcome
	for _, e := range m.GetEntries() {
		ch, o, err := c.applyEntry(e)
		if err != nil {
			c.fail(fmt.Errorf("consensus: apply entry %d: %w", e.GetIndex(), err))
			return
		}
		changes = append(changes, ch...)
		if o.done != nil {
			outcomes = append(outcomes, o)
		}
		c.applied, c.appliedTerm = e.GetIndex(), e.GetTerm()
	}
	for _, r := range m.GetResponses() {
		c.respond(r)
	}
	if c.ready && len(changes) > 0 {
		for _, to := range c.listeners {
			to(changes)
		}
	}
	for _, o := range outcomes {
		o.done(o.result, nil)
	}
}

func (c *Consensus) applyEntry(e *raftpb.Entry) ([]catalog.Change, outcome, error) {
	switch e.GetType() {
	case raftpb.EntryConfChange:
		cc := &raftpb.ConfChange{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return nil, outcome{}, err
		}
		c.conf = c.node.ApplyConfChange(cc)
		return nil, outcome{}, nil
	case raftpb.EntryConfChangeV2:
		cc := &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), cc); err != nil {
			return nil, outcome{}, err
		}
		c.conf = c.node.ApplyConfChange(cc)
		return nil, outcome{}, nil
	}
	if len(e.GetData()) == 0 {
		return nil, outcome{}, nil // a leader's first entry
	}
	h, cmd, err := decodeProposal(e.GetData())
	if err != nil {
		return nil, outcome{}, err
	}
	result, changes, err := c.state.Apply(e.GetIndex(), cmd)
	if err != nil {
		return nil, outcome{}, err
	}
	o := outcome{result: result}
	if h.id == ID(c.env.Local.Store) && h.boot == c.env.Local.Boot {
		o.done = c.waiting[h.seq]
		delete(c.waiting, h.seq)
	}
	return changes, o, nil
}

func (c *Consensus) readAt(r raft.ReadState) {
	ctx := unmarshalContext(r.RequestCtx)
	for i := range c.barriers {
		if c.barriers[i].ctx == ctx {
			c.barriers[i].index = max(r.Index, 1)
		}
	}
}

func (c *Consensus) passBarriers() {
	var left, pass []barrier
	for _, b := range c.barriers {
		if b.index != 0 && b.index <= c.applied {
			pass = append(pass, b)
		} else {
			left = append(left, b)
		}
	}
	c.barriers = left
	for _, b := range pass {
		b.done(nil)
	}
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
	case m.writes != c.writeSeq || c.saving != nil:
		c.watch()
	case c.grown >= max(min(quietBytes, c.env.SnapshotBytes), c.lastSize/4):
		c.save()
	}
}

// save writes a snapshot of what is applied.
func (c *Consensus) save() {
	if c.saving != nil || c.err != nil || c.state.Index() == 0 {
		return
	}
	c.saving = c.conf
	s := c.snapshot(c.applied, c.appliedTerm)
	c.grown, c.lastSize = 0, len(s.Data)
	c.env.Log.SaveSnapshot(s, func(err error) { c.box.Post(saved{s.Index, err}) })
}

func (c *Consensus) snapshot(index, term uint64) catalog.LogSnapshot {
	return catalog.LogSnapshot{Index: index, Term: term, Data: encodeSnapshot(c.conf, c.state.Snapshot())}
}

func (c *Consensus) receiveSaved(m saved) {
	if c.err != nil {
		return
	}
	if m.err != nil {
		c.fail(fmt.Errorf("consensus: write a snapshot: %w", m.err))
		return
	}
	conf := c.saving
	c.saving = nil
	// Memory keeps no copy of the snapshot's data: what another voter needs can be made when it asks.
	if _, err := c.mem.CreateSnapshot(m.index, conf, nil); err != nil {
		c.fail(fmt.Errorf("consensus: snapshot at %d: %w", m.index, err))
		return
	}
	if err := c.mem.Compact(m.index); err != nil {
		c.fail(fmt.Errorf("consensus: compact to %d: %w", m.index, err))
		return
	}
	trace.Info(c.env.Trace, "consensus.compacted", slog.Uint64("index", m.index), slog.Int("bytes", c.lastSize))
}

func sortedKeys[V any](m map[uint64]V) []uint64 { return slices.Sorted(maps.Keys(m)) }
