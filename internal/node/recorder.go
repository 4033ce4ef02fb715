package node

import (
	"context"
	"maps"
	"slices"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/admin/console"
)

// Transitions implements admin.Backend.
func (b *backend) Transitions(_ context.Context, of admin.Which, n int) ([]*evidence.Evidence, error) {
	all := b.n.Evidence().Last(evidence.DefaultTotal)
	all = slices.DeleteFunc(all, func(e *evidence.Evidence) bool { return !of.Matches(e.VHost, e.Resource) })
	slices.Reverse(all)
	return all[:min(n, len(all))], nil
}

// Transition implements admin.Backend.
func (b *backend) Transition(_ context.Context, id string) (*evidence.Evidence, error) {
	e := b.n.Evidence().Get(id)
	if e == nil {
		return nil, broker.Errorf(broker.NotFound, "node %s keeps no evidence of a transition %q; `tanist timeline` lists those that it keeps", b.n.local.Node, id)
	}
	return e, nil
}

// Healthy implements admin.Backend.
func (b *backend) Healthy(ctx context.Context) (admin.Check, error) {
	out := admin.Check{Node: b.n.local.Node}
	err := b.survey(ctx, stepTime, func(_ *gathered, k control.Known) { out.Obstacles, out.Total = control.Unhealthy(k) })
	return out, err
}

// QuorumCritical implements admin.Backend.
func (b *backend) QuorumCritical(ctx context.Context, node string) (admin.Check, error) {
	out := admin.Check{Node: b.n.local.Node}
	known := false
	err := b.survey(ctx, stepTime, func(_ *gathered, k control.Known) {
		known = k.View.Node(node) != nil
		out.Obstacles, out.Total = control.StopsWithout(k, node)
		for _, r := range k.View.AllResources() {
			if r.Home != nil && r.Home.Node == node {
				out.InMemory++
			}
		}
	})
	if err == nil && !known {
		err = broker.Errorf(broker.NotFound, "no node '%s'; `tanist node list` shows them", node)
	}
	return out, err
}

// Attention implements admin.Backend. It remembers what it said before, so that what goes on keeps its beginning.
func (b *backend) Attention(ctx context.Context) (admin.Attention, error) {
	var out admin.Attention
	err := b.survey(ctx, 0, func(g *gathered, k control.Known) { out = b.attention(g, k) })
	return out, err
}

func (b *backend) attention(g *gathered, k control.Known) admin.Attention {
	out := admin.Attention{Node: b.n.local.Node, Silent: slices.Sorted(maps.Keys(g.silent))}
	b.said.Lock()
	defer b.said.Unlock()
	out.Conditions, out.Total, out.Needing = control.Attention(k, b.said.last)
	b.said.last = out.Conditions
	return out
}

// Picture implements console.Backend.
func (b *backend) Picture(ctx context.Context) (p console.Picture, err error) {
	var told gathered
	if err = b.survey(ctx, glance, func(g *gathered, k control.Known) {
		told = *g
		p.Attention, p.Partitions = b.attention(g, k), g.partitions(k)
	}); err != nil {
		return p, err
	}
	if p.Overview, err = b.overview(ctx, told); err != nil {
		return p, err
	}
	if p.Nodes, err = b.nodes(ctx, told); err != nil {
		return p, err
	}
	p.Resources = b.resourcesOf(told)
	b.gatewayMetrics(ctx, &p.Clients)
	return p, ctx.Err()
}
