package controller

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/port/trace"
)

// A forced deletion ends the wait of a resource that cannot be served (control.PlanDeletion). As of an accepted loss, nothing of the request is
// kept but in the catalog.

// DeletionRequest asks what deleting a resource by force would give up; with Execute, to do it.
type DeletionRequest struct {
	Incarnation uint64
	Execute     bool
	Plan        string   // of Execute: the hash of the plan that the operator has seen
	Reason      string   // likewise; 1 to catalog.MaxReason bytes
	Stopped     []string // likewise: nodes that are stopped, by the operator's word
}

// DeletionOutcome is the plan as it is now, and what became of it.
type DeletionOutcome struct {
	Plan control.DeletionPlan
	// Refused says why it was not done; Moved that the plan is not the one that was asked for any more. Nothing was deleted.
	Refused string
	Moved   bool
	Done    bool // it is deleted
}

// deleting is a request under way.
type deleting struct {
	DeletionRequest
	done func(DeletionOutcome)
	sent bool // the catalog was asked
	plan control.DeletionPlan
}

// Delete plans a forced deletion, or carries one out. done is called once, on the controller's loop. It is refused at once where this node does
// not lead, and at the latest lossWithin after the call: then it may be done yet, which the catalog's deletions tell.
func (c *Controller) Delete(q DeletionRequest, done func(DeletionOutcome)) {
	c.box.Post(func() {
		x := &deleting{DeletionRequest: q, done: done}
		switch {
		case !c.leading:
			done(DeletionOutcome{Refused: notLeading(c.env.Local.Node)})
			return
		case c.deletions[q.Incarnation] != nil:
			done(DeletionOutcome{Refused: "another request about the same resource is under way; ask again in a moment"})
			return
		}
		c.deletions[q.Incarnation] = x
		c.box.After(lossWithin, func() {
			c.endDeletion(x, DeletionOutcome{Refused: "it took too long: copies that can be reached did not answer, or the catalog did not; see tanist deleted whether it was done yet"})
		})
	})
}

// endDeletion answers a request, if that has not been done.
func (c *Controller) endDeletion(x *deleting, o DeletionOutcome) {
	if c.deletions[x.Incarnation] != x {
		return
	}
	delete(c.deletions, x.Incarnation)
	for _, e := range x.plan.Parts {
		c.unbarUnlessGivenUp(e.Owner)
	}
	o.Plan = x.plan
	x.done(o)
}

// endDeletions answers all requests: this node decides no more.
func (c *Controller) endDeletions() {
	for _, i := range slices.Sorted(maps.Keys(c.deletions)) {
		c.endDeletion(c.deletions[i], DeletionOutcome{Refused: changedMeanwhile})
	}
}

// deletionSteps takes every request a step further, if it can be.
func (c *Controller) deletionSteps() {
	for _, i := range slices.Sorted(maps.Keys(c.deletions)) {
		if x := c.deletions[i]; !x.sent {
			c.deletionStep(x)
		}
	}
}

func (c *Controller) deletionStep(x *deleting) {
	var r *catalog.Resource
	c.env.View(func(v *catalog.View) { r = v.Incarnation(x.Incarnation) })
	if r == nil {
		c.endDeletion(x, DeletionOutcome{Refused: "it was deleted meanwhile"})
		return
	}
	var in []control.LossInput
	for _, a := range r.Partitions {
		t := c.open[a.Partition]
		if t != nil && !t.stands() {
			return // it is decided, or stands, in a moment
		}
		i, failed := c.lossInput(a, r.Kind, t)
		if failed != "" {
			c.endDeletion(x, DeletionOutcome{Refused: failed})
			return
		}
		in = append(in, i)
	}
	x.plan = control.PlanDeletion(r, in)
	if !x.Execute {
		c.endDeletion(x, DeletionOutcome{})
		return
	}
	if refused := c.deletionRefused(x); refused.Refused != "" {
		c.endDeletion(x, refused)
		return
	}
	c.deleteNow(x, r)
}

// deletionRefused checks what an operator has agreed to against the plan.
func (c *Controller) deletionRefused(x *deleting) (o DeletionOutcome) {
	missing := x.plan.Unstopped(x.Stopped)
	switch {
	case x.plan.Against != "":
		o.Refused = x.plan.Against
		return o
	case x.plan.Hash() != x.Plan:
		o.Refused, o.Moved = "the plan is another by now: look at it again", true
		return o
	case len(missing) == 0:
		return o
	}
	for _, e := range x.plan.Parts {
		switch {
		case e.Served:
		case !c.leaseFences(e.Partition):
			o.Refused = control.StopFirst(missing)
		case !c.lapsed(e.Owner):
			o.Refused = control.WaitForLease(e.Owner.Node, c.leaseOver(e.Owner)-c.now(), missing)
		}
	}
	return o
}

// deleteNow asks the catalog.
func (c *Controller) deleteNow(x *deleting, r *catalog.Resource) {
	d := catalog.Deletion{
		Incarnation: r.Incarnation, VHost: r.VHost, Name: r.Name, At: c.env.Clock.Wall().UnixMilli(), Reason: x.Reason, Stopped: x.Stopped,
	}
	cmd, err := catalog.Encode(catalog.ForceDelete(d, x.plan.Versions))
	if err != nil {
		c.endDeletion(x, DeletionOutcome{Refused: err.Error()})
		return
	}
	x.sent = true
	trace.Warn(c.env.Trace, "deletion.forced", slog.String("resource", r.Name), slog.String("vhost", r.VHost), slog.Uint64("incarnation", r.Incarnation),
		slog.String("reason", x.Reason))
	c.propose(cmd, func(err error) {
		c.box.Post(func() {
			var done bool
			c.env.View(func(v *catalog.View) { done = v.Deletion(x.Incarnation) != nil })
			o := DeletionOutcome{Done: done}
			switch {
			case done:
			case err != nil:
				o.Refused = "the catalog did not answer; see tanist deleted whether it was done yet"
			default:
				o.Refused = "the catalog refused it: something has moved, or too many deletions are remembered (tanist deleted); plan again"
			}
			c.endDeletion(x, o)
		})
	})
}
