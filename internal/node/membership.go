package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/config"
	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/node/identity"
	"github.com/tanist/tanist/internal/port/certs"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/trust"
	"github.com/tanist/tanist/internal/port/vfs"
)

// membership is a node's place in its cluster, as its data directory keeps it: it is made at the first start, read at later ones, and
// changed when the certificate is renewed or the catalog names other peers.
type membership struct {
	cfg   *config.Config
	fs    vfs.FS
	trace trace.Sink
	files *certs.Files // the operator's own certificates; nil: the cluster's authority signs

	mu sync.Mutex     // held while the file is written
	id *identity.File // nil: not made yet

	list sync.Mutex
	next []mesh.Peer   // to be kept
	wake chan struct{} // there is something to be kept
}

// openMembership reads what is there, before the directory is locked: it decides nothing yet.
func openMembership(cfg *config.Config, fsys vfs.FS, sink trace.Sink) (*membership, error) {
	m := &membership{cfg: cfg, fs: fsys, trace: sink, wake: make(chan struct{}, 1)}
	var err error
	if cfg.MeshTLS.Cert != "" {
		m.files, err = certs.Open(cfg.MeshTLS.Cert, cfg.MeshTLS.Key, cfg.MeshTLS.CA, clock.System(), func(err error) {
			trace.Error(sink, "mesh.certificate.reload.failed", slog.Any("error", err))
		})
		if err != nil {
			return nil, err
		}
	}
	m.id, err = identity.Read(fsys, cfg.Data)
	return m, err
}

// joining says whether a store without a log waits for a cluster's catalog.
func (m *membership) joining() bool {
	return m.id != nil && m.id.Joined || m.id == nil && m.cfg.Join != ""
}

// settle makes sure of the identity, once the store is open and before the catalog starts: it is checked, made, or asked for.
func (m *membership) settle(ctx context.Context, n *Node) error {
	if m.id == nil {
		log, err := n.store.Consensus().Load()
		if err != nil {
			return err
		}
		begun := log.Snapshot.Index > 0 || len(log.Entries) > 0 || len(log.Hard) > 0
		others, err := votersBeside(log, n.local.Store)
		if err != nil {
			return err
		}
		switch {
		case len(others) > 0:
			return fmt.Errorf("%w: %s is missing, and node %q is a member of a cluster with %s: put the file back from a backup, or start the node with an "+
				"empty data directory in its own place (`tanist node replace %s` on another member makes the token)",
				identity.ErrUnusable, identity.Path(m.cfg.Data), n.local.Node, strings.Join(others, ", "), n.local.Node)
		case begun && m.cfg.Join != "":
			return fmt.Errorf("%w: the data directory %s has a cluster of its own: a node joins with an empty one (--data)", identity.ErrUnusable, m.cfg.Data)
		case begun && m.cfg.Mesh != "":
			return fmt.Errorf("%w: %s is missing; start the node once without --mesh, which makes it anew from the catalog",
				identity.ErrUnusable, identity.Path(m.cfg.Data))
		case begun:
			return nil
		case m.cfg.Join != "":
			m.id, err = m.join(ctx, n)
		default:
			m.id, err = m.begin(n.local)
		}
		if err != nil {
			return err
		}
		if err := m.id.Write(m.fs, m.cfg.Data); err != nil {
			return err
		}
	}
	if err := m.id.Is(n.local, m.cfg.Data); err != nil {
		return err
	}
	if by := m.id.Superseded; by != nil {
		return leftBehind(by.By, by.Generation, m.cfg.Data)
	}
	if m.cfg.Join != "" && !m.id.Member() {
		return fmt.Errorf("%w: the data directory %s has a cluster of its own, of this node alone: a node joins another with an empty one (--data)",
			identity.ErrUnusable, m.cfg.Data)
	}
	if m.cfg.Mesh == "" && m.id.Member() {
		return fmt.Errorf("%w: node %q is a member of a cluster with others: give it the address where they reach it, with --mesh", identity.ErrUnusable, m.id.Node)
	}
	n.cfg.Generation = m.id.Generation
	n.cfg.Cluster, n.cfg.Authority, n.cfg.Peers = m.id.Cluster, m.id.CatalogAuthority(), m.id.MeshPeers()
	return nil
}

// votersBeside are the names of those that vote beside a store, as far as its log knows: without them it gets no catalog.
func votersBeside(log catalog.LogState, store ident.StoreID) (names []string, err error) {
	if log.Snapshot.Index == 0 {
		return nil, nil
	}
	s, err := consensus.Examine(log, store)
	if err != nil {
		return nil, err
	}
	for _, v := range s.Voters {
		if v.ID != s.Self {
			names = append(names, v.Node)
		}
	}
	return names, nil
}

// begin makes the identity of a node that begins a cluster, and the cluster's authority.
func (m *membership) begin(local ident.Instance) (*identity.File, error) {
	id := &identity.File{Node: local.Node, Store: local.Store}
	if _, err := io.ReadFull(rand.Reader, id.Cluster[:]); err != nil {
		return nil, fmt.Errorf("make a cluster id: %w", err)
	}
	a, err := trust.NewAuthority(rand.Reader, id.Cluster, time.Now())
	if err != nil {
		return nil, err
	}
	id.Authority = &identity.Authority{}
	if id.Authority.Certificate, id.Authority.Key, err = a.Encode(); err != nil {
		return nil, err
	}
	return id, id.Sign(a)
}

