package controller

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/port/trace"
)

type step uint8

const (
	recording step = iota
	sealing
	committing
	cancelling
	waiting
)

// transition is one change of owner under way, at one version of the assignment: a new version is a new transition here, so that what is
// late for an old one finds nothing.
type transition struct {
	assignment *catalog.Assignment
	kind       catalog.Kind
	why        control.Reason // as it was when this step began
	step       step
	members    []*copyOf
	said       ident.Instance // the copy whose links were asked for
	links      map[uint64]batch.Link
	dropped    []uint64 // positions that were asked for and are not kept any more
	linksAsked []uint64
	grace      bool // a timer runs for those that have not answered
	graceOver  bool
	commit     catalog.Commit // for committing
	record     *evidence.Evidence
	decision   control.Decision // the last
	times      times
	reason     string
	loss       *acceptance // that the commit is of; nil: nothing is given up
	retries    int         // how often its seals were asked for again
}

// slow reports whether copies that nothing speaks against have not answered for a while: people are told, as of what waits.
func (t *transition) slow() bool { return t.step == sealing && t.retries >= slowRetries }

// stands reports whether a transition cannot go on now, as far as can be seen.
func (t *transition) stands() bool { return t.step == waiting || t.slow() }

// copyOf is one copy of the old assignment.
type copyOf struct {
	member catalog.Member
	asked  bool
	answer *control.Answer
}

// begin starts the step that an assignment is at, for a reason that it needs a transition, if it still does. waited is why it waited, if
// it did.
func (c *Controller) begin(a *catalog.Assignment, kind catalog.Kind, why control.Reason, waited string) {
	t := &transition{assignment: a, kind: kind, why: why, reason: waited}
	c.carry(c.open[a.Partition], t)
	c.open[a.Partition], c.settled = t, false
	switch {
	case a.Pending == nil, why.Why == control.PromiseAhead:
		t.step = recording
		c.toRecord = append(c.toRecord, t)
		return
	case control.MayCancel(why, c.own[a.Partition] == a.Pending.ID, false):
		t.step = cancelling
		c.toCancel = append(c.toCancel, t)
		return
	}
	t.step = sealing
	delete(c.own, a.Partition) // its seals go out: it is finished, whatever becomes of the reason
	for _, m := range append([]catalog.Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers...) {
		t.members = append(t.members, &copyOf{member: m})
	}
	c.toSeal = append(c.toSeal, t)
}

// live reports whether a transition is still the one of its partition, and at a step.
func (c *Controller) live(t *transition, s step) bool {
	return c.open[t.assignment.Partition] == t && t.step == s
}

// reaches reports whether a node can be asked.
func (c *Controller) reaches(node string) bool {
	_, ok := c.peers[node]
	return ok || node == c.env.Local.Node
}

// retry begins anew what waits, and asks again who has not answered.
func (c *Controller) retry() {
	for _, p := range c.partitions() {
		switch t := c.open[p]; t.step {
		case waiting:
			c.resume(t)
		case sealing:
			for _, m := range t.members {
				m.asked = m.asked && m.answer != nil
			}
			t.linksAsked = nil
			if t.retries++; t.retries == slowRetries {
				c.settled = false // tell of it
			}
			c.toSeal = append(c.toSeal, t)
			c.toChoose = append(c.toChoose, t)
		case recording, committing, cancelling:
		}
	}
	if len(c.open) > 0 {
		c.setTimer()
	}
}

// resume begins a transition that waited anew, from the assignment that it waited with.
func (c *Controller) resume(t *transition) {
	why := c.cause(t.assignment)
	if t.assignment.Pending == nil && why.Why == control.NoReason {
		c.drop(t.assignment.Partition) // it was never recorded, and nothing asks for it any more
		c.settled = false
		return
	}
	c.begin(t.assignment, t.kind, why, t.reason)
}

// askAgain asks a node that can be reached again for its copies of what is under way or waits.
func (c *Controller) askAgain(node string) {
	for _, p := range c.partitions() {
		t := c.open[p]
		if t.step != sealing && t.step != waiting || t.assignment.Pending == nil {
			continue
		}
		for _, m := range t.members {
			if m.member.Node == node {
				m.asked, m.answer = false, nil
				t.step = sealing
				c.settled = false
				c.toSeal = append(c.toSeal, t)
			}
		}
	}
}

