package explore

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// choices are the ways in which the controller may choose: by any of the answers that were given, for others may be late or lost.
func (w *world) choices() []Action {
	var out []Action
	var seen []control.Decision
	for of := uint8(1); of < 1<<(2*Nodes); of++ {
		if !w.given(of) {
			continue
		}
		for tie := range w.x.ties {
			d := w.choose(of, tie)
			if d.Verdict != control.Chosen && d.Verdict != control.Blocked {
				continue
			}
			known := false
			for i := range seen {
				known = known || seen[i].Verdict == d.Verdict && seen[i].Owner == d.Owner && seen[i].Start == d.Start
			}
			if !known {
				seen = append(seen, d)
				out = append(out, Action{Kind: Choose, A: of, B: uint8(tie)})
			}
		}
	}
	return out
}

// given reports whether there are such answers.
func (w *world) given(of uint8) bool {
	for i, x := range w.answers {
		if int(of>>(2*i)&3) > len(x) {
			return false
		}
	}
	return of>>(2*Nodes) == 0
}

// seals are the ways in which a seal may come to a node, and do anything there.
func (w *world) seals(out []Action, n *node) []Action {
	at := uint64(0)
	if p := w.cat.v.a.Pending; p != nil {
		at = p.Epoch
		if w.askable(n) {
			by := uint8(0)
			if w.x.bounds.Overlap {
				by = 1 // all that comes of the other's seals comes of these, and it may still be withdrawn
			}
			out = append(out, Action{Kind: Seal, A: uint8(n.index), B: by})
		}
	}
	e := n.copy.Promise() + 1
	if w.x.bounds.Lazy {
		e = max(e, w.cat.v.a.Epoch+1)
	}
	if w.x.fault == LateSealTaken && n.copy.Epoch() > 1 && n.disk.epoch == n.copy.Epoch() && !n.copy.Applying() {
		out = append(out, Action{Kind: LateSeal, A: uint8(n.index), B: uint8(n.copy.Epoch())})
	}
	for ; e <= w.asked; e++ {
		if e != at && !slices.ContainsFunc(n.sealing, func(r request) bool { return r.epoch >= e }) {
			out = append(out, Action{Kind: LateSeal, A: uint8(n.index), B: uint8(e)})
		}
	}
	return out
}

// askable reports whether a node has not heard the seal of the pending transition in this run.
func (w *world) askable(n *node) bool {
	p := w.cat.v.a.Pending
	return p != nil && !w.answered(n) && !slices.ContainsFunc(n.sealing, func(r request) bool { return r.id == p.ID })
}

// sealed has a seal come to a node.
func (w *world) sealed(a Action) bool {
	n, p := w.nodes[a.A], w.cat.v.a.Pending
	if !n.up {
		return false
	}
	if a.Kind == LateSeal {
		e := uint64(a.B)
		if w.x.fault == LateSealTaken && e == n.copy.Epoch() && n.disk.epoch == e && e > 1 && n.copy.Role() != partition.Sealed {
			n = w.mine(n.index)
			n.disk.epoch--
			w.reopen(n)
			return true
		}
		if e > w.asked || p != nil && p.Epoch == e {
			return false
		}
		w.seal(w.mine(n.index), request{uint64(a.B), fmt.Sprintf("a late seal of epoch %d", a.B)})
		return true
	}
	if !w.askable(n) {
		return false
	}
	w.pending.sent = w.pending.sent || a.B == 0
	w.seal(w.mine(n.index), request{p.Epoch, p.ID})
	return true
}

// reason is why the partition needs a transition, by all that is known, and by a suspicion where there is one.
func (w *world) reason(suspected bool) control.Reason {
	var promises []control.Promise
	for _, n := range w.nodes {
		if i := n.instance(); n.up && w.x.fault != CancelUnanswered {
			promises = append(promises, control.Promise{Node: i.Node, Store: i.Store, Epoch: n.copy.Promise()})
		}
	}
	return control.CauseOf(w.cat.v.a, w.cat.state.View(), suspects(suspected), promises)
}

// suspects is a detector that suspects every owner, or none.
type suspects bool

// Suspect implements control.Suspects.
func (s suspects) Suspect(run ident.Instance) (control.Suspicion, bool) {
	return control.Suspicion{Node: run}, bool(s)
}

