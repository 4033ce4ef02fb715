package node

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/controller"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/front/admin"
)

// lossTime bounds how long an accepted loss is waited for: longer than its controller may take.
const lossTime = 8 * time.Second

// answerLoss has this node's controller plan an accepted loss, or carry it out.
func (n *Node) answerLoss(m protocol.LossAsk, done func(protocol.LossAnswer)) {
	q := controller.LossRequest{Partition: m.Partition, Execute: m.Execute, Plan: m.Plan, Reason: m.Reason, Stopped: m.Stopped}
	n.controller.Loss(q, func(o controller.LossOutcome) {
		p := &o.Plan
		a := protocol.LossAnswer{
			Request: m.Request, From: n.local, Epoch: p.Epoch, Owner: p.Owner, Candidate: p.Candidate, Position: p.Start.Position,
			Offset: p.Start.Offset, To: p.To, FloorBy: p.FloorBy, FloorAt: o.FloorAt, Followers: nodesOf(p.Followers), Learners: nodesOf(p.Learners),
			Missing: nodesOf(p.Missing), Fence: p.Fence, Against: p.Against, Hash: p.Hash(), Refused: o.Refused, Moved: o.Moved, Transition: o.Transition,
		}
		for _, x := range p.Excluded {
			a.Notes = append(a.Notes, x.Answer.Instance.Node+": "+x.Reason)
		}
		done(a)
	})
}

// Loss has this node's controller plan an accepted loss, or carry it out: see controller.Controller.Loss. done is called once, on the catalog's
// loop.
func (n *Node) Loss(q controller.LossRequest, done func(controller.LossOutcome)) {
	n.controller.Loss(q, done)
}

func nodesOf(of []catalog.Member) (out []string) {
	for _, m := range of {
		out = append(out, m.Node)
	}
	return out
}

// askLoss asks the controller about an accepted loss.
func (b *backend) askLoss(ctx context.Context, m protocol.LossAsk) (protocol.LossAnswer, error) {
	return askLeader(ctx, b, func(done func(protocol.LossAnswer)) { b.n.answerLoss(m, done) }, func(request uint64) any {
		m.Request = request
		return m
	})
}

// askLeader asks the node whose controller decides: here where that is this one, else with a message that carries the number of the request.
func askLeader[A any](ctx context.Context, b *backend, here func(done func(A)), message func(request uint64) any) (out A, err error) {
	ctx, cancel := context.WithTimeout(ctx, lossTime)
	defer cancel()
	c, err := b.catalogStatus(ctx)
	if err != nil {
		return out, err
	}
	leader := ""
	b.n.View(func(v *catalog.View) {
		for _, x := range v.Nodes() {
			if consensus.ID(x.Store) == c.Leader && c.Leader != 0 {
				leader = x.Name
			}
		}
	})
	if leader == "" {
		return out, broker.Errorf(broker.Unavailable,
			"no node leads the catalog, and nothing can be decided without it: `tanist attention` says which nodes it needs")
	}
	type answer struct {
		a  A
		ok bool
	}
	x, err := await(ctx, func(done func(answer)) {
		if leader == b.n.local.Node {
			here(func(a A) { done(answer{a, true}) })
			return
		}
		request := b.n.questions.ask(leader, 1, func(msg any) {
			a, ok := msg.(A)
			done(answer{a, ok})
		})
		if b.n.sendControl(leader, message(request)); !b.n.sees(leader) {
			b.n.questions.answered(request, leader, 1, nil)
		}
	})
	if err == nil && !x.ok {
		err = broker.Errorf(broker.Unavailable, "the controller on %s went away before it answered; ask again", leader)
	}
	return x.a, err
}

