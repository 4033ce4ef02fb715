package storage

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// The image of a copy is what learners and reseeded copies get (design 3): its newest snapshot, at P; of the batches below P those that
// must be kept; and the log from P up to the tail that it had when the image was opened. It goes in chunks (docs/FORMATS.md draws
// them), each with its length, a checksum, and the link of all chunks before it, so that what arrives is one image, whole and in
// order. A receiver remembers durably how far it came and asks for the next chunk, of the same source or of another run of it.

// Errors of images.
var (
	// ErrBadChunk is returned when a chunk is not what was sent, or not of this copy. Nothing was written; sent again it may be right.
	ErrBadChunk = errors.New("storage: the chunk of an image is broken")
	// ErrImporting is returned when the image of a copy is not complete: until then it cannot be written to or read.
	ErrImporting = errors.New("storage: the image of the copy is not complete")
	// ErrNotEmpty is returned when an image is sent to a copy that has a log. Not worth a retry: delete the copy first.
	ErrNotEmpty = errors.New("storage: the copy is not empty")
	// ErrNotDamaged is returned when a sound copy is to be given up as a damaged one. Nothing was done.
	ErrNotDamaged = errors.New("storage: the copy is not damaged")
	// ErrStaleImage is returned when the source no longer has what an image would need: a newer snapshot took the place of its own
	// before a restart, or the head was dropped beyond it. An image opened anew can be had.
	ErrStaleImage = errors.New("storage: the image cannot be had any more")
)

// ImageHead says what an image is of.
type ImageHead struct {
	Snapshot batch.Tail // P; zero where there is no snapshot and the whole log is sent
	Version  uint32     // of the snapshot
	Tail     batch.Tail // where the image ends
	Head     uint64     // below it everything was dropped
}

// ImageID tells images apart.
type ImageID [16]byte

func (h ImageHead) encode(p []byte) []byte {
	p = binary.LittleEndian.AppendUint32(layout.AppendTail(p, h.Snapshot), h.Version)
	return layout.AppendU64(layout.AppendTail(p, h.Tail), h.Head)
}

func readImageHead(d *layout.Decoder) ImageHead {
	return ImageHead{Snapshot: d.Tail(), Version: d.U32(), Tail: d.Tail(), Head: d.U64()}
}

func (h ImageHead) id(p ident.Partition) (id ImageID) {
	sum := sha256.Sum256(h.encode(layout.AppendPart([]byte("image of a copy\n"), p)))
	copy(id[:], sum[:])
	return id
}

// ImageCursor is how far an image came. The zero cursor is its beginning.
type ImageCursor struct {
	Chunk    uint32     // number of the next chunk
	Link     batch.Link // of the chunks before
	Pages    uint32     // pages of the snapshot in them
	Position uint64     // batches below it are in them
}

func (x ImageCursor) encode(p []byte) []byte {
	p = append(binary.LittleEndian.AppendUint32(p, x.Chunk), x.Link[:]...)
	return layout.AppendU64(binary.LittleEndian.AppendUint32(p, x.Pages), x.Position)
}

func readImageCursor(d *layout.Decoder) ImageCursor {
	return ImageCursor{Chunk: d.U32(), Link: d.Link(), Pages: d.U32(), Position: d.U64()}
}

// imaging is what a copy has only while images are made of it or it is made of one.
type imaging struct {
	exports []*Export
	in      *importing
}

// Export is an image that is being sent. While it is open, what it needs is kept.
type Export struct {
	c    *Copy
	head ImageHead
	id   ImageID
	sn   *snapshot // nil: none
	from uint64    // everything above it is needed
	live []partition.Span
	cut  bool // the log was cut below the image's tail
}

// Export opens an image. want names one that was begun before, nil a new one; ErrStaleImage says that it cannot be gone on with. done is
// called once what the image holds is durable, with the error of the write or sync where that failed.
func (c *Copy) Export(want *ImageHead, done func(*Export, error)) {
	x := &Export{c: c}
	var failed error
	c.control(op{typ: layout.FrameImage, c: c, before: func() bool { // nothing is written: its place in the queue is what is wanted
		c.mu.Lock()
		defer c.mu.Unlock()
		failed = x.open(want)
		return false
	}, done: func(err error) {
		if err = errors.Join(failed, err); err != nil {
			x.Close()
			done(nil, err)
			return
		}
		done(x, nil)
	}}, false)
}

