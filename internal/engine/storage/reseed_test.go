package storage

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tanist/tanist/internal/core/partition"
)

// TestAnImageTakesThePlaceOfALog: a copy that has a log and a snapshot crashes at any step of taking an image in their place. It is found
// with the old log whole or as a part of an image, never as anything between, and keeps its promise and its role.
func TestAnImageTakesThePlaceOfALog(t *testing.T) {
	kept, begun := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		from, l, live := imageSource(t)
		to := newBox(t, Options{ScrubEvery: -1, CacheBytes: 1})
		dst := to.log(1)
		to.must(func(d func(error)) { dst.c.SetPromise(3, d) })
		to.must(func(d func(error)) { dst.c.SetRole(partition.Follower, 3, d) })
		for range 25 {
			to.add(dst, 2500)
		}
		to.snapshot(dst, partition.Page{Number: 4, Data: []byte("old")})
		for range 5 {
			to.add(dst, 2500)
		}
		old := dst.tail
		x, err := from.export(l.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := from.chunk(x, ImageCursor{}, 5000)
		if err != nil {
			t.Fatal(err)
		}
		for _, over := range []uint64{0, old.Position - 1, old.Position + 1} {
			err := to.call(func(done func(error)) { dst.c.Import(first, over, done) })
			if !errors.Is(err, ErrNotEmpty) || dst.c.Image().Tail != old {
				t.Fatalf("over a log that ends at %d and not at %d: %v, %+v", old.Position, over, err, dst.c.Image())
			}
		}
		for dst.c.Image().Tail == old {
			dst.c.Import(first, old.Position, func(error) {})
			for range rng.IntN(8) {
				to.sim.Step()
			}
			to.node.Stop()
			to.mem.Crash(rng.Uint64())
			to.open()
			to.find(dst)
			switch i := dst.c.Image(); {
			case i.Promise != 3 || i.Role != partition.Follower || i.RoleEpoch != 3 || i.Damaged != "":
				t.Fatalf("seed %d: promise or role is gone: %+v", seed, i)
			case i.Importing && i.Tail.Position == 0 && i.Snapshot.Position == 0:
				begun++
			case !i.Importing && i.Tail == old && i.Snapshot.Position == 25:
				kept++
			default:
				t.Fatalf("seed %d: neither the old log nor a part of an image: %+v", seed, i)
			}
		}
		transfer(t, from, x, to, dst.c, 5000)
		sameAs(t, to, dst.c, l, x, live)
		to.restart()
		sameAs(t, to, to.find(dst), l, x, live)
		if bytes, records := dst.c.Size(); bytes <= 0 || records > x.head.Tail.Position {
			t.Fatalf("seed %d: %d bytes, %d records", seed, bytes, records)
		}
	}
	if kept < 10 || begun < 10 {
		t.Errorf("the old log was found %d times, an image %d times", kept, begun)
	}
}
