package explore

import "github.com/tanist/tanist/internal/core/partition"

// What an owner and another copy say to each other, with Bounds.Direct: each message is taken in the step that sends it, and nothing is on
// its way. Every schedule of messages that wait in queues has one of these that comes to the same disks, logs, roles, promises, confirmed
// positions and catalog. The reasons, message by message; o is the owner, c the other copy, both in epoch e.
//
//   - A batch is sent at s and taken at t. Whatever c does between does not depend on it and is not changed by it (it syncs what it has), or
//     ends c's part in e (it promises more, it ends): then the batch is never taken. So it may be taken at s already. What o does between
//     concerns o alone. A batch with the confirmed position is the batch, and then the position.
//   - The confirmed position, told at s and taken at t: the same.
//   - A copy says at s how far it is durable, and o takes it at t. Between, o appends, syncs, and hears of the third copy: in each order the
//     same is confirmed at last, and o is in between where it would be had the report come at s. Or o ends its part in e: then nothing comes of
//     it. What o tells others between may say more than it did; here the position is told apart from batches, so it may be told less too.
//   - A copy says at s where its log ends, for the first time in e. Its log does not change before o has taken that, for o alone feeds it. So it may be
//     said at t. What it says again, after a lost session, rewinds what o feeds it, and no more.
//   - Lost sessions lose what was on its way: here it was not sent.
//
// Further, a copy reports only what lets o confirm more at once, where no copy learns. What is reported earlier, o waits for its own sync; that sync
// may be taken before the report, for nothing that the reporter or a third copy does meanwhile changes it, and o's own steps keep their order. And
// reading where a log is to be cut is done in the step that asks for it: until the cut is begun nothing durable is changed, and a seal that comes
// between is taken in the same way while the cut is made durable.
//
// What queues add, then, is the handling of the messages themselves: ones that cross, repeat or come late. Searches with queues are for that, within
// smaller bounds; TestReductions finds that both come to the same there.

// talks are the steps that an owner and its other copies may take with each other.
func (w *world) talks(out []Action) []Action {
	for i, n := range w.nodes {
		if !n.up || n.copy.Role() != partition.Owner {
			continue
		}
		for k := range n.feeds {
			j := nodeIndex(n.feeds[k].Node)
			a := Action{A: uint8(i), B: uint8(j)}
			for a.Kind = Stand; a.Kind <= Report; a.Kind++ {
				if a.C = 0; w.talk(i, j, a.Kind, 0) != nil {
					out = append(out, a)
				}
			}
			for a.Kind, a.C = Report, 1; w.x.bounds.Lazy && uint64(a.C) <= n.log.end().Position; a.C++ {
				if w.talk(i, j, Report, uint64(a.C)) != nil {
					out = append(out, a)
				}
			}
		}
	}
	return out
}

// talk is the step of an owner with another copy, nil where there is none. Of a report upTo is what C of an Action is.
func (w *world) talk(of, with int, kind Kind, upTo uint64) func() {
	o, c := w.nodes[of], w.nodes[with]
	if !w.x.bounds.Direct || !o.up || !c.up || c.copy.Importing() || o.copy.Role() != partition.Owner || !c.follows() ||
		c.copy.Epoch() != o.copy.Epoch() || c.heard.a.Owner != o.instance() {
		return nil
	}
	f := w.feedOf(o, with, message{epoch: o.copy.Epoch()})
	lazy := w.x.bounds.Lazy
	switch {
	case f == nil, lazy && (kind == Stand || kind == Tell), !lazy && kind != Stand && !f.Standing():
		return nil
	case kind == Stand && !f.Standing():
		return func() { w.stand(of, with) }
	case kind == Feed && (f.Standing() && f.Next() < o.log.end().Position || !f.Standing() && c.log.end().Position < o.log.end().Position):
		return func() { w.feedNext(of, with) }
	case kind == Tell && min(o.copy.Confirmed(), c.copy.Tail().Position) > c.copy.Confirmed():
		return func() {
			c := w.mine(with)
			w.extend(c, of, message{kind: extend, epoch: o.copy.Epoch(), at: o.copy.Confirmed()})
			w.flush(c)
		}
	case kind == Report && lazy && w.reportable(o, c, f, upTo):
		return func() { w.reportLazily(of, with, upTo) }
	case kind == Report && !lazy && w.saidDurable(c) > f.Durable() && (w.learns(o) || o.wants(w.saidDurable(c), o.copy.Durable().Position)):
		return func() { w.report(of, with) }
	}
	return nil
}

// stand has an owner hear where the log of a copy ends.
func (w *world) stand(of, with int) {
	o, c := w.mine(of), w.nodes[with]
	w.standing(o, with, message{kind: standing, epoch: o.copy.Epoch(), at: w.saidDurable(c), log: c.log})
	w.flush(o)
}

// report has an owner hear what a copy holds durably.
func (w *world) report(of, with int) {
	o, c := w.mine(of), w.nodes[with]
	w.heldBy(o, with, message{kind: held, epoch: o.copy.Epoch(), at: w.saidDurable(c)})
	w.flush(o)
}

// feedNext gives a copy the next batch.
func (w *world) feedNext(of, with int) {
	o, c := w.mine(of), w.mine(with)
	if f := w.feedOf(o, with, message{epoch: o.copy.Epoch()}); !f.Standing() {
		w.stand(of, with)
	}
	f := w.feedOf(o, with, message{epoch: o.copy.Epoch()})
	from, ok := f.Behind(o.log.end().Position)
	if !ok || !f.Read(from) {
		panic("explore: a copy that is behind cannot be fed")
	}
	f.Sent(from+1, 1, 0)
	w.extend(c, of, message{kind: extend, epoch: o.copy.Epoch(), log: o.log.at(from + 1), count: 1})
	w.flush(c)
}

// learns reports whether the copies or the policy of an owner's partition are to change: then it wants to hear everything.
func (w *world) learns(n *node) bool {
	if a := n.heard.a; len(a.Leaving) > 0 || a.Eligible() > w.cat.wishes.Copies || w.wishesPolicy(a) {
		return true
	}
	for i := range n.feeds {
		if n.feeds[i].learner {
			return true
		}
	}
	return n.change != nil
}

// wants reports whether an owner that holds its own log durably so far confirms more by what another copy holds.
func (n *node) wants(holds, own uint64) bool {
	at := min(holds, own)
	return at > n.copy.Confirmed() && at >= n.copy.Floor()
}

// settleDirect has everything said that there is to say. It reports whether there was anything.
func (w *world) settleDirect() bool {
	moved := false
	for _, a := range w.talks(nil) {
		if do := w.talk(int(a.A), int(a.B), a.Kind, uint64(a.C)); do != nil {
			do()
			moved = true
		}
	}
	return moved
}
