package consensus

import (
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tanist/tanist/internal/core/catalog"
)

// retryEvery is how often what another member should have answered is sent again. A new leader is asked at once.
const retryEvery = time.Second

// proposal is a command without an outcome.
type proposal struct {
	cmd  []byte
	done func(catalog.Result, error)
	term uint64        // the only one that it may be appended in, by this member as its leader; 0: whoever leads may
	at   time.Duration // when it was proposed
	sent bool          // it may be in some member's log
}

// proposals are this run's. Sequences are dense, so the oldest open one says which have an outcome.
type proposals struct {
	gathered []proposal // to be proposed at the next Flush
	waiting  map[uint64]*proposal
	seq      uint64 // the last given
	low      uint64 // no sequence below waits
	retried  time.Duration
}

func newProposals() proposals { return proposals{waiting: map[uint64]*proposal{}, low: 1} }

func (p *proposals) open() int { return len(p.waiting) + len(p.gathered) }

// lowest is the oldest sequence that waits, or the next to be given.
func (p *proposals) lowest() uint64 {
	for p.low <= p.seq && p.waiting[p.low] == nil {
		p.low++
	}
	return p.low
}

// take removes a proposal that has an outcome; nil: it waits no more.
func (p *proposals) take(seq uint64) *proposal {
	w := p.waiting[seq]
	delete(p.waiting, seq)
	return w
}

// end answers all.
func (p *proposals) end(err error) {
	for _, w := range p.gathered {
		w.done(catalog.Result{}, fmt.Errorf("%w: %w", ErrNotProposed, err))
	}
	for _, seq := range sortedKeys(p.waiting) {
		w := p.waiting[seq]
		w.done(catalog.Result{}, fmt.Errorf("%w: %w", w.unsettled(), err))
	}
	p.gathered = nil
	clear(p.waiting)
}

func (w *proposal) unsettled() error {
	if w.sent {
		return ErrUncertain
	}
	return ErrNotProposed
}

func (c *Consensus) receiveProposal(p proposal) {
	ps := &c.proposals
	// A single one that stays open while others pass it must not let the ledger grow without bound.
	window := int(ps.seq+1-ps.lowest()) + len(ps.gathered)
	switch {
	case c.err != nil:
		p.done(catalog.Result{}, fmt.Errorf("%w: %w", ErrNotProposed, c.err))
	case max(ps.open(), window) >= c.env.MaxInFlight:
		p.done(catalog.Result{}, fmt.Errorf("%w: %d proposals wait already", ErrNotProposed, ps.open()))
	default:
		p.at = c.now()
		ps.gathered = append(ps.gathered, p)
	}
}

// propose hands to raft what was gathered since the last Flush.
func (c *Consensus) propose() {
	if len(c.proposals.gathered) == 0 {
		return
	}
	ps := c.proposals.gathered
	c.proposals.gathered = nil
	var over []proposal
	ps = slices.DeleteFunc(ps, func(p proposal) bool {
		if p.term != 0 && !c.leadsIn(p.term) {
			over = append(over, p)
			return true
		}
		return false
	})
	c.submit(ps)
	for _, p := range over {
		p.done(catalog.Result{}, termOver(p.term))
	}
}

// leadsIn says whether raft would append here, in a term, what is proposed now. What this member has taken note of may be behind that.
func (c *Consensus) leadsIn(term uint64) bool {
	st := c.node.BasicStatus()
	return st.RaftState == raft.StateLeader && st.GetTerm() == term
}

func termOver(term uint64) error {
	return fmt.Errorf("%w: the term %d, which it was decided in, is over", ErrNotProposed, term)
}

// endTerms ends what is bound to a term before that of the last entry applied: a log's terms do not fall, so none of it that is not applied by now
// will ever be.
func (c *Consensus) endTerms() {
	c.endBound(func(w *proposal) bool { return w.term < c.appliedAt })
}

// endUnsent ends what is bound to a term that is over before raft took it.
func (c *Consensus) endUnsent() {
	c.endBound(func(w *proposal) bool { return !w.sent && !c.leadsIn(w.term) })
}

func (c *Consensus) endBound(which func(*proposal) bool) {
	ps := &c.proposals
	for seq := ps.lowest(); seq <= ps.seq; seq++ {
		if w := ps.waiting[seq]; w != nil && w.term != 0 && which(w) {
			ps.take(seq).done(catalog.Result{}, termOver(w.term))
		}
	}
}

