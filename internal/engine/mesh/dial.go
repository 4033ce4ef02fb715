package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tanist/tanist/internal/engine/mesh/wire"
	"github.com/tanist/tanist/internal/port/trust"
)

// Sizes of gRPC's buffers and windows. Windows are fixed: receivers never wait, so they bound nothing but what is under way.
const (
	bufferBytes = 64 << 10
	streamBytes = 4 << 20
	connBytes   = 16 << 20
	largest     = 1 << 20 // no packet is larger
	headerBytes = 16 << 10
)

// purposeKey is the metadata that says which purpose a stream is for.
const purposeKey = "tanist-purpose"

// failure says why there is no session after an attempt.
type failure struct {
	cause  Cause
	reason string
}

// attempt dials once. If that gives a session, it returns when the session is over. It returns nothing where the peer was reached, be it
// that another attempt is to win.
func (p *peer) attempt() *failure {
	ctx, cancel := context.WithTimeout(p.ctx, p.m.opt.Limits.Silence)
	defer cancel()
	p.mu.Lock()
	p.dialling = cancel
	address := p.address
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.dialling = nil
		p.mu.Unlock()
	}()
	c, client, err := connect(ctx, address, trust.Client(p.m.opt.Trust, p.judge), &p.m.opt)
	if err != nil {
		return p.m.classify(ctx, err)
	}
	defer func() { _ = client.Close() }() // the connection is over by then
	// Streams outlive the attempt; while they are not begun, its end closes the connection.
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	s, err := p.greet(client, c)
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) {
			return &failure{Denied, refused.reason}
		}
		return p.m.judge(ctx, c, err)
	}
	if s == nil {
		return nil
	}
	if !stop() {
		s.end(Silent, "the greeting took too long")
	}
	p.hold(s)
	return nil
}

// connect opens a connection with TLS and a client that uses it and no other.
func connect(ctx context.Context, address string, config *tls.Config, o *Options) (*conn, *grpc.ClientConn, error) {
	raw, err := o.Dial(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	c := watch(raw, o.Clock)
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, nil, errors.Join(err, closed(raw))
	}
	once := make(chan net.Conn, 1)
	once <- secure
	dial := func(context.Context, string) (net.Conn, error) {
		select {
		case c := <-once:
			return c, nil
		default:
			return nil, errOnce
		}
	}
	client, err := grpc.NewClient("passthrough:///"+address, append(clientOptions(), grpc.WithContextDialer(dial))...)
	if err != nil {
		return nil, nil, errors.Join(err, closed(raw))
	}
	return c, client, nil
}

// errOnce keeps gRPC from opening connections of its own.
var errOnce = errors.New("the connection is over")

// closed closes a connection that is of no more use.
func closed(c net.Conn) error {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func clientOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(dialled{}), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0), grpc.WithNoProxy(), grpc.WithReadBufferSize(bufferBytes), grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithStaticStreamWindowSize(streamBytes), grpc.WithStaticConnWindowSize(connBytes), grpc.WithMaxHeaderListSize(headerBytes),
		experimental.WithBufferPool(buffers), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(largest)),
	}
}