// open takes the present state of the copy, as logged. The copy's lock is held.
func (x *Export) open(want *ImageHead) error {
	c := x.c
	if err := c.usable(); err != nil {
		return err
	}
	x.head = ImageHead{Tail: c.logged, Head: c.head}
	if c.snap != nil {
		x.sn, x.from = c.snap, c.retainFrom
		x.head.Snapshot, x.head.Version = c.snap.at, c.snap.version
	}
	if want != nil {
		same := want.Snapshot == x.head.Snapshot && want.Version == x.head.Version && want.Tail.Position <= c.logged.Position
		if !same || c.head > want.Snapshot.Position || c.checkCut(want.Tail) != nil {
			return ErrStaleImage
		}
		x.head = *want
	}
	x.live = c.live
	x.id = x.head.id(c.part)
	if c.imaging == nil {
		c.imaging = &imaging{}
	}
	c.imaging.exports = append(c.imaging.exports, x)
	return nil
}

// Head says what the image is of.
func (x *Export) Head() ImageHead { return x.head }

// Close lets go of what the image needs.
func (x *Export) Close() {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	if m := x.c.imaging; m != nil {
		m.exports = slices.DeleteFunc(m.exports, func(o *Export) bool { return o == x })
		if len(m.exports) == 0 && m.in == nil {
			x.c.imaging = nil
		}
	}
}

// Salvage gives whole batches of a copy, damaged or not, those nearest to its end, of about max bytes at most: ascending, with gaps where they are
// broken or cannot be found. done is called once, on storage's loop, with none where the store is closed.
func (c *Copy) Salvage(max int, done func([]batch.Batch)) {
	c.s.r.do(func() error {
		done(c.salvage(max))
		return nil
	}, func(error) { done(nil) })
}

func (c *Copy) salvage(max int) (out []batch.Batch) {
	c.mu.Lock()
	spans := slices.Clone(c.spans)
	c.mu.Unlock()
	for i := len(spans) - 1; i >= 0 && max > 0; i-- {
		c.mu.Lock()
		es, err := c.s.entries(c.part, &spans[i])
		es = slices.Clone(es)
		c.mu.Unlock()
		if err != nil {
			continue
		}
		for k := len(es) - 1; k >= 0 && max > 0; k-- {
			b, err := c.s.readBatch(c, located{es[k], spans[i].file})
			if err == nil {
				out = append(out, b)
				max -= b.Size()
			}
		}
	}
	slices.Reverse(out)
	return out
}

// cutExports notes that images end where the log does not go any more. The lock is held.
func (c *Copy) cutExports(to uint64) {
	if c.imaging == nil {
		return
	}
	for _, x := range c.imaging.exports {
		x.cut = x.cut || to < x.head.Tail.Position
	}
}

func (x *Export) needs(end, offset, endOff uint64) bool {
	return end > x.from || overlap(x.live, offset, endOff) > 0
}

// snapshots are those whose pages are needed. The lock is held.
func (c *Copy) snapshots() []*snapshot {
	all := make([]*snapshot, 0, 2)
	add := func(sn *snapshot) {
		if sn != nil && !slices.Contains(all, sn) {
			all = append(all, sn)
		}
	}
	add(c.snap)
	add(c.pending)
	if c.imaging != nil {
		for _, x := range c.imaging.exports {
			add(x.sn)
		}
	}
	return all
}

const (
	chunkHead    = 72
	chunkVersion = 1
	chunkLast    = 1 // flag: the image ends with it

	itemHead  = 1 // what the image is of: the first item of the first chunk
	itemPage  = 2 // u32 number, data
	itemBatch = 3
)

// chunk is a decoded chunk. Its items refer to the bytes that it was read from.
type chunk struct {
	number uint32
	last   bool
	id     ImageID
	link   batch.Link
	part   ident.Partition
	pages  uint32 // in this chunk and those before
	below  uint64 // batches below it are in this chunk and those before
	items  []chunkItem
	raw    []byte
}

type chunkItem struct {
	kind uint8
	body []byte
}

func appendItem(p []byte, kind uint8, parts ...[]byte) []byte {
	n := 0
	for _, b := range parts {
		n += len(b)
	}
	p = append(p, kind, 0, 0, 0)
	p = binary.LittleEndian.AppendUint32(p, uint32(n))
	for _, b := range parts {
		p = append(p, b...)
	}
	return p
}

// seal fills in the head of a chunk whose items are behind it.
func (k chunk) seal(p []byte) []byte {
	put := binary.LittleEndian
	put.PutUint32(p, uint32(len(p)))
	p[8] = chunkVersion
	if k.last {
		p[9] = chunkLast
	}
	put.PutUint32(p[12:], k.number)
	copy(p[16:], k.id[:])
	copy(p[32:], k.link[:])
	put.PutUint64(p[48:], k.part.Incarnation)
	put.PutUint32(p[56:], k.part.Index)
	put.PutUint32(p[60:], k.pages)
	put.PutUint64(p[64:], k.below)
	put.PutUint32(p[4:], crc32.Checksum(p[8:], layout.Castagnoli))
	return p
}

