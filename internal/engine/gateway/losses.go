package gateway

import (
	"log/slog"
	"slices"

	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// lostHeld is why a consumer ends that holds messages which are gone: what its client said of them later would be taken for the messages that
// get their offsets.
const lostHeld = "messages that it held were given up with the copies that had them (an accepted loss)"

// lose forgets what lay from an offset on: a loss was accepted (design 2 §8), and those offsets are given anew. Readers of a stream go on from
// there; consumers of a queue that hold such messages end.
func (a *attachment) lose(from uint64) {
	trace.Warn(a.sh.env.Trace, "gateway.lost", slog.String("partition", a.p.String()), slog.Uint64("from", from))
	a.settles.cut(from)
	for _, c := range slices.Clone(a.consumers) {
		lost := c.held.cut(from)
		switch {
		case c.reader != nil:
			c.leaveNear()
			c.reader.cut(from)
		case lost && c.state != cancelling:
			i, _ := a.consumer(c.id)
			a.consumers = slices.Delete(a.consumers, i, i+1)
			c.ended(lostHeld)
		}
	}
	for _, h := range a.holders { // of consumers that have ended, and of what was fetched one at a time
		h.held.cut(from)
	}
}

// cut lets go of what was read from an offset on.
func (r *reader) cut(from uint64) {
	if r.end() <= from {
		return
	}
	r.drop()
	r.next, r.cursor = min(r.next, from), min(r.cursor, from)
	if r.pinned = r.pinned && r.unread < from; !r.pinned {
		r.unread = 0
	}
}

// cut takes out what lies from an offset on, and reports whether there was any.
func (h *held) cut(from uint64) bool {
	i := h.find(from)
	gone := 0
	for _, v := range h.offs[i:] {
		gone += int(1 - v&1)
	}
	h.offs = h.offs[:i]
	h.live -= gone
	return gone > 0
}

// cut takes out what was said of deliveries from an offset on. The messages stay, for their numbers.
func (s *settles) cut(from uint64) {
	short := func(items []protocol.SettleItem) []protocol.SettleItem {
		out := make([]protocol.SettleItem, 0, len(items)) // not nil, which would make a cursor's move of it
		for _, x := range items {
			if x.First < from {
				x.Last = min(x.Last, from-1)
				out = append(out, x)
			}
		}
		return out
	}
	s.open = short(s.open)
	for i := range s.kept {
		if m := &s.kept[i]; m.items != nil {
			m.items = short(m.items)
		} else {
			m.cursor.offset = min(m.cursor.offset, from)
		}
	}
	for i := range s.cursors {
		s.cursors[i].offset = min(s.cursors[i].offset, from)
	}
}
