package explore

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// world is one state. A world that a search has seen is not changed any more: take makes the next of it, which shares what it does not
// change.
type world struct {
	x         *explorer
	nodes     [Nodes]*node
	own       [Nodes]bool // nodes that this world may change
	ways      [Nodes][Nodes][]message
	cat       *cat
	versions  []*version              // what not every node has heard, the last one included
	answers   [Nodes][]control.Answer // to seals of the pending transition, a run's each, the newest first
	asked     uint64                  // the last epoch that a transition was recorded for: its seals may be on their way for ever
	pending   pending
	proposals []proposal
	ledger    ledger
	gateway   gateway
	lost      []lostStore
	used      used
	broken    string // the rule that the last step broke
	clogged   bool
	long      bool // a log is longer than what is searched
}

// lostStore is a store that was wiped, as it was then. What it had said that it held, it held.
type lostStore struct {
	store ident.StoreID
	log   *entry
}

// used counts against the bounds.
type used struct{ appends, crashes, wipes, breaks, cancels, changes, losses, reseeds uint8 }

// pending is what the controller knows that recorded the transition which is pending.
type pending struct {
	sent bool // its seals
	// vain: there was no reason any more for it, so that it may have asked the catalog to withdraw it, before it sent any.
	vain bool
}

// ledger is what owners have confirmed.
type ledger struct {
	tip   *entry
	epoch uint64             // of the owner that confirmed last
	loss  uint64             // epoch that the last accepted loss began; 0: there was none
	by    [MaxEpochs + 1]run // who confirmed in each epoch
	wrote [MaxEpochs + 1]run // who appended in each epoch
}

// node is one node: its disk, its copy, and what the loop of a replica keeps.
type node struct {
	index int
	store uint8 // counts the stores that the node has had
	boot  uint64
	up    bool
	disk  disk

	copy     partition.Copy
	log      *entry
	step     *partition.Effect // being made durable
	heard    *version
	feeds    []feed
	change   *partition.Change
	changes  uint8           // counts them
	w        int             // of the assignment
	lowered  []partition.Set // what entries need that were appended before a change asked for fewer copies
	needs    []uint8         // how many copies each entry of its epoch needed, with Changes
	sealing  []request       // that wait
	saidHeld uint64
	early    bool // it was cut already, for CutBeforePromise

	// Its encoding under each order of the nodes, and whichever it is, once it does not change any more.
	enc [orders][]byte
	own []byte
}

// request is a seal of a transition.
type request struct {
	epoch uint64
	id    string
}

// disk is what a crash leaves.
type disk struct {
	promise  uint64
	role     partition.Role
	epoch    uint64
	log      *entry
	snapshot *entry
	// importing: its image is not whole.
	importing bool
}

// feed is what an owner does for one other copy.
type feed struct {
	partition.Feed
	learner bool
}

// proposal is a change that the catalog has not decided on.
type proposal struct {
	of     int
	boot   uint64
	change uint8
	m      catalog.Membership
}

// message is what an owner and another copy say to each other (core/protocol, copies.go). Who sends it is known by the session.
type message struct {
	kind  messageKind
	epoch uint64
	at    uint64 // Extend: confirmed; Standing, Held: durable
	log   *entry // Standing: the whole log; Extend: what it is to be with the batches
	count int    // of batches
}

type messageKind byte

const (
	probe messageKind = iota
	standing
	extend
	held
)

// run is an instance in few bytes; the zero run is nobody's.
type run struct{ node, store, boot uint8 }

func (n *node) run() run { return run{uint8(n.index), n.store, uint8(n.boot)} }

// String is the instance's name.
func (r run) String() string {
	n := node{index: int(r.node), store: r.store, boot: uint64(r.boot)}
	return n.instance().String()
}

func (n *node) instance() ident.Instance {
	return ident.Instance{Node: nodeName(n.index), Store: storeID(n.index, n.store), Boot: n.boot}
}

