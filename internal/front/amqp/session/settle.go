package session

import (
	"slices"
	"sort"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// unsettled are the deliveries of a channel that the client has not settled, by rising delivery tag.
type unsettled struct {
	items []delivered
	head  int // items before it are settled
	dead  int // items after head that are settled
	// stamped is the last tag whose time has begun.
	stamped uint64
}

type delivered struct {
	tag     uint64
	ref     broker.Ref
	settled bool
	// due is when it must be settled; 0: never. A negative one is a time that counts from the next stamp.
	due time.Duration
}

func (u *unsettled) add(tag uint64, ref broker.Ref, timeout time.Duration) {
	u.items = append(u.items, delivered{tag: tag, ref: ref, due: -timeout})
}

// stamp lets the times of what was delivered since the last stamp begin.
func (u *unsettled) stamp(now time.Duration) {
	for i := len(u.items) - 1; i >= u.head && u.items[i].tag > u.stamped; i-- {
		if d := &u.items[i]; d.due < 0 {
			d.due = now - d.due
		}
	}
	if n := len(u.items); n > 0 {
		u.stamped = u.items[n-1].tag
	}
}

// overdue reports whether a delivery should have been settled by now.
func (u *unsettled) overdue(now time.Duration) bool {
	for i := range u.items[u.head:] {
		if d := &u.items[u.head+i]; !d.settled && d.due > 0 && d.due <= now {
			return true
		}
	}
	return false
}

// fetched reports whether there is a delivery that was fetched, and not handed to a consumer, from an offset of a partition on.
func (u *unsettled) fetched(p ident.Partition, from uint64) bool {
	return slices.ContainsFunc(u.items[u.head:], func(d delivered) bool {
		return !d.settled && d.ref.Consumer == 0 && d.ref.Partition == p && d.ref.Offset >= from
	})
}

func (u *unsettled) len() int { return len(u.items) - u.head - u.dead }

// each calls f in order.
func (u *unsettled) each(f func(broker.Ref)) {
	for _, d := range u.items[u.head:] {
		if !d.settled {
			f(d.ref)
		}
	}
}

// one takes the delivery with a tag.
func (u *unsettled) one(tag uint64) (broker.Ref, bool) {
	rest := u.items[u.head:]
	i := 0
	if len(rest) > 0 && rest[0].tag != tag {
		i = sort.Search(len(rest), func(i int) bool { return rest[i].tag >= tag })
	}
	if i >= len(rest) || rest[i].tag != tag || rest[i].settled {
		return broker.Ref{}, false
	}
	ref := rest[i].ref // tidying moves items
	rest[i].settled = true
	u.dead++
	u.tidy()
	return ref, true
}

// upTo takes the deliveries up to a tag in order, and returns how many there were.
func (u *unsettled) upTo(tag uint64, f func(broker.Ref)) int {
	n := 0
	for i := u.head; i < len(u.items) && u.items[i].tag <= tag; i++ {
		if d := &u.items[i]; !d.settled {
			d.settled = true
			u.dead++
			n++
			f(d.ref)
		}
	}
	u.tidy()
	return n
}

// tidy drops what is settled, at a cost that is small per delivery.
func (u *unsettled) tidy() {
	for u.head < len(u.items) && u.items[u.head].settled {
		u.head++
		u.dead--
	}
	switch {
	case u.head == len(u.items):
		u.items, u.head = u.items[:0], 0
	case u.head > 64 && u.head > len(u.items)/2:
		u.items = slices.Delete(u.items, 0, u.head)
		u.head = 0
	}
	if u.dead > 64 && u.dead > (len(u.items)-u.head)/2 {
		u.items = slices.DeleteFunc(u.items, func(d delivered) bool { return d.settled })
		u.head, u.dead = 0, 0
	}
}

// settle handles what a client says of deliveries.
func (ch *channel) settle(tag uint64, multiple bool, s broker.Settlement) *fault {
	if !multiple {
		ref, ok := ch.unsettled.one(tag)
		if !ok {
			return faultf(wire.PreconditionFailed, "unknown delivery tag %d", tag)
		}
		ch.c.give(ref, s)
		return nil
	}
	upTo := tag
	if tag == 0 {
		upTo = ch.delivered
	}
	n := 0
	if upTo <= ch.delivered {
		n = ch.unsettled.upTo(upTo, func(ref broker.Ref) { ch.c.give(ref, s) })
	}
	if n == 0 && tag != 0 {
		return faultf(wire.PreconditionFailed, "unknown delivery tag %d", tag)
	}
	return nil
}

// settleMax is how many settlements are told to the broker at once.
const settleMax = 4096

// give settles one delivery. The broker is told of many at once.
func (c *Conn) give(ref broker.Ref, s broker.Settlement) {
	if len(c.settles) > 0 && (c.settlement != s || len(c.settles) >= settleMax) {
		c.settleNow()
	}
	c.settlement = s
	c.settles = append(c.settles, ref)
}

func (c *Conn) settleNow() {
	if len(c.settles) == 0 {
		return
	}
	refs := c.settles
	c.settles = nil // the broker may hand over more at once, which may be settled at once
	if c.b != nil {
		c.b.Settle(refs, c.settlement)
	}
	if c.settles == nil {
		c.settles = refs[:0]
	}
}
