package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/partition"
)

// advanced checks what a copy takes as confirmed.
func (w *world) advanced(n *node, position uint64) {
	e := n.log.at(position)
	if n.copy.Role() != partition.Owner {
		if !w.ledger.tip.extends(e) {
			w.breaks("4: %s takes %d as confirmed, and it is not: %s", nodeName(n.index), position, n.log)
		}
		return
	}
	w.tell("confirms %d", position)
	epoch := n.copy.Epoch()
	if by := w.ledger.by[epoch]; by != (run{}) && by != n.run() {
		w.breaks("2: %s and %s confirm in epoch %d", by, n.run(), epoch)
	}
	w.ledger.by[epoch] = n.run()
	tip := w.ledger.tip
	switch {
	case e.extends(tip):
		w.ledger.tip, w.ledger.epoch = e, max(epoch, w.ledger.epoch)
	case !tip.extends(e):
		w.breaks("1: %s of epoch %d confirms %s, and %s is confirmed", nodeName(n.index), epoch, e, tip)
	}
	w.enough(n.heard.a, e, epoch)
	if now := w.cat.v.a; now.Epoch == epoch {
		w.enough(now, e, epoch)
	}
	if w.x.bounds.Changes > 0 {
		w.asAdmitted(n, e, tip)
	}
}

// enough checks that W of an assignment's copies hold what was confirmed, durably.
func (w *world) enough(a *catalog.Assignment, e *entry, epoch uint64) {
	if got, want := w.holders(a, e), wOf(a, a.Eligible()); got < want {
		w.breaks("%d is confirmed in epoch %d, and %d of %d copies hold it durably", e.end().Position, epoch, got, want)
	}
}

// holders counts the admitted copies that hold a log durably, or did when their store was lost.
func (w *world) holders(a *catalog.Assignment, e *entry) int {
	got := 0
	for _, n := range w.nodes {
		if a.Member(n.instance().Store) && n.disk.log.extends(e) {
			got++
		}
	}
	for _, l := range w.lost {
		if a.Member(l.store) && l.log.extends(e) {
			got++
		}
	}
	return got
}

// check looks at the whole state.
func (w *world) check() {
	tip := w.ledger.tip
	w.checkPublishes()
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		c := &n.copy
		if c.Damaged() != "" {
			w.breaks("%s is damaged, and nothing was: %s", nodeName(n.index), c.Damaged())
		}
		if e := n.log.at(c.Confirmed()); !w.givenUp(n) && e.end().Position != c.Confirmed() || !tip.extends(e) {
			w.breaks("3: %s has confirmed up to %d, and its log is %s", nodeName(n.index), c.Confirmed(), n.log)
		}
		applied := c.Role() == partition.Owner || c.Role() == partition.Follower || c.Role() == partition.Learner
		if applied && c.Epoch() >= w.ledger.epoch && !n.log.extends(tip) && !tip.extends(n.log) {
			w.breaks("3: %s of epoch %d has the log %s, and %s is confirmed", nodeName(n.index), c.Epoch(), n.log, tip)
		}
		if c.Role() == partition.Owner && c.Epoch() > w.ledger.epoch && !n.log.extends(tip) {
			w.breaks("1: %s owns epoch %d with the log %s, and %s is confirmed", nodeName(n.index), c.Epoch(), n.log, tip)
		}
	}
	a := w.cat.v.a
	for i, x := range w.answers {
		if n := w.nodes[i]; len(x) > 0 && x[0].Instance.Store == n.instance().Store && n.disk.promise < a.Pending.Epoch {
			w.breaks("5: %s has answered the seal of epoch %d, and its promise is %d", nodeName(i), a.Pending.Epoch, n.disk.promise)
		}
	}
	if got, want := w.holders(a, tip), wOf(a, a.Eligible()); got < want {
		w.breaks("1: %s is confirmed, and %d of %d admitted copies hold it", tip, got, want)
	}
}

// givenUp reports whether a copy may know to be confirmed what an accepted loss gave up: it has not heard of that loss.
func (w *world) givenUp(n *node) bool { return n.copy.Epoch() < w.ledger.loss }

// checkChoice checks a new owner against all that is known: it holds what is confirmed, and was chosen by enough.
func (w *world) checkChoice(d *control.Decision) {
	if d.Start.Position < w.ledger.tip.end().Position {
		w.breaks("5: %s is chosen from %d, and %s is confirmed", d.Owner.Node, d.Start.Position, w.ledger.tip)
	}
	if e := w.x.byLink[d.Start.Link]; !e.extends(w.ledger.tip) {
		w.breaks("5: %s is chosen with %s, and %s is confirmed", d.Owner.Node, e, w.ledger.tip)
	}
}

// bound reports whether a step that is possible is bound to be taken at last, whatever else happens.
func (w *world) bound(a Action) bool {
	switch a.Kind {
	case Sync, Deliver, Restart, Import, Choose, Apply, Grow, Decide, Attach, Publish, Stand, Feed, Tell, Report, Seal:
		return true
	case Record:
		return w.needed()
	}
	return false
}

