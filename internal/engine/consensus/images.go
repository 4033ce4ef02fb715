package consensus

import (
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/trace"
)

// image is a snapshot that the leader sent because its log does not reach back far enough, decoded.
type image struct {
	snapshot catalog.LogSnapshot
	conf     *raftpb.ConfState
	ledger   *ledger
	state    *catalog.State
}

// memory is what raft reads of the log. Snapshots are made when another member needs one.
type memory struct {
	*raft.MemoryStorage
	c *Consensus
}

// Snapshot is the catalog as applied. It need not be durable here: what is applied is durable on a majority.
func (m memory) Snapshot() (*raftpb.Snapshot, error) {
	c := m.c
	if c.applying || c.installing() || c.applied == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	s := c.snapshot(c.applied, c.appliedAt)
	return &raftpb.Snapshot{Data: s.Data, Metadata: metadata(c.conf, s)}, nil
}

func metadata(conf *raftpb.ConfState, s catalog.LogSnapshot) *raftpb.SnapshotMetadata {
	return &raftpb.SnapshotMetadata{ConfState: conf, Index: new(s.Index), Term: new(s.Term)}
}

// installing says whether a snapshot of the leader's is on its way into the log.
func (c *Consensus) installing() bool {
	for _, w := range c.writes {
		if w.image != nil {
			return true
		}
	}
	return false
}

// receiveImage decodes a snapshot before anything of it is written; nil: there is none.
func (c *Consensus) receiveImage(s *raftpb.Snapshot) *image {
	if raft.IsEmptySnap(s) {
		return nil
	}
	im := &image{snapshot: catalog.LogSnapshot{Index: s.GetMetadata().GetIndex(), Term: s.GetMetadata().GetTerm(), Data: s.GetData()}}
	var data []byte
	var err error
	if im.conf, im.ledger, data, err = decodeSnapshot(s.GetData()); err == nil {
		im.state, err = catalog.Restore(data)
	}
	if here := c.generation(); err == nil && im.ledger.generation() != here {
		err = fmt.Errorf("it is of generation %s, this member goes by %s", im.ledger.generation(), here) // no session should have carried it
	}
	if err != nil {
		c.fail(fmt.Errorf("consensus: snapshot at %d from the leader: %w", im.snapshot.Index, err))
		return nil
	}
	return im
}

// saveImage writes a snapshot. Raft hears of it, and so the leader, only when it is durable (see install), and so a crash leaves
// either the log as it was or one that begins with the snapshot.
func (c *Consensus) saveImage(w *write) {
	c.imaging = true
	s := w.image.snapshot
	c.env.Log.SaveSnapshot(s, func(err error) { c.box.Post(saved{s.Index, err}) })
}

// install takes the catalog from a snapshot that is durable, and goes on with the rest of its write.
func (c *Consensus) install(w *write) {
	im := w.image
	w.image = nil
	meta := metadata(im.conf, im.snapshot)
	if err := c.mem.ApplySnapshot(&raftpb.Snapshot{Metadata: meta}); err != nil {
		c.fail(fmt.Errorf("consensus: snapshot at %d: %w", im.snapshot.Index, err))
		return
	}
	changes := catalog.Diff(c.state, im.state)
	c.state, c.ledger, c.conf = im.state, im.ledger, im.conf
	c.applied, c.appliedAt = im.snapshot.Index, im.snapshot.Term
	c.grown, c.lastSize, c.base = 0, len(im.snapshot.Data), c.applied
	trace.Info(c.env.Trace, "consensus.snapshot.installed", slog.Uint64("index", c.applied), slog.Int("bytes", c.lastSize),
		slog.Int("voters", len(c.conf.GetVoters())))
	c.tell(changes)
	c.forget()
	c.keepTicking()
	c.reask(true) // a member that did not know who the others are has dropped their answers
	c.issue()
}

// Snapshots on their way. Raft sends nothing else to a member that a snapshot is on its way to, and does not know that it may be lost.
const (
	shipWithin = 2 * time.Second
	shipRate   = 4 << 20 // bytes per second, at least
)

func (c *Consensus) noteShipped(to uint64, size int) {
	trace.Info(c.env.Trace, "consensus.snapshot.sent", slog.String("to", name(to)), slog.Int("bytes", size))
	c.shipped[to] = c.now() + shipWithin + time.Duration(size)*time.Second/shipRate
}

// reship gives up waiting for answers to snapshots. The next message to the member then follows the snapshot: where only the answer was
// lost, it goes on from there; where the snapshot was, it says what it has, and is sent another.
func (c *Consensus) reship(now time.Duration) {
	if len(c.shipped) == 0 {
		return
	}
	c.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if at, ok := c.shipped[id]; ok && pr.State != tracker.StateSnapshot {
			delete(c.shipped, id)
		} else if ok && now >= at {
			delete(c.shipped, id)
			c.node.ReportSnapshot(id, raft.SnapshotFinish)
		}
	})
}
