// Package node assembles a node from an Env: the only place that knows every room. Production and simulation call the same constructor.
//
// Nothing here decides anything: it makes the rooms, introduces them to each other, and starts and stops them in order. Goroutines, the
// wall clock and sockets are for serve.go alone.
package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/controller"
	"github.com/tanist/tanist/internal/engine/gateway"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/passwords"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/node/tally"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// Env is what a node stands on.
type Env struct {
	Clock  clock.Clock
	Exec   exec.Executor
	FS     vfs.FS
	Random io.Reader // for ids, salts and keys
	Trace  trace.Sink
	// Mesh makes this node's end of the mesh, once it is known which run of which store it is, and which generation of the catalog it goes by;
	// waits says whether it has none of it yet. nil on a node that stays alone.
	Mesh func(local ident.Instance, g ident.Generation, waits func() bool) (mesh.Mesh, error)
	// Store and Owner, if not nil, stand between replicas and their logs, and between gateways and the owner of a partition. They are for
	// a simulation, which listens there and, in tests of itself, lies.
	Store func(replica.Store) replica.Store
	Owner func(ident.Partition, protocol.Sender) protocol.Sender
	// Sealed does the same between the copies' answers to seals and the controller here, Members between owners and the catalog, and Granted
	// between whoever grants this run a lease and the owners here.
	Sealed  func(control.SealAnswer) control.SealAnswer
	Members func(replica.Members) replica.Members
	Granted func(lease.Grant) lease.Grant
}

// Config is what a node is told.
type Config struct {
	Name string
	Dir  string
	// AMQP, Admin and Mesh are the addresses that others are told, and Zone is where the node is: copies spread over zones first.
	AMQP, Admin, Mesh, Zone string
	// Cluster is the id of the cluster that a fresh store begins; zero makes one up. Authority signs the certificates of its nodes.
	Cluster   ident.StoreID
	Authority catalog.Authority
	// Joining says that a fresh store waits to be told the catalog of a cluster, and Peers who was in it when that was known last.
	Joining bool
	Peers   []mesh.Peer
	// Generation is that of the catalog which a fresh store waits for; zero is the first.
	Generation ident.Generation
	// Failed, if not nil, is told once why the node cannot go on: errors that wrap consensus.ErrRemoved or a *consensus.Superseded, or of the
	// journal.
	Failed func(error)
	// PID is the process, for operators; 0: it is none.
	PID int
	// PeersChanged, if not nil, is told who the other nodes are, when the catalog says so.
	PeersChanged func([]mesh.Peer)
	Storage      storage.Options
	// SnapshotEvery and FormerHold are replica.Env's, and CatalogBytes consensus.Env's SnapshotBytes; 0 is what production wants.
	SnapshotEvery uint64
	FormerHold    time.Duration
	CatalogBytes  int
	Limits        gateway.Limits
	// GuestHash makes the hash of guest's password for a fresh cluster; nil hashes "guest".
	GuestHash func() (string, error)
	// Undertaker rewrites dead messages in the terms of the front that made them.
	Undertaker broker.Undertaker
}

