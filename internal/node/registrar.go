package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/trust"
)

// registrar takes nodes into the cluster. Any member does: the catalog holds the authority's key, and the tokens.
type registrar struct{ n *Node }

var _ mesh.Registrar = registrar{}

// turnedDown is a final refusal, in words for both sides.
type turnedDown struct{ text string }

func (t turnedDown) Error() string { return t.text }
func (t turnedDown) Unwrap() error { return mesh.ErrRefused }

func turnDown(format string, a ...any) error { return turnedDown{fmt.Sprintf(format, a...)} }

// Enrol implements mesh.Registrar: the certificate is made first and the token used up next, so that a request that cannot succeed costs
// no token; then the catalog names the node, for the leader to let it learn.
func (r registrar) Enrol(ctx context.Context, q mesh.EnrolRequest) (mesh.EnrolAnswer, error) {
	n := r.n
	if err := n.barrier(ctx); err != nil {
		return mesh.EnrolAnswer{}, err
	}
	a, err := r.certify(q)
	if err == nil {
		a.Generation, _, err = n.generation()
	}
	if err != nil {
		return mesh.EnrolAnswer{}, err
	}
	if q.Mesh == "" {
		return mesh.EnrolAnswer{}, turnDown("node %q does not say where others reach it", q.Node)
	}
	var have *catalog.Node
	var token *catalog.Token
	n.View(func(v *catalog.View) { have, token = v.Node(q.Node), v.Token(q.TokenID) })
	if token == nil || !authz.SameHash(token.Hash, q.TokenHash) { // who has none learns nothing else
		return mesh.EnrolAnswer{}, turnDown("join token %s was used already, was never made here, or has another secret; %s", q.TokenID, anotherToken)
	}
	replaced := ident.StoreID{}
	if have != nil && have.Store != q.Store {
		if token.Node != q.Node {
			return mesh.EnrolAnswer{}, turnDown("the name %q is taken by another node; choose another with --name, or give that node up for this one: "+
				"`tanist node replace %s` on a member makes the token", q.Node, q.Node)
		}
		if n.sees(q.Node) {
			return mesh.EnrolAnswer{}, turnDown("node %q is to be replaced, but it lives; stop it first", q.Node)
		}
		replaced = have.Store
	}
	now := n.env.Clock.Wall().UnixMilli()
	if _, err := n.change(ctx, catalog.UseToken(q.TokenID, q.TokenHash, q.Node, now)); err != nil {
		return mesh.EnrolAnswer{}, tokenRefused(q, err)
	}
	// The node registers its own run when it starts; until then its first one stands for it.
	fresh := catalog.Node{Name: q.Node, Store: q.Store, Boot: 1, AMQP: q.AMQP, Admin: q.Admin, Mesh: q.Mesh, Zone: q.Zone}
	switch {
	case !replaced.IsZero():
		_, err = n.change(ctx, catalog.ReplaceNode(replaced, fresh))
	case have == nil:
		_, err = n.change(ctx, catalog.RegisterBoot(fresh))
	}
	if err != nil {
		return mesh.EnrolAnswer{}, nodeRefused(q, err)
	}
	trace.Info(n.env.Trace, "node.enrolled", slog.String("node", q.Node), slog.String("store", q.Store.String()), slog.String("mesh", q.Mesh),
		slog.Bool("replaces", !replaced.IsZero()))
	n.View(func(v *catalog.View) {
		for _, m := range v.Nodes() {
			if m.Mesh != "" && m.Name != q.Node {
				a.Peers = append(a.Peers, mesh.Peer{Node: m.Name, Store: m.Store, Address: m.Mesh})
			}
		}
	})
	return a, nil
}

// Renew implements mesh.Registrar.
func (r registrar) Renew(_ context.Context, q mesh.RenewRequest) (mesh.EnrolAnswer, error) {
	var known bool
	r.n.View(func(v *catalog.View) { known = v.Node(q.Node) != nil })
	if !known {
		return mesh.EnrolAnswer{}, turnDown("node %q is not a member", q.Node)
	}
	return r.issue(q.Node, q.CSR)
}

