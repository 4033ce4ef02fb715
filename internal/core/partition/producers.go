package partition

import (
	"cmp"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
)

const (
	// MaxNamed bounds the named producers that a partition remembers (design 2 §2). Beyond it the longest silent goes.
	MaxNamed = 1024
	// Silence is how long a named producer is remembered after its last record, in milliseconds: 24 h.
	Silence = 24 * 3600 * 1000
	// MaxForgotten bounds the forgotten named producers whose last number is kept so that a late resend is still refused. Where
	// one has fallen off this list too, its name counts as new.
	MaxForgotten = 8192
	// MaxGaps bounds the stretches of numbers, per producer, that are known to be absent although later ones are stored.
	MaxGaps = 512

	namedBit = 1 << 63
)

// Gap is a stretch of numbers First … Last that a producer's records in this log leave out.
type Gap struct{ First, Last uint64 }

// producer is what the log says of one producer. The staged part is ahead of the confirmed one.
type producer struct {
	id uint64
	// last is the highest number taken, at the log position that follows its entry.
	last, at uint64
	// Of the confirmed log:
	confirmedLast, confirmedAt uint64
	time                       int64
	// gaps are, of a gateway, all numbers left out; of a named producer, those that admission refused. Ascending.
	gaps []Gap
	// vague: of numbers up to it that the gaps do not have, nothing is known any more.
	vague uint64
}

// Producers is the table of who appended up to which number. The zero table is empty. It is rebuilt from the log, rolled back by
// Rollback, and part of snapshots.
type Producers struct {
	list  []producer // by id
	named int
	past  *past // nil: nobody was forgotten
}

// past is whom a table has forgotten, oldest first.
type past struct{ forgotten []Forgotten }

func (t *Producers) forgotten() []Forgotten {
	if t.past == nil {
		return nil
	}
	return t.past.forgotten
}

// Forgotten is a producer that goes, with its last number.
type Forgotten struct{ ID, Last uint64 }

// Named reports whether an id is of a name that a client chose, and not of a gateway.
func Named(id uint64) bool { return id&namedBit != 0 }

func (t *Producers) find(id uint64) *producer {
	if len(t.list) == 1 && t.list[0].id == id {
		return &t.list[0]
	}
	i, ok := slices.BinarySearchFunc(t.list, id, func(p producer, id uint64) int { return cmp.Compare(p.id, id) })
	if !ok {
		return nil
	}
	return &t.list[i]
}

func (t *Producers) obtain(id uint64) *producer {
	i, ok := slices.BinarySearchFunc(t.list, id, func(p producer, id uint64) int { return cmp.Compare(p.id, id) })
	if !ok {
		p := producer{id: id}
		if Named(id) {
			t.named++
			p.vague, _ = t.forgottenLast(id)
		}
		t.list = slices.Insert(t.list, i, p)
	}
	return &t.list[i]
}

// forgottenLast is the last number of a named producer that was forgotten.
func (t *Producers) forgottenLast(id uint64) (uint64, bool) {
	gone := t.forgotten()
	i := slices.IndexFunc(gone, func(f Forgotten) bool { return f.ID == id })
	if i < 0 {
		return 0, false
	}
	return gone[i].Last, true
}

// Len is the number of producers remembered, and of those forgotten ones that are still refused.
func (t *Producers) Len() (known, refused int) { return len(t.list), len(t.forgotten()) }

// Last is the highest number of a producer in the log, with what is staged, and the position after its entry. Both are 0 for
// one that is not known.
func (t *Producers) Last(id uint64) (last, at uint64) {
	if p := t.find(id); p != nil {
		return p.last, p.at
	}
	return 0, 0
}

// Verdict says what a number of a producer is.
type Verdict uint8

// The verdicts.
const (
	New          Verdict = iota
	Duplicate            // taken before; confirmed once the position given is
	Absent               // refused before, and never to be stored
	Unsure               // so old that it cannot be said whether it is stored
	UnknownNamed         // of a producer that was forgotten
)

// Judge says what one number of a producer is. at is the position that must be confirmed before a Duplicate is.
func (t *Producers) Judge(id, seq uint64) (v Verdict, at uint64) {
	p := t.find(id)
	if p == nil {
		if Named(id) {
			if last, ok := t.forgottenLast(id); ok && seq <= last {
				return UnknownNamed, 0
			}
		}
		return New, 0
	}
	switch {
	case seq > p.last:
		return New, 0
	case inGaps(p.gaps, seq):
		return Absent, 0
	case seq <= p.vague:
		return Unsure, 0
	case seq <= p.confirmedLast:
		return Duplicate, p.confirmedAt
	}
	return Duplicate, p.at
}

func inGaps(gaps []Gap, seq uint64) bool {
	i, ok := slices.BinarySearchFunc(gaps, seq, func(g Gap, seq uint64) int { return cmp.Compare(g.Last, seq) })
	return ok || i < len(gaps) && gaps[i].First <= seq
}

// Stage notes a run of records that ends before position end. Runs without a producer are ignored.
func (t *Producers) Stage(r batch.Run, end uint64) {
	if r.Kind != batch.KindRecord || r.Producer == 0 || r.Count == 0 {
		return
	}
	t.stage(r, end)
}

func (t *Producers) stage(r batch.Run, end uint64) *producer {
	p := t.find(r.Producer)
	if p == nil {
		p = t.obtain(r.Producer)
	}
	if r.First > p.last+1 && !Named(r.Producer) {
		p.leaveOut(Gap{p.last + 1, r.First - 1})
	}
	if last := r.First + uint64(r.Count) - 1; last > p.last {
		if n := len(p.gaps); n > 0 && p.gaps[n-1].Last >= r.First {
			p.fill(r.First, last)
		}
		p.last, p.at = last, end
	}
	return p
}

