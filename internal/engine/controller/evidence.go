package controller

import (
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/quorum"
)

// What is kept of a transition is made here, from what it was decided on, and offered to the nodes ahead of the commit (design 2 §5
// step 4, design 6 "Evidence").

// times are when the steps of a transition were taken, in microseconds since 1970 on this node's clock; 0: not here.
type times struct {
	recorded int64
	sealed   int64 // enough had answered
}

func (c *Controller) micros() int64 { return c.env.Clock.Wall().UnixMicro() }

// suspectedAt is when the symptom of what is recorded now began.
func (c *Controller) suspectedAt(a *catalog.Assignment, why control.Reason) int64 {
	if why.Why == control.OwnerSuspected {
		if s, ok := c.watch.detector.Suspect(a.Owner); ok {
			return c.micros() - (c.now() - s.Since).Microseconds()
		}
	}
	return c.micros()
}

// carry takes over from the step before what a record says of it.
func (c *Controller) carry(old, t *transition) {
	switch {
	case old == nil || t.assignment.Pending == nil:
	case old.step == recording:
		t.times.recorded = c.micros()
	default:
		t.times.recorded = old.times.recorded
	}
}

// evidence is the record of a choice, or of what is known where there is none; nil where the resource is gone.
func (c *Controller) evidence(t *transition, in control.Input, d control.Decision) (e *evidence.Evidence) {
	_, by := c.floor(t.assignment)
	c.env.View(func(v *catalog.View) {
		if r := v.Incarnation(t.assignment.Partition.Incarnation); r != nil {
			e = t.evidence(r, in, d, by)
		}
	})
	return e
}

func (t *transition) evidence(r *catalog.Resource, in control.Input, d control.Decision, floorBy string) *evidence.Evidence {
	e := control.EvidenceOf(r, in, d, floorBy)
	t.timesOf(e)
	return e
}

// timesOf notes when the steps were taken.
func (t *transition) timesOf(e *evidence.Evidence) {
	e.Recorded, e.Sealed = t.times.recorded, t.times.sealed
	if e.Recorded == 0 {
		e.Recorded = t.assignment.Pending.Since * 1000 // by a controller before
	}
}

// input is what is known of a transition whose policy says what a confirm needs.
func (c *Controller) input(t *transition) control.Input {
	in := control.Input{Assignment: t.assignment, Said: t.said, Links: t.links, Dropped: t.dropped}
	in.Floor, _ = c.floor(t.assignment)
	if p, err := quorum.Parse(t.assignment.Policy); err == nil {
		in.W = quorum.W(p, t.assignment.Eligible(), t.kind)
	}
	for _, m := range t.members {
		if m.answer != nil {
			in.Answers = append(in.Answers, *m.answer)
			if c.suspects(m.member) || c.watch.detector.Cools(m.member) {
				in.Suspected = append(in.Suspected, m.member.Store)
			}
		}
	}
	return in
}

// chosen notes what a choice went by, for the commit to name it.
func (c *Controller) chosen(t *transition, in control.Input, d control.Decision) {
	t.commit = control.CommitOf(t.assignment, d)
	if t.record = c.evidence(t, in, d); t.record != nil {
		t.record.Chosen = c.micros()
		t.commit.Start.Evidence = t.record.Digest()
	}
}

// offer gives the records of what is about to be committed to those who keep them, ahead of the commit.
func (c *Controller) offer(of []*transition) {
	var list []*evidence.Evidence
	for _, t := range of {
		if t.record != nil {
			list = append(list, t.record)
		}
	}
	c.offerAll(list)
}

func (c *Controller) offerAll(list []*evidence.Evidence) {
	if len(list) > 0 && c.env.Offer != nil {
		c.env.Offer(list)
	}
}

// waits offers what is known of a transition that cannot go on. What it comes to replaces it.
func (c *Controller) waits(t *transition, in control.Input, d control.Decision) {
	if e := c.evidence(t, in, d); e != nil {
		e.Reason = t.reason
		c.offerAll([]*evidence.Evidence{e})
	}
}

// withdrawn leaves a record of a transition that was pending, and is no more, while its partition goes on in the same epoch. A withdrawal that
// a controller before asked for may come after this one has sealed copies: they have promised ahead of the catalog then, and say so
// themselves only in a while.
func (c *Controller) withdrawn(old *transition, a *catalog.Assignment) {
	if old == nil || old.assignment.Pending == nil || a.Pending != nil || a.Epoch != old.assignment.Epoch {
		return
	}
	reason := "nothing was a reason any more, and no copy was sealed"
	for _, m := range old.members {
		if m.answer != nil && m.answer.Instance.Store == m.member.Store && m.answer.Refused == "" && m.answer.Damaged == "" {
			reason = "a controller before withdrew it while copies were being sealed; another one follows"
			c.watch.promises[a.Partition] = append(c.watch.promises[a.Partition], control.Promise{
				Node: m.member.Node, Store: m.member.Store, Epoch: old.assignment.Pending.Epoch,
			})
		}
	}
	if e := c.evidence(old, c.input(old), control.Decision{}); e != nil {
		c.offerCancelled(e, reason)
	}
}

// abandoned leaves a record of a transition whose resource was deleted.
func (c *Controller) abandoned(r *catalog.Resource, old *transition) {
	if old == nil || old.assignment.Pending == nil {
		return
	}
	var d *catalog.Deletion
	c.env.View(func(v *catalog.View) { d = v.Deletion(r.Incarnation) })
	if d == nil {
		c.offerCancelled(old.evidence(r, c.input(old), control.Decision{}, ""), "its resource was deleted")
		return
	}
	_, by := c.floor(old.assignment)
	e := old.evidence(r, c.input(old), old.decision, by)
	control.EvidenceOfDeletion(e, d)
	c.offerAll([]*evidence.Evidence{e})
}

func (c *Controller) offerCancelled(e *evidence.Evidence, reason string) {
	e.Outcome, e.Reason = evidence.Cancelled, reason
	c.offerAll([]*evidence.Evidence{e})
}
