// Package controller carries changes of owner through their steps: record, seal, choose, commit (design 2 §5), and has copies and voters
// added where some are missing. What to decide is in core/control; here is only who is asked, in what order, and that nothing is
// forgotten when an answer does not come.
//
// Every node has one; only that of the catalog's leader does anything. It watches the nodes meanwhile (watching.go), and writes down in the
// catalog which are away (absence.go), so that a hold ends when it should whoever leads. Planned moves will come in here. No log, file or
// client may.
package controller

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

const (
	// retryAfter is how long a transition that waits is left alone when nothing happens (design 2 §5: no blind back-off above 1 s).
	retryAfter = time.Second
	// slowRetries is after how many of these a copy that nothing speaks against, and that does not answer, is told of.
	slowRetries = 2
	// chooseAfter is how long the choice waits for copies that may still answer, once enough have (design 2 §5, step 2).
	chooseAfter = 20 * time.Millisecond
)

// Env is what a Controller stands on.
type Env struct {
	Loop  exec.Loop
	Clock clock.Clock
	Trace trace.Sink
	Local ident.Instance
	// View calls f with the catalog as this node has applied it; f may only read, and not keep it.
	View func(f func(*catalog.View))
	// Propose puts a command to the catalog that was decided in a term which this node leads in (Leads): it must take effect in that term or not
	// at all. done is called once, from any goroutine, after the changes were handed to Apply; an error means that it was not done, or that
	// the outcome is not known.
	Propose func(term uint64, cmd []byte, done func(error))
	// Seal seals copies of a node, this one or a peer. done is called from any goroutine, with all answers or with parts of them; not
	// at all where the session ends before.
	Seal func(node string, reqs []control.SealRequest, done func([]control.SealAnswer))
	// Links asks the copy of a node for its links at positions; done as for Seal.
	Links func(node string, p ident.Partition, positions []uint64, done func(map[uint64]batch.Link))
	// Voters gives the members of the catalog's consensus, where SeatOf gives a store's number in it; ChangeVoters changes them, and calls
	// done once. nil where there are no others.
	Voters       func(done func(Members))
	SeatOf       func(ident.StoreID) uint64
	ChangeVoters func(change control.VoterChange, done func(error))
	// Quiet is for how long nothing at all has been heard of another node with which there is a session. nil where there are no others.
	Quiet func(node string) time.Duration
	// HandOn asks the catalog's consensus to let another node lead. nil where there are no others.
	HandOn func()
	// Offer gives records of transitions to those who keep them; nil where nobody does.
	Offer func([]*evidence.Evidence)
	// Grant gives a run its lease, this one's or a peer's, or takes it back. Term is the term of the catalog's consensus that this node leads in,
	// and Prove calls done, with nil, once a majority of the voters has obeyed that term after the call. nil where nothing is leased.
	Grant func(lease.Grant)
	Term  func() uint64
	Prove func(done func(error))
	// Settled is called when no transition is under way any more, after any was or after the first Apply, and when one that waited is
	// gone. waiting are those that cannot go on, with their reasons, in order of partition.
	// It is called while this node leads only.
	Settled func(waiting []Waiting)
}

// Waiting is a transition that cannot be decided now.
type Waiting = control.Waiting

// Controller is an actor. Its exported methods may be called from any goroutine.
type Controller struct {
	env     Env
	box     exec.Mailbox
	elected bool                      // this node leads
	leading bool                      // and decides
	term    uint64                    // in which this node leads, or led last
	peers   map[string]ident.Instance // that there is a session with
	watch   watch
	open    map[ident.Partition]*transition
	own     map[ident.Partition]string      // the last transitions that this node has asked the catalog to record in its present term, by id
	losses  map[ident.Partition]*acceptance // requests of operators to go on with less

	deletions map[uint64]*deleting // requests of operators to delete what cannot be served, by incarnation

	started  bool
	toRecord []*transition
	toSeal   []*transition
	toChoose []*transition
	toCommit []*transition
	toCancel []*transition
	timer    bool // a retry is set
	settled  bool
	care     care
	absent   absences
	leases   leases
}

// messages
type (
	applied []catalog.Change
	leads   struct {
		term    uint64
		leading bool
	}
	peerUp   struct{ peer ident.Instance }
	peerDown struct {
		peer   ident.Instance
		ending control.Ending
	}
	answered []control.SealAnswer
	linked   struct {
		t     *transition
		of    ident.Instance // the copy that says it
		asked []uint64
		links map[uint64]batch.Link
	}
	graceOver struct{ t *transition }
	concluded struct {
		of  []*transition
		err error
	}
	retrying struct{}
)

