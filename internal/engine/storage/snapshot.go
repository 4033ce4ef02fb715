package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// snapshot is where the pages of a state machine's snapshot lie.
type snapshot struct {
	at      batch.Tail
	version uint32
	pages   []page // ascending numbers
}

type page struct {
	number uint32
	file   *logFile
	at     int64 // of its frame
	size   uint32
}

func (sn *snapshot) put(p page) {
	i, found := slices.BinarySearchFunc(sn.pages, p.number, func(x page, n uint32) int { return cmp.Compare(x.number, n) })
	if found {
		sn.pages[i] = p
		return
	}
	sn.pages = slices.Insert(sn.pages, i, p)
}

func (sn *snapshot) drop(number uint32) {
	i, found := slices.BinarySearchFunc(sn.pages, number, func(x page, n uint32) int { return cmp.Compare(x.number, n) })
	if found {
		sn.pages = slices.Delete(sn.pages, i, i+1)
	}
}

// WriteSnapshot writes the pages that changed; with those that did not, and without those that went, they count once done. Pages of
// a snapshot that is never finished are forgotten. It is done with the error of the write or sync where that failed, and
// with those of Append where the copy cannot be written to.
func (c *Copy) WriteSnapshot(sn partition.Snapshot, done func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil {
		c.s.fail(done, err)
		return
	}
	c.s.w.enqueue(op{typ: layout.FramePages, c: c}, false)
	for _, p := range sn.Pages {
		body := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(p.Data)), p.Number)
		c.s.w.enqueue(op{typ: layout.FramePage, c: c, body: append(body, p.Data...)}, false)
	}
	body := layout.AppendTail(nil, sn.At)
	body = binary.LittleEndian.AppendUint32(body, sn.Version)
	for _, g := range sn.Gone {
		body = binary.LittleEndian.AppendUint32(body, g)
	}
	c.s.w.enqueue(op{typ: layout.FrameSnapshot, c: c, body: body, done: done}, false)
}

func (c *Copy) applyPage(f *logFile, at int64, body []byte) error {
	d := layout.Decoder{P: body}
	p := page{number: d.U32(), file: f, at: at, size: uint32(len(body))}
	if d.Bad {
		return layout.ErrBody
	}
	if c.pending == nil {
		c.pending = &snapshot{}
	}
	c.pending.put(p)
	return nil
}

func (c *Copy) applySnapshot(body []byte) error {
	d := layout.Decoder{P: body}
	next := &snapshot{at: d.Tail(), version: d.U32()}
	if c.snap != nil {
		next.pages = slices.Clone(c.snap.pages)
	}
	// What goes goes first: a number that is written as well is there.
	for len(d.P) > 0 && !d.Bad {
		next.drop(d.U32())
	}
	if d.Bad {
		return layout.ErrBody
	}
	if c.pending != nil {
		for _, p := range c.pending.pages {
			next.put(p)
		}
	}
	c.snap, c.pending = next, nil
	return nil
}

// applyPageMoved points to a page's new place, wherever it is part of.
func (c *Copy) applyPageMoved(f *logFile, at int64, body []byte) error {
	d := layout.Decoder{P: body}
	oldGeneration, oldAt := d.U32(), int64(d.U64())
	if d.Bad {
		return layout.ErrBody
	}
	for _, sn := range c.snapshots() {
		for i := range sn.pages {
			if p := &sn.pages[i]; p.file != nil && p.file.generation == oldGeneration && p.at == oldAt {
				p.file, p.at, p.size = f, at, uint32(len(body))
			}
		}
	}
	return nil
}

// ReadSnapshot gives the newest snapshot with all its pages; ok is false where there is none. It fails with ErrDamaged where a page
// cannot be read as it was written: the copy is out of service then.
func (c *Copy) ReadSnapshot(done func(partition.Snapshot, bool, error)) {
	c.s.r.do(func() error {
		sn, ok, err := c.readSnapshot()
		if errors.Is(err, ErrDamaged) {
			c.s.corrupt(c, err)
		}
		if !errors.Is(err, errUnwritten) {
			done(sn, ok, err)
		}
		return err
	}, func(err error) { done(partition.Snapshot{}, false, err) })
}

func (c *Copy) readSnapshot() (partition.Snapshot, bool, error) {
	c.mu.Lock()
	sn := c.snap
	if sn == nil || c.deleted {
		c.mu.Unlock()
		return partition.Snapshot{}, false, nil
	}
	out := partition.Snapshot{At: sn.at, Version: sn.version}
	places := slices.Clone(sn.pages)
	c.mu.Unlock()
	for _, p := range places {
		data, err := c.s.readPage(c, p)
		if err != nil {
			return partition.Snapshot{}, false, err
		}
		out.Pages = append(out.Pages, partition.Page{Number: p.number, Data: data})
	}
	return out, true, nil
}

func (s *Store) readPage(c *Copy, p page) ([]byte, error) {
	if !p.file.holds(p.at, p.size) {
		return nil, errUnwritten
	}
	fr, err := s.readFrame(p.file, p.at, int(p.size))
	if err != nil {
		return nil, fmt.Errorf("page %d of the snapshot of %s: %w", p.number, c.part, err)
	}
	body := fr.Body
	if fr.Typ == layout.FramePageMoved && len(body) >= movedHead {
		body = body[movedHead:]
	}
	if fr.Part != c.part || (fr.Typ != layout.FramePage && fr.Typ != layout.FramePageMoved) || len(body) < 4 ||
		binary.LittleEndian.Uint32(body) != p.number {
		return nil, fmt.Errorf("%w: %s holds another frame where page %d of %s should be", ErrDamaged, p.file.name, p.number, c.part)
	}
	return body[4:], nil
}

// movedHead is what a moved page begins with: the generation and the place that it had.
const movedHead = 12
