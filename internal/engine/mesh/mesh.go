// Package mesh carries messages between the nodes of a cluster: who is reachable, in which run, and bytes in order. It does not know
// what they mean.
//
// A session with a peer is one run of it: it begins with Up and ends with Down, and what was sent in it and has not arrived by then is
// lost. Within a session the messages of one purpose and key arrive in the order sent, once. There is nothing else: no retry, no
// acknowledgement. The engines that speak over it know what to say again when a session begins.
package mesh

import (
	"time"

	"github.com/tanist/tanist/internal/core/ident"
)

// Purpose divides what two nodes say to each other. Each has a stream of its own, so that bulk holds up no control.
type Purpose uint8

// The purposes.
const (
	Consensus Purpose = iota // the catalog's raft messages
	Control                  // heartbeats, seals, questions of the controller and of operators
	Copies                   // batches from owners, progress from followers
	Work                     // gateways to owners and back
	Bulk                     // images
	Purposes                 // their number
)

// String is the purpose's name.
func (p Purpose) String() string {
	return [...]string{"consensus", "control", "copies", "work", "bulk"}[p]
}

// Peer is another node of the cluster and where it listens.
type Peer struct {
	Node    string
	Store   ident.StoreID
	Address string // host:port
}

// Cause says how a session ended, or why none could be made: what it proves of the peer (design 2 §4).
type Cause uint8

// The causes.
const (
	Refused Cause = iota // nobody listens at the address: the process is gone
	Reset                // the connection broke or was closed
	Silent               // nothing was heard for the keep-alive time
	Denied               // the certificate was not accepted, by either side; Reason says what is wrong with it
	Left                 // the peer was taken off the list, or this node stops
	Removed              // the peer says that this node's store has left the cluster, which is for good: no attempt succeeds any more
)

// String is the cause's name.
func (c Cause) String() string {
	return [...]string{"refused", "reset", "silent", "denied", "left", "removed"}[c]
}

// Handler is told what happens. Calls come from any goroutine and must not block; those about one peer never overlap, and neither do
// those of one peer and purpose.
type Handler interface {
	// Up begins a session with a run of a peer. Both directions and all purposes are open.
	Up(peer ident.Instance)
	// Down ends the session that Up began; nothing more of it will be received.
	Down(peer ident.Instance, cause Cause, reason string)
	// Unreachable says that an attempt to reach a peer without a session failed. It comes at every attempt.
	Unreachable(node string, cause Cause, reason string)
	// Superseded says that a node of a later generation of the catalog spoke. It comes at every attempt, and may overlap with other calls.
	Superseded(node string, g ident.Generation)
	// Receive takes a message. The bytes are the handler's.
	Receive(peer ident.Instance, p Purpose, msg []byte)
}

// Mesh is one node's end. Methods may be called from any goroutine and never block.
type Mesh interface {
	// Start begins to listen and to dial. It is called once.
	Start(Handler)
	// SetPeers says who the other nodes are. Sessions with peers that are not named any more, or under another store, end.
	SetPeers([]Peer)
	// Send sends a message to a peer in the present session; without one it is lost. Bytes must not be changed afterwards. Messages of
	// one purpose and key arrive in order; a large one is cut into chunks that leave room for those of other keys.
	Send(node string, p Purpose, key uint64, msg []byte)
	// Backlog is how many bytes wait here to be sent to a peer; 0 without a session. Who sends much in pieces waits while it is large.
	Backlog(node string) int64
	// Quiet is for how long nothing has been heard of a peer in the present session; 0 without one. A peer that has nothing to say is
	// heard at least four times in the time after which its session would end.
	Quiet(node string) time.Duration
	// Redial tries to reach a peer now instead of after the back-off. It does nothing where there is a session.
	Redial(node string)
	// Stop ends all sessions. It returns when no handler is called any more.
	Stop()
}
