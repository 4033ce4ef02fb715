package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/exec"
)

// reader is the actor that reads what is no longer in memory, reclaims files, and scrubs. It blocks in reads. As files are only given
// up by its word, nothing that it reads is overwritten meanwhile.
type reader struct {
	s  *Store
	mb exec.Mailbox

	looking  atomic.Bool // a look at the files is asked for or under way
	stopped  bool
	tried    map[uint32]bool // generations that have been emptied as far as they can be
	scrub    layout.Place
	scrubbed int64 // bytes since the scrub's place was last written down

	footers map[uint32]*footer // by generation; under the store's footer lock
	asks    uint64
	held    int64
}

func newReader(s *Store) *reader {
	return &reader{s: s, footers: map[uint32]*footer{}, tried: map[uint32]bool{}}
}

// Receive implements exec.Actor.
func (r *reader) Receive(msg any) {
	switch m := msg.(type) {
	case msgCall:
		m.f()
	case msgReclaim:
		r.looking.Store(false)
		if !r.stopped {
			r.reclaim()
		}
	case msgScrub:
		if !r.stopped {
			r.scrubStep()
		}
	case msgStop:
		r.stopped = true
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

// entries gives the index of the batches of a span. The copy's lock is held, for which appends wait, and all others behind them: what reads on the
// reader's loop has warmed the index before.
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
	es = es[from:to:to]
	if len(es) == 0 || ft.rebuilt && !covers(es, sp) {
		return nil, fmt.Errorf("%w: the index of %s lacks positions %d to %d of %s, or some of them", ErrDamaged, sp.file.name, sp.first, sp.end, p)
	}
	return es, nil
}

// covers reports whether nothing of a span is missing from an index: a span has no gaps, and it is the checkpoint that says where it ends.
func covers(es []entry, sp *span) bool {
	next := sp.first
	for _, e := range es {
		if e.position != next {
			return false
		}
		next = e.end()
	}
	return next == sp.end
}

// warmSpans is how many spans of a copy a read is taken to need at most; where it needs more, the rest is read with the lock held.
const warmSpans = 4

// warm has the index of the first spans from one on in memory, which pick finds with the lock held. It runs on the reader's loop, as files are only
// given up by its word. What cannot be read is told to whoever needs it.
func (c *Copy) warm(pick func() int) {
	var cold [warmSpans]*logFile
	n := 0
	c.mu.Lock()
	for i := max(0, pick()); i < len(c.spans) && n < warmSpans; i++ {
		if sp := &c.spans[i]; sp.entries == nil && sp.first != sp.end {
			cold[n] = sp.file
			n++
		}
	}
	c.mu.Unlock()
	for _, f := range cold[:n] {
		c.s.warmFile(f)
	}
}

// warmFile has the index of a file in memory.
func (s *Store) warmFile(f *logFile) {
	_, _ = s.footerOf(f) // whoever needs it asks again, and is told what is wrong
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
func (s *Store) readFrame(f *logFile, at int64, body int) (layout.Frame, error) {
	if f.f == nil {
		return layout.Frame{}, fmt.Errorf("%w: %s", ErrDamaged, f.name)
	}
	generation := f.generation
	buf := make([]byte, layout.SizeOf(body))
	n, err := f.f.ReadAt(buf, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return layout.Frame{}, fmt.Errorf("read %s: %w", f.name, err)
	}
	s.metrics.diskReads.Add(1)
	fr, err := layout.ParseFrame(buf[:n])
	if err != nil || fr.Generation != generation {
		return layout.Frame{}, fmt.Errorf("%w: no whole frame in %s at %d", ErrDamaged, f.name, at)
	}
	return fr, nil
}

// Read gives batches from the one that holds a position on: at least one if there is any, else about max bytes. Where the position
// was dropped it goes on from the next batch that is kept. What is in memory is given before Read returns. It fails with ErrDamaged
// where what is on disk is not what was written, and the copy is out of service then; and with ErrClosed after Close.
func (c *Copy) Read(position uint64, max int, done func([]batch.Batch, error)) {
	c.read(query{position: position}, max, done)
}

// ReadOffset is Read by the offset of a record. Errors as of Read.
func (c *Copy) ReadOffset(offset uint64, max int, done func([]batch.Batch, error)) {
	c.read(query{offset: offset, byOffset: true}, max, done)
}

// query is what a read wants: everything that ends above a position or an offset.
type query struct {
	position, offset uint64
	byOffset         bool
}

func (q query) wants(end, endOffset uint64) bool {
	if q.byOffset {
		return endOffset > q.offset
	}
	return end > q.position
}

func (c *Copy) read(q query, max int, done func([]batch.Batch, error)) {
	c.mu.Lock()
	if c.deleted || !c.onDisk(q) {
		bs := c.fromMemory(q, max)
		c.mu.Unlock()
		done(bs, nil)
		return
	}
	c.mu.Unlock()
	c.s.r.do(func() (err error) {
		var bs []batch.Batch
		if bs, err = c.fromDisk(q, max); !errors.Is(err, errUnwritten) {
			done(bs, err)
		}
		return err
	}, func(err error) { done(nil, err) })
}

// errUnwritten says that a frame is in the group that is being written.
var errUnwritten = errors.New("storage: not written yet")

// do reads on the reader's loop, again once the group is written that is being written where that is what it wants. failed is called
// in its place where the store was closed.
func (r *reader) do(read func() error, failed func(error)) {
	r.mb.Post(msgCall{func() {
		if r.stopped {
			failed(ErrClosed)
			return
		}
		if err := read(); !errors.Is(err, errUnwritten) {
			return
		}
		r.s.w.mb.Post(msgCall{func() { // no group is under way while the writer's loop does this
			if r.s.w.closed != nil {
				failed(r.s.w.closed)
				return
			}
			r.do(read, failed)
		}})
	}})
}

// spanOf is the first span that has what is wanted. The lock is held.
func (c *Copy) spanOf(q query) int {
	return sort.Search(len(c.spans), func(i int) bool { return q.wants(c.spans[i].end, c.spans[i].endOff) })
}

// onDisk reports whether the first batch that is wanted is in the journal and not in memory. The lock is held.
func (c *Copy) onDisk(q query) bool {
	i := c.spanOf(q)
	if i == len(c.spans) {
		return false
	}
	if len(c.newest) == 0 {
		return true
	}
	// Memory has all that follows its first batch.
	first := c.newest[0]
	return c.spans[i].first < first.Position && (q.byOffset && q.offset < first.Offset || !q.byOffset && q.position < first.Position)
}

// fromMemory gives what is wanted of what is in memory. The lock is held.
func (c *Copy) fromMemory(q query, max int) (bs []batch.Batch) {
	i := sort.Search(len(c.newest), func(i int) bool { return q.wants(c.newest[i].End(), c.newest[i].EndOffset()) })
	size := 0
	for _, b := range c.newest[i:] {
		if len(bs) > 0 && size+b.Size() > max {
			break
		}
		bs = append(bs, b)
		size += b.Size()
	}
	return bs
}

// fromDisk reads batches by the index, on the reader's loop; where there are none left, memory has what is wanted.
func (c *Copy) fromDisk(q query, max int) ([]batch.Batch, error) {
	c.warm(func() int { return c.spanOf(q) })
	c.mu.Lock()
	if err := c.usable(); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	places, err := c.locate(q, max)
	if err == nil && len(places) == 0 {
		bs := c.fromMemory(q, max)
		c.mu.Unlock()
		return bs, nil
	}
	c.mu.Unlock()
	var bs []batch.Batch
	for _, l := range places {
		var b batch.Batch
		if b, err = c.s.readBatch(c, l); err != nil {
			break
		}
		bs = append(bs, b)
	}
	if len(bs) > 0 {
		return bs, nil // what was read is good; the next read will say what is wrong
	}
	if errors.Is(err, ErrDamaged) {
		c.s.corrupt(c, err)
	}
	return nil, err
}

type located struct {
	e entry
	f *logFile
}

// locate finds the places of batches in the index. The lock is held.
func (c *Copy) locate(q query, max int) ([]located, error) {
	var out []located
	size := 0
	for i := c.spanOf(q); i < len(c.spans); i++ {
		sp := &c.spans[i]
		es, err := c.s.entries(c.part, sp)
		if err != nil {
			if len(out) > 0 {
				return out, nil
			}
			return nil, err
		}
		for k := sort.Search(len(es), func(k int) bool { return q.wants(es[k].end(), es[k].endOffset()) }); k < len(es); k++ {
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
	if !l.f.holds(l.e.at, l.e.size) {
		return batch.Batch{}, errUnwritten
	}
	fr, err := s.readFrame(l.f, l.e.at, int(l.e.size))
	if err != nil {
		return batch.Batch{}, err
	}
	b, err := batch.Parse(fr.Body)
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

// SeekTime is the offset of the first record in the first batch whose time is at or after ms, in milliseconds since 1970; the tail's offset if there is
// none. It may read the index of a file. Errors as of Read.
func (c *Copy) SeekTime(ms int64, done func(uint64, error)) {
	c.seek(func() int {
		if i := slices.IndexFunc(c.spans, func(sp span) bool { return sp.lastTime >= ms }); i >= 0 {
			return i
		}
		return len(c.spans)
	}, func() (uint64, error) { return c.seekTime(ms) }, done)
}

// LastBatch is the offset of the first record of the last batch below a position that has records; the head's offset if none
// has. Errors as of Read.
func (c *Copy) LastBatch(below uint64, done func(uint64, error)) {
	c.seek(func() int { return c.spanAt(below) - 1 }, func() (uint64, error) { return c.lastBatch(below) }, done)
}

// seek looks something up on the reader's loop, with the lock held; from is the first span whose index it is likely to need.
func (c *Copy) seek(from func() int, find func() (uint64, error), done func(uint64, error)) {
	c.s.r.do(func() error {
		c.warm(from)
		c.mu.Lock()
		offset, err := uint64(0), c.usable()
		if err == nil {
			offset, err = find()
		}
		c.mu.Unlock()
		done(offset, err)
		return err
	}, func(err error) { done(0, err) })
}

func (c *Copy) seekTime(ms int64) (uint64, error) {
	for i := range c.spans {
		sp := &c.spans[i]
		if sp.lastTime < ms {
			continue
		}
		es, err := c.s.entries(c.part, sp)
		if err != nil {
			return 0, err
		}
		if k := sort.Search(len(es), func(k int) bool { return es[k].time >= ms }); k < len(es) {
			return es[k].offset, nil
		}
	}
	for _, b := range c.newest {
		if b.Position >= c.logged.Position && b.Time >= ms {
			return b.Offset, nil
		}
	}
	return c.tail.Offset, nil
}

func (c *Copy) lastBatch(below uint64) (uint64, error) {
	for _, b := range slices.Backward(c.newest) {
		if b.Position < below && b.Records > 0 {
			return b.Offset, nil
		}
	}
	for i := len(c.spans) - 1; i >= 0; i-- {
		sp := &c.spans[i]
		if sp.first >= below || sp.records == 0 {
			continue
		}
		es, err := c.s.entries(c.part, sp)
		if err != nil {
			return 0, err
		}
		for _, e := range slices.Backward(es) {
			if e.position < below && e.records > 0 {
				return e.offset, nil
			}
		}
	}
	return c.headOffsetNow(), nil
}

func (c *Copy) headOffsetNow() uint64 {
	if len(c.spans) > 0 {
		return c.spans[0].offset
	}
	return c.tail.Offset
}