// New makes a controller; it begins with the first Apply, and with the word that this node leads.
func New(env Env) *Controller {
	c := &Controller{env: env, open: map[ident.Partition]*transition{}, peers: map[string]ident.Instance{}, own: map[ident.Partition]string{}, losses: map[ident.Partition]*acceptance{}, deletions: map[uint64]*deleting{}}
	c.watch = watch{sights: map[string]sight{}, promises: map[ident.Partition][]control.Promise{}, damages: map[ident.Partition]control.Damage{}, confirms: map[ident.Partition]floor{}, heard: map[ident.Partition]floor{}, reports: map[string]report{}}
	c.box = env.Loop.Spawn("controller", c)
	return c
}

// Apply takes changes of the catalog, in order. The first call carries the whole catalog.
func (c *Controller) Apply(changes []catalog.Change) { c.box.Post(applied(changes)) }

// Leads says that this node leads the catalog's consensus in a term from now on, or does not any more. What was decided in one term is proposed
// in that term alone: a later controller decides anew, by what it sees itself.
func (c *Controller) Leads(term uint64, leading bool) { c.box.Post(leads{term, leading}) }

// propose puts what was decided in the present term to the catalog.
func (c *Controller) propose(cmd []byte, done func(error)) { c.env.Propose(c.term, cmd, done) }

// PeerUp says that a session with a run of another node has begun.
func (c *Controller) PeerUp(peer ident.Instance) { c.box.Post(peerUp{peer}) }

// PeerDown says that the session with a run of another node has ended, and how: what was asked there is not answered any more.
func (c *Controller) PeerDown(peer ident.Instance, e control.Ending) { c.box.Post(peerDown{peer, e}) }

// Receive implements exec.Actor.
func (c *Controller) Receive(msg any) {
	switch m := msg.(type) {
	case applied:
		c.leasesSet(m)
		if !c.started {
			c.started = true
			c.lead(c.elected)
		}
		for _, ch := range m {
			c.changed(ch)
		}
	case leads:
		c.elected, c.term = m.leading, m.term
		c.lead(m.leading && c.started)
	case peerUp:
		c.peers[m.peer.Node] = m.peer
		c.sessionBegan(m.peer)
		c.leases.book.Again(m.peer, c.now()) // the last grant may have been lost with the session before
		c.careSoon(careAfter)
		c.askAgain(m.peer.Node)
	case peerDown:
		delete(c.peers, m.peer.Node)
		c.sessionEnded(m.peer, m.ending)
		c.unasked(m.peer.Node)
	case unreachable, beat, report, promises, damages, confirms, ticked:
		c.observe(msg)
	case answered:
		for _, a := range m {
			if d := c.watch.detector; d != nil {
				d.Answered(a.Instance, a.Damaged == "" && a.Refused == "", c.now())
			}
			c.answer(a)
		}
	case linked:
		c.links(m)
	case graceOver:
		if c.live(m.t, sealing) {
			m.t.graceOver = true
			c.toChoose = append(c.toChoose, m.t)
		}
	case concluded:
		c.conclude(m)
	case caring:
		c.care.timer = false
		c.careFor()
	case holdOver:
		c.care.holds = 0
		c.careFor()
	case seating:
		if c.care.seatAt != m.at {
			return // an earlier one ran since
		}
		c.care.seatAt = 0
		c.askVoters()
	case proved:
		c.proven(m)
	case voters:
		c.vote(m.m)
	case voted:
		c.voted(m)
	case func():
		m()
	case retrying:
		c.timer = false
		c.retry()
	}
}

// lead begins to decide, from the catalog as it is, or stops. Before the first Apply nothing is decided: to a node that begins, a catalog
// that it has not read yet looks like one without nodes, of which every member would have to go.
func (c *Controller) lead(leading bool) {
	if leading == c.leading {
		return
	}
	c.leading = leading
	c.endLosses()
	c.endDeletions()
	c.care.voting = false
	c.careAt(0, 0)
	c.absent = absences{look: leading}
	clear(c.open)
	clear(c.own)
	c.toRecord, c.toSeal, c.toChoose, c.toCommit, c.toCancel = nil, nil, nil, nil, nil
	c.watchAnew(leading)
	c.leaseAnew(leading)
	if leading {
		c.settled = false
		c.considerAll(func(*catalog.Assignment) bool { return true })
		c.careSoon(careAfter)
	}
}

// considerAll looks at the partitions that pick says.
func (c *Controller) considerAll(pick func(*catalog.Assignment) bool) {
	type item struct {
		a    *catalog.Assignment
		kind catalog.Kind
	}
	var items []item
	c.env.View(func(v *catalog.View) {
		for _, r := range v.AllResources() {
			if r.Home != nil {
				continue
			}
			for _, a := range r.Partitions {
				if pick(a) {
					items = append(items, item{a, r.Kind})
				}
			}
		}
	})
	for _, i := range items {
		c.consider(i.a, i.kind)
	}
}

