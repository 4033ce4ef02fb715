package control

import (
	"slices"
	"time"
)

// Tick says what has changed since the last one, by name of node, and when to call it again even if nothing happens; no such time is
// given (ok is false) where time alone will change nothing. Call it after inputs that belong together, and at that time.
func (d *Detector) Tick(now time.Duration) (found []Finding, wake time.Duration, ok bool) {
	d.arrive(now)
	d.waits = false
	for _, n := range d.nodes {
		found = append(found, n.ended...)
		n.ended = nil
		s, suspect := d.judge(n, now)
		switch {
		case suspect && n.present == nil:
			n.present = &s // the first symptom stays: it is what was decided on
			found = append(found, Finding{Suspected, s})
		case !suspect && n.present != nil:
			found = append(found, Finding{Cleared, *n.present})
			n.present = nil
		}
	}
	if d.waits {
		d.wake = min(d.wake, now+d.limits.LivenessTTL/3) // however late the next time may be: so that it sees when it could not run itself
	}
	return found, d.wake, d.waits
}

// arrive looks whether the controller itself could run. If it was woken much later than it asked for, it cannot tell the others'
// silence from its own: what they said may wait to be read. So each is given TakeoverGrace from now on, once for one silence, lest a
// controller that is always late suspect nobody.
func (d *Detector) arrive(now time.Duration) {
	if !d.waits || now < d.wake+d.limits.EagerGrace {
		return
	}
	d.waits = false
	for _, n := range d.nodes {
		if n.present != nil || n.excused {
			continue
		}
		n.excused, n.excuse = true, now+d.limits.TakeoverGrace
	}
}

// due reports whether a time has come, and asks to be woken at it if not.
func (d *Detector) due(t, now time.Duration) bool {
	if now >= t {
		return true
	}
	if !d.waits || t < d.wake {
		d.wake, d.waits = t, true
	}
	return false
}

// judge applies the rules to one node.
//
// A peer that still reaches the run vetoes what is eager (Gone, Broken) and what is a guess (Unheard): a path may be broken where the
// process is not, and a firewall may refuse in its name. It vetoes no liveness expiry. A stopped process keeps its connections: its
// peers reach it in their own opinion for as long as their keep-alive lasts, and a half-dead one for ever; whoever cannot be heard by
// the controller cannot be told anything by it either, nor have a lease renewed. So a veto delays a suspicion until the expiry, and no
// longer, whoever says what. Nor does it veto what the node says of itself, or that a later run exists.
func (d *Detector) judge(n *watched, now time.Duration) (Suspicion, bool) {
	self := n.run.Node == d.self
	silent := !self && n.ever && d.due(d.silence(n), now)
	found := func(why Symptom, since time.Duration, by ...string) (Suspicion, bool) {
		return Suspicion{Node: n.run, Symptom: why, By: by, Since: since}, true
	}
	if n.later > n.run.Boot {
		return found(Rebooted, n.seen, slices.Clone(n.seenBy)...)
	}
	if why, sick := d.limits.storageFault(n.beat); sick {
		s, _ := found(why, n.fault, n.run.Node)
		s.Detail = n.beat.Health
		return s, true
	}
	if self {
		return Suspicion{}, false
	}
	reached := n.own.up && n.own.run == n.run
	for _, s := range n.reports {
		reached = reached || s.up && s.run == n.run && d.speaks(s.by, now)
	}
	if !reached {
		if by, since := d.saying(n, Refused, now); len(by) > 0 {
			return found(Gone, since, by...)
		}
		if by, since := d.saying(n, Reset, now); len(by) > 0 && d.due(since+d.limits.EagerGrace, now) {
			return found(Broken, since, by...)
		}
	}
	if silent {
		return found(Expired, n.heard, d.self)
	}
	if n.ever {
		return Suspicion{}, false
	}
	patience := n.patience
	if reached {
		patience = max(patience, d.limits.LivenessTTL)
	}
	if d.due(max(n.awaited+patience, n.excuse), now) {
		return found(Unheard, n.awaited, d.self)
	}
	return Suspicion{}, false
}

// speaks reports whether what a node said of others still counts: its registered run has a session with the controller and was heard.
// Whether it is suspected for something else does not matter, so no node's word depends on another's.
func (d *Detector) speaks(node string, now time.Duration) bool {
	n := d.find(node)
	return n != nil && n.own.up && n.own.run == n.run && n.ever && now < d.silence(n)
}

// silence is when a node that was heard will have been silent for too long.
func (d *Detector) silence(n *watched) time.Duration {
	if !n.excused {
		return n.heard + d.limits.LivenessTTL
	}
	return max(n.heard+d.limits.LivenessTTL, n.excuse)
}

// saying is who says of a node that its sessions ended so, by name, and since when: the first of them did, and nobody reached it any more.
func (d *Detector) saying(n *watched, e Ending, now time.Duration) (by []string, since time.Duration) {
	var reached time.Duration
	ever := false
	add := func(s sight) {
		if s.was && (!ever || s.until > reached) {
			reached, ever = s.until, true
		}
		if s.up || s.ending != e {
			return
		}
		if len(by) == 0 || s.since < since {
			since = s.since
		}
		by = append(by, s.by)
	}
	add(n.own)
	for _, s := range n.reports {
		if d.speaks(s.by, now) {
			add(s)
		}
	}
	if ever {
		since = max(since, reached)
	}
	slices.Sort(by)
	return by, since
}

// Cooling is the health of a node whose store closed itself in an earlier run, and has not gone on for ReadmitCooldown since.
const Cooling = "cooling"

// Cools reports whether a node says that its store is one that closed itself not long ago: it owns nothing that another can.
func (b Beat) Cools() bool { return b.Health == Cooling }

// Full reports whether a node says that its disk has no room: it may go on to own and to follow, but no other copy is to come to it.
func (b Beat) Full() bool { return b.Health == "full" }

// storageFault says whether a node's own word of its storage makes it unable to own. Classes that pass or block publishers only are no
// reason, and neither is a damaged copy: that one copy answers for itself (design 2 §10).
func (l Limits) storageFault(b Beat) (Symptom, bool) {
	switch {
	case b.Closed, b.Health == "uncertain", b.Health == "permission":
		return Unsynced, true
	case b.Stalled >= l.StallLimit:
		return Stalled, true
	}
	return 0, false
}
