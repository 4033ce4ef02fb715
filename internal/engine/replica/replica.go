package replica

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// replica is one copy of one partition: an actor. Its lists are made when needed and let go when empty, so that thousands of idle
// ones cost little. What every batch needs lies together: with many in use, reaching for memory is what a batch costs.
type replica struct {
	m         *Manager
	lane      *lane
	box       exec.Mailbox
	id        ident.Partition
	phase     phase
	waiting   bool      // counted in Manager.recovering
	stirred   bool      // there may be more to do in Flush than to append what was admitted
	roomless  bool      // the owner was told that a copy which catches up takes nothing: the disk has no room
	telling   bool      // the copies wait to be told what was confirmed, and a timer is set
	pacing    bool      // what goes to another node waits, and a timer is set
	tidy      bool      // producers may have to be forgotten
	alone     isolation // why an owner hands nothing out of a queue, if it does not
	hurt      bool      // the node was told that this copy is to own and is damaged
	givesUp   bool      // what a damaged copy holds is about to be given up
	ended     bool      // nothing begins here any more
	madeAnew  uint8     // how often this run has made the copy anew, as it was damaged
	toTell    telling   // of the change of owner that this one's epoch began with
	regained  regained  // the last that it took in
	halts     uint16    // how often the node had stood still when the other copies were asked last whether they follow
	w         int32     // copies that a confirm needs, this one included
	reignFrom uint64    // offset at which the epoch began
	inlets    []*inlet  // of an owner, as producers, applied and side are
	first     [1]*inlet // where inlets begins: a list of its own would be one more place to reach for
	asked     *asked    // nil: nobody has waited for an answer
	ending    *ending   // nil: nothing is about to end
	out       *outbound // confirmed messages on their way out

	// Publishes and events on their way into the log:
	builder    *batch.Builder
	built      int64 // bytes of records in it
	staged     int64
	flights    []flight
	onAppended func(error)
	log        Log

	// Of an owner, from the moment that its mark is confirmed, and of a follower as far as it has been confirmed:
	side      side
	producers partition.Producers
	applied   batch.Tail // everything before it is in producers and side
	copy      partition.Copy

	// Of an owner: the other copies, and what becomes of changes of members. Of a follower: what the owner was told last.
	feeds    []*feed
	changing *changing // nil: none is under way
	// How far this copy has confirmed as an owner, and in which epoch: for the node, which tells the controller. Read one after the other:
	// a position of a later epoch counts as one of an earlier epoch, too.
	reign, confirmed atomic.Uint64

	ahead    uint64 // what the manager was told of partition.Copy.Ahead
	fence    *fence // nil: the lease lets it take what comes
	saidHeld uint64
	keep     uint64   // of a follower: from where the owner says that some copy needs the log; 0: it has not said yet
	known    uint64   // the confirmed position, as the owner said it last
	local    *reading // nil: nobody reads here
	former   *former  // nil: the newest assignment names this store, or there is none yet
	moved    int64    // of a learner: wall time in ms when it last came further

	forgetEnd uint64 // position after the last event that says which producers go
	save      saving
	wakeAt    int64 // wall time in ms that a timer is set for; 0: none
	cancel    func() bool

	gateways    uint64 // numbers given to gateways
	res         *catalog.Resource
	want        *catalog.Assignment // the newest
	cutting     *cutting            // what is about to be cut
	confirmedAt int64               // wall time in microseconds when the confirmed position last moved
	generation  uint64              // counts how often the state was dropped: what was read for an older one is ignored
	reason      string              // why not serving, for people
}

// ending is about an owner that is to end.
type ending struct {
	closing  string // why it admits nothing: about to be deleted, or stopping
	closedBy *inlet // who asked for that
	request  uint64 // its number there
	stopped  []func()
}