// submit numbers commands and gives them to raft.
func (c *Consensus) submit(all []proposal) {
	ps := &c.proposals
	from := ps.seq + 1
	for i := range all {
		ps.seq++
		ps.waiting[ps.seq] = &all[i]
	}
	seqs := make([]uint64, 0, len(all))
	for seq := from; seq <= ps.seq; seq++ {
		seqs = append(seqs, seq)
	}
	if len(seqs) == 0 {
		return
	}
	err := c.forward(seqs)
	if err == nil || !c.alone() {
		return // what was not sent is sent to the next leader
	}
	for _, seq := range seqs {
		if w := ps.waiting[seq]; !w.sent {
			ps.take(seq).done(catalog.Result{}, fmt.Errorf("%w: %w", ErrNotProposed, err))
		}
	}
}

// forward gives proposals to raft, which appends them here or sends them to the leader, in messages of up to maxPiece bytes.
func (c *Consensus) forward(seqs []uint64) error {
	ps := &c.proposals
	low := ps.lowest()
	for len(seqs) > 0 {
		m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(c.id), Entries: make([]*raftpb.Entry, 0, len(seqs))}
		size, n := 0, 0
		for ; n < len(seqs) && (n == 0 || size < maxPiece); n++ {
			data := encodeProposal(header{c.id, c.env.Local.Boot, seqs[n], low}, ps.waiting[seqs[n]].cmd)
			m.Entries = append(m.Entries, &raftpb.Entry{Data: data})
			size += len(data)
		}
		if err := c.node.Step(m); err != nil {
			return err
		}
		for _, seq := range seqs[:n] {
			ps.waiting[seq].sent = true
		}
		seqs = seqs[n:]
	}
	return nil
}

// retry sends again what has no outcome, and ends what has waited for too long. all says that there is a new leader, which may have
// nothing of it; otherwise it is for what is older than retryEvery.
func (c *Consensus) retry(all bool) {
	ps := &c.proposals
	now := c.now()
	if !all && now-ps.retried < min(retryEvery, c.env.ProposeTimeout/4) {
		return
	}
	ps.retried = now
	c.expire(now)
	c.endUnsent()
	c.reask(all)
	if !c.ready || c.soft.Lead == 0 || c.err != nil {
		return
	}
	var again []uint64
	for seq := ps.lowest(); seq <= ps.seq; seq++ {
		w := ps.waiting[seq]
		// What a leader has appended stays in its log for as long as it leads.
		if w == nil || w.sent && (w.term != 0 || !all && (c.leads() || now-w.at < retryEvery)) {
			continue
		}
		again = append(again, seq)
	}
	if err := c.forward(again); err != nil {
		return // a leader that hands over takes nothing; it is tried again
	}
}

// expire ends proposals and barriers that have waited for too long.
func (c *Consensus) expire(now time.Duration) {
	limit, since, why := 3*c.env.ProposeTimeout, time.Duration(0), "the catalog's leader does not answer"
	if c.soft.Lead == 0 {
		limit, since, why = c.env.ProposeTimeout, c.election.leaderless, "the catalog has no quorum: no leader"
	}
	late := func(at time.Duration) bool { return now-max(at, since) >= limit }
	ps := &c.proposals
	for seq := ps.lowest(); seq <= ps.seq; seq++ {
		if w := ps.waiting[seq]; w != nil && late(w.at) {
			ps.take(seq).done(catalog.Result{}, fmt.Errorf("%w: %s for %v", w.unsettled(), why, limit))
		}
	}
	n := 0
	for n < len(ps.gathered) && late(ps.gathered[n].at) {
		n++
	}
	ended := ps.gathered[:n]
	ps.gathered = ps.gathered[n:]
	for _, w := range ended {
		w.done(catalog.Result{}, fmt.Errorf("%w: %s for %v", ErrNotProposed, why, limit))
	}
	var left, over []barrier
	for _, b := range c.barriers {
		if !b.lasting && late(b.at) {
			over = append(over, b)
		} else {
			left = append(left, b)
		}
	}
	c.barriers = left
	for _, b := range over {
		b.done(fmt.Errorf("%w: %s for %v", ErrNotProposed, why, limit))
	}
}

// forget answers the proposals that a snapshot has passed: they count, but what came of them is not in it.
func (c *Consensus) forget() {
	ps := &c.proposals
	for seq := ps.lowest(); seq <= ps.seq; seq++ {
		if ps.waiting[seq] != nil && c.ledger.applied(c.id, c.env.Local.Boot, seq) {
			c.lose(ps.take(seq))
		}
	}
	c.endTerms()
}

func (c *Consensus) lose(w *proposal) {
	w.done(catalog.Result{}, fmt.Errorf("%w: applied, but a snapshot of the catalog came in the place of the outcome", ErrUncertain))
}
