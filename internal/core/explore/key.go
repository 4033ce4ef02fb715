package explore

import (
	"bytes"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// key is the state as bytes: equal keys behave alike. Of states that differ only in which follower is which, all have one key.
func (w *world) key() []byte {
	var least []byte
	for perm := range w.x.perms {
		if k := w.encode(perm); least == nil || bytes.Compare(k, least) < 0 {
			least = k
		}
	}
	return least
}

func (w *world) encode(perm int) []byte {
	p := &w.x.perms[perm]
	var at [Nodes]int // which node comes at each place
	for i, to := range p {
		at[to] = i
	}
	store := func(s ident.StoreID) byte { return storeCode(s, p) }
	b := make([]byte, 0, 512)
	b = append(b, w.used.appends, w.used.crashes, w.used.wipes, w.used.breaks)
	b = w.ledger.tip.append(b, perm)
	b = append(b, byte(w.ledger.epoch))
	for _, i := range w.ledger.by {
		if i.Boot > 0 {
			b = append(b, store(i.Store)+1, byte(i.Boot))
		} else {
			b = append(b, 0, 0)
		}
	}
	b = append(b, byte(len(w.versions)))
	for _, v := range w.versions {
		b = append(b, v.enc[perm]...)
	}
	for _, l := range w.lost {
		b = l.log.append(append(b, store(l.store)), perm)
	}
	for _, i := range at {
		b = w.encodeNode(b, w.nodes[i], perm, store)
		b = w.encodeAnswer(b, i, perm, store)
		for _, j := range at {
			b = append(b, byte(len(w.ways[i][j])))
			for _, m := range w.ways[i][j] {
				b = append(b, byte(m.kind), byte(m.epoch), byte(m.at), byte(m.count))
				b = m.log.append(b, perm)
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
	b = append(b, registered, byte(1+slices.Index(w.versions, n.heard)))
	if n.enc[perm] == nil {
		n.enc[perm] = n.encode(nil, perm, store)
	}
	return append(b, n.enc[perm]...)
}

func (n *node) encode(b []byte, perm int, store func(ident.StoreID) byte) []byte {
	flags := byte(0)
	for i, f := range []bool{n.up, n.step != nil, n.change != nil, n.early} {
		if f {
			flags |= 1 << i
		}
	}
	b = append(b, flags, n.store, byte(n.boot), byte(n.disk.promise), byte(n.disk.role), byte(n.disk.epoch),
		byte(n.disk.snapshot.end().Position), byte(len(n.sealing)))
	b = n.disk.log.append(b, perm)
	for _, id := range n.sealing {
		b = append(b, id...)
	}
	if !n.up {
		return b
	}
	b = n.log.append(b, perm)
	b = n.copy.AppendState(b, store)
	if n.follows() {
		b = append(b, byte(n.saidHeld))
	}
	if n.step != nil {
		b = append(b, byte(n.step.Kind), byte(n.step.Role), byte(n.step.Epoch), byte(n.step.Tail.Position), byte(n.step.Cut.Position))
	}
	if n.change != nil {
		b = n.change.AppendState(b, n.heard.a.Version, store)
	}
	b = append(b, byte(len(n.feeds)))
	of := slices.Clone(n.feeds)
	slices.SortFunc(of, func(x, y feed) int { return int(store(x.Store)) - int(store(y.Store)) })
	for i := range of {
		learner := byte(0)
		if of[i].learner {
			learner = 1
		}
		b = of[i].AppendState(append(b, store(of[i].Store), learner))
	}
	return b
}

func (w *world) encodeAnswer(b []byte, i, perm int, store func(ident.StoreID) byte) []byte {
	x := w.answers[i]
	if x == nil {
		return append(b, 0)
	}
	flags := byte(1)
	if x.Refused != "" {
		flags = 2
	}
	b = append(b, flags, store(x.Instance.Store), byte(x.Instance.Boot), byte(x.Confirmed))
	return w.x.byLink[x.Tail.Link].append(b, perm)
}

// encodeProposals appends proposals in an order that does not depend on when they were made.
func (w *world) encodeProposals(b []byte, perm int, store func(ident.StoreID) byte) []byte {
	var all [][]byte
	for _, p := range w.proposals {
		live := byte(0)
		if w.concerns(&p) {
			live = 1
		}
		one := []byte{w.x.perms[perm][p.of], live, byte(p.m.Floor), byte(w.cat.v.a.Version - p.m.Version), byte(p.m.Epoch)}
		at := len(one)
		for _, m := range p.m.Followers {
			one = append(one, store(m.Store))
		}
		slices.Sort(one[at:])
		evidence := slices.Clone(p.m.Evidence)
		slices.SortFunc(evidence, func(x, y catalog.Evidence) int { return int(store(x.Store)) - int(store(y.Store)) })
		for _, e := range evidence {
			one = append(one, store(e.Store), byte(e.Position))
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
