package storage

import (
	"errors"
	"fmt"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// importing is how far the image came that a copy is being made of, as logged.
type importing struct {
	id   ImageID
	head ImageHead
	at   ImageCursor
	tail batch.Tail // behind the last batch that was taken
}

// The body of a layout.FrameChunk: u8 1 where the image ends with it, id, cursor of the next chunk, what the image is of, tail.
func (in importing) encode(p []byte, last bool) []byte {
	flag := byte(0)
	if last {
		flag = chunkLast
	}
	p = append(append(p, flag), in.id[:]...)
	return layout.AppendTail(in.head.encode(in.at.encode(p)), in.tail)
}

func readImporting(d *layout.Decoder) (in importing, last bool) {
	last = d.U8()&chunkLast != 0
	in.id = ImageID(d.Link())
	in.at, in.head, in.tail = readImageCursor(d), readImageHead(d), d.Tail()
	return in, last
}

// importing is not nil while the copy's image is not complete. The lock is held.
func (c *Copy) importing() *importing {
	if c.imaging == nil {
		return nil
	}
	return c.imaging.in
}

// ImportState says what image the copy is being made of, and where to go on with it, also after a restart; ok is false where none was
// begun, or it is complete.
func (c *Copy) ImportState() (head ImageHead, at ImageCursor, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.importing()
	if in == nil || in.at.Chunk == 0 {
		return head, at, false
	}
	return in.head, in.at, true
}

// Import takes the next chunk of an image into an empty copy, or with a first chunk in place of a log that ends at over, where that is above
// 0: what the copy held is gone once that is durable, snapshot and all, and its promise and role stay. Once done the chunk is durable; the
// last one makes the copy what the image was of. One chunk at a time: the next may come when done was called. A first chunk of another image
// begins anew. It is done with ErrBadChunk where the chunk is broken or does not follow the one before, with ErrNotEmpty where the copy has a
// log that does not end at over, and with the error of the write or sync where that failed; after the first two nothing has changed. The
// chunk's bytes must not change until then.
func (c *Copy) Import(p []byte, over uint64, done func(error)) {
	c.s.r.do(func() error {
		k, err := parseChunk(p)
		if err == nil {
			err = c.take(k, over, done)
		}
		if err != nil {
			done(err)
		}
		return err
	}, done)
}

// Anew gives up what a damaged copy holds, for an image to come in its place: once done that is durable, and the copy takes a first chunk as an empty
// one does; its promise and role stay. It may be called for one that is made of an image already. It is done with ErrNotDamaged where the copy is
// sound, with ErrGone where it was deleted, and with the error of the write or sync where that failed: the outcome is then unknown. Source:
// design 2 §10.
func (c *Copy) Anew(done func(error)) {
	c.mu.Lock()
	err := error(nil)
	switch {
	case c.deleted:
		err = ErrGone
	case c.damaged == "":
		err = fmt.Errorf("%w: %s", ErrNotDamaged, c.part)
	}
	if err != nil {
		c.mu.Unlock()
		c.s.fail(done, err)
		return
	}
	c.tail, c.newest = batch.Tail{}, nil
	c.s.w.enqueue(op{typ: layout.FrameImage, c: c, done: func(err error) {
		if err == nil {
			c.s.healed()
		}
		done(err)
	}}, true)
	c.mu.Unlock()
}

// take checks a chunk against what came before it and enqueues what is in it.
func (c *Copy) take(k chunk, over uint64, done func(error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(); err != nil && !errors.Is(err, ErrImporting) {
		return err
	}
	in, items, err := c.follows(k, over)
	if err != nil {
		return err
	}
	var ops []op
	if k.number == 0 {
		ops = append(ops, op{typ: layout.FrameImage, c: c})
	}
	for _, i := range items {
		o := op{typ: layout.FramePage, c: c, body: i.body}
		if i.kind == itemBatch {
			b, err := batch.Parse(i.body)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrBadChunk, err)
			}
			link := b.Link()
			if err := in.add(c, b, link); err != nil {
				return err
			}
			old := entryOf(b, link, 0)
			o = op{typ: layout.FrameImport, c: c, b: b, old: &old}
		}
		ops = append(ops, o)
	}
	if k.last && !in.complete() {
		return fmt.Errorf("%w: the image ends before its tail", ErrBadChunk)
	}
	in.at = k.next()
	if k.number == 0 {
		c.tail, c.newest = batch.Tail{}, nil // as the first frame will have it
	}
	ops = append(ops, op{typ: layout.FrameChunk, c: c, body: in.encode(nil, k.last), done: done})
	for _, o := range ops {
		c.s.w.enqueue(o, false)
	}
	return nil
}

