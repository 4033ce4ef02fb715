package storage

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

// breaks turns a bit of the first batch of a copy, in a full file.
func (b *box) breaks(c *Copy) {
	b.t.Helper()
	c.mu.Lock()
	sp := c.spans[0]
	es, err := b.s.entries(c.part, &sp)
	c.mu.Unlock()
	if err != nil || sp.file == b.s.newest() {
		b.t.Fatalf("nothing to break: %v", err)
	}
	var p [1]byte
	at := es[0].at + layout.FrameHead + int64(es[0].size)/2
	if _, err := sp.file.f.ReadAt(p[:], at); err != nil {
		b.t.Fatal(err)
	}
	p[0] ^= 8
	if _, err := sp.file.f.WriteAt(p[:], at); err != nil {
		b.t.Fatal(err)
	}
	if err := sp.file.f.Sync(); err != nil {
		b.t.Fatal(err)
	}
}

// finds has a broken batch read, and waits until that is written down.
func (b *box) finds(c *Copy) {
	b.t.Helper()
	if _, err := b.read(c, 0); !errors.Is(err, ErrDamaged) {
		b.t.Fatalf("a broken batch reads as %v", err)
	}
	b.sim.RunFor(10 * time.Millisecond)
}

// TestADamagedCopyIsGivenUpForAnImage: a crash at any step finds it damaged as it was, or as one whose image is not complete; its promise and its role
// stay. Then it takes the image, and is as sound as any.
func TestADamagedCopyIsGivenUpForAnImage(t *testing.T) {
	damaged, begun := 0, 0
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		from, l, live := imageSource(t)
		to := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
		dst, other := to.log(1), to.log(2)
		if err := to.call(dst.c.Anew); !errors.Is(err, ErrNotDamaged) {
			t.Fatalf("a sound copy: %v", err)
		}
		to.must(func(d func(error)) { dst.c.SetPromise(3, d) })
		to.must(func(d func(error)) { dst.c.SetRole(partition.Follower, 3, d) })
		for range 40 {
			to.add(dst, 2500)
		}
		to.add(other, 100)
		to.breaks(dst.c)
		to.finds(dst.c)
		if h := to.s.Health(); h.Class != Corruption || h.Copy != dst.c.part {
			t.Fatalf("its health: %+v", h)
		}
		for dst.c.Image().Damaged != "" {
			dst.c.Anew(func(error) {})
			for range rng.IntN(8) {
				to.sim.Step()
			}
			to.node.Stop()
			to.mem.Crash(rng.Uint64())
			to.open()
			to.find(dst)
			switch i := dst.c.Image(); {
			case i.Promise != 3 || i.Role != partition.Follower || i.RoleEpoch != 3:
				t.Fatalf("seed %d: promise or role is gone: %+v", seed, i)
			case i.Damaged != "":
				damaged++
			case i.Importing && i.Tail.Position == 0:
				begun++
			default:
				t.Fatalf("seed %d: neither damaged nor a part of an image: %+v", seed, i)
			}
		}
		x, err := from.export(l.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, from, x, to, dst.c, 5000)
		sameAs(t, to, dst.c, l, x, live)
		if h := to.s.Health(); h.Class != Healthy {
			t.Errorf("its health afterwards: %+v", h)
		}
		to.restart()
		sameAs(t, to, to.find(dst), l, x, live)
		if i := to.find(other).Image(); i.Damaged != "" || i.Tail != other.tail {
			t.Errorf("the other copy: %+v", i)
		}
	}
	if damaged < 5 || begun < 10 {
		t.Errorf("found damaged %d times, given up %d times", damaged, begun)
	}
}

// TestWhatWasLostBeforeAnImageHurtsNothingAfterIt: the frames that were lost stay in the file that the next start reads, too; the copy needs them no
// more, not even the one that made it.
func TestWhatWasLostBeforeAnImageHurtsNothingAfterIt(t *testing.T) {
	for name, which := range map[string]func(layout.Frame) bool{
		"create": func(f layout.Frame) bool { return f.Typ == layout.FrameCreate && f.Part.Incarnation == 1 },
		"batch":  func(f layout.Frame) bool { return f.Typ == layout.FrameBatch && f.Part.Incarnation == 1 },
	} {
		from, to := newBox(t, Options{}), newBox(t, Options{ScrubEvery: -1, FileSize: 1 << 20})
		l, other := from.log(1), to.log(2)
		for range 30 {
			from.add(l, 3000)
		}
		to.add(other, 100)
		dst := to.log(1)
		for range 3 {
			to.add(dst, 100)
		}
		to.add(other, 100)
		to.breakFrames(true, which)
		to.open()
		if to.find(dst).Image().Damaged == "" {
			t.Fatalf("%s: it is not damaged", name)
		}
		for range 2 { // also where the image is not complete
			to.must(to.find(dst).Anew)
			to.must(func(d func(error)) { dst.c.SetPromise(5, d) })
			to.restart()
			if i := to.find(dst).Image(); i.Damaged != "" || !i.Importing || i.Promise != 5 {
				t.Fatalf("%s: after it was given up: %+v", name, i)
			}
			to.s.corrupt(dst.c, ErrDamaged)
		}
		to.must(dst.c.Anew)
		x, err := from.export(l.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, from, x, to, dst.c, 10<<10)
		for range 2 {
			to.restart()
			if i := to.find(dst).Image(); i.Damaged != "" || i.Tail != l.tail || i.Promise != 5 {
				t.Fatalf("%s: %+v, want one that ends at %+v", name, i, l.tail)
			}
			if i := to.find(other).Image(); i.Tail != other.tail {
				t.Errorf("%s: the other copy: %+v", name, i)
			}
		}
	}
}

// TestAScrubTellsOfWhatNobodyReads: and the file of a copy that was given up can be used again.
func TestAScrubTellsOfWhatNobodyReads(t *testing.T) {
	b := newBox(t, Options{ScrubEvery: time.Second, CacheBytes: 1})
	var told []Health
	b.s.OnHealth(func(h Health) { told = append(told, h) })
	l, other := b.log(1), b.log(2)
	for range 60 {
		b.add(l, 3000)
	}
	b.add(other, 100)
	b.breaks(l.c)
	b.sim.RunFor(2 * scrubRest)
	if n := len(told); n == 0 || told[n-1].Class != Corruption || told[n-1].Copy != l.c.part {
		t.Fatalf("told %+v", told)
	}
	if got := l.c.salvage(10 << 10); len(got) < 2 || got[len(got)-1].End() != l.tail.Position {
		t.Errorf("salvaged %d batches", len(got))
	}
	files := len(b.s.files)
	b.must(l.c.Anew)
	b.sim.RunFor(time.Minute)
	if now := len(b.s.files); now >= files {
		t.Errorf("%d files are in use, %d were", now, files)
	}
	if last := told[len(told)-1]; last.Class != Healthy {
		t.Errorf("told last: %+v", last)
	}
}
