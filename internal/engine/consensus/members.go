package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/port/trace"
)

// ErrNotLeader is returned when a change of members is asked of a member that does not lead, or not yet. It was not made; ask the
// leader.
var ErrNotLeader = errors.New("consensus: this member does not lead")

// ErrChanging is returned when a change of members is asked for while another is under way. It was not made; a retry is safe.
var ErrChanging = errors.New("consensus: another change of members is under way")

// ErrNoChange is returned when a change of members would change nothing, or must not be made; the text says why. A retry is of no use
// before something else changes.
var ErrNoChange = errors.New("consensus: members not changed")

// MemberOp is what a change of members does.
type MemberOp uint8

// The changes.
const (
	AddLearner MemberOp = iota + 1 // a store that is no member, or a voter, applies everything, and does not vote
	AddVoter                       // a learner that has caught up votes
	Remove                         // for good; the leader may remove itself
)

// String is the change's name.
func (o MemberOp) String() string {
	switch o {
	case AddLearner:
		return "add learner"
	case AddVoter:
		return "add voter"
	case Remove:
		return "remove"
	}
	return "unknown"
}

// MemberChange is one change of members. ID is that of the store (see ID).
type MemberChange struct {
	Op MemberOp
	ID uint64
}

// change is the message, and changing the change under way.
type (
	change struct {
		MemberChange
		done func(error)
	}
	changing struct {
		seq  uint64
		done func(error)
	}
)

// Change changes the members, one at a time, on the leader. done is called once, on Env.Loop: with nil when it is applied here; with
// ErrNotLeader, ErrChanging or ErrNoChange, where it was not made; with ErrUncertain where leadership was lost meanwhile.
func (c *Consensus) Change(m MemberChange, done func(error)) { c.box.Post(change{m, done}) }

func (c *Consensus) receiveChange(m change) {
	if err := c.mayChange(m.MemberChange); err != nil {
		m.done(err)
		return
	}
	typ := map[MemberOp]raftpb.ConfChangeType{
		AddLearner: raftpb.ConfChangeAddLearnerNode, AddVoter: raftpb.ConfChangeAddNode, Remove: raftpb.ConfChangeRemoveNode,
	}[m.Op]
	c.writeSeq++ // any number that this run gives once
	err := c.node.ProposeConfChange(&raftpb.ConfChange{
		Type: typ.Enum(), NodeId: new(m.ID), Context: appendUvarints(nil, c.id, c.env.Local.Boot, c.writeSeq),
	})
	if err != nil {
		m.done(fmt.Errorf("%w: %s %s: %w", ErrChanging, m.Op, name(m.ID), err)) // a leader that hands over takes nothing
		return
	}
	c.changing = &changing{c.writeSeq, m.done}
}

// mayChange says why a change cannot be made. Raft itself drops, without a word, one that comes before everything of earlier terms is
// applied, and so does this by asking for led.
func (c *Consensus) mayChange(m MemberChange) error {
	refuse := func(why string) error { return fmt.Errorf("%w: %s %s: %s", ErrNoChange, m.Op, name(m.ID), why) }
	voters, learners := c.conf.GetVoters(), c.conf.GetLearners()
	votes, learns := slices.Contains(voters, m.ID), slices.Contains(learners, m.ID)
	switch {
	case c.err != nil:
		return fmt.Errorf("%w: %w", ErrNotLeader, c.err)
	case c.node == nil || c.led == 0:
		return fmt.Errorf("%w: the leader is %s", ErrNotLeader, name(c.soft.Lead))
	case c.changing != nil:
		return ErrChanging
	case m.ID == 0:
		return refuse("it names no store")
	case m.Op == AddLearner && c.ledger.isRemoved(m.ID):
		return refuse("the store was removed; its node can join again with an empty data directory")
	case m.Op == AddLearner && learns:
		return refuse("it is a learner already")
	case m.Op == AddLearner && votes && len(voters) == 1:
		return refuse("it is the last voter")
	case m.Op == AddLearner && votes && m.ID == c.id:
		return refuse("it leads, and hands on before it gives up its vote")
	case m.Op == AddVoter && votes:
		return refuse("it votes already")
	case m.Op == AddVoter && !learns:
		return refuse("it is not a learner")
	case m.Op == AddVoter && len(voters) >= MaxVoters:
		return refuse(fmt.Sprintf("there are %d voters", len(voters)))
	case m.Op == AddVoter && !c.caughtUp(m.ID):
		return refuse("it has not caught up with the log")
	case m.Op == Remove && !votes && !learns:
		return refuse("it is not a member")
	case m.Op == Remove && votes && len(voters) == 1:
		return refuse("it is the last voter")
	case m.Op < AddLearner || m.Op > Remove:
		return refuse("there is no such change")
	}
	return nil
}

