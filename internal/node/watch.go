package node

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/controller"
	"github.com/tanist/tanist/internal/engine/storage"
)

const (
	// beatEvery is how often a node tells the controller that it lives (design 2 §4).
	beatEvery = 100 * time.Millisecond
	// vowsEvery is how often it tells how far owners have confirmed, and of promises that no role has followed yet.
	vowsEvery = time.Second
	// vowsAtOnce is how many partitions one message speaks of.
	vowsAtOnce = 4096
)

// watched is this node's part in being watched: it tells the controller that it lives, and whom it reaches. On the catalog's loop.
type watched struct {
	leader uint64 // in the catalog's consensus; 0: none is known
	term   uint64
	// controller is the node of leader; "": it is not known.
	controller string
	lease      lease.Lease
	granted    protocol.Lease // what is not used yet; Term 0: none is
	// toldLeader and toldTerm are of the controller that was told last whom this node reaches.
	toldLeader, toldTerm uint64

	stall control.Stall // of the journal, as beats saw it

	full bool          // every node was told that this one is to get no new copies: its disk has no room, or its store cools
	said time.Duration // when promises and confirmed positions were told last; 0: the controller knows none
	vows bool          // there were some
	told map[ident.Partition]protocol.Confirmed

	damages []protocol.Damaged // told last
	damaged time.Duration      // when
}

// leaderIs says who leads the catalog's consensus from now on: its controller is told everything at once.
func (n *Node) leaderIs(term, id uint64) {
	n.watch.leader, n.watch.term = id, term
	n.watch.said = 0
	n.findController()
	if id != 0 {
		n.termIs(term)
		n.sayBeat()
		n.tellAll()
	}
}

// findController looks which node's controller decides, as far as this one knows: when another leads, and when the nodes have changed.
func (n *Node) findController() {
	n.watch.controller = ""
	if n.watch.leader == 0 {
		return
	}
	n.View(func(v *catalog.View) {
		for _, x := range v.Nodes() {
			if consensus.ID(x.Store) == n.watch.leader {
				n.watch.controller = x.Name
			}
		}
	})
}

// say tells the controller something of this node, wherever it is, and reports whether it is known where.
func (n *Node) say(msg any) bool {
	switch to := n.watch.controller; to {
	case "":
		return false
	case n.local.Node:
		n.controllerHears(n.local, msg)
	default:
		n.sendControl(to, msg)
	}
	return true
}

// controllerHears hands the controller here what a node says of itself.
func (n *Node) controllerHears(from ident.Instance, msg any) {
	switch m := msg.(type) {
	case protocol.Heartbeat:
		if m.From == from {
			b := beatOf(m)
			n.noteFull(from.Node, b.Full() || b.Cools())
			n.controller.Beat(b)
		}
	case protocol.RunReport:
		if m.From == from && from != n.local { // it hears of its own node's sessions as they come and go
			n.controller.Report(from, reachOf(m.Runs))
		}
	case protocol.Confirms:
		n.controller.Confirms(m.From, confirmsOf(m.Items)) // of the node's own, or passed on by it
	case protocol.Damages:
		if m.From == from {
			n.controller.Damages(from, damagesOf(m.Items))
		}
	case protocol.Promises:
		if m.From == from {
			n.controller.Promises(from, promisesOf(m.Items))
		}
	}
}

// beat tells the controller again and again that this node lives.
func (n *Node) beat() {
	if n.mesh == nil {
		return // there is nobody to be missed by
	}
	n.pulse.Beat(n.env.Clock.Mono())
	n.useLease()
	n.sayBeat()
	if w := &n.watch; w.leader != 0 && (w.toldLeader != w.leader || w.toldTerm != w.term) {
		n.tellAll()
	}
	n.sayDamages()
	n.sayVows()
	n.sayFull()
	n.box.After(beatEvery, func() { n.beat() })
}

func (n *Node) sayBeat() {
	if n.mesh != nil && n.watch.controller != "" {
		n.say(n.heartbeat())
	}
}

// heartbeat says how this node is.
func (n *Node) heartbeat() protocol.Heartbeat {
	h := n.store.Health()
	now := n.env.Clock.Mono()
	b := protocol.Heartbeat{
		From: n.local, Term: n.watch.term, Closed: h.Closed, Stalled: int64(n.watch.stall.Look(now, n.store.Stalled())), Sent: int64(now),
	}
	b.Health = n.healthWord(h)
	n.View(func(v *catalog.View) {
		if x := v.Node(n.local.Node); x != nil {
			b.Draining = x.Draining
		}
	})
	return b
}

// healthWord is the class of a store's fault; where there is none, that it cools, or nothing.
func (n *Node) healthWord(h storage.Health) string {
	if h.Class == storage.Healthy && n.store.Cools() {
		return control.Cooling
	}
	return string(h.Class)
}

