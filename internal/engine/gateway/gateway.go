// Package gateway speaks to clients' sessions on one side and to the owners of partitions on the other: it routes what is published,
// numbers and resends it until an owner confirmed it, hands deliveries over, keeps settles until they are confirmed, and carries
// all of that across a change of owner (design 2 §2, design 5).
//
// There is one Shard for each shared loop of a node; the sessions of the clients on that loop call it directly. No protocol of
// clients may come in (a front translates), and nothing that blocks: no file, socket or lock on a message's path.
package gateway

import (
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/route"
	"github.com/tanist/tanist/internal/engine/gateway/buffers"
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
	// Unclaimed tells the node of an owner which of its partitions this shard does not work with, and reports whether there is a way to
	// it; where there is none, the shard says it again at PeerUp. nil where all owners are on this node, which knows (Node.Attached).
	Unclaimed func(owner ident.Instance, m protocol.Unclaimed) bool
	// Proposer changes the catalog.
	Proposer Proposer
	// Barrier calls done once, from any goroutine: when everything that was committed to the catalog anywhere before the call has been given
	// to every listener here, or with why that cannot be known, after a bounded time. nil: this node's catalog is the only one.
	Barrier func(done func(error))
	// Place says where the copies of a resource that is declared go: its owner and its followers. nil: here, alone.
	Place func(r *catalog.Resource) (ident.Instance, []catalog.Member)
	// Passwords checks who logs in.
	Passwords Passwords
	// Undertaker rewrites dead messages; nil publishes them as they are.
	Undertaker broker.Undertaker
	// Pulse notices when the node stood still; nil where nobody else could have been chosen meanwhile.
	Pulse *clock.Pulse
	// Node is shared by all shards of the node.
	Node   *Node
	Limits Limits
}

// Directory finds the owner of a partition. It is called on shards' loops, from several at a time.
type Directory interface {
	// Sender is where messages to the partition's owner go; nil while nobody is known.
	Sender(p ident.Partition) protocol.Sender
	// Reader is the copy of a partition on this node, where it follows: it takes protocol.Read and may refuse it. nil where there is none.
	Reader(p ident.Partition) protocol.Sender
}

// Passwords checks passwords. done is called exactly once, from any goroutine, perhaps before Verify returns.
type Passwords interface {
	// Verify compares with the user's hash; a nil user takes as long as one that exists and is never right. With an error it is not known whether
	// the password is right.
	Verify(user *catalog.User, password string, done func(right bool, err *broker.Error))
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

// Proposer proposes commands to the catalog. done is called once, from any goroutine, after the changes were given to every
// listener of the catalog.
type Proposer interface {
	Propose(cmd []byte, done func(catalog.Result, error))
}

// Shard is the gateway on one shared loop.
type Shard struct {
	env          Env
	box          exec.Mailbox
	limits       Limits
	gateway      protocol.Gateway
	publishBytes int64
	now          time.Duration // monotonic, as of the round in hand: see look
	looked       bool          // now was read since the last Flush
	halts        uint16        // how often the node had stood still by then

	view      *catalog.View
	router    *route.Router
	rights    *authz.Checker
	resources int    // in the view
	topology  uint64 // counts applied changes

	byPartition map[ident.Partition]*attachment
	attachments []*attachment // the same, in the order they were made
	removed     bool          // some of attachments are gone
	dirty       []*attachment
	paced       []*attachment // whose publishes wait for room on the way to another node
	ticking     bool
	stream      uint64
	coming      atomic.Int64 // bytes of deliveries in the mailbox
	generation  uint32       // of producer ids
	requests    uint64
	consumers   uint64
	names       uint64
	locals      uint64          // resources made without the catalog
	adopted     map[uint64]bool // those of them that the catalog knows, or will
	bytes       int64           // published and not resolved
	blocked     string
	courier     courier
	proposals   []proposal
	unclaimed   []unclaimed // not said yet, by owner
	lookups     lookups
	near        map[uint64]*consumer // that read from the copy here, by reading stream
	others      bool                 // the cluster has other nodes

	sessions      []*session // in the order they came
	sessionCount  uint64
	dirtySessions []*session
	stopped       []*session // held because the shard has too much unresolved
	pumps         []*consumer

	buffers    buffers.Pool
	blocks     []*block    // for use again
	runs       []batch.Run // not used yet
	deliveries []broker.Delivery
	lastName   string // of a producer
	lastNamed  uint64
	stats      Counters
}

// New makes a shard. It knows nothing of the catalog before Apply.
func New(env Env) *Shard {
	s := &Shard{
		env: env, limits: env.Limits.withDefaults(),
		gateway:     protocol.Gateway{Node: env.Local.Node, Boot: env.Local.Boot, Shard: env.Shard},
		byPartition: map[ident.Partition]*attachment{},
		view:        catalog.NewView(), router: route.New(),
	}
	s.publishBytes = s.limits.PublishBytes / int64(max(env.Shards, 1))
	s.rights = authz.New(s.view)
	s.courier.sh = s
	s.now = env.Clock.Mono()
	s.box = env.Loop.Spawn("gateway", s)
	env.Node.join(s)
	return s
}

func (l Limits) withDefaults() Limits {
	if l.MessageSize == 0 {
		l.MessageSize = 16 << 20
	}
	if l.PublishBytes == 0 {
		l.PublishBytes = 256 << 20
	}
	if l.PartitionBytes == 0 {
		l.PartitionBytes = 8 << 20
	}
	if l.ConsumerBytes == 0 {
		l.ConsumerBytes = 1 << 20
	}
	if l.ConfirmTimeout == 0 {
		l.ConfirmTimeout = 30 * time.Second
	}
	return l
}

// proposal is one item on its way to the catalog.
type proposal struct {
	item catalog.Item
	done func(catalog.ItemResult, error)
}

// propose has the catalog apply an item; done is called once that is applied here too. Items of one round share commands.
func (s *Shard) propose(it catalog.Item, done func(catalog.ItemResult, error)) {
	s.proposals = append(s.proposals, proposal{it, done})
	s.box.Touch()
}

// sendProposals proposes what gathered in the round, in as few commands as there is room in.
func (s *Shard) sendProposals() {
	for ps := s.proposals; len(ps) > 0; {
		s.proposals = nil
		n, cmd, err := pack(ps)
		group := ps[:n:n]
		ps = ps[n:]
		if err != nil {
			err := broker.Errorf(broker.Precondition, "the arguments are too large or nested too deep: %v", err)
			for _, p := range group {
				s.post(func() { p.done(catalog.ItemResult{}, err) })
			}
			continue
		}
		s.env.Proposer.Propose(cmd, func(res catalog.Result, err error) {
			s.post(func() {
				for i, p := range group {
					var r catalog.ItemResult
					if err == nil {
						r = res.Items[i]
					}
					p.done(r, err)
				}
			})
		})
	}
}

// pack makes one command of as many proposals as fit, at least one. An error is that of the first.
func pack(ps []proposal) (n int, cmd []byte, err error) {
	n = min(len(ps), 256)
	for {
		items := make([]catalog.Item, n)
		for i := range items {
			items[i] = ps[i].item
		}
		if cmd, err = catalog.Encode(items...); err == nil || n == 1 {
			return n, cmd, err
		}
		n = (n + 1) / 2
	}
}
