package replica

import (
	"slices"

	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// attach opens a gateway's stream, which ends its older one.
func (r *replica) attach(m protocol.Attach) {
	i := slices.IndexFunc(r.inlets, func(in *inlet) bool { return in.gateway == m.Gateway })
	if i >= 0 && runOf(r.inlets[i].producer) < runOf(m.Producer) {
		r.drop(r.inlets[i]) // its node has come back as another store, whose runs are counted from 1 again
		i = -1
	}
	if i >= 0 && r.inlets[i].stream >= m.Stream {
		return
	}
	if why := r.refusal(m.Gateway); why != "" {
		m.Reply.Send(protocol.NotServing{Partition: r.id, Stream: m.Stream, Reason: why})
		return
	}
	in := &inlet{gateway: m.Gateway, stream: m.Stream, reply: m.Reply, attach: &m, producer: m.Producer, until: r.mono() - int64(m.Away)}
	if i >= 0 {
		old := r.inlets[i]
		old.dead = true
		in.number = old.number
		r.inlets[i] = in
		if r.ending != nil && r.ending.closedBy == old {
			r.ending.closedBy = in
		}
	} else {
		r.gateways++
		in.number = r.gateways
		if r.inlets == nil {
			r.inlets = r.first[:0]
		}
		r.inlets = append(r.inlets, in)
	}
	if r.phase >= claiming {
		r.open(in)
		r.claimed()
	}
}

// runOf is the number of a gateway's run among all runs of all nodes (catalog.Node), by its producer's id.
func runOf(producer uint64) uint64 { return producer >> 32 }

// over reports whether the catalog has buried the run that an inlet's gateway is of.
func (r *replica) over(in *inlet) bool { return r.m.gone(in.gateway) || r.m.buried(in.producer) }

// refusal says why no stream can be opened; empty where it can, or will be as soon as the owner's state is there.
func (r *replica) refusal(g protocol.Gateway) string {
	c := &r.copy
	switch {
	case r.m.gone(g):
		return "this run of the gateway's node is over"
	case c.Damaged() != "":
		return "storage: " + c.Damaged()
	case r.stopping():
		return "the node is stopping"
	case c.Open() || c.Becoming() == partition.Owner:
		return ""
	case c.Role() == partition.Sealed:
		return "sealed for a change of owner"
	case c.Role() == partition.Follower || c.Role() == partition.Learner:
		return "another node owns the partition"
	}
	return "the partition has no owner here yet"
}

// open answers an Attach.
func (r *replica) open(in *inlet) {
	m := in.attach
	if m == nil {
		return
	}
	in.attach = nil
	from, lost := r.want.LostSince(m.Epoch)
	if lost = lost && m.Epoch > 0; lost {
		m.Claims = slices.DeleteFunc(m.Claims, func(c protocol.Claim) bool { return c.Offset >= from })
	} else {
		from = 0
	}
	denied := r.side.attach(r, in, m)
	in.source = partition.NewSource(&r.producers, m.Producer, m.First)
	in.told = true
	if m.Producer&(1<<24-1) != 0 {
		r.tidy = true // it gave an older id up
	}
	in.reply.Send(protocol.Attached{
		Partition: r.id, Stream: in.stream, Epoch: r.copy.Epoch(), Expect: in.source.Expect(), Lost: lost, LostFrom: from,
	})
	r.tellDenied(denied)
}

// tellDenied tells gateways which deliveries their clients do not hold any more.
func (r *replica) tellDenied(denied []queue.Denied) {
	for len(denied) > 0 {
		gateway := denied[0].Gateway
		var claims []protocol.Claim
		denied = slices.DeleteFunc(denied, func(d queue.Denied) bool {
			if d.Gateway == gateway {
				claims = append(claims, protocol.Claim(d.Claim))
			}
			return d.Gateway == gateway
		})
		if in := r.holder(gateway); in != nil {
			in.reply.Send(protocol.Denied{Partition: r.id, Stream: in.stream, Claims: claims})
		}
	}
}

// inlet is the open stream that a message came on; nil where it is not the present one of its gateway.
func (r *replica) inlet(to *protocol.To) *inlet {
	for _, in := range r.inlets {
		if in.stream == to.Stream && in.gateway == to.Gateway {
			if in.attach != nil {
				return nil
			}
			return in
		}
	}
	return nil
}

func (r *replica) detach(m protocol.Detach) {
	for _, in := range r.inlets {
		if in.gateway == m.Gateway && in.stream <= m.Stream {
			r.drop(in)
			return
		}
	}
}

// drop ends a gateway's work here.
func (r *replica) drop(in *inlet) {
	in.dead = true
	r.inlets = slices.DeleteFunc(r.inlets, func(o *inlet) bool { return o == in })
	if r.phase >= claiming && in.attach == nil {
		r.side.release(r, in.number)
	}
	if r.ending != nil && r.ending.closedBy == in {
		r.reopened(nil)
	}
	if len(r.inlets) == 0 {
		r.trim()
	}
}

// forgetInlets lets go of all streams.
func (r *replica) forgetInlets() { r.inlets, r.first = nil, [1]*inlet{} }

func publishedMsg(r *replica, in *inlet, upTo uint64) any {
	return protocol.Published{Partition: r.id, Stream: in.stream, UpTo: upTo}
}

func settledMsg(r *replica, in *inlet, seq uint64) any {
	return protocol.Settled{Partition: r.id, Stream: in.stream, Seq: seq}
}
