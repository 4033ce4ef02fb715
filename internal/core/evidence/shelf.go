package evidence

import (
	"slices"

	"github.com/tanist/tanist/internal/core/ident"
)

// Bounds of a shelf where nothing else is said.
const (
	DefaultPerPartition = 16
	DefaultTotal        = 4096
)

// Shelf keeps the last records: so many of each partition, so many of all. What was put there first goes first. It is not safe for
// concurrent use. Records that it gives out are shared: they must not be changed, and Put does not change them.
type Shelf struct {
	each, total int
	order       []string // ids, as they were first put
	records     map[string]*Evidence
	partitions  map[ident.Partition][]string // ids, as they were first put
}

// NewShelf is an empty shelf for at most each records of a partition and total of all; numbers below 1 stand for the defaults.
func NewShelf(each, total int) *Shelf {
	if each < 1 {
		each = DefaultPerPartition
	}
	if total < 1 {
		total = DefaultTotal
	}
	return &Shelf{each: each, total: total, records: map[string]*Evidence{}, partitions: map[ident.Partition][]string{}}
}

// Put adds a record, or replaces the one of the same id in its place. It reports the id that had to go for it; "" if none had. A record
// of the same id that was decided on something else, or of another partition, replaces nothing: ok is false.
func (s *Shelf) Put(e *Evidence) (gone string, ok bool) {
	if have := s.records[e.ID]; have != nil {
		if have.Partition != e.Partition || have.Digest() != e.Digest() {
			return "", false
		}
		s.records[e.ID] = e
		return "", true
	}
	if of := s.partitions[e.Partition]; len(of) >= s.each {
		gone = of[0]
		s.drop(gone)
	} else if len(s.order) >= s.total {
		gone = s.order[0]
		s.drop(gone)
	}
	s.order = append(s.order, e.ID)
	s.records[e.ID] = e
	s.partitions[e.Partition] = append(s.partitions[e.Partition], e.ID)
	return gone, true
}

func (s *Shelf) drop(id string) {
	p := s.records[id].Partition
	is := func(x string) bool { return x == id }
	delete(s.records, id)
	s.order = slices.DeleteFunc(s.order, is)
	if s.partitions[p] = slices.DeleteFunc(s.partitions[p], is); len(s.partitions[p]) == 0 {
		delete(s.partitions, p)
	}
}

// Len is the number of records.
func (s *Shelf) Len() int { return len(s.order) }

// Get is the record of a transition, or nil.
func (s *Shelf) Get(id string) *Evidence { return s.records[id] }

// Of are the records of a partition, the first put first.
func (s *Shelf) Of(p ident.Partition) []*Evidence { return s.take(s.partitions[p]) }

// Last are the last n records of all, the first put first: all of them if there are fewer. What is put on an empty shelf in this order
// makes the same shelf.
func (s *Shelf) Last(n int) []*Evidence {
	return s.take(s.order[len(s.order)-min(max(n, 0), len(s.order)):])
}

func (s *Shelf) take(ids []string) []*Evidence {
	out := make([]*Evidence, len(ids))
	for i, id := range ids {
		out[i] = s.records[id]
	}
	return out
}
