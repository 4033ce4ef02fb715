package controller

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/port/trace"
)

// An accepted loss (design 2 §8) is a transition that an operator ends with less than it needs. Nothing of it is kept but in the catalog: a
// change of controller ends the request, and whoever asked asks again.

// lossWithin is how long an accepted loss may take from its request to its commit: the copies that can be reached answer a seal at once.
const lossWithin = 5 * time.Second

const changedMeanwhile = "the controller changed meanwhile; ask again"

func notLeading(node string) string {
	return "node " + node + " does not decide now: the controller has changed; ask again"
}

// LossRequest asks what accepting the loss of a partition's missing copies would do; with Execute, to do it.
type LossRequest struct {
	Partition ident.Partition
	Execute   bool
	Plan      string   // of Execute: the hash of the plan that the operator has seen
	Reason    string   // likewise; not empty
	Stopped   []string // likewise: nodes that are stopped, by the operator's word
}

// LossOutcome is the plan as it is now, and what became of it.
type LossOutcome struct {
	Plan    control.LossPlan
	FloorAt int64 // when the end of what may be gone was reported, milliseconds since 1970; 0: not known
	// Refused says why it was not done; Moved that the plan is not the one that was asked for any more. Nothing was given up.
	Refused string
	Moved   bool
	// Transition names the transition that Execute has ended, and its evidence.
	Transition string
}

// acceptance is a request under way.
type acceptance struct {
	LossRequest
	done   func(LossOutcome)
	begun  bool   // its transition is recorded, or is to be, and its copies are sealed anew
	epoch  uint64 // of the commit that is under way; 0: none is
	digest evidence.Digest
	plan   control.LossPlan // the last
}

// Loss plans an accepted loss, or carries one out. done is called once, on the controller's loop. It is refused at once where this node does
// not lead, and at the latest lossWithin after the call: then it may be done yet, which the partition's history starts and evidence tell.
func (c *Controller) Loss(q LossRequest, done func(LossOutcome)) {
	c.box.Post(func() {
		x := &acceptance{LossRequest: q, done: done}
		switch {
		case !c.leading:
			done(LossOutcome{Refused: notLeading(c.env.Local.Node)})
			return
		case c.losses[q.Partition] != nil:
			done(LossOutcome{Refused: "another request about the same partition is under way; ask again in a moment"})
			return
		}
		c.losses[q.Partition] = x
		c.box.After(lossWithin, func() {
			c.endLoss(x, LossOutcome{Refused: "it took too long: copies that can be reached did not answer; see tanist timeline whether it was done yet"})
		})
	})
}

// endLoss answers a request, if that has not been done.
func (c *Controller) endLoss(x *acceptance, o LossOutcome) {
	if c.losses[x.Partition] != x {
		return
	}
	delete(c.losses, x.Partition)
	c.unbarUnlessGivenUp(x.plan.Owner)
	o.Plan = x.plan
	c.env.View(func(v *catalog.View) {
		if a, _ := v.Assignment(x.Partition); a != nil {
			if f := c.watch.confirms[x.Partition]; f.by == x.plan.Owner && f.by.Node == x.plan.FloorBy && f.position == x.plan.To {
				o.FloorAt = f.at
			}
		}
	})
	x.done(o)
}

// unbarUnlessGivenUp grants leases to a run again, unless another request gives it up.
func (c *Controller) unbarUnlessGivenUp(run ident.Instance) {
	for _, x := range c.losses {
		if x.plan.Owner == run {
			return
		}
	}
	for _, x := range c.deletions {
		if slices.ContainsFunc(x.plan.Parts, func(e control.PartEnd) bool { return e.Owner == run }) {
			return
		}
	}
	c.unbar(run)
}

// endLosses answers all requests: this node decides no more.
func (c *Controller) endLosses() {
	for _, p := range slices.SortedFunc(maps.Keys(c.losses), ident.Partition.Compare) {
		c.endLoss(c.losses[p], LossOutcome{Refused: changedMeanwhile})
	}
}

// lossSteps takes every request a step further, if it can be.
func (c *Controller) lossSteps() {
	for _, p := range slices.SortedFunc(maps.Keys(c.losses), ident.Partition.Compare) {
		c.lossStep(c.losses[p])
	}
}

func (c *Controller) lossStep(x *acceptance) {
	var a *catalog.Assignment
	var kind catalog.Kind
	c.env.View(func(v *catalog.View) {
		if have, r := v.Assignment(x.Partition); have != nil {
			a, kind = have, r.Kind
		}
	})
	t := c.open[x.Partition]
	switch {
	case a == nil:
		c.endLoss(x, LossOutcome{Refused: "its resource was deleted"})
	case x.epoch > 0:
		c.lossCommitted(x, a, t)
	case x.begun && t == nil && a.Pending == nil:
		c.endLoss(x, LossOutcome{Refused: "the catalog did not take the record of it; ask again"})
	case x.begun, t != nil && t.step != waiting && t.step != sealing:
		// It goes on with what comes: chooseFor decides.
	case t == nil:
		c.lossPlanned(x, a, kind, nil)
	case t.stands():
		c.lossPlanned(x, a, kind, t)
	}
}

