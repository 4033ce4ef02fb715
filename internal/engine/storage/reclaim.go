package storage

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/trace"
)

// reclaimEvery bounds how often files are looked through.
const reclaimEvery = time.Second

// wantReclaim asks for a look at the files, soon. It may be called from any loop.
func (r *reader) wantReclaim() {
	if r.mb != nil && r.looking.CompareAndSwap(false, true) {
		r.mb.After(reclaimEvery, msgReclaim{})
	}
}

// usage is what a full file holds that must be kept.
type usage struct {
	f     *logFile
	live  int64
	stuck bool    // it holds something of a damaged copy, which stays where it is
	bytes []*Copy // with batches there
	pages []*Copy // with pages there
}

// reclaim gives up files that hold nothing live and empties the one that is most nearly so. The two newest are never given up: the
// last checkpoint and the one before it stay readable.
func (r *reader) reclaim() {
	uses := r.usages()
	for _, u := range uses {
		if len(u.bytes) == 0 && len(u.pages) == 0 {
			r.release(u.f)
		}
	}
	for _, u := range uses {
		used := len(u.bytes)+len(u.pages) > 0
		if used && !u.stuck && !r.tried[u.f.generation] && float64(u.live) < r.s.opt.ReclaimBelow*float64(r.s.opt.FileSize) {
			r.empty(u)
			return // one at a time; the next look takes the next
		}
	}
}

// usages are those of the files that may be given up, oldest first.
func (r *reader) usages() []usage {
	s := r.s
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.files) < 3 {
		return nil
	}
	full := s.files[:len(s.files)-2]
	by := map[*logFile]*usage{}
	uses := make([]usage, len(full))
	for i, f := range full {
		uses[i].f = f
		by[f] = &uses[i]
	}
	for _, c := range s.sorted() {
		c.mu.Lock()
		c.addUsage(by)
		c.mu.Unlock()
	}
	return slices.DeleteFunc(uses, func(u usage) bool { return u.f.f == nil })
}

func (c *Copy) addUsage(by map[*logFile]*usage) {
	for i := range c.spans {
		sp := &c.spans[i]
		if u := by[sp.file]; u != nil {
			u.live += c.liveBytes(sp)
			u.stuck = u.stuck || c.damaged != ""
			if n := len(u.bytes); n == 0 || u.bytes[n-1] != c {
				u.bytes = append(u.bytes, c)
			}
		}
	}
	for _, sn := range c.snapshots() {
		for _, p := range sn.pages {
			if u := by[p.file]; u != nil {
				u.live += int64(p.size)
				u.stuck = u.stuck || c.damaged != ""
				if n := len(u.pages); n == 0 || u.pages[n-1] != c {
					u.pages = append(u.pages, c)
				}
			}
		}
	}
}

// release logs that a file is given up; once that is durable it may be overwritten.
func (r *reader) release(f *logFile) {
	s := r.s
	if f.released {
		return
	}
	f.released = true
	delete(r.tried, f.generation)
	body := binary.LittleEndian.AppendUint32(nil, f.generation)
	s.w.enqueue(op{typ: layout.FrameRelease, body: body, done: func(err error) {
		if err != nil {
			return
		}
		s.mu.Lock()
		if i := slices.Index(s.files, f); i >= 0 {
			s.files = slices.Delete(s.files, i, i+1)
			s.spares = append(s.spares, &logFile{name: f.name, number: f.number, f: f.f})
		}
		s.mu.Unlock()
		s.footerMu.Lock()
		if ft := r.footers[f.generation]; ft != nil {
			r.held -= ft.bytes
			delete(r.footers, f.generation)
		}
		s.footerMu.Unlock()
	}}, false)
}

