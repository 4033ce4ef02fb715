package gateway

import (
	"sync"

	"github.com/tanist/tanist/internal/core/broker"
)

// Node is what the shards of one node share: the counts that limits of the node are held against. It is touched when a connection
// comes or goes, never on a message's path, so a lock does no harm.
type Node struct {
	mu     sync.Mutex
	total  int
	byUser map[string]int
}

// NewNode makes the part that the shards of one node share.
func NewNode() *Node { return &Node{byUser: map[string]int{}} }

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
