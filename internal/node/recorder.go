package node

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/front/admin"
)

// Transitions implements admin.Backend.
func (b *backend) Transitions(_ context.Context, of admin.Which, n int) ([]*evidence.Evidence, error) {
	all := b.n.Evidence().Last(evidence.DefaultTotal)
	all = slices.DeleteFunc(all, func(e *evidence.Evidence) bool { return !of.Matches(e.VHost, e.Resource) })
	slices.Reverse(all)
	slices.SortStableFunc(all, func(x, y *evidence.Evidence) int { return cmp.Compare(began(y), began(x)) })
	return all[:min(n, len(all))], nil
}

// began is the first moment that is known of a transition: records that came from other nodes are not in order of time.
func began(e *evidence.Evidence) int64 {
	return cmp.Or(e.Suspected, e.Recorded, e.Sealed, e.Chosen, e.Committed, e.Serving)
}

// Transition implements admin.Backend.
func (b *backend) Transition(_ context.Context, id string) (*evidence.Evidence, error) {
	e := b.n.Evidence().Get(id)
	if e == nil {
		return nil, broker.Errorf(broker.NotFound, "node %s keeps no evidence of a transition %q; `tanist timeline` lists those that it keeps", b.n.local.Node, id)
	}
	return e, nil
}

// Attention implements admin.Backend. It remembers what it said before, so that what goes on keeps its beginning.
func (b *backend) Attention(ctx context.Context) (admin.Attention, error) {
	g := b.gather(ctx, protocol.StatusAsk{All: true})
	k := control.Known{Now: b.n.env.Clock.Wall().UnixMilli()}
	c, err := b.catalogStatus(ctx)
	if err != nil {
		return admin.Attention{}, err
	}
	if c.Leader == 0 {
		k.NoQuorum = "no node leads the catalog"
	}
	out := admin.Attention{Node: b.n.local.Node, Silent: slices.Sorted(maps.Keys(g.silent))}
	b.n.View(func(v *catalog.View) { // the node's own, which only the catalog's loop changes; it is held while it is read
		k.View = v
		g.known(&k)
		b.said.Lock()
		defer b.said.Unlock()
		out.Conditions, out.Total = control.Attention(k, b.said.last)
		b.said.last = out.Conditions
	})
	return out, nil
}

// known adds what the nodes of the catalog say of themselves and their copies.
func (g *gathered) known(k *control.Known) {
	for _, n := range k.View.Nodes() {
		a, live := g.answers[n.Name]
		k.Nodes = append(k.Nodes, control.NodeState{Node: n.Name, Live: live, Closed: a.Closed, Reason: a.Health})
		for i := range a.Items {
			s := &a.Items[i]
			x := control.CopyState{Partition: s.Partition, Node: n.Name, DeadLetters: s.DeadLetters, Stuck: s.Stuck}
			if damaged(s, &a) {
				x.Damaged = s.Reason
			}
			k.Copies = append(k.Copies, x)
		}
	}
}