// leaveOut notes a gap that touches no other, or extends one.
func (p *producer) leaveOut(g Gap) {
	i, _ := slices.BinarySearchFunc(p.gaps, g.First, func(o Gap, first uint64) int { return cmp.Compare(o.Last+1, first) })
	if i < len(p.gaps) && p.gaps[i].First <= g.Last+1 {
		p.gaps[i] = Gap{min(p.gaps[i].First, g.First), max(p.gaps[i].Last, g.Last)}
		if i+1 < len(p.gaps) && p.gaps[i].Last+1 >= p.gaps[i+1].First {
			p.gaps[i].Last = p.gaps[i+1].Last
			p.gaps = slices.Delete(p.gaps, i+1, i+2)
		}
		return
	}
	p.gaps = slices.Insert(p.gaps, i, g)
	if len(p.gaps) > MaxGaps {
		p.vague = p.gaps[0].Last
		p.gaps = slices.Delete(p.gaps, 0, 1)
	}
}

// fill takes numbers out of the gaps: refused once, they are stored now.
func (p *producer) fill(first, last uint64) {
	var kept []Gap
	for _, g := range p.gaps {
		if g.First < first {
			kept = append(kept, Gap{g.First, min(g.Last, first-1)})
		}
		if g.Last > last {
			kept = append(kept, Gap{max(g.First, last+1), g.Last})
		}
	}
	p.gaps = kept
}

// Refuse notes that admission refused a number of a named producer, which may store later ones: without it, the refused one would
// afterwards pass for a duplicate. A gateway's refused numbers show as gaps by themselves.
func (t *Producers) Refuse(id, seq uint64) {
	if p := t.obtain(id); seq > p.last {
		p.leaveOut(Gap{seq, seq})
	}
}

// Confirm notes a confirmed run of the log; staged before or not.
func (t *Producers) Confirm(r batch.Run, end uint64, time int64) {
	if r.Kind != batch.KindRecord || r.Producer == 0 {
		return
	}
	p := t.stage(r, end)
	if last := r.First + uint64(r.Count) - 1; last > p.confirmedLast {
		p.confirmedLast, p.confirmedAt, p.time = last, end, time
	}
}

// Rollback drops everything that is staged and not confirmed: the log was cut.
func (t *Producers) Rollback() {
	kept := t.list[:0]
	t.named = 0
	for _, p := range t.list {
		if p.confirmedLast == 0 {
			continue
		}
		p.last, p.at = p.confirmedLast, p.confirmedAt
		kept = append(kept, p)
		if Named(p.id) {
			t.named++
		}
	}
	clear(t.list[len(kept):])
	t.list = kept
}

// Forgettable are the producers that may be forgotten at the given time (milliseconds since 1970), ascending: named ones that were
// silent for 24 h or are too many, and those that buried names, such as a gateway of a buried run. None has anything staged.
func (t *Producers) Forgettable(now int64, buried func(id uint64) bool) []Forgotten {
	var out []Forgotten
	excess := t.named - MaxNamed
	var silent []*producer
	for i := range t.list {
		p := &t.list[i]
		if p.last != p.confirmedLast {
			continue
		}
		switch {
		case Named(p.id) && p.time+Silence <= now && p.confirmedLast > 0:
			out = append(out, Forgotten{p.id, p.last})
			excess--
		case Named(p.id):
			silent = append(silent, p)
		case buried != nil && buried(p.id):
			out = append(out, Forgotten{p.id, p.last})
		}
	}
	if excess > 0 {
		slices.SortFunc(silent, func(a, b *producer) int {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.id, b.id))
		})
		for _, p := range silent[:min(excess, len(silent))] {
			out = append(out, Forgotten{p.id, p.last})
		}
	}
	slices.SortFunc(out, func(a, b Forgotten) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Forget drops producers, as a confirmed event says: each with its last number when the event was proposed. One whose confirmed
// records go beyond it stays.
func (t *Producers) Forget(those []Forgotten) {
	for _, f := range those {
		i, ok := slices.BinarySearchFunc(t.list, f.ID, func(p producer, id uint64) int { return cmp.Compare(p.id, id) })
		if !ok || t.list[i].confirmedLast != f.Last {
			continue
		}
		if Named(f.ID) {
			t.bury(f)
		}
		if p := &t.list[i]; p.last != p.confirmedLast { // it has appended behind the event
			p.confirmedLast, p.confirmedAt, p.time, p.vague = 0, 0, 0, 0
			p.gaps = slices.DeleteFunc(p.gaps, func(g Gap) bool { return g.Last <= f.Last })
			if Named(f.ID) {
				p.vague = f.Last
			}
			continue
		}
		if Named(f.ID) {
			t.named--
		}
		t.list = slices.Delete(t.list, i, i+1)
	}
}

func (t *Producers) bury(f Forgotten) {
	gone := t.forgotten()
	if i := slices.IndexFunc(gone, func(o Forgotten) bool { return o.ID == f.ID }); i >= 0 {
		gone = slices.Delete(gone, i, i+1)
	}
	if len(gone) == MaxForgotten {
		gone = slices.Delete(gone, 0, 1)
	}
	t.past = &past{append(gone, f)}
}

// TooMany reports whether named producers are to be forgotten because of their number. It lets an eighth more gather, so that they are
// not looked for at every new one.
func (t *Producers) TooMany() bool { return t.named > MaxNamed+MaxNamed/8 }
