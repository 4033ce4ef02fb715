package amqp

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/session"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

const (
	inputs      = 3         // inputs of one connection between its reader and its actor
	outputMost  = 4 << 20   // bytes waiting to be written beyond which no more is read from the client
	outputKept  = 256 << 10 // memory of an output that is kept for the next
	outputLarge = 8 << 20   // memory of an output that is kept for whoever needs as much next
	promptMost  = 4 << 10   // bytes that the actor writes itself
	mostLarge   = 16        // connections that have such memory for what comes next
	lastWords   = 5 * time.Second
	lingerLimit = time.Second
)

// inputSizes are how much is read at a time. Connections that send little keep little memory; from those that send faster than they are
// served much is taken at a time, so that what goes to the same place goes there together.
var inputSizes = [...]int{4 << 10, 64 << 10, 256 << 10}

// input is a chunk on its way from the reader to the actor, and back when it was used up.
type input struct {
	data  []byte
	at, n int // what is left to be fed
}

// output is what the writer writes, and back when it was written.
type output struct {
	session.Output
	gone int  // bytes that were written at once, by the actor
	last bool // nothing is to be written, now or later: the client is told that
	err  error
}

// What actors are told, besides *input and *output.
type (
	tick       int               // with the number of the clock that it belongs to
	overdue    int               // a limit of the handshake or of the farewell has passed: the limit's number
	ended      struct{ error }   // nothing more comes from the client
	shutdown   struct{}          // the server stops
	disconnect string            // an operator's wish, with a reason
	ask        chan<- Connection // who is there?
)

// conn is one connection: an actor, with a goroutine that only reads and one that only writes.
type conn struct {
	server *Server
	id     uint64
	nc     net.Conn
	peer   broker.Peer
	refuse string
	loop   int
	mb     exec.Mailbox
	since  time.Time

	free     chan *input
	outgoing chan *output
	quit     chan struct{}
	quitOnce sync.Once
	in, out  atomic.Uint64

	// Only on the actor's loop:
	s        *session.Conn
	waiting  []*input
	idle     []*output
	over     bool // the socket was given up
	opened   bool
	closing  bool
	interval time.Duration // of ticks
	ticks    int           // the number of the clock that ticks
	limits   int           // of the handshake and the farewell, so far: only the last one counts
	channels int           // that the server knows of
	farewell bool          // everything was written, the client is to hang up
	roomy    bool          // the session's next output has large memory
}

func newConn(s *Server, id uint64, nc net.Conn, secure bool) *conn {
	loop := int(id % uint64(s.env.Executor.Shared()))
	c := &conn{
		server: s, id: id, nc: nc, loop: loop, since: s.env.Clock.Wall(), free: make(chan *input, inputs),
		outgoing: make(chan *output, 2), quit: make(chan struct{}),
		peer: broker.Peer{Address: nc.RemoteAddr().String(), TLS: secure, Front: "amqp"},
	}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.peer.Loopback = a.IP.IsLoopback()
	}
	for range inputs {
		c.free <- &input{}
	}
	for range 2 {
		c.idle = append(c.idle, &output{})
	}
	c.mb = s.env.Executor.Loop(loop).Spawn("amqp", c)
	c.limit(s.env.Limits.Handshake)
	return c
}

// limit ends the connection after d, unless it is open then or another limit has taken this one's place.
func (c *conn) limit(d time.Duration) {
	c.limits++
	c.mb.After(d, overdue(c.limits))
}

// read moves bytes from the socket to the actor until there are no more.
func (c *conn) read() {
	step, few := 0, 0
	for {
		size := inputSizes[step]
		var in *input
		select {
		case in = <-c.free:
		case <-c.quit:
			return
		}
		if len(in.data) != size {
			in.data = make([]byte, size)
		}
		n, err := c.nc.Read(in.data)
		in.at, in.n = 0, n
		c.in.Add(uint64(n))
		c.server.in.Add(uint64(n))
		if n > 0 {
			c.mb.Post(in)
		} else {
			c.free <- in
		}
		if err != nil {
			c.mb.Post(ended{err})
			return
		}
		switch {
		case n == size:
			step, few = min(step+1, len(inputSizes)-1), 0
		case step == 0 || n > inputSizes[step-1]:
			few = 0
		default:
			if few++; few > 64 {
				step, few = step-1, 0
			}
		}
	}
}

