package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/exec"
)

// reader is the actor that reads what is no longer in memory, reclaims files, and scrubs. It blocks in reads.
type reader struct {
	s  *Store
	mb exec.Mailbox

	reclaiming bool // a look is asked for or under way
	stopped    func()
	scrub      place
	scrubbed   int64 // bytes since the scrub's place was last written down

	footers map[uint32]*footer // by generation; under the store's footer lock
	asks    uint64
	held    int64
}

// errMoved says that a file was given up while it was being read: look up the place again.
var errMoved = errors.New("storage: the file was reclaimed meanwhile")

// Receive implements exec.Actor.
func (r *reader) Receive(msg any) {
	switch m := msg.(type) {
	case msgCall:
		m.f()
	case msgReclaim:
		r.reclaiming = false
		if r.stopped == nil {
			r.reclaim()
		}
	case msgScrub:
		if r.stopped == nil {
			r.scrubStep()
		}
	case msgStop:
		r.stopped = m.done
		m.done()
	}
}

// Flush implements exec.Actor.
func (r *reader) Flush() {}

type (
	msgReclaim struct{}
	msgScrub   struct{}
	msgStop    struct{ done func() }
)

func (r *reader) stop(done func()) { r.mb.Post(msgStop{done}) }

// entries gives the index of the batches of a span. The copy's lock is held: a footer is read at most once in a while.
func (s *Store) entries(p ident.Partition, sp *span) ([]entry, error) {
	if sp.entries != nil || sp.first == sp.end {
		return sp.entries, nil
	}
	ft, err := s.footerOf(sp.file)
	if err != nil {
		return nil, err
	}
	es := ft.sections[p]
	from := sort.Search(len(es), func(i int) bool { return es[i].position >= sp.first })
	to := sort.Search(len(es), func(i int) bool { return es[i].position >= sp.end })
	if from == to {
		return nil, fmt.Errorf("%w: the index of %s lacks positions %d to %d of %s", ErrDamaged, sp.file.name, sp.first, sp.end, p)
	}
	return es[from:to:to], nil
}

// footerOf gives a file's index from memory or from disk.
func (s *Store) footerOf(f *logFile) (*footer, error) {
	s.footerMu.Lock()
	defer s.footerMu.Unlock()
	r := s.r
	r.asks++
	if ft := r.footers[f.generation]; ft != nil {
		ft.used = r.asks
		return ft, nil
	}
	if f.f == nil {
		return nil, fmt.Errorf("%w: %s", ErrDamaged, f.name)
	}
	ft, err := f.readFooter()
	if err != nil {
		return nil, err
	}
	ft.used = r.asks
	r.footers[f.generation] = ft
	r.held += ft.bytes
	for r.held > s.opt.FooterBytes && len(r.footers) > 1 {
		oldest := f.generation
		for g, x := range r.footers {
			if x.used < r.footers[oldest].used {
				oldest = g
			}
		}
		r.held -= r.footers[oldest].bytes
		delete(r.footers, oldest)
	}
	return ft, nil
}

// readFrame reads one frame and checks it.
func (s *Store) readFrame(f *logFile, at int64, body int) (frame, error) {
	if f.f == nil {
		return frame{}, fmt.Errorf("%w: %s", ErrDamaged, f.name)
	}
	generation := f.generation
	buf := make([]byte, framed(body))
	n, err := f.f.ReadAt(buf, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return frame{}, fmt.Errorf("read %s: %w", f.name, err)
	}
	s.metrics.diskReads.Add(1)
	fr, err := parseFrame(buf[:n])
	if err != nil || fr.generation != generation {
		return frame{}, fmt.Errorf("%w: no whole frame in %s at %d", ErrDamaged, f.name, at)
	}
	return fr, nil
}

// Read gives batches from the one that holds a position on: at least one if there is any, else about max bytes. Where the position
// was dropped it goes on from the next batch that is kept. What is in memory is given before Read returns. It fails with ErrDamaged
// where what is on disk is not what was written; the copy is out of service then.
func (c *Copy) Read(position uint64, max int, done func([]batch.Batch, error)) {
	c.mu.Lock()
	bs, ok := c.fromMemory(position, max, func(b batch.Batch) bool { return b.End() > position })
	c.mu.Unlock()
	if ok {
		done(bs, nil)
		return
	}
	c.s.r.mb.Post(msgCall{func() {
		done(c.fromDisk(max, func(e entry) bool { return e.end() > position }, func(sp *span) bool { return sp.end > position }))
	}})
}

// ReadOffset is Read by the offset of a record.
func (c *Copy) ReadOffset(offset uint64, max int, done func([]batch.Batch, error)) {
	c.mu.Lock()
	bs, ok := c.fromMemory(c.tail.Position, max, func(b batch.Batch) bool { return b.EndOffset() > offset })
	c.mu.Unlock()
	if ok {
		done(bs, nil)
		return
	}
	c.s.r.mb.Post(msgCall{func() {
		done(c.fromDisk(max, func(e entry) bool { return e.endOffset() > offset }, func(sp *span) bool { return sp.endOff > offset }))
	}})
}

// fromMemory finds the first batch that is wanted, if everything from it on is in memory. ok is also true at the log's end and for a
// copy that cannot be read.
func (c *Copy) fromMemory(position uint64, max int, want func(batch.Batch) bool) (bs []batch.Batch, ok bool) {
	if c.deleted || len(c.newest) == 0 && c.tail.Position == 0 {
		return nil, true
	}
	i := sort.Search(len(c.newest), func(i int) bool { return want(c.newest[i]) })
	if i == len(c.newest) {
		return nil, position >= c.tail.Position && len(c.newest) > 0
	}
	if i == 0 && c.newest[0].Position > 0 && c.olderThanMemory(position, want) {
		return nil, false
	}
	size := 0
	for _, b := range c.newest[i:] {
		if len(bs) > 0 && size+b.Size() > max {
			break
		}
		bs = append(bs, b)
		size += b.Size()
	}
	return bs, true
}

