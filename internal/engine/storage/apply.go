package storage

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// applyBatch takes a batch that continues the log, placed in a file. The copy's lock is held.
func (c *Copy) applyBatch(f *logFile, at int64, b batch.Batch, link batch.Link) {
	c.logged = c.logged.After(b, link)
	c.index(f, entryOf(b, link, at))
}

func entryOf(b batch.Batch, link batch.Link, at int64) entry {
	return entry{
		position: b.Position, offset: b.Offset, time: b.Time, epoch: b.Epoch, at: at, size: uint32(b.Size()), count: b.Count,
		records: b.Records, link: link,
	}
}

// apply takes what a frame says into the index, when it is written and when it is replayed. Batches that continue a log are taken by
// applyBatch and replayBatch; o is nil in replay.
func (s *Store) apply(f *logFile, at int64, fr layout.Frame, o *op) error {
	switch fr.Typ {
	case layout.FrameEntries:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.applyMeta(fr.Body)
	case layout.FrameRelease:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.applyRelease(fr.Body)
	case layout.FrameWitness, layout.FrameScrub, layout.FrameCheckpoint, layout.FrameCheckEnd, layout.FrameFooter, layout.FrameFooterEnd:
		return nil
	}
	c := s.copyOf(fr, o)
	if c == nil {
		if fr.Typ == layout.FrameDelete {
			return nil
		}
		return fmt.Errorf("%w: a %s frame of a copy that is not there: %s", layout.ErrBody, fr.Typ, fr.Part)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.applyTo(c, f, at, fr, o)
}

// copyOf is the copy that a frame is of. A deleted one leaves the store with its frame, one that is created in replay comes with it.
func (s *Store) copyOf(fr layout.Frame, o *op) *Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.copies[fr.Part]
	if o != nil && o.c != nil {
		if fr.Typ == layout.FrameDelete && c == o.c {
			delete(s.copies, fr.Part)
		}
		return o.c
	}
	switch {
	case fr.Typ == layout.FrameDelete:
		delete(s.copies, fr.Part)
	case c == nil && (fr.Typ == layout.FrameCreate || fr.Typ == layout.FrameImage): // of a damaged one, made anew, the first may be lost
		c = &Copy{s: s, part: fr.Part}
		s.copies[fr.Part] = c
	}
	return c
}

func (s *Store) applyTo(c *Copy, f *logFile, at int64, fr layout.Frame, o *op) error {
	d := layout.Decoder{P: fr.Body}
	switch fr.Typ {
	case layout.FrameMoved, layout.FrameImport:
		return c.applyMoved(f, at, fr.Body, o)
	case layout.FrameCreate, layout.FrameDelete:
		if fr.Typ == layout.FrameDelete {
			c.forgetAll()
			s.r.wantReclaim()
		}
	case layout.FramePromise:
		c.promise = max(c.promise, d.U64())
	case layout.FrameRole:
		c.roleEpoch, c.role = d.U64(), partition.Role(d.U8())
	case layout.FrameCut:
		to := d.Tail()
		if d.Bad {
			return layout.ErrBody
		}
		if err := c.truncate(to, func(sp *span) ([]entry, error) { return s.entries(c.part, sp) }); err != nil {
			return err
		}
		c.logged = to
		c.cutExports(to.Position)
		if c.snap != nil && c.snap.at.Position > to.Position {
			c.snap = nil // a state beyond a cut is discarded (design 2 §1)
		}
		if to.Position == 0 {
			c.head, c.pending = 0, nil // it is an empty copy, and may be made of an image
		}
	case layout.FrameDropHead:
		below := d.U64()
		if d.Bad {
			return layout.ErrBody
		}
		c.head = max(c.head, min(below, c.logged.Position))
		c.forgetBelow(c.head)
		s.r.wantReclaim()
		return c.dropBelow(c.head, func(sp *span) ([]entry, error) { return s.entries(c.part, sp) })
	case layout.FrameImage:
		c.beginImport()
		s.r.wantReclaim()
	case layout.FrameChunk:
		return c.applyChunk(fr.Body, o != nil)
	case layout.FramePages:
		c.pending = nil
	case layout.FramePage:
		return c.applyPage(f, at, fr.Body)
	case layout.FramePageMoved:
		return c.applyPageMoved(f, at, fr.Body)
	case layout.FrameSnapshot:
		return c.applySnapshot(fr.Body)
	case layout.FrameDamage:
		if c.damaged == "" {
			c.damaged = string(fr.Body)
		}
	default:
		return fmt.Errorf("%w: type %s", layout.ErrBody, fr.Typ)
	}
	return d.Err()
}

func (c *Copy) forgetAll() {
	c.deleted, c.newest, c.spans, c.snap, c.pending = true, nil, nil, nil, nil
	c.bytes, c.records, c.live, c.imaging = 0, 0, nil, nil
}

// applyMoved points to a batch's new place. Its old one may have gone for good since the move was asked for.
func (c *Copy) applyMoved(f *logFile, at int64, body []byte, o *op) error {
	var e entry
	if o != nil {
		e = *o.old
	} else {
		b, err := batch.ParseTrusted(body)
		if err != nil {
			return err
		}
		e = entryOf(b, b.Link(), at)
	}
	c.carve(e)
	e.at = at
	c.index(f, e)
	return nil
}

// applyRelease drops what copies still point to in a file that holds nothing that must be kept.
func (s *Store) applyRelease(body []byte) error {
	d := layout.Decoder{P: body}
	generation := d.U32()
	if d.Bad {
		return layout.ErrBody
	}
	for _, c := range s.copies {
		c.mu.Lock()
		c.leave(generation)
		c.mu.Unlock()
	}
	return nil
}

// leave forgets the spans of a file.
func (c *Copy) leave(generation uint32) {
	kept := c.spans[:0]
	for _, sp := range c.spans {
		if sp.file.generation == generation {
			c.dropTotals(sp)
			continue
		}
		kept = append(kept, sp)
	}
	clear(c.spans[len(kept):])
	c.spans = kept
}