// write moves bytes from the actor to the socket.
func (c *conn) write() {
	for {
		select {
		case o := <-c.outgoing:
			if o.last {
				o.err = c.nc.(halfCloser).CloseWrite()
				c.mb.Post(o)
				continue
			}
			n, err := c.nc.Write(o.Bytes[o.gone:])
			c.out.Add(uint64(n))
			c.server.out.Add(uint64(n))
			o.err = err
			c.mb.Post(o)
		case <-c.quit:
			return
		}
	}
}

// halfCloser is a connection that can end the way to the client alone.
type halfCloser interface{ CloseWrite() error }

// cut ends the connection from any goroutine, and the goroutines with it. It does not wait: TLS would say goodbye first, for up to five
// seconds to a client that takes nothing, and it is a loop that waits then, which serves others.
func (c *conn) cut() {
	c.quitOnce.Do(func() {
		close(c.quit)
		nc := c.nc
		if t, ok := nc.(*tls.Conn); ok {
			nc = t.NetConn()
		}
		if err := nc.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			trace.Info(c.server.env.Trace, "amqp.connection.close", slog.String("peer", c.peer.Address), slog.String("error", err.Error()))
		}
		c.server.remove(c)
	})
}

func (c *conn) now() session.Instant {
	return session.Instant{Mono: c.server.env.Clock.Mono(), Wall: c.server.env.Clock.Wall().UnixMilli()}
}

// session is the state machine. It is made on the connection's loop, as the broker wants it.
func (c *conn) session() *session.Conn {
	if c.s == nil {
		env := &c.server.env
		c.s = session.New(session.Config{
			Broker: env.BrokerFor(c.loop), Peer: c.peer, ID: c.id, Product: env.Product, Version: env.Version,
			ClusterName: env.ClusterName, Refuse: c.refuse, Wake: c.mb.Touch,
			Limits: session.Limits{
				Channels: env.Limits.Channels, FrameMax: env.Limits.FrameMax, MessageMax: env.Limits.MessageMax,
				Heartbeat: env.Limits.Heartbeat,
			},
		}, c.now())
	}
	return c.s
}

// Receive implements exec.Actor.
func (c *conn) Receive(msg any) {
	if a, ok := msg.(ask); ok {
		c.answer(a)
		return
	}
	if c.over {
		return
	}
	s := c.session()
	switch m := msg.(type) {
	case *input:
		c.waiting = append(c.waiting, m)
		c.feed()
	case *output:
		c.written(m)
		if m.err != nil {
			c.finish(m.err)
		}
	case tick:
		if int(m) == c.ticks {
			s.Tick(c.now(), c.held())
			c.interval = 0
		}
	case overdue:
		if int(m) == c.limits && !s.Open() {
			c.finish(errors.New("handshake or farewell took too long"))
		}
	case ended:
		c.feed()
		c.finish(m.error)
	case shutdown:
		s.Close(broker.Errorf(broker.Unavailable, "this node is shutting down"))
	case disconnect:
		s.Close(broker.Errorf(broker.Unavailable, "%s", string(m)))
	}
}

// held reports whether input waits for the broker, or for the client to take what it was sent.
func (c *conn) held() bool { return len(c.waiting) > 0 || c.s.Stuck() }

// feed gives the session what has come in, as far as it wants it.
func (c *conn) feed() {
	for !c.over && c.held() && c.s.Pending() < outputMost {
		if len(c.waiting) == 0 {
			c.s.Feed(nil, c.now())
			if c.s.Stuck() {
				return
			}
			continue
		}
		in := c.waiting[0]
		in.at += c.s.Feed(in.data[in.at:in.n], c.now())
		if in.at < in.n {
			return
		}
		c.waiting = slices.Delete(c.waiting, 0, 1)
		c.free <- in
		if c.s.Stuck() {
			return
		}
	}
}

// Flush implements exec.Actor.
func (c *conn) Flush() {
	if c.over || c.s == nil {
		return
	}
	c.feed()
	c.s.Flush(c.now())
	c.countChannels()
	if c.s.Open() && !c.opened {
		c.opened = true
		c.logOpened()
	}
	c.wind()
	if c.s.Closing() && !c.closing {
		c.closing = true
		c.limit(lastWords)
	}
	if n := len(c.idle); n > 0 && c.s.Pending() > 0 {
		o := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if c.roomy = c.server.large.follow(c.roomy, c.s.Pending()); c.roomy {
			if b := c.server.large.take(); b != nil {
				o.Bytes = b
			}
		}
		c.s.Take(&o.Output)
		if o.gone = 0; n < 2 || !c.writeNow(o) {
			c.outgoing <- o
		}
	}
	if c.s.Done() {
		c.hangUp()
	}
}

