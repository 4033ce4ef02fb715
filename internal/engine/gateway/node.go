package gateway

import (
	"slices"
	"sync"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Node is what the shards of one node share: the counts that limits of the node are held against. It is touched when a connection
// comes or goes, never on a message's path, so a lock does no harm.
type Node struct {
	mu     sync.Mutex
	total  int
	byUser map[string]int
	shards []*Shard // in order of their numbers
	locals func([]catalog.Change)
	// attached are the shards that work with a partition: they may hold deliveries of it.
	attached map[ident.Partition][]uint32
}

// NewNode makes the part that the shards of one node share. locals is told of resources that shards make without the catalog, as changes
// of it, from shards' loops: it must make and remove their replicas. nil: every resource goes through the catalog.
func NewNode(locals func([]catalog.Change)) *Node {
	return &Node{byUser: map[string]int{}, locals: locals, attached: map[ident.Partition][]uint32{}}
}

// join adds a shard. Shards are made before any session is opened.
func (n *Node) join(s *Shard) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shards = append(n.shards, s)
}

// tell hands changes that are this node's own to all shards and whoever else listens.
func (n *Node) tell(changes []catalog.Change) {
	n.mu.Lock()
	shards := n.shards
	n.mu.Unlock()
	n.locals(changes)
	for _, s := range shards {
		s.Apply(changes)
	}
}

func (n *Node) shard(incarnation uint64) *Shard {
	n.mu.Lock()
	defer n.mu.Unlock()
	number := uint32(incarnation >> localShift & 0xff)
	for _, s := range n.shards {
		if isLocal(incarnation) && s.env.Shard == number {
			return s
		}
	}
	return nil
}

// enter counts a connection of a user, or says which limit it would pass.
func (n *Node) enter(user string, l *Limits) *broker.Error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.Connections > 0 && n.total >= l.Connections {
		return broker.Errorf(broker.NotAllowed, "connection refused: the node's limit of %d connections is reached", l.Connections)
	}
	if l.ConnectionsPerUser > 0 && n.byUser[user] >= l.ConnectionsPerUser {
		return broker.Errorf(broker.NotAllowed, "connection refused: user '%s' has reached the limit of %d connections", user,
			l.ConnectionsPerUser)
	}
	n.total++
	n.byUser[user]++
	return nil
}

func (n *Node) leave(user string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.total--
	if n.byUser[user]--; n.byUser[user] == 0 {
		delete(n.byUser, user)
	}
}

// Attached are the shards of this node that work with a partition, by number: no other holds a delivery of it. Any goroutine may call it.
func (n *Node) Attached(p ident.Partition) []uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.attached[p])
}

func (n *Node) attach(p ident.Partition, shard uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attached[p] = append(n.attached[p], shard)
}

func (n *Node) detach(p ident.Partition, shard uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := slices.DeleteFunc(n.attached[p], func(s uint32) bool { return s == shard })
	if len(left) == 0 {
		delete(n.attached, p)
		return
	}
	n.attached[p] = left
}
