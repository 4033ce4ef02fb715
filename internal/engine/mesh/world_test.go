package mesh

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/trust"
)

// network is a network in memory. Connections between two addresses may be cut without a word, or reset.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	pipes     []*pipe
	mute      map[string]bool // addresses from and to which nothing comes any more
	dials     map[string]int
}

func newNetwork() *network {
	return &network{listeners: map[string]*listener{}, mute: map[string]bool{}, dials: map[string]int{}}
}

type listener struct {
	n       *network
	address string
	queue   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

type address string

func (a address) Network() string { return "memory" }
func (a address) String() string  { return string(a) }

func (n *network) listen(at string) *listener {
	l := &listener{n: n, address: at, queue: make(chan net.Conn, 64), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[at] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		if l.n.listeners[l.address] == l {
			delete(l.n.listeners, l.address)
		}
		l.n.mu.Unlock()
		close(l.done)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.address) }

// dialer dials from an address.
func (n *network) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		n.mu.Lock()
		n.dials[from+">"+to]++
		l, muted := n.listeners[to], n.mute[from] || n.mute[to]
		n.mu.Unlock()
		if muted {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if l == nil {
			return nil, &net.OpError{Op: "dial", Net: "memory", Addr: address(to), Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}
		a, b := n.pipe(from, to)
		select {
		case l.queue <- b:
			return a, nil
		case <-l.done:
			return nil, syscall.ECONNREFUSED
		}
	}
}

// pipe makes a connection: what is written on one end can be read at the other, 64 KiB ahead.
func (n *network) pipe(from, to string) (net.Conn, net.Conn) {
	one, two := newHalf(), newHalf()
	a := &pipe{n: n, in: one, out: two, local: from, remote: to}
	b := &pipe{n: n, in: two, out: one, local: to, remote: from}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pipes = append(n.pipes, a, b)
	return a, b
}

// silence cuts an address off without a word.
func (n *network) silence(at string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute[at] = on
}

// reset breaks the connections of an address.
func (n *network) reset(at string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pipes {
		if p.local == at || p.remote == at {
			p.in.end(syscall.ECONNRESET)
		}
	}
}

type half struct {
	mu       sync.Mutex
	buf      []byte
	err      error
	changed  chan struct{} // closed and replaced at each change
	deadline time.Time
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

func (h *half) stir() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) end(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
		h.stir()
	}
}

type pipe struct {
	n             *network
	in, out       *half
	local, remote string
	write         sync.Mutex
}

func (p *pipe) Read(b []byte) (int, error) {
	for {
		p.in.mu.Lock()
		n := copy(b, p.in.buf)
		err, changed, deadline := p.in.err, p.in.changed, p.in.deadline
		if n > 0 {
			p.in.buf = p.in.buf[n:]
			p.in.stir()
			p.in.mu.Unlock()
			return n, nil
		}
		p.in.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if err := wait(changed, deadline); err != nil {
			return 0, err
		}
	}
}

func wait(changed chan struct{}, deadline time.Time) error {
	if deadline.IsZero() {
		<-changed
		return nil
	}
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-changed:
		return nil
	case <-t.C:
		return os.ErrDeadlineExceeded
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.write.Lock()
	defer p.write.Unlock()
	done := 0
	for done < len(b) {
		p.n.mu.Lock()
		muted := p.n.mute[p.local] || p.n.mute[p.remote]
		p.n.mu.Unlock()
		p.out.mu.Lock()
		err, changed := p.out.err, p.out.changed
		n := min(len(b)-done, 64<<10-len(p.out.buf))
		if muted {
			n = len(b) - done // swallowed
		}
		if err == nil && n > 0 {
			if !muted {
				p.out.buf = append(p.out.buf, b[done:done+n]...)
				p.out.stir()
			}
			done += n
			p.out.mu.Unlock()
			continue
		}
		p.out.mu.Unlock()
		if err != nil {
			return done, err
		}
		<-changed
	}
	return done, nil
}

func (p *pipe) Close() error {
	p.in.end(net.ErrClosed)
	p.n.mu.Lock()
	muted := p.n.mute[p.local] || p.n.mute[p.remote]
	p.n.mu.Unlock()
	if !muted {
		p.out.end(io.EOF)
	}
	return nil
}

func (p *pipe) LocalAddr() net.Addr  { return address(p.local) }
func (p *pipe) RemoteAddr() net.Addr { return address(p.remote) }
func (p *pipe) SetDeadline(t time.Time) error {
	return p.SetReadDeadline(t)
}

func (p *pipe) SetReadDeadline(t time.Time) error {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.in.deadline = t
	p.in.stir()
	return nil
}
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// recorder is a Handler that writes down what it is told and fails the test where a rule of the interface is broken.
type recorder struct {
	t  *testing.T
	mu sync.Mutex
	// up is the present session with each node.
	up      map[string]ident.Instance
	busy    map[string]bool // calls that are being made
	log     []string
	got     map[string][][]byte // by "node purpose"
	receive func(ident.Instance, Purpose, []byte)
	outrun  []string // later generations that it was told of
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, up: map[string]ident.Instance{}, busy: map[string]bool{}, got: map[string][][]byte{}}
}

// alone holds calls of one key apart.
func (r *recorder) alone(key string) func() {
	r.mu.Lock()
	if r.busy[key] {
		r.t.Errorf("calls about %s overlap", key)
	}
	r.busy[key] = true
	return func() {
		r.busy[key] = false
		r.mu.Unlock()
	}
}

