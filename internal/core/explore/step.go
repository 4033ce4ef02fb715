package explore

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/partition"
)

// actions are the steps that may be possible.
func (w *world) actions() []Action {
	b := &w.x.bounds
	a := w.cat.v.a
	var out []Action
	add := func(k Kind, x, y int) { out = append(out, Action{k, uint8(x), uint8(y)}) }
	for i, n := range w.nodes {
		if !n.up {
			add(Restart, i, 0)
			if int(w.used.wipes) < b.Wipes {
				add(Wipe, i, 0)
			}
			continue
		}
		add(Append, i, 0)
		add(Sync, i, 0)
		if n.heard != w.cat.v {
			add(Apply, i, 0)
		}
		if int(w.used.crashes) < b.Crashes {
			add(Crash, i, 0)
			if n.savable() > n.disk.snapshot.end().Position {
				add(SaveCrash, i, 0)
			}
		}
		if n.change != nil && int(w.used.breaks) < b.Breaks {
			add(Again, i, 0)
		}
		if w.sealable(n) || w.lateSeal(n) {
			add(Seal, i, 0)
		}
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
		out = append(out, w.choices()...)
	}
	for i := range w.proposals {
		add(Decide, i, 0)
		if int(w.used.breaks) < b.Breaks {
			add(Lose, i, 0)
		}
	}
	return out
}

// choices are the ways in which the controller may choose: by any of the answers that were given, for others may be late or lost.
func (w *world) choices() []Action {
	var out []Action
	var seen []control.Decision
	given := uint8(0)
	for i, x := range w.answers {
		if x != nil {
			given |= 1 << i
		}
	}
	for of := uint8(1); of < 1<<Nodes; of++ {
		if of&^given != 0 {
			continue
		}
		for tie := range w.x.ties {
			d := w.choose(of, tie)
			if d.Verdict != control.Chosen && d.Verdict != control.Blocked {
				continue
			}
			known := false
			for i := range seen {
				known = known || seen[i].Verdict == d.Verdict && seen[i].Owner == d.Owner && seen[i].Start == d.Start
			}
			if !known {
				seen = append(seen, d)
				out = append(out, Action{Choose, of, uint8(tie)})
			}
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
	n.discard()
	n.overhear()
	n.forget()
	n.check()
	return n
}

func (w *world) act(a Action) bool {
	i, b := int(a.A), &w.x.bounds
	switch a.Kind {
	case Append:
		if n := w.nodes[i]; !n.up || !n.copy.Serving() || int(w.used.appends) >= b.Appends {
			return false
		}
		w.used.appends++
		n := w.mine(i)
		w.append(n, false)
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
		return w.crash(i, a.Kind == SaveCrash)
	case Restart:
		return w.restart(i)
	case Wipe:
		return w.wipe(i)
	case Apply:
		return w.heardNext(i)
	case Seal:
		if !w.nodes[i].up || !w.sealable(w.nodes[i]) && !w.lateSeal(w.nodes[i]) {
			return false
		}
		w.seal(w.mine(i))
		return true
	}
	return w.govern(a)
}

// govern takes the steps of the catalog and of its controller.
func (w *world) govern(a Action) bool {
	now := w.cat.v.a
	switch a.Kind {
	case Record:
		cause := control.Cause(now, w.cat.state.View())
		if cause == "" && w.x.bounds.Suspect {
			cause = "suspected"
		}
		if cause == "" || now.Pending != nil || now.Epoch >= w.x.bounds.Epochs {
			return false
		}
		t := control.NewTransition(now, cause, 0)
		t.Cause = "" // states do not differ by it
		w.answers = [Nodes]*control.Answer{}
		w.must(catalog.RecordPending(now.Partition, now.Version, t))
		return true
	case Choose:
		return w.commit(a)
	case Grow:
		up := uint8(0)
		for i, n := range w.nodes {
			if n.up {
				up |= 1 << i
			}
		}
		g := w.cat.grow(up)
		if now.Pending != nil || g == nil {
			return false
		}
		w.must(g.Item())
		return true
	case Decide, Lose:
		if int(a.A) >= len(w.proposals) {
			return false
		}
		if a.Kind == Lose {
			w.used.breaks++
		}
		w.decide(int(a.A), a.Kind == Decide)
		return true
	case Again:
		waits := slices.ContainsFunc(w.proposals, func(p proposal) bool { return p.of == int(a.A) && w.concerns(&p) })
		if !waits || len(w.proposals) > 1 {
			return false
		}
		w.used.breaks++
		n := w.mine(int(a.A))
		n.change.Answered(errLost)
		n.change.Again()
		w.propose(n)
		return true
	}
	return false
}

// sealable reports whether the controller has yet to hear from a run of a node.
func (w *world) sealable(n *node) bool {
	x := w.answers[n.index]
	return w.cat.v.a.Pending != nil && len(n.sealing) == 0 && (x == nil || x.Instance != n.instance())
}

// lateSeal reports whether the seal of the transition that was committed last may still come to a copy and do anything there.
func (w *world) lateSeal(n *node) bool {
	a := w.cat.v.a
	return a.Pending == nil && a.Epoch > 1 && n.copy.Promise() < a.Epoch && !n.copy.Applying()
}

// must has the catalog do what it cannot refuse.
func (w *world) must(it catalog.Item) {
	next, refused := w.x.apply(w.cat, it)
	if refused != nil {
		w.breaks("the catalog refuses: %v", refused)
	}
	w.setCatalog(next)
}

func (w *world) setCatalog(c *cat) {
	w.cat = c
	if last := w.versions[len(w.versions)-1]; last != c.v {
		w.versions = append(w.versions[:len(w.versions):len(w.versions)], c.v)
	}
}

func (w *world) commit(a Action) bool {
	now := w.cat.v.a
	if now.Pending == nil {
		return false
	}
	for i, x := range w.answers {
		if x == nil && a.A>>i&1 == 1 {
			return false
		}
	}
	d := w.choose(a.A, int(a.B))
	switch d.Verdict {
	case control.Blocked:
		w.breaks("5: blocked, and nobody has lost or forged anything: %s", d.Reason)
		return true
	case control.Wait, control.Ask:
		return false
	case control.Chosen:
	}
	w.tell("%s owns epoch %d from %d", d.Owner.Node, d.Start.Epoch, d.Start.Position)
	next, refused := w.x.apply(w.cat, catalog.CommitTransition(control.CommitOf(now, d)))
	if refused != nil {
		return false // such as an owner that has restarted since: it is asked again
	}
	w.checkChoice(&d)
	w.answers = [Nodes]*control.Answer{}
	w.setCatalog(next)
	return true
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
}

// savable is how far a snapshot can go.
func (n *node) savable() uint64 { return min(n.copy.Confirmed(), n.disk.log.end().Position) }

func (w *world) crash(i int, save bool) bool {
	if !w.nodes[i].up || int(w.used.crashes) >= w.x.bounds.Crashes {
		return false
	}
	w.used.crashes++
	n := w.mine(i)
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
