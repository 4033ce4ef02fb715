package node

import (
	"context"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/front/admin"
)

// statuses asks the replicas and gives them by partition.
func (b *backend) statuses(ctx context.Context) (map[ident.Partition]replica.Status, error) {
	list, err := await(ctx, b.n.Statuses)
	if err != nil {
		return nil, err
	}
	by := make(map[ident.Partition]replica.Status, len(list))
	for _, s := range list {
		by[s.Partition] = s
	}
	return by, nil
}

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

// stateOf is what a partition does; one that has no replica yet is recovering.
func stateOf(by map[ident.Partition]replica.Status, p ident.Partition) admin.State {
	if s, ok := by[p]; ok {
		return admin.State(s.State)
	}
	return admin.Recovering
}

// Overview implements admin.Backend.
func (b *backend) Overview(ctx context.Context) (admin.Overview, error) {
	by, err := b.statuses(ctx)
	if err != nil {
		return admin.Overview{}, err
	}
	o := admin.Overview{
		Product: Product, Version: b.version, Node: b.n.local.Node, Controller: b.n.local.Node, Started: b.started.UnixMilli(), Nodes: 1,
		States: map[admin.State]int{}, Connections: b.front.Connections(), PID: b.pid, Blocked: blockedBy(b.n.store.Health()),
	}
	if err := b.Ready(); err != nil {
		o.NotReady = err.Error()
	} else {
		o.Ready = true
	}
	for _, r := range b.resources() {
		o.Resources++
		for _, a := range r.Partitions {
			o.Partitions++
			o.States[stateOf(by, a.Partition)]++
		}
	}
	return o, nil
}

// Nodes implements admin.Backend.
func (b *backend) Nodes(context.Context) ([]admin.Node, error) {
	var out []admin.Node
	health := healthWord(b.n.store.Health())
	b.n.View(func(v *catalog.View) {
		for _, x := range v.Nodes() {
			here := x.Name == b.n.local.Node
			one := admin.Node{Name: x.Name, AMQP: x.AMQP, Admin: x.Admin, Live: here, Controller: here, Health: "unknown"}
			if here {
				one.Health = health
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
	by, err := b.statuses(ctx)
	if err != nil {
		return nil, err
	}
	out := []admin.Resource{}
	for _, r := range b.resources() {
		one := admin.Resource{
			Name: r.Name, VHost: r.VHost, Kind: string(r.Kind), Incarnation: r.Incarnation, Durable: r.Durable, Exclusive: r.Exclusive,
			AutoDelete: r.AutoDelete, Policy: r.Policy, Partitions: len(r.Partitions), State: admin.Serving,
		}
		for _, a := range r.Partitions {
			s := by[a.Partition]
			one.Ready += s.Ready
			one.Unsettled += s.Unsettled
			one.Consumers += int(s.Consumers)
			one.Bytes += uint64(s.Bytes)
			one.State = worse(one.State, stateOf(by, a.Partition))
		}
		for _, f := range r.Args {
			if one.Arguments == nil {
				one.Arguments = map[string]string{}
			}
			one.Arguments[f.Name] = f.Value.Text()
		}
		out = append(out, one)
	}
	return out, nil
}

func worse(a, b admin.State) admin.State {
	if slices.Index(admin.States, b) > slices.Index(admin.States, a) {
		return b
	}
	return a
}

// Partitions implements admin.Backend.
func (b *backend) Partitions(ctx context.Context) ([]admin.Partition, error) {
	by, err := b.statuses(ctx)
	if err != nil {
		return nil, err
	}
	h := b.n.store.Health()
	out := []admin.Partition{}
	for _, r := range b.resources() {
		for _, a := range r.Partitions {
			s, here := by[a.Partition]
			one := admin.Partition{
				Resource: r.Name, VHost: r.VHost, Kind: string(r.Kind), Partition: a.Partition.Index, ID: a.Partition.String(), Epoch: a.Epoch, Version: a.Version,
				Policy: a.Policy, E: a.Eligible(), Owner: a.Owner.Node, Followers: members(a.Followers), Learners: members(a.Learners),
				State: stateOf(by, a.Partition), Confirmed: s.Confirmed, Copies: []admin.Copy{},
			}
			if p, err := quorum.Parse(a.Policy); err == nil {
				one.W, one.R = quorum.W(p, one.E, r.Kind), quorum.R(p, one.E, r.Kind)
			}
			if here {
				c := admin.Copy{Node: b.n.local.Node, Role: s.Role, Position: s.Position, Offset: s.Offset, Durable: s.Durable, Health: healthWord(h)}
				if damaged(s, h) {
					c.Health = "damaged"
				}
				one.Copies = append(one.Copies, c)
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// damaged reports whether a copy failed its own checks. Once the journal has closed every copy is blocked, and nothing is said of what it
// holds.
func damaged(s replica.Status, h storage.Health) bool { return s.State == replica.Blocked && !h.Closed }

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
	out.Replicas.Transitions = b.n.transitions.Load()
	b.replicaMetrics(ctx, h, &out)
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
		g.Refusals["unreached"] += s.RefusedUnreached
		g.Refusals["other"] += s.RefusedOther
		g.Returned += s.Returned
		g.Delivered += s.Delivered
		g.Redelivered += s.Again
		g.Settled += s.Settled
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

func (b *backend) replicaMetrics(ctx context.Context, h storage.Health, out *admin.Metrics) {
	by, err := b.statuses(ctx)
	if err != nil {
		return
	}
	out.Replicas.States = map[admin.State]uint64{}
	out.Replicas.Deduplicated, out.Replicas.Expired = b.n.manager.Duplicates(), b.n.manager.Expired()
	for _, r := range b.resources() {
		for _, a := range r.Partitions {
			s := by[a.Partition]
			out.Replicas.States[stateOf(by, a.Partition)]++
			out.Replicas.StagedBytes += uint64(max(s.Staged, 0))
			out.Replicas.DeadLetters += s.DeadLetters
			if damaged(s, h) {
				out.Storage.Damaged++
			}
			if r.Kind == catalog.Stream {
				out.Replicas.Records += s.Ready
			} else {
				out.Replicas.Ready += s.Ready
				out.Replicas.Unsettled += s.Unsettled
			}
		}
	}
}