func (r *recorder) Up(p ident.Instance) {
	defer r.alone(p.Node)()
	if old, ok := r.up[p.Node]; ok {
		r.t.Errorf("up with %v while there is a session with %v", p, old)
	}
	r.up[p.Node] = p
	r.log = append(r.log, fmt.Sprintf("up %s %d", p.Node, p.Boot))
}

func (r *recorder) Down(p ident.Instance, c Cause, reason string) {
	defer r.alone(p.Node)()
	if r.up[p.Node] != p {
		r.t.Errorf("down of %v, which is not up", p)
	}
	if reason == "" {
		r.t.Errorf("down of %v (%v) for no reason", p, c)
	}
	delete(r.up, p.Node)
	r.log = append(r.log, fmt.Sprintf("down %s %d %v", p.Node, p.Boot, c))
}

func (r *recorder) Unreachable(node string, c Cause, reason string) {
	defer r.alone(node)()
	if p, ok := r.up[node]; ok {
		r.t.Errorf("%s is unreachable (%s) with a session %v", node, reason, p)
	}
	r.log = append(r.log, fmt.Sprintf("unreachable %s %v: %s", node, c, reason))
}

func (r *recorder) Superseded(node string, g ident.Generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outrun = append(r.outrun, fmt.Sprintf("%s %v", node, g))
}

func (r *recorder) Receive(p ident.Instance, purpose Purpose, msg []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up[p.Node] != p {
		r.t.Errorf("a message of %v, which is not up", p)
	}
	key := p.Node + " " + purpose.String()
	r.got[key] = append(r.got[key], msg)
	if r.receive != nil {
		r.receive(p, purpose, msg)
	}
}

func (r *recorder) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}

func (r *recorder) count(prefix string) int {
	n := 0
	for _, l := range r.lines() {
		if strings.HasPrefix(l, prefix) {
			n++
		}
	}
	return n
}

func (r *recorder) messages(node string, p Purpose) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got[node+" "+p.String()])
}

// clue keeps what was traced, as text.
type clue struct {
	mu  sync.Mutex
	all []string
}

func (c *clue) Emit(e trace.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := e.Level.String() + " " + e.Name
	for _, a := range e.Attrs {
		text += " " + a.Key + "=" + a.Value.String()
	}
	c.all = append(c.all, text)
}

// find returns an event that has all the words.
func (c *clue) find(words ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
next:
	for _, text := range c.all {
		for _, w := range words {
			if !strings.Contains(text, w) {
				continue next
			}
		}
		return text
	}
	return ""
}

var _ trace.Sink = (*clue)(nil)

// world is a cluster of nodes on a network.
type world struct {
	t         *testing.T
	net       *network
	cluster   ident.StoreID
	authority *trust.Authority
	limits    Limits
	registrar Registrar
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, net: newNetwork(), cluster: ident.StoreID{1, 2, 3}}
	w.authority = must(trust.NewAuthority(rand.Reader, w.cluster, time.Now()))(t)
	return w
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// material is a node's, signed by the authority at a time.
func (w *world) material(a *trust.Authority, node string, at time.Time) *trust.Material {
	w.t.Helper()
	key := must(trust.NewKey())(w.t)
	request := must(trust.NewRequest(node, key))(w.t)
	leaf := must(a.Issue(rand.Reader, node, request, at))(w.t)
	return must(trust.NewMaterial([][]byte{leaf}, key, [][]byte{a.Certificate()}))(w.t)
}

type node struct {
	*GRPC
	*recorder
	clue *clue
	self Peer
}

// node starts a run of a node, with the peers it knows.
func (w *world) node(name string, boot uint64, peers ...Peer) *node {
	w.t.Helper()
	return w.nodeWith(Options{}, name, boot, peers...)
}

func (w *world) nodeWith(o Options, name string, boot uint64, peers ...Peer) *node {
	w.t.Helper()
	n := w.make(o, name, boot, peers...)
	n.Start(n.recorder)
	return n
}

// make makes a node that is not started.
func (w *world) make(o Options, name string, boot uint64, peers ...Peer) *node {
	w.t.Helper()
	n := &node{recorder: newRecorder(w.t), clue: &clue{}, self: w.peer(name)}
	o.Local = ident.Instance{Node: name, Store: n.self.Store, Boot: boot}
	if o.Cluster.IsZero() {
		o.Cluster = w.cluster
	}
	if o.Trust == nil {
		o.Trust = trust.Hold(w.material(w.authority, name, time.Now()))
	}
	o.Listener, o.Dial, o.Trace, o.Limits, o.Registrar = w.net.listen(n.self.Address), w.net.dialer(n.self.Address), n.clue, w.limits, w.registrar
	n.GRPC = must(New(o))(w.t)
	n.SetPeers(peers)
	return n
}

func (w *world) peer(name string) Peer {
	return Peer{Node: name, Store: ident.StoreID([]byte(name + "-store-0123456789")[:16]), Address: name + ":1"}
}

func (w *world) peers(names ...string) []Peer {
	var out []Peer
	for _, n := range names {
		out = append(out, w.peer(n))
	}
	return out
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

// stopAll ends nodes, in the order given.
func stopAll(nodes ...*node) {
	for _, n := range nodes {
		n.Stop()
	}
}

// settle lets virtual time pass.
func settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func wantUp(t *testing.T, n *node, others ...string) {
	t.Helper()
	n.mu2().Lock()
	defer n.mu2().Unlock()
	for _, o := range others {
		if _, ok := n.up[o]; !ok {
			t.Errorf("%s has no session with %s: %v", n.self.Node, o, n.log)
		}
	}
}

func (n *node) mu2() *sync.Mutex { return &n.recorder.mu }
