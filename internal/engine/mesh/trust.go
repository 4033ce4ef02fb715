package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh/wire"
	"github.com/tanist/tanist/internal/port/trust"
)

// Registrar decides who becomes a member, and signs certificates. Calls come from any goroutine and may block until their context ends.
type Registrar interface {
	// Enrol takes a node into the cluster: it uses the token up, and answers with a certificate for the node's key. An error that wraps
	// ErrRefused is told to the node; after any other the node may ask again, though the token may be used by then.
	Enrol(context.Context, EnrolRequest) (EnrolAnswer, error)
	// Renew gives a member another certificate. The mesh has made sure that it is the member that asks. Peers are not asked for.
	Renew(context.Context, RenewRequest) (EnrolAnswer, error)
}

// ErrRefused is wrapped by the errors of a Registrar that are final: asking again is of no use.
var ErrRefused = errors.New("refused")

// EnrolRequest asks to become a member.
type EnrolRequest struct {
	TokenID   string
	TokenHash [32]byte // of the secret, see authz.Token
	Node      string
	Store     ident.StoreID
	CSR       []byte // PKCS #10, DER; empty where the node has a certificate of the operator's own and wants none
	// Addresses of the node, and where it stands.
	Mesh, AMQP, Admin, Zone string
}

// RenewRequest asks for another certificate for a member.
type RenewRequest struct {
	Node string
	CSR  []byte // PKCS #10, DER
}

// EnrolAnswer is a certificate and what is needed to use it.
type EnrolAnswer struct {
	Cluster     ident.StoreID
	Chain       [][]byte         // DER; the node's certificate first
	Authorities [][]byte         // DER
	Peers       []Peer           // members, to be spoken to first
	Generation  ident.Generation // of the catalog that the node is to wait for; zero: the first
}

type trustService struct {
	wire.UnimplementedTrustServer
	m *GRPC
}

// Enrol hands a request on to the registrar.
func (v trustService) Enrol(ctx context.Context, r *wire.EnrolRequest) (*wire.EnrolAnswer, error) {
	in, err := inboundOf(ctx)
	if err != nil {
		return nil, err
	}
	if v.m.opt.Registrar == nil {
		return nil, status.Error(codes.Unavailable, "this node takes no others into the cluster")
	}
	request := EnrolRequest{
		TokenID: r.GetTokenId(), TokenHash: authz.HashSecret(r.GetTokenSecret()), Node: r.GetNode(), CSR: r.GetCsr(),
		Mesh: r.GetMesh(), AMQP: r.GetAmqp(), Admin: r.GetAdmin(), Zone: r.GetZone(),
	}
	if len(r.GetStore()) != len(request.Store) {
		return nil, status.Error(codes.InvalidArgument, "the request names no store")
	}
	request.Store = ident.StoreID(r.GetStore())
	a, err := v.m.opt.Registrar.Enrol(ctx, request)
	return v.answer(fmt.Sprintf("%s (it says that it is %q)", host(in.conn), request.Node), a, err)
}

// Renew hands a member's request on to the registrar.
func (v trustService) Renew(ctx context.Context, r *wire.RenewRequest) (*wire.EnrolAnswer, error) {
	in, err := inboundOf(ctx)
	if err != nil {
		return nil, err
	}
	if in.verdict != nil {
		v.m.denied(host(in.conn), in.verdict.Error())
		return nil, status.Error(codes.PermissionDenied, in.verdict.Error())
	}
	if v.m.peer(in.node) == nil {
		err := fmt.Errorf("node %q is not a member, as far as node %q knows: %w", in.node, v.m.opt.Local.Node, ErrRefused)
		return v.answer(in.node, EnrolAnswer{}, err)
	}
	if v.m.opt.Registrar == nil {
		return nil, status.Error(codes.Unavailable, "this node gives no certificates")
	}
	a, err := v.m.opt.Registrar.Renew(ctx, RenewRequest{in.node, r.GetCsr()})
	return v.answer(in.node, a, err)
}