// partitionOf finds the partition that a query names.
func (b *backend) partitionOf(q admin.LossQuery) (p admin.LossPlan, id ident.Partition, err error) {
	if q.VHost == "" {
		q.VHost = catalog.DefaultVHost
	}
	b.n.View(func(v *catalog.View) {
		r := v.Resource(q.VHost, q.Resource)
		switch {
		case r == nil:
			err = broker.Errorf(broker.NotFound, "no queue or stream '%s' in vhost '%s'; `tanist status` shows them", q.Resource, q.VHost)
		case r.Home != nil:
			err = broker.Errorf(broker.Precondition, "'%s' lives in the memory of node %s alone: there are no copies to give up", q.Resource, r.Home.Node)
		case q.Partition == nil && len(r.Partitions) > 1:
			err = broker.Errorf(broker.Precondition, "'%s' has %d partitions: say which", q.Resource, len(r.Partitions))
		case q.Partition != nil && int(*q.Partition) >= len(r.Partitions):
			err = broker.Errorf(broker.NotFound, "'%s' has no partition %d", q.Resource, *q.Partition)
		default:
			p = admin.LossPlan{VHost: r.VHost, Resource: r.Name, Kind: string(r.Kind)}
			if q.Partition != nil {
				p.Partition = *q.Partition
			}
			id = r.Partitions[p.Partition].Partition
		}
	})
	return p, id, err
}

// filled is the plan that an answer tells.
func filled(p admin.LossPlan, a *protocol.LossAnswer) admin.LossPlan {
	p.Epoch, p.Owner, p.Candidate, p.Against = a.Epoch, a.Owner.Node, a.Candidate.Node, a.Against
	p.From, p.FromOffset, p.To, p.Entries, p.ReportedBy, p.ReportedAt = a.Position, a.Offset, a.To, a.To-a.Position, a.FloorBy, a.FloorAt
	p.Followers, p.Learners, p.Missing, p.MustBeStopped, p.Notes = a.Followers, a.Learners, a.Missing, a.Fence, a.Notes
	if p.Against == "" {
		p.Plan = a.Hash
	}
	return p
}

// PlanLoss implements admin.Backend.
func (b *backend) PlanLoss(ctx context.Context, q admin.LossQuery) (admin.LossPlan, error) {
	p, id, err := b.partitionOf(q)
	if err != nil {
		return p, err
	}
	a, err := b.askLoss(ctx, protocol.LossAsk{Partition: id})
	if err == nil && a.Refused != "" {
		err = broker.Errorf(broker.Unavailable, "%s", a.Refused)
	}
	if err != nil {
		return p, err
	}
	return filled(p, &a), nil
}

// AcceptLoss implements admin.Backend.
func (b *backend) AcceptLoss(ctx context.Context, q admin.LossRequest) (admin.LossDone, error) {
	p, id, err := b.partitionOf(q.LossQuery)
	if err != nil {
		return admin.LossDone{}, err
	}
	a, err := b.askLoss(ctx, protocol.LossAsk{Partition: id, Execute: true, Plan: q.Plan, Reason: q.Reason, Stopped: q.Stopped})
	if err == nil && a.Refused != "" {
		err = broker.Errorf(broker.Precondition, "%s", a.Refused)
	}
	if err != nil {
		return admin.LossDone{}, err
	}
	return admin.LossDone{Transition: a.Transition, Done: filled(p, &a)}, nil
}

// lossesAtOnce is how many partitions the controller is asked about at a time.
const lossesAtOnce = 32

// stranded is a partition that waits for missing copies, and what the controller says of it.
type stranded struct {
	id     ident.Partition
	plan   admin.LossPlan // without what the controller says
	answer protocol.LossAnswer
	err    error
}

// strandedNow are those that wait, at most admin.MaxLosses, and how many more there are.
func (b *backend) strandedNow(ctx context.Context) (all []stranded, more int, err error) {
	err = b.survey(ctx, glance, func(_ *gathered, k control.Known) {
		ids := control.Stranded(k)
		more = max(0, len(ids)-admin.MaxLosses)
		for _, id := range ids[:len(ids)-more] {
			if _, r := k.View.Assignment(id); r != nil {
				all = append(all, stranded{id: id, plan: admin.LossPlan{VHost: r.VHost, Resource: r.Name, Kind: string(r.Kind), Partition: id.Index}})
			}
		}
	})
	return all, more, err
}

// askLosses asks the controller about each, a few at a time.
func (b *backend) askLosses(ctx context.Context, all []stranded, ask func(x *stranded) protocol.LossAsk) {
	var asking sync.WaitGroup
	free := make(chan struct{}, lossesAtOnce)
	for i := range all {
		x := &all[i]
		free <- struct{}{}
		asking.Go(func() {
			x.answer, x.err = b.askLoss(ctx, ask(x))
			<-free
		})
	}
	asking.Wait()
}

