package amqp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/port/socket"
	"github.com/tanist/tanist/internal/port/trace"
)

// overflow is how many connections beyond the limit are kept for as long as it takes to tell them that they are too many.
const overflow = 64

// Server serves AMQP clients. Its methods may be called from any goroutine.
type Server struct {
	env Env

	mu        sync.Mutex
	conns     map[uint64]*conn
	listeners []net.Listener
	last      uint64 // the id given last
	stopping  bool
	ending    chan struct{} // closed when stopping is set
	tasks     sync.WaitGroup

	in, out  atomic.Uint64 // bytes since the start
	channels atomic.Int64  // open now
	large    large
}

// New makes a server that listens nowhere yet.
func New(env Env) *Server {
	l := &env.Limits
	setDefault(&l.Connections, 10_000)
	setDefault(&l.Channels, 2047)
	setDefault(&l.FrameMax, 128<<10)
	setDefault(&l.MessageMax, 16<<20)
	setDefault(&l.Heartbeat, time.Minute)
	setDefault(&l.Handshake, 10*time.Second)
	if env.Trace == nil {
		env.Trace = trace.Discard
	}
	return &Server{env: env, conns: map[uint64]*conn{}, ending: make(chan struct{})}
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Listen accepts connections on ln until Shutdown, which closes it, and returns at once. t, where not nil, makes it expect TLS.
func (s *Server) Listen(ln net.Listener, t *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		if err := ln.Close(); err != nil {
			trace.Warn(s.env.Trace, "amqp.listener.close", slog.String("error", err.Error()))
		}
		return
	}
	s.listeners = append(s.listeners, ln)
	s.tasks.Go(func() { s.accept(ln, t) })
}

func (s *Server) accept(ln net.Listener, t *tls.Config) {
	pause := time.Millisecond
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = time.Millisecond
			s.start(nc, t)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of file handles, most likely. Waiting is all that helps, and clients in the backlog wait with us.
			trace.Warn(s.env.Trace, "amqp.accept.failed", slog.String("error", err.Error()))
			select {
			case <-time.After(pause):
			case <-s.ending:
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// start gives a connection its actor.
func (s *Server) start(nc net.Conn, t *tls.Config) {
	if nc = socket.Quick(nc); t != nil {
		nc = tls.Server(nc, t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.env.Limits.Connections
	if s.stopping || len(s.conns) >= limit+overflow {
		if err := nc.Close(); err != nil {
			trace.Warn(s.env.Trace, "amqp.connection.close", slog.String("error", err.Error()))
		}
		return
	}
	s.last++
	c := newConn(s, s.last, nc, t != nil)
	if len(s.conns) >= limit {
		c.refuse = fmt.Sprintf("connection limit (%d) of this node is reached", limit)
		trace.Warn(s.env.Trace, "amqp.connection.limit", slog.Int("limit", limit), slog.String("peer", c.peer.Address))
	}
	s.conns[c.id] = c
	s.tasks.Go(c.read)
	s.tasks.Go(c.write)
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c.id)
}

// all is the connections in the order they came.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *conn) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return out
}

// Shutdown accepts no more connections, asks the clients to close (connection.close with code 320), and waits for them; when ctx ends,
// what is left is cut off and the context's error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopping {
		s.stopping = true
		close(s.ending)
	}
	var errs []error
	for _, ln := range s.listeners {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	s.listeners = nil
	s.mu.Unlock()
	for _, c := range s.all() {
		c.mb.Post(shutdown{})
	}
	done := make(chan struct{})
	go func() {
		s.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, ctx.Err())
		for _, c := range s.all() {
			c.cut()
		}
		<-done
	}
	return errors.Join(errs...)
}

// Connections is how many clients are connected.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Traffic is what all clients do together.
type Traffic struct {
	In, Out  uint64 // bytes received and sent since the start, those of connections that have ended included
	Channels uint64 // open now
}

// Traffic says what all clients do together. It is cheap: nobody is asked.
func (s *Server) Traffic() Traffic {
	return Traffic{In: s.in.Load(), Out: s.out.Load(), Channels: uint64(max(s.channels.Load(), 0))}
}

// Connection is one client as people see it.
type Connection struct {
	ID     uint64
	Peer   string // host:port
	TLS    bool
	Since  time.Time
	Loop   int
	In     uint64 // bytes received
	Out    uint64 // bytes sent
	Status session.Status
}

// Status lists the connections in the order they came. Those that do not answer before ctx ends are left out.
func (s *Server) Status(ctx context.Context) []Connection {
	conns := s.all()
	answers := make(chan Connection, len(conns))
	for _, c := range conns {
		c.mb.Post(ask(answers))
	}
	var out []Connection
	for range conns {
		select {
		case a := <-answers:
			if a.ID != 0 {
				out = append(out, a)
			}
		case <-ctx.Done():
			return sorted(out)
		}
	}
	return sorted(out)
}

func sorted(cs []Connection) []Connection {
	slices.SortFunc(cs, func(a, b Connection) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return cs
}

// Disconnect asks one client to close (code 320, with a reason). It reports whether there is such a connection.
func (s *Server) Disconnect(id uint64, reason string) bool {
	s.mu.Lock()
	c := s.conns[id]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.mb.Post(disconnect(reason))
	return true
}