// unasked notes that a node will not answer what it was asked. What it has answered counts no more while the choice is open, for others too: it
// could neither say its links nor own.
func (c *Controller) unasked(node string) {
	for _, p := range c.partitions() {
		t := c.open[p]
		for _, m := range t.members {
			if m.member.Node == node && (m.answer == nil || t.step == sealing || t.step == waiting) {
				m.asked, m.answer, t.linksAsked = false, nil, nil
				c.toChoose = append(c.toChoose, t)
			}
		}
	}
}

func (c *Controller) record() {
	now := c.env.Clock.Wall().UnixMilli()
	var items []catalog.Item
	var of []*transition
	for _, t := range c.toRecord {
		if c.live(t, recording) {
			a := t.assignment
			next := control.Pend(a, t.why, now)
			if a.Pending == nil {
				c.own[a.Partition] = next.ID
				next.Suspected = c.suspectedAt(a, t.why)
			}
			items, of = append(items, catalog.RecordPending(a.Partition, a.Version, next)), append(of, t)
		}
	}
	c.toRecord = nil
	c.proposeItems(items, of)
}

// cancel withdraws what was recorded in vain: no seal of it was sent.
func (c *Controller) cancel() {
	var items []catalog.Item
	var of []*transition
	for _, t := range c.toCancel {
		if c.live(t, cancelling) {
			a := t.assignment
			trace.Info(c.env.Trace, "transition.cancelled", slog.String("partition", a.Partition.String()), slog.String("transition", a.Pending.ID))
			items, of = append(items, catalog.CancelPending(a.Partition, a.Version, a.Pending.ID)), append(of, t)
		}
	}
	c.toCancel = nil
	c.proposeItems(items, of)
}

// seal asks every copy that can be reached and was not asked yet, in one request for each node.
func (c *Controller) seal() {
	reqs := map[string][]control.SealRequest{}
	for _, t := range c.toSeal {
		if !c.live(t, sealing) {
			continue
		}
		p := t.assignment.Pending
		reached := false
		for _, m := range t.members {
			if m.asked || !c.reaches(m.member.Node) {
				continue
			}
			m.asked, reached = true, true
			reqs[m.member.Node] = append(reqs[m.member.Node], control.SealRequest{
				Partition: t.assignment.Partition, Epoch: p.Epoch, Transition: p.ID,
			})
		}
		if !reached {
			c.toChoose = append(c.toChoose, t) // to say whom it waits for
		}
	}
	c.toSeal = nil
	for _, node := range slices.Sorted(maps.Keys(reqs)) {
		c.env.Seal(node, reqs[node], func(as []control.SealAnswer) { c.box.Post(answered(as)) })
	}
}

// answer notes a copy's answer.
func (c *Controller) answer(x control.SealAnswer) {
	t := c.open[x.Partition]
	if t == nil || t.step != sealing && t.step != waiting || t.assignment.Pending == nil || x.Transition != t.assignment.Pending.ID {
		return // it was deleted, or decided, while the seal was on its way
	}
	if t.step == waiting { // for this one, perhaps
		t.step, c.settled = sealing, false
	}
	c.hears(t.assignment, x.Answer)
	for _, m := range t.members {
		if m.member.Node == x.Instance.Node { // of which store, core/control judges
			m.answer = &x.Answer
		}
	}
	c.toChoose = append(c.toChoose, t)
}

// choose decides for every transition of which something new is known.
func (c *Controller) choose() {
	ts := c.toChoose
	c.toChoose = nil
	for _, t := range ts {
		if c.live(t, sealing) {
			c.chooseFor(t)
		}
	}
}

func (c *Controller) chooseFor(t *transition) {
	if _, err := quorum.Parse(t.assignment.Policy); err != nil {
		c.wait(t, err.Error())
		return
	}
	in := c.input(t)
	missing, expected := c.unanswered(t)
	if x := c.accepts(t); x != nil && (expected > 0 && !t.slow() || c.chooseLess(t, x)) {
		return
	}
	d := control.Choose(in)
	t.decision = d
	if d.Verdict != control.Wait && t.times.sealed == 0 {
		t.times.sealed = c.micros()
	}
	switch {
	case d.Verdict == control.Ask:
		c.askLinks(t, d)
	case d.Verdict == control.Chosen && (expected == 0 || t.graceOver):
		t.step = committing
		c.chosen(t, in, d)
		c.toCommit = append(c.toCommit, t)
	case d.Verdict == control.Chosen:
		if !t.grace {
			t.grace = true
			c.box.After(chooseAfter, graceOver{t})
		}
	case expected == 0, t.slow():
		reason := d.Reason
		for _, e := range d.Excluded {
			reason += "; " + e.Answer.Instance.Node + ": " + e.Reason
		}
		if expected == 0 {
			t.step = waiting
		} // else it is chosen for as soon as the others answer
		if c.because(t, reason+missing) {
			c.waits(t, in, d)
		}
	}
}

