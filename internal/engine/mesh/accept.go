package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tanist/tanist/internal/engine/mesh/wire"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/trust"
)

func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()), grpc.MaxRecvMsgSize(largest), grpc.MaxConcurrentStreams(2 * uint32(Purposes)),
		grpc.ReadBufferSize(bufferBytes), grpc.WriteBufferSize(bufferBytes), grpc.StaticStreamWindowSize(streamBytes),
		experimental.BufferPool(buffers), grpc.StaticConnWindowSize(connBytes), grpc.MaxHeaderListSize(headerBytes), grpc.ConnectionTimeout(5 * time.Second),
		grpc.WaitForHandlers(true), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: time.Minute}),
	}
}

// accepting makes TLS on connections that others opened. Everyone gets through who speaks TLS; who may do what is judged at each call, so
// that the other side can be told what is wrong with its certificate.
type accepting struct {
	dialled
	m *GRPC
}

// ServerHandshake makes TLS and judges the certificate.
func (a *accepting) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := watch(raw, a.m.opt.Clock)
	secure := tls.Server(c, trust.Server(a.m.opt.Trust))
	ctx, cancel := context.WithTimeout(a.m.ctx, 5*time.Second)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		var remote *net.OpError
		if errors.As(err, &remote) && remote.Op == "remote error" {
			a.m.denied(host(raw), notAccepted(a.m, err))
		} else {
			a.m.opt.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "mesh.handshake.failed", Attrs: []slog.Attr{
				slog.String("remote", raw.RemoteAddr().String()), slog.String("error", err.Error()),
			}})
		}
		return nil, nil, errors.Join(err, closed(raw))
	}
	in := &inbound{conn: c, complete: make(chan struct{}), over: make(chan struct{})}
	in.node, in.verdict = a.m.opt.Trust.Material().Verify(secure.ConnectionState().PeerCertificates, a.m.opt.Cluster, a.m.opt.Clock.Wall())
	return secure, in, nil
}

// Clone is a copy.
func (a *accepting) Clone() credentials.TransportCredentials { return a }

// host is where a connection comes from, without the port, which is another each time.
func host(c net.Conn) string {
	h, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return h
}

// inbound is a connection that another node opened, and what gathers on it.
type inbound struct {
	conn    *conn
	node    string // as the certificate says
	verdict error  // why the certificate is not accepted

	mu       sync.Mutex
	streams  [Purposes]stream
	count    Purpose
	complete chan struct{} // closed when all streams are here
	over     chan struct{} // closed when control returns
}

// AuthType is what gRPC wants to know.
func (*inbound) AuthType() string { return "tls" }

func inboundOf(ctx context.Context) (*inbound, error) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if in, ok := p.AuthInfo.(*inbound); ok {
			return in, nil
		}
	}
	return nil, status.Error(codes.Internal, "the call has no connection")
}

// add takes a stream; each purpose has one.
func (in *inbound) add(p Purpose, s stream) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.streams[p] != nil {
		return false
	}
	in.streams[p] = s
	if in.count++; in.count == Purposes {
		close(in.complete)
	}
	return true
}

type meshService struct {
	wire.UnimplementedMeshServer
	m *GRPC
}

// Session takes one of a session's streams. It returns when the session is over.
func (v meshService) Session(s grpc.BidiStreamingServer[wire.Packet, wire.Packet]) error {
	in, err := inboundOf(s.Context())
	if err != nil {
		return err
	}
	purpose, err := purposeOf(s.Context())
	if err != nil {
		return err
	}
	if in.verdict != nil {
		if purpose == Control {
			v.m.denied(host(in.conn), in.verdict.Error())
		}
		return status.Error(codes.Unauthenticated, in.verdict.Error())
	}
	if !in.add(purpose, s) {
		return status.Error(codes.InvalidArgument, "the connection has a stream of that purpose")
	}
	if purpose == Control {
		defer close(in.over)
		return v.m.accept(in, s)
	}
	select {
	case <-in.over:
		return nil
	case <-s.Context().Done():
	}
	select {
	case <-in.complete: // the session, if there is one, uses the stream until it is over
		<-in.over
	default:
	}
	return nil
}

func purposeOf(ctx context.Context) (Purpose, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get(purposeKey); len(v) == 1 {
		if n, err := strconv.ParseUint(v[0], 10, 8); err == nil && n < uint64(Purposes) {
			return Purpose(n), nil
		}
	}
	return 0, status.Error(codes.InvalidArgument, "the metadata "+purposeKey+" must name a purpose")
}

// errBusy says that the attempt is not to win.
var errBusy = status.Error(codes.AlreadyExists, "there is a session, or another attempt is to win")

// accept answers the greeting on a connection that a peer opened, and runs the session.
func (m *GRPC) accept(in *inbound, control stream) error {
	late := time.AfterFunc(m.opt.Limits.Silence, func() { _ = in.conn.Close() }) // a greeting that takes too long
	defer late.Stop()
	var first wire.Packet
	if err := control.RecvMsg(&first); err != nil {
		return err
	}
	p, instance, err := m.check(in.node, first.GetHello())
	if err != nil {
		m.denied(in.node, err.Error())
		if errors.Is(err, errRemoved) {
			return status.Error(codes.NotFound, err.Error())
		}
		if other := (*otherGeneration)(nil); errors.As(err, &other) {
			// The other side is to judge by itself which of the two is left behind. What it does not read it will be told again.
			if control.SendMsg(&wire.Packet{Hello: m.hello()}) == nil {
				_ = control.RecvMsg(&first)
			}
		}
		return status.Error(codes.PermissionDenied, err.Error())
	}
	select {
	case <-in.complete:
	case <-p.ctx.Done():
		return errBusy
	case <-control.(grpc.ServerStream).Context().Done():
		return errBusy
	}
	s := m.newSession(p.ctx, instance, first.GetHello().GetSerial(), in.conn, in.streams)
	defer s.cancel()
	if p.decides {
		err = p.decide(s, control)
	} else {
		err = p.obey(s, control)
	}
	if err != nil {
		return err
	}
	if !late.Stop() {
		s.end(Silent, "the greeting took too long")
	}
	p.hold(s)
	return nil
}

// decide begins a session that the peer asks for, if it is to be the one.
func (p *peer) decide(s *session, control stream) error {
	if !p.choose(s, s.later) {
		return errBusy
	}
	p.mu.Lock()
	h := p.m.hello()
	p.mu.Unlock()
	for _, packet := range []*wire.Packet{{Hello: h}, {Begin: true}} {
		if err := control.SendMsg(packet); err != nil {
			s.broken(err) // it is chosen, and goes the way of a session
			break
		}
	}
	return nil
}

// obey answers a peer that decides, and takes the session if it is begun.
func (p *peer) obey(s *session, control stream) error {
	h := p.answer(s.peer)
	defer p.unanswer()
	if err := control.SendMsg(&wire.Packet{Hello: h}); err != nil {
		return err
	}
	var next wire.Packet
	if err := control.RecvMsg(&next); err != nil {
		return err
	}
	if r := next.GetRefusal(); r != "" {
		p.m.denied(p.node, "it refused this node: "+r)
		return errBusy
	}
	if !next.GetBegin() || !p.choose(s, s.always) {
		return errBusy
	}
	return nil
}
