package consensus

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/port/trace"
)

// How campaigns are staggered: by a voter's rank among the voters, with a little of its own so that two never stay in step.
const (
	rankStep   = 30 * time.Millisecond
	rankJitter = 10 * time.Millisecond
	// After PeerDown all voters know at about the same time that there is no leader.
	hastyStep    = 10 * time.Millisecond
	hastyJitter  = 2 * time.Millisecond
	hastyAgain   = 30 * time.Millisecond
	hastyRetries = 5
	waitingEvery = 3 * time.Second
)

// election is what a member that does not lead knows of the leader, and when it campaigns.
type election struct {
	heard      time.Duration // the leader, last
	leaderless time.Duration // since when there is none
	lost       uint64        // the leader that was forgotten because it is down; 0: none
	hasty      int           // campaigns that may still follow at short intervals
	armed      bool          // a campaign is to come
	round      uint64        // of the timers; earlier ones mean nothing
	count      uint64        // campaigns
}

// stall is a leader's journal that does not sync.
type stall struct {
	handed time.Duration // when leadership was offered to another; 0: not
	mute   bool          // nobody took it: nothing is sent any more
}

// Messages of timers.
type (
	tick     struct{}
	silence  struct{ round uint64 }
	campaign struct{ round uint64 }
)

// keepTicking sets the next tick where there are others.
func (c *Consensus) keepTicking() {
	if c.ticking || c.node == nil || c.alone() {
		return
	}
	c.ticking, c.tickAt = true, c.now()+c.env.Heartbeat
	c.box.After(c.env.Heartbeat, tick{})
}

func (c *Consensus) receiveTick() {
	c.ticking = false
	if c.err != nil {
		return
	}
	now := c.now()
	if late := now - c.tickAt; late > c.env.ElectionTimeout {
		c.stoodStill(late, now)
	}
	if c.leads() {
		c.watchJournal(now)
		if !c.stall.mute {
			c.node.Tick()
			c.reship(now)
		}
	} else {
		c.watchLeader(now)
	}
	c.retry(false)
	c.sayWaiting(now)
	c.keepTicking()
}

// watchLeader sets a timer for the moment when the leader will have been silent for too long, if that is before the next tick.
func (c *Consensus) watchLeader(now time.Duration) {
	if c.soft.Lead == 0 {
		c.arm(false)
		return
	}
	if left := c.election.heard + c.env.ElectionTimeout - now; left <= c.env.Heartbeat {
		c.box.After(max(left, 0), silence{c.election.round})
	}
}

func (c *Consensus) receiveSilence(m silence) {
	if c.err != nil || m.round != c.election.round || c.soft.Lead == 0 || c.leads() ||
		c.now()-c.election.heard < c.env.ElectionTimeout {
		return
	}
	trace.Info(c.env.Trace, "consensus.leader.silent", slog.String("leader", name(c.soft.Lead)))
	c.abandon(false)
}

// abandon forgets the leader, so that this voter may vote for another, and campaigns when it is its turn.
func (c *Consensus) abandon(hasty bool) {
	c.election.lost, c.election.hasty = 0, 0
	if hasty {
		c.election.lost, c.election.hasty = c.soft.Lead, hastyRetries
	}
	c.election.armed = false
	if err := c.node.ForgetLeader(); err != nil {
		trace.Warn(c.env.Trace, "consensus.leader.forget", slog.Any("error", err))
	}
	c.arm(true)
}

// rank is this voter's place among those that may campaign; −1: it does not vote.
func (c *Consensus) rank() int {
	rank := -1
	for i, id := range c.candidates() {
		if id == c.id {
			rank = i
		}
	}
	return rank
}

func (c *Consensus) candidates() []uint64 {
	voters := slices.Clone(c.conf.GetVoters())
	slices.Sort(voters)
	return slices.DeleteFunc(voters, func(id uint64) bool { return id == c.election.lost })
}

// arm sets the timer of the next campaign, unless one is set.
func (c *Consensus) arm(first bool) {
	e := &c.election
	rank := time.Duration(c.rank())
	if e.armed || rank < 0 {
		return
	}
	e.armed = true
	e.round++
	e.count++
	var d time.Duration
	switch {
	case e.hasty > 0 && first:
		d = rank*hastyStep + c.jitter(hastyJitter)
	case e.hasty > 0:
		d = hastyAgain + rank*hastyStep + c.jitter(hastyJitter)
	case first:
		d = rank*rankStep + c.jitter(rankJitter)
	default:
		d = c.env.ElectionTimeout/2 + rank*rankStep + c.jitter(rankJitter)
	}
	c.box.After(d, campaign{e.round})
}

// armStart sets the timer of the first campaign: a leader that is there shows itself at its next heartbeat.
func (c *Consensus) armStart() {
	if rank := c.rank(); rank >= 0 {
		e := &c.election
		e.armed = true
		e.round++
		c.box.After(c.env.Heartbeat*3/2+time.Duration(rank)*rankStep+c.jitter(rankJitter), campaign{e.round})
	}
}

