package replica

import (
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// Peers carries what owners and other copies say to each other (core/protocol, copies.go) to other nodes. Send never blocks; what is
// sent while there is no session with the node is lost, as is what is under way when a session ends.
type Peers interface {
	// Send sends one message to nodes, which are kept by nobody.
	Send(msg any, nodes ...string)
	// Crowded says that so much waits to be sent to a node that what can wait should.
	Crowded(node string) bool
}

// Messages that a manager posts to its replicas.
type (
	peerUp   struct{ peer ident.Instance }
	away     struct{ node string }
	peerDown struct {
		node   string
		silent bool
	}
	// peerLeft says that a node's process is gone, or that the node has left the cluster: no gateway of it holds anything any more.
	peerLeft struct{ node string }
)

// PeerUp says that a session with a run of another node has begun. PeerDown comes before it for every session that ends.
func (m *Manager) PeerUp(peer ident.Instance) {
	m.mu.Lock()
	if m.peers == nil {
		m.peers, m.silent = map[string]ident.Instance{}, map[string]bool{}
	}
	m.peers[peer.Node] = peer
	delete(m.silent, peer.Node)
	m.mu.Unlock()
	for _, r := range m.sorted() {
		r.box.Post(peerUp{peer})
	}
}

// PeerDown says that the session with a node has ended.
func (m *Manager) PeerDown(node string) { m.peerDown(peerDown{node: node}) }

// PeerSilent is PeerDown where the session ended because nothing was heard of the node for as long as an owner may go on delivering that
// hears too few others (design 2 §2): that time is over already.
func (m *Manager) PeerSilent(node string) { m.peerDown(peerDown{node: node, silent: true}) }

// PeerGone says that nobody listens where a node did: its process is gone, and its clients' connections with it. It comes after PeerDown.
func (m *Manager) PeerGone(node string) {
	for _, r := range m.sorted() {
		r.box.Post(peerLeft{node})
	}
}

func (m *Manager) peerDown(msg peerDown) {
	m.mu.Lock()
	delete(m.peers, msg.node)
	if m.silent != nil {
		m.silent[msg.node] = msg.silent
	}
	m.mu.Unlock()
	for _, r := range m.sorted() {
		r.box.Post(msg)
	}
}

// peer is the run of a node that there is a session with.
func (m *Manager) peer(node string) (ident.Instance, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	i, ok := m.peers[node]
	return i, ok
}

// quiet reports whether nothing was heard of a node for as long as makes it count as lost, nor since.
func (m *Manager) quiet(node string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.silent[node]
}

// Receive takes a message of core/protocol's copies.go that a peer sent. It is dropped where it names another sender than from, or a
// partition that has no copy here: who sent it asks again when the copy says where it stands.
func (m *Manager) Receive(from ident.Instance, msg any) {
	var p ident.Partition
	var sender ident.Instance
	switch x := msg.(type) {
	case protocol.Probe:
		p, sender = x.Partition, x.From
	case protocol.Standing:
		p, sender = x.Partition, x.From
	case protocol.Extend:
		p, sender = x.Partition, x.From
	case protocol.Held:
		p, sender = x.Partition, x.From
	case protocol.ImageChunk:
		p, sender = x.Partition, x.From
	case protocol.ImageTaken:
		p, sender = x.Partition, x.From
	case protocol.MakeAnew:
		p, sender = x.Partition, x.From
	default:
		return
	}
	if sender != from {
		return
	}
	if r := m.find(p); r != nil {
		r.box.Post(msg)
	}
}

// copies handles what owners and other copies say, and what becomes of the way to them.
func (r *replica) copies(msg any) bool {
	switch m := msg.(type) {
	case protocol.Extend:
		r.extend(m)
	case protocol.Held:
		r.heldBy(m)
	case protocol.Probe:
		r.probed(m)
	case protocol.Standing:
		r.standing(m)
	case protocol.ImageChunk:
		r.imageChunk(m)
	case protocol.MakeAnew:
		r.mayGoAnew(m)
	case protocol.ImageTaken:
		r.imageTaken(m)
	case changed:
		r.changeDone(m)
	case peerUp:
		r.peerUp(m.peer)
	case peerDown:
		r.peerDown(m)
	case peerLeft:
		r.peerLeft(m.node)
	case away:
		r.away(m)
	default:
		return false
	}
	return true
}

func (r *replica) peerUp(peer ident.Instance) {
	for _, f := range r.feeds {
		if f.Node == peer.Node {
			f.up = f.Store == peer.Store
			r.probe(f)
		}
	}
	r.reach()
	r.expectBack(peer.Node)
	if r.follows() && r.want.Owner == peer {
		r.sayStanding()
	}
}

// returnWithin is how long a gateway may be away, and how long it has to attach anew once the way to it is open again. One that works with the
// partition does so at once.
const returnWithin = 10 * time.Second

// expectBack lets go of the gateways of a node that do not attach anew within a time after the way to it was lost, or has opened again: their
// clients are lost with the node, or their last word, that they left, was lost with the session. What was sent to them since never came to a client.
func (r *replica) expectBack(node string) {
	for _, in := range r.inlets {
		if in.gateway.Node != node {
			continue
		}
		in.outages++
		outage := in.outages
		r.box.After(returnWithin, call{func() {
			if in.outages == outage && slices.Contains(r.inlets, in) { // a later outage gives it as long again
				r.drop(in)
			}
		}})
	}
}

// peerLeft lets go of the gateways of a node that is gone. One that lives all the same attaches anew, and claims what nobody else was given yet.
func (r *replica) peerLeft(node string) {
	for _, in := range slices.Clone(r.inlets) {
		if in.gateway.Node == node {
			r.drop(in)
		}
	}
}

func (r *replica) peerDown(m peerDown) {
	for _, in := range r.inlets {
		if in.gateway.Node == m.node && in.attach == nil && r.phase >= claiming {
			r.side.pause(in.number) // what it would be given now is better given to others
		}
	}
	r.expectBack(m.node)
	for _, f := range r.feeds {
		if f.Node == m.node {
			f.up = false
			f.pause()
			r.keepImage(f)
		}
	}
	r.reach()
	if m.silent && r.phase == claiming {
		r.claimed()
	}
}

func (r *replica) sendCopy(node string, msg any) {
	if p := r.m.env.Peers; p != nil {
		p.Send(msg, node)
	}
}
