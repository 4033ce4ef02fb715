package evidence

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/ident"
)

// Bounds of a shelf where nothing else is said.
const (
	DefaultPerPartition = 16
	DefaultTotal        = 4096
	DefaultBytes        = 16 << 20 // of encoded records
)

// Shelf keeps the newest records: so many of each partition, so many and so many bytes of all. Of a partition the lowest epoch goes first,
// of all the one that began first. Which ones are kept does not depend on the order in which they were put, so shelves that are told the
// same hold the same. It is not safe for concurrent use. Records that it gives out are shared: they must not be changed, and Put does not
// change them.
type Shelf struct {
	each, total, most int
	bytes             int
	order             []*Evidence // by when they began
	records           map[string]*shelved
	partitions        map[ident.Partition][]*Evidence // by epoch
}

// shelved is a record with what is asked of it whenever it is replaced.
type shelved struct {
	*Evidence
	digest Digest
	size   int
}

// NewShelf is an empty shelf for at most each records of a partition, total of all, and most bytes; numbers below 1 stand for the
// defaults. A record larger than most has no place.
func NewShelf(each, total, most int) *Shelf {
	def := func(n, d int) int {
		if n < 1 {
			return d
		}
		return n
	}
	return &Shelf{
		each: def(each, DefaultPerPartition), total: def(total, DefaultTotal), most: def(most, DefaultBytes),
		records: map[string]*shelved{}, partitions: map[ident.Partition][]*Evidence{},
	}
}

// Began is when a transition began, in microseconds since 1970, as well as the record says.
func (e *Evidence) Began() int64 { return cmp.Or(e.Suspected, e.Recorded, e.Sealed, e.Chosen) }

// Compare orders records by when they began.
func Compare(a, b *Evidence) int {
	return cmp.Or(cmp.Compare(a.Began(), b.Began()), byEpoch(a, b))
}

func byEpoch(a, b *Evidence) int {
	return cmp.Or(cmp.Compare(a.After.Epoch, b.After.Epoch), cmp.Compare(a.Version, b.Version), strings.Compare(a.ID, b.ID))
}

// Put adds a record, or replaces the one of the same id in its place. It reports the ids that had to go for it. ok is false where
// nothing was put: a record of the same id was decided on something else, or is of another partition; or it is older than all that a
// full shelf holds.
func (s *Shelf) Put(e *Evidence) (gone []string, ok bool) {
	is := &shelved{e, e.Digest(), len(Append(nil, e))}
	if have := s.records[e.ID]; have != nil {
		if have.Partition != e.Partition || have.digest != is.digest {
			return nil, false
		}
		s.replace(have, is)
	} else {
		s.add(is)
	}
	if of := s.partitions[e.Partition]; len(of) > s.each {
		gone = append(gone, of[0].ID)
		s.drop(of[0])
	}
	for len(s.order) > s.total || s.bytes > s.most {
		gone = append(gone, s.order[0].ID)
		s.drop(s.order[0])
	}
	if i := slices.Index(gone, e.ID); i >= 0 {
		return slices.Delete(gone, i, i+1), false
	}
	return gone, true
}

func (s *Shelf) add(is *shelved) {
	e := is.Evidence
	insert := func(list []*Evidence, compare func(a, b *Evidence) int) []*Evidence {
		i, _ := slices.BinarySearchFunc(list, e, compare)
		return slices.Insert(list, i, e)
	}
	s.records[e.ID] = is
	s.bytes += is.size
	s.order = insert(s.order, Compare)
	s.partitions[e.Partition] = insert(s.partitions[e.Partition], byEpoch)
}

// replace puts a record in the place of one that was decided on the same: what orders them is part of that.
func (s *Shelf) replace(have, is *shelved) {
	s.records[is.ID] = is
	s.bytes += is.size - have.size
	s.order[place(s.order, have.Evidence, Compare)] = is.Evidence
	of := s.partitions[is.Partition]
	of[place(of, have.Evidence, byEpoch)] = is.Evidence
}

// place is where a record is in a list. No two in one compare as equal, for they differ in their ids.
func place(list []*Evidence, e *Evidence, compare func(a, b *Evidence) int) int {
	i, _ := slices.BinarySearchFunc(list, e, compare)
	return i
}

func (s *Shelf) drop(e *Evidence) {
	s.bytes -= s.records[e.ID].size
	delete(s.records, e.ID)
	i := place(s.order, e, Compare)
	s.order = slices.Delete(s.order, i, i+1)
	of := s.partitions[e.Partition]
	i = place(of, e, byEpoch)
	if s.partitions[e.Partition] = slices.Delete(of, i, i+1); len(of) == 1 {
		delete(s.partitions, e.Partition)
	}
}

// Len is the number of records.
func (s *Shelf) Len() int { return len(s.order) }

// Bytes is what the records take encoded.
func (s *Shelf) Bytes() int { return s.bytes }

// Get is the record of a transition, or nil.
func (s *Shelf) Get(id string) *Evidence {
	if r := s.records[id]; r != nil {
		return r.Evidence
	}
	return nil
}

// Of are the records of a partition, the lowest epoch first.
func (s *Shelf) Of(p ident.Partition) []*Evidence { return slices.Clone(s.partitions[p]) }

// Last are the last n records of all, those that began first before the others: all of them if there are fewer.
func (s *Shelf) Last(n int) []*Evidence {
	return slices.Clone(s.order[len(s.order)-min(max(n, 0), len(s.order)):])
}
