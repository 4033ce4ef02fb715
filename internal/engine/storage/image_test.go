package storage

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// imageSource is a queue's copy over several files: a snapshot in pages, a few old messages below it, a log above it.
func imageSource(t testing.TB) (*box, *log, []partition.Span) {
	b := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	l := b.log(1)
	for range 60 {
		b.add(l, 3000)
	}
	live := []partition.Span{{From: 2, To: 3}, {From: 20, To: 22}, {From: 59, To: 60}}
	b.snapshot(l, partition.Page{Number: 0, Data: []byte("head")}, partition.Page{Number: 1, Data: make([]byte, 3000)})
	b.snapshot(l, partition.Page{Number: 7, Data: []byte("seven")})
	b.must(func(d func(error)) { l.c.Retain(l.tail.Position, live, d) })
	b.sim.RunFor(10 * time.Second)
	for range 20 {
		b.add(l, 3000)
	}
	return b, l, live
}

func (b *box) export(c *Copy, want *ImageHead) (x *Export, err error) {
	b.t.Helper()
	err = b.call(func(done func(error)) {
		c.Export(want, func(got *Export, err error) { x = got; done(err) })
	})
	return x, err
}

func (b *box) chunk(x *Export, at ImageCursor, max int) (p []byte, err error) {
	b.t.Helper()
	err = b.call(func(done func(error)) {
		x.Chunk(at, max, func(got []byte, err error) { p = got; done(err) })
	})
	return p, err
}

func (b *box) take(c *Copy, p []byte) error {
	b.t.Helper()
	return b.call(func(done func(error)) { c.Import(p, 0, done) })
}