// sayVows tells the controller what has changed of its copies: how far owners have confirmed; promises that no role has followed yet, and
// once that there are none any more.
func (n *Node) sayVows() {
	now := n.env.Clock.Mono()
	if n.watch.said > 0 && now-n.watch.said < vowsEvery || n.watch.controller == "" {
		return
	}
	if n.watch.said == 0 {
		n.watch.told = map[ident.Partition]protocol.Confirmed{}
		n.passOn(n.watch.controller)
	}
	n.watch.said = now
	for some := range slices.Chunk(n.manager.Confirms(n.watch.told), vowsAtOnce) {
		n.controller.Confirms(n.local, confirmsOf(some))
		for _, peer := range n.reached() { // who may have to decide after the present controller was lost with this node
			n.sendControl(peer, protocol.Confirms{From: n.local, Items: some})
		}
	}
	vows := n.manager.Promises()
	if len(vows) == 0 && !n.watch.vows {
		return
	}
	n.watch.vows = len(vows) > 0
	n.say(protocol.Promises{From: n.local, Items: vows})
}

// sayDamages tells the controller which copies here are to own and are damaged: when that has changed, and again while there are any, since it
// may be another controller's by then. Where the journal has closed, all are given up together, and nothing is said of what each holds.
func (n *Node) sayDamages() {
	var of []protocol.Damaged
	if !n.store.Health().Closed {
		of = n.manager.Damages()
	}
	now := n.env.Clock.Mono()
	if n.watch.controller == "" || slices.Equal(of, n.watch.damages) && (len(of) == 0 || now-n.watch.damaged < vowsEvery) {
		return
	}
	n.watch.damages, n.watch.damaged = of, now
	n.say(protocol.Damages{From: n.local, Items: of})
}

// passOn tells a controller how far owners on other nodes have confirmed, as this node was told: they may be lost by now.
func (n *Node) passOn(to string) {
	if to == n.local.Node {
		return
	}
	n.controller.Heard(func(by ident.Instance, list []controller.Confirmed) {
		if by == n.local {
			return
		}
		for some := range slices.Chunk(list, vowsAtOnce) {
			m := protocol.Confirms{From: by}
			for _, c := range some {
				m.Items = append(m.Items, protocol.Confirmed(c))
			}
			n.sendControl(to, m)
		}
	})
}

// reached are the nodes that there is a session with, in order.
func (n *Node) reached() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.sessions))
}

// tellOf tells the controller how this node reaches another, or everything where that other is the controller's: it knows nothing yet.
func (n *Node) tellOf(node string) {
	n.post(func() {
		n.mu.Lock()
		run := n.reaches[node]
		n.mu.Unlock()
		if run.Up {
			n.watch.said = 0 // it may have to decide later, and was not told yet how far owners here have confirmed
		}
		if n.watch.controller == node {
			n.watch.said = 0 // what was told may have been lost with the session
			n.sayBeat()
			n.tellAll()
			return
		}
		n.say(protocol.RunReport{From: n.local, Term: n.watch.term, Runs: []protocol.Run{run}})
	})
}

// tellAll tells the controller whom this node reaches and whom not.
func (n *Node) tellAll() {
	to := n.watch.controller
	if to == "" {
		return // this node has not read of who that is yet: it is told with a later beat
	}
	n.watch.toldLeader, n.watch.toldTerm = n.watch.leader, n.watch.term
	r := protocol.RunReport{From: n.local, Term: n.watch.term}
	n.mu.Lock()
	for _, run := range n.reaches {
		if run.Node.Node != to {
			r.Runs = append(r.Runs, run)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(r.Runs, func(a, b protocol.Run) int { return strings.Compare(a.Node.Node, b.Node.Node) })
	n.say(r)
}

// quiet is for how long nothing was heard of a node with which there is a session.
func (n *Node) quiet(node string) time.Duration {
	if n.mesh == nil {
		return 0
	}
	return n.mesh.Quiet(node)
}

// handOn has another node lead the catalog's consensus: this one's storage is broken.
func (n *Node) handOn() { n.consensus.Transfer(0) }

func beatOf(h protocol.Heartbeat) control.Beat {
	return control.Beat{From: h.From, Health: h.Health, Closed: h.Closed, Stalled: time.Duration(h.Stalled), Draining: h.Draining, Sent: time.Duration(h.Sent)}
}

func reachOf(runs []protocol.Run) []control.Reach {
	out := make([]control.Reach, len(runs))
	for i, r := range runs {
		out[i] = control.Reach{Node: r.Node, Up: r.Up, Ending: control.ParseEnding(r.Cause)}
	}
	return out
}

func confirmsOf(items []protocol.Confirmed) []controller.Confirmed {
	out := make([]controller.Confirmed, len(items))
	for i, c := range items {
		out[i] = controller.Confirmed(c)
	}
	return out
}

func damagesOf(items []protocol.Damaged) []controller.Damaged {
	out := make([]controller.Damaged, len(items))
	for i, d := range items {
		out[i] = controller.Damaged(d)
	}
	return out
}

func promisesOf(items []protocol.Promised) []controller.Promised {
	out := make([]controller.Promised, len(items))
	for i, p := range items {
		out[i] = controller.Promised(p)
	}
	return out
}
