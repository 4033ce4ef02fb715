package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh/wire"
	"github.com/tanist/tanist/internal/port/trace"
)

// GRPC is the mesh of real nodes: gRPC over TLS 1.3 in which both sides present a certificate.
//
// A session is one connection with a stream for each purpose. Either node dials while there is no session, since only who dials learns
// that nobody listens. So that one session results where both do, the node with the lower name decides: it begins the first attempt
// whose greetings are exchanged and refuses others; the other node takes what is begun. While a session stands, a new attempt by the
// other node is taken only if its hello was said after the session's own, which is to say that the other node no longer has the session.
type GRPC struct {
	opt    Options
	server *grpc.Server

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	all    sync.WaitGroup

	serial   atomic.Uint64                    // of the last hello
	table    atomic.Pointer[map[string]*peer] // a copy of peers that is not changed
	mu       sync.Mutex
	handler  Handler // nil until Start
	stopping bool
	peers    map[string]*peer
	said     map[string]time.Duration // refusals that were told of lately
}

var _ Mesh = (*GRPC)(nil)

// New makes a node's end of the mesh. It takes no connection before Start; then it serves enrolment too. It fails where the options are not
// complete or the node's certificate is not this node's of this cluster.
func New(o Options) (*GRPC, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	m := &GRPC{opt: o, peers: map[string]*peer{}, said: map[string]time.Duration{}}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.server = grpc.NewServer(append(serverOptions(), grpc.Creds(&accepting{m: m}))...)
	wire.RegisterMeshServer(m.server, meshService{m: m})
	wire.RegisterTrustServer(m.server, trustService{m: m})
	return m, nil
}

// Start begins to listen and to dial.
func (m *GRPC) Start(h Handler) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handler = h
	m.all.Go(func() {
		if err := m.server.Serve(m.opt.Listener); err != nil && !m.isStopping() {
			trace.Error(m.opt.Trace, "mesh.listen.failed", slog.String("error", err.Error()))
		}
	})
	for _, p := range m.peers {
		m.all.Go(p.dialLoop)
	}
	if m.opt.Renewed != nil {
		m.all.Go(m.renewLoop)
	}
}

func (m *GRPC) isStopping() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stopping
}

// SetPeers says who the other nodes are.
func (m *GRPC) SetPeers(list []Peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopping {
		return
	}
	wanted := map[string]Peer{}
	for _, p := range list {
		if p.Node != m.opt.Local.Node {
			wanted[p.Node] = p
		}
	}
	turns := map[string]chan struct{}{} // of peers under another store: what is said of them must not overlap either
	for node, p := range m.peers {
		if w, ok := wanted[node]; ok && w.Store == p.store {
			p.move(w.Address)
			delete(wanted, node)
			continue
		} else if ok {
			turns[node] = p.turn
		}
		delete(m.peers, node)
		p.leave()
	}
	for node, w := range wanted {
		p := newPeer(m, w, turns[node])
		m.peers[node] = p
		if m.handler != nil {
			m.all.Go(p.dialLoop)
		}
	}
	table := maps.Clone(m.peers)
	m.table.Store(&table)
}

// Send sends a message to a peer in the present session.
func (m *GRPC) Send(node string, p Purpose, key uint64, msg []byte) {
	if s := m.peer(node).session(); s != nil {
		s.send(p, key, msg)
	}
}

// Backlog is how many bytes wait to be sent to a peer.
func (m *GRPC) Backlog(node string) int64 {
	if s := m.peer(node).session(); s != nil {
		return s.backlog()
	}
	return 0
}

// Quiet implements Mesh.
func (m *GRPC) Quiet(node string) time.Duration {
	if s := m.peer(node).session(); s != nil {
		return max(0, m.opt.Clock.Mono()-time.Duration(s.conn.heard.Load()))
	}
	return 0
}

// Redial tries to reach a peer now.
func (m *GRPC) Redial(node string) { m.peer(node).redial() }

// Stop ends all sessions, and the listener. It returns when no handler is called any more.
func (m *GRPC) Stop() {
	m.mu.Lock()
	m.stopping = true
	m.mu.Unlock()
	// First the listener: peers dial at once when a session ends, and are to find that nobody listens.
	if err := m.opt.Listener.Close(); err != nil {
		trace.Warn(m.opt.Trace, "mesh.listen.failed", slog.String("error", err.Error()))
	}
	m.mu.Lock()
	for _, p := range m.peers {
		p.leave()
	}
	m.cancel()
	m.mu.Unlock()
	m.server.Stop()
	m.all.Wait()
}

// peer is a peer of the list, or nil.
func (m *GRPC) peer(node string) *peer {
	if t := m.table.Load(); t != nil {
		return (*t)[node]
	}
	return nil
}