// certify gives a node the certificate that it asks for. Where the members have certificates of the operator's authority, a node brings
// one of those, and where they do not, it cannot.
func (r registrar) certify(q mesh.EnrolRequest) (mesh.EnrolAnswer, error) {
	own := false
	r.n.View(func(v *catalog.View) {
		if c := v.Cluster(); c != nil && r.n.presents != nil {
			own = c.Authority.Certificate == "" || !signedBy(c, r.n.presents())
		}
	})
	switch {
	case own && len(q.CSR) > 0:
		return mesh.EnrolAnswer{}, turnDown("the nodes of this cluster have certificates of an authority of their operator's: give node %q one, with "+
			"mesh_cert, mesh_key and mesh_ca; the token is not used up", q.Node)
	case !own && len(q.CSR) == 0:
		return mesh.EnrolAnswer{}, turnDown("the nodes of this cluster have certificates that it signs itself: leave out mesh_cert, mesh_key and mesh_ca; " +
			"the token is not used up")
	case own:
		var id ident.StoreID
		r.n.View(func(v *catalog.View) { id = v.Cluster().ID })
		return mesh.EnrolAnswer{Cluster: id}, nil
	}
	return r.issue(q.Node, q.CSR)
}

// signedBy reports whether a fingerprint is that of the cluster's own authority.
func signedBy(c *catalog.Cluster, fingerprint [sha256.Size]byte) bool {
	roots, err := trust.DecodeCertificates([]byte(c.Authority.Certificate))
	return err == nil && slices.ContainsFunc(roots, func(der []byte) bool { return sha256.Sum256(der) == fingerprint })
}

// issue signs a certificate with the authority that the catalog holds.
func (r registrar) issue(node string, csr []byte) (mesh.EnrolAnswer, error) {
	var c catalog.Cluster
	r.n.View(func(v *catalog.View) {
		if have := v.Cluster(); have != nil {
			c = *have
		}
	})
	switch {
	case c.ID.IsZero() || c.Authority.Certificate == "":
		return mesh.EnrolAnswer{}, errors.New("this node does not know the cluster's authority yet; try again")
	case c.Authority.Key == "":
		return mesh.EnrolAnswer{}, turnDown("this cluster has no authority that could sign a certificate for node %q", node)
	}
	a, err := trust.DecodeAuthority(c.ID, c.Authority.Certificate, c.Authority.Key)
	if err != nil {
		return mesh.EnrolAnswer{}, err
	}
	der, err := a.Issue(rand.Reader, node, csr, r.n.env.Clock.Wall())
	if err != nil {
		return mesh.EnrolAnswer{}, turnDown("%s", err)
	}
	roots, err := trust.DecodeCertificates([]byte(c.Authority.Certificate))
	return mesh.EnrolAnswer{Cluster: c.ID, Chain: [][]byte{der}, Authorities: roots}, err
}

const anotherToken = "make another with `tanist join-token` on a member"

// tokenRefused says what was wrong with a token.
func tokenRefused(q mesh.EnrolRequest, err error) error {
	switch catalog.CodeOf(err) {
	case catalog.NotFound: // somebody else was faster
		return turnDown("join token %s was used already; %s", q.TokenID, anotherToken)
	case catalog.Expired:
		return turnDown("join token %s has expired; %s", q.TokenID, anotherToken)
	case catalog.Wrong:
		return turnDown("join token %s was made for another node than %q; %s", q.TokenID, q.Node, anotherToken)
	}
	return err
}

func nodeRefused(q mesh.EnrolRequest, err error) error {
	switch catalog.CodeOf(err) {
	case catalog.Gone:
		return turnDown("the data directory of node %q was removed from this cluster before; join with an empty one (--data), and another token", q.Node)
	case catalog.StoreMoved:
		return turnDown("the data directory of node %q, or its name, is another node's by now: %s", q.Node, err)
	}
	return err
}

// sees says whether this node has a session with another.
func (n *Node) sees(node string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, up := n.sessions[node]
	return up
}

// change proposes items to the catalog and waits. The error is a *catalog.Refusal, one of consensus', or that of ctx.
func (n *Node) change(ctx context.Context, items ...catalog.Item) (catalog.Result, error) {
	cmd, err := catalog.Encode(items...)
	if err != nil {
		return catalog.Result{}, err
	}
	type outcome struct {
		r   catalog.Result
		err error
	}
	o, err := await(ctx, func(done func(outcome)) {
		n.consensus.Propose(cmd, func(r catalog.Result, err error) { done(outcome{r, err}) })
	})
	if err == nil {
		err = o.err
	}
	if err == nil {
		err = o.r.Err()
	}
	return o.r, err
}

// barrier waits until everything that was committed anywhere is applied here.
func (n *Node) barrier(ctx context.Context) error {
	done, err := await(ctx, n.consensus.Barrier)
	return errors.Join(done, err)
}