// Node is one run of one node.
type Node struct {
	env   Env
	cfg   Config
	local ident.Instance

	store      *storage.Store
	consensus  *consensus.Consensus
	manager    *replica.Manager
	controller *controller.Controller
	archive    *archive.Archive
	checker    *passwords.Checker
	shared     *gateway.Node
	shards     []*gateway.Shard // once registered
	box        exec.Mailbox     // on the catalog's loop

	mu       sync.Mutex
	view     *catalog.View // for the admin front
	settled  bool
	ready    bool // it was, once
	started  func(error)
	failure  error
	stopping bool

	caughtUp    bool        // on the catalog's loop
	knows       atomic.Bool // it has a catalog
	transitions atomic.Uint64

	mesh        mesh.Mesh                 // nil: alone
	presents    func() [sha256.Size]byte  // fingerprint of the authority that this node's end presents; nil in a simulation
	sessions    map[string]ident.Instance // with whom there is one, by node
	leaving     map[string]mesh.Peer      // removed lately; on the catalog's loop
	unreachable map[string]string         // why the last attempt to reach a node failed
	full        map[string]bool           // nodes whose disks have no room, by their last word
	gone        map[string]bool           // nodes without a session whose process nobody answers for
	tally       *tally.Changes
	lost        map[string]int64 // when the session with a node ended, milliseconds since 1970
	unwell      int64            // since when the store is as it is, milliseconds since 1970; 0: it is well, or was so at the start
	questions   questions
	leads       bool                    // the catalog's consensus
	pulse       clock.Pulse             // from the first heartbeat on
	ledTerm     atomic.Uint64           // the last term that it led, or leads
	reaches     map[string]protocol.Run // how this node reaches the others, as their controller is to know
	watch       watched                 // on the catalog's loop
	clients     atomic.Pointer[clients] // who knows them; nil: nobody, as in a simulation
}

// New opens the data directory, which blocks, and makes the rooms. Errors are those of storage.Open, and of reading Random.
func New(env Env, cfg Config) (*Node, error) {
	if env.Trace == nil {
		env.Trace = trace.Discard
	}
	tally := tally.New(env.Trace)
	env.Trace = tally
	checker, err := passwords.New(env.Exec, env.Clock, env.Random)
	if err != nil {
		return nil, err
	}
	store, err := storage.Open(storage.Env{FS: env.FS, Clock: env.Clock, Exec: env.Exec, Trace: env.Trace, Random: env.Random}, cfg.Dir,
		cfg.Storage)
	if err != nil {
		return nil, err
	}
	n := &Node{
		env: env, cfg: cfg, store: store, checker: checker, view: catalog.NewView(),
		local:    ident.Instance{Node: cfg.Name, Store: store.ID(), Boot: store.Boot()},
		sessions: map[string]ident.Instance{}, unreachable: map[string]string{}, leaving: map[string]mesh.Peer{}, gone: map[string]bool{},
		lost: map[string]int64{}, reaches: map[string]protocol.Run{}, tally: tally,
	}
	tally.Local = n.local
	loop := env.Exec.Loop(0)
	n.box = loop.Spawn("node", n)
	n.consensus = consensus.New(consensus.Env{
		Loop: loop, Clock: env.Clock, Trace: env.Trace, Log: store.Consensus(), Local: n.local, Bootstrap: n.bootstrap, Failed: n.failed,
		SnapshotBytes: cfg.CatalogBytes, Transport: transport{n}, Joining: cfg.Joining, Leading: n.leading,
		Leader: n.leaderIs, Generation: func() ident.Generation { return n.cfg.Generation },
	})
	n.shared = gateway.NewNode(func(changes []catalog.Change) { n.post(func() { n.manager.Apply(changes) }) })
	n.archive = n.openArchive()
	var copies replica.Store = logs{store}
	if env.Store != nil {
		copies = env.Store(copies)
	}
	var members replica.Members = n
	if env.Members != nil {
		members = env.Members(n)
	}
	n.manager = replica.New(replica.Env{
		Exec: env.Exec, Clock: env.Clock, Trace: env.Trace, Local: n.local, Store: copies,
		SnapshotEvery: cfg.SnapshotEvery, FormerHold: cfg.FormerHold,
		Memory:    func(p ident.Partition) replica.Log { return storage.NewMemory(p) },
		Resources: n, Courier: n.courier, Serving: n.serving, Became: n.archive.Learn, Keep: n.keepEnd, Peers: n, Members: members, Gateways: n.gateways,
		Leased: env.Mesh != nil, Pulse: &n.pulse,
	})
	n.controller = controller.New(controller.Env{
		Loop: loop, Clock: env.Clock, Trace: env.Trace, Local: n.local, View: n.View, Propose: n.proposeCommand, Seal: n.seal, Links: n.links,
		Voters: n.voters, SeatOf: consensus.ID, ChangeVoters: n.changeVoters,
		Settled: n.controllerSettled, HandOn: n.handOn, Quiet: n.quiet, Offer: n.archive.Offer,
		Grant: n.grantLease, Term: n.ledTerm.Load, Prove: n.consensus.Barrier,
	})
	return n, nil
}