func (v trustService) answer(who string, a EnrolAnswer, err error) (*wire.EnrolAnswer, error) {
	if errors.Is(err, ErrRefused) {
		v.m.denied(who, err.Error())
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	out := &wire.EnrolAnswer{Cluster: a.Cluster[:], Chain: a.Chain, Authorities: a.Authorities, Generation: a.Generation.Number, Mark: a.Generation.Mark}
	for _, p := range a.Peers {
		out.Peers = append(out.Peers, &wire.Member{Node: p.Node, Store: p.Store[:], Mesh: p.Address})
	}
	return out, nil
}

// Joining is what a node needs to become a member.
type Joining struct {
	Address string // of a member's mesh
	Token   authz.Token
	Node    string
	Store   ident.StoreID
	// Addresses of this node, and where it stands, for the catalog.
	Mesh, AMQP, Admin, Zone string
	// Own says that the node brings a certificate of the operator's authority, which Trust in Options will be: none is asked for.
	Own bool
	// Dial as in Options.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// Joined is what became of it.
type Joined struct {
	Material *trust.Material // to be kept; nil where the node brings its own
	Cluster  ident.StoreID
	Peers    []Peer
	// Generation is that of the catalog to wait for.
	Generation ident.Generation
}

// Join asks a member to take this node into its cluster: it makes a key, and gets a certificate for it. The secret of the token is said only
// to a node that proves to be of the token's authority. It fails with what wraps ErrRefused where asking again with this token is of no
// use; after other errors it may be asked again, but the token may be used by then, and a new one be needed.
func Join(ctx context.Context, j Joining) (Joined, error) {
	o := Options{Dial: j.Dial}
	o.defaults()
	key, err := trust.NewKey()
	if err != nil {
		return Joined{}, err
	}
	csr, err := trust.NewRequest(j.Node, key)
	if err != nil {
		return Joined{}, err
	}
	if j.Own {
		csr = nil
	}
	c, client, err := connect(ctx, j.Address, trust.Joining(j.Token.Fingerprint, o.Clock.Wall), &o)
	if err != nil {
		if isVerdict(err) {
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return Joined{}, fmt.Errorf("joining through %s: %w", j.Address, err)
	}
	defer func() { _ = errors.Join(client.Close(), closed(c)) }() // nothing is left to be said
	a, err := wire.NewTrustClient(client).Enrol(ctx, &wire.EnrolRequest{
		TokenId: j.Token.ID, TokenSecret: j.Token.Secret[:], Node: j.Node, Store: j.Store[:], Csr: csr,
		Mesh: j.Mesh, Amqp: j.AMQP, Admin: j.Admin, Zone: j.Zone,
	})
	if err != nil {
		return Joined{}, fmt.Errorf("joining through %s: %w", j.Address, refusedOr(err))
	}
	out := Joined{}
	if len(a.GetCluster()) != len(out.Cluster) {
		return Joined{}, fmt.Errorf("joining through %s: the answer names no cluster", j.Address)
	}
	out.Cluster = ident.StoreID(a.GetCluster())
	out.Generation = ident.Generation{Number: max(a.GetGeneration(), 1), Mark: a.GetMark()}
	for _, m := range a.GetPeers() {
		if len(m.GetStore()) != len(ident.StoreID{}) {
			return Joined{}, fmt.Errorf("joining through %s: member %q has no store", j.Address, m.GetNode())
		}
		out.Peers = append(out.Peers, Peer{m.GetNode(), ident.StoreID(m.GetStore()), m.GetMesh()})
	}
	if j.Own {
		return out, nil
	}
	if out.Material, err = trust.NewMaterial(a.GetChain(), key, a.GetAuthorities()); err == nil {
		err = own(out.Material, out.Cluster, j.Node, &o)
	}
	if err != nil {
		return Joined{}, fmt.Errorf("joining through %s: %w", j.Address, err)
	}
	return out, nil
}

// refusedOr is the error of a call, wrapping ErrRefused where the other side refused.
func refusedOr(err error) error {
	switch st, _ := status.FromError(err); st.Code() {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		return fmt.Errorf("%w: %s", ErrRefused, st.Message())
	default:
		return errors.New(st.Message())
	}
}

// own checks that material is a node's own.
func own(m *trust.Material, cluster ident.StoreID, node string, o *Options) error {
	chain, err := m.Chain()
	if err != nil {
		return err
	}
	name, err := m.Verify(chain, cluster, o.Clock.Wall())
	if err == nil && name != node {
		err = fmt.Errorf("%w: it is that of %q", trust.ErrNode, name)
	}
	return err
}
