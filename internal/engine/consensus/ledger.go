package consensus

import "slices"

// ledger is what consensus itself keeps beside the catalog: which proposals have been applied, which members were removed, and how the
// catalog was recovered. It is changed only by what is committed, and by a recovery, so it is the same on every member, and it is part of
// every snapshot.
//
// A proposal may be committed more than once: whoever forwards it cannot know whether the leader that it sent it to ever took it, and
// messages may be repeated. The ledger makes it count once.
type ledger struct {
	proposers map[uint64]*proposer
	removed   []uint64 // ascending
	// recoveries are the last maxRecoveries, oldest first; none: the catalog is of the first generation.
	recoveries []Recovery
}

// proposer is what has been applied of one member's newest run that proposed anything. It is bounded by how much that run keeps open
// (Env.MaxInFlight).
type proposer struct {
	boot  uint64
	floor uint64              // every sequence below is applied, or given up by its proposer
	above map[uint64]struct{} // applied, beyond floor; nil: none
}

func newLedger() *ledger { return &ledger{proposers: map[uint64]*proposer{}} }

// take says whether a proposal counts, and writes down that it did.
func (l *ledger) take(h header) bool {
	if l.isRemoved(h.id) {
		return false
	}
	p := l.proposers[h.id]
	if p == nil || h.boot > p.boot {
		p = &proposer{boot: h.boot}
		l.proposers[h.id] = p
	}
	if h.boot < p.boot {
		return false // an earlier run, which is not there any more to learn of it
	}
	if h.low > p.floor {
		for seq := range p.above {
			if seq < h.low {
				delete(p.above, seq)
			}
		}
		p.floor = h.low
		p.settle()
	}
	if p.applied(h.seq) {
		return false
	}
	if h.seq == p.floor {
		p.floor++
		p.settle()
		return true
	}
	if p.above == nil {
		p.above = map[uint64]struct{}{}
	}
	p.above[h.seq] = struct{}{}
	return true
}

// settle moves the floor over what is applied without a gap.
func (p *proposer) settle() {
	for len(p.above) > 0 {
		if _, ok := p.above[p.floor]; !ok {
			return
		}
		delete(p.above, p.floor)
		p.floor++
	}
}

func (p *proposer) applied(seq uint64) bool {
	if seq < p.floor {
		return true
	}
	_, ok := p.above[seq]
	return ok
}

// applied says whether a proposal of a run was applied, or can never be.
func (l *ledger) applied(id, boot, seq uint64) bool {
	p := l.proposers[id]
	return p != nil && (boot < p.boot || boot == p.boot && p.applied(seq))
}

// remove takes a member out for good: a store that was removed does not come back.
func (l *ledger) remove(id uint64) {
	delete(l.proposers, id)
	if at, known := slices.BinarySearch(l.removed, id); !known {
		l.removed = slices.Insert(l.removed, at, id)
	}
}

func (l *ledger) isRemoved(id uint64) bool {
	_, known := slices.BinarySearch(l.removed, id)
	return known
}

func (l *ledger) encode() []byte {
	b := appendUvarints(nil, uint64(len(l.proposers)))
	for _, id := range sortedKeys(l.proposers) {
		p := l.proposers[id]
		b = appendUvarints(b, id, p.boot, p.floor, uint64(len(p.above)))
		b = appendUvarints(b, sortedKeys(p.above)...)
	}
	b = appendUvarints(b, uint64(len(l.removed)))
	b = appendUvarints(b, l.removed...)
	if len(l.recoveries) == 0 {
		return b
	}
	b = appendUvarints(b, uint64(len(l.recoveries)))
	for i := range l.recoveries {
		b = l.recoveries[i].append(b)
	}
	return b
}

func decodeLedger(b []byte) (*ledger, error) {
	l := newLedger()
	var n uint64
	b, err := readUvarints(b, &n)
	for ; err == nil && n > 0; n-- {
		var id, count uint64
		p := &proposer{}
		b, err = readUvarints(b, &id, &p.boot, &p.floor, &count)
		for ; err == nil && count > 0; count-- {
			var seq uint64
			if b, err = readUvarints(b, &seq); p.above == nil {
				p.above = map[uint64]struct{}{}
			}
			p.above[seq] = struct{}{}
		}
		l.proposers[id] = p
	}
	if err == nil {
		b, err = readUvarints(b, &n)
	}
	for ; err == nil && n > 0; n-- {
		var id uint64
		b, err = readUvarints(b, &id)
		l.removed = append(l.removed, id)
	}
	if err == nil && len(b) > 0 {
		l.recoveries, b, err = readRecoveries(b)
	}
	if err == nil && (len(b) > 0 || !slices.IsSorted(l.removed)) {
		err = errMalformed
	}
	return l, err
}
