package node

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/port/trace"
)

// peers is the node as its end of the mesh sees it: it hands on what comes, to the room that it is for, and sends for all of them.
//
// What travels between gateways and owners is headed by one byte: toOwner, or toGateway with the shard that it is for.
type peers struct{ n *Node }

const (
	toOwner   = 0
	toGateway = 1
)

var _ mesh.Handler = peers{}

// startMesh makes this node's end and begins to listen and dial. Peers are those that were known when it stopped; the catalog says
// later who they are.
func (n *Node) startMesh() error {
	if n.env.Mesh == nil {
		return nil
	}
	line, empty, err := n.generation()
	if err != nil {
		return err
	}
	m, err := n.env.Mesh(n.local, line, func() bool { return empty && !n.knows.Load() })
	if err != nil {
		return err
	}
	n.mesh = m
	if p, ok := m.(interface{ Fingerprint() [sha256.Size]byte }); ok {
		n.presents = p.Fingerprint
	}
	m.SetPeers(n.cfg.Peers)
	m.Start(peers{n})
	return nil
}

// Up implements mesh.Handler.
func (p peers) Up(peer ident.Instance) {
	n := p.n
	n.mu.Lock()
	n.sessions[peer.Node] = peer
	delete(n.gone, peer.Node)
	delete(n.lost, peer.Node)
	delete(n.unreachable, peer.Node) // the next time that it fails is news
	n.reaches[peer.Node] = protocol.Run{Node: peer, Up: true}
	shards := n.shards
	n.mu.Unlock()
	trace.Info(n.env.Trace, "peer.up", slog.String("peer", peer.String()))
	n.consensus.PeerUp(consensus.ID(peer.Store))
	n.manager.PeerUp(peer)
	n.controller.PeerUp(peer)
	n.tellOf(peer.Node)
	n.post(func() { n.sayFullTo(peer.Node) })
	n.archive.PeerUp(peer.Node)
	for _, s := range shards {
		s.PeerUp(peer.Node)
	}
}

// Down implements mesh.Handler.
func (p peers) Down(peer ident.Instance, cause mesh.Cause, reason string) {
	n := p.n
	n.mu.Lock()
	delete(n.sessions, peer.Node)
	delete(n.full, peer.Node) // it says so again
	n.lost[peer.Node] = n.env.Clock.Wall().UnixMilli()
	n.gone[peer.Node] = cause == mesh.Refused
	n.reaches[peer.Node] = protocol.Run{Node: peer, Cause: cause.String(), Reason: reason}
	shards := n.shards
	n.mu.Unlock()
	trace.Warn(n.env.Trace, "peer.down", slog.String("peer", peer.String()), slog.String("cause", cause.String()), slog.String("reason", reason))
	n.questions.lose(peer.Node)
	n.consensus.PeerDown(consensus.ID(peer.Store))
	if cause == mesh.Silent {
		n.manager.PeerSilent(peer.Node)
	} else {
		n.manager.PeerDown(peer.Node)
	}
	if cause == mesh.Refused {
		n.manager.PeerGone(peer.Node)
	}
	n.controller.PeerDown(peer, control.ParseEnding(cause.String()))
	n.tellOf(peer.Node)
	n.archive.PeerDown(peer.Node)
	for _, s := range shards {
		s.PeerDown(peer.Node)
	}
}

// Unreachable implements mesh.Handler.
func (p peers) Unreachable(node string, cause mesh.Cause, reason string) {
	n := p.n
	if cause == mesh.Removed {
		n.post(func() { n.expelled(node) })
		return
	}
	n.mu.Lock()
	text := cause.String() + ": " + reason
	news := n.unreachable[node] != text
	n.unreachable[node] = text
	n.gone[node] = cause == mesh.Refused
	run := n.reaches[node]
	worse := run.Up || run.Cause != cause.String()
	if run.Node.Node = node; worse {
		n.reaches[node] = protocol.Run{Node: run.Node, Cause: cause.String(), Reason: reason}
	}
	n.mu.Unlock()
	if worse {
		if cause == mesh.Refused {
			n.manager.PeerGone(node)
		}
		n.controller.Unreachable(node, control.ParseEnding(cause.String()))
		n.tellOf(node)
	}
	if news { // the next attempt that fails in the same way says nothing new
		trace.Warn(n.env.Trace, "peer.unreachable", slog.String("node", node), slog.String("cause", cause.String()), slog.String("reason", reason))
	}
}

// expelled ends a node that learns from a member that its store was removed while it was away: none of them will have a session with it again, so
// its own catalog never tells. A member says so only once it has read it in the catalog.
func (n *Node) expelled(by string) {
	n.mu.Lock()
	known := n.failure != nil || n.stopping
	n.mu.Unlock()
	if known {
		return
	}
	n.failed(fmt.Errorf("%w: make a token with `tanist join-token` on a member, and start it with --data NEW, --join and the token (node %s, which is a member, says so)",
		consensus.ErrRemoved, by))
}

