package explore

import (
	"bytes"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// orders is how many orders the nodes have.
const orders = 6

var allOrders = [orders][Nodes]byte{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// key is the state as bytes: equal keys behave alike. Of states that differ only in which node is which, all have one key: nothing in what
// is searched depends on a node's name, for where a choice does, every tie is searched. An entry is known by its epoch and kind, not by who
// made it: one instance appends in an epoch, which append checks. Of the orders of the nodes, the one counts in which their own states rise,
// and among those that are equal the least key.
func (w *world) key() []byte {
	if len(w.x.perms) == 1 {
		return w.encode(0)
	}
	var own [Nodes][]byte
	for i := range own {
		own[i] = w.signature(w.nodes[i])
	}
	var least []byte
	for perm := range w.x.perms {
		var at [Nodes][]byte
		for i, to := range w.x.perms[perm] {
			at[to] = own[i]
		}
		if bytes.Compare(at[0], at[1]) > 0 || bytes.Compare(at[1], at[2]) > 0 {
			continue
		}
		if k := w.encode(perm); least == nil || bytes.Compare(k, least) < 0 {
			least = k
		}
	}
	return least
}

// signature is a node's own state, whichever of the nodes it is.
func (w *world) signature(n *node) []byte {
	if n.own == nil {
		n.own = n.encode(nil, func(ident.StoreID) byte { return 0 }, w.x.spare())
	}
	place := byte(0)
	if a := w.cat.v.a; a.Owner.Node == nodeName(n.index) {
		place = 1
	} else if a.Member(n.instance().Store) {
		place = 2
	}
	return append(n.own[:len(n.own):len(n.own)], place)
}

func (w *world) encode(perm int) []byte {
	p := &w.x.perms[perm]
	var at [Nodes]int // which node comes at each place
	for i, to := range p {
		at[to] = i
	}
	store := func(s ident.StoreID) byte { return storeCode(s, p) }
	b := make([]byte, 0, 512)
	pending := bits(w.pending.sent, w.pending.vain)
	b = append(b, w.used.appends, w.used.crashes, w.used.wipes, w.used.breaks, w.used.cancels, byte(w.asked), pending)
	if in := &w.x.bounds; in.Changes+in.Losses+in.Reseeds > 0 {
		wish := w.cat.wishes
		b = append(append(b, w.used.changes, w.used.losses, w.used.reseeds, byte(w.ledger.loss), byte(wish.Copies)), wish.Policy...)
	}
	if g := &w.gateway; w.x.bounds.Publishes > 0 {
		open := uint64(0) // the epoch of the owner that the stream is to, if it is
		for _, n := range w.nodes {
			if w.open(n) {
				open = g.epoch
			}
		}
		b = append(b, byte(open), g.next, g.sent, g.resolved, g.swapped)
	}
	b = w.ledger.tip.append(b)
	b = append(b, byte(w.ledger.epoch))
	for _, i := range w.ledger.by {
		b = append(b, bits(i.boot > 0))
	}
	b = append(b, byte(len(w.versions)))
	for _, v := range w.versions {
		b = append(b, v.enc[perm]...)
	}
	for _, l := range w.lost {
		b = l.log.append(append(b, store(l.store)))
	}
	for _, i := range at {
		b = w.encodeNode(b, w.nodes[i], perm, store)
		b = w.encodeAnswers(b, i, store)
		for _, j := range at {
			b = append(b, byte(len(w.ways[i][j])))
			for _, m := range w.ways[i][j] {
				b = append(b, byte(m.kind), byte(m.epoch), byte(m.at), byte(m.count))
				b = m.log.append(b)
			}
		}
	}
	return w.encodeProposals(b, perm, store)
}

// encodeNode appends a node: what the world knows of it, and its own state, which is encoded once.
func (w *world) encodeNode(b []byte, n *node, perm int, store func(ident.StoreID) byte) []byte {
	registered := byte(0)
	if w.cat.state.View().Node(nodeName(n.index)).Store == n.instance().Store {
		registered = 1
	}
	others := n.copy.Role() == partition.Owner && w.ledger.wrote[n.copy.Epoch()] != n.run()
	b = append(b, registered, byte(1+slices.Index(w.versions, n.heard)), bits(others))
	for _, r := range n.sealing {
		b = append(b, bits(w.cat.v.a.Pending != nil && w.cat.v.a.Pending.ID == r.id))
	}
	if n.enc[perm] == nil {
		n.enc[perm] = n.encode(nil, store, w.x.spare())
	}
	return append(b, n.enc[perm]...)
}

func (n *node) encode(b []byte, store func(ident.StoreID) byte, spare bool) []byte {
	role, epoch := n.disk.role, n.disk.epoch
	if n.disk.promise > epoch && role != partition.None {
		role, epoch = partition.Sealed, 0 // that it becomes whatever role it had (partition.Open)
	}
	b = append(b, bits(n.up, n.step != nil, n.change != nil, n.early, n.disk.importing), n.store, byte(n.boot), byte(n.disk.promise), byte(role), byte(epoch),
		byte(n.disk.snapshot.end().Position), byte(len(n.sealing)))
	b = n.disk.log.append(b)
	for _, r := range n.sealing {
		b = append(b, byte(r.epoch))
	}
	if !n.up {
		return b
	}
	b = n.log.append(b)
	b = n.copy.AppendState(b, store, !spare)
	if n.follows() {
		b = append(b, byte(n.saidHeld))
	}
	if n.step != nil {
		b = append(b, byte(n.step.Kind), byte(n.step.Role), byte(n.step.Epoch), byte(n.step.Tail.Position), byte(n.step.Cut.Position))
	}
	if n.change != nil {
		b = n.change.AppendState(b, n.heard.a.Version, store)
	}
	b = append(append(b, byte(len(n.lowered)), byte(len(n.needs))), n.needs...)
	for _, s := range n.lowered {
		b = append(b, byte(s.W), byte(s.Below))
	}
	b = append(b, byte(len(n.feeds)))
	of := slices.Clone(n.feeds)
	slices.SortFunc(of, func(x, y feed) int { return int(store(x.Store)) - int(store(y.Store)) })
	for i := range of {
		learner := byte(0)
		if of[i].learner {
			learner = 1
		}
		if b = append(b, store(of[i].Store), learner); !spare {
			b = of[i].AppendState(b)
			continue
		}
		durable := of[i].Durable()
		if durable < n.copy.Floor() {
			durable = 0
		}
		b = append(b, bits(of[i].learner && of[i].Standing()), byte(durable))
	}
	return b
}

func (w *world) encodeAnswers(b []byte, i int, store func(ident.StoreID) byte) []byte {
	b = append(b, byte(len(w.answers[i])))
	for _, x := range w.answers[i] {
		b = append(b, store(x.Instance.Store), byte(x.Instance.Boot), byte(x.Confirmed))
		b = w.x.byLink[x.Tail.Link].append(b)
	}
	return b
}

func bits(flags ...bool) byte {
	b := byte(0)
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

// encodeProposals appends proposals in an order that does not depend on when they were made. Of the evidence counts whose it is, and neither how far
// beyond the floor it goes nor where that is: the catalog asks whether copies stand at it, and whether it is past the epoch's start, as every floor is.
func (w *world) encodeProposals(b []byte, perm int, store func(ident.StoreID) byte) []byte {
	var all [][]byte
	for _, p := range w.proposals {
		if w.moot(&p) {
			continue
		}
		live := byte(0)
		if w.concerns(&p) {
			live = 1
		}
		one := []byte{w.x.perms[perm][p.of], live, byte(w.cat.v.a.Version - p.m.Version), byte(p.m.Epoch)}
		at := len(one)
		for _, m := range p.m.Followers {
			one = append(one, store(m.Store))
		}
		slices.Sort(one[at:])
		evidence := slices.Clone(p.m.Evidence)
		slices.SortFunc(evidence, func(x, y catalog.Evidence) int { return int(store(x.Store)) - int(store(y.Store)) })
		for _, e := range evidence {
			if e.Position >= p.m.Floor { // else it is none
				one = append(one, store(e.Store))
			}
		}
		if w.x.plain {
			one = append(one, byte(p.m.Floor))
			for _, e := range evidence {
				one = append(one, byte(e.Position))
			}
		}
		all = append(all, one)
	}
	slices.SortFunc(all, bytes.Compare)
	b = append(b, byte(len(all)))
	for _, one := range all {
		b = append(append(b, byte(len(one))), one...)
	}
	return b
}