// transfer sends the rest of an image, a chunk at a time, and returns the number of chunks.
func transfer(t testing.TB, from *box, x *Export, to *box, c *Copy, size int) (chunks int) {
	t.Helper()
	_, at, _ := c.ImportState()
	for {
		p, err := from.chunk(x, at, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := to.take(c, p); err != nil {
			t.Fatalf("chunk %d: %v", at.Chunk, err)
		}
		chunks++
		k, err := parseChunk(p)
		if err != nil {
			t.Fatal(err)
		}
		if at = k.next(); k.last {
			return chunks
		}
	}
}

// sameAs checks that a copy holds what an image was of.
func sameAs(t testing.TB, b *box, c *Copy, l *log, x *Export, live []partition.Span) {
	t.Helper()
	i := c.Image()
	if i.Tail != x.head.Tail || i.Snapshot != x.head.Snapshot || i.Damaged != "" {
		t.Fatalf("%+v, want an image of %+v", i, x.head)
	}
	s, err := b.readSnapshot(c)
	if err != nil || s.At != x.head.Snapshot || s.Version != 1 || len(s.Pages) != 3 || string(s.Pages[0].Data) != "head" ||
		len(s.Pages[1].Data) != 3000 || string(s.Pages[2].Data) != "seven" {
		t.Fatalf("snapshot: %+v %v", s, err)
	}
	for _, sp := range live {
		for o := sp.From; o < sp.To; o++ {
			var got []batch.Batch
			err := b.call(func(done func(error)) {
				c.ReadOffset(o, 1, func(bs []batch.Batch, err error) { got = bs; done(err) })
			})
			if err != nil || len(got) != 1 || got[0].Offset != o || got[0].Link() != l.tails[o].Link {
				t.Fatalf("live record %d: %v %v", o, got, err)
			}
		}
	}
	tail := x.head.Snapshot
	for tail != x.head.Tail {
		bs, err := b.read(c, tail.Position)
		if err != nil || len(bs) == 0 {
			t.Fatalf("read at %d of %d: %v", tail.Position, x.head.Tail.Position, err)
		}
		for _, y := range bs {
			if !y.Follows(tail) {
				t.Fatalf("the batch at %d does not follow %d", y.Position, tail.Position)
			}
			tail = tail.After(y, y.Link())
		}
	}
}

func TestAnImageMakesTheSameCopy(t *testing.T) {
	for _, size := range []int{1, 8 << 10, 1 << 20} {
		from, l, live := imageSource(t)
		to := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
		dst := to.log(1)
		x, err := from.export(l.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		chunks := transfer(t, from, x, to, dst.c, size)
		if size == 1 && chunks < 20 || size == 1<<20 && chunks != 1 {
			t.Errorf("%d chunks of %d bytes", chunks, size)
		}
		x.Close()
		if l.c.imaging != nil {
			t.Error("a closed image still keeps something")
		}
		sameAs(t, to, dst.c, l, x, live)
		dst.tail, dst.tails = x.head.Tail, nil
		to.add(dst, 100) // it goes on as a log does
		to.restart()
		if i := to.find(dst).Image(); i.Tail != dst.tail {
			t.Fatalf("after a restart: %+v, want %+v", i.Tail, dst.tail)
		}
		to.must(func(d func(error)) { dst.c.Cut(x.head.Tail, d) })
		sameAs(t, to, dst.c, l, x, live)
	}
}

func TestAnImageOfALogWithoutASnapshot(t *testing.T) {
	for _, n := range []int{0, 30} {
		from, to := newBox(t, Options{}), newBox(t, Options{})
		l, dst := from.log(1), to.log(1)
		for range n {
			from.add(l, 3000)
		}
		x, err := from.export(l.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, from, x, to, dst.c, 10<<10)
		if i := dst.c.Image(); i.Tail != l.tail || i.Damaged != "" || i.Snapshot.Position != 0 {
			t.Fatalf("%+v", i)
		}
	}
}

func (b *box) crashWhileTaking(l *log, p []byte, rng *rand.Rand) {
	l.c.Import(p, 0, func(error) {})
	for range rng.IntN(6) {
		b.sim.Step()
	}
	b.node.Stop()
	b.mem.Crash(rng.Uint64())
	b.open()
	b.find(l)
}

// TestAnImageIsGoneOnWithAfterCrashesOfBothEnds: the receiver crashes at any step to any state of its disk, the source restarts, and
// meanwhile the source's log grows, is retained, and its files are reclaimed.
func TestAnImageIsGoneOnWithAfterCrashesOfBothEnds(t *testing.T) {
	resumed := 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		from, l, live := imageSource(t)
		to := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
		dst := to.log(1)
		to.must(func(d func(error)) { dst.c.SetPromise(1, d) })
		x, err := from.export(l.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for done := false; !done; {
			_, at, ok := dst.c.ImportState()
			p, err := from.chunk(x, at, 5000)
			if err != nil {
				t.Fatalf("seed %d, chunk %d: %v", seed, at.Chunk, err)
			}
			k, err := parseChunk(p)
			if err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(4) {
			case 0:
				to.crashWhileTaking(dst, p, rng)
				if _, now, _ := dst.c.ImportState(); now != at && now != k.next() && dst.c.Image().Tail != x.head.Tail {
					t.Fatalf("seed %d: at %+v, was at %+v", seed, now, at)
				}
				if i := dst.c.Image(); !i.Importing && i.Tail != x.head.Tail && (ok || at.Chunk > 0) {
					t.Fatalf("seed %d: a part of an image is taken for a whole copy: %+v", seed, i)
				}
				done = dst.c.Image().Tail == x.head.Tail
			case 1: // the source goes on, and what it would drop it keeps for the image
				for range 10 {
					from.add(l, 3000)
				}
				from.must(func(d func(error)) { l.c.Retain(l.tail.Position, nil, d) })
				from.sim.RunFor(3 * time.Second)
			case 2: // the source restarts, and nothing was dropped there yet
				if at.Chunk == 0 {
					continue
				}
				from.restart()
				head, _, _ := dst.c.ImportState()
				if x, err = from.export(from.find(l), &head); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				resumed++
			default:
				if err := to.take(dst.c, p); err != nil {
					t.Fatalf("seed %d, chunk %d: %v", seed, at.Chunk, err)
				}
				done = k.last
			}
		}
		sameAs(t, to, dst.c, l, x, live)
		to.restart()
		sameAs(t, to, to.find(dst), l, x, live)
		if i := dst.c.Image(); i.Promise != 1 {
			t.Fatalf("seed %d: the promise is gone: %+v", seed, i)
		}
	}
	if resumed < 50 {
		t.Errorf("resumed only %d times", resumed)
	}
}

func TestABrokenChunkIsRefused(t *testing.T) {
	from, l, live := imageSource(t)
	to := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
	dst := to.log(1)
	x, err := from.export(l.c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var at ImageCursor
	var before []byte
	for done := false; !done; {
		p, err := from.chunk(x, at, 6000)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(what string, q []byte) {
			if err := to.take(dst.c, q); !errors.Is(err, ErrBadChunk) {
				t.Fatalf("chunk %d with %s: %v", at.Chunk, what, err)
			}
			if _, now, _ := dst.c.ImportState(); now != at {
				t.Fatalf("chunk %d with %s moved the cursor to %+v", at.Chunk, what, now)
			}
		}
		for range 100 {
			q := append([]byte(nil), p...)
			q[rand.IntN(len(q))] ^= 1 << rand.IntN(8)
			refused("a bit flipped", q)
		}
		refused("its end missing", p[:len(p)-1])
		refused("something behind it", append(p[:len(p):len(p)], 0))
		if before != nil && at.Chunk > 1 {
			refused("the one before in its place", before)
		}
		if err := to.take(dst.c, p); err != nil {
			t.Fatal(err)
		}
		k, err := parseChunk(p)
		if err != nil {
			t.Fatal(err)
		}
		before, at, done = p, k.next(), k.last
	}
	sameAs(t, to, dst.c, l, x, live)
	first, err := from.chunk(x, ImageCursor{}, 6000)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.take(dst.c, first); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("an image into a copy that has a log: %v", err)
	}
	other, err := to.s.Create(ident.Partition{Incarnation: 9})
	if err != nil {
		t.Fatal(err)
	}
	if err := to.take(other, first); !errors.Is(err, ErrBadChunk) {
		t.Errorf("an image of another copy: %v", err)
	}
}

// TestChunksWhoseBatchesDoNotJoinAreRefused: whole chunks, as a faulty source would make them.
func TestChunksWhoseBatchesDoNotJoinAreRefused(t *testing.T) {
	from, l, _ := imageSource(t)
	x, err := from.export(l.c, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := from.chunk(x, ImageCursor{}, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	k, err := parseChunk(p)
	if err != nil || !k.last {
		t.Fatal(err)
	}
	for name, items := range map[string][]chunkItem{
		"the last batch missing": k.items[:len(k.items)-1],
		"one in the middle":      append(append([]chunkItem(nil), k.items[:len(k.items)-3]...), k.items[len(k.items)-2:]...),
		"no head":                k.items[1:],
		"two heads":              append([]chunkItem{k.items[0]}, k.items...),
		"one batch twice":        append(append([]chunkItem(nil), k.items...), k.items[len(k.items)-1]),
	} {
		q := make([]byte, chunkHead)
		for _, i := range items {
			q = appendItem(q, i.kind, i.body)
		}
		to := newBox(t, Options{})
		if err := to.take(to.log(1).c, k.seal(q)); !errors.Is(err, ErrBadChunk) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnImageThatCannotBeHadAnyMore(t *testing.T) {
	from, l, _ := imageSource(t)
	x, err := from.export(l.c, nil)
	if err != nil {
		t.Fatal(err)
	}
	head := x.Head()
	to := newBox(t, Options{ScrubEvery: -1})
	dst := to.log(1)
	p, err := from.chunk(x, ImageCursor{}, 6000)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.take(dst.c, p); err != nil {
		t.Fatal(err)
	}
	if err := to.call(func(d func(error)) { dst.c.WriteSnapshot(partition.Snapshot{}, d) }); !errors.Is(err, ErrImporting) {
		t.Errorf("a snapshot into half an image: %v", err)
	}
	if _, err := from.export(l.c, &ImageHead{Tail: head.Tail}); !errors.Is(err, ErrStaleImage) {
		t.Errorf("an image at another snapshot: %v", err)
	}
	at := l.tails[len(l.tails)-3]
	from.must(func(d func(error)) { l.c.Cut(at, d) })
	l.tail = at
	if _, err := from.chunk(x, ImageCursor{}, 6000); !errors.Is(err, ErrStaleImage) {
		t.Errorf("an image of a log that was cut: %v", err)
	}
	if _, err := from.export(l.c, &head); !errors.Is(err, ErrStaleImage) {
		t.Errorf("the same image again: %v", err)
	}
	x.Close()
	// Another image begins anew in the half of the first one.
	from.snapshot(l)
	if x, err = from.export(l.c, nil); err != nil {
		t.Fatal(err)
	}
	first, err := from.chunk(x, ImageCursor{}, 6000)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.take(dst.c, first); err != nil {
		t.Fatal(err)
	}
	transfer(t, from, x, to, dst.c, 6000)
	if i := dst.c.Image(); i.Tail != l.tail || i.Damaged != "" {
		t.Fatalf("%+v", i)
	}
	bytes, records := dst.c.Size()
	to.restart()
	if b, r := to.find(dst).Size(); b != bytes || r != records || records == 0 {
		t.Errorf("%d bytes and %d records after a restart, %d and %d before", b, r, bytes, records)
	}
	from.must(func(d func(error)) { l.c.DropHead(l.tail.Position-1, d) })
	from.add(l, 10)
	y, err := from.export(l.c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.chunk(y, ImageCursor{}, 6000); err != nil {
		t.Errorf("the head was dropped below the snapshot: %v", err)
	}
	from.must(func(d func(error)) { l.c.DropHead(l.tail.Position, d) })
	if _, err := from.chunk(y, ImageCursor{}, 6000); !errors.Is(err, ErrStaleImage) {
		t.Errorf("the head was dropped beyond the snapshot: %v", err)
	}
}