// Superseded implements mesh.Handler.
func (p peers) Superseded(node string, g ident.Generation) { p.n.consensus.Supersede(node, g) }

// Receive implements mesh.Handler.
func (p peers) Receive(peer ident.Instance, purpose mesh.Purpose, msg []byte) {
	n := p.n
	if purpose == mesh.Consensus && !protocol.IsEvidence(msg) {
		n.consensus.Deliver(msg)
		return
	}
	shard := -1
	if purpose == mesh.Work {
		switch {
		case len(msg) > 1 && msg[0] == toOwner:
			msg = msg[1:]
		case len(msg) > 5 && msg[0] == toGateway:
			shard = int(binary.LittleEndian.Uint32(msg[1:]))
			msg = msg[5:]
		default:
			p.malformed(peer, purpose, "no heading")
			return
		}
	}
	m, err := protocol.Parse(msg)
	if err != nil {
		p.malformed(peer, purpose, err.Error())
		return
	}
	switch {
	case purpose == mesh.Control, purpose == mesh.Consensus:
		n.answerControl(peer, m)
	case purpose != mesh.Work:
		n.manager.Receive(peer, m)
	case shard >= 0:
		n.toShard(shard, m)
	default:
		if u, ok := m.(protocol.Unclaimed); ok {
			if u.Gateway.Node == peer.Node && u.Gateway.Boot == peer.Boot {
				n.manager.Unclaimed(u)
			}
			return
		}
		n.toReplica(peer, m)
	}
}

func (p peers) malformed(peer ident.Instance, purpose mesh.Purpose, reason string) {
	trace.Error(p.n.env.Trace, "peer.message.malformed", slog.String("peer", peer.String()), slog.String("purpose", purpose.String()),
		slog.String("reason", reason))
}

func (n *Node) toShard(shard int, msg any) {
	n.mu.Lock()
	shards := n.shards
	n.mu.Unlock()
	if shard < len(shards) {
		shards[shard].Send(msg)
	}
}

// toReplica gives a gateway's message to the owner here. What names another gateway than one of the run that sent it is dropped.
func (n *Node) toReplica(peer ident.Instance, msg any) {
	to, ok := protocol.Address(msg)
	if !ok || to.Gateway.Node != peer.Node || to.Gateway.Boot != peer.Boot {
		return
	}
	r := n.manager.Sender(to.Partition)
	attach, opens := msg.(protocol.Attach)
	if opens {
		attach.Reply = &remoteGateway{n: n, node: peer.Node, shard: to.Gateway.Shard}
		msg = attach
	}
	switch {
	case r != nil && n.env.Owner != nil:
		n.env.Owner(to.Partition, r).Send(msg)
	case r != nil:
		r.Send(msg)
	case opens:
		attach.Reply.Send(protocol.NotServing{Partition: to.Partition, Stream: to.Stream, Reason: "it has no copy on the node that was asked"})
	}
}

// remoteOwner is the owner of partitions on another node, as gateways here see it.
type remoteOwner struct {
	n    *Node
	node string
	key  uint64
}

// Send implements protocol.Sender.
func (o *remoteOwner) Send(msg any) {
	b := protocol.Append([]byte{toOwner}, msg)
	o.n.mesh.Send(o.node, mesh.Work, o.key, b)
}

// Crowded implements protocol.Crowder.
func (o *remoteOwner) Crowded() bool { return o.n.Crowded(o.node) }

// remoteGateway is a gateway's shard on another node, as owners here see it.
type remoteGateway struct {
	n     *Node
	node  string
	shard uint32
}

// Send implements protocol.Sender.
func (g *remoteGateway) Send(msg any) {
	head := binary.LittleEndian.AppendUint32([]byte{toGateway}, g.shard)
	b := protocol.Append(head, msg)
	g.n.mesh.Send(g.node, mesh.Work, uint64(g.shard), b)
}

// Crowded implements protocol.Crowder.
func (g *remoteGateway) Crowded() bool { return g.n.Crowded(g.node) }

// crowd is how many bytes may wait to be sent to another node before publishes, deliveries and what copies miss wait where they are. It is
// well below what the mesh takes (mesh.Limits.Queue), so that what is small and does not wait always has room.
const crowd = 64 << 20

// Crowded implements replica.Peers.
func (n *Node) Crowded(node string) bool { return n.mesh != nil && n.mesh.Backlog(node) >= crowd }

// key orders what is sent about a partition.
func key(p ident.Partition) uint64 { return p.Incarnation<<8 ^ uint64(p.Index) }