// caughtUp says whether a learner has all that this leader has committed, but for what is on its way.
func (c *Consensus) caughtUp(id uint64) (ok bool) {
	c.node.WithProgress(func(of uint64, _ raft.ProgressType, pr tracker.Progress) {
		if of == id {
			ok = pr.RecentActive && pr.State == tracker.StateReplicate && pr.Match+maxLag >= c.applied
		}
	})
	return ok
}

// maxLag is how many entries a learner may lack that becomes a voter: what a leader that is busy has on its way.
const maxLag = 1024

func (c *Consensus) applyChange(e *raftpb.Entry) error {
	cc := &raftpb.ConfChange{}
	if e.GetType() != raftpb.EntryConfChange {
		return fmt.Errorf("%w: a change of members of a kind that this version does not make", errMalformed)
	}
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return err
	}
	c.conf = c.node.ApplyConfChange(cc)
	id := cc.GetNodeId()
	trace.Info(c.env.Trace, "consensus.members", slog.String("change", cc.GetType().String()), slog.String("member", name(id)),
		slog.Int("voters", len(c.conf.GetVoters())), slog.Int("learners", len(c.conf.GetLearners())))
	if cc.GetType() == raftpb.ConfChangeRemoveNode {
		c.ledger.remove(id)
		if c.leads() && id != c.id {
			c.notify(id)
		}
	}
	c.keepTicking()
	var by, boot, seq uint64
	if _, err := readUvarints(cc.GetContext(), &by, &boot, &seq); err != nil {
		return err
	}
	if ch := c.changing; ch != nil && by == c.id && boot == c.env.Local.Boot && seq == ch.seq {
		c.changing = nil
		ch.done(nil)
	}
	return nil
}

// leave stops a member that has applied its own removal, once all that told the others is sent.
func (c *Consensus) leave() {
	if c.ledger.isRemoved(c.id) {
		c.fail(fmt.Errorf("%w (entry %d)", ErrRemoved, c.applied))
	}
}

func (c *Consensus) member(id uint64) bool {
	return slices.Contains(c.conf.GetVoters(), id) || slices.Contains(c.conf.GetLearners(), id)
}

// notify tells a store that it was removed: nobody sends it the entry that says so.
func (c *Consensus) notify(id uint64) {
	c.transmit(id, appendUvarints([]byte{kindRemoved}, id, c.id, c.applied))
}

// receiveNotice takes a message that is not raft's.
func (c *Consensus) receiveNotice(b []byte) {
	var to, from uint64
	rest, err := readUvarints(b[1:], &to, &from)
	switch {
	case err != nil:
		trace.Warn(c.env.Trace, "consensus.message.malformed", slog.Int("bytes", len(b)))
	case to != c.id:
	case b[0] == kindPresent && c.ledger.isRemoved(from):
		c.notify(from)
	case b[0] == kindRemoved:
		var at uint64
		if _, err := readUvarints(rest, &at); err == nil {
			c.fail(fmt.Errorf("%w (told by %s, entry %d)", ErrRemoved, name(from), at))
		}
	}
}
