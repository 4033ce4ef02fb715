package partition

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Propose takes a batch that the owner has made to continue its log. The caller appends it to storage at once and then reports
// AppendDone or Fail. The first batch of an epoch is its mark. ErrNotOwner and ErrClosed are returned when the copy may not append.
func (c *Copy) Propose(b batch.Batch, link batch.Link) error {
	switch {
	case c.role != Owner:
		return ErrNotOwner
	case c.closed:
		return ErrClosed
	case b.Epoch != c.epoch || !b.Follows(c.tail):
		return fmt.Errorf("%w: at %d of epoch %d, the log ends at %d of epoch %d", ErrGap, b.Position, b.Epoch, c.tail.Position, c.epoch)
	}
	c.tail = c.tail.After(b, link)
	if c.mark == 0 {
		c.mark = c.tail.Position
	}
	c.flight = append(c.flight, c.tail)
	return nil
}

// AppendDone tells that the oldest append in flight, an owner's or a follower's, is durable.
func (c *Copy) AppendDone(out *Effects) {
	if len(c.flight) == 0 {
		return
	}
	c.durable = c.flight[0]
	c.flight = append(c.flight[:0], c.flight[1:]...)
	c.advance(out)
	if c.step == idle && (c.sealing > 0 || c.want != nil) {
		c.proceed(out)
	}
}

// Trim lets go of memory that an idle copy does not need.
func (c *Copy) Trim() {
	if len(c.flight) == 0 {
		c.flight = nil
	}
}

// Progressed tells how far a follower or learner of this epoch holds the log durably. What comes from another epoch is ignored.
func (c *Copy) Progressed(from ident.StoreID, epoch, position uint64, out *Effects) {
	if c.role != Owner || epoch != c.epoch || slices.Contains(c.doubted, from) {
		return
	}
	i := slices.IndexFunc(c.progress, func(p Progress) bool { return p.Store == from })
	if i < 0 {
		i = len(c.progress)
		c.progress = append(c.progress, Progress{Store: from})
	}
	c.progress[i].Position = max(c.progress[i].Position, min(position, c.tail.Position))
	c.advance(out)
}

// Returned tells where a copy's log ends durably when the way to it opens again. It reports whether the copy still counts: one that came
// back shorter than it once said has lost what it had synced, and counts for nothing more in this epoch (design 2 §3).
func (c *Copy) Returned(from ident.StoreID, epoch, durable uint64) bool {
	if c.role != Owner || epoch != c.epoch || slices.Contains(c.doubted, from) {
		return false
	}
	i := slices.IndexFunc(c.progress, func(p Progress) bool { return p.Store == from })
	if i < 0 || c.progress[i].Position <= durable {
		return true
	}
	c.progress = slices.Delete(c.progress, i, i+1)
	c.doubted = append(c.doubted, from)
	return false
}

// Renews forgets how far a copy held the log, which this owner has give that up for an image, or which says that it is damaged, or is being made of
// an image: it comes back shorter for that reason alone, and is not doubted. What it gives up must be confirmed, and held here, or the copy must
// have said so itself: what is confirmed from then on does not count on it.
func (c *Copy) Renews(from ident.StoreID) {
	c.progress = slices.DeleteFunc(c.progress, func(p Progress) bool { return p.Store == from })
}

// Keep forgets what copies said that have no place in this owner's assignment any more: one that is named again begins as any other, maybe
// from nothing, and is taken at its new word alone.
func (c *Copy) Keep(named func(ident.StoreID) bool) {
	c.progress = slices.DeleteFunc(c.progress, func(p Progress) bool { return !named(p.Store) })
	c.doubted = slices.DeleteFunc(c.doubted, func(s ident.StoreID) bool { return !named(s) })
}

// Place is where another copy's log ends, seen from this one.
type Place uint8

// The places.
const (
	Here   Place = iota // this log goes on from there
	Within              // inside this log: it goes on from there if the batch that ends there has the copy's link
	Beyond              // past this log, or at its end with another history: it cannot go on
)

// Locate says where a copy's log ends, seen from this one.
func (c *Copy) Locate(end batch.Tail) Place {
	switch {
	case end.Position == 0, end.Position == c.tail.Position && end.Link == c.tail.Link:
		return Here
	case end.Position >= c.tail.Position:
		return Beyond
	}
	return Within
}

// Progress is what followers and learners reported in this epoch. The slice must not be kept.
func (c *Copy) Progress() []Progress { return c.progress }

// advance moves the confirmed position: durable on the owner and on W−1 admitted followers, and not before the epoch's mark is.
func (c *Copy) advance(out *Effects) {
	if c.role != Owner || c.closed || c.fenced || c.mark == 0 || len(c.sets) == 0 {
		return
	}
	at := c.durable.Position
	for i := range c.sets {
		s := &c.sets[i]
		if held := c.held(s); s.Below == 0 || held < s.Below {
			at = min(at, held)
		}
	}
	if at < c.mark || at <= c.confirmed {
		return
	}
	c.confirmed = at
	*out = append(*out, Effect{Kind: Advanced, Epoch: c.epoch, Position: at})
}

// Fence stops an owner from confirming while on is true, whatever becomes durable meanwhile, and lets it go on: its lease has ended, and
// another may have been chosen without it (design 2 §7). Asked before anything is told that may confirm, by the time it is then.
func (c *Copy) Fence(on bool, out *Effects) {
	if c.fenced == on {
		return
	}
	c.fenced = on
	c.advance(out)
}

// held is the highest position that a set confirms.
func (c *Copy) held(s *Set) uint64 {
	var few [8]uint64
	at := few[:0]
	for _, f := range s.Followers {
		var p uint64
		if i := slices.IndexFunc(c.progress, func(p Progress) bool { return p.Store == f }); i >= 0 {
			p = c.progress[i].Position
		}
		at = append(at, p)
	}
	return quorum.Reached(s.W, c.durable.Position, at)
}