// lossCommitted answers a request whose commit was proposed, once its outcome is known.
func (c *Controller) lossCommitted(x *acceptance, a *catalog.Assignment, t *transition) {
	done := slices.ContainsFunc(a.Starts, func(s catalog.HistoryStart) bool {
		return s.Epoch == x.epoch && s.Loss.Accepted && s.Evidence == x.digest
	})
	switch {
	case done:
		c.endLoss(x, LossOutcome{Transition: x.plan.Transition})
	case t == nil || t.step != committing:
		c.endLoss(x, LossOutcome{Refused: "the catalog refused it, or did not answer: something has moved; plan again"})
	}
}

// lossPlanned plans from what is known, and answers, or begins.
func (c *Controller) lossPlanned(x *acceptance, a *catalog.Assignment, kind catalog.Kind, t *transition) {
	in, err := c.lossInput(a, kind, t)
	if err != "" {
		c.endLoss(x, LossOutcome{Refused: err})
		return
	}
	x.plan = control.PlanLoss(in)
	switch {
	case t != nil && len(x.plan.Ask) > 0:
		t.step, c.settled = sealing, false
		c.askLinks(t, control.Decision{Owner: x.plan.Candidate, Positions: x.plan.Ask})
	case !x.Execute:
		c.endLoss(x, LossOutcome{})
	case !c.lossAgreed(x):
	case t == nil:
		x.begun = true
		c.consider(a, kind)
	default:
		x.begun = true
		c.resume(t)
	}
}

// lossAgreed checks what an operator has agreed to against the plan, and answers where it is not that.
func (c *Controller) lossAgreed(x *acceptance) bool {
	refused := LossOutcome{}
	switch missing := x.plan.Unstopped(x.Stopped); {
	case x.plan.Against != "":
		refused.Refused = x.plan.Against
	case x.plan.Hash() != x.Plan:
		refused.Refused, refused.Moved = "the plan is another by now: look at it again", true
	case len(missing) > 0 && !c.leaseFences(x.Partition):
		refused.Refused = control.StopFirst(missing)
	case len(missing) > 0 && !c.lapsed(x.plan.Owner):
		refused.Refused = control.WaitForLease(x.plan.Owner.Node, c.leaseOver(x.plan.Owner)-c.now(), missing)
	default:
		return true
	}
	c.endLoss(x, refused)
	return false
}

// lossInput is what is known of a partition. t is nil where no transition is under way.
func (c *Controller) lossInput(a *catalog.Assignment, kind catalog.Kind, t *transition) (in control.LossInput, failed string) {
	if t != nil {
		if t.assignment.Pending == nil {
			return in, "the catalog has not taken the record of its change of owner yet; ask again in a moment"
		}
		a = t.assignment
		in.Input = c.input(t)
	}
	policy, err := quorum.Parse(a.Policy)
	if err != nil {
		return in, err.Error()
	}
	in.Assignment, in.W = a, quorum.W(policy, a.Eligible(), kind)
	in.Floor, in.FloorBy = c.floor(a)
	for _, m := range append([]catalog.Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers...) {
		if c.reachesRun(m) {
			in.Reached = append(in.Reached, m.Node)
		}
	}
	return in, ""
}

// reachesRun reports whether a member's node can be asked in the run that it is registered with, and is not suspected.
func (c *Controller) reachesRun(m catalog.Member) (yes bool) {
	c.env.View(func(v *catalog.View) {
		if n := v.Node(m.Node); n != nil && n.Store == m.Store {
			run := ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}
			yes = run == c.env.Local || c.peers[m.Node] == run
		}
	})
	return yes && !c.suspects(m)
}

// accepts reports whether a transition is one that an operator ends with less than it needs.
func (c *Controller) accepts(t *transition) *acceptance {
	if x := c.losses[t.assignment.Partition]; x != nil && x.begun && x.epoch == 0 && t.assignment.Pending != nil {
		return x
	}
	return nil
}

// chooseLess decides a transition as an operator has agreed to, once every copy that can be reached has answered. It reports whether the
// transition is in its hands; if not, it is decided as any.
func (c *Controller) chooseLess(t *transition, x *acceptance) bool {
	in, failed := c.lossInput(t.assignment, t.kind, t)
	if failed != "" {
		c.endLoss(x, LossOutcome{Refused: failed})
		return false
	}
	x.plan = control.PlanLoss(in)
	if len(x.plan.Ask) > 0 {
		c.askLinks(t, control.Decision{Owner: x.plan.Candidate, Positions: x.plan.Ask})
		return true
	}
	if !c.lossAgreed(x) {
		return false
	}
	t.step, t.loss = committing, x
	t.commit = control.LossOf(t.assignment, x.plan)
	c.env.View(func(v *catalog.View) {
		if r := v.Incarnation(x.Partition.Incarnation); r != nil {
			t.record = control.EvidenceOfLoss(r, in, &x.plan, x.Reason, x.Stopped)
			if len(x.plan.Unstopped(x.Stopped)) > 0 {
				control.NoteLeaseOver(t.record, x.plan.Owner)
			}
		}
	})
	if t.record != nil {
		t.timesOf(t.record)
		t.record.Chosen = c.micros()
		t.commit.Start.Evidence = t.record.Digest()
	}
	x.epoch, x.digest = t.assignment.Pending.Epoch, t.commit.Start.Evidence
	trace.Warn(c.env.Trace, "loss.accepted", slog.String("partition", x.Partition.String()), slog.String("transition", t.assignment.Pending.ID),
		slog.String("owner", x.plan.Candidate.String()), slog.Uint64("from", x.plan.Start.Position), slog.Uint64("to", x.plan.To), slog.String("reason", x.Reason))
	c.toCommit = append(c.toCommit, t)
	return true
}