// written takes an output back.
func (c *conn) written(o *output) {
	c.s.Written(&o.Output)
	if cap(o.Bytes) > outputKept {
		c.server.large.give(o.Bytes)
		o.Bytes = nil
	}
	c.idle = append(c.idle, o)
}

// writeNow writes a small output at once, where nothing is being written: a change of goroutine, there and back, takes longer than that. It
// reports whether all is written; the rest, and what went wrong, are the writer's.
func (c *conn) writeNow(o *output) bool {
	t, ok := c.nc.(interface{ TryWrite([]byte) (int, error) })
	if !ok || len(o.Bytes) > promptMost {
		return false
	}
	n, err := t.TryWrite(o.Bytes)
	c.out.Add(uint64(n))
	c.server.out.Add(uint64(n))
	if o.gone = n; err != nil || n < len(o.Bytes) {
		return false
	}
	c.written(o)
	c.mb.Touch() // what that let the broker do may be to be sent
	return true
}

// countChannels tells the server how many more channels there are than it knows.
func (c *conn) countChannels() {
	if n := c.s.Channels(); n != c.channels {
		c.server.channels.Add(int64(n - c.channels))
		c.channels = n
	}
}

// wind asks for the next tick, and for an earlier one where the session has come to want them more often.
func (c *conn) wind() {
	if d := c.s.Interval(); d > 0 && d != c.interval {
		c.interval = d
		c.ticks++
		c.mb.After(d, tick(c.ticks))
	}
}

// hangUp ends a connection whose last words were written. The client is given a moment to hang up first, since closing a socket that
// still has input makes the other end lose what it has not yet read.
func (c *conn) hangUp() {
	if c.farewell {
		return
	}
	if c.s.Pending() > 0 || len(c.idle) < 2 {
		if !c.closing {
			c.closing = true
			c.limit(lastWords)
		}
		return
	}
	c.farewell = true
	if _, ok := c.nc.(halfCloser); !ok {
		c.finish(nil)
		return
	}
	c.limit(lingerLimit)
	o := c.idle[1]
	c.idle = c.idle[:1]
	o.last = true
	c.outgoing <- o // the writer waits for it, where it has to be waited for
}

// finish gives up the socket and everything that the client held.
func (c *conn) finish(err error) {
	if c.over {
		return
	}
	c.over = true
	if st := c.s.Status(); st.Fault != "" {
		name := "amqp.connection.refused"
		if c.opened {
			name = "amqp.connection.failed"
		}
		trace.Warn(c.server.env.Trace, name, slog.String("peer", c.peer.Address), slog.String("user", st.Claimed),
			slog.String("client", st.Client.Product), slog.String("name", st.Client.Name), slog.String("reason", st.Fault))
		c.leave()
		return
	}
	expected := err == nil || c.s.Done() || c.s.Closing()
	if !expected && !errors.Is(err, net.ErrClosed) {
		level := slog.LevelWarn
		if errors.Is(err, io.EOF) || !c.opened {
			level = slog.LevelInfo
		}
		c.server.env.Trace.Emit(trace.Event{Level: level, Name: "amqp.connection.lost", Attrs: []slog.Attr{
			slog.String("peer", c.peer.Address), slog.String("error", err.Error()),
		}})
	} else if c.opened {
		trace.Info(c.server.env.Trace, "amqp.connection.closed", slog.String("peer", c.peer.Address))
	}
	c.leave()
}

// leave gives back what the client held, and the socket.
func (c *conn) leave() {
	c.s.Abandon()
	c.roomy = c.server.large.follow(c.roomy, 0)
	c.countChannels()
	c.waiting = nil
	c.cut()
}

func (c *conn) logOpened() {
	st := c.s.Status()
	trace.Info(c.server.env.Trace, "amqp.connection.opened", slog.String("peer", c.peer.Address), slog.String("user", st.User),
		slog.String("vhost", st.VHost), slog.String("client", st.Client.Product), slog.String("version", st.Client.Version),
		slog.String("name", st.Client.Name), slog.Bool("tls", c.peer.TLS))
}

// answer says who is there.
func (c *conn) answer(to ask) {
	if c.over {
		to <- Connection{}
		return
	}
	to <- Connection{
		ID: c.id, Peer: c.peer.Address, TLS: c.peer.TLS, Since: c.since, Loop: c.loop, In: c.in.Load(), Out: c.out.Load(),
		Status: c.session().Status(),
	}
}