// empty copies what a file holds live into the journal's end, a chunk at a time: the next chunk is read when the last is durable, so
// that what clients wait for is not delayed by more than a chunk.
func (r *reader) empty(u usage) {
	trace.Info(r.s.env.Trace, "storage.reclaim", slog.String("file", u.f.name), slog.Int64("live", u.live))
	var work []func() (op, bool)
	r.s.warmFile(u.f)
	for _, c := range u.bytes {
		c.mu.Lock()
		for i := range c.spans {
			sp := &c.spans[i]
			if sp.file != u.f {
				continue
			}
			es, err := r.s.entries(c.part, sp)
			if err != nil {
				continue // it stays where it is; whoever reads it will say what is wrong
			}
			for _, e := range es {
				work = append(work, func() (op, bool) { return r.moveBatch(c, located{e, u.f}) })
			}
		}
		c.mu.Unlock()
	}
	for _, c := range u.pages {
		c.mu.Lock()
		for _, sn := range c.snapshots() {
			for _, p := range sn.pages {
				if p.file == u.f {
					work = append(work, func() (op, bool) { return r.movePage(c, p) })
				}
			}
		}
		c.mu.Unlock()
	}
	r.tried[u.f.generation] = true
	r.looking.Store(true)
	r.move(work)
}

// move does the next chunk of work.
func (r *reader) move(work []func() (op, bool)) {
	size := 0
	for len(work) > 0 && size < r.s.opt.ReclaimChunk {
		o, ok := work[0]()
		work = work[1:]
		if !ok {
			continue
		}
		size += o.size()
		if size < r.s.opt.ReclaimChunk && len(work) > 0 {
			r.s.w.enqueue(o, false)
			continue
		}
		o.done = func(err error) {
			r.mb.Post(msgCall{func() {
				if err == nil && !r.stopped {
					r.move(work)
				}
			}})
		}
		r.s.w.enqueue(o, false)
		r.s.metrics.bytesMoved.Add(uint64(size))
		return
	}
	if len(work) == 0 {
		r.mb.After(reclaimEvery, msgReclaim{})
	}
}

// moveBatch reads a batch to be written again; ok is false where it need not or cannot be.
func (r *reader) moveBatch(c *Copy, l located) (op, bool) {
	c.mu.Lock()
	keep := c.damaged == "" && !c.deleted && c.keeps(l.e.position, l.e.end(), l.e.offset, l.e.endOffset())
	if !keep && c.damaged == "" && !c.deleted {
		c.carve(l.e)
	}
	c.mu.Unlock()
	if !keep {
		return op{}, false
	}
	b, err := r.s.readBatch(c, l)
	if err != nil {
		if !c.moved(l) {
			r.s.corrupt(c, err)
		}
		return op{}, false
	}
	before := func() bool { return !c.moved(l) && c.stillHas(l.e) }
	return op{typ: layout.FrameMoved, c: c, b: b, old: &l.e, before: before}, true
}

// stillHas reports whether the log was neither cut nor dropped at a batch.
func (c *Copy) stillHas(e entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.deleted && (e.end() <= c.logged.Position || c.importing() != nil) && c.keeps(e.position, e.end(), e.offset, e.endOffset())
}

func (r *reader) movePage(c *Copy, p page) (op, bool) {
	if !c.needsPage(p) {
		return op{}, false
	}
	data, err := r.s.readPage(c, p)
	if err != nil {
		r.s.corrupt(c, err)
		return op{}, false
	}
	body := binary.LittleEndian.AppendUint32(make([]byte, 0, movedHead+4+len(data)), p.file.generation)
	body = binary.LittleEndian.AppendUint64(body, uint64(p.at))
	body = binary.LittleEndian.AppendUint32(body, p.number)
	return op{typ: layout.FramePageMoved, c: c, body: append(body, data...), before: func() bool { return c.needsPage(p) }}, true
}

// needsPage reports whether a page is part of a snapshot, at the place where it was.
func (c *Copy) needsPage(p page) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sn := range c.snapshots() {
		if !c.deleted && slices.Contains(sn.pages, p) {
			return true
		}
	}
	return false
}
