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

// retry is how long a transition that waits is left alone when nothing happens (design 2 §5: no blind back-off above 1 s).
const retry = time.Second

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
	// Settled is called when no transition is under way any more, after any was or after the first Apply. waiting are those that
	// cannot go on, with their reasons.
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
	toRecord []ident.Partition
	toSeal   []ident.Partition
	toCommit []catalog.Commit
	retrying bool
	settled  bool
}

type step uint8

const (
	recording step = iota
	sealing
	committing
	waiting
)

// transition is one change of owner under way.
type transition struct {
	assignment *catalog.Assignment
	kind       catalog.Kind
	step       step
	reason     string
}

// messages
type (
	applied   []catalog.Change
	answered  []control.SealAnswer
	concluded struct {
		partitions []ident.Partition
		err        error
	}
	wake struct{}
)

// New makes a controller; it begins with the first Apply.
func New(env Env) *Controller {
	c := &Controller{env: env, open: map[ident.Partition]*transition{}}
	c.box = env.Loop.Spawn("controller", c)
	return c
}

// Apply takes changes of the catalog, in order. The first call carries the whole catalog.
func (c *Controller) Apply(changes []catalog.Change) { c.box.Post(applied(changes)) }

// Wake retries what waits: a copy healed, or a node reported.
func (c *Controller) Wake() { c.box.Post(wake{}) }

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
	case wake:
		c.retrying = false
		for _, p := range c.partitions() {
			if t := c.open[p]; t.step == waiting {
				c.consider(t.assignment, t.kind)
			}
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
			delete(c.open, a.Partition)
		}
	}
	if after == nil || after.Home != nil {
		return
	}
	for _, a := range after.Partitions {
		c.consider(a, after.Kind)
	}
}

// consider decides the next step of a partition from its assignment.
func (c *Controller) consider(a *catalog.Assignment, kind catalog.Kind) {
	cause := control.Cause(a, c.env.Local)
	if a.Pending == nil && cause == "" {
		if t := c.open[a.Partition]; t != nil {
			c.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "transition.done", Attrs: []slog.Attr{
				slog.String("partition", a.Partition.String()), slog.Uint64("epoch", a.Epoch), slog.String("owner", a.Owner.String()),
			}})
			delete(c.open, a.Partition)
		}
		return
	}
	t := &transition{assignment: a, kind: kind}
	if old := c.open[a.Partition]; old != nil {
		t.reason = old.reason
	}
	c.open[a.Partition], c.settled = t, false
	if a.Pending == nil {
		t.step = recording
		c.toRecord = append(c.toRecord, a.Partition)
		return
	}
	t.step = sealing
	c.toSeal = append(c.toSeal, a.Partition)
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
	t.step = committing
	c.toCommit = append(c.toCommit, control.CommitOf(a, d))
}

func (c *Controller) wait(t *transition, reason string) {
	t.step = waiting
	if t.reason != reason {
		t.reason = reason
		trace.Warn(c.env.Trace, "transition.waits", slog.String("partition", t.assignment.Partition.String()),
			slog.String("transition", t.assignment.Pending.ID), slog.String("cause", t.assignment.Pending.Cause), slog.String("reason", reason))
	}
}

// conclude looks after the partitions of a command whose outcome is known: what was done was told by Apply; what was refused, or is
// not known, is decided anew.
func (c *Controller) conclude(m concluded) {
	if m.err != nil {
		trace.Error(c.env.Trace, "transition.catalog", slog.String("error", m.err.Error()), slog.Int("partitions", len(m.partitions)))
	}
	for _, p := range m.partitions {
		t := c.open[p]
		if t == nil || (t.step != recording && t.step != committing) {
			continue
		}
		if t.assignment.Pending != nil {
			c.wait(t, "the catalog refused the commit or did not answer")
			continue
		}
		t.step, t.reason = waiting, "the catalog refused the record or did not answer"
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
	c.env.Settled(waits)
	if len(waits) > 0 && !c.retrying {
		c.retrying = true
		c.box.After(retry, wake{})
	}
}

func (c *Controller) record() {
	if len(c.toRecord) == 0 {
		return
	}
	now := c.env.Clock.Wall().UnixMilli()
	var items []catalog.Item
	var of []ident.Partition
	for _, p := range c.toRecord {
		if t := c.open[p]; t != nil && t.step == recording {
			a := t.assignment
			items = append(items, catalog.RecordPending(p, a.Version, control.NewTransition(a, control.Cause(a, c.env.Local), now)))
			of = append(of, p)
		}
	}
	c.toRecord = c.toRecord[:0]
	c.propose(items, of)
}

func (c *Controller) seal() {
	var reqs []control.SealRequest
	for _, p := range c.toSeal {
		if t := c.open[p]; t != nil && t.step == sealing {
			reqs = append(reqs, control.SealRequest{Partition: p, Epoch: t.assignment.Pending.Epoch, Transition: t.assignment.Pending.ID})
		}
	}
	c.toSeal = c.toSeal[:0]
	if len(reqs) > 0 {
		c.env.Seal(reqs, func(as []control.SealAnswer) { c.box.Post(answered(as)) })
	}
}

func (c *Controller) commit() {
	if len(c.toCommit) == 0 {
		return
	}
	slices.SortFunc(c.toCommit, func(a, b catalog.Commit) int { return a.Partition.Compare(b.Partition) })
	var items []catalog.Item
	var of []ident.Partition
	for _, t := range c.toCommit {
		items = append(items, catalog.CommitTransition(t))
		of = append(of, t.Partition)
	}
	c.toCommit = nil
	c.propose(items, of)
}

// propose sends items in chunks and sees to it that each chunk's partitions are looked after whatever becomes of it.
func (c *Controller) propose(items []catalog.Item, of []ident.Partition) {
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