// Sender implements gateway.Directory: where messages to the owner of a partition go, here or on the node that the catalog names.
func (n *Node) Sender(p ident.Partition) protocol.Sender {
	n.mu.Lock()
	a, _ := n.view.Assignment(p)
	var owner ident.Instance
	if a != nil {
		owner = a.Owner
	}
	session, up := n.sessions[owner.Node]
	n.mu.Unlock()
	switch {
	case a == nil || owner.Node == n.local.Node:
		to := n.manager.Sender(p)
		if to != nil && n.env.Owner != nil {
			return n.env.Owner(p, to)
		}
		return to
	case !up || session != owner:
		return nil
	}
	return &remoteOwner{n: n, node: owner.Node, key: key(p)}
}

// Send implements replica.Peers. A message is encoded once for all.
func (n *Node) Send(msg any, nodes ...string) {
	if n.mesh == nil {
		return
	}
	purpose, p := mesh.Copies, ident.Partition{}
	switch m := msg.(type) {
	case protocol.Extend:
		p = m.Partition
	case protocol.Held:
		p = m.Partition
	case protocol.Probe:
		p = m.Partition
	case protocol.Standing:
		p = m.Partition
	case protocol.ImageChunk:
		purpose, p = mesh.Bulk, m.Partition
	case protocol.ImageTaken:
		p = m.Partition
	case protocol.MakeAnew:
		p = m.Partition
	}
	b := protocol.Append(nil, msg)
	for _, node := range nodes {
		n.mesh.Send(node, purpose, key(p), b)
	}
}

// bulky is how large a message of consensus is that goes on a way of its own, in bytes.
const bulky = 256 << 10

// transport carries the catalog's consensus messages.
type transport struct{ n *Node }

// Send implements consensus.Transport.
func (t transport) Send(to uint64, msg []byte) {
	n := t.n
	n.mu.Lock()
	name := ""
	for node, i := range n.sessions {
		if consensus.ID(i.Store) == to {
			name = node
		}
	}
	n.mu.Unlock()
	way := uint64(0)
	if len(msg) > bulky {
		way = 1 // a snapshot must not hold up heartbeats
	}
	if name != "" {
		n.mesh.Send(name, mesh.Consensus, way, msg)
	}
}

// farewell is how long a node that was removed is still spoken to: it is to learn of it, and stop.
const farewell = 10 * time.Second

// peersChanged tells the mesh who the other nodes are, by the catalog.
func (n *Node) peersChanged(changes []catalog.Change) {
	if n.mesh == nil {
		return
	}
	changed := false
	for _, c := range changes {
		before, was := c.Before.(*catalog.Node)
		after, is := c.After.(*catalog.Node)
		changed = changed || was || is
		if was && (!is || after == nil) {
			n.leaving[before.Name] = mesh.Peer{Node: before.Name, Store: before.Store, Address: before.Mesh}
			n.box.After(farewell, func() {
				delete(n.leaving, before.Name)
				n.setPeers()
				n.box.After(farewell, func() { n.forget(before.Name) }) // the last attempt to reach it has failed by then
			})
		}
	}
	if changed {
		n.setPeers()
	}
}

// forget drops what was noted of a node that was removed, unless it is a member again.
func (n *Node) forget(node string) {
	member := false
	n.View(func(v *catalog.View) { member = v.Node(node) != nil })
	if member {
		return
	}
	n.questions.lose(node)
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.reaches, node)
	delete(n.unreachable, node)
	delete(n.gone, node)
	delete(n.lost, node)
}

func (n *Node) setPeers() {
	var list []mesh.Peer
	leaving := maps.Clone(n.leaving)
	delete(leaving, n.local.Node)
	n.View(func(v *catalog.View) {
		for _, o := range v.Nodes() {
			delete(leaving, o.Name) // it is back
			if o.Name != n.local.Node && o.Mesh != "" {
				list = append(list, mesh.Peer{Node: o.Name, Store: o.Store, Address: o.Mesh})
			}
		}
	})
	if n.cfg.PeersChanged != nil {
		n.cfg.PeersChanged(slices.Clone(list))
	}
	for _, name := range slices.Sorted(maps.Keys(leaving)) {
		list = append(list, leaving[name])
	}
	n.mesh.SetPeers(list)
}

// Reader implements gateway.Directory: the copy here of a partition that another node owns, if the catalog says that it follows.
func (n *Node) Reader(p ident.Partition) protocol.Sender {
	n.mu.Lock()
	a, _ := n.view.Assignment(p)
	n.mu.Unlock()
	if a == nil || !slices.Contains(a.Followers, catalog.Member{Node: n.local.Node, Store: n.local.Store}) {
		return nil
	}
	return n.manager.Sender(p)
}
