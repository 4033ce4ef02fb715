package node

import (
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/protocol"
)

// grantLease brings what the controller here grants to the run that it is for, on the catalog's loop.
func (n *Node) grantLease(g lease.Grant) {
	m := protocol.Lease{Term: g.Term, Holder: g.Holder, TTL: int64(g.TTL), Sent: int64(g.Sent), Index: n.consensus.State().Index()}
	if g.Holder.Node == n.local.Node {
		n.takeLease(m)
		return
	}
	n.sendControl(g.Holder.Node, m)
}

// takeLease takes what a controller granted this run, on the catalog's loop: once this node's catalog has come as far as the controller's had,
// so that it is not for what was given to another meanwhile.
func (n *Node) takeLease(m protocol.Lease) {
	n.watch.granted = m
	n.useLease()
}

// useLease has owners here go by the last lease, if it may. It is called again with every heartbeat.
func (n *Node) useLease() {
	m := n.watch.granted
	if m.Term == 0 || m.TTL > 0 && m.Index > n.consensus.State().Index() {
		return
	}
	n.watch.granted = protocol.Lease{}
	g := lease.Grant{Term: m.Term, Holder: m.Holder, TTL: time.Duration(m.TTL), Sent: time.Duration(m.Sent)}
	if n.env.Granted != nil {
		g = n.env.Granted(g)
	}
	if l, changed := n.watch.lease.Take(g, n.local); changed {
		n.watch.lease = l
		n.manager.SetLease(l)
	}
}

// termIs says of which term the controller is that this node knows of: leases of earlier ones count no more.
func (n *Node) termIs(term uint64) { n.manager.SetTerm(term) }

// membersChanged follows what this node itself goes by in the catalog: who the nodes are, and where leases fence.
func (n *Node) membersChanged(changes []catalog.Change) {
	nodes, settings := false, !n.caughtUp
	for i := range changes {
		for _, o := range []any{changes[i].Before, changes[i].After} {
			switch o.(type) {
			case *catalog.Node:
				nodes = true
			case *catalog.Setting:
				settings = true
			}
		}
	}
	if nodes {
		n.findController()
	}
	if settings {
		always := false
		n.View(func(v *catalog.View) { always = v.Tunables().FenceAlways })
		n.manager.FenceAlways(always)
	}
}
