package node

import (
	"context"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/front/admin"
)

// resources are those of the catalog, sorted by virtual host and name.
func (b *backend) resources() []*catalog.Resource {
	var all []*catalog.Resource
	b.n.View(func(v *catalog.View) {
		for _, h := range v.VHosts() {
			all = append(all, v.Resources(h.Name)...)
		}
	})
	return all
}

// Overview implements admin.Backend.
func (b *backend) Overview(ctx context.Context) (admin.Overview, error) {
	return b.overview(ctx, b.gather(ctx, protocol.StatusAsk{All: true}))
}

func (b *backend) overview(ctx context.Context, g gathered) (admin.Overview, error) {
	o := admin.Overview{
		Product: Product, Version: b.version, Node: b.n.local.Node, Started: b.started.UnixMilli(), States: map[admin.State]int{},
		Connections: b.front.Connections(), PID: b.n.cfg.PID, Blocked: blockedBy(b.n.store.Health()),
	}
	c, err := b.catalogStatus(ctx)
	if err != nil {
		return o, err
	}
	b.n.View(func(v *catalog.View) {
		o.Nodes = len(v.Nodes())
		o.Controller = controllerOf(v, &c)
	})
	if err := b.Ready(); err != nil {
		o.NotReady = err.Error()
	} else {
		o.Ready = true
	}
	for _, r := range b.resources() {
		o.Resources++
		for _, a := range r.Partitions {
			o.Partitions++
			state, _ := g.stateOf(a)
			o.States[state]++
		}
	}
	return o, nil
}

// controllerOf is the name of the node that leads the catalog, as far as this one knows.
func controllerOf(v *catalog.View, c *consensus.Status) string {
	for _, x := range v.Nodes() {
		if consensus.ID(x.Store) == c.Leader {
			return x.Name
		}
	}
	return ""
}

// Nodes implements admin.Backend.
func (b *backend) Nodes(ctx context.Context) ([]admin.Node, error) {
	return b.nodes(ctx, b.gather(ctx, protocol.StatusAsk{}))
}

func (b *backend) nodes(ctx context.Context, g gathered) ([]admin.Node, error) {
	c, err := b.catalogStatus(ctx)
	if err != nil {
		return nil, err
	}
	var out []admin.Node
	b.n.View(func(v *catalog.View) {
		leader := controllerOf(v, &c)
		for _, x := range v.Nodes() {
			one := admin.Node{
				Name: x.Name, AMQP: x.AMQP, Admin: x.Admin, Mesh: x.Mesh, Zone: x.Zone, Controller: x.Name == leader, Draining: x.Draining, Absent: x.Absent,
				Health: unknownHealth, Votes: slices.Contains(c.Voters, consensus.ID(x.Store)),
			}
			if a, ok := g.answers[x.Name]; ok {
				one.Live, one.PID, one.Health, one.Lease = true, int(a.PID), healthOf(&a), a.Lease
			} else {
				one.Reason = g.silent[x.Name]
			}
			out = append(out, one)
		}
	})
	return out, nil
}

func healthWord(h storage.Health) string {
	if h.Class == storage.Healthy {
		return "ok"
	}
	return string(h.Class)
}

func blockedBy(h storage.Health) string {
	switch {
	case h.Closed:
		return "storage is closed: " + h.Reason
	case h.Blocked:
		return "disk space is low"
	}
	return ""
}

// Resources implements admin.Backend.
func (b *backend) Resources(ctx context.Context) ([]admin.Resource, error) {
	return b.resourcesOf(b.gather(ctx, protocol.StatusAsk{All: true})), nil
}

func (b *backend) resourcesOf(g gathered) []admin.Resource {
	out := []admin.Resource{}
	for _, r := range b.resources() {
		one := admin.Resource{
			Name: r.Name, VHost: r.VHost, Kind: string(r.Kind), Incarnation: r.Incarnation, Durable: r.Durable, Exclusive: r.Exclusive,
			AutoDelete: r.AutoDelete, Policy: policyOf(r), Copies: r.Target(), Partitions: len(r.Partitions), State: admin.Serving,
		}
		for _, a := range r.Partitions {
			if s := g.copies[a.Owner.Node][a.Partition]; s != nil {
				one.Ready += s.Ready
				one.Unsettled += s.Unsettled
				one.Consumers += int(s.Consumers)
				one.Bytes += uint64(max(s.Bytes, 0))
			}
			state, _ := g.stateOf(a)
			one.State = worse(one.State, state)
		}
		for _, f := range r.Args {
			if one.Arguments == nil {
				one.Arguments = map[string]string{}
			}
			one.Arguments[f.Name] = f.Value.Text()
		}
		out = append(out, one)
	}
	return out
}