// image is what storage would find.
func (n *node) image() partition.Image {
	return partition.Image{
		Partition: thePartition, Promise: n.disk.promise, Role: n.disk.role, RoleEpoch: n.disk.epoch, Tail: n.disk.log.end(),
		Snapshot: n.disk.snapshot.end(), Importing: n.disk.importing,
	}
}

func (n *node) clone() *node {
	c := *n
	c.enc, c.own = [orders][]byte{}, nil
	c.copy = n.copy.Clone()
	c.feeds = slices.Clone(n.feeds)
	for i := range c.feeds {
		c.feeds[i].Feed = n.feeds[i].Feed.Clone()
	}
	c.sealing = slices.Clone(n.sealing)
	c.lowered, c.needs = slices.Clone(n.lowered), slices.Clone(n.needs)
	if n.change != nil {
		c.change = n.change.Clone()
	}
	return &c
}

// begin is a cluster whose partition serves, with nothing on its way.
func (x *explorer) begin() *world {
	c := x.firstCatalog()
	w := &world{x: x, cat: c, versions: []*version{c.v}}
	for i := range Nodes {
		w.nodes[i] = &node{index: i, boot: 1, up: true}
		w.own[i] = true
		w.nodes[i].copy = partition.Open(w.nodes[i].image())
	}
	for i := range Nodes {
		w.hear(w.nodes[i], c.v)
	}
	w.settle()
	return w
}

// settle lets everything become durable and arrive.
func (w *world) settle() {
	for moved := true; moved; {
		moved = w.settleDirect()
		for _, n := range w.nodes {
			for w.durable(w.mine(n.index)) {
				moved = true
			}
			for to := range Nodes {
				for w.deliver(n.index, to) {
					moved = true
				}
			}
		}
	}
}

// mine is a node that may be changed.
func (w *world) mine(i int) *node {
	if !w.own[i] {
		w.nodes[i] = w.nodes[i].clone()
		w.own[i] = true
	}
	return w.nodes[i]
}

// next is a world to be changed.
func (w *world) next() *world {
	n := *w
	n.own = [Nodes]bool{}
	return &n
}

// breaks notes a broken rule; the first one stays.
func (w *world) breaks(rule string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(rule, args...)
	}
}

func (w *world) tell(format string, args ...any) {
	if w.x.telling {
		w.x.told = append(w.x.told, fmt.Sprintf(format, args...))
	}
}

// send puts a message on its way, if there is a session.
func (w *world) send(from *node, to string, m message) {
	i := nodeIndex(to)
	if w.x.bounds.Direct || !w.nodes[i].up || i == from.index {
		return
	}
	way := w.ways[from.index][i]
	if w.x.bounds.Queue > 0 && len(way) >= w.x.bounds.Queue {
		w.clogged = true
	}
	w.ways[from.index][i] = append(way[:len(way):len(way)], m)
}

// deliver has a node take the oldest message from another.
func (w *world) deliver(from, to int) bool {
	way := w.ways[from][to]
	if len(way) == 0 || !w.nodes[to].up {
		return false
	}
	m := way[0]
	w.ways[from][to] = way[1:]
	n := w.mine(to)
	w.tell("%s of epoch %d", [...]string{"probe", "standing", "extend", "held"}[m.kind], m.epoch)
	switch m.kind {
	case probe:
		w.probed(n, from, m)
	case standing:
		w.standing(n, from, m)
	case extend:
		w.extend(n, from, m)
	case held:
		w.heldBy(n, from, m)
	}
	w.flush(n)
	return true
}

