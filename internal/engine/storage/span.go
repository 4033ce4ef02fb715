package storage

import (
	"slices"
	"sort"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
)

// entry is what an index knows of one batch.
type entry struct {
	position, offset uint64
	time             int64
	epoch            uint64
	at               int64 // of its frame, in its file
	size             uint32
	count, records   uint32
	link             batch.Link // of the log up to and including it
}

func (e entry) end() uint64       { return e.position + uint64(e.count) }
func (e entry) endOffset() uint64 { return e.offset + uint64(e.records) }

// span is a run of a copy's batches in one file. A copy has its spans in order of position; between two of them there may
// be a gap, where everything was settled and its file reclaimed.
type span struct {
	file           *logFile
	first, end     uint64
	offset, endOff uint64
	time, lastTime int64
	bytes          int64
	records        uint64
	entries        []entry // nil once the file has its footer
}

func (sp *span) add(e entry) {
	if sp.end == sp.first {
		sp.first, sp.offset, sp.time = e.position, e.offset, e.time
	}
	sp.end, sp.endOff, sp.lastTime = e.end(), e.endOffset(), e.time
	sp.bytes += int64(e.size)
	sp.records += uint64(e.records)
	sp.entries = append(sp.entries, e)
}

// index adds a batch that has been placed in a file. It may lie in a gap between spans, or at the end.
func (c *Copy) index(f *logFile, e entry) {
	i := sort.Search(len(c.spans), func(i int) bool { return c.spans[i].first >= e.position })
	c.bytes += int64(e.size)
	c.records += uint64(e.records)
	if i > 0 {
		if sp := &c.spans[i-1]; sp.file == f && sp.end == e.position && sp.entries != nil {
			sp.add(e)
			return
		}
	}
	sp := span{file: f}
	sp.add(e)
	c.spans = slices.Insert(c.spans, i, sp)
	f.owners = append(f.owners, c) // only the writer places batches, and only in the current file
}

// spanAt is the index of the span that holds a position, or of the next one after it.
func (c *Copy) spanAt(position uint64) int {
	return sort.Search(len(c.spans), func(i int) bool { return c.spans[i].end > position })
}

// carve takes the batch e out of the span that it lies in, which may fall in two.
func (c *Copy) carve(e entry) {
	i := c.spanAt(e.position)
	if i == len(c.spans) || c.spans[i].first > e.position {
		return
	}
	sp := c.spans[i]
	before, after := sp, sp
	before.end, before.endOff = e.position, e.offset
	after.first, after.offset = e.end(), e.endOffset()
	var parts []span
	if before.first < before.end {
		parts = append(parts, before)
	}
	if after.first < after.end {
		parts = append(parts, after)
	}
	split := func(n int, p *span) {
		if sp.entries != nil {
			from := sort.Search(len(sp.entries), func(k int) bool { return sp.entries[k].position >= p.first })
			to := sort.Search(len(sp.entries), func(k int) bool { return sp.entries[k].position >= p.end })
			*p = sumSpan(sp.file, sp.entries[from:to:to])
			return
		}
		share := float64(p.end-p.first) / float64(max(1, sp.end-sp.first-uint64(e.count)))
		p.bytes, p.records = int64(float64(sp.bytes-int64(e.size))*share), p.endOff-p.offset
	}
	for n := range parts {
		split(n, &parts[n])
	}
	c.dropTotals(sp)
	for _, p := range parts {
		c.bytes += p.bytes
		c.records += p.records
	}
	c.spans = slices.Replace(c.spans, i, i+1, parts...)
}

func (c *Copy) dropTotals(sp span) {
	c.bytes -= sp.bytes
	c.records -= sp.records
}

func sumSpan(f *logFile, entries []entry) span {
	sp := span{file: f}
	for _, e := range entries {
		if sp.end == sp.first {
			sp.first, sp.offset, sp.time = e.position, e.offset, e.time
		}
		sp.end, sp.endOff, sp.lastTime = e.end(), e.endOffset(), e.time
		sp.bytes += int64(e.size)
		sp.records += uint64(e.records)
	}
	sp.entries = entries
	return sp
}