// Receive implements exec.Actor.
func (n *Node) Receive(msg any) { msg.(func())() }

// Flush implements exec.Actor.
func (n *Node) Flush() {}

func (n *Node) post(f func()) { n.box.Post(f) }

// Local is this run of this node.
func (n *Node) Local() ident.Instance { return n.local }

// Broker is the gateway of a shared loop. It is there once Start is done.
func (n *Node) Broker(loop int) broker.Broker { return n.shards[loop] }

// bootstrap makes the first command of a fresh cluster.
func (n *Node) bootstrap() ([]byte, error) {
	id := n.cfg.Cluster
	if id.IsZero() {
		if _, err := io.ReadFull(n.env.Random, id[:]); err != nil {
			return nil, fmt.Errorf("make a cluster id: %w", err)
		}
	}
	hashing := n.cfg.GuestHash
	if hashing == nil {
		hashing = func() (string, error) { return passwords.Hash("guest", n.env.Random) }
	}
	hash, err := hashing()
	if err != nil {
		return nil, err
	}
	items := catalog.Bootstrap(id, hash)
	if n.cfg.Authority.Certificate != "" {
		items = append(items, catalog.SetAuthority("", n.cfg.Authority))
	}
	return catalog.Encode(items...)
}

// Start brings the node up: the catalog, this run's registration, and a transition for every partition that an earlier run owned. done
// is called once, from any goroutine: when clients may come, or with why not. A node whose start failed is stopped like any other: until
// then it has its directory open.
func (n *Node) Start(done func(error)) {
	n.started = done
	if err := n.startMesh(); err != nil {
		n.finishStart(err)
		return
	}
	n.consensus.Start(func(err error) {
		if err != nil {
			n.finishStart(err)
			return
		}
		n.register()
	})
}

// register tells the catalog of this run, and then makes what needs to know its number.
func (n *Node) register() {
	cmd, err := catalog.Encode(catalog.RegisterBoot(catalog.Node{
		Name: n.local.Node, Store: n.local.Store, Boot: n.local.Boot, AMQP: n.cfg.AMQP, Admin: n.cfg.Admin, Mesh: n.cfg.Mesh,
		Zone: n.cfg.Zone, Shards: uint32(n.env.Exec.Shared()),
	}))
	if err != nil {
		n.finishStart(err)
		return
	}
	n.consensus.Propose(cmd, func(r catalog.Result, err error) {
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			n.finishStart(fmt.Errorf("register this start in the catalog: %w", err))
			return
		}
		n.assemble(n.consensus.State().View().Node(n.local.Node).Number)
	})
}

// assemble makes the gateway's shards and lets the catalog's changes flow: to replicas first, so that a shard finds them.
func (n *Node) assemble(number uint32) {
	shards := make([]*gateway.Shard, n.env.Exec.Shared())
	for i := range shards {
		shards[i] = gateway.New(gateway.Env{
			Loop: n.env.Exec.Loop(i), Shard: uint32(i), Shards: uint32(len(shards)), Local: n.local, Number: number, Clock: n.env.Clock,
			Trace: n.env.Trace, Directory: n, Proposer: proposer{n}, Barrier: n.consensus.Barrier, Place: n.place, Passwords: n.checker, Undertaker: n.cfg.Undertaker, Node: n.shared,
			Limits: n.cfg.Limits, Unclaimed: n.unclaimed, Pulse: &n.pulse,
		})
	}
	n.mu.Lock()
	n.shards = shards
	n.mu.Unlock()
	n.consensus.OnApply(n.apply)
	n.store.OnHealth(n.healthChanged)
	n.beat()
}

