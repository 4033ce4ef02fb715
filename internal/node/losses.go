package node

import (
	"context"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/controller"
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

// askLoss asks the node whose controller decides.
func (b *backend) askLoss(ctx context.Context, m protocol.LossAsk) (protocol.LossAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, lossTime)
	defer cancel()
	c, err := b.catalogStatus(ctx)
	if err != nil {
		return protocol.LossAnswer{}, err
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
		return protocol.LossAnswer{}, broker.Errorf(broker.Unavailable,
			"no node leads the catalog, and nothing can be decided without it: `tanist attention` says which nodes it needs")
	}
	type answer struct {
		a  protocol.LossAnswer
		ok bool
	}
	x, err := await(ctx, func(done func(answer)) {
		if leader == b.n.local.Node {
			b.n.answerLoss(m, func(a protocol.LossAnswer) { done(answer{a, true}) })
			return
		}
		m.Request = b.n.questions.ask(leader, 1, func(msg any) {
			a, ok := msg.(protocol.LossAnswer)
			done(answer{a, ok})
		})
		if b.n.sendControl(leader, m); !b.n.sees(leader) {
			b.n.questions.answered(m.Request, leader, 1, nil)
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
