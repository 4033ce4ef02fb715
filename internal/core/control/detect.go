package control

import (
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Limits are the times of failure detection. Source: design 2 §4.
type Limits struct {
	// EagerGrace is how long a session that was reset or closed may be away before its node is suspected for it.
	EagerGrace time.Duration
	// LivenessTTL is how long a node may say nothing. At that time it is suspected.
	LivenessTTL time.Duration
	// StallLimit is how long a node's sync may take. At that time its storage counts as broken.
	StallLimit time.Duration
	// TakeoverGrace is how long a new controller waits for nodes that it has never heard. A controller that could not run itself gives
	// the others as much before it holds their silence against them.
	TakeoverGrace time.Duration
	// ReadmitCooldown is how long a node whose sync stalled, if only half as long as StallLimit, is no better than an owner that stalls. A store
	// that closed itself has a time of its own (Beat.Cools).
	ReadmitCooldown time.Duration
}

// DefaultLimits are those of the design.
func DefaultLimits() Limits {
	return Limits{
		EagerGrace: 150 * time.Millisecond, LivenessTTL: 1500 * time.Millisecond,
		StallLimit: 2 * time.Second, TakeoverGrace: 300 * time.Millisecond, ReadmitCooldown: 10 * time.Second,
	}
}

// Ending says how a session ended, or why none could be made: what it proves of the peer.
type Ending uint8

// The endings. Of those that prove that the process is away, the later is the stronger.
const (
	NoEnding Ending = iota // nothing is known, or nothing was tried
	Left                   // the peer was taken off the list, or whoever says so stops: no word of the peer
	Silent                 // nothing was heard: the liveness expiry has the same to say
	Denied                 // the certificate was not accepted: whoever listens there lives
	Reset                  // the connection broke or was closed
	Refused                // nobody listens: the process is gone
)

var endings = [...]string{"", "left", "silent", "denied", "reset", "refused"}

// String is the ending's name, as nodes write it in their reports.
func (e Ending) String() string { return endings[e] }

// ParseEnding reads what String wrote. A word that this program does not know proves nothing: NoEnding.
func ParseEnding(s string) Ending {
	return Ending(max(0, slices.Index(endings[:], s)))
}

// Beat is a heartbeat.
type Beat struct {
	From     ident.Instance
	Health   string        // class of the node's storage fault (design 2 §10); "" is health
	Closed   bool          // the node's store takes no more writes
	Stalled  time.Duration // for how long the sync under way has been
	Draining bool
	Sent     time.Duration // on the sender's monotonic clock: its lease counts from there
}

// Reach is what one node says of its session with another.
type Reach struct {
	Node   ident.Instance // the run that the session is or was with; Boot 0 if there was none
	Up     bool
	Ending Ending // where it is not up
}

// Symptom is what a suspicion rests on.
type Symptom uint8

// The symptoms. A node that has several is suspected for the first of them in this order.
const (
	Rebooted Symptom = iota // a later run over the same store was seen: this one is over
	Unsynced                // its journal cannot sync
	Stalled                 // its sync has taken StallLimit
	Gone                    // nobody listens at its address
	Broken                  // its sessions were reset, and EagerGrace is over
	Expired                 // it said nothing for LivenessTTL
	Unheard                 // the controller never heard it: it is new, or the node is
)

// String says the symptom in words.
func (s Symptom) String() string {
	return [...]string{
		"a later run was seen", "its journal cannot sync", "its sync has stalled", "connection refused", "its session broke", "no heartbeat",
		"never heard",
	}[s]
}

// Suspicion says that a run of a node can own nothing any more, as far as anyone can tell. It is cheap to be wrong about: until a copy
// is sealed, the owner goes on serving.
type Suspicion struct {
	Node    ident.Instance
	Symptom Symptom
	By      []string      // the nodes that saw it, sorted; the controller's own among them where it did
	Since   time.Duration // when the symptom began, not when it was enough; on the controller's monotonic clock
	Detail  string        // the node's own word, of a storage fault
}

// String is the suspicion in words, for a transition's cause.
func (s Suspicion) String() string {
	out := s.Node.String() + " is suspected: " + s.Symptom.String()
	if s.Detail != "" {
		out += " (" + s.Detail + ")"
	}
	return out + ", seen by " + strings.Join(s.By, ", ")
}

// Change is what a finding says.
type Change uint8

// The changes.
const (
	Suspected Change = iota // from now on
	Cleared                 // the same run is well again: the suspicion was wrong, or what it rested on is over
	Replaced                // the run that was suspected is not the registered one any more
)

// Finding is one change of what is suspected. Where a suspicion ended, it carries what was suspected.
type Finding struct {
	Change Change
	Suspicion
}

// Standing is how a node stands, for people and for placement.
type Standing struct {
	Run      ident.Instance // the registered one
	Live     bool           // not suspected, and heard within LivenessTTL or the controller's own
	Heard    time.Duration  // when last, if ever
	Health   string
	Draining bool
}

// Detector suspects nodes, by the rules of design 2 §4. It is told what happens, with the time at which it did on the controller's
// monotonic clock, and asked by Tick what follows. One serves one controller for one term, and knows the registered nodes alone: what
// is said of others is dropped. What it keeps is bounded by the square of their number. It is not safe for concurrent use.
//
// Every rule is a function of what is known and of the time (judge.go); inputs only write down what they say, so their order within one
// moment decides nothing that the mesh does not order.
type Detector struct {
	limits Limits
	self   string
	nodes  []*watched // by name
	wake   time.Duration
	waits  bool // for wake
}

// watched is what is known of one node.
type watched struct {
	run      ident.Instance // registered
	awaited  time.Duration  // since when it is waited for, as long as it was not heard
	patience time.Duration  // for how long

	heard   time.Duration // last, where ever is true
	ever    bool
	excused bool          // its silence was once held against the controller itself, since it was last heard,
	excuse  time.Duration // and is not held against it before
	own     sight         // the controller's
	spoke   time.Duration // when the run that own is with, registered or not, was last heard
	reports []sight       // of others, by name

	beat  Beat // the last one
	fault time.Duration
	slow  time.Duration // when it last said that its sync had taken half of StallLimit, if ever was is true
	was   bool

	later   uint64 // a boot after run's, over the same store; 0: none was seen
	seen    time.Duration
	seenBy  []string
	present *Suspicion // as the last Tick found
	ended   []Finding  // to be told by the next
}

// sight is what one node sees of another.
type sight struct {
	by     string
	up     bool
	run    ident.Instance // where up
	ending Ending         // where not
	since  time.Duration  // when it came to be so
	was    bool           // it was up once,
	until  time.Duration  // and was last at
}

// begin notes a session.
func (s *sight) begin(run ident.Instance, now time.Duration) {
	s.up, s.run, s.ending, s.since = true, run, NoEnding, now
}

// end notes that there is no session, for a reason. Weaker reasons leave stronger ones as they are: a dial that times out takes nothing
// back. Only an answer does, were it one that denies.
func (s *sight) end(e Ending, now time.Duration) {
	if s.up {
		s.was, s.until = true, now
	}
	if s.up || e == Denied && s.ending != Denied || e > s.ending {
		s.up, s.ending, s.since = false, e, now
	}
}

// NewDetector is a detector for a controller on the node self that begins at now. runs are the registered ones, its own among them;
// those are given TakeoverGrace to be heard. What is known of sessions already should be told next, with the times at which it happened.
func NewDetector(l Limits, self string, runs []ident.Instance, now time.Duration) *Detector {
	d := &Detector{limits: l, self: self}
	for _, r := range runs {
		d.Register(r, now)
		d.find(r.Node).patience = l.TakeoverGrace
	}
	return d
}

func (d *Detector) search(node string) (int, bool) {
	return slices.BinarySearchFunc(d.nodes, node, func(n *watched, name string) int { return strings.Compare(n.run.Node, name) })
}

// find is nil if no such node is registered.
func (d *Detector) find(node string) *watched {
	if i, ok := d.search(node); ok {
		return d.nodes[i]
	}
	return nil
}

// Register says which run of a node the catalog has: of a new node, or another run of one that is known. What was seen of an earlier
// run says nothing about this one.
func (d *Detector) Register(run ident.Instance, now time.Duration) {
	d.arrive(now)
	i, known := d.search(run.Node)
	n := &watched{run: run, own: sight{by: d.self}, awaited: now, patience: d.limits.LivenessTTL}
	if !known {
		d.nodes = slices.Insert(d.nodes, i, n)
		return
	}
	old := d.nodes[i]
	if old.run == run {
		return
	}
	d.nodes[i] = n
	n.ended = old.ended
	if old.present != nil {
		n.ended = append(n.ended, Finding{Replaced, *old.present})
	}
	if old.run.Store == run.Store {
		n.slow, n.was = old.slow, old.was
	}
	if old.later > run.Boot && old.run.Store == run.Store {
		n.later, n.seen, n.seenBy = old.later, old.seen, old.seenBy
	}
	if old.own.up && old.own.run == run {
		n.own, n.spoke = old.own, old.spoke
		n.heard, n.ever = n.spoke, true
	} else {
		d.forget(run.Node)
	}
	for _, s := range old.reports {
		if s.up && s.run == run {
			n.reports = append(n.reports, s)
		}
	}
}

// Remove says that a node is not registered any more.
func (d *Detector) Remove(node string) {
	i, ok := d.search(node)
	if !ok {
		return
	}
	d.nodes = slices.Delete(d.nodes, i, i+1)
	d.forget(node)
}

// forget drops what a node said of others: it can take nothing back any more.
func (d *Detector) forget(by string) {
	for _, n := range d.nodes {
		n.reports = slices.DeleteFunc(n.reports, func(s sight) bool { return s.by == by })
	}
}

// Up says that the controller's node has a session with a run of a peer.
func (d *Detector) Up(peer ident.Instance, now time.Duration) {
	d.arrive(now)
	n := d.find(peer.Node)
	if n == nil || peer.Node == d.self {
		return
	}
	if n.own.up && n.own.run != peer {
		d.forget(peer.Node)
	}
	n.own.begin(peer, now)
	n.hear(peer, d.self, now)
}

// Down says that the session with a run of a peer has ended.
func (d *Detector) Down(peer ident.Instance, e Ending, now time.Duration) {
	d.arrive(now)
	n := d.find(peer.Node)
	switch {
	case n == nil || peer.Node == d.self:
	case n.own.up && n.own.run != peer:
		// That of another run has begun meanwhile.
	case n.own.up && peer != n.run:
		n.own.end(NoEnding, now) // says nothing of the registered run
		d.forget(peer.Node)
	case n.own.up || peer == n.run:
		n.own.end(e, now)
		d.forget(peer.Node)
	}
}

// Unreachable says that an attempt to reach a node without a session failed.
func (d *Detector) Unreachable(node string, e Ending, now time.Duration) {
	d.arrive(now)
	if n := d.find(node); n != nil && !n.own.up && node != d.self {
		n.own.end(e, now)
	}
}

// Beat takes a heartbeat of another node or of the controller's own.
func (d *Detector) Beat(b Beat, now time.Duration) {
	d.arrive(now)
	n := d.find(b.From.Node)
	if n == nil || !n.hear(b.From, d.self, now) {
		return
	}
	if _, sick := d.limits.storageFault(n.beat); !sick {
		n.fault = now - b.Stalled // where there is one now
	}
	n.beat = b
	if d.hesitates(n) {
		n.slow, n.was = now, true
	}
}

// hesitates reports whether a node's sync takes long now.
func (d *Detector) hesitates(n *watched) bool { return n.beat.Stalled >= d.limits.StallLimit/2 }

// PutOff reports whether an owner that is suspected because its sync has stalled keeps what it owns for now: because there is no other copy, or
// because none is on a node that has not stalled itself of late. Where all disks stall at once, ownership would move at every stall and be no
// better off. It ends with the stall, or once that has lasted for ReadmitCooldown. Source: design 2 §10.
func (d *Detector) PutOff(a *catalog.Assignment, now time.Duration) bool {
	s, ok := d.Suspect(a.Owner)
	if !ok || s.Symptom != Stalled {
		return false
	}
	o := d.find(a.Owner.Node) // which may have got worse since
	if why, sick := d.limits.storageFault(o.beat); sick && why != Stalled || o.run.Node != d.self && now-o.heard >= d.limits.LivenessTTL {
		return false
	}
	if len(a.Followers) == 0 {
		return true
	}
	return now-s.Since < d.limits.ReadmitCooldown && !slices.ContainsFunc(a.Followers, func(f catalog.Member) bool {
		n := d.find(f.Node)
		return n != nil && n.run.Store == f.Store && n.present == nil && !d.hesitates(n) && (!n.was || now-n.slow >= d.limits.ReadmitCooldown)
	})
}

// Answered says that a copy of a run has answered a seal: it was heard. Where it sealed, its promise is durable, so no sync of before takes any
// longer; what its next heartbeat says counts again.
func (d *Detector) Answered(run ident.Instance, sealed bool, now time.Duration) {
	d.arrive(now)
	if n := d.find(run.Node); n != nil && n.hear(run, d.self, now) && sealed {
		n.beat.Stalled = 0
	}
}

// Report takes what a node says of its sessions with others: those that it does not name are as it said before. It goes with the
// session that it came in; only the registered run's counts.
func (d *Detector) Report(from ident.Instance, of []Reach, now time.Duration) {
	d.arrive(now)
	r := d.find(from.Node)
	if r == nil || from.Node == d.self || !r.own.up || r.own.run != from {
		return
	}
	r.hear(from, d.self, now)
	for _, x := range of {
		n := d.find(x.Node.Node)
		if n == nil || n == r {
			continue
		}
		s := n.report(from.Node)
		switch {
		case x.Up:
			s.begin(x.Node, now)
			if n.follows(x.Node) {
				n.reboot(x.Node.Boot, from.Node, now)
			}
		case x.Node == n.run || x.Node.Boot == 0:
			s.end(x.Ending, now)
		default:
			s.end(NoEnding, now) // it speaks of an earlier run, which proves nothing of this one
		}
	}
}

// report is the place for what a node says, in order of names.
func (n *watched) report(by string) *sight {
	i, ok := slices.BinarySearchFunc(n.reports, by, func(s sight, by string) int { return strings.Compare(s.by, by) })
	if !ok {
		n.reports = slices.Insert(n.reports, i, sight{by: by})
	}
	return &n.reports[i]
}

// hear notes that a run spoke, and reports whether it is the registered one.
func (n *watched) hear(run ident.Instance, by string, now time.Duration) bool {
	if n.own.up && n.own.run == run {
		n.spoke = now
	}
	if n.follows(run) {
		n.reboot(run.Boot, by, now)
	}
	if run != n.run {
		return false
	}
	n.heard, n.ever, n.excused = max(n.heard, now), true, false
	return true
}

// follows reports whether a run is later than the registered one over the same store.
func (n *watched) follows(run ident.Instance) bool {
	return run.Node == n.run.Node && run.Store == n.run.Store && run.Boot > n.run.Boot
}

func (n *watched) reboot(boot uint64, by string, now time.Duration) {
	if n.later == 0 {
		n.seen = now
	}
	n.later = max(n.later, boot)
	if i, ok := slices.BinarySearch(n.seenBy, by); !ok {
		n.seenBy = slices.Insert(n.seenBy, i, by)
	}
}

// Cools reports whether a run has said, as its last word, that its store closed itself not long ago (design 2 §10).
func (d *Detector) Cools(m catalog.Member) bool {
	n := d.find(m.Node)
	return n != nil && n.run.Store == m.Store && n.beat.From == n.run && n.beat.Cools()
}

// Suspect is the suspicion of a run, as the last Tick found; false if there is none.
func (d *Detector) Suspect(run ident.Instance) (Suspicion, bool) {
	if n := d.find(run.Node); n != nil && n.run == run && n.present != nil {
		return *n.present, true
	}
	return Suspicion{}, false
}

// Standings are how the registered nodes stand at now, by name, as the last Tick found.
func (d *Detector) Standings(now time.Duration) []Standing {
	out := make([]Standing, len(d.nodes))
	for i, n := range d.nodes {
		out[i] = Standing{
			Run: n.run, Heard: n.heard, Health: n.beat.Health, Draining: n.beat.Draining,
			Live: n.present == nil && (n.run.Node == d.self || n.ever && now-n.heard < d.limits.LivenessTTL),
		}
	}
	return out
}