// apply hands changes of the catalog on, on its loop.
func (n *Node) apply(changes []catalog.Change) {
	n.mu.Lock()
	n.view.Apply(changes)
	n.mu.Unlock()
	for i := range changes {
		n.transitions.Add(newEpochs(&changes[i]))
		if n.caughtUp {
			n.tellCopies(&changes[i])
		}
	}
	n.membersChanged(changes)
	n.manager.Apply(changes)
	if !n.caughtUp {
		n.knows.Store(true)
		n.caughtUp = true // the first changes are the whole catalog: a deletion that a crash cut short is finished here
		for _, p := range n.manager.DropUnknown() {
			trace.Info(n.env.Trace, "copy.dropped", slog.String("partition", p.String()))
		}
	}
	for _, s := range n.shards {
		s.Apply(changes)
	}
	n.controller.Apply(changes)
	n.archive.Apply(changes)
	n.peersChanged(changes)
	n.mu.Lock()
	waits := n.leads && !n.settled
	n.mu.Unlock()
	if !waits {
		n.controllerSettled(nil) // the leader's controller decides, elsewhere: clients may come and wait
	}
}

func (n *Node) finishStart(err error) {
	n.mu.Lock()
	done := n.started
	n.started = nil
	n.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// controllerSettled is what Start waited for, the first time. What cannot go on is told by its replica's state, and by the controller's
// events.
func (n *Node) controllerSettled([]controller.Waiting) {
	n.mu.Lock()
	first := !n.settled
	n.settled = true
	n.mu.Unlock()
	if first {
		n.awaitShards()
	}
}

// awaitShards ends the start once every shard has taken in the catalog: before that it would not know a user, or a queue.
func (n *Node) awaitShards() {
	left := len(n.shards)
	for _, s := range n.shards {
		s.Status(func(gateway.Status) {
			n.post(func() {
				if left--; left == 0 {
					n.finishStart(nil)
				}
			})
		})
	}
}

// failed notes that the catalog had to stop: this node cannot go on.
func (n *Node) failed(err error) {
	n.mu.Lock()
	n.failure = err
	n.mu.Unlock()
	trace.Error(n.env.Trace, "node.failed", slog.String("error", err.Error()))
	if left := (*consensus.Superseded)(nil); errors.As(err, &left) {
		n.withdraw()
	}
	if n.cfg.Failed != nil {
		n.cfg.Failed(err)
	}
	n.finishStart(err)
}

// noCatalog is what a node waits for first.
const noCatalog = "this node has no catalog yet: it waits to hear from the node that leads it, for which more than half of the nodes have to reach each other"

// Ready is nil once the node has served every partition that it owned when it started, and that can be served. It stays so while the node
// lives: a queue that is declared later is not served for a moment, and that is no reason to send clients away.
func (n *Node) Ready() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.failure != nil:
		return n.failure
	case n.stopping:
		return fmt.Errorf("the node is stopping")
	case !n.settled && len(n.view.Users()) == 0:
		return errors.New(noCatalog)
	case !n.settled:
		return fmt.Errorf("partitions are being taken over from the run before")
	}
	if left := n.manager.Recovering(); left > 0 && !n.ready {
		return fmt.Errorf("%d partitions are being recovered", left)
	}
	n.ready = true
	return nil
}

// Stop ends the node in order: sessions, replicas with their snapshots, the catalog, the journal. done is called once, on a loop that ends
// with the executor.
func (n *Node) Stop(done func(error)) {
	n.mu.Lock()
	n.stopping = true
	shards, leads := n.shards, n.leads
	n.mu.Unlock()
	if leads && n.mesh != nil {
		n.consensus.Transfer(0) // so that the catalog is led while this node is away
	}
	for _, s := range shards {
		s.Shutdown("the node is shutting down")
	}
	n.store.Ending()
	n.manager.Stop(func() {
		n.consensus.Stop(func() {
			if n.mesh != nil {
				n.mesh.Stop()
			}
			n.archive.Stop(func() { n.store.Close(done) })
		})
	})
}