// asked is who waits for what.
type asked struct {
	held     []protocol.Publish // not admitted yet
	seals    []sealCopy
	purges   []purge
	gets     []waitingGet
	claimEnd int64 // monotonic time in ms until which claims are awaited; 0: they are not
	claimers []protocol.Gateway
	// unclaimed are gateways that said that they hold nothing; also those that spoke before this copy has applied the epoch.
	unclaimed []unclaimed
	deferred  []any // requests that wait for the claims
}

// idle reports whether nobody waits.
func (w *asked) idle() bool {
	return len(w.held)+len(w.seals)+len(w.purges)+len(w.gets)+len(w.claimers)+len(w.unclaimed)+len(w.deferred) == 0
}

// asks is who waits, made if nobody does.
func (r *replica) asks() *asked {
	if r.asked == nil {
		r.asked = &asked{}
	}
	return r.asked
}

// closing says why an owner admits nothing; empty where it does not end.
func (r *replica) closing() string {
	if r.ending == nil {
		return ""
	}
	return r.ending.closing
}

// stopping reports whether somebody waits for the end.
func (r *replica) stopping() bool { return r.ending != nil && len(r.ending.stopped) > 0 }

// phase says how far a copy's state is, and an owner's work with gateways.
type phase uint8

const (
	outside phase = iota // has no state: not an owner whose mark is confirmed, and not a follower yet
	queued               // waits for its turn to read its state
	loading
	warm     // not an owner, or its mark is not confirmed: the state follows the confirmed position
	claiming // waits for gateways to say what they hold
	serving
)

// flight is a batch that was appended and is not confirmed.
type flight struct {
	b    batch.Batch
	tail batch.Tail
}

// inlet is a gateway's stream.
type inlet struct {
	gateway  protocol.Gateway
	stream   uint64
	number   uint64 // names the gateway to the state machine
	producer uint64 // the gateway's own
	reply    protocol.Sender
	source   partition.Source
	settles  partition.Source // counts settle messages in the same way
	attach   *protocol.Attach // not answered yet
	settled  uint64           // settles below it are decided; their events are not appended yet
	dead     bool
	until    int64  // monotonic time in ms: its stream to the owner before stood until then
	outages  uint32 // how often the way to it was lost and opened again without its attaching anew
	told     bool   // something is confirmed that must be said
}

// purge is an answer that waits for its event to be confirmed.
type purge struct {
	in     *inlet
	answer protocol.Counted
	at     uint64 // 0: its event is not appended yet
}

// Messages that a replica posts to itself or gets from its manager.
type (
	assignment struct {
		res  *catalog.Resource
		a    *catalog.Assignment
		role partition.Role
	}
	sealCopy struct {
		SealRequest
		done func(SealAnswer)
	}
	askStatus    struct{ done func(Status) }
	stop         struct{ done func() }
	release      struct{}
	roomless     struct{}
	bury         struct{}
	deleted      struct{}
	stepDone     struct{ err error }
	appended     struct{}
	appendFailed struct{ err error }
	wake         struct{ at int64 }
	reopen       struct{ err error }
	unclaimed    struct {
		gateway protocol.Gateway
		epoch   uint64
	}
	call struct{ f func() } // an asynchronous read came back
)

// Send takes a message of core/protocol.
func (r *replica) Send(msg any) { r.box.Post(msg) }

// now is the wall time in milliseconds since 1970.
func (r *replica) now() int64 { return r.m.env.Clock.Wall().UnixMilli() }

// mono is the monotonic time in ms. What is waited for among nodes goes by it: the wall clock may be set.
func (r *replica) mono() int64 { return r.m.env.Clock.Mono().Milliseconds() }

