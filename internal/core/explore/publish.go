package explore

import (
	"github.com/tanist/tanist/internal/core/partition"
)

// gateway is one client's work, with Bounds.Publishes: messages 1, 2, … under the numbers 1, 2, …, to whoever owns, and again to the next
// owner what is not resolved (design 2 §2). Core/partition judges the numbers.
type gateway struct {
	to       run    // whose stream is open
	epoch    uint64 // of that owner
	next     uint8  // number to send
	sent     uint8  // the highest number that was ever sent
	resolved uint8  // numbers up to it were confirmed
	swapped  uint8  // with ResendOutOfOrder: this number and the one before carry each other's messages
}

const theProducer = 1

// message is what the gateway sends under a number.
func (g *gateway) message(number uint8) uint8 {
	switch {
	case g.swapped == 0:
	case number == g.swapped:
		return number - 1
	case number == g.swapped-1:
		return number + 1
	}
	return number
}

// open reports whether the gateway's stream is to an owner that serves.
func (w *world) open(n *node) bool {
	return n.up && n.copy.Serving() && w.gateway.to == n.run() && w.gateway.epoch == n.copy.Epoch()
}

// attach opens a stream to an owner, and sends again from what is not resolved.
func (w *world) attach(i int) bool {
	n := w.nodes[i]
	if w.x.bounds.Publishes == 0 || !n.up || !n.copy.Serving() || w.open(n) {
		return false
	}
	g := &w.gateway
	g.to, g.epoch, g.next = n.run(), n.copy.Epoch(), g.resolved+1
	if w.x.fault == ResendOutOfOrder && g.sent >= g.resolved+2 {
		g.swapped = g.resolved + 2
	}
	return true
}

// publish sends the next number, and the owner takes it.
func (w *world) publish(i int) bool {
	g := &w.gateway
	if n := w.nodes[i]; !w.open(n) || int(g.next) > w.x.bounds.Publishes {
		return false
	}
	n := w.mine(i)
	t := n.log.producers()
	s := partition.NewSource(&t, theProducer, uint64(g.resolved)+1)
	repeated, ok := s.Admit(uint64(g.next), 1)
	switch {
	case !ok:
		w.tell("refused: want %d", s.Expect())
		g.next = uint8(s.Expect())
		return true
	case repeated == 0:
		w.append(n, false, record{g.message(g.next), g.next})
	default:
		w.tell("taken before")
	}
	g.sent = max(g.sent, g.next)
	g.next++
	w.flush(n)
	return true
}

// confirmTo has an owner confirm to the gateway what it has sent on its stream.
func (w *world) confirmTo() {
	g := &w.gateway
	for _, n := range w.nodes {
		if w.x.bounds.Publishes == 0 || !w.open(n) {
			continue
		}
		t := n.log.producers()
		for g.resolved+1 < g.next {
			v, at := t.Judge(theProducer, uint64(g.resolved)+1)
			if v != partition.Duplicate || at > n.copy.Confirmed() {
				break
			}
			g.resolved++
		}
		if g.swapped > 0 && g.resolved >= g.swapped {
			g.swapped = 0
		}
	}
}

// checkPublishes holds what the gateway was told, and the order of what is confirmed, against the log.
func (w *world) checkPublishes() {
	last := uint8(0)
	for _, m := range w.ledger.tip.messages(nil) {
		if m != last+1 {
			w.breaks("7: message %d is confirmed after message %d", m, last)
		}
		last = m
	}
	if w.gateway.resolved > last {
		w.breaks("7: message %d was confirmed to its publisher, and is not in the log", w.gateway.resolved)
	}
}

// producers is the table that is rebuilt from a log.
func (e *entry) producers() partition.Producers {
	var t partition.Producers
	var of []*entry
	for ; e != nil; e = e.before {
		of = append(of, e)
	}
	for i := len(of) - 1; i >= 0; i-- {
		t.Stage(of[i].batch.Run(0), of[i].tail.Position)
	}
	return t
}

// messages are those of a log, oldest first.
func (e *entry) messages(out []uint8) []uint8 {
	if e == nil {
		return out
	}
	if out = e.before.messages(out); e.record.message > 0 {
		out = append(out, e.record.message)
	}
	return out
}