// discard drops messages that their receiver would drop whenever they came: of an epoch that it has left.
func (w *world) discard() {
	for from := range Nodes {
		for to := range Nodes {
			if len(w.ways[from][to]) == 0 {
				continue
			}
			c := &w.nodes[to].copy
			late := func(m message) bool {
				if m.kind == extend && w.x.fault == StaleFrame {
					return false
				}
				if m.kind == probe || m.kind == extend {
					return m.epoch < c.Promise() || c.Role() == partition.Owner && m.epoch == c.Epoch()
				}
				return m.epoch < c.Epoch() || m.epoch == c.Epoch() && c.Role() != partition.Owner
			}
			if slices.ContainsFunc(w.ways[from][to], late) {
				w.ways[from][to] = slices.DeleteFunc(slices.Clone(w.ways[from][to]), late)
			}
		}
	}
}

// overhear lets copies hear at once what says nothing to them.
func (w *world) overhear() {
	if w.x.plain {
		return
	}
	for i, n := range w.nodes {
		for n.heard != nil && n.heard != w.cat.v && w.idle(n, w.following(n)) {
			n = w.mine(i)
			n.heard = w.following(n)
		}
	}
}

// following is the version after the one that a node has heard.
func (w *world) following(n *node) *version {
	return w.versions[slices.Index(w.versions, n.heard)+1]
}

// idle reports whether a version says nothing to a node: an epoch below its promise, or to another copy than the owner's no more than that a
// transition is recorded or withdrawn, or that others come and go. What a node has heard says nothing more to it then.
func (w *world) idle(n *node, v *version) bool {
	was, is := n.heard.a, v.a
	me := n.instance()
	if !n.up {
		me.Boot++ // as which it will hear it
		if is.Epoch < n.disk.promise {
			return true
		}
		return w.x.fault != SameEpoch && same(was, is, me)
	}
	if n.copy.Applying() {
		return false
	}
	if n.copy.Role() != partition.Owner {
		return is.Epoch < n.copy.Promise() || same(was, is, me)
	}
	return was.Epoch == is.Epoch && (was.Pending == nil) != (is.Pending == nil) &&
		is.Owner == me && n.copy.Epoch() == is.Epoch && len(is.Learners)+len(is.Leaving) == 0 && n.change == nil && !w.wishesPolicy(is) &&
		w.x.fault != SurvivorsConfirm
}

// same reports whether two versions want the same of a copy that does not own.
func same(was, is *catalog.Assignment, me ident.Instance) bool {
	before, _ := partition.RoleOf(was, me)
	now, _ := partition.RoleOf(is, me)
	return was.Epoch == is.Epoch && was.Owner == is.Owner && before == now && now != partition.Owner
}

// forget drops the versions that every node has left behind, and of those between them the ones that say no more than the one before, to whoever
// is to hear them, than that a transition is recorded or withdrawn.
func (w *world) forget() {
	first := len(w.versions) - 1
	for _, n := range w.nodes {
		if n.heard != nil {
			first = min(first, slices.Index(w.versions, n.heard))
		}
	}
	w.versions = w.versions[first:]
	for k := len(w.versions) - 2; k > 0 && !w.x.plain; k-- {
		v := w.versions[k]
		known := slices.ContainsFunc(w.nodes[:], func(n *node) bool { return n.heard == v })
		if !known && alike(w.versions[k-1].a, v.a) && !w.wishesPolicy(v.a) {
			w.versions = slices.Delete(slices.Clone(w.versions), k, k+1)
		}
	}
}

// moot reports whether nothing comes of the catalog's answer to a proposal: it was made on another version than the catalog's, of which none comes
// twice, so that it is refused, and its owner does not wait for that. A search goes on as if there were none.
func (w *world) moot(p *proposal) bool {
	return !w.x.plain && p.m.Version != w.cat.v.a.Version && !w.concerns(p)
}

// undecided are the proposals that something may come of.
func (w *world) undecided() int {
	n := 0
	for i := range w.proposals {
		if !w.moot(&w.proposals[i]) {
			n++
		}
	}
	return n
}

