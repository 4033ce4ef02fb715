package explore

import (
	"errors"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// What the loop of engine/replica does with messages, in its order.

// hear takes what the catalog says of this node's copy.
func (w *world) hear(n *node, v *version) {
	n.heard = v
	role, _ := partition.RoleOf(v.a, n.instance())
	if role == partition.None || v.a.Epoch == 0 {
		return
	}
	sets := w.sets(n)
	if role == partition.Owner {
		if n.copy.Role() == partition.Owner && n.copy.Epoch() == v.a.Epoch {
			w.lowers(n, sets[0])
		}
		n.w = sets[0].W
		w.setFeeds(n)
		sets = n.joint(sets)
	}
	starts := v.a.Starts
	if n.early {
		starts = nil
	}
	if next := slices.IndexFunc(starts, func(s catalog.HistoryStart) bool { return s.Epoch > n.log.end().Epoch }); w.x.fault == CutAtNext && next >= 0 {
		starts = starts[next : next+1]
	}
	w.do(n, func(fx *partition.Effects) {
		n.copy.Assign(partition.Assignment{Epoch: v.a.Epoch, Role: role, Starts: starts, Sets: sets}, fx)
	})
	w.flush(n)
}

func (w *world) sets(n *node) []partition.Set {
	a := *n.heard.a
	if w.x.fault == SurvivorsConfirm {
		a.Followers = slices.DeleteFunc(slices.Clone(a.Followers), func(m catalog.Member) bool { return !w.nodes[nodeIndex(m.Node)].up })
	}
	s, err := partition.SetOf(&a, ident.Queue)
	if err != nil {
		panic(err)
	}
	return []partition.Set{s}
}

// joint adds the set of the change that is under way.
func (n *node) joint(sets []partition.Set) []partition.Set {
	if n.change != nil && n.change.Over(n.heard.a.Version) {
		n.change = nil
	}
	for _, l := range n.lowered {
		if s, ok := partition.Lowered(l.W, sets[0], l.Below); ok {
			sets = append(sets, s)
		}
	}
	if n.change == nil {
		return sets
	}
	return append(sets, n.change.Set())
}

func (w *world) resets(n *node) {
	a := n.heard.a
	sets := w.sets(n)
	if w.x.fault != NoJoint {
		sets = n.joint(sets)
	}
	w.do(n, func(fx *partition.Effects) {
		n.copy.Assign(partition.Assignment{Epoch: a.Epoch, Role: partition.Owner, Starts: a.Starts, Sets: sets}, fx)
	})
}

func (w *world) setFeeds(n *node) {
	var next []feed
	var anew []int
	add := func(m catalog.Member, learner bool) {
		i := slices.IndexFunc(n.feeds, func(f feed) bool { return f.Node == m.Node && f.Store == m.Store })
		f := feed{learner: learner}
		if i >= 0 {
			f.Feed = n.feeds[i].Feed
		} else {
			f.Node, f.Store = m.Node, m.Store
			anew = append(anew, len(next))
		}
		next = append(next, f)
	}
	for _, m := range n.heard.a.Followers {
		add(m, false)
	}
	for _, m := range n.heard.a.Learners {
		add(m, true)
	}
	n.feeds = next
	for _, i := range anew {
		w.probe(n, &n.feeds[i])
	}
}

func (w *world) probe(n *node, f *feed) {
	if n.copy.Role() == partition.Owner && w.reaches(f) {
		w.send(n, f.Node, message{kind: probe, epoch: n.copy.Epoch()})
	}
}

func (w *world) reaches(f *feed) bool {
	peer := w.nodes[nodeIndex(f.Node)]
	return peer.up && peer.instance().Store == f.Store
}

func (n *node) follows() bool {
	role := n.copy.Role()
	return (role == partition.Follower || role == partition.Learner) && n.heard != nil && !n.copy.Applying()
}

func (w *world) probed(n *node, from int, m message) {
	if n.follows() && m.epoch == n.copy.Epoch() && n.heard.a.Owner == w.nodes[from].instance() {
		w.sayStanding(n)
	}
}

// saidDurable is how far a copy says that it holds its log durably.
func (w *world) saidDurable(n *node) uint64 {
	if w.x.fault == HeldBeforeSync {
		return n.copy.Tail().Position
	}
	return n.copy.Durable().Position
}

func (w *world) sayStanding(n *node) {
	n.saidHeld = w.saidDurable(n)
	w.send(n, n.heard.a.Owner.Node, message{kind: standing, epoch: n.copy.Epoch(), at: n.saidHeld, log: n.log})
}

func (w *world) feedOf(n *node, from int, m message) *feed {
	if n.copy.Role() != partition.Owner || m.epoch != n.copy.Epoch() {
		return nil
	}
	peer := w.nodes[from].instance()
	for i := range n.feeds {
		if f := &n.feeds[i]; f.Node == peer.Node && (f.Store == peer.Store || w.x.fault == WipedReports) {
			return f
		}
	}
	return nil
}

func (w *world) standing(n *node, from int, m message) {
	f := w.feedOf(n, from, m)
	if f == nil {
		return
	}
	f.Lose()
	if !n.copy.Returned(f.Store, m.epoch, m.at) {
		w.breaks("a follower that lost nothing came back shorter: %s", nodeName(from))
	}
	at := m.log.end()
	if n.copy.Locate(at) == partition.Beyond || n.log.at(at.Position).end().Link != at.Link {
		w.breaks("3: %s follows %s in epoch %d with another history: %s and %s", nodeName(from), nodeName(n.index), m.epoch, m.log, n.log)
		return
	}
	durable := m.at
	if w.x.spare() {
		durable = min(durable, f.Durable()) // more is a report
	}
	f.Stand(at.Position, durable)
	w.progressed(n, f)
	w.catchUp(n, f)
}

func (w *world) heldBy(n *node, from int, m message) {
	f := w.feedOf(n, from, m)
	if f == nil || !f.Standing() {
		return
	}
	f.Held(m.at)
	w.progressed(n, f)
	w.catchUp(n, f)
}

func (w *world) progressed(n *node, f *feed) {
	w.do(n, func(fx *partition.Effects) { n.copy.Progressed(f.Store, n.copy.Epoch(), f.Durable(), fx) })
}

// append has an owner append an entry and feed it.
func (w *world) append(n *node, mark bool, r record) {
	e := w.x.extend(n.log, n, mark, r)
	if err := n.copy.Propose(e.batch, e.link); err != nil {
		w.breaks("an owner cannot append: %v", err)
		return
	}
	n.log = e
	if w.x.bounds.Changes > 0 {
		n.needs = append(n.needs, uint8(n.w))
	}
	by := &w.ledger.wrote[n.copy.Epoch()]
	if *by != (run{}) && *by != n.run() {
		w.breaks("2: %s and %s append in epoch %d", *by, n.run(), n.copy.Epoch())
	}
	*by = n.run()
	for i := range n.feeds {
		if f := &n.feeds[i]; !w.x.bounds.Direct && f.Takes(e.batch.Position) {
			w.feed(n, f, 1)
		}
	}
}

// feed sends the last count batches of the log.
func (w *world) feed(n *node, f *feed, count int) {
	f.Sent(n.log.end().Position, int64(count), n.copy.Confirmed())
	w.send(n, f.Node, message{kind: extend, epoch: n.copy.Epoch(), at: n.copy.Confirmed(), log: n.log, count: count})
}

func (w *world) catchUp(n *node, f *feed) {
	if w.x.bounds.Direct {
		return
	}
	tail := n.copy.Tail().Position
	from, ok := f.Behind(tail)
	if !ok || !f.Read(from) {
		return
	}
	w.feed(n, f, int(tail-from))
}

func (w *world) extend(n *node, from int, m message) {
	stale := w.x.fault == StaleFrame && n.follows() && m.epoch < n.copy.Epoch()
	if !stale && (!n.follows() || m.epoch != n.copy.Epoch() || n.heard.a.Owner != w.nodes[from].instance()) {
		return
	}
	if stale {
		m.epoch, m.at = n.copy.Epoch(), 0
	}
	for i := m.count - 1; i >= 0; i-- {
		e := m.log.at(m.log.end().Position - uint64(i))
		if e.tail.Position <= n.copy.Tail().Position {
			continue
		}
		if err := n.copy.Follow(m.epoch, e.batch, e.link); err != nil {
			if errors.Is(err, partition.ErrGap) {
				w.sayStanding(n)
			}
			return
		}
		n.log = e
	}
	w.do(n, func(fx *partition.Effects) {
		if err := n.copy.Learn(m.epoch, m.at, fx); err != nil {
			w.breaks("a follower that follows does not learn: %v", err)
		}
	})
}

// flush says what gathered.
func (w *world) flush(n *node) {
	if n.copy.Role() == partition.Owner {
		w.admitLearners(n)
		for i := range n.feeds {
			if f := &n.feeds[i]; !w.x.bounds.Direct && f.Tells(n.copy.Confirmed()) {
				w.send(n, f.Node, message{kind: extend, epoch: n.copy.Epoch(), at: n.copy.Confirmed()})
			}
		}
		return
	}
	if at := w.saidDurable(n); n.follows() && at != n.saidHeld {
		n.saidHeld = at
		w.send(n, n.heard.a.Owner.Node, message{kind: held, epoch: n.copy.Epoch(), at: at})
	}
}

// seal takes a controller's question.
func (w *world) seal(n *node, r request) {
	// What another transition to the same epoch was answered counts for nothing any more.
	n.sealing = slices.DeleteFunc(n.sealing, func(o request) bool { return o.epoch == r.epoch })
	n.sealing = append(n.sealing, r)
	var err error
	w.do(n, func(fx *partition.Effects) { err = n.copy.Seal(r.epoch, fx) })
	if err != nil {
		n.sealing = n.sealing[:len(n.sealing)-1]
		w.tell("refuses %s: %v", r.id, err) // an answer that does not count
	}
	w.flush(n)
}

func (w *world) answerSeals(n *node) {
	for _, r := range n.sealing {
		a := control.Answer{
			Transition: r.id, Instance: n.instance(), Tail: n.copy.Durable(), Confirmed: n.copy.Confirmed(), Damaged: n.copy.Damaged(),
		}
		if w.x.spare() {
			a.Confirmed = 0
		}
		w.answer(n, a)
	}
	n.sealing = nil
}

// answer reaches the controllers, which keep what they ask for.
func (w *world) answer(n *node, a control.Answer) {
	w.tell("answers %s: %d, confirmed %d", a.Transition, a.Tail.Position, a.Confirmed)
	if p := w.cat.v.a.Pending; p != nil && p.ID == a.Transition && !w.answered(n) {
		before := w.answers[n.index]
		if w.x.spare() && len(before) > 0 && before[0].Instance.Store == a.Instance.Store && before[0].Tail == a.Tail {
			before = before[1:]
		}
		w.answers[n.index] = append([]control.Answer{a}, before...)
	}
}

// repeat has copies answer at once, with Bounds.Lazy, that have promised the epoch of the pending transition to another one.
func (w *world) repeat() {
	p := w.cat.v.a.Pending
	if p == nil || !w.x.spare() || !w.x.bounds.Overlap {
		return
	}
	for i, n := range w.nodes {
		if c := &n.copy; n.up && w.askable(n) && c.Promise() == p.Epoch && c.Epoch() < p.Epoch && !c.Applying() && c.Role() != partition.Owner {
			w.seal(w.mine(i), request{p.Epoch, p.ID})
		}
	}
}

// answered reports whether a run of a node has answered a seal of the pending transition. What it says again is the same.
func (w *world) answered(n *node) bool {
	x := w.answers[n.index]
	return len(x) > 0 && x[0].Instance == n.instance()
}

// input is what there is to choose by, if some nodes have answered.
func (w *world) input(of uint8, tie int) control.Input {
	a := *w.cat.v.a
	a.Partition = w.x.ties[tie]
	if w.x.fault == RawTail {
		a.Starts = nil
	}
	in := control.Input{Assignment: &a, W: wOf(&a, a.Eligible()), Links: map[uint64]batch.Link{}}
	if w.x.fault == StartIsFloor && len(a.Starts) > 0 {
		in.Floor = a.Starts[len(a.Starts)-1].Position
	}
	for i, x := range w.answers {
		back := int(of >> (2 * i) & 3)
		if back == 0 {
			continue
		}
		y := x[back-1]
		if w.x.fault == WipedCounts {
			y.Instance.Store = storeID(i, 0)
		}
		in.Answers = append(in.Answers, y)
	}
	return in
}

// choose has the controller choose by the answers of some nodes.
func (w *world) choose(of uint8, tie int) control.Decision {
	in := w.input(of, tie)
	d := control.Choose(in)
	if d.Verdict != control.Ask {
		return d
	}
	in.Said = d.Owner // it may have said so when it answered the seal
	w.links(&in, d.Owner, d.Positions)
	return control.Choose(in)
}
