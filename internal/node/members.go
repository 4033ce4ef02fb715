package node

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/port/trace"
)

// JoinToken implements admin.Backend.
func (b *backend) JoinToken(ctx context.Context, node string, life time.Duration) (admin.Token, error) {
	if err := config.NodeName(node); node != "" && err != nil {
		return admin.Token{}, broker.Errorf(broker.Precondition, "no node can have the name %q: %s", node, err)
	}
	known := false
	b.n.View(func(v *catalog.View) { known = node != "" && v.Node(node) != nil })
	if known {
		return admin.Token{}, broker.Errorf(broker.Precondition, "node '%s' is a member; `tanist node replace %s` makes a token for one that takes its place",
			node, node)
	}
	return b.token(ctx, node, life)
}

// ReplaceToken implements admin.Backend.
func (b *backend) ReplaceToken(ctx context.Context, node string, life time.Duration) (admin.Token, error) {
	if _, err := b.node(node); err != nil {
		return admin.Token{}, err
	}
	if node == b.n.local.Node || b.n.sees(node) {
		return admin.Token{}, broker.Errorf(broker.Precondition, "node '%s' lives; stop it first, if another is to take its place", node)
	}
	return b.token(ctx, node, life)
}

func (b *backend) token(ctx context.Context, node string, life time.Duration) (admin.Token, error) {
	var cluster catalog.Cluster
	out := admin.Token{Node: node}
	b.n.View(func(v *catalog.View) {
		if c := v.Cluster(); c != nil {
			cluster = *c
		}
		for _, o := range v.Nodes() {
			if o.Mesh != "" {
				out.Join = append(out.Join, o.Mesh)
			}
		}
	})
	if b.n.mesh == nil {
		return out, broker.Errorf(broker.Precondition, "node '%s' listens for no other nodes: restart it with --mesh, such as --mesh :5680", b.n.local.Node)
	}
	if cluster.ID.IsZero() {
		return out, broker.Errorf(broker.Unavailable, "this node does not know the cluster yet; try again")
	}
	var random [40]byte
	if _, err := io.ReadFull(rand.Reader, random[:]); err != nil {
		return out, err
	}
	t := authz.NewToken(b.n.presents(), random)
	now := b.n.env.Clock.Wall()
	out.ID, out.Token, out.Expires = t.ID, t.Text(), now.Add(life).UnixMilli()
	kept := catalog.Token{ID: t.ID, Hash: t.Hash(), Expires: out.Expires, Node: node}
	if err := b.propose(ctx, catalog.PutToken(kept, now.UnixMilli())); err != nil {
		return admin.Token{}, err
	}
	trace.Info(b.n.env.Trace, "token.made", slog.String("token", t.ID), slog.String("node", node), slog.Duration("life", life))
	return out, nil
}

func (b *backend) node(name string) (catalog.Node, error) {
	var out *catalog.Node
	b.n.View(func(v *catalog.View) { out = v.Node(name) })
	if out == nil {
		return catalog.Node{}, broker.Errorf(broker.NotFound, "no node '%s'; `tanist node list` shows them", name)
	}
	return *out, nil
}

// RemoveNode implements admin.Backend.
func (b *backend) RemoveNode(ctx context.Context, name string) error {
	o, err := b.node(name)
	if err != nil {
		return err
	}
	last := false
	b.n.View(func(v *catalog.View) { last = len(v.Nodes()) == 1 })
	if last {
		return broker.Errorf(broker.Precondition, "node '%s' is the only one; to give the cluster up, stop it and delete its data directory", name)
	}
	err = b.change(ctx, catalog.RemoveNode(name, o.Store))
	var refused *catalog.Refusal
	if errors.As(err, &refused) && refused.Code == catalog.InUse {
		return broker.Errorf(broker.Precondition, "%s. Drain it (`tanist node drain %s`), wait (`tanist wait healthy`) and stop it: others take over what it owns, and then it can be "+
			"removed. If it is lost with its data directory, another node takes its place: `tanist node replace %s`", refused.Error(), name, name)
	}
	return refusal(err)
}

// DrainNode implements admin.Backend.
func (b *backend) DrainNode(ctx context.Context, name string, draining bool) error {
	o, err := b.node(name)
	if err != nil {
		return err
	}
	return b.propose(ctx, catalog.DrainNode(name, o.Store, draining))
}