// record has the catalog record a transition, for a reason, or for a suspicion if there is none.
func (w *world) record() bool {
	now := w.cat.v.a
	why := w.reason(false)
	if why.Why == control.NoReason && w.x.bounds.Suspect {
		why = w.reason(true)
	}
	if why.Why == control.NoReason || why.Why == control.PromiseMet || now.Epoch >= w.x.bounds.Epochs {
		return false
	}
	p := control.Pend(now, why, 0)
	p.Cause, p.By = "", nil // states do not differ by it
	w.must(catalog.RecordPending(now.Partition, now.Version, p))
	w.asked = max(w.asked, p.Epoch)
	w.pending = pending{vain: control.MayCancel(w.reason(false), true, false)}
	return true
}

// trails reports whether one more transition that is withdrawn leaves anything behind: versions that are to be heard, proposals that are to be
// decided on. Where it does not, such transitions are not counted.
func (w *world) trails() bool {
	a := w.cat.v.a
	return len(w.versions) > 1 || w.undecided() > 0 || len(a.Learners)+len(a.Leaving) > 0 || w.wishesPolicy(a)
}

// cancel withdraws the transition that is pending, if the controller that recorded it may, or has done so before it sent anything: then
// another may have sealed meanwhile.
func (w *world) cancel() bool {
	now := w.cat.v.a
	if now.Pending == nil || w.x.bounds.Cancels == 0 || w.trails() && int(w.used.cancels) >= w.x.bounds.Cancels {
		return false
	}
	at := control.MayCancel(w.reason(false), true, w.pending.sent)
	if !at && !(w.x.bounds.Overlap && w.pending.vain && !w.pending.sent) && w.x.fault != CancelUnanswered {
		return false
	}
	if w.trails() {
		w.used.cancels++
	}
	w.must(catalog.CancelPending(now.Partition, now.Version, now.Pending.ID))
	w.answers, w.pending = [Nodes][]control.Answer{}, pending{}
	if why := w.reason(false); at && why.Why != control.NoReason {
		w.breaks("a transition is withdrawn, and needed: %s", why.Text)
	}
	return true
}

// govern takes the steps of the catalog and of its controller.
func (w *world) govern(a Action) bool {
	now := w.cat.v.a
	switch a.Kind {
	case Record:
		return w.record()
	case Cancel:
		return w.cancel()
	case Choose:
		return w.commit(a)
	case Accept:
		return w.accepted(a)
	case Learn, Forgo, Leave, Stay, Wish, Want:
		return w.wished(a)
	case Grow:
		up := uint8(0)
		for i, n := range w.nodes {
			if n.up {
				up |= 1 << i
			}
		}
		g := w.cat.grow(up)
		if now.Pending != nil || g == nil {
			return false
		}
		w.must(g.Item())
		return true
	case Decide, Lose:
		if int(a.A) >= len(w.proposals) {
			return false
		}
		if a.Kind == Lose {
			w.used.breaks++
		}
		w.decide(int(a.A), a.Kind == Decide)
		return true
	case Again:
		waits := slices.ContainsFunc(w.proposals, func(p proposal) bool { return p.of == int(a.A) && w.concerns(&p) })
		if !waits || w.undecided() > 1 {
			return false
		}
		w.used.breaks++
		n := w.mine(int(a.A))
		n.change.Answered(errLost)
		n.change.Again()
		w.propose(n)
		return true
	}
	return false
}

// must has the catalog do what it cannot refuse.
func (w *world) must(it catalog.Item) {
	next, refused := w.x.apply(w.cat, it)
	if refused != nil {
		w.breaks("the catalog refuses: %v", refused)
	}
	w.setCatalog(next)
}

func (w *world) setCatalog(c *cat) {
	w.cat = c
	if last := w.versions[len(w.versions)-1]; last != c.v {
		w.versions = append(w.versions[:len(w.versions):len(w.versions)], c.v)
	}
}

func (w *world) commit(a Action) bool {
	now := w.cat.v.a
	if now.Pending == nil {
		return false
	}
	if !w.given(a.A) {
		return false
	}
	d := w.choose(a.A, int(a.B))
	switch d.Verdict {
	case control.Blocked:
		w.breaks("5: blocked, and nobody has lost or forged anything: %s", d.Reason)
		return true
	case control.Wait, control.Ask:
		return false
	case control.Chosen:
	}
	w.tell("%s owns epoch %d from %d", d.Owner.Node, d.Start.Epoch, d.Start.Position)
	next, refused := w.x.apply(w.cat, catalog.CommitTransition(control.CommitOf(now, d)))
	if refused != nil {
		return false // such as an owner that has restarted since: it is asked again
	}
	w.checkChoice(&d)
	w.answers, w.pending = [Nodes][]control.Answer{}, pending{}
	w.setCatalog(next)
	return true
}