// Receive implements exec.Actor.
func (r *replica) Receive(msg any) {
	if m, ok := msg.(protocol.Publish); ok {
		r.publish(m)
		return
	}
	r.stirred = true
	switch m := msg.(type) {
	case appended:
		r.lane.flights--
		r.step(r.copy.AppendDone)
	case protocol.Settle:
		if !r.early(msg) {
			r.settle(m)
		}
	case protocol.Credit:
		if !r.early(msg) {
			r.credit(m)
		}
	case appendFailed:
		r.lane.flights--
		r.fail("append", m.err)
	case stepDone:
		r.stepDone(m.err)
	case call:
		m.f()
	case wake:
		r.woken(m)
	case assignment:
		r.assign(m)
	case sealCopy:
		r.seal(m)
	case askStatus:
		m.done(r.status())
	case regained:
		r.regained = m
		r.step(func(*partition.Effects) {})
		r.admitHeld()
	case release:
		r.step(func(*partition.Effects) {}) // its lease may be another by now
		r.admitHeld()
		r.room()
	case roomless:
		r.room()
	case bury:
		r.bury()
	case deleted:
		r.deleted()
	case stop:
		r.stop(m.done)
	case reopen:
		r.reopened(m.err)
	case unclaimed:
		r.unclaimed(m)
	default:
		if !r.copies(msg) {
			r.request(msg)
		}
	}
}

// early keeps what cannot be done before the claims are in, and reports whether it did: what would count, drop, settle or hand out messages waits
// until it is known which of them are in whose clients' hands, and a consumer that is new lets those first that owners before had taken.
func (r *replica) early(msg any) bool {
	if r.phase != claiming {
		return false
	}
	switch m := msg.(type) {
	case protocol.Get, protocol.Purge, protocol.Stats, protocol.Close, protocol.Credit, protocol.Settle:
	case protocol.Subscribe:
		if r.awaited(&m.To, m.Consumer) {
			return false
		}
	case protocol.Unsubscribe:
		if r.awaited(&m.To, m.Consumer) {
			return false
		}
	default:
		return false
	}
	w := r.asks()
	w.deferred = append(w.deferred, msg)
	return true
}

// awaited reports whether a consumer is awaited.
func (r *replica) awaited(to *protocol.To, consumer uint64) bool {
	in := r.inlet(to)
	return in != nil && r.side.awaits(in.number, consumer)
}

// request handles what gateways ask for less often.
func (r *replica) request(msg any) {
	if r.early(msg) {
		return
	}
	switch m := msg.(type) {
	case protocol.Attach:
		r.attach(m)
	case protocol.Detach:
		r.detach(m)
	case protocol.Subscribe:
		r.subscribe(m)
	case protocol.Unsubscribe:
		r.unsubscribe(m)
	case protocol.Cursor:
		r.cursor(m)
	case protocol.Get:
		r.get(m)
	case protocol.Purge:
		r.purge(m)
	case protocol.Stats:
		r.stats(m)
	case protocol.Close:
		r.close(m)
	case protocol.Reopen:
		r.reopen(m)
	case protocol.DeadLettered:
		r.deadLettered(m)
	case protocol.Read:
		r.readHere(m)
	case protocol.Unread:
		r.unread(m)
	default:
		trace.Error(r.m.env.Trace, "replica.message.unknown", slog.String("type", fmt.Sprintf("%T", msg)))
	}
}

// touch has Flush called, for more than what was admitted.
func (r *replica) touch() {
	r.stirred = true
	r.box.Touch()
}

// Flush implements exec.Actor: what gathered becomes one batch, and what was confirmed is told. Where records were admitted and nothing
// else happened the state machine has nothing to decide: it is left alone then, for with many partitions in use looking at each one's
// memory is what costs.
func (r *replica) Flush() {
	stirred := r.stirred
	r.stirred = false
	if stirred && r.phase >= claiming {
		r.side.work(r)
	}
	if stirred {
		r.changeMembers()
	}
	if r.phase >= claiming {
		r.closeBatches(stirred)
		if stirred || r.stirred {
			r.tell()
			r.saveIfDue()
			r.setTimer()
		}
	} else {
		r.flushFollower(stirred)
	}
	r.tellCopies()
	r.endStop()
	if r.builder != nil && r.builder.Empty() {
		if len(r.lane.builders) < maxBuilders {
			r.lane.builders = append(r.lane.builders, r.builder)
		}
		r.builder = nil
	}
}