func worse(a, b admin.State) admin.State {
	if slices.Index(admin.States, b) > slices.Index(admin.States, a) {
		return b
	}
	return a
}

// Partitions implements admin.Backend.
func (b *backend) Partitions(ctx context.Context) ([]admin.Partition, error) {
	var out []admin.Partition
	err := b.survey(ctx, glance, func(g *gathered, k control.Known) { out = g.partitions(k) })
	return out, err
}

// partitions are those of the catalog, sorted as its resources are.
func (g *gathered) partitions(k control.Known) []admin.Partition {
	out := []admin.Partition{}
	candidates := control.NewCandidates(k)
	for _, h := range k.View.VHosts() {
		for _, r := range k.View.Resources(h.Name) {
			for _, a := range r.Partitions {
				out = append(out, g.partition(k, r, a, &candidates))
			}
		}
	}
	return out
}

// partition is how one stands.
func (g *gathered) partition(k control.Known, r *catalog.Resource, a *catalog.Assignment, c *control.Candidates) admin.Partition {
	one := admin.Partition{
		Resource: r.Name, VHost: r.VHost, Kind: string(r.Kind), Partition: a.Partition.Index, ID: a.Partition.String(), Epoch: a.Epoch,
		Version: a.Version, Policy: a.Policy, E: a.Eligible(), Owner: a.Owner.Node, Followers: members(a.Followers),
		Learners: members(a.Learners), Leaving: members(a.Leaving), Changing: control.Changing(r, a), Copies: g.copiesOf(a, c.Unfit),
	}
	for _, h := range control.HoldsOf(k.View, a, r.Kind, k.Now) {
		one.Held = append(one.Held, admin.Held{Node: h.Member.Node, Why: h.Fate.String(), Since: h.Since, Until: h.Until, Learner: h.Learner})
	}
	one.State, one.Reason = g.stateOf(a)
	if a.Pending != nil {
		one.Transition = a.Pending.ID
	}
	if s := g.copies[a.Owner.Node][a.Partition]; s != nil {
		one.Confirmed, one.Messages = s.Confirmed, s.Messages
	}
	if p, err := quorum.Parse(a.Policy); err == nil {
		one.W, one.R = quorum.W(p, one.E, r.Kind), quorum.R(p, one.E, r.Kind)
	}
	return one
}

func members(ms []catalog.Member) []string {
	out := []string{}
	for _, m := range ms {
		out = append(out, m.Node)
	}
	return out
}

// Metrics implements admin.Backend.
func (b *backend) Metrics() admin.Metrics {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	m := b.n.store.Metrics()
	h := b.n.store.Health()
	out := admin.Metrics{Storage: admin.StorageMetrics{
		Syncs: m.Syncs, Groups: m.Groups, BytesWritten: m.BytesWritten, PayloadBytes: m.BatchBytes, Failures: uint64(h.Failures),
		Files: uint64(m.Files), LiveBytes: uint64(m.LiveBytes), FreeBytes: m.Free, Reclaimed: m.FilesRecycled, Health: healthWord(h),
		SyncSeconds: float64(m.SyncNanos) / 1e9, MovedBytes: m.BytesMoved,
	}}
	out.Gateway.Blocked = blockedBy(h) != ""
	out.Gateway.Connections = uint64(b.front.Connections())
	traffic := b.front.Traffic()
	out.Gateway.Channels, out.Gateway.BytesIn, out.Gateway.BytesOut = traffic.Channels, traffic.In, traffic.Out
	b.gatewayMetrics(ctx, &out.Gateway)
	if c, err := b.catalogStatus(ctx); err == nil {
		out.Catalog = admin.CatalogMetrics{Applied: c.Applied, Term: c.Term, Leader: c.Leading}
	}
	if left := b.n.manager.LeaseEnds() - b.n.env.Clock.Mono(); left > 0 {
		out.Catalog.LeaseSeconds = left.Seconds()
	}
	if m, ok := b.n.mesh.(interface{ Expires() time.Time }); ok {
		out.Catalog.CertificateSeconds = m.Expires().Sub(b.n.env.Clock.Wall()).Seconds()
	}
	out.Replicas.Transitions = b.n.transitions.Load()
	out.Changes = b.n.tally.Metrics()
	b.replicaMetrics(ctx, &out)
	return out
}

