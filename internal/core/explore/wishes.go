package explore

import (
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// What is wished of a partition, with Bounds.Changes: a controller or an operator may name any learner, give it up, mark any follower as
// leaving, and wish another policy or number of copies, at any time and whether there is a reason or not. The owners do the rest by the joint
// rule. What control.Arrange would do is a step as well (Grow), so that wishes without a reason are taken back at last.
//
// And an accepted loss, with Bounds.Losses: at any time beside a transition, by any of the answers that were given, if the nodes that control
// insists on are down.

// policies are those that can be wished, by their number.
var policies = [...]string{"local_durable", "majority_durable", "all_durable"}

// wishesPolicy reports whether another policy is wished than an assignment has.
func (w *world) wishesPolicy(a *catalog.Assignment) bool {
	return w.x.bounds.Changes > 0 && a.Policy != w.cat.wishes.Policy
}

// wishing are the wishes that there may be.
func (w *world) wishing(out []Action) []Action {
	if int(w.used.changes) >= w.x.bounds.Changes {
		return out
	}
	for i := range Nodes {
		out = append(out, Action{Kind: Learn, A: uint8(i)}, Action{Kind: Forgo, A: uint8(i)}, Action{Kind: Leave, A: uint8(i)})
	}
	out = append(out, Action{Kind: Stay})
	for _, p := range w.x.bounds.Wishes {
		out = append(out, Action{Kind: Wish, A: p})
	}
	for _, n := range w.x.bounds.Wants {
		out = append(out, Action{Kind: Want, A: n})
	}
	return out
}

// wished has the catalog take a wish, if that changes anything. An owner may do something about it at once.
func (w *world) wished(a Action) bool {
	if int(w.used.changes) >= w.x.bounds.Changes {
		return false
	}
	next, refused := w.x.apply(w.cat, w.wishItem(a))
	if refused != nil || next == w.cat {
		return false
	}
	w.used.changes++
	w.setCatalog(next)
	for i, n := range w.nodes {
		if n.up && n.copy.Role() == partition.Owner {
			w.flush(w.mine(i))
		}
	}
	return true
}

func (w *world) wishItem(a Action) catalog.Item {
	now := w.cat.v.a
	name := nodeName(int(a.A))
	m := catalog.Member{Node: name, Store: w.cat.state.View().Node(name).Store}
	switch a.Kind {
	case Learn:
		return catalog.AddLearner(now.Partition, now.Version, m)
	case Forgo:
		return catalog.DropLearner(now.Partition, now.Version, m)
	case Leave:
		i := slices.IndexFunc(now.Followers, func(f catalog.Member) bool { return f.Node == name })
		if i >= 0 {
			m = now.Followers[i]
		}
		return catalog.MarkLeaving(now.Partition, now.Version, []catalog.Member{m})
	case Wish:
		return catalog.SetWishes(catalog.DefaultVHost, "q", 0, policies[a.A], 0)
	case Want:
		return catalog.SetWishes(catalog.DefaultVHost, "q", 0, "", uint32(a.A))
	}
	return catalog.MarkLeaving(now.Partition, now.Version, nil)
}

// lowers notes that what the owner has appended up to now needs as many copies as before, if it would need fewer by the set that comes.
func (w *world) lowers(n *node, to partition.Set) {
	for i := range n.needs {
		n.needs[i] = min(n.needs[i], uint8(1+len(to.Followers)))
	}
	if w.x.fault == LoweredAtOnce {
		return
	}
	if s, ok := partition.Lowered(n.w, to, n.log.end().Position); ok && n.copy.Confirmed() < s.Below {
		n.lowered = append(n.lowered, s)
	}
}

// settleLowered forgets what entries needed that were appended before a change, once they are confirmed.
func (w *world) settleLowered(n *node) {
	was := len(n.lowered)
	n.lowered = slices.DeleteFunc(n.lowered, func(s partition.Set) bool { return n.copy.Confirmed() >= s.Below })
	if len(n.lowered) < was && n.copy.Open() {
		w.resets(n)
	}
}

// asAdmitted checks that what an owner confirms beyond tip is on as many copies as it needed when it was appended.
func (w *world) asAdmitted(n *node, e, tip *entry) {
	first := int(n.log.end().Position) - len(n.needs)
	for at := e; at != nil && int(at.end().Position) > max(first, int(tip.end().Position)); at = at.before {
		need := int(n.needs[int(at.end().Position)-first-1])
		if got := w.holders(n.heard.a, at); got < need {
			w.breaks("%d is confirmed in epoch %d on %d copies, and needed %d when it was appended", at.end().Position, n.copy.Epoch(), got, need)
		}
	}
}

// losses are the ways in which an operator may accept a loss.
func (w *world) losses(out []Action) []Action {
	if int(w.used.losses) >= w.x.bounds.Losses {
		return out
	}
	var seen []control.LossPlan
	for of := uint8(1); of < 1<<(2*Nodes); of++ {
		for tie := range w.x.ties {
			p, ok := w.planLoss(of, tie)
			if !ok || slices.ContainsFunc(seen, func(q control.LossPlan) bool {
				return p.Candidate == q.Candidate && p.Start == q.Start && slices.Equal(p.Followers, q.Followers)
			}) {
				continue
			}
			seen = append(seen, p)
			out = append(out, Action{Kind: Accept, A: of, B: uint8(tie)})
		}
	}
	return out
}

// planLoss is what accepting a loss would do by some answers; ok is false if it cannot be accepted.
func (w *world) planLoss(of uint8, tie int) (p control.LossPlan, ok bool) {
	if w.cat.v.a.Pending == nil || !w.given(of) {
		return p, false
	}
	in := control.LossInput{Input: w.input(of, tie)}
	for i, n := range w.nodes {
		if n.up {
			in.Reached = append(in.Reached, nodeName(i))
		}
	}
	if p = control.PlanLoss(in); len(p.Ask) > 0 {
		in.Said, in.Links = p.Candidate, map[uint64]batch.Link{}
		w.links(&in.Input, p.Candidate, p.Ask)
		p = control.PlanLoss(in)
	}
	for _, node := range p.Fence {
		if w.nodes[nodeIndex(node)].up {
			return p, false // it is not stopped
		}
	}
	return p, p.Against == "" && len(p.Ask) == 0
}

// links has a copy say its links.
func (w *world) links(in *control.Input, of ident.Instance, positions []uint64) {
	for i := range in.Answers {
		if in.Answers[i].Instance != of {
			continue
		}
		for _, at := range positions {
			if e := w.x.byLink[in.Answers[i].Tail.Link].at(at); e.end().Position == at {
				in.Links[at] = e.end().Link
			}
		}
	}
}

// accepted has an operator accept a loss. What is confirmed from then on is what the new owner begins with, as far as it was confirmed.
func (w *world) accepted(a Action) bool {
	if int(w.used.losses) >= w.x.bounds.Losses {
		return false
	}
	p, ok := w.planLoss(a.A, int(a.B))
	if !ok {
		return false
	}
	now := w.cat.v.a
	next, refused := w.x.apply(w.cat, catalog.AcceptLoss(control.LossOf(now, p)))
	if refused != nil {
		return false // such as an owner that has restarted since
	}
	w.used.losses++
	kept := w.x.byLink[p.Start.Link]
	gone := w.ledger.tip
	for !kept.extends(w.ledger.tip) {
		w.ledger.tip = w.ledger.tip.before
	}
	w.tell("%s owns epoch %d from %d; of %s is left %s", p.Candidate.Node, p.Start.Epoch, p.Start.Position, gone, w.ledger.tip)
	w.ledger.loss = p.Start.Epoch
	w.answers, w.pending = [Nodes][]control.Answer{}, pending{}
	w.setCatalog(next)
	return true
}
