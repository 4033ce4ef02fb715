// Package gateway speaks to clients' sessions on one side and to the owners of partitions on the other: it routes what is published,
// numbers and resends it until an owner confirmed it, hands deliveries over, keeps settles until they are confirmed, and carries
// all of that across a change of owner (design 2 §2, design 5).
//
// There is one Shard for each shared loop of a node; the sessions of the clients on that loop call it directly. No protocol of
// clients may come in (a front translates), and nothing that blocks: no file, socket or lock on a message's path.
package gateway

import (
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// Env is what a shard stands on.
type Env struct {
	Loop   exec.Loop // the shard's, shared with its sessions
	Shard  uint32    // 0 <= Shard < Shards <= 256
	Shards uint32    // on this node
	Local  ident.Instance
	Number uint32 // of this run: catalog.Node.Number
	Clock  clock.Clock
	Trace  trace.Sink

	// Directory finds the owners of partitions.
	Directory Directory
	// Passwords checks who logs in.
	Passwords Passwords
	// Undertaker rewrites dead messages; nil publishes them as they are.
	Undertaker broker.Undertaker
	// Node is shared by all shards of the node.
	Node   *Node
	Limits Limits
}

// Directory finds the owner of a partition. It is called on shards' loops, from several at a time.
type Directory interface {
	// Sender is where messages to the partition's owner go; nil while nobody is known.
	Sender(p ident.Partition) protocol.Sender
}

// Passwords checks passwords. done is called exactly once, from any goroutine, perhaps before Verify returns.
type Passwords interface {
	// Verify compares with the user's hash; a nil user takes as long as one that exists and is never right.
	Verify(user *catalog.User, password string, done func(bool))
}

// Limits bound what clients may take. Zero means the default for sizes and times, and no limit for counts.
type Limits struct {
	Connections        int // of the node
	ConnectionsPerUser int
	Queues             int           // of the cluster
	Consumers          int           // of one session
	MessageSize        int           // bytes, properties included; default 16 MiB
	PublishBytes       int64         // unresolved, of all shards of the node; default 256 MiB
	PartitionBytes     int64         // unresolved, of one shard to one partition; default 8 MiB
	ConsumerBytes      int64         // delivered and not drained, of one consumer; default 1 MiB
	ConfirmTimeout     time.Duration // after which a publish is unknown; default 30 s
}

// Node is what the shards of one node share.
type Node struct{}

// NewNode makes the part that the shards of one node share.
func NewNode() *Node { return &Node{} }

// Shard is the gateway on one shared loop.
type Shard struct {
	env Env
	box exec.Mailbox
}

// New makes a shard. It knows nothing of the catalog before Apply.
func New(env Env) *Shard {
	s := &Shard{env: env}
	s.box = env.Loop.Spawn("gateway", s)
	return s
}

// Open implements broker.Broker.
func (s *Shard) Open(broker.Peer, broker.Listener) broker.Session { panic("gateway: not built yet") }

// Receive implements exec.Actor.
func (s *Shard) Receive(msg any) {}

// Flush implements exec.Actor.
func (s *Shard) Flush() {}

// Send implements protocol.Sender: answers of owners and dead letters of the replicas beside the shard. Any goroutine may call it.
func (s *Shard) Send(msg any) { s.box.Post(msg) }

// Apply takes changes of the catalog, in order; the first call carries the whole catalog. Any goroutine may call it.
func (s *Shard) Apply(changes []catalog.Change) {}

// Serving says that the owner of a partition may be reached now: a shard that waits for it tries at once. Any goroutine may call it.
func (s *Shard) Serving(p ident.Partition) {}

// SetBlocked holds publishes while reason is not empty; settles go on. Any goroutine may call it.
func (s *Shard) SetBlocked(reason string) {}

// Shutdown tells every session to close. Any goroutine may call it.
func (s *Shard) Shutdown(reason string) {}
