// Package archive keeps the evidence of transitions on a node: on a shelf in memory, in a file, and the same on every other node. It
// decides nothing. The controller offers a record of what it chose ahead of the commit; the catalog says by its digest which record is
// true; copies say later what became of it. No message of clients and no log of a partition may come in.
//
// Source: design 2 §5 step 4, design 6 "Evidence".
package archive

import (
	"crypto/sha256"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

const (
	// factsAfter gathers what copies say before it is told and written.
	factsAfter = 200 * time.Millisecond
	// waitsAfter does the same for what is known of transitions that wait: nothing was decided, and what they wait for may change often.
	waitsAfter = 5 * time.Second
	// maxOpen bounds the records that are not known to be true yet, and maxVariants those of one partition among them: this node may be
	// behind the catalog by several epochs, and controllers that follow on each other may choose in different ways for one of them.
	maxOpen     = evidence.DefaultTotal
	maxVariants = 2 * evidence.DefaultPerPartition
	// maxMessage bounds the bytes of records in one message between nodes, unless one is larger.
	maxMessage = 256 << 10
)

// Env is what an Archive stands on.
type Env struct {
	Loop  exec.Loop // of its own: it waits for the disk
	Clock clock.Clock
	Trace trace.Sink
	FS    vfs.FS
	Dir   string // the data directory
	Store ident.StoreID
	// View calls f with the catalog as this node has applied it; f may only read, and not keep it.
	View func(f func(*catalog.View))
	// Known is told, on the loop, what a record of a concluded transition says that was not known before; before is nil for a new one. It
	// must not call the archive. What Open reads is known already. May be nil.
	Known func(before, after *evidence.Evidence)
	// Send gives a message (protocol.Evidence, protocol.EvidenceHeld) to a node, or loses it. Ahead does so in order with what the catalog's
	// consensus sends: it arrives before what is proposed afterwards.
	Send, Ahead func(node string, msg any)
}

// key names what a record is of: an epoch of a partition begins once.
type key struct {
	p     ident.Partition
	epoch uint64
}

// Archive is an actor. Its methods may be called from any goroutine. Records that it gives out are shared and must not be changed.
type Archive struct {
	env  Env
	box  exec.Mailbox
	file *file

	mu    sync.Mutex
	shelf *evidence.Shelf                          // what is true
	open  map[ident.Partition][]*evidence.Evidence // what may be, as it came; the newest last
	opens int
	peers map[string]bool

	aside  Aside         // as it was counted
	looked time.Duration // when; monotonic

	facts   map[key]evidence.Became // of records that have not come yet; on the loop, as all below
	mine    map[string]bool         // transitions that the controller here has offered, and that are not committed yet
	later   []*evidence.Evidence    // facts, to be told to the others soon
	unkept  []*evidence.Evidence    // to be written
	timer   bool
	patient bool // the timer of what waits is set
	due     bool // what was to be done soon
	urgent  bool // there is a decision to be written
	// caughtUp says that the catalog as it was at the start is known.
	caughtUp bool
}

// messages
type (
	offered struct {
		list []*evidence.Evidence
		told []string // nodes that it was sent to
	}
	looked struct {
		at   int64
		gone []ident.Partition
	}
	learned   struct{ e *evidence.Evidence }
	peerUp    struct{ node string }
	peerDown  struct{ node string }
	delivered struct {
		from string
		msg  any
	}
	gathered struct{ waits bool }
	stop     struct{ done func() }
)

// Open reads what the data directory holds, which blocks. What cannot be read is left out, with a line of log, and never keeps a node from
// starting: evidence decides nothing, and the other nodes have it.
func Open(env Env) *Archive {
	a := &Archive{
		env: env, shelf: evidence.NewShelf(0, 0, 0), open: map[ident.Partition][]*evidence.Evidence{}, facts: map[key]evidence.Became{},
		mine: map[string]bool{}, peers: map[string]bool{},
	}
	a.file = &file{fs: env.FS, dir: env.Dir, store: env.Store, clock: env.Clock}
	records, broken, err := a.file.read()
	if err != nil {
		trace.Error(env.Trace, "evidence.read.failed", slog.String("error", err.Error()))
	}
	if broken > 0 {
		trace.Warn(env.Trace, "evidence.damaged", slog.Int("records", len(records)), slog.Int64("bytes", broken))
	}
	for _, e := range records {
		switch {
		case e.FactsOnly():
			a.learn(e)
		case e.Outcome == "":
			a.keepOpen(e)
		default:
			a.put(e)
		}
	}
	if err == nil && broken == 0 && len(records) == 0 {
		if err := a.file.ready(); err != nil {
			trace.Warn(env.Trace, "evidence.write.failed", slog.String("error", err.Error()))
		}
	}
	a.unkept = nil
	a.countAside()
	a.box = env.Loop.Spawn("evidence", a)
	return a
}

// Offer takes records from the controller of this node: decisions that it is about to commit, and transitions that it has withdrawn. They
// are on their way to the other nodes when it returns, so that whoever takes part in the commit has the record before.
func (a *Archive) Offer(list []*evidence.Evidence) {
	own := offered{list: make([]*evidence.Evidence, len(list))}
	for i, e := range list {
		own.list[i] = e.Canonical() // as the others will have it
	}
	a.mu.Lock()
	own.told = sortedKeys(a.peers)
	a.mu.Unlock()
	for _, node := range own.told {
		send(own.list, func(m protocol.Evidence) { a.env.Ahead(node, m) })
	}
	a.box.Post(own)
}

// Apply takes changes of the catalog, in order, when this node's view has them.
func (a *Archive) Apply(changes []catalog.Change) {
	touched := looked{at: a.env.Clock.Wall().UnixMicro()}
	any := false
	for i := range changes {
		before, was := changes[i].Before.(*catalog.Resource)
		after, is := changes[i].After.(*catalog.Resource)
		any = any || is && after.Home == nil
		if was && before.Home == nil && !is {
			for _, p := range before.Partitions {
				touched.gone = append(touched.gone, p.Partition)
			}
		}
	}
	if any || len(touched.gone) > 0 {
		a.box.Post(touched)
	}
}

// Learn takes what a copy here knows of what became of the transition to an epoch.
func (a *Archive) Learn(p ident.Partition, epoch uint64, b evidence.Became) {
	a.box.Post(learned{evidence.Facts(p, epoch, b)})
}

// Stop writes what is not written yet, and closes the file. done is called once, on a loop that ends with the executor.
func (a *Archive) Stop(done func()) { a.box.Post(stop{done}) }

// PeerUp says that a session with a node has begun.
func (a *Archive) PeerUp(node string) { a.box.Post(peerUp{node}) }

// PeerDown says that the session with a node has ended.
func (a *Archive) PeerDown(node string) { a.box.Post(peerDown{node}) }

// Deliver takes a message that a node sent: protocol.Evidence or protocol.EvidenceHeld.
func (a *Archive) Deliver(from string, msg any) { a.box.Post(delivered{from, msg}) }

// Last are the last n records, those that began first before the others, transitions under way among them: their Outcome is empty.
func (a *Archive) Last(n int) []*evidence.Evidence {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.shelf.Last(n)
	if len(a.open) > 0 {
		for _, list := range a.open {
			all = append(all, list[len(list)-1])
		}
		slices.SortFunc(all, evidence.Compare)
	}
	return all[len(all)-min(max(n, 0), len(all)):]
}

// Of are the records of a partition, the lowest epoch first, one under way last.
func (a *Archive) Of(p ident.Partition) []*evidence.Evidence {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.shelf.Of(p)
	if open := a.open[p]; len(open) > 0 {
		list = append(list, open[len(open)-1])
	}
	return list
}

// Get is the record of a transition, or nil.
func (a *Archive) Get(id string) *evidence.Evidence {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.shelf.Get(id); e != nil {
		return e
	}
	for _, list := range a.open {
		if i := slices.IndexFunc(list, func(e *evidence.Evidence) bool { return e.ID == id }); i >= 0 && list[len(list)-1].ID == id {
			return list[len(list)-1]
		}
	}
	return nil
}

// Receive implements exec.Actor.
func (a *Archive) Receive(msg any) {
	switch m := msg.(type) {
	case offered:
		for _, node := range sortedKeys(a.peers) { // one that came up meanwhile was told what is held here before this was
			if !slices.Contains(m.told, node) {
				a.send(node, m.list)
			}
		}
		for _, e := range m.list {
			if e.Outcome == "" {
				a.mine[e.ID] = true
			}
			a.take(e)
			a.urgent = a.urgent || decided(e)
		}
	case looked:
		a.look(m)
	case learned:
		if a.learn(m.e) {
			a.later = append(a.later, m.e)
		}
	case peerUp:
		a.peer(m.node, true)
		a.greet(m.node)
	case peerDown:
		a.peer(m.node, false)
	case delivered:
		a.deliver(m)
	case gathered:
		a.due = true
		if m.waits {
			a.patient = false
		} else {
			a.timer = false
		}
	case keeping:
		a.keepEnd(m)
	case lookAside:
		a.countAside()
	case stop:
		a.due = true
		a.Flush()
		a.file.close(a.env.Trace)
		m.done()
	}
}

func (a *Archive) peer(node string, is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if delete(a.peers, node); is {
		a.peers[node] = true
	}
}

// Flush implements exec.Actor. Decisions are written at once, what became of them is told and written soon: it is learned while owners begin
// to serve, and that goes first.
func (a *Archive) Flush() {
	if !a.due && !a.urgent {
		switch {
		case len(a.later) > 0 || slices.ContainsFunc(a.unkept, decided):
			if !a.timer {
				a.timer = true
				a.box.After(factsAfter, gathered{})
			}
		case len(a.unkept) > 0 && !a.patient:
			a.patient = true
			a.box.After(waitsAfter, gathered{waits: true})
		}
		return
	}
	if a.due {
		for _, node := range sortedKeys(a.peers) {
			a.send(node, a.later)
		}
		a.later = nil
	}
	a.due, a.urgent = false, false
	if len(a.unkept) > 0 {
		err := a.file.write(a.unkept, a.all)
		a.unkept = nil
		if err != nil {
			trace.Error(a.env.Trace, "evidence.write.failed", slog.String("error", err.Error()))
		}
	}
}

// decided reports whether a record says more than what a transition waits for.
func decided(e *evidence.Evidence) bool {
	return e.FactsOnly() || e.Outcome != "" || e.After.Owner.Node != ""
}

func (a *Archive) send(node string, list []*evidence.Evidence) {
	send(list, func(m protocol.Evidence) { a.env.Send(node, m) })
}

// send gives records in messages of a bounded size.
func send(list []*evidence.Evidence, give func(protocol.Evidence)) {
	var m protocol.Evidence
	size := 0
	for _, e := range list {
		b := evidence.Append(nil, e)
		if size > 0 && size+len(b) > maxMessage {
			give(m)
			m, size = protocol.Evidence{}, 0
		}
		m.Records, size = append(m.Records, b), size+len(b)
	}
	if size > 0 {
		give(m)
	}
}

// all is everything that is kept, in an order that does not depend on chance.
func (a *Archive) all() []*evidence.Evidence {
	a.mu.Lock()
	list := a.shelf.Last(a.shelf.Len())
	var open []*evidence.Evidence
	for _, l := range a.open {
		open = append(open, l...)
	}
	a.mu.Unlock()
	slices.SortStableFunc(open, evidence.Compare)
	list = append(list, open...)
	return append(list, a.factsOnly()...)
}

func (a *Archive) factsOnly() (list []*evidence.Evidence) {
	for k, b := range a.facts {
		list = append(list, evidence.Facts(k.p, k.epoch, b))
	}
	slices.SortFunc(list, func(x, y *evidence.Evidence) int {
		return 2*x.Partition.Compare(y.Partition) + compareNumbers(x.After.Epoch, y.After.Epoch)
	})
	return list
}

// greet tells a node what is held here, so that it sends what is not.
func (a *Archive) greet(node string) {
	var m protocol.EvidenceHeld
	size := 0
	for _, e := range a.all() {
		if e.FactsOnly() {
			continue
		}
		m.Items = append(m.Items, protocol.HeldRecord{Transition: e.ID, Sum: sum(e)})
		size += len(e.ID)
	}
	a.env.Send(node, m)
	a.send(node, a.factsOnly())
}

func sum(e *evidence.Evidence) [8]byte {
	s := sha256.Sum256(evidence.Append(nil, e))
	return [8]byte(s[:8])
}

func (a *Archive) deliver(m delivered) {
	switch msg := m.msg.(type) {
	case protocol.EvidenceHeld:
		has := map[protocol.HeldRecord]bool{}
		for _, h := range msg.Items {
			has[h] = true
		}
		a.send(m.from, slices.DeleteFunc(a.all(), func(e *evidence.Evidence) bool {
			return e.FactsOnly() || has[protocol.HeldRecord{Transition: e.ID, Sum: sum(e)}]
		}))
	case protocol.Evidence:
		for _, b := range msg.Records {
			e, err := evidence.Parse(b)
			switch {
			case err != nil:
				trace.Error(a.env.Trace, "evidence.malformed", slog.String("peer", m.from), slog.String("error", err.Error()))
			case e.FactsOnly():
				a.learn(e)
			default:
				a.take(e)
				a.urgent = a.urgent || e.Outcome == "" && decided(e)
			}
		}
	}
}