func (c *Controller) changed(ch catalog.Change) {
	if r, ok := ch.Before.(*catalog.Resource); ok && ch.After == nil {
		for _, a := range r.Partitions {
			delete(c.watch.confirms, a.Partition)
			delete(c.watch.heard, a.Partition)
		}
	}
	if !c.leading {
		return
	}
	if len(c.peers) > 0 {
		c.careSoon(careAfter)
	}
	if n, ok := ch.Before.(*catalog.Node); ok && ch.After == nil {
		c.watch.detector.Remove(n.Name)
		delete(c.leases.asks, n.Name)
		return
	}
	if n, ok := ch.After.(*catalog.Node); ok {
		c.absent.look = true
		if was, ok := ch.Before.(*catalog.Node); ok && was.Store == n.Store && was.Boot == n.Boot {
			return // the same run: nothing of what it was asked or said is another's
		}
		c.watch.detector.Register(ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}, c.now())
		c.considerAll(func(a *catalog.Assignment) bool { return a.Owner.Node == n.Name })
		c.askAgain(n.Name) // it may have been chosen before it was registered
		return
	}
	before, _ := ch.Before.(*catalog.Resource)
	after, _ := ch.After.(*catalog.Resource)
	if before != nil && after == nil {
		for _, a := range before.Partitions {
			c.abandoned(before, c.open[a.Partition])
			c.drop(a.Partition)
			delete(c.own, a.Partition)
			delete(c.watch.promises, a.Partition)
			delete(c.watch.damages, a.Partition)
		}
	}
	if after == nil || after.Home != nil {
		return
	}
	for _, a := range after.Partitions {
		c.consider(a, after.Kind)
	}
}

func (c *Controller) drop(p ident.Partition) {
	if c.open[p] != nil {
		delete(c.open, p)
		c.settled = false // tell of it: it may have been one that waited
	}
}

// cause says why a partition needs another owner, if it does.
func (c *Controller) cause(a *catalog.Assignment) (why control.Reason) {
	c.env.View(func(v *catalog.View) { why = control.CauseOf(a, v, c.watch.detector, c.watch.promises[a.Partition]) })
	if why.Why == control.OwnerSuspected && c.watch.detector.PutOff(a, c.now()) {
		why = control.Reason{}
		c.lookAgain()
	}
	if d, ok := c.watch.damages[a.Partition]; ok && why.Why == control.NoReason {
		why = control.CauseOfDamage(a, d)
	}
	if x := c.losses[a.Partition]; x != nil && x.begun && (x.epoch == 0 || a.Epoch < x.epoch) && why.Why == control.NoReason {
		why = control.Reason{Why: control.LossAccepted, Text: control.AcceptedCause(x.Reason)}
	}
	return why
}

// lookAgain has owners that are suspected looked at again: what a change of owner was put off for passes without a word.
func (c *Controller) lookAgain() {
	if c.watch.looking {
		return
	}
	c.watch.looking = true
	c.box.After(retryAfter, func() {
		c.watch.looking = false
		if c.leading {
			c.considerAll(func(a *catalog.Assignment) bool { _, s := c.watch.detector.Suspect(a.Owner); return s })
		}
	})
}

// consider decides the next step of a partition from its assignment.
func (c *Controller) consider(a *catalog.Assignment, kind catalog.Kind) {
	old := c.open[a.Partition]
	c.withdrawn(old, a)
	why := c.cause(a)
	if a.Pending == nil && why.Why == control.NoReason {
		if old != nil {
			c.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "transition.done", Attrs: []slog.Attr{
				slog.String("partition", a.Partition.String()), slog.Uint64("epoch", a.Epoch), slog.String("owner", a.Owner.String()),
			}})
			c.drop(a.Partition)
		}
		return
	}
	switch {
	case old == nil:
		c.begin(a, kind, why, "")
	case old.assignment.Version != a.Version, why.Why == control.PromiseAhead && old.step != recording:
		c.begin(a, kind, why, old.reason)
	}
	// Something else of the resource changed: the step under way is still the right one.
}

// partitions are those with a transition under way, in order.
func (c *Controller) partitions() []ident.Partition {
	ps := make([]ident.Partition, 0, len(c.open))
	for p := range c.open {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, ident.Partition.Compare)
	return ps
}

// Flush implements exec.Actor: what gathered goes out in as few commands and requests as possible.
func (c *Controller) Flush() {
	c.judge()
	c.grant()
	c.lossSteps()
	c.deletionSteps()
	c.record()
	c.cancel()
	c.noteAbsences() // after what is recorded: a change of owner waits for nothing
	c.seal()
	c.choose()
	c.commit()
	if !c.started || c.settled || !c.leading {
		return
	}
	var waits []Waiting
	for _, p := range c.partitions() {
		t := c.open[p]
		if !t.stands() {
			c.setTimer()
			return
		}
		waits = append(waits, c.waitOf(t))
	}
	c.settled = true
	if len(c.open) == 0 {
		c.open = map[ident.Partition]*transition{} // a map keeps the room that a start with many partitions took
	}
	c.env.Settled(waits)
	if len(waits) > 0 {
		c.setTimer()
	}
}

func (c *Controller) setTimer() {
	if !c.timer {
		c.timer = true
		c.box.After(retryAfter, retrying{})
	}
}