// refusal is a reason of this side's for not beginning a session.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// greet opens the streams, says hello and hears it, and begins a session. It returns nothing where there is or will be another.
func (p *peer) greet(client *grpc.ClientConn, c *conn) (*session, error) {
	var streams [Purposes]stream
	for purpose := range Purposes {
		ctx := metadata.AppendToOutgoingContext(p.ctx, purposeKey, strconv.Itoa(int(purpose)))
		s, err := wire.NewMeshClient(client).Session(ctx)
		if err != nil {
			return nil, err
		}
		streams[purpose] = s
	}
	control := streams[Control]
	hello := p.dial()
	if hello == nil {
		return nil, errors.Join(nil, closed(c))
	}
	if err := control.SendMsg(&wire.Packet{Hello: hello}); err != nil {
		return nil, heard(control, err)
	}
	var answer wire.Packet
	if err := control.RecvMsg(&answer); err != nil {
		return nil, err
	}
	_, instance, err := p.m.check(p.node, answer.GetHello())
	if err != nil {
		// The other side ends the stream when it has read why.
		if control.SendMsg(&wire.Packet{Refusal: err.Error()}) == nil {
			_ = control.RecvMsg(&answer)
		}
		return nil, errors.Join(&refusal{err.Error()}, closed(c))
	}
	s := p.m.newSession(p.ctx, instance, answer.GetHello().GetSerial(), c, streams)
	chosen := false
	if p.decides {
		chosen = p.begin(s, s.never)
	} else {
		var begin wire.Packet
		if err := control.RecvMsg(&begin); err != nil {
			return nil, err
		}
		chosen = begin.GetBegin() && p.begin(s, s.always)
	}
	if !chosen {
		return nil, errors.Join(nil, closed(c))
	}
	if p.decides {
		if err := control.SendMsg(&wire.Packet{Begin: true}); err != nil {
			s.broken(err) // it is chosen, and goes the way of a session
		}
	}
	return s, nil
}

// begin chooses a session of this side's own attempt, which is then no attempt any more.
func (p *peer) begin(s *session, replace func(*session) bool) bool {
	p.mu.Lock()
	cancel := p.dialling
	p.dialling = nil
	p.mu.Unlock()
	if p.choose(s, replace) {
		return true
	}
	if cancel != nil {
		cancel()
	}
	return false
}

// heard is the status that a stream ended with, where sending told only that it has.
func heard(s stream, err error) error {
	var none wire.Packet
	if e := s.RecvMsg(&none); e != nil {
		return e
	}
	return err
}

// judge says what the failure of a greeting proves; nothing if the peer is there and another attempt is to win.
func (m *GRPC) judge(ctx context.Context, c *conn, err error) *failure {
	switch st, _ := status.FromError(err); st.Code() {
	case codes.AlreadyExists:
		return nil
	case codes.NotFound:
		return &failure{Removed, st.Message()}
	case codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition, codes.Unimplemented:
		return &failure{Denied, "it refused this node: " + st.Message()}
	}
	if ctx.Err() != nil {
		return m.classify(ctx, ctx.Err())
	}
	return &failure{Reset, c.why(err)}
}

// classify says what the failure of a connection proves.
func (m *GRPC) classify(ctx context.Context, err error) *failure {
	var remote *net.OpError
	var timeout net.Error
	var verdict *tls.CertificateVerificationError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return &failure{Refused, err.Error()}
	case errors.Is(err, context.Canceled):
		return nil // overtaken by another attempt
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &failure{Silent, fmt.Sprintf("it did not answer within %v", m.opt.Limits.Silence)}
	case errors.As(err, &remote) && remote.Op == "remote error":
		return &failure{Denied, notAccepted(m, err)}
	case errors.As(err, &verdict), isVerdict(err):
		return &failure{Denied, err.Error()}
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return &failure{Silent, err.Error()}
	case ctx.Err() != nil:
		return m.classify(context.Background(), ctx.Err())
	}
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return &failure{Silent, err.Error()}
	}
	return &failure{Reset, err.Error()}
}

func isVerdict(err error) bool {
	for _, v := range []error{
		trust.ErrNone, trust.ErrIdentity, trust.ErrCluster, trust.ErrStranger, trust.ErrExpired, trust.ErrEarly, trust.ErrNode, trust.ErrUnfit,
		trust.ErrFingerprint,
	} {
		if errors.Is(err, v) {
			return true
		}
	}
	return false
}

// notAccepted says that the other side ended the handshake. TLS does not carry why; the other side's log has it.
func notAccepted(m *GRPC, err error) string {
	return fmt.Sprintf("it did not accept this node's certificate (%v); its own log says why; the certificate is that of %s", err,
		m.opt.Trust.Material().Describe())
}

// dialled is for connections that have TLS already.
type dialled struct{}

func (dialled) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, credentials.TLSInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

func (dialled) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errOnce
}

func (dialled) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (d dialled) Clone() credentials.TransportCredentials { return d }

func (dialled) OverrideServerName(string) error { return nil }
