package explore

import (
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
)

// actions are the steps that may be possible.
func (w *world) actions() []Action {
	b := &w.x.bounds
	a := w.cat.v.a
	var out []Action
	add := func(k Kind, x, y int) { out = append(out, Action{Kind: k, A: uint8(x), B: uint8(y)}) }
	for i, n := range w.nodes {
		if !n.up {
			add(Restart, i, 0)
			if int(w.used.wipes) < b.Wipes {
				add(Wipe, i, 0)
			}
			continue
		}
		if add(Append, i, 0); b.Publishes > 0 {
			add(Attach, i, 0)
			add(Publish, i, 0)
		}
		if !b.Lazy || n.pressed() {
			add(Sync, i, 0)
		}
		if n.heard != w.cat.v {
			add(Apply, i, 0)
		}
		if int(w.used.crashes) < b.Crashes {
			out = append(out, w.crashes(n)...)
			if !b.Lazy && n.savable() > n.disk.snapshot.end().Position {
				add(SaveCrash, i, 0)
			}
		}
		if n.change != nil && int(w.used.breaks) < b.Breaks {
			add(Again, i, 0)
		}
		out = w.seals(out, n)
		for j := range Nodes {
			if len(w.ways[j][i]) > 0 {
				add(Deliver, j, i)
			}
			if j < i && int(w.used.breaks) < b.Breaks && len(w.ways[i][j])+len(w.ways[j][i]) > 0 {
				add(Break, j, i)
			}
		}
	}
	if a.Pending == nil {
		add(Record, 0, 0)
		add(Grow, 0, 0)
	} else {
		add(Cancel, 0, 0)
		out = w.losses(append(out, w.choices()...))
	}
	out = w.reseeds(w.wishing(out))
	out = w.talks(out)
	for i := range w.proposals {
		if w.moot(&w.proposals[i]) {
			continue
		}
		add(Decide, i, 0)
		if int(w.used.breaks) < b.Breaks {
			add(Lose, i, 0)
		}
	}
	return out
}

// take is the world after a step, nil where the step is not possible.
func (w *world) take(a Action) *world {
	n := w.next()
	if !n.act(a) {
		return nil
	}
	n.hasten()
	n.repeat()
	n.confirmTo()
	n.discard()
	n.overhear()
	n.forget()
	n.bury()
	n.check()
	return n
}

func (w *world) act(a Action) bool {
	i, b := int(a.A), &w.x.bounds
	switch a.Kind {
	case Append:
		n := w.nodes[i]
		switch {
		case !n.up || !n.copy.Serving() || b.Publishes > 0:
			return false
		case b.Entries > 0:
			if int(n.log.end().Position) >= b.Entries {
				return false
			}
		case int(w.used.appends) >= b.Appends:
			return false
		default:
			w.used.appends++
		}
		n = w.mine(i)
		w.append(n, false, record{})
		w.flush(n)
		return true
	case Sync:
		n := w.nodes[i]
		return n.up && (n.copy.InFlight() > 0 || n.step != nil) && w.durable(w.mine(i))
	case Deliver:
		return w.deliver(i, int(a.B))
	case Break:
		if !w.nodes[i].up || !w.nodes[a.B].up || i == int(a.B) {
			return false
		}
		w.used.breaks++
		w.part(i, int(a.B))
		w.meet(i, int(a.B))
		return true
	case Crash, SaveCrash:
		return w.crash(i, a.Kind == SaveCrash, int(a.C))
	case Restart:
		return w.restart(i)
	case Wipe:
		return w.wipe(i)
	case Apply:
		return w.heardNext(i)
	case Reseed:
		return w.reseed(i, int(a.B))
	case Import:
		return w.imported(i, int(a.B))
	case Seal, LateSeal:
		return w.sealed(a)
	case Attach:
		return w.attach(i)
	case Publish:
		return w.publish(i)
	case Stand, Feed, Tell, Report:
		do := w.talk(i, int(a.B), a.Kind, uint64(a.C))
		if do != nil {
			do()
		}
		return do != nil
	}
	return w.govern(a)
}