// join asks a member to take this node in.
func (m *membership) join(ctx context.Context, n *Node) (*identity.File, error) {
	if m.cfg.Join == n.cfg.Mesh || m.cfg.Join == m.cfg.Mesh {
		return nil, fmt.Errorf("--join %s is this node's own address; want the mesh address of a member", m.cfg.Join)
	}
	text := m.cfg.JoinToken
	if m.cfg.JoinTokenFile != "" {
		b, err := os.ReadFile(m.cfg.JoinTokenFile)
		if err != nil {
			return nil, fmt.Errorf("join token: %w", err)
		}
		text = string(b)
	}
	if text == "" {
		return nil, errors.New("a new node needs a token to join: make one with `tanist join-token` on a member, and give it as TANIST_JOIN_TOKEN " +
			"or by --join-token-file")
	}
	token, err := authz.ParseToken(text)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	j, err := mesh.Join(ctx, mesh.Joining{
		Address: m.cfg.Join, Token: token, Node: n.local.Node, Store: n.local.Store, Mesh: n.cfg.Mesh, AMQP: n.cfg.AMQP, Admin: n.cfg.Admin,
		Zone: n.cfg.Zone, Own: m.files != nil,
	})
	if err != nil {
		return nil, err
	}
	id := &identity.File{Node: n.local.Node, Store: n.local.Store, Cluster: j.Cluster, Joined: true, Generation: j.Generation}
	id.SetPeers(j.Peers)
	trace.Info(m.trace, "node.joined", slog.String("cluster", j.Cluster.String()), slog.Int("peers", len(id.Peers)))
	if j.Material == nil {
		return id, nil
	}
	return id, id.Hold(j.Material)
}

// joinTimeout bounds what a member has to answer in.
const joinTimeout = 30 * time.Second

// adopt makes the identity of a node that is alone and has none, from its catalog: of a directory that an earlier version wrote, or
// whose identity was lost. Whether others would accept it is for them to say.
func (m *membership) adopt(ctx context.Context, n *Node) error {
	if m.id != nil {
		return nil
	}
	var cluster catalog.Cluster
	n.View(func(v *catalog.View) {
		if c := v.Cluster(); c != nil {
			cluster = *c
		}
	})
	if cluster.ID.IsZero() || cluster.Authority.Certificate != "" && cluster.Authority.Key == "" {
		return nil
	}
	id := &identity.File{Node: n.local.Node, Store: n.local.Store, Cluster: cluster.ID}
	var a *trust.Authority
	var err error
	if cluster.Authority.Key == "" {
		if a, err = trust.NewAuthority(rand.Reader, cluster.ID, time.Now()); err != nil {
			return err
		}
		certificate, key, err := a.Encode()
		if err != nil {
			return err
		}
		if _, err := n.change(ctx, catalog.SetAuthority("", catalog.Authority{Certificate: certificate, Key: key})); err != nil {
			return fmt.Errorf("%w: %w", identity.ErrUnusable, err)
		}
	} else if a, err = trust.DecodeAuthority(cluster.ID, cluster.Authority.Certificate, cluster.Authority.Key); err != nil {
		return err
	}
	if err := id.Sign(a); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = id
	trace.Info(m.trace, "identity.made", slog.String("cluster", cluster.ID.String()))
	return id.Write(m.fs, m.cfg.Data)
}

// mesh makes the node's end of the mesh.
func (m *membership) mesh(o mesh.Options) (*mesh.GRPC, error) {
	o.Cluster, o.Trace = m.id.Cluster, m.trace
	switch {
	case m.files != nil:
		o.Trust = m.files
	case m.id.Material == "":
		return nil, fmt.Errorf("%w: node %q joined with a certificate of the operator's own: set mesh_cert, mesh_key and mesh_ca", identity.ErrUnusable, m.id.Node)
	default:
		material, err := trust.Decode([]byte(m.id.Material))
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", identity.ErrUnusable, identity.Path(m.cfg.Data), err)
		}
		o.Trust, o.Renewed = trust.Hold(material), m.renewed
	}
	return mesh.New(o)
}

// renewed keeps a new certificate.
func (m *membership) renewed(material *trust.Material) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.id
	if err := next.Hold(material); err != nil {
		return err
	}
	if err := next.Write(m.fs, m.cfg.Data); err != nil {
		return err
	}
	m.id = &next
	return nil
}

// peersChanged is told on the catalog's loop, which must not wait for a file.
func (m *membership) peersChanged(list []mesh.Peer) {
	m.list.Lock()
	m.next = list
	m.list.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// keep writes the peers down until ctx ends.
func (m *membership) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		if err := m.keepPeers(); err != nil {
			trace.Error(m.trace, "identity.write.failed", slog.Any("error", err)) // the next change writes all of them
		}
	}
}

func (m *membership) keepPeers() error {
	m.list.Lock()
	list := m.next
	m.list.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	next := *m.id
	next.SetPeers(list)
	if err := next.Write(m.fs, m.cfg.Data); err != nil {
		return err
	}
	m.id = &next
	return nil
}