// needed reports whether there is a reason for a transition that is bound to be found.
func (w *world) needed() bool { return w.reason(false).Why != control.NoReason }

// rests reports whether nothing is bound to happen.
func (w *world) rests() bool {
	for _, a := range w.actions() {
		if w.bound(a) && w.take(a) != nil {
			return false
		}
	}
	return true
}

// unfinished says what a cluster at rest has not come to: all nodes run then, and no session is lost. Where a store was lost that had
// been admitted, a transition may wait for it; and one that would exceed the bounds does not begin.
func (w *world) unfinished() string {
	a := w.cat.v.a
	switch {
	case a.Pending != nil && w.answerable(a):
		return "a transition is pending, and enough copies have answered"
	case a.Pending != nil, a.Epoch >= w.x.bounds.Epochs && w.needed():
		return ""
	case a.Eligible() != min(w.cat.wishes.Copies, Nodes) || len(a.Learners) > 0:
		return fmt.Sprintf("%d copies are admitted, and %d learn", a.Eligible(), len(a.Learners))
	case len(a.Leaving) > 0, a.Policy != w.cat.wishes.Policy:
		return fmt.Sprintf("%d copies are to leave, and the policy is %s", len(a.Leaving), a.Policy)
	}
	owner := w.nodes[nodeIndex(a.Owner.Node)]
	if !owner.copy.Serving() || owner.copy.Epoch() != a.Epoch {
		return "the owner does not serve"
	}
	for _, n := range w.nodes {
		known := w.x.bounds.Lazy || n.disk.log == owner.log && n.copy.Confirmed() == owner.copy.Confirmed()
		if a.Member(n.instance().Store) && (n.log != owner.log || !known) {
			return fmt.Sprintf("%s has the log %s, confirmed to %d", nodeName(n.index), n.log, n.copy.Confirmed())
		}
	}
	if owner.copy.Confirmed() != owner.log.end().Position {
		return "not all is confirmed"
	}
	return ""
}

// answerable reports whether enough of an assignment's stores are left to choose an owner by, one with all that is confirmed among them.
func (w *world) answerable(a *catalog.Assignment) bool {
	left, holds := 0, false
	for _, n := range w.nodes {
		if a.Member(n.instance().Store) && !n.disk.importing {
			left++
			holds = holds || n.disk.log.extends(w.ledger.tip)
		}
	}
	return holds && left >= a.Eligible()-wOf(a, a.Eligible())+1
}

// show counts what a state shows.
func (w *world) show(seen map[string]int) {
	a := w.cat.v.a
	if a.Pending == nil {
		for _, n := range w.nodes {
			if n.up && n.copy.Serving() && a.Owner == n.instance() && n.copy.Epoch() == a.Epoch {
				seen[fmt.Sprintf("serves in epoch %d", a.Epoch)]++
			}
		}
	}
	seen[fmt.Sprintf("%d copies admitted", a.Eligible())]++
	if slices.ContainsFunc(w.nodes[:], func(n *node) bool { return n.disk.importing }) {
		seen["an image not whole"]++
	}
	if w.ledger.loss > 0 {
		seen["a loss accepted"]++
	}
	if w.x.bounds.Changes > 0 {
		seen[fmt.Sprintf("%s, %d leave", a.Policy, len(a.Leaving))]++
	}
	for _, f := range a.Followers {
		if nodeIndex(f.Node) >= w.x.bounds.Copies {
			seen["a learner admitted"]++
		}
		if f.Store[1] > 1 {
			seen["a new store admitted"]++
		}
	}
	for _, p := range w.proposals {
		switch {
		case w.concerns(&p):
			seen["joint"]++
		case !w.moot(&p):
			seen["a proposal whose owner is gone"]++
		}
	}
	seen[fmt.Sprintf("confirmed %d", w.ledger.tip.end().Position)]++
}

// describe is the state for people.
func (w *world) describe() string {
	var b strings.Builder
	a := w.cat.v.a
	fmt.Fprintf(&b, "epoch %d, owner %s", a.Epoch, a.Owner.Node)
	if a.Pending != nil {
		fmt.Fprintf(&b, ", epoch %d pending", a.Pending.Epoch)
	}
	fmt.Fprintf(&b, ", confirmed %s\n", w.ledger.tip)
	for _, n := range w.nodes {
		if !n.up {
			fmt.Fprintf(&b, "%s: down, log %s\n", nodeName(n.index), n.disk.log)
			continue
		}
		fmt.Fprintf(&b, "%s: %s of epoch %d, promise %d, log %s, durable to %d, confirmed to %d\n", nodeName(n.index), n.copy.Role(),
			n.copy.Epoch(), n.copy.Promise(), n.log, n.copy.Durable().Position, n.copy.Confirmed())
	}
	return b.String()
}
