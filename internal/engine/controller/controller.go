// Package controller carries changes of owner through their steps: record, seal, choose, commit (design 2 §5). What to decide is in
// core/control; here is only who is asked, in what order, and that nothing is forgotten when an answer does not come.
//
// With one node there is one cause, a restart; detection of lost nodes, holds and planned moves will come in here. No log, file or
// client may.
package controller

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// retryAfter is how long a transition that waits is left alone when nothing happens (design 2 §5: no blind back-off above 1 s).
const retryAfter = time.Second

// Env is what a Controller stands on.
type Env struct {
	Loop  exec.Loop
	Clock clock.Clock
	Trace trace.Sink
	Local ident.Instance
	// Propose puts a command to the catalog. done is called once, from any goroutine, after the changes were handed to Apply; an
	// error means that the outcome is not known.
	Propose func(cmd []byte, done func(error))
	// Seal seals copies and answers once, from any goroutine, for each request.
	Seal func(reqs []control.SealRequest, done func([]control.SealAnswer))
	// Settled is called when no transition is under way any more, after any was or after the first Apply, and when one that waited is
	// gone. waiting are those that cannot go on, with their reasons, in order of partition.
	Settled func(waiting []Waiting)
}

// Waiting is a transition that cannot be decided now.
type Waiting struct {
	Partition  ident.Partition
	Transition string
	Reason     string
}

// Controller is an actor. Its exported methods may be called from any goroutine.
type Controller struct {
	env  Env
	box  exec.Mailbox
	open map[ident.Partition]*transition

	started  bool
	toRecord []*transition
	toSeal   []*transition
	toCommit []*transition
	timer    bool // a retry is set
	settled  bool
}

type step uint8

const (
	recording step = iota
	sealing
	committing
	waiting
)

// transition is one change of owner under way, at one version of the assignment: a new version is a new transition here, so that what is
// late for an old one finds nothing.
type transition struct {
	assignment *catalog.Assignment
	kind       catalog.Kind
	step       step
	commit     catalog.Commit // for committing
	reason     string
}

// messages
type (
	applied   []catalog.Change
	answered  []control.SealAnswer
	concluded struct {
		of  []*transition
		err error
	}
	retrying struct{}
)

// New makes a controller; it begins with the first Apply.
func New(env Env) *Controller {
	c := &Controller{env: env, open: map[ident.Partition]*transition{}}
	c.box = env.Loop.Spawn("controller", c)
	return c
}

// Apply takes changes of the catalog, in order. The first call carries the whole catalog.
func (c *Controller) Apply(changes []catalog.Change) { c.box.Post(applied(changes)) }

// Receive implements exec.Actor.
func (c *Controller) Receive(msg any) {
	switch m := msg.(type) {
	case applied:
		c.started = true
		for _, ch := range m {
			c.changed(ch)
		}
	case answered:
		for _, a := range m {
			c.answer(a)
		}
	case concluded:
		c.conclude(m)
	case func():
		m()
	case retrying:
		c.timer = false
		c.retry()
	}
}

// retry begins anew what waits.
func (c *Controller) retry() {
	for _, p := range c.partitions() {
		if t := c.open[p]; t.step == waiting {
			delete(c.open, p)
			c.begin(t.assignment, t.kind, t.reason)
		}
	}
}

// partitions are those with a transition under way, in order.
func (c *Controller) partitions() []ident.Partition {
	ps := make([]ident.Partition, 0, len(c.open))
	for p := range c.open {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, ident.Partition.Compare)
	return ps
}

func (c *Controller) changed(ch catalog.Change) {
	before, _ := ch.Before.(*catalog.Resource)
	after, _ := ch.After.(*catalog.Resource)
	if before != nil && after == nil {
		for _, a := range before.Partitions {
			c.drop(a.Partition)
		}
	}
	if after == nil || after.Home != nil {
		return
	}
	for _, a := range after.Partitions {
		c.consider(a, after.Kind)
	}
}

func (c *Controller) drop(p ident.Partition) {
	if c.open[p] != nil {
		delete(c.open, p)
		c.settled = false // tell of it: it may have been one that waited
	}
}

// consider decides the next step of a partition from its assignment.
func (c *Controller) consider(a *catalog.Assignment, kind catalog.Kind) {
	old := c.open[a.Partition]
	if a.Pending == nil && control.Cause(a, c.env.Local) == "" {
		if old != nil {
			c.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "transition.done", Attrs: []slog.Attr{
				slog.String("partition", a.Partition.String()), slog.Uint64("epoch", a.Epoch), slog.String("owner", a.Owner.String()),
			}})
			c.drop(a.Partition)
		}
		return
	}
	switch {
	case old == nil:
		c.begin(a, kind, "")
	case old.assignment.Version != a.Version:
		c.begin(a, kind, old.reason)
	}
	// Something else of the resource changed: the step under way is still the right one.
}