func (b *backend) gatewayMetrics(ctx context.Context, g *admin.GatewayMetrics) {
	shards, err := b.shards(ctx)
	if err != nil {
		return // what is not known stays 0
	}
	g.Refusals = map[string]uint64{}
	for _, s := range shards {
		g.Published += s.Published
		g.Confirmed += s.Confirmed
		g.Refused += s.Refused
		g.Unknown += s.Unknown
		g.Refusals["full"] += s.RefusedFull
		g.Refusals["copies"] += s.RefusedCopies
		g.Refusals["lease"] += s.RefusedLease
		g.Refusals["unreached"] += s.RefusedUnreached
		g.Refusals["other"] += s.RefusedOther
		g.Returned += s.Returned
		g.Delivered += s.Delivered
		g.Redelivered += s.Again
		g.Settled += s.Settled
		g.Denied += s.Denied
		g.Released += s.Released
		g.DeadLettered += s.DeadDone
		g.DeadLettersKept += s.DeadKept
		g.OldestUnconfirmed = max(g.OldestUnconfirmed, s.OldestAge.Seconds())
		g.BufferedBytes += uint64(s.UnresolvedBytes)
		for _, x := range s.Sessions {
			g.Consumers += uint64(x.Consumers)
		}
	}
}

func (b *backend) replicaMetrics(ctx context.Context, out *admin.Metrics) {
	here := b.n.local.Node
	own, err := await(ctx, func(done func(protocol.StatusAnswer)) { b.n.answerStatus(protocol.StatusAsk{All: true}, done) })
	if err != nil {
		return
	}
	g := gathered{}
	g.add(here, own)
	out.Replicas.States = map[admin.State]uint64{}
	out.Replicas.LostFollowers, out.Replicas.Lag = map[string]uint64{}, map[string]uint64{}
	out.Replicas.HeldFollowers, out.Replicas.Replaced = map[string]uint64{}, map[string]uint64{}
	now := b.n.env.Clock.Wall().UnixMilli()
	out.Replicas.Deduplicated, out.Replicas.Expired = b.n.manager.Duplicates(), b.n.manager.Expired()
	out.Replicas.FormersDropped = b.n.manager.FormersDropped()
	for _, r := range b.resources() {
		for _, a := range r.Partitions {
			s := g.copies[here][a.Partition]
			if s != nil && damaged(s, &own) {
				out.Storage.Damaged++
			}
			if a.Owner.Node != here {
				continue
			}
			state, _ := g.stateOf(a)
			out.Replicas.States[state]++
			out.Replicas.Learners += uint64(len(a.Learners))
			if s == nil {
				continue
			}
			followersOf(a, s, &out.Replicas)
			b.n.View(func(v *catalog.View) { heldOf(control.HoldsOf(v, a, r.Kind, now), &out.Replicas) })
			out.Replicas.StagedBytes += uint64(max(s.Staged, 0))
			out.Replicas.DeadLetters += s.DeadLetters
			if r.Kind == catalog.Stream {
				out.Replicas.Records += s.Ready
			} else {
				out.Replicas.Ready += s.Ready
				out.Replicas.Unsettled += s.Unsettled
			}
		}
	}
}

// heldOf counts the followers of an owned partition that are not simply there.
func heldOf(held []control.Held, out *admin.ReplicaMetrics) {
	for _, h := range held {
		if h.Fate == control.Kept {
			out.HeldFollowers[h.Member.Node]++
		} else {
			out.Replaced[h.Member.Node]++
		}
	}
}

// followersOf counts how the followers of a partition that is owned here stand.
func followersOf(a *catalog.Assignment, s *protocol.CopyStatus, out *admin.ReplicaMetrics) {
	for _, m := range a.Followers {
		i := slices.IndexFunc(s.Feeds, func(f protocol.FeedStatus) bool { return f.Node == m.Node })
		if i < 0 {
			out.LostFollowers[m.Node]++
			continue
		}
		out.Lag[m.Node] = max(out.Lag[m.Node], s.Position-min(s.Feeds[i].Durable, s.Position))
	}
}