// heardNext has a node hear the next thing that the catalog says.
func (w *world) heardNext(i int) bool {
	n := w.nodes[i]
	if !n.up || n.heard == w.cat.v {
		return false
	}
	for k, v := range w.versions {
		if v == n.heard {
			w.hearing(w.mine(i), w.versions[k+1])
			return true
		}
	}
	panic("explore: a node has heard what is not known")
}

// hearing is hear, with the mistake of cutting too early: the copy is cut, goes on in its old role, and is not cut again.
func (w *world) hearing(n *node, v *version) {
	if role, _ := partition.RoleOf(v.a, n.instance()); w.x.fault != CutBeforePromise || role == partition.None {
		w.hear(n, v)
		return
	}
	cut, ok := partition.CutTo(v.a.Starts, n.log.end(), v.a.Epoch)
	for w.x.bounds.Lazy && n.step == nil && n.copy.InFlight() > 0 {
		w.durable(n)
	}
	if !ok || n.early || n.copy.InFlight() > 0 || n.step != nil {
		w.hear(n, v)
		return
	}
	w.drop(n, cut.Position)
	n.disk.role, n.disk.epoch = partition.None, 0
	w.reopen(n)
	n.early = true
	w.hear(n, n.heard)
}

func (w *world) reopen(n *node) {
	n.copy = partition.Open(n.image())
	n.log, n.step, n.feeds, n.change, n.sealing, n.saidHeld = n.disk.log, nil, nil, nil, nil, 0
	n.lowered, n.needs = nil, nil
}

// savable is how far a snapshot can go.
func (n *node) savable() uint64 { return min(n.copy.Confirmed(), n.disk.log.end().Position) }

func (w *world) crash(i int, save bool, durable int) bool {
	if !w.nodes[i].up || int(w.used.crashes) >= w.x.bounds.Crashes || durable > w.nodes[i].copy.InFlight() {
		return false
	}
	w.used.crashes++
	n := w.mine(i)
	for range durable {
		w.durable(n)
	}
	if save {
		n.disk.snapshot = n.disk.log.at(n.savable())
	}
	w.reopen(n)
	n.copy, n.up = partition.Copy{}, false
	for j := range Nodes {
		if j == i {
			continue
		}
		w.part(i, j)
		if o := w.nodes[j]; w.x.fault == SurvivorsConfirm && o.up && o.copy.Role() == partition.Owner && o.copy.Open() {
			w.resets(w.mine(j))
		}
	}
	return true
}

func (w *world) restart(i int) bool {
	if w.nodes[i].up {
		return false
	}
	n := w.mine(i)
	n.up = true
	n.boot++
	if w.x.fault == SameEpoch {
		n.boot--
		if n.disk.role == partition.Owner {
			n.disk.role = partition.None
		}
	}
	now := n.instance()
	registered := w.cat.state.View().Node(now.Node).Store
	if registered == now.Store {
		w.must(catalog.RegisterBoot(catalog.Node{Name: now.Node, Store: now.Store, Boot: now.Boot}))
	} else {
		w.must(catalog.ReplaceNode(registered, catalog.Node{Name: now.Node, Store: now.Store, Boot: now.Boot}))
		n.heard = w.cat.v
	}
	w.reopen(n)
	w.hear(n, n.heard)
	for j := range Nodes {
		if j != i && w.nodes[j].up {
			w.meet(i, j)
		}
	}
	return true
}

func (w *world) wipe(i int) bool {
	n := w.nodes[i]
	if n.up || int(w.used.wipes) >= w.x.bounds.Wipes || w.cat.state.View().Node(nodeName(i)).Store != n.instance().Store {
		return false
	}
	w.used.wipes++
	n = w.mine(i)
	w.lost = append(w.lost[:len(w.lost):len(w.lost)], lostStore{n.instance().Store, n.disk.log})
	n.store++
	n.disk, n.heard = disk{}, nil
	w.reopen(n)
	n.copy = partition.Copy{}
	return true
}
