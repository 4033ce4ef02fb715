package storage

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/trace"
)

// start begins the slow work. The scrub goes on where the run before it left off.
func (r *reader) start() {
	r.scrub = r.s.w.scrub
	if r.s.opt.ScrubEvery > 0 {
		r.mb.After(r.s.opt.ScrubEvery, msgScrub{})
	}
	r.wantReclaim()
}

const (
	// scrubNote is how much is scrubbed before the place is written down.
	scrubNote = 64 << 20
	// scrubRest is how long the scrub rests when it has seen everything.
	scrubRest = time.Hour
)

// scrubStep checks a chunk of the full files and remembers how far it came. When all are checked it rests.
func (r *reader) scrubStep() {
	f := r.scrubFile()
	if f == nil {
		r.scrub = layout.Place{}
		r.noteScrub()
		r.mb.After(scrubRest, msgScrub{})
		return
	}
	from := max(r.scrub.At, layout.HeaderSize)
	at, end := r.scrubChunk(f, from)
	r.scrub = layout.Place{Generation: f.generation, At: at}
	if end {
		r.scrub = layout.Place{Generation: f.generation + 1, At: 0}
	}
	if r.scrubbed += at - from; r.scrubbed >= scrubNote {
		r.noteScrub()
	}
	r.mb.After(r.s.opt.ScrubEvery, msgScrub{})
}

// noteScrub writes the place down.
func (r *reader) noteScrub() {
	r.scrubbed = 0
	body := binary.LittleEndian.AppendUint32(nil, r.scrub.Generation)
	r.s.w.enqueue(op{typ: layout.FrameScrub, body: binary.LittleEndian.AppendUint64(body, uint64(r.scrub.At))}, false)
}

// scrubChunk checks the frames of a file from a place on and says where it stopped. end is true where nothing follows.
func (r *reader) scrubChunk(f *logFile, at int64) (next int64, end bool) {
	w, err := f.window()
	if err != nil {
		trace.Warn(r.s.env.Trace, "storage.scrub.unread", slog.String("file", f.name), slog.String("error", err.Error()))
		return at, true
	}
	w.chunk = r.s.opt.ScrubChunk
	for stop := at + int64(r.s.opt.ScrubChunk); at < stop; {
		if at+layout.FrameHead > w.size {
			return at, true
		}
		fr, err := w.frameAt(at)
		switch {
		case err == nil && fr.Generation == f.generation:
			at += int64(fr.Size)
			if fr.Typ == layout.FrameFooterEnd {
				return at, true
			}
		case err != nil && !notAFrame(err):
			trace.Warn(r.s.env.Trace, "storage.scrub.unread", slog.String("file", f.name), slog.String("error", err.Error()))
			return at, true
		default:
			r.scrubFound(f, at)
			return at, true
		}
	}
	return at, false
}

// scrubFile is the full file to go on with: the one where the scrub stopped, or the next.
func (r *reader) scrubFile() *logFile {
	r.s.mu.RLock()
	defer r.s.mu.RUnlock()
	for _, f := range r.s.files[:max(0, len(r.s.files)-1)] {
		if f.generation == r.scrub.Generation {
			return f
		}
		if f.generation > r.scrub.Generation {
			r.scrub = layout.Place{Generation: f.generation, At: 0}
			return f
		}
	}
	return nil
}

// scrubFound looks through the whole of a file in which something is broken, by the index, which knows what should be there also where
// a frame's head is broken. What no copy needs any more, or what a checkpoint has said again, is no loss.
func (r *reader) scrubFound(f *logFile, at int64) {
	trace.Error(r.s.env.Trace, "storage.scrub", slog.String("file", f.name), slog.Int64("at", at))
	r.s.mu.RLock()
	all := r.s.sorted()
	r.s.mu.RUnlock()
	for _, c := range all {
		if err := r.check(c, f); err != nil {
			r.s.corrupt(c, fmt.Errorf("the scrub found %s broken: %w", f.name, err))
		}
	}
}

// check reads what a copy needs of a file.
func (r *reader) check(c *Copy, f *logFile) error {
	var ls []located
	var pages []page
	r.s.warmFile(f)
	c.mu.Lock()
	for i := range c.spans {
		sp := &c.spans[i]
		if sp.file != f || c.damaged != "" {
			continue
		}
		es, err := r.s.entries(c.part, sp)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		for _, e := range es {
			if c.keeps(e.position, e.end(), e.offset, e.endOffset()) {
				ls = append(ls, located{e, f})
			}
		}
	}
	if c.snap != nil && c.damaged == "" {
		pages = slices.Clone(c.snap.pages)
	}
	c.mu.Unlock()
	for _, l := range ls {
		if _, err := r.s.readBatch(c, l); err != nil && !c.moved(l) {
			return err
		}
	}
	for _, p := range pages {
		if p.file == f && c.needsPage(p) {
			if _, err := r.s.readPage(c, p); err != nil {
				return err
			}
		}
	}
	return nil
}
