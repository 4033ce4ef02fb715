package explore

// What becomes durable when, with Bounds.Lazy, and what is left out.
//
//   - A batch that was written becomes durable when something depends on that: before it is reported, which the owner's own sync of it goes along
//     with; before a promise or a role, which stand behind it in the journal; or before a crash, after which any number of the batches that were
//     on their way may be there. A sync that nothing depended on yet can be taken later: it changes its own node alone, and no step of another
//     node or of the catalog asks for it. With the owner's own sync no more is confirmed than by a report, as long as W is above 1.
//   - A promise becomes durable in the step that asks for it, and with it the batches before it in the journal. The copy obeys nobody below it
//     from that step on either way, and if it ends before, what it said of the promise was nothing: then it may as well have ended before the step.
//   - So do a cut and a role that is not the owner's: the whole of what an assignment asks of a follower is done in the step that hears of it. A
//     seal that comes in between finds the log as it is before that step, or after it; which role the disk has then decides nothing, for the promise is
//     above both. A copy that ends in between hears of the same assignment when it comes back.
//   - No seal comes to a copy after its transition was committed. It could as well have come before: the copy does not know of the commit, and its
//     answer is none that was chosen by. Whom it follows in the old epoch feeds it before the commit, too.
//   - A copy says where its log ends in the step in which it is fed or reports for the first time. Nothing else comes of it: what it says then of
//     how far it is durable is a report like any other, which may come to nothing, and is a step where it does not (standing).
//   - Once as many nodes have ended as may, what is written is durable at once. It can be lost no more, and whoever looks at it later, a report, a
//     promise or a role, finds it durable or makes it so first. A copy then reports its whole log: a report of less came before it was fed the rest,
//     for in between nothing else can have happened to the two that a report outlives.
//   - Other copies are not told what is confirmed, and there are no snapshots, which hold no more than that. What a copy knows of it has a part in
//     three decisions: no owner is chosen below it, no log is cut below it, and an owner confirms nothing below it. Each would be a broken rule
//     with or without that knowledge, because every choice, cut and confirm is held against all that was ever confirmed (checkChoice, drop,
//     advanced). So, as long as no rule is broken, it changes nothing.
//
// TestReductions finds that both come to the same.
//
// So what a copy knows to be confirmed is no part of a lazy state but in an owner that serves, and answers to seals do not tell it. Nor are:
//
//   - what an owner has heard of another copy below its floor: it neither confirms more nor is evidence for a change, and what that copy reports
//     next is above it. How far an owner has fed a copy is where that copy's log ends, while it follows;
//   - the role that a disk has below its promise: after a crash the copy is sealed, whichever it was, and obeys no owner below the promise. The epoch
//     of a sealed copy's last role, and the one that an earlier run owned: what they would refuse, the promise refuses already;
//   - an answer of an earlier run where the same store has answered again with the same log: it chooses as the new one does, or an instance that is
//     gone, which the catalog refuses.
//
// And a copy that has promised the epoch of the pending transition to another one answers the new one's seal at once, where two controllers may
// act: it changes nothing but that there is one more answer, and a choice goes by any of those that were given (repeat).
//
// TestNothingIsMissed finds that this leaves out nothing, and TestEqualKeysBehaveAlike that states which are taken as one go on as one.

// spare reports whether what decides nothing in a lazy search is left out.
func (x *explorer) spare() bool { return x.bounds.Lazy && !x.plain }

// pressed reports whether a node's writes are to become durable in steps: a cut or a role waits behind them.
func (n *node) pressed() bool {
	return n.step != nil || n.copy.Applying() || len(n.sealing) > 0
}

// promise makes durable what a node promises, and all that it has written before.
func (w *world) promise(n *node) {
	for n.copy.InFlight() > 0 {
		w.durable(n)
	}
	w.durable(n)
}

// hasten makes durable at once what was written, where no node will end any more.
func (w *world) hasten() {
	if !w.x.spare() || int(w.used.crashes) < w.x.bounds.Crashes {
		return
	}
	for i, n := range w.nodes {
		for n.up && n.copy.InFlight() > 0 {
			n = w.mine(i)
			w.durable(n)
		}
	}
}

// crashes are the ways in which a node may end.
func (w *world) crashes(n *node) []Action {
	out := []Action{{Kind: Crash, A: uint8(n.index)}}
	for k := 1; w.x.bounds.Lazy && !n.pressed() && k <= n.copy.InFlight(); k++ {
		out = append(out, Action{Kind: Crash, A: uint8(n.index), C: uint8(k)})
	}
	return out
}

// reportable reports whether a copy may report that it is durable up to a position, and anything comes of it.
func (w *world) reportable(o, c *node, f *feed, upTo uint64) bool {
	if upTo < c.copy.Durable().Position || upTo > c.log.end().Position || o.pressed() {
		return false
	}
	if !w.x.spare() {
		known := uint64(0)
		if f.Standing() {
			known = f.Durable()
		}
		return upTo > known && (w.learns(o) || o.wants(upTo, max(upTo, o.copy.Durable().Position)))
	}
	known := f.Durable()
	if f.learner && !f.Standing() {
		known = 0 // while it is not fed, what it said counts for nothing
	}
	return upTo > known && (w.learns(o) && upTo >= o.copy.Floor() || o.wants(upTo, max(upTo, o.copy.Durable().Position)))
}

// reportLazily makes what is reported durable on both, and reports it.
func (w *world) reportLazily(of, with int, upTo uint64) {
	o, c := w.mine(of), w.mine(with)
	for o.copy.Durable().Position < min(upTo, o.log.end().Position) {
		w.durable(o)
	}
	for w.x.fault != HeldBeforeSync && c.copy.Durable().Position < upTo {
		w.durable(c)
	}
	if f := w.feedOf(o, with, message{epoch: o.copy.Epoch()}); !f.Standing() {
		w.stand(of, with)
	}
	w.report(of, with)
}