// follows checks that a chunk is the one that is wanted, and gives a state to go on from with the items to take.
func (c *Copy) follows(k chunk, over uint64) (importing, []chunkItem, error) {
	if k.part != c.part {
		return importing{}, nil, fmt.Errorf("%w: it is of %s", ErrBadChunk, k.part)
	}
	now := c.importing()
	if k.number == 0 {
		holds := c.tail.Position > 0 || c.snap != nil || now == nil && len(c.spans) > 0
		if holds && (over == 0 || c.tail.Position != over) {
			return importing{}, nil, fmt.Errorf("%w: %s", ErrNotEmpty, c.part)
		}
		if len(k.items) == 0 || k.items[0].kind != itemHead || k.link != (batch.Link{}) {
			return importing{}, nil, fmt.Errorf("%w: the first one does not say what the image is of", ErrBadChunk)
		}
		d := layout.Decoder{P: k.items[0].body}
		in := importing{id: k.id, head: readImageHead(&d)}
		if d.Bad || len(d.P) > 0 || in.head.id(c.part) != k.id || in.head.Snapshot.Position > in.head.Tail.Position {
			return importing{}, nil, fmt.Errorf("%w: what the image is of", ErrBadChunk)
		}
		return in, k.items[1:], pagesOnly(k.items[1:])
	}
	if now == nil || now.id != k.id || now.at.Chunk != k.number || now.at.Link != k.link {
		return importing{}, nil, fmt.Errorf("%w: chunk %d does not follow", ErrBadChunk, k.number)
	}
	return *now, k.items, pagesOnly(k.items)
}

// pagesOnly checks that what is not a batch is a page.
func pagesOnly(items []chunkItem) error {
	for _, i := range items {
		if i.kind == itemHead || i.kind == itemPage && len(i.body) < 4 {
			return fmt.Errorf("%w: its items", ErrBadChunk)
		}
	}
	return nil
}

// add checks a batch and moves on behind it. Between batches below the snapshot there may be gaps; from the snapshot on, each must
// follow the one before.
func (in *importing) add(c *Copy, b batch.Batch, link batch.Link) error {
	p := in.head.Snapshot
	if b.Position >= p.Position && in.tail.Position <= p.Position {
		if in.tail.Position == p.Position && in.tail.Link != p.Link {
			return fmt.Errorf("%w: the batches below the snapshot do not lead to it", ErrBadChunk)
		}
		in.tail = p
	}
	gap := in.tail.Position < p.Position && b.Position > in.tail.Position && b.End() <= p.Position
	if gap {
		in.tail = batch.Tail{Position: b.Position, Offset: b.Offset, Time: b.Time, Epoch: b.Epoch, Link: b.PrevLink}
	}
	if b.Partition != c.part || !b.Follows(in.tail) || in.tail.Position < p.Position && b.End() > p.Position {
		return fmt.Errorf("%w: the batch at %d does not follow %d", ErrBadChunk, b.Position, in.tail.Position)
	}
	in.tail = in.tail.After(b, link)
	return nil
}

// complete reports whether the image has come to its tail.
func (in *importing) complete() bool {
	if in.tail.Position <= in.head.Snapshot.Position {
		in.tail = in.head.Snapshot
	}
	return in.tail == in.head.Tail
}

// beginImport drops what came of an image before, and the log that one takes the place of, damaged or not.
func (c *Copy) beginImport() {
	c.damaged = ""
	for _, sp := range c.spans {
		c.dropTotals(sp)
	}
	c.spans, c.pending, c.snap = nil, nil, nil
	c.logged, c.head, c.retainFrom, c.live = batch.Tail{}, 0, 0, nil
	c.cutExports(0)
	if c.imaging == nil {
		c.imaging = &imaging{}
	}
	c.imaging.in = &importing{}
}

// applyChunk notes how far an image came, and with its last chunk makes the copy what the image was of.
func (c *Copy) applyChunk(body []byte, live bool) error {
	d := layout.Decoder{P: body}
	in, last := readImporting(&d)
	if d.Bad || len(d.P) > 0 {
		return layout.ErrBody
	}
	if c.importing() == nil {
		return nil // it was complete
	}
	if !last {
		c.imaging.in = &in
		return nil
	}
	c.logged, c.head = in.tail, in.head.Head
	if live {
		c.tail = c.logged
	}
	if in.head.Snapshot.Position > 0 {
		c.snap = &snapshot{at: in.head.Snapshot, version: in.head.Version}
		if c.pending != nil {
			c.snap.pages = c.pending.pages
		}
	}
	c.pending, c.imaging = nil, nil
	return nil
}

// Importing is where the image stands that the copy is being made of, for whoever sends it: what it is of and the cursor of the next
// chunk, in the form that ParsePlace reads. It is nil where none was begun, or it is complete.
func (c *Copy) Importing() []byte {
	head, at, ok := c.ImportState()
	if !ok {
		return nil
	}
	return head.encode(at.encode(nil))
}

// ParsePlace reads what Importing wrote. It returns ErrBadChunk for anything else.
func ParsePlace(p []byte) (ImageHead, ImageCursor, error) {
	d := layout.Decoder{P: p}
	at := readImageCursor(&d)
	head := readImageHead(&d)
	if d.Bad || len(d.P) > 0 {
		return ImageHead{}, ImageCursor{}, fmt.Errorf("%w: where an image stands", ErrBadChunk)
	}
	return head, at, nil
}