// planLosses plans for all that waits. Those that can go on come first, by virtual host, resource and partition.
func (b *backend) planLosses(ctx context.Context) (out admin.LossesPlan, all []stranded, err error) {
	if all, out.More, err = b.strandedNow(ctx); err != nil {
		return out, nil, err
	}
	b.askLosses(ctx, all, func(x *stranded) protocol.LossAsk { return protocol.LossAsk{Partition: x.id} })
	var ids []ident.Partition
	var hashes []string
	for i := range all {
		x := &all[i]
		if x.err != nil { // the controller is gone, or slow: nothing can be said of the whole
			return out, nil, x.err
		}
		p := filled(x.plan, &x.answer)
		if x.answer.Refused != "" {
			p.Plan, p.Against = "", x.answer.Refused
		}
		if x.plan = p; p.Plan == "" {
			out.Left = append(out.Left, p)
			continue
		}
		ids, hashes = append(ids, x.id), append(hashes, p.Plan)
		out.Plans = append(out.Plans, p)
		out.MustBeStopped = append(out.MustBeStopped, p.MustBeStopped...)
	}
	if len(ids) > 0 {
		out.Plan = control.LossesHash(ids, hashes)
	}
	slices.SortFunc(out.Plans, byResource)
	slices.SortFunc(out.Left, byResource)
	slices.Sort(out.MustBeStopped)
	out.MustBeStopped = slices.Compact(out.MustBeStopped)
	return out, slices.DeleteFunc(all, func(x stranded) bool { return x.plan.Plan == "" }), nil
}

func byResource(x, y admin.LossPlan) int {
	return cmp.Or(strings.Compare(x.VHost, y.VHost), strings.Compare(x.Resource, y.Resource), cmp.Compare(x.Partition, y.Partition))
}

// PlanLosses implements admin.Backend.
func (b *backend) PlanLosses(ctx context.Context) (admin.LossesPlan, error) {
	p, _, err := b.planLosses(ctx)
	return p, err
}

// AcceptLosses implements admin.Backend. Each partition is accepted by the plan that the whole was made of.
func (b *backend) AcceptLosses(ctx context.Context, q admin.Consent) (out admin.LossesDone, _ error) {
	p, all, err := b.planLosses(ctx)
	switch {
	case err != nil:
		return out, err
	case p.Plan != q.Plan:
		return out, broker.Errorf(broker.Precondition, "the plan is another by now: look at it again")
	}
	b.askLosses(ctx, all, func(x *stranded) protocol.LossAsk {
		return protocol.LossAsk{Partition: x.id, Execute: true, Plan: x.plan.Plan, Reason: q.Reason, Stopped: q.Stopped}
	})
	for i := range all {
		x := &all[i]
		one := filled(x.plan, &x.answer)
		switch {
		case x.err != nil:
			_, text := admin.Explain(x.err)
			x.plan.Against = text.Message + "; it may have been done"
			out.Refused = append(out.Refused, x.plan)
		case x.answer.Refused != "":
			x.plan.Against = x.answer.Refused
			out.Refused = append(out.Refused, x.plan)
		default:
			out.Done = append(out.Done, admin.LossDone{Transition: x.answer.Transition, Done: one})
		}
	}
	slices.SortFunc(out.Done, func(x, y admin.LossDone) int { return byResource(x.Done, y.Done) })
	slices.SortFunc(out.Refused, byResource)
	return out, nil
}

// answerDeletion has this node's controller plan a forced deletion, or carry it out.
func (n *Node) answerDeletion(m protocol.DeletionAsk, done func(protocol.DeletionAnswer)) {
	q := controller.DeletionRequest{Incarnation: m.Incarnation, Execute: m.Execute, Plan: m.Plan, Reason: m.Reason, Stopped: m.Stopped}
	n.controller.Delete(q, func(o controller.DeletionOutcome) {
		a := protocol.DeletionAnswer{
			Request: m.Request, From: n.local, Fence: o.Plan.Fence, Against: o.Plan.Against, Hash: o.Plan.Hash(), Refused: o.Refused,
			Moved: o.Moved, Done: o.Done,
		}
		for _, e := range o.Plan.Parts {
			a.Parts = append(a.Parts, protocol.PartEnd{
				Partition: e.Partition, Epoch: e.Epoch, Owner: e.Owner, Served: e.Served, Floor: e.Floor, FloorBy: e.FloorBy,
				Left: nodesOf(e.Left), Missing: nodesOf(e.Missing),
			})
		}
		done(a)
	})
}