// olderThanMemory reports whether something that is wanted may lie before the batches in memory.
func (c *Copy) olderThanMemory(position uint64, want func(batch.Batch) bool) bool {
	first := c.newest[0]
	if position < c.tail.Position && position >= first.Position {
		return false
	}
	return len(c.spans) > 0 && c.spans[0].first < first.Position
}

// fromDisk reads batches by the index, on the reader's loop, and goes on in memory.
func (c *Copy) fromDisk(max int, want func(entry) bool, wantSpan func(*span) bool) ([]batch.Batch, error) {
	for {
		bs, err := c.tryDisk(max, want, wantSpan)
		if errors.Is(err, errMoved) {
			continue
		}
		if errors.Is(err, ErrDamaged) {
			c.s.corrupt(c, err)
		}
		return bs, err
	}
}

type located struct {
	e entry
	f *logFile
}

func (c *Copy) tryDisk(max int, want func(entry) bool, wantSpan func(*span) bool) ([]batch.Batch, error) {
	c.mu.Lock()
	if err := c.usable(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	places, err := c.locate(max, want, wantSpan)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	bs := make([]batch.Batch, 0, len(places))
	for _, l := range places {
		b, err := c.s.readBatch(c, l)
		if err != nil {
			if c.moved(l) {
				return nil, errMoved
			}
			if len(bs) > 0 {
				return bs, nil // what was read is good; the next read will say what is wrong
			}
			return nil, err
		}
		bs = append(bs, b)
	}
	return bs, nil
}

// locate finds the places of batches in the index. The lock is held.
func (c *Copy) locate(max int, want func(entry) bool, wantSpan func(*span) bool) ([]located, error) {
	var out []located
	size := 0
	for i := sort.Search(len(c.spans), func(i int) bool { return wantSpan(&c.spans[i]) }); i < len(c.spans); i++ {
		sp := &c.spans[i]
		es, err := c.s.entries(c.part, sp)
		if err != nil {
			if len(out) > 0 {
				return out, nil
			}
			return nil, err
		}
		for k := sort.Search(len(es), func(k int) bool { return want(es[k]) }); k < len(es); k++ {
			if len(out) > 0 && size+int(es[k].size) > max {
				return out, nil
			}
			out = append(out, located{es[k], sp.file})
			size += int(es[k].size)
		}
	}
	return out, nil
}

// moved reports whether a batch lies elsewhere now than it was read from.
func (c *Copy) moved(l located) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deleted {
		return false
	}
	i := c.spanAt(l.e.position)
	return i == len(c.spans) || c.spans[i].file != l.f || c.spans[i].first > l.e.position
}

// readBatch reads one batch and checks that it is the one that the index means: whole, in its place, with the link before it.
func (s *Store) readBatch(c *Copy, l located) (batch.Batch, error) {
	fr, err := s.readFrame(l.f, l.e.at, int(l.e.size))
	if err != nil {
		return batch.Batch{}, err
	}
	b, err := batch.Parse(fr.body)
	if err != nil {
		return b, fmt.Errorf("%w: %s at %d: %w", ErrDamaged, l.f.name, l.e.at, err)
	}
	if b.Partition != c.part || b.Position != l.e.position || b.Count != l.e.count || b.Offset != l.e.offset {
		return b, fmt.Errorf("%w: %s at %d holds another batch than %s at %d", ErrDamaged, l.f.name, l.e.at, c.part, l.e.position)
	}
	if b.Link() != l.e.link {
		return b, fmt.Errorf("%w: the link of %s at %d does not match its index", ErrDamaged, c.part, l.e.position)
	}
	return b, nil
}

// SeekTime is the offset of the first record in the first batch whose time is at or after ms; the tail's offset if there is none.
func (c *Copy) SeekTime(ms int64, done func(uint64, error)) {
	c.s.r.mb.Post(msgCall{func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range c.spans {
			sp := &c.spans[i]
			if sp.lastTime < ms {
				continue
			}
			es, err := c.s.entries(c.part, sp)
			if err != nil {
				done(0, err)
				return
			}
			if k := sort.Search(len(es), func(k int) bool { return es[k].time >= ms }); k < len(es) {
				done(es[k].offset, nil)
				return
			}
		}
		for _, b := range c.newest {
			if b.Position >= c.logged.Position && b.Time >= ms {
				done(b.Offset, nil)
				return
			}
		}
		done(c.tail.Offset, nil)
	}})
}

// LastBatch is the offset of the first record of the last batch below a position that has records; the head's offset if none has.
func (c *Copy) LastBatch(below uint64, done func(uint64, error)) {
	c.s.r.mb.Post(msgCall{func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := len(c.newest) - 1; i >= 0; i-- {
			if b := c.newest[i]; b.Position < below && b.Records > 0 {
				done(b.Offset, nil)
				return
			}
		}
		for i := len(c.spans) - 1; i >= 0; i-- {
			sp := &c.spans[i]
			if sp.first >= below || sp.records == 0 {
				continue
			}
			es, err := c.s.entries(c.part, sp)
			if err != nil {
				done(0, err)
				return
			}
			for _, e := range slices.Backward(es) {
				if e.position < below && e.records > 0 {
					done(e.offset, nil)
					return
				}
			}
		}
		done(c.headOffsetNow(), nil)
	}})
}

func (c *Copy) headOffsetNow() uint64 {
	if len(c.spans) > 0 {
		return c.spans[0].offset
	}
	return c.tail.Offset
}
