package node

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/controller"
	"github.com/tanist/tanist/internal/engine/storage"
)

// place says where the copies of a resource that is declared here go: to nodes that this one has a session with.
func (n *Node) place(r *catalog.Resource) (ident.Instance, []catalog.Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	sites := control.Sites(n.view, func(node string) bool {
		o := n.view.Node(node)
		return node == n.local.Node || o != nil && n.sessions[node] == ident.Instance{Node: o.Name, Store: o.Store, Boot: o.Boot}
	})
	for i := range sites {
		sites[i].Full = n.full[sites[i].Node]
	}
	owner, followers, ok := control.Place(r.VHost+"\x00"+r.Name, n.local.Node, sites, r.Target())
	if !ok {
		return n.local, nil
	}
	return owner, followers
}

// noteFull takes note of whether a node's disk has no room, or its store closed itself not long ago: nothing new is placed there while another
// node can take it.
func (n *Node) noteFull(node string, full bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !full {
		delete(n.full, node)
		return
	}
	if n.full == nil {
		n.full = map[string]bool{}
	}
	n.full[node] = true
}

// sayFull tells every node that can be reached, once, when that comes to be so of this one, or is over: each of them places what is declared there.
// On the catalog's loop.
func (n *Node) sayFull() {
	full := n.store.Health().Class == storage.Full || n.store.Cools()
	if full == n.watch.full || n.mesh == nil {
		return
	}
	n.watch.full = full
	n.noteFull(n.local.Node, full)
	for _, peer := range n.reached() {
		n.sendControl(peer, n.heartbeat())
	}
}

// sayFullTo tells it to a node that has come since.
func (n *Node) sayFullTo(node string) {
	if n.watch.full {
		n.sendControl(node, n.heartbeat())
	}
}

// voters gives the controller the members of the catalog's consensus.
func (n *Node) voters(done func(controller.Members)) {
	n.consensus.Status(func(s consensus.Status) {
		done(controller.Members{Self: s.ID, Voters: s.Voters, Learners: s.Learners, Ready: s.Ready})
	})
}

// changeVoters changes the members of the catalog's consensus.
func (n *Node) changeVoters(c control.VoterChange, done func(error)) {
	m := consensus.MemberChange{ID: c.ID}
	switch c.Move {
	case control.AddLearner:
		m.Op = consensus.AddLearner
	case control.AddVoter:
		m.Op = consensus.AddVoter
	case control.Remove:
		m.Op = consensus.Remove
	case control.HandOver:
		n.consensus.Transfer(c.ID)
		done(nil)
		return
	case control.NoMove:
		done(fmt.Errorf("no change"))
		return
	}
	n.consensus.Change(m, done)
}

// leading tells the controller whether it is the one that decides.
func (n *Node) leading(term uint64, leads bool) {
	n.ledTerm.Store(term)
	n.mu.Lock()
	n.leads = leads
	n.mu.Unlock()
	n.controller.Leads(term, leads)
}