// begin starts the step that an assignment is at. reason is why it waited, if it did.
func (c *Controller) begin(a *catalog.Assignment, kind catalog.Kind, reason string) {
	t := &transition{assignment: a, kind: kind, reason: reason}
	c.open[a.Partition], c.settled = t, false
	if a.Pending == nil {
		t.step = recording
		c.toRecord = append(c.toRecord, t)
		return
	}
	t.step = sealing
	c.toSeal = append(c.toSeal, t)
}

// live reports whether a transition is still the one of its partition, and at a step.
func (c *Controller) live(t *transition, s step) bool {
	return c.open[t.assignment.Partition] == t && t.step == s
}

// answer chooses from a copy's answer. With one member in an assignment there is one.
func (c *Controller) answer(x control.SealAnswer) {
	t := c.open[x.Partition]
	if t == nil || t.step != sealing || t.assignment.Pending == nil {
		return // it was deleted, or decided, while the seal was on its way
	}
	a := t.assignment
	policy, err := quorum.Parse(a.Policy)
	if err != nil {
		c.wait(t, err.Error())
		return
	}
	d := control.Choose(control.Input{
		Assignment: a, W: quorum.W(policy, a.Eligible(), t.kind), Answers: []control.Answer{x.Answer},
	})
	if d.Verdict != control.Chosen {
		reason := d.Reason
		for _, e := range d.Excluded {
			reason += "; " + e.Answer.Instance.Node + ": " + e.Reason
		}
		c.wait(t, reason)
		return
	}
	t.step, t.commit = committing, control.CommitOf(a, d)
	c.toCommit = append(c.toCommit, t)
}

func (c *Controller) wait(t *transition, reason string) {
	t.step = waiting
	if t.reason == reason {
		return
	}
	t.reason = reason
	attrs := []slog.Attr{slog.String("partition", t.assignment.Partition.String()), slog.String("reason", reason)}
	if p := t.assignment.Pending; p != nil {
		attrs = append(attrs, slog.String("transition", p.ID), slog.String("cause", p.Cause))
	}
	trace.Warn(c.env.Trace, "transition.waits", attrs...)
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
		}
	}
}

// Flush implements exec.Actor: what gathered goes out in as few commands and requests as possible.
func (c *Controller) Flush() {
	c.record()
	c.seal()
	c.commit()
	if !c.started || c.settled {
		return
	}
	var waits []Waiting
	for _, p := range c.partitions() {
		t := c.open[p]
		if t.step != waiting {
			return
		}
		w := Waiting{Partition: p, Reason: t.reason}
		if t.assignment.Pending != nil {
			w.Transition = t.assignment.Pending.ID
		}
		waits = append(waits, w)
	}
	c.settled = true
	if len(c.open) == 0 {
		c.open = map[ident.Partition]*transition{} // a map keeps the room that a start with many partitions took
	}
	c.env.Settled(waits)
	if len(waits) > 0 && !c.timer {
		c.timer = true
		c.box.After(retryAfter, retrying{})
	}
}

func (c *Controller) record() {
	now := c.env.Clock.Wall().UnixMilli()
	var items []catalog.Item
	var of []*transition
	for _, t := range c.toRecord {
		if c.live(t, recording) {
			a := t.assignment
			next := control.NewTransition(a, control.Cause(a, c.env.Local), now)
			items, of = append(items, catalog.RecordPending(a.Partition, a.Version, next)), append(of, t)
		}
	}
	c.toRecord = nil
	c.propose(items, of)
}

func (c *Controller) seal() {
	var reqs []control.SealRequest
	for _, t := range c.toSeal {
		if c.live(t, sealing) {
			p := t.assignment.Pending
			reqs = append(reqs, control.SealRequest{Partition: t.assignment.Partition, Epoch: p.Epoch, Transition: p.ID})
		}
	}
	c.toSeal = nil
	if len(reqs) > 0 {
		c.env.Seal(reqs, func(as []control.SealAnswer) { c.box.Post(answered(as)) })
	}
}

func (c *Controller) commit() {
	var items []catalog.Item
	var of []*transition
	for _, t := range c.toCommit {
		if c.live(t, committing) {
			items, of = append(items, catalog.CommitTransition(t.commit)), append(of, t)
		}
	}
	c.toCommit = nil
	c.propose(items, of)
}

// propose sends items in chunks and sees to it that what they are for is looked after whatever becomes of them.
func (c *Controller) propose(items []catalog.Item, of []*transition) {
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
		c.env.Propose(cmd, func(err error) {
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