// trim lets go of what an idle replica does not need. It is called when nobody works with the partition any more.
func (r *replica) trim() {
	if len(r.flights) == 0 {
		r.flights, r.onAppended = nil, nil
		r.copy.Trim()
	}
	if r.side != nil {
		r.side.trim()
	}
	if w := r.asked; w != nil {
		w.held = nil
		if w.idle() {
			r.asked = nil
		}
	}
	if len(r.inlets) == 0 {
		r.inlets = nil
	}
	if r.out.len() == 0 && !r.out.busy() {
		r.dropWindow()
		r.out = nil
	}
}

// step tells the copy something and performs what it asks for.
func (r *replica) step(f func(*partition.Effects)) {
	fx := r.lane.fx
	r.lane.fx = nil // what is performed may come back here
	if fx == nil {
		fx = new(partition.Effects)
	}
	r.copy.Fence(r.fenced() != nil, fx)
	f(fx)
	for i := 0; i < len(*fx); i++ {
		e := (*fx)[i]
		r.perform(&e, fx)
	}
	clear(*fx)
	*fx = (*fx)[:0]
	r.lane.fx = fx
	if ahead := r.copy.Ahead(); ahead != r.ahead {
		r.ahead = ahead
		r.m.promised(r.id, ahead)
	}
}

// perform does one thing that the copy asks for. What that leads to is appended to fx.
func (r *replica) perform(e *partition.Effect, fx *partition.Effects) {
	switch e.Kind {
	case partition.SavePromise:
		r.log.SetPromise(e.Epoch, r.postStep)
	case partition.FindTail:
		r.findTail(e.Cut)
	case partition.DropEnd:
		r.dropFlights(e.Tail.Position)
		if r.applied.Position > e.Tail.Position { // the end of an accepted loss: the state is of what was given up
			r.unload()
		}
		r.dropEnd(e.Tail)
	case partition.SaveRole:
		r.log.SetRole(e.Role, e.Epoch, r.postStep)
	case partition.WriteMark:
		r.writeMark()
	case partition.Assumed:
		r.assumed()
	case partition.Advanced:
		r.noteConfirmed()
		if r.copy.Role() == partition.Owner {
			r.reign.Store(r.copy.Epoch())
			r.confirmed.Store(e.Position)
		}
		r.advance(e.Position)
		r.noteMessages()
	case partition.Closed:
		r.closeOwner(e.Reason)
	case partition.SealReady:
		r.answerSeals()
	case partition.Refused:
		r.reason = e.Reason
		trace.Warn(r.m.env.Trace, "replica.role.refused", r.attr(), slog.Uint64("epoch", e.Epoch), slog.String("reason", e.Reason))
	}
}

func (r *replica) attr() slog.Attr { return slog.String("partition", r.id.String()) }

// postStep is called by storage, on a loop of its own.
func (r *replica) postStep(err error) { r.box.Post(stepDone{err}) }

func (r *replica) stepDone(err error) {
	if err != nil {
		r.fail("promise, cut or role", err)
		return
	}
	r.step(r.copy.Saved)
}

// fail closes the copy: its storage, or what it holds, is not to be trusted. Nothing is tried again (design 2 §10).
func (r *replica) fail(what string, err error) {
	if r.copy.Damaged() != "" {
		return
	}
	r.stirred = true
	reason := fmt.Sprintf("%s: %v", what, err)
	trace.Error(r.m.env.Trace, "replica.closed", r.attr(), slog.String("reason", reason))
	r.reason = reason
	r.step(func(fx *partition.Effects) { r.copy.Fail(reason, fx) })
	r.closeOwner(reason)
	r.noteDamage()
	r.sayDamaged()
	r.saysWhyNot()
}
