package node

import (
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/mesh"
)

// gateways are those that may hold deliveries of a partition from its owner before: what a new owner waits to hear from (design 2 §2). Of
// other nodes they are all shards of the run that is registered; a node whose process is known to be gone has none. Of this node they are
// those that work with the partition, which is known without asking; a run that has just begun has none, so a node alone never waits.
func (n *Node) gateways(p ident.Partition) []protocol.Gateway {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, _ := n.view.Assignment(p)
	if a == nil || a.Epoch <= 1 || p.Transient() {
		return nil
	}
	var gs []protocol.Gateway
	for _, o := range n.view.Nodes() {
		switch {
		case o.Name == n.local.Node:
			for _, shard := range n.shared.Attached(p) {
				gs = append(gs, protocol.Gateway{Node: n.local.Node, Boot: n.local.Boot, Shard: shard})
			}
		case n.gone[o.Name]:
		default:
			for shard := range o.Shards {
				gs = append(gs, protocol.Gateway{Node: o.Name, Boot: o.Boot, Shard: shard})
			}
		}
	}
	return gs
}

// unclaimed tells the node of an owner which of its partitions a shard here does not work with, if there is a session with that run.
func (n *Node) unclaimed(owner ident.Instance, m protocol.Unclaimed) bool {
	n.mu.Lock()
	session, up := n.sessions[owner.Node]
	n.mu.Unlock()
	if !up || session != owner {
		return false
	}
	n.mesh.Send(owner.Node, mesh.Work, uint64(m.Gateway.Shard), protocol.Append([]byte{toOwner}, m))
	return true
}