// jitter is a duration below limit, from nothing but who we are and how often we have campaigned.
func (c *Consensus) jitter(limit time.Duration) time.Duration {
	x := c.id ^ c.env.Local.Boot<<32 ^ c.election.count*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return time.Duration((x ^ x>>31) % uint64(limit))
}

func (c *Consensus) receiveCampaign(m campaign) {
	e := &c.election
	if c.err != nil || m.round != e.round || !e.armed {
		return
	}
	e.armed = false
	if c.soft.Lead != 0 {
		return
	}
	e.hasty = max(e.hasty-1, 0)
	if !c.stalled(c.now()) {
		if err := c.node.Campaign(); err != nil {
			trace.Warn(c.env.Trace, "consensus.campaign", slog.Any("error", err))
		}
	}
	c.arm(false)
}

// turnTerm notices a new term, and a vote for another: it gets the time to win.
func (c *Consensus) turnTerm(h *raftpb.HardState) {
	voted := h.GetTerm() > c.term && h.GetVote() != 0 && h.GetVote() != c.id
	c.term = h.GetTerm()
	if voted && c.election.armed {
		c.election.armed = false
		c.arm(false)
	}
}

// turnLeader notices who leads, and whether that is this member.
func (c *Consensus) turnLeader(s raft.SoftState) {
	before := c.soft
	c.soft = s
	now := c.now()
	if before.Lead != s.Lead {
		trace.Info(c.env.Trace, "consensus.leader", slog.String("leader", name(s.Lead)), slog.Uint64("term", c.term))
	}
	if !c.leads() && c.led != 0 {
		c.stepDown()
	}
	if before.RaftState != s.RaftState {
		c.stall = stall{}
		clear(c.shipped)
	}
	e := &c.election
	if s.Lead == 0 {
		if before.Lead != 0 {
			e.leaderless, c.told = now, now
		}
		if !c.alone() {
			c.arm(false)
		}
		return
	}
	e.heard = now
	if before.Lead != s.Lead {
		e.armed, e.lost, e.hasty = false, 0, 0
		e.round++
		c.retry(true)
	}
}

// tellLeader says who leads, and in which term, when either has changed. A leader that was lost and won again within one round is another.
func (c *Consensus) tellLeader() {
	if c.soft.Lead == c.saidLead && (c.soft.Lead == 0 || c.term == c.saidTerm) {
		return
	}
	c.saidLead, c.saidTerm = c.soft.Lead, c.term
	if c.env.Leader != nil {
		c.env.Leader(c.term, c.soft.Lead)
	}
}

func (c *Consensus) stepDown() {
	term := c.led
	c.led = 0
	if c.changing != nil {
		done := c.changing.done
		c.changing = nil
		done(fmt.Errorf("%w: leadership was lost while the members changed", ErrUncertain))
	}
	if c.env.Leading != nil {
		c.env.Leading(term, false)
	}
}

// receiveMessage takes what another member sent.
func (c *Consensus) receiveMessage(b []byte) {
	if c.node == nil || c.err != nil {
		return // as good as lost, which a transport may do
	}
	if len(b) > 0 && b[0] != kindRaft {
		c.receiveNotice(b)
		return
	}
	m := &raftpb.Message{}
	if len(b) == 0 || proto.Unmarshal(b[1:], m) != nil {
		trace.Warn(c.env.Trace, "consensus.message.malformed", slog.Int("bytes", len(b)))
		return
	}
	if m.GetTo() != c.id || m.GetFrom() == c.id || c.late(m.GetFrom()) {
		return // for a store that was here before, or from a session that has ended
	}
	if c.ledger.isRemoved(m.GetFrom()) {
		c.notify(m.GetFrom())
		return
	}
	now := c.now()
	c.heard[m.GetFrom()] = now
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetTerm() >= c.term {
			c.election.heard = now
		}
	case raftpb.MsgProp, raftpb.MsgReadIndex:
		if !c.leads() || !c.admits(m) {
			return // who sent it asks again
		}
	case raftpb.MsgTimeoutNow:
		if c.stalled(now) {
			return
		}
	}
	// Proposals are dropped while leadership is handed over, and a member may answer before this one knows that it is one, or after it was.
	if err := c.node.Step(m); err != nil && m.GetType() != raftpb.MsgProp && !errors.Is(err, raft.ErrStepPeerNotFound) {
		trace.Warn(c.env.Trace, "consensus.message.refused", slog.Any("error", err))
	}
}