// courier publishes dead letters: a gateway's shard, always the same for a partition.
func (n *Node) courier(p ident.Partition) protocol.Sender {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.shards) == 0 {
		return nil
	}
	return n.shards[p.Incarnation%uint64(len(n.shards))]
}

// serving tells gateways that wait.
func (n *Node) serving(p ident.Partition) {
	n.mu.Lock()
	shards := n.shards
	n.mu.Unlock()
	for _, s := range shards {
		s.Serving(p)
	}
}

// healthChanged holds publishers while space is low, and lets settles go on.
func (n *Node) healthChanged(h storage.Health) {
	n.noteHealth(h)
	if h.Class == storage.Corruption && h.Copy != (ident.Partition{}) {
		n.manager.Damaged(h.Copy, h.Reason)
	}
	reason := blockedBy(h)
	n.post(n.sayBeat) // it may be that this node can own nothing any more
	n.post(n.sayFull)
	n.manager.Hold(reason)
	for _, s := range n.shards {
		s.SetBlocked(reason)
	}
}

// DeleteResource implements replica.Resources.
func (n *Node) DeleteResource(incarnation, epoch uint64, reason string, done func(error)) {
	if gateway.IsLocal(incarnation) {
		n.shared.DeleteLocal(incarnation, done)
		return
	}
	n.mu.Lock()
	r := n.view.Incarnation(incarnation)
	n.mu.Unlock()
	if r == nil {
		done(nil)
		return
	}
	trace.Info(n.env.Trace, "resource.deleted", slog.String("vhost", r.VHost), slog.String("name", r.Name), slog.String("reason", reason))
	cmd, err := catalog.Encode(catalog.DeleteResource(r.VHost, r.Name, incarnation, epoch))
	if err != nil {
		done(err)
		return
	}
	known(func(done func(error)) {
		n.consensus.Propose(cmd, func(r catalog.Result, err error) {
			if err == nil {
				err = r.Err()
			}
			done(err)
		})
	}, func(ask func()) { n.box.After(askAgain, ask) }, done)
}

// newEpochs is how many partitions a change gives to an owner of a later epoch. A resource's first owner is no change of owner.
func newEpochs(c *catalog.Change) (n uint64) {
	before, _ := c.Before.(*catalog.Resource)
	after, _ := c.After.(*catalog.Resource)
	if before == nil || after == nil {
		return 0
	}
	for i, a := range after.Partitions {
		if i < len(before.Partitions) && a.Epoch > before.Partitions[i].Epoch {
			n++
		}
	}
	return n
}

// Propose gives the catalog a command, on whichever node it is. done is called once, on the catalog's loop: with what came of it, or
// with an error where that is not known. The registrar writes who joined with it.
func (n *Node) Propose(cmd []byte, done func(catalog.Result, error)) { n.consensus.Propose(cmd, done) }

// proposeCommand is what the controller does things with.
func (n *Node) proposeCommand(term uint64, cmd []byte, done func(error)) {
	n.consensus.ProposeIn(term, cmd, func(_ catalog.Result, err error) { done(err) })
}

// ChangeMembers implements replica.Members.
func (n *Node) ChangeMembers(m catalog.Membership, done func(error)) {
	cmd, err := catalog.Encode(catalog.ChangeMembers(m))
	if err != nil {
		done(err)
		return
	}
	n.consensus.Propose(cmd, func(r catalog.Result, err error) {
		if err == nil {
			err = r.Err()
		}
		done(err)
	})
}

// Statuses asks every replica of this node what it does, with the catalog as it is. done is called once, from any goroutine.
func (n *Node) Statuses(done func([]replica.Status)) { n.manager.Status(nil, done) }

// View calls f with the catalog as this node knows it; f may only read, and not keep it.
func (n *Node) View(f func(*catalog.View)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.view)
}