// truncate drops what lies at and above a position that is a batch boundary. entriesOf gives the entries of a span.
func (c *Copy) truncate(to batch.Tail, entriesOf func(*span) ([]entry, error)) error {
	for i := range c.spans {
		sp := &c.spans[i]
		if sp.end <= to.Position {
			continue
		}
		for _, gone := range c.spans[i+1:] {
			c.dropTotals(gone)
		}
		c.dropTotals(*sp)
		if sp.first >= to.Position {
			c.spans = slices.Clip(c.spans[:i])
			return nil
		}
		if sp.file.f == nil {
			sp.end, sp.endOff, sp.lastTime = to.Position, to.Offset, to.Time // if it is not released later, the copy is damaged
			c.spans = slices.Clip(c.spans[:i+1])
			c.bytes += sp.bytes
			c.records += sp.records
			return nil
		}
		es, err := entriesOf(sp)
		if err != nil {
			return err
		}
		keep := sort.Search(len(es), func(k int) bool { return es[k].position >= to.Position })
		short := sumSpan(sp.file, es[:keep:keep])
		if sp.entries == nil {
			short.entries = nil
		}
		c.spans = append(slices.Clip(c.spans[:i]), short)
		c.bytes += short.bytes
		c.records += short.records
		return nil
	}
	return nil
}

// dropBelow drops whole batches below a position from the front.
func (c *Copy) dropBelow(position uint64, entriesOf func(*span) ([]entry, error)) error {
	n := 0
	for n < len(c.spans) && c.spans[n].end <= position {
		c.dropTotals(c.spans[n])
		n++
	}
	c.spans = slices.Clone(c.spans[n:])
	if len(c.spans) == 0 || c.spans[0].first >= position {
		return nil
	}
	sp := &c.spans[0]
	if sp.file.f == nil {
		return nil // if it is not released later, the copy is damaged
	}
	es, err := entriesOf(sp)
	if err != nil {
		return err
	}
	from := sort.Search(len(es), func(k int) bool { return es[k].end() > position })
	if from == 0 {
		return nil
	}
	c.dropTotals(*sp)
	short := sumSpan(sp.file, slices.Clone(es[from:]))
	if sp.entries == nil {
		short.entries = nil
	}
	c.spans[0] = short
	c.bytes += short.bytes
	c.records += short.records
	return nil
}

// keeps reports whether something at [first, end) of the log, with records [offset, endOff), must be kept.
func (c *Copy) keeps(first, end, offset, endOff uint64) bool {
	if end <= c.head {
		return false
	}
	if end > c.retainFrom {
		return true
	}
	if c.imaging != nil {
		for _, x := range c.imaging.exports {
			if x.needs(end, offset, endOff) {
				return true
			}
		}
	}
	i := sort.Search(len(c.live), func(i int) bool { return c.live[i].To > offset })
	return i < len(c.live) && c.live[i].From < endOff
}

// liveBytes estimates how many bytes of a span must be kept: all above retainFrom, and below it in proportion to the offsets
// that are still needed.
func (c *Copy) liveBytes(sp *span) int64 {
	if !c.keeps(sp.first, sp.end, sp.offset, sp.endOff) {
		return 0
	}
	if sp.first >= c.retainFrom || sp.endOff == sp.offset {
		return sp.bytes
	}
	var need uint64
	if sp.end > c.retainFrom {
		need = sp.end - c.retainFrom
	}
	need += overlap(c.live, sp.offset, sp.endOff)
	share := min(1, float64(need)/float64(sp.end-sp.first))
	return max(1, int64(share*float64(sp.bytes)))
}

func overlap(spans []partition.Span, from, to uint64) uint64 {
	i := sort.Search(len(spans), func(i int) bool { return spans[i].To > from })
	var n uint64
	for ; i < len(spans) && spans[i].From < to; i++ {
		n += min(spans[i].To, to) - max(spans[i].From, from)
	}
	return n
}