// admits says whether a leader takes what another member forwards to it: an entry that nobody can read would stop every member.
func (c *Consensus) admits(m *raftpb.Message) bool {
	if !c.member(m.GetFrom()) || len(m.GetEntries()) == 0 {
		return false
	}
	if m.GetType() == raftpb.MsgReadIndex {
		return true
	}
	for _, e := range m.GetEntries() {
		h, _, err := decodeProposal(e.GetData())
		if err != nil || e.GetType() != raftpb.EntryNormal || h.id != m.GetFrom() {
			trace.Warn(c.env.Trace, "consensus.proposal.malformed", slog.String("from", name(m.GetFrom())))
			return false
		}
	}
	return true
}

// late says whether what comes from a member now was sent before it was lost. That is never believed for long.
func (c *Consensus) late(from uint64) bool {
	at, down := c.down[from]
	return down && c.now()-at < c.env.ElectionTimeout
}

func (c *Consensus) receiveDown(id uint64) {
	c.down[id] = c.now()
	switch {
	case c.node == nil || c.err != nil:
	case c.leads():
		c.node.ReportUnreachable(id)
		if _, ok := c.shipped[id]; ok {
			delete(c.shipped, id)
			c.node.ReportSnapshot(id, raft.SnapshotFinish)
		}
	case id == c.soft.Lead:
		trace.Info(c.env.Trace, "consensus.leader.down", slog.String("leader", name(id)))
		c.abandon(true)
	}
}

// receiveUp shows the leader's presence to a member at once instead of at the next heartbeat.
func (c *Consensus) receiveUp(id uint64) {
	delete(c.down, id)
	if c.node == nil || c.err != nil || !c.leads() || !c.member(id) || c.stall.mute {
		return
	}
	if err := c.node.Step(&raftpb.Message{Type: raftpb.MsgBeat.Enum(), From: new(raft.LocalAppendThread)}); err != nil {
		trace.Warn(c.env.Trace, "consensus.beat", slog.Any("error", err))
	}
}

// stalled says whether the journal has not synced for too long.
func (c *Consensus) stalled(now time.Duration) bool {
	return len(c.writes) > 0 && now-c.writes[0].since > c.env.StallLimit
}

// stoodStill does not hold against the journal how late this member itself is: its process was stopped, or its machine was.
func (c *Consensus) stoodStill(late, now time.Duration) {
	for _, w := range c.writes {
		w.since = min(w.since+late, now)
	}
}

// watchJournal hands leadership on when the leader's own journal stalls; a majority of the others may have everything nevertheless. If
// nobody takes it, the leader falls silent, and is forgotten.
func (c *Consensus) watchJournal(now time.Duration) {
	switch {
	case len(c.conf.GetVoters()) < 2:
	case !c.stalled(now):
		c.stall = stall{}
	case c.stall.handed == 0:
		trace.Warn(c.env.Trace, "consensus.stalled", slog.Duration("for", now-c.writes[0].since))
		c.stall.handed = now
		c.receiveTransfer(0)
	case now-c.stall.handed > c.env.ElectionTimeout && !c.stall.mute:
		trace.Warn(c.env.Trace, "consensus.silent", slog.Duration("stalled", now-c.writes[0].since))
		c.stall.mute = true
	}
}

func (c *Consensus) receiveTransfer(to uint64) {
	if c.node == nil || c.err != nil || !c.leads() {
		return
	}
	if to == 0 {
		best := tracker.Progress{}
		c.node.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
			if id != c.id && typ == raft.ProgressTypePeer && pr.RecentActive && (to == 0 || pr.Match > best.Match) {
				to, best = id, pr
			}
		})
	}
	if to != 0 && slices.Contains(c.conf.GetVoters(), to) {
		trace.Info(c.env.Trace, "consensus.transfer", slog.String("to", name(to)))
		c.node.TransferLeader(to)
	}
}

// sayWaiting says what a start waits for, and asks the others whether this store is still one of them.
func (c *Consensus) sayWaiting(now time.Duration) {
	if c.soft.Lead != 0 && (c.ready || len(c.started) == 0) || now-c.told < waitingEvery {
		return
	}
	c.told = now
	var silent []string
	for _, id := range slices.Concat(c.conf.GetVoters(), c.conf.GetLearners()) {
		if id == c.id {
			continue
		}
		if at, ok := c.heard[id]; (!ok || now-at > waitingEvery) && slices.Contains(c.conf.GetVoters(), id) {
			silent = append(silent, name(id))
		}
		if c.soft.Lead == 0 {
			c.transmit(id, appendUvarints([]byte{kindPresent}, id, c.id))
		}
	}
	trace.Warn(c.env.Trace, "consensus.waiting", slog.String("leader", name(c.soft.Lead)), slog.Int("voters", len(c.conf.GetVoters())),
		slog.Any("silent", silent), slog.Bool("joining", len(c.conf.GetVoters()) == 0), slog.Uint64("applied", c.applied))
}

// name is a raft id as people see it: the first 16 digits of the store id, the first bit aside.
func name(id uint64) string {
	if id == 0 {
		return "none"
	}
	return strconv.FormatUint(id, 16)
}