// parseChunk decodes a chunk. It returns ErrBadChunk for anything that is none.
func parseChunk(p []byte) (chunk, error) {
	get := binary.LittleEndian
	if len(p) < chunkHead || int64(get.Uint32(p)) != int64(len(p)) || crc32.Checksum(p[8:], layout.Castagnoli) != get.Uint32(p[4:]) {
		return chunk{}, fmt.Errorf("%w: length or checksum", ErrBadChunk)
	}
	if p[8] != chunkVersion {
		return chunk{}, fmt.Errorf("%w: version %d, this program knows %d", ErrBadChunk, p[8], chunkVersion)
	}
	k := chunk{
		number: get.Uint32(p[12:]), last: p[9]&chunkLast != 0, id: ImageID(p[16:32]), link: batch.Link(p[32:48]),
		part: ident.Partition{Incarnation: get.Uint64(p[48:]), Index: get.Uint32(p[56:])}, pages: get.Uint32(p[60:]),
		below: get.Uint64(p[64:]), raw: p,
	}
	for d := (layout.Decoder{P: p[chunkHead:]}); len(d.P) > 0; {
		i := chunkItem{kind: d.U8()}
		d.Take(3)
		i.body = d.Take(int(d.U32()))
		if d.Bad || i.kind < itemHead || i.kind > itemBatch {
			return chunk{}, fmt.Errorf("%w: its items", ErrBadChunk)
		}
		k.items = append(k.items, i)
	}
	return k, nil
}

// next is where the image goes on behind a chunk.
func (k chunk) next() ImageCursor {
	h := sha256.New()
	h.Write(k.link[:])
	h.Write(k.raw)
	x := ImageCursor{Chunk: k.number + 1, Pages: k.pages, Position: k.below}
	copy(x.Link[:], h.Sum(nil))
	return x
}

// Chunk gives the chunk at a cursor, of about max bytes, or one batch or page if that is larger. It fails with ErrStaleImage where the
// log was cut or its head dropped meanwhile, with ErrDamaged where the copy cannot be read, and with ErrGone where it was deleted.
func (x *Export) Chunk(at ImageCursor, max int, done func([]byte, error)) {
	x.c.s.r.do(func() error {
		p, err := x.chunk(at, max)
		if errors.Is(err, ErrDamaged) {
			x.c.s.corrupt(x.c, err)
		}
		if !errors.Is(err, errUnwritten) {
			done(p, err)
		}
		return err
	}, func(err error) { done(nil, err) })
}

func (x *Export) chunk(at ImageCursor, max int) ([]byte, error) {
	c := x.c
	c.warm(func() int { return c.spanAt(at.Position) })
	c.mu.Lock()
	places, end, err := x.places(at.Position, max)
	var pages []page
	if x.sn != nil {
		pages = slices.Clone(x.sn.pages)
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	k := chunk{number: at.Chunk, id: x.id, link: at.Link, part: c.part, pages: at.Pages, below: at.Position}
	p := make([]byte, chunkHead, chunkHead+max)
	if at.Chunk == 0 {
		p = appendItem(p, itemHead, x.head.encode(nil))
	}
	for ; int(k.pages) < len(pages); k.pages++ {
		pg := pages[k.pages]
		if len(p)+int(pg.size) > max && len(p) > chunkHead {
			return k.seal(p), nil
		}
		data, err := c.s.readPage(c, pg)
		if err != nil {
			return nil, err
		}
		p = appendItem(p, itemPage, binary.LittleEndian.AppendUint32(nil, pg.number), data)
	}
	for _, l := range places {
		if len(p)+int(l.e.size) > max && len(p) > chunkHead {
			return k.seal(p), nil
		}
		b, err := c.s.readBatch(c, l)
		if err != nil {
			return nil, err
		}
		p = appendItem(p, itemBatch, b.Bytes())
		k.below = b.End()
	}
	k.last = end
	return k.seal(p), nil
}

// places finds the batches from a position on that are part of the image; end is true where these are the last. The lock is held.
func (x *Export) places(from uint64, most int) (out []located, end bool, err error) {
	c := x.c
	if err := c.usable(); err != nil {
		return nil, false, err
	}
	// What the snapshot does not cover must be whole: nothing may have been dropped from it.
	if above := max(from, x.head.Snapshot.Position); x.cut || c.head > above && above < x.head.Tail.Position {
		return nil, false, ErrStaleImage
	}
	size := 0
	for i := c.spanAt(from); i < len(c.spans); i++ {
		sp := &c.spans[i]
		es, err := c.s.entries(c.part, sp)
		if err != nil {
			return nil, false, err
		}
		for _, e := range es {
			if e.position >= x.head.Tail.Position {
				return out, true, nil
			}
			if e.end() <= from || !x.needs(e.end(), e.offset, e.endOffset()) {
				continue
			}
			if len(out) > 0 && size+int(e.size) > most {
				return out, false, nil
			}
			out = append(out, located{e, sp.file})
			size += int(e.size)
		}
	}
	return out, true, nil
}
