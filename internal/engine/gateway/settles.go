package gateway

import (
	"slices"

	"github.com/tanist/tanist/internal/core/protocol"
)

// settles are what clients said of deliveries of one partition, and the moves of cursors: gathered until the shard flushes, kept and
// sent again on every new stream until the owner has confirmed them.
type settles struct {
	open    []protocol.SettleItem
	cursors []cursorMove // not sent yet
	kept    []settleMessage
	seq     uint64
	back    uint64 // the last message that gives something back to its place
}

type cursorMove struct {
	name   string
	offset uint64
}

// settleMessage is one protocol.Settle, or where items is empty one protocol.Cursor.
type settleMessage struct {
	seq    uint64
	items  []protocol.SettleItem
	cursor cursorMove
}

// settleItems bounds the items of one message.
const settleItems = 4096

func (s *settles) empty() bool { return len(s.open) == 0 && len(s.cursors) == 0 && len(s.kept) == 0 }

// add gathers one offset. Only offsets next to each other become a range: an owner settles everything in a range that the consumer
// holds, and between two offsets there may be one that is on its way to it.
func (s *settles) add(consumer, off uint64, o protocol.Outcome) {
	if n := len(s.open); n > 0 && s.open[n-1].Consumer == consumer && s.open[n-1].Outcome == o && s.open[n-1].Last+1 == off {
		s.open[n-1].Last = off
	} else {
		s.open = append(s.open, protocol.SettleItem{Consumer: consumer, First: off, Last: off, Outcome: o})
	}
	if o == protocol.Requeue || o == protocol.Release {
		s.back = s.seq + 1 + uint64((len(s.open)-1)/settleItems)
	}
}

// move gathers a cursor's move; a later one replaces an earlier.
func (s *settles) move(name string, offset uint64) {
	for i := range s.cursors {
		if s.cursors[i].name == name {
			s.cursors[i].offset = offset
			return
		}
	}
	s.cursors = append(s.cursors, cursorMove{name, offset})
}

// sentMove keeps a move that is sent now in the place of an earlier one of the same cursor: it says all that that did. So a reader that goes on
// while nothing can be confirmed takes no more room with each step.
func (s *settles) sentMove(c cursorMove) {
	s.kept = slices.DeleteFunc(s.kept, func(m settleMessage) bool { return m.items == nil && m.cursor.name == c.name })
	s.seq++
	s.kept = append(s.kept, settleMessage{seq: s.seq, cursor: c})
}

// confirmed lets go of every message up to a number.
func (s *settles) confirmed(seq uint64) {
	n := 0
	for n < len(s.kept) && s.kept[n].seq <= seq {
		n++
	}
	k := copy(s.kept, s.kept[n:])
	clear(s.kept[k:])
	s.kept = s.kept[:k]
}

// pending reports whether the owner has not confirmed every message up to a number.
func (s *settles) pending(seq uint64) bool {
	return s.seq < seq || len(s.kept) > 0 && s.kept[0].seq <= seq
}

// sendSettles sends what was gathered since the last flush.
func (a *attachment) sendSettles() {
	s := &a.settles
	for len(s.open) > 0 {
		n := min(len(s.open), settleItems)
		items := append(make([]protocol.SettleItem, 0, n), s.open[:n]...)
		s.open = s.open[:copy(s.open, s.open[n:])]
		s.seq++
		s.kept = append(s.kept, settleMessage{seq: s.seq, items: items})
		a.sendSettle(s.kept[len(s.kept)-1])
	}
	for _, c := range s.cursors {
		s.sentMove(c)
		a.sendSettle(s.kept[len(s.kept)-1])
	}
	s.cursors = s.cursors[:0]
	if len(s.kept) > 0 {
		a.sh.watch()
	}
}

func (a *attachment) sendSettle(m settleMessage) {
	if m.items != nil {
		a.to.Send(protocol.Settle{To: a.address(), Seq: m.seq, Items: m.items})
		return
	}
	a.to.Send(protocol.Cursor{To: a.address(), Seq: m.seq, Name: m.cursor.name, Offset: m.cursor.offset})
}

// resendSettles sends what an earlier owner did not confirm. The numbers are the old ones.
func (a *attachment) resendSettles() {
	for _, m := range a.settles.kept {
		a.sendSettle(m)
	}
}

// handed takes out of what was sent what was said of deliveries that are handed out again: their owner took it before it did. The next owner
// is told, by claims, who holds them now. Sent to it again, an earlier word (this is to go back) would be taken for one on the later delivery,
// and what the client says of that one would then count for nothing. The messages stay, for their numbers.
func (s *settles) handed(items ...protocol.Item) {
	for i := range items {
		if !items[i].Again {
			continue
		}
		for k := range s.kept {
			s.kept[k].items = without(s.kept[k].items, items[i].Offset)
		}
	}
}

// without is items without one offset.
func without(items []protocol.SettleItem, off uint64) []protocol.SettleItem {
	for i := 0; i < len(items); i++ {
		x := items[i]
		if off < x.First || off > x.Last {
			continue
		}
		var parts []protocol.SettleItem
		if x.First < off {
			parts = append(parts, protocol.SettleItem{Consumer: x.Consumer, First: x.First, Last: off - 1, Outcome: x.Outcome})
		}
		if off < x.Last {
			parts = append(parts, protocol.SettleItem{Consumer: x.Consumer, First: off + 1, Last: x.Last, Outcome: x.Outcome})
		}
		items = slices.Concat(items[:i], parts, items[i+1:]) // what was sent is another's
		if items == nil {
			items = []protocol.SettleItem{} // nil would make a cursor's move of it
		}
		i += len(parts) - 1
	}
	return items
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
