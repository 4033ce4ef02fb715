package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/socket"
	"github.com/tanist/tanist/internal/port/trace"
)

// conn is a connection that remembers when it last heard something, and why it broke.
type conn struct {
	net.Conn
	clock clock.Clock
	heard atomic.Int64 // monotonic
	broke atomic.Pointer[error]
}

func watch(c net.Conn, k clock.Clock) *conn {
	w := &conn{Conn: socket.Quick(c), clock: k}
	w.heard.Store(int64(k.Mono()))
	return w
}

// Read reads.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Store(int64(c.clock.Mono()))
	}
	if err != nil {
		c.broke.CompareAndSwap(nil, &err)
	}
	return n, err
}

// stream is one of the streams of a session, of the side that dialled or of the other.
type stream interface {
	SendMsg(any) error
	RecvMsg(any) error
}

// session is one session with a peer, from the greeting on.
type session struct {
	m       *GRPC
	peer    ident.Instance
	serial  uint64 // of the peer's hello
	conn    *conn
	streams [Purposes]stream
	queues  [Purposes]*queue

	ctx    context.Context // ends when the session does
	cancel context.CancelFunc

	mu     sync.Mutex
	ended  bool
	cause  Cause
	reason string
}

func (m *GRPC) newSession(ctx context.Context, peer ident.Instance, serial uint64, c *conn, streams [Purposes]stream) *session {
	s := &session{m: m, peer: peer, serial: serial, conn: c, streams: streams}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for p := range s.queues {
		s.queues[p] = newQueue()
	}
	return s
}

// end ends the session, for the first cause that is given.
func (s *session) end(cause Cause, reason string) {
	s.mu.Lock()
	first := !s.ended
	if first {
		s.ended, s.cause, s.reason = true, cause, reason
	}
	s.mu.Unlock()
	if first {
		s.cancel()
		_ = s.conn.Conn.Close() // what it says is of no use: the session is over in any case
	}
}

// broken ends the session because a stream failed.
func (s *session) broken(err error) { s.end(Reset, s.conn.why(err)) }

// why says why the connection broke, as clearly as is known.
func (c *conn) why(err error) string {
	if broke := c.broke.Load(); broke != nil && !errors.Is(*broke, net.ErrClosed) {
		if errors.Is(*broke, io.EOF) {
			return "the peer closed the connection"
		}
		return (*broke).Error()
	}
	if err == nil || errors.Is(err, io.EOF) {
		return "the peer closed a stream"
	}
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return err.Error()
}

// send queues a message.
func (s *session) send(p Purpose, key uint64, msg []byte) {
	s.queues[p].push(key, msg)
	if waiting := s.backlog(); waiting > s.m.opt.Limits.Queue {
		s.end(Reset, fmt.Sprintf("%d bytes wait to be sent to it, at most %d may", waiting, s.m.opt.Limits.Queue))
	}
}

// backlog is how many bytes wait to be sent, for all purposes.
func (s *session) backlog() (waiting int64) {
	for _, q := range s.queues {
		waiting += q.bytes.Load()
	}
	return waiting
}

// run is the session from Up to Down. The caller has made sure that no other of the peer is between its own.
func (s *session) run(h Handler) {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return
	}
	trace.Info(s.m.opt.Trace, "mesh.up", slog.String("peer", s.peer.String()), slog.String("remote", s.conn.RemoteAddr().String()))
	h.Up(s.peer)
	var all sync.WaitGroup
	for p := range Purposes {
		all.Go(func() { s.write(p) })
		all.Go(func() { s.read(p, h) })
	}
	all.Go(s.listen)
	all.Wait()
	level := slog.LevelWarn
	if s.cause == Left {
		level = slog.LevelInfo
	}
	s.m.opt.Trace.Emit(trace.Event{Level: level, Name: "mesh.down", Attrs: []slog.Attr{
		slog.String("peer", s.peer.String()), slog.String("cause", s.cause.String()), slog.String("reason", s.reason),
	}})
	h.Down(s.peer, s.cause, s.reason)
}

// write sends what waits for a purpose. On control it also gives a sign of life when there is nothing to send.
func (s *session) write(p Purpose) {
	q, out := s.queues[p], &outgoing{}
	var idle <-chan time.Time
	if p == Control {
		t := time.NewTicker(s.m.opt.Limits.Silence / 4)
		defer t.Stop()
		idle = t.C
	}
	for {
		clear(out.parts)
		out.parts = q.take(out.parts[:0])
		if len(out.parts) == 0 {
			select {
			case <-q.ready:
				continue
			case <-idle:
			case <-s.ctx.Done():
				return
			}
		}
		if err := s.streams[p].SendMsg(out); err != nil {
			s.broken(err)
			return
		}
	}
}

// read hands on what arrives for a purpose.
func (s *session) read(p Purpose, h Handler) {
	in := &incoming{limit: s.m.opt.Limits.Message}
	for {
		if err := s.streams[p].RecvMsg(in); err != nil {
			s.broken(err)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		for i, msg := range in.out {
			in.out[i] = nil
			h.Receive(s.peer, p, msg)
		}
		in.out = in.out[:0]
	}
}

// listen ends the session when nothing was heard for too long.
func (s *session) listen() {
	t := time.NewTimer(s.m.opt.Limits.Silence)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		quiet := s.m.opt.Clock.Mono() - time.Duration(s.conn.heard.Load())
		if quiet >= s.m.opt.Limits.Silence {
			s.end(Silent, fmt.Sprintf("nothing was heard for %v", quiet.Round(time.Millisecond)))
			return
		}
		t.Reset(s.m.opt.Limits.Silence - quiet)
	}
}