// bury forgets what nobody asks of lost stores any more. They are looked at for nothing but whether they held what is confirmed (holders). One that no
// assignment names of those that somebody may go by, as a learner neither, will not be named again. Nor does one count any more that did not hold all that is confirmed
// now. Of the rest of its log counts what an owner knows that it held, for nobody else confirms by it. Were that wrong, a rule would be broken
// here, not kept.
func (w *world) bury() {
	var left []lostStore
	for _, l := range w.lost {
		if w.x.plain {
			return
		}
		named := slices.ContainsFunc(w.versions, func(v *version) bool {
			return v.a.Member(l.store) || slices.ContainsFunc(v.a.Learners, func(m catalog.Member) bool { return m.Store == l.store })
		})
		if named && l.log.extends(w.ledger.tip) {
			left = append(left, lostStore{l.store, l.log.at(max(w.ledger.tip.end().Position, w.reported(l)))})
		}
	}
	w.lost = left
}

// reported is how far an owner knows that a lost store held its log.
func (w *world) reported(l lostStore) uint64 {
	at := uint64(0)
	for _, n := range w.nodes {
		for i := range n.feeds {
			if f := &n.feeds[i]; f.Store == l.store && n.log.extends(l.log.at(f.Durable())) {
				at = max(at, f.Durable())
			}
		}
	}
	return at
}

// alike reports whether two versions differ only in that a transition is pending, and no copy learns.
func alike(x, y *catalog.Assignment) bool {
	return x.Epoch == y.Epoch && x.Owner == y.Owner && slices.Equal(x.Followers, y.Followers) && x.Policy == y.Policy &&
		len(x.Learners)+len(y.Learners)+len(x.Leaving)+len(y.Leaving) == 0
}

// part ends the session of two nodes: what is on its way is lost.
func (w *world) part(a, b int) {
	w.ways[a][b], w.ways[b][a] = nil, nil
	for _, p := range [][2]int{{a, b}, {b, a}} {
		if n := w.nodes[p[0]]; n.up {
			n = w.mine(n.index)
			for i := range n.feeds {
				if n.feeds[i].Node == nodeName(p[1]) {
					n.feeds[i].Lose()
				}
			}
		}
	}
}

// meet begins a session of two nodes.
func (w *world) meet(a, b int) {
	for _, p := range [][2]int{{a, b}, {b, a}} {
		n, peer := w.mine(p[0]), w.nodes[p[1]].instance()
		for i := range n.feeds {
			if f := &n.feeds[i]; f.Node == peer.Node && f.Store == peer.Store {
				w.probe(n, f)
			}
		}
		if n.follows() && n.heard.a.Owner == peer {
			w.sayStanding(n)
		}
	}
}

// durable lets the oldest write of a node become durable, or what it looks for be found. It is false where there is none.
func (w *world) durable(n *node) bool {
	switch {
	case !n.up:
		return false
	case n.copy.InFlight() > 0:
		n.disk.log = n.log.at(n.disk.log.end().Position + 1)
		w.tell("%d is durable", n.disk.log.end().Position)
		w.do(n, n.copy.AppendDone)
	case n.step != nil:
		e := n.step
		n.step = nil
		switch e.Kind {
		case partition.SavePromise:
			n.disk.promise = e.Epoch
			w.tell("promise %d is durable", e.Epoch)
		case partition.SaveRole:
			n.disk.role, n.disk.epoch, n.disk.promise = e.Role, e.Epoch, max(n.disk.promise, e.Epoch)
			w.tell("role %s of epoch %d is durable", e.Role, e.Epoch)
		case partition.DropEnd:
			w.drop(n, e.Tail.Position)
		case partition.FindTail:
			w.tell("finds where epoch %d began: %d", e.Cut.Epoch, e.Cut.Position)
			w.findTail(n, e)
			w.flush(n)
			return true
		default:
			panic("explore: no such step")
		}
		if w.x.fault == SealedBeforeSync && e.Kind == partition.SavePromise {
			break // the copy believed so long ago
		}
		w.do(n, n.copy.Saved)
	default:
		return false
	}
	w.flush(n)
	return true
}

