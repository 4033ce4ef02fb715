package storage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// window reads a file front to back with bounded memory.
type window struct {
	f     io.ReaderAt
	buf   []byte
	at    int64 // of buf in the file
	size  int64
	chunk int // how much is read at a time
}

const windowSize = 4 << 20

// bytes gives n bytes at a place, or what there is up to the end of the file.
func (w *window) bytes(at int64, n int) ([]byte, error) {
	n = int(min(int64(n), max(0, w.size-at)))
	if at < w.at || at+int64(n) > w.at+int64(len(w.buf)) {
		want := int(min(int64(max(n, w.chunk)), max(0, w.size-at)))
		if cap(w.buf) < want {
			w.buf = make([]byte, want)
		}
		w.buf = w.buf[:want]
		got, err := w.f.ReadAt(w.buf, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		w.buf, w.at = w.buf[:got], at
		n = min(n, got)
	}
	return w.buf[at-w.at : at-w.at+int64(n)], nil
}

// frameAt parses the frame at a place. The body is valid until the next call.
func (w *window) frameAt(at int64) (layout.Frame, error) {
	p, err := w.bytes(at, layout.FrameHead)
	if err != nil {
		return layout.Frame{}, err
	}
	f, err := layout.ParseHead(p)
	if err != nil {
		return f, err
	}
	if p, err = w.bytes(at, f.Size); err != nil {
		return f, err
	}
	return layout.ParseFrame(p)
}

func (f *logFile) window() (*window, error) {
	size, err := f.f.Size()
	if err != nil {
		return nil, err
	}
	return &window{f: f.f, size: size, chunk: windowSize}, nil
}

func notAFrame(err error) bool {
	return errors.Is(err, layout.ErrFrameShort) || errors.Is(err, layout.ErrFrameHead) || errors.Is(err, layout.ErrFrameBody)
}

// checkpointOf reads the checkpoint that a file begins with; body is nil where there is no whole one. first is the sequence of the
// frame after it, and next its place.
func (rp *replay) checkpointOf(f *logFile) (body []byte, next int64, first uint64, err error) {
	w, err := f.window()
	if err != nil {
		return nil, 0, 0, err
	}
	at := int64(layout.HeaderSize)
	for {
		fr, err := w.frameAt(at)
		if err != nil {
			if notAFrame(err) {
				return nil, 0, 0, nil
			}
			return nil, 0, 0, err
		}
		if fr.Generation != f.generation || (fr.Typ != layout.FrameCheckpoint && fr.Typ != layout.FrameCheckEnd) {
			return nil, 0, 0, nil
		}
		body = append(body, fr.Body...)
		at += int64(fr.Size)
		if fr.Typ == layout.FrameCheckEnd {
			return body, at, fr.Sequence + 1, nil
		}
	}
}

// file replays the frames of a file from a place on. last says that no file follows, so that its end may be torn.
func (rp *replay) file(f *logFile, at int64, last bool) error {
	w, err := f.window()
	if err != nil {
		return err
	}
	rp.unproven = append(rp.unproven[:0], unproven{max(rp.expect, 1) - 1, 0})
	for {
		fr, err := w.frameAt(at)
		switch {
		case err == nil && fr.Generation == f.generation && fr.Sequence == rp.expect:
			rp.frame(f, at, fr)
			rp.prove(fr, at)
			rp.expect++
			at += int64(fr.Size)
			f.size = at
			if (fr.Typ == layout.FrameFooter || fr.Typ == layout.FrameFooterEnd) && f.footerAt == 0 {
				f.footerAt = at - int64(fr.Size)
			}
			if fr.Typ == layout.FrameFooterEnd {
				f.footed = true
				return nil
			}
			continue
		case err != nil && !notAFrame(err):
			return fmt.Errorf("read %s: %w", f.name, err)
		}
		f.size = at
		next, found, err := rp.resume(f, w, at)
		if err != nil {
			return err
		}
		if !found {
			rp.torn, rp.tornAt = f, at
			return nil
		}
		at = next
	}
}

// resume looks behind a place where no frame can be read. Where a later frame says that the missing ones had been synced, they are
// lost, and the replay goes on behind them. Otherwise the end is torn, and what lies behind it must not be taken for ours later.
func (rp *replay) resume(f *logFile, w *window, broken int64) (next int64, found bool, err error) {
	l := lost{from: rp.expect}
	for at := broken; at+layout.FrameHead <= w.size; {
		p, err := w.bytes(at, layout.FrameHead)
		if err != nil {
			return 0, false, fmt.Errorf("read %s: %w", f.name, err)
		}
		if len(p) < layout.FrameHead {
			break
		}
		h, err := layout.ParseHead(p)
		if err != nil || h.Generation != f.generation || h.Sequence < rp.expect {
			at += layout.FrameAlign
			continue
		}
		if h.SyncedBelow > rp.expect {
			if _, err := w.frameAt(at); err == nil {
				l.to = h.Sequence
				rp.lost = append(rp.lost, l)
				rp.problem("%s at %d: frames %d to %d were synced and cannot be read", f.name, broken, l.from, l.to-1)
				rp.expect, rp.stale = h.Sequence, nil
				return at, true, nil
			}
		}
		if _, err := w.frameAt(at); errors.Is(err, layout.ErrFrameBody) {
			l.headed++
			l.add(h.Part, h.Typ)
		} else if err == nil {
			l.headed = 0 // whole, and yet not to be reached: only a witness can say what lies around it
		}
		rp.stale = append(rp.stale, at)
		at += int64(h.Size)
	}
	return 0, false, nil
}

// add counts one whose frame it was. What else there is says nothing that a later checkpoint or the state does not say again.
func (v *victims) add(p ident.Partition, typ layout.FrameType) {
	if typ == layout.FrameEntries {
		v.meta = true
	} else if p != (ident.Partition{}) {
		v.parts = append(v.parts, p)
	}
}

// frame takes one frame into the state.
func (rp *replay) frame(f *logFile, at int64, fr layout.Frame) {
	rp.counts[fr.Typ]++
	var err error
	switch fr.Typ {
	case layout.FrameBatch:
		err = rp.batch(f, at, fr)
	case layout.FrameWitness:
		rp.witness(fr.Body)
	case layout.FrameEntries:
		fr.Body = slices.Clone(fr.Body)
		err = rp.s.apply(f, at, fr, nil)
	case layout.FrameScrub:
		d := layout.Decoder{P: fr.Body}
		rp.s.w.scrub = layout.Place{Generation: d.U32(), At: int64(d.U64())}
	case layout.FrameRelease:
		d := layout.Decoder{P: fr.Body}
		delete(rp.listed, d.U32())
		err = rp.s.apply(f, at, fr, nil)
	default:
		if fr.Typ == layout.FrameCreate || fr.Typ == layout.FrameDelete {
			rp.deleted[fr.Part] = fr.Typ == layout.FrameDelete
		}
		if fr.Typ == layout.FrameImage { // whatever was lost of the copy before, it does not need any more
			rp.anew[fr.Part] = fr.Sequence
			rp.strays = slices.DeleteFunc(rp.strays, func(p ident.Partition) bool { return p == fr.Part })
		}
		err = rp.s.apply(f, at, fr, nil)
	}
	if err != nil {
		rp.problem("%s at %d, frame %d (%s): %v", f.name, at, fr.Sequence, fr.Typ, err)
		if c := rp.s.copies[fr.Part]; c == nil && fr.Part != (ident.Partition{}) {
			rp.strays = append(rp.strays, fr.Part)
		} else if c != nil && c.damaged == "" {
			c.damaged = err.Error()
		}
	}
}

// prove keeps the places of those frames of which no later frame says that they had been synced.
func (rp *replay) prove(fr layout.Frame, at int64) {
	rp.unproven = append(rp.unproven, unproven{fr.Sequence, at})
	n := 0
	for rp.unproven[n].sequence < fr.SyncedBelow {
		n++
	}
	if n > 0 {
		rp.unproven = append(rp.unproven[:0], rp.unproven[n:]...)
	}
}

func (rp *replay) batch(f *logFile, at int64, fr layout.Frame) error {
	c := rp.s.copies[fr.Part]
	if c == nil {
		return fmt.Errorf("%w: a batch of a copy that is not there", layout.ErrBody)
	}
	if c.damaged != "" {
		return nil
	}
	b, err := batch.Parse(fr.Body)
	if err != nil {
		return err
	}
	if b.Partition != c.part || !b.Follows(c.logged) {
		return fmt.Errorf("%w: the batch at %d does not continue the log, which ends at %d", layout.ErrBody, b.Position, c.logged.Position)
	}
	c.applyBatch(f, at, b, b.Link())
	return nil
}

func (rp *replay) witness(body []byte) {
	d := layout.Decoder{P: body}
	w := witnessRange{from: d.U64(), to: d.U64()}
	for range d.U32() {
		p := ident.Partition{Incarnation: d.U64(), Index: d.U32()}
		d.U32()
		if d.Bad {
			return
		}
		if p == (ident.Partition{}) {
			w.meta = true
			continue
		}
		w.parts = append(w.parts, p)
	}
	rp.witnesses = append(rp.witnesses, w)
}

// readFooter reads the index at the end of a full file; where it is broken the index is rebuilt from the batches themselves.
func (f *logFile) readFooter() (*footer, error) {
	w, err := f.window()
	if err != nil {
		return nil, err
	}
	var body []byte
	for at := f.footerAt; f.footerAt > 0; {
		fr, err := w.frameAt(at)
		if err != nil || fr.Generation != f.generation || (fr.Typ != layout.FrameFooter && fr.Typ != layout.FrameFooterEnd) {
			break
		}
		body = append(body, fr.Body...)
		at += int64(fr.Size)
		if fr.Typ == layout.FrameFooterEnd {
			return parseFooter(body)
		}
	}
	return f.scan(w)
}

// scan makes an index of a file by reading all of it. Broken frames are stepped over: whoever needs them finds that they are missing.
func (f *logFile) scan(w *window) (*footer, error) {
	ft := &footer{sections: map[ident.Partition][]entry{}, rebuilt: true}
	for at := int64(layout.HeaderSize); at+layout.FrameHead <= w.size; {
		fr, err := w.frameAt(at)
		switch {
		case err != nil && !notAFrame(err):
			return nil, err
		case errors.Is(err, layout.ErrFrameHead), errors.Is(err, layout.ErrFrameShort), fr.Generation != f.generation:
			at += layout.FrameAlign
			continue
		case err == nil && (fr.Typ == layout.FrameBatch || fr.Typ == layout.FrameMoved || fr.Typ == layout.FrameImport):
			if b, err := batch.Parse(fr.Body); err == nil {
				ft.put(entryOf(b, b.Link(), at), fr)
			}
		case fr.Typ == layout.FrameFooter || fr.Typ == layout.FrameFooterEnd:
			return ft, nil
		}
		at += int64(fr.Size)
	}
	return ft, nil
}

// put takes a batch as it was found: a later one at the same position came after a cut, a moved one finds its place.
func (ft *footer) put(e entry, fr layout.Frame) {
	es := ft.sections[fr.Part]
	i := sort.Search(len(es), func(i int) bool { return es[i].position >= e.position })
	if fr.Typ == layout.FrameBatch {
		es = append(es[:i], e)
	} else if i < len(es) && es[i].position == e.position {
		es[i] = e
	} else {
		es = slices.Insert(es, i, e)
	}
	ft.sections[fr.Part] = es
	ft.bytes += entryBytes
}
