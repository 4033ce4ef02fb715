package mesh

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh/wire"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/trust"
)

// How long after a failed renewal it is tried again, and how long one member is waited for.
const (
	firstRenewal = time.Minute
	lastRenewal  = time.Hour
	renewTimeout = 15 * time.Second
)

// Expires is when the node's certificate ends, for whoever watches it.
func (m *GRPC) Expires() time.Time { return m.opt.Trust.Material().Expires() }

// Fingerprint is that of the authority which this node presents: what a join token has to carry.
func (m *GRPC) Fingerprint() [sha256.Size]byte { return m.opt.Trust.Material().Fingerprint() }

// renewLoop renews the certificate each time two thirds of its life are over.
func (m *GRPC) renewLoop() {
	wait := firstRenewal
	for {
		due := m.opt.Trust.Material().RenewAt().Sub(m.opt.Clock.Wall())
		// A wall clock may jump: look again at least once an hour.
		t := time.NewTimer(min(max(due, 0), lastRenewal))
		select {
		case <-m.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if m.opt.Trust.Material().RenewAt().After(m.opt.Clock.Wall()) {
			continue
		}
		if err := m.renew(); err == nil {
			wait = firstRenewal
			continue
		} else if m.ctx.Err() == nil {
			trace.Warn(m.opt.Trace, "mesh.renewal.failed", slog.String("error", err.Error()), slog.Time("expires", m.Expires()))
		}
		t.Reset(wait)
		select {
		case <-m.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		wait = min(2*wait, lastRenewal)
	}
}

// renew gets another certificate, from this node's registrar or from the first peer that gives one, and puts it in use.
func (m *GRPC) renew() error {
	holder := m.opt.Trust.(*trust.Holder)
	key, err := trust.NewKey()
	if err != nil {
		return err
	}
	csr, err := trust.NewRequest(m.opt.Local.Node, key)
	if err != nil {
		return err
	}
	a, err := m.askRenewal(csr)
	if err != nil {
		return err
	}
	fresh, err := trust.NewMaterial(a.Chain, key, a.Authorities)
	if err != nil {
		return err
	}
	if err := own(fresh, m.opt.Cluster, m.opt.Local.Node, &m.opt); err != nil {
		return err
	}
	if !fresh.Expires().After(m.Expires()) {
		return fmt.Errorf("the new certificate ends at %v, the present one at %v", fresh.Expires(), m.Expires())
	}
	if err := m.opt.Renewed(fresh); err != nil {
		return fmt.Errorf("the new certificate could not be kept: %w", err)
	}
	holder.Replace(fresh)
	trace.Info(m.opt.Trace, "mesh.renewed", slog.Time("expires", fresh.Expires()))
	return nil
}

func (m *GRPC) askRenewal(csr []byte) (EnrolAnswer, error) {
	var err error
	if m.opt.Registrar != nil {
		ctx, cancel := context.WithTimeout(m.ctx, renewTimeout)
		a, e := m.opt.Registrar.Renew(ctx, RenewRequest{m.opt.Local.Node, csr})
		cancel()
		if e == nil {
			return a, nil
		}
		err = e
	}
	m.mu.Lock()
	var peers []*peer
	for _, p := range m.peers {
		peers = append(peers, p)
	}
	m.mu.Unlock()
	slices.SortFunc(peers, func(a, b *peer) int { return strings.Compare(a.node, b.node) })
	for _, p := range peers {
		a, e := m.askPeer(p, csr)
		if e == nil {
			return a, nil
		}
		err = errors.Join(err, fmt.Errorf("node %q: %w", p.node, e))
	}
	if err == nil {
		err = errors.New("there is no peer to ask")
	}
	return EnrolAnswer{}, err
}

func (m *GRPC) askPeer(p *peer, csr []byte) (EnrolAnswer, error) {
	ctx, cancel := context.WithTimeout(m.ctx, renewTimeout)
	defer cancel()
	p.mu.Lock()
	address := p.address
	p.mu.Unlock()
	c, client, err := connect(ctx, address, trust.Client(m.opt.Trust, p.judge), &m.opt)
	if err != nil {
		return EnrolAnswer{}, err
	}
	defer func() { _ = errors.Join(client.Close(), closed(c)) }() // nothing is left to be said
	a, err := wire.NewTrustClient(client).Renew(ctx, &wire.RenewRequest{Csr: csr})
	if err != nil {
		return EnrolAnswer{}, refusedOr(err)
	}
	if string(a.GetCluster()) != string(m.opt.Cluster[:]) {
		return EnrolAnswer{}, fmt.Errorf("the answer is of cluster %x", a.GetCluster())
	}
	return EnrolAnswer{Cluster: ident.StoreID(a.GetCluster()), Chain: a.GetChain(), Authorities: a.GetAuthorities()}, nil
}

// judge accepts the peer's certificate and no other.
func (p *peer) judge(chain []*x509.Certificate) error {
	o := &p.m.opt
	node, err := o.Trust.Material().Verify(chain, o.Cluster, o.Clock.Wall())
	if err == nil && node != p.node {
		err = fmt.Errorf("%w: it is that of %q, at the address of %q", trust.ErrNode, node, p.node)
	}
	return err
}
