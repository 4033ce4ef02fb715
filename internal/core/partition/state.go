package partition

import (
	"encoding/binary"
	"slices"

	"github.com/tanist/tanist/internal/core/ident"
)

// What a search of all schedules needs (internal/core/explore): copies of the state, and its value as bytes.

// Clone is a copy of the state that goes on by itself.
func (c *Copy) Clone() Copy {
	n := *c
	n.flight = slices.Clone(c.flight)
	n.progress = slices.Clone(c.progress)
	n.doubted = slices.Clone(c.doubted)
	return n // assignments and sets are replaced, never changed
}

// AppendState appends the state as bytes: two copies with equal logs and equal bytes behave alike. What cannot decide anything any more
// is left out, and so are logs, what their tails say beside the position, and the history starts of an assignment that is being
// applied: its epoch stands for them. store numbers the stores that are named. With told false, what copies know to be confirmed is taken
// as deciding nothing but in an owner that serves, and what was reported below an owner's Floor is left out.
func (c *Copy) AppendState(b []byte, store func(ident.StoreID) byte, told bool) []byte {
	owner, open := c.role == Owner, c.Open()
	confirmed, epoch, was := c.confirmed, c.epoch, c.openedAt
	if !told && (!open || confirmed < c.mark) {
		confirmed = 0
	}
	if c.opened != Owner || c.promise > was {
		was = 0 // an assignment of it would be refused for the promise
	}
	if c.role == Sealed && c.promise > epoch {
		epoch = 0 // it obeys nobody of it
	}
	flags := bits(c.importing, owner && c.closed, c.damaged != "", c.want != nil, c.saving != nil, c.saving == c.want)
	b = append(b, byte(c.role), byte(c.step), flags)
	for _, n := range [...]uint64{
		c.promise, c.vow, epoch, c.tail.Position, c.durable.Position, confirmed, c.sealing, uint64(len(c.flight)), was,
	} {
		b = binary.AppendUvarint(b, n)
	}
	for _, a := range [...]*Assignment{c.want, c.saving} {
		if a != nil {
			b = binary.AppendUvarint(append(b, byte(a.Role)), a.Epoch)
			if a.Role == Owner {
				b = appendSets(b, a.Sets, store)
			}
		}
	}
	for _, f := range c.flight {
		b = binary.AppendUvarint(b, f.Position)
	}
	if !owner || !told && !open {
		return b // a role begins with none of what follows
	}
	b = binary.AppendUvarint(b, c.mark)
	b = appendSets(b, c.sets, store)
	least := uint64(0)
	if !told {
		least = c.Floor()
	}
	return c.appendProgress(b, least, store)
}

// appendSets appends sets whose followers may come in any order.
func appendSets(b []byte, sets []Set, store func(ident.StoreID) byte) []byte {
	b = append(b, byte(len(sets)))
	for _, s := range sets {
		b = append(binary.AppendUvarint(b, s.Below), byte(s.W), byte(len(s.Followers)))
		at := len(b)
		for _, f := range s.Followers {
			b = append(b, store(f))
		}
		slices.Sort(b[at:])
	}
	return b
}

// appendProgress appends what followers reported, by store, where that is not below least, and which of them do not count.
func (c *Copy) appendProgress(b []byte, least uint64, store func(ident.StoreID) byte) []byte {
	of := slices.DeleteFunc(slices.Clone(c.progress), func(p Progress) bool { return p.Position < least })
	slices.SortFunc(of, func(x, y Progress) int { return int(store(x.Store)) - int(store(y.Store)) })
	b = append(b, byte(len(of)), byte(len(c.doubted)))
	for _, p := range of {
		b = binary.AppendUvarint(append(b, store(p.Store)), p.Position)
	}
	at := len(b)
	for _, d := range c.doubted {
		b = append(b, store(d))
	}
	slices.Sort(b[at:])
	return b
}

// Clone is a copy of the state that goes on by itself.
func (f *Feed) Clone() Feed {
	n := *f
	n.flights = slices.Clone(f.flights)
	return n
}

// AppendState appends the state as bytes, but for which copy it is of. What is on its way is left out while it is little: then only
// how far it goes, and whether there is any, decide anything.
func (f *Feed) AppendState(b []byte) []byte {
	b = append(b, bits(f.standing, f.reading, f.head == len(f.flights)))
	b = binary.AppendUvarint(b, f.next)
	b = binary.AppendUvarint(b, f.durable)
	b = binary.AppendUvarint(b, f.told)
	if f.bytes < FeedWindow/4 {
		return append(b, 0)
	}
	b = append(b, 1)
	for _, s := range f.flights[f.head:] {
		b = binary.AppendUvarint(b, s.end)
		b = binary.AppendUvarint(b, uint64(s.size))
	}
	return b
}

func bits(flags ...bool) byte {
	b := byte(0)
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

// Clone is a copy of the state that goes on by itself.
func (c *Change) Clone() *Change {
	n := *c
	return &n // what it names is never changed
}

// AppendState appends the state as bytes. version is one that the version of the change is counted from.
func (c *Change) AppendState(b []byte, version uint64, store func(ident.StoreID) byte) []byte {
	b = append(b, bits(c.asked, c.unsure), byte(version-c.membership.Version))
	b = append(binary.AppendUvarint(b, c.membership.Epoch), c.membership.Policy...)
	return appendSets(b, []Set{c.set}, store)
}
