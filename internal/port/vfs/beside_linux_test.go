package vfs

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// What is written, small groups past the system's cache and large ones through it, is read through the cache at the same time: at every moment it
// is what was written, and no write or sync fails for what the readers have in the cache.
func TestWhatIsReadMeanwhile(t *testing.T) {
	f := needDirect(t)
	const size, groups = 8 << 20, 400
	if err := f.Preallocate(size); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size) // a reader looks below end only
	var end atomic.Int64
	var over atomic.Bool
	var readers sync.WaitGroup
	for i := range 2 {
		readers.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(i), 1))
			p := make([]byte, 256<<10)
			for !over.Load() {
				e := end.Load()
				n := draw.Int64N(min(e, int64(len(p))) + 1)
				off := e - n
				if draw.IntN(3) == 0 {
					off = draw.Int64N(off + 1)
				}
				if _, err := f.ReadAt(p[:n], off); err != nil || !bytes.Equal(p[:n], want[off:off+n]) {
					t.Errorf("%d bytes at %d are others than were written (%v)", n, off, err)
					return
				}
			}
		})
	}
	defer readers.Wait()
	defer over.Store(true)
	draw := rand.New(rand.NewPCG(2, 1))
	for range groups {
		off := end.Load()
		n := 200 + draw.Int64N(6000)
		if draw.IntN(20) == 0 {
			n = ringMost + draw.Int64N(100<<10)
		}
		for i := off; i < off+n; i++ {
			want[i] = byte(draw.Uint32())
		}
		p := append(bytes.Clone(want[off:off+n]), make([]byte, -(off+n)&(PageSize-1))...)
		if err := WriteSync(f, p, off); err != nil {
			t.Fatal(err)
		}
		end.Store(off + n)
	}
}