// unanswered says of which copies no answer is there and none is waited for, and how many are waited for.
func (c *Controller) unanswered(t *transition) (missing string, expected int) {
	for _, m := range t.members {
		switch {
		case m.answer != nil:
		case m.asked && c.suspects(m.member):
			missing += "; " + m.member.Node + " was asked and is suspected"
		case m.asked:
			if expected++; t.slow() {
				missing += "; " + m.member.Node + " was asked and does not answer"
			}
		default:
			missing += "; " + m.member.Node + " cannot be reached"
		}
	}
	return missing, expected
}

// askLinks has the furthest copy say its links where shorter ones end.
func (c *Controller) askLinks(t *transition, d control.Decision) {
	if t.said == d.Owner && slices.Equal(t.linksAsked, d.Positions) {
		return
	}
	if t.said != d.Owner {
		t.said, t.links, t.dropped = d.Owner, nil, nil // what another copy said is no evidence any more
	}
	t.linksAsked = d.Positions
	c.env.Links(d.Owner.Node, t.assignment.Partition, d.Positions, func(links map[uint64]batch.Link) {
		c.box.Post(linked{t, d.Owner, d.Positions, links})
	})
	c.setTimer()
}

func (c *Controller) links(m linked) {
	if !c.live(m.t, sealing) || m.of != m.t.said {
		return
	}
	if m.t.links == nil {
		m.t.links = map[uint64]batch.Link{}
	}
	maps.Copy(m.t.links, m.links)
	for _, at := range m.asked {
		if _, ok := m.links[at]; !ok {
			m.t.dropped = append(m.t.dropped, at)
		}
	}
	c.toChoose = append(c.toChoose, m.t)
}

// wait has a transition stand until something happens, and reports whether that, or the reason, is new.
func (c *Controller) wait(t *transition, reason string) bool {
	t.step = waiting
	return c.because(t, reason)
}

// because notes why a transition stands, and reports whether that is new.
func (c *Controller) because(t *transition, reason string) bool {
	if t.reason == reason {
		return false
	}
	t.reason = reason
	attrs := []slog.Attr{slog.String("partition", t.assignment.Partition.String()), slog.String("reason", reason)}
	if p := t.assignment.Pending; p != nil {
		attrs = append(attrs, slog.String("transition", p.ID), slog.String("cause", p.Cause))
	}
	trace.Warn(c.env.Trace, "transition.waits", attrs...)
	return true
}

func (c *Controller) commit() {
	var items []catalog.Item
	var of []*transition
	for _, t := range c.toCommit {
		if c.live(t, committing) {
			item := catalog.CommitTransition(t.commit)
			if t.loss != nil {
				item = catalog.AcceptLoss(t.commit)
			}
			items, of = append(items, item), append(of, t)
		}
	}
	c.toCommit = nil
	c.offer(of)
	c.proposeItems(items, of)
}

// conclude looks after what a command was for, once its outcome is known: what was done was told by Apply, and is another transition by
// now, or none; what was refused, or is not known, is decided anew later.
func (c *Controller) conclude(m concluded) {
	if m.err != nil {
		trace.Error(c.env.Trace, "transition.catalog", slog.String("error", m.err.Error()), slog.Int("partitions", len(m.of)))
	}
	for _, t := range m.of {
		switch {
		case c.live(t, recording):
			c.wait(t, "the catalog refused the record or did not answer")
		case c.live(t, committing):
			c.wait(t, "the catalog refused the commit or did not answer")
		case c.live(t, cancelling):
			c.wait(t, "the catalog refused to cancel or did not answer")
		}
	}
}

// proposeItems sends items in chunks and sees to it that what they are for is looked after whatever becomes of them.
func (c *Controller) proposeItems(items []catalog.Item, of []*transition) {
	if len(items) == 0 {
		return
	}
	cmds, err := catalog.Chunks(items)
	if err != nil {
		c.box.Post(concluded{of, err})
		return
	}
	left := len(cmds)
	var failed error
	for _, cmd := range cmds {
		c.propose(cmd, func(err error) {
			c.box.Post(func() { // on the loop: the counters are the controller's
				if err != nil {
					failed = err
				}
				if left--; left == 0 {
					c.conclude(concluded{of, failed})
				}
			})
		})
	}
}