// drop cuts the log on disk, and checks what that takes.
func (w *world) drop(n *node, position uint64) {
	kept := n.disk.log.at(position)
	w.tell("cut from %d to %d", n.disk.log.end().Position, position)
	if tip := w.ledger.tip; tip != nil && kept.end().Position < tip.end().Position {
		if gone := n.disk.log.at(min(tip.end().Position, n.disk.log.end().Position)); tip.extends(gone) && gone != kept {
			w.breaks("3: %s cuts at %d, and %d is confirmed", nodeName(n.index), position, gone.end().Position)
		}
	}
	n.disk.log = kept
	if !kept.extends(n.disk.snapshot) {
		n.disk.snapshot = kept // the state is discarded, and made anew
	}
}

// do tells a copy something and performs what it asks for.
func (w *world) do(n *node, f func(*partition.Effects)) {
	var fx partition.Effects
	f(&fx)
	for i := range fx {
		w.perform(n, &fx[i])
	}
}

func (w *world) perform(n *node, e *partition.Effect) {
	if (e.Kind == partition.WriteMark || e.Kind == partition.Assumed) && e.Epoch < n.copy.Promise() {
		w.breaks("a role below the promise: %s takes one of epoch %d, and has promised %d", nodeName(n.index), e.Epoch, n.copy.Promise())
	}
	switch e.Kind {
	case partition.SavePromise:
		n.step = e
		if w.x.fault == SealedBeforeSync {
			w.do(n, n.copy.Saved)
		} else if w.x.bounds.Lazy {
			w.promise(n)
		}
	case partition.SaveRole:
		if n.step = e; w.x.bounds.Lazy && e.Role != partition.Owner {
			w.durable(n)
		}
	case partition.FindTail:
		if n.step = e; w.x.bounds.Direct {
			n.step = nil
			w.findTail(n, e)
		}
	case partition.DropEnd:
		n.step = e
		n.log = n.log.at(e.Tail.Position)
		if w.x.bounds.Lazy && n.copy.Becoming() != partition.Owner {
			w.durable(n)
		}
	case partition.WriteMark:
		for i := range n.feeds {
			w.probe(n, &n.feeds[i])
		}
		w.tell("owns epoch %d from %d", e.Epoch, n.log.end().Position)
		if tip := w.ledger.tip; e.Epoch > w.ledger.epoch && !n.log.extends(tip) {
			w.breaks("1: %s owns epoch %d with the log %s, and %s is confirmed", nodeName(n.index), e.Epoch, n.log, tip)
		}
		w.long = w.long || w.x.bounds.Entries > 0 && int(n.log.end().Position) >= w.x.bounds.Entries
		w.append(n, true, record{})
	case partition.Assumed:
		w.tell("is %s of epoch %d", e.Role, e.Epoch)
		n.feeds, n.change, n.lowered, n.needs = nil, nil, nil, nil
		w.sayStanding(n)
	case partition.Advanced:
		w.advanced(n, e.Position)
	case partition.Closed:
		w.tell("closed")
		n.feeds, n.change, n.lowered, n.needs = nil, nil, nil, nil
	case partition.SealReady:
		w.answerSeals(n)
	case partition.Refused:
		w.tell("refused: %s", e.Reason)
	}
}

// findTail finds where another owner's history began, in what is durable: nothing is in flight then.
func (w *world) findTail(n *node, e *partition.Effect) {
	found := n.log.at(e.Cut.Position)
	if t := found.end(); t.Position != e.Cut.Position || t.Link != e.Cut.Link {
		w.breaks("1: %s is to be cut at %d, and has another history there: %s", nodeName(n.index), e.Cut.Position, n.log)
		return
	}
	w.do(n, func(fx *partition.Effects) { n.copy.TailFound(found.end(), fx) })
}