// hello is what this run says of itself. The caller holds the peer's lock, so that numbers rise as the peer's states do.
func (m *GRPC) hello() *wire.Hello {
	l := m.opt.Local
	return &wire.Hello{
		Version: version, Cluster: m.opt.Cluster[:], Node: l.Node, Store: l.Store[:], Boot: l.Boot, Serial: m.serial.Add(1),
		Generation: m.opt.Generation.Number, Mark: m.opt.Generation.Mark, Waits: m.opt.Waits(),
	}
}

// otherGeneration is why there is no session with a node that goes by another generation of the catalog.
type otherGeneration struct{ text string }

func (e *otherGeneration) Error() string { return e.text }

// sameLine checks that a peer goes by this node's generation. The handler is told of a later one: a node that has its catalog is proof
// that this one's was left behind.
func (m *GRPC) sameLine(certified string, h *wire.Hello) error {
	here, there := m.opt.Generation, ident.Generation{Number: max(h.GetGeneration(), 1), Mark: h.GetMark()}
	switch order := there.Compare(here); {
	case order == 0:
		return nil
	case order > 0 && !h.GetWaits():
		m.handler.Superseded(certified, there)
	}
	return &otherGeneration{different(certified, there, m.opt.Local.Node, here)}
}

// different says that two nodes go by different generations, and what to do about it.
func different(peer string, there ident.Generation, node string, here ident.Generation) string {
	left := peer
	if there.Compare(here) > 0 {
		left = node
	}
	return fmt.Sprintf("node %q goes by generation %s of the catalog, node %q by %s: the catalog was recovered without %s, which may follow again after "+
		"`tanist recover rejoin` there", peer, there, node, here, left)
}

// version is that of the messages between nodes.
const version = 1

// errRemoved is of a store that has left the cluster.
var errRemoved = errors.New("it was removed from the cluster")

// check judges a peer's hello against the name in its certificate. The error's text is told to the other side.
func (m *GRPC) check(certified string, h *wire.Hello) (*peer, ident.Instance, error) {
	var i ident.Instance
	switch {
	case h == nil:
		return nil, i, fmt.Errorf("the stream of control does not begin with a greeting")
	case h.GetVersion() != version:
		return nil, i, fmt.Errorf("node %q speaks version %d, node %q speaks %d", certified, h.GetVersion(), m.opt.Local.Node, version)
	case string(h.GetCluster()) != string(m.opt.Cluster[:]):
		return nil, i, fmt.Errorf("node %q is of cluster %x, node %q of %v", certified, h.GetCluster(), m.opt.Local.Node, m.opt.Cluster)
	case h.GetNode() != certified:
		return nil, i, fmt.Errorf("the node calls itself %q, its certificate %q", h.GetNode(), certified)
	case len(h.GetStore()) != len(i.Store):
		return nil, i, fmt.Errorf("node %q names no store", certified)
	}
	if err := m.sameLine(certified, h); err != nil {
		return nil, i, err
	}
	i = ident.Instance{Node: h.GetNode(), Store: ident.StoreID(h.GetStore()), Boot: h.GetBoot()}
	if m.opt.Removed != nil && m.opt.Removed(i.Store) {
		return nil, i, fmt.Errorf("%w: node %q with store %v, as node %q knows", errRemoved, i.Node, i.Store, m.opt.Local.Node)
	}
	p := m.peer(i.Node)
	if p == nil {
		return nil, i, fmt.Errorf("node %q is not a member, as far as node %q knows", i.Node, m.opt.Local.Node)
	}
	if i.Store != p.store {
		return nil, i, fmt.Errorf("node %q has store %v, its place in the cluster is that of store %v", i.Node, i.Store, p.store)
	}
	if boot := p.saw(i.Boot); i.Boot < boot {
		return nil, i, fmt.Errorf("run %d of node %q is over: run %d was seen", i.Boot, i.Node, boot)
	}
	return p, i, nil
}

// saidAgain is how long a refusal is not told of again.
const saidAgain = time.Minute

// denied tells of a refusal, by either side, at most once a minute each.
func (m *GRPC) denied(who, reason string) {
	now := m.opt.Clock.Mono()
	m.mu.Lock()
	last, known := m.said[who+reason]
	tell := !known || now-last >= saidAgain
	if tell {
		if len(m.said) >= 256 {
			clear(m.said)
		}
		m.said[who+reason] = now
	}
	m.mu.Unlock()
	if tell {
		trace.Warn(m.opt.Trace, "mesh.denied", slog.String("peer", who), slog.String("reason", reason))
	}
}