// askDeletion asks the controller about a resource that is named.
func (b *backend) askDeletion(ctx context.Context, q admin.DeletionQuery, m protocol.DeletionAsk) (admin.DeletionPlan, protocol.DeletionAnswer, error) {
	if q.VHost == "" {
		q.VHost = catalog.DefaultVHost
	}
	var p admin.DeletionPlan
	var err error
	b.n.View(func(v *catalog.View) {
		r := v.Resource(q.VHost, q.Resource)
		switch {
		case r == nil:
			err = broker.Errorf(broker.NotFound, "no queue or stream '%s' in vhost '%s'; `tanist status` shows them", q.Resource, q.VHost)
		case r.Home != nil:
			err = broker.Errorf(broker.Precondition, "'%s' lives in the memory of node %s alone, and goes with it", q.Resource, r.Home.Node)
		default:
			p = admin.DeletionPlan{VHost: r.VHost, Resource: r.Name, Kind: string(r.Kind), Incarnation: r.Incarnation}
		}
	})
	if err != nil {
		return p, protocol.DeletionAnswer{}, err
	}
	m.Incarnation = p.Incarnation
	a, err := askLeader(ctx, b, func(done func(protocol.DeletionAnswer)) { b.n.answerDeletion(m, done) }, func(request uint64) any {
		m.Request = request
		return m
	})
	if err != nil {
		return p, a, err
	}
	p.MustBeStopped, p.Against = a.Fence, a.Against
	for _, e := range a.Parts {
		p.Partitions = append(p.Partitions, admin.PartEnd{
			Partition: e.Partition.Index, Epoch: e.Epoch, Owner: e.Owner.Node, Served: e.Served, Confirmed: e.Floor, ReportedBy: e.FloorBy,
			Left: e.Left, Missing: e.Missing,
		})
	}
	if p.Against == "" {
		p.Plan = a.Hash
	}
	return p, a, nil
}

// PlanDeletion implements admin.Backend.
func (b *backend) PlanDeletion(ctx context.Context, q admin.DeletionQuery) (admin.DeletionPlan, error) {
	p, a, err := b.askDeletion(ctx, q, protocol.DeletionAsk{})
	if err == nil && a.Refused != "" {
		err = broker.Errorf(broker.Unavailable, "%s", a.Refused)
	}
	return p, err
}

// ForceDelete implements admin.Backend.
func (b *backend) ForceDelete(ctx context.Context, q admin.DeletionRequest) (admin.DeletionPlan, error) {
	p, a, err := b.askDeletion(ctx, q.DeletionQuery, protocol.DeletionAsk{Execute: true, Plan: q.Plan, Reason: q.Reason, Stopped: q.Stopped})
	if err == nil && a.Refused != "" {
		err = broker.Errorf(broker.Precondition, "%s", a.Refused)
	}
	return p, err
}

// Deletions implements admin.Backend.
func (b *backend) Deletions(ctx context.Context) (out []admin.Deletion, _ error) {
	b.n.View(func(v *catalog.View) {
		for _, d := range v.Deletions() {
			out = append(out, admin.Deletion{
				Incarnation: d.Incarnation, VHost: d.VHost, Resource: d.Name, Kind: string(d.Kind), At: d.At, Reason: d.Reason,
				Stopped: slices.Clone(d.Stopped), Held: nodesOf(d.Held),
			})
		}
	})
	if len(out) == 0 {
		return nil, nil
	}
	g := b.gather(ctx, protocol.StatusAsk{All: true})
	for node, copies := range g.copies {
		for p, s := range copies {
			i := slices.IndexFunc(out, func(d admin.Deletion) bool { return d.Incarnation == p.Incarnation })
			if i >= 0 && s.Role == replica.SetAside {
				out[i].Aside = append(out[i].Aside, admin.AsideCopy{
					Node: node, Partition: p.Index, Position: s.Position, Bytes: uint64(max(s.Bytes, 0)), Damaged: s.Reason,
				})
			}
		}
	}
	for i := range out {
		slices.SortFunc(out[i].Aside, admin.AsideCopy.Compare)
	}
	return out, nil
}

// ForgetDeletion implements admin.Backend.
func (b *backend) ForgetDeletion(ctx context.Context, incarnation uint64) error {
	return refusal(b.change(ctx, catalog.ForgetDeletion(incarnation)))
}
