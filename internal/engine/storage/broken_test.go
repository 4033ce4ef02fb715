package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/vfs"
)

// breakFrames turns a bit in frames of the newest file, in the body or in the head.
func (b *box) breakFrames(head bool, which func(layout.Frame) bool) (broken int) {
	b.t.Helper()
	f := b.s.newest()
	b.kill()
	file, err := b.mem.Open(f.name)
	if err != nil {
		b.t.Fatal(err)
	}
	p := make([]byte, b.opt.FileSize)
	n, _ := file.ReadAt(p, 0)
	for at := int64(layout.HeaderSize); ; {
		fr, err := layout.ParseFrame(p[at:n])
		if err != nil {
			break
		}
		if which(fr) {
			i := at + layout.FrameHead
			if head {
				i = at + 24
			}
			if _, err := file.WriteAt([]byte{p[i] ^ 8}, i); err != nil {
				b.t.Fatal(err)
			}
			broken++
		}
		at += int64(fr.Size)
	}
	if broken == 0 {
		b.t.Fatal("nothing was broken")
	}
	if err := file.Sync(); err != nil {
		b.t.Fatal(err)
	}
	return broken
}

// TestABrokenFrameHurtsWhomItIsOf: also where the head is broken, and only a witness says whose it was.
func TestABrokenFrameHurtsWhomItIsOf(t *testing.T) {
	for _, head := range []bool{false, true} {
		for name, which := range map[string]func(layout.Frame) bool{
			"entries": func(f layout.Frame) bool { return f.Typ == layout.FrameEntries },
			"create":  func(f layout.Frame) bool { return f.Typ == layout.FrameCreate && f.Part.Incarnation == 1 },
			"batch":   func(f layout.Frame) bool { return f.Typ == layout.FrameBatch && f.Part.Incarnation == 1 },
		} {
			if name == "create" && !head {
				continue // it has no body
			}
			t.Run(fmt.Sprintf("%s/head %v", name, head), func(t *testing.T) {
				b := newBox(t, Options{ScrubEvery: -1})
				other := b.log(2)
				b.add(other, 100)
				m := b.s.Consensus()
				l := b.log(1)
				x, link := l.next(100)
				l.c.Append(x, link, false, nil)
				b.must(func(d func(error)) { m.Append(nil, []catalog.LogEntry{{Index: 1, Term: 1, Data: []byte("x")}}, d) })
				b.must(func(d func(error)) { l.c.SetPromise(1, d) })
				b.add(other, 100)
				b.breakFrames(head, which)
				b.open()
				if i := b.find(other).Image(); i.Damaged != "" || i.Tail != other.tail {
					t.Errorf("the other copy: %+v", i)
				}
				if i := b.find(l).Image(); i.Damaged == "" && (name != "entries" || i.Tail != l.tail) {
					t.Errorf("the copy: %+v", i)
				}
				if _, err := b.s.Consensus().Load(); err == nil && name == "entries" {
					t.Error("the consensus log lost an entry and does not say so")
				} else if err != nil && !head && name != "entries" {
					t.Error(err)
				}
			})
		}
	}
}

func TestAStalledSyncIsSeen(t *testing.T) {
	r := newRig(t, Options{ScrubEvery: -1})
	l := r.log(1)
	l.append(r, 100)
	if d := r.s.Stalled(); d != 0 {
		t.Errorf("stalled %v with nothing under way", d)
	}
	slow := &slowFile{File: r.s.w.cur.f, begun: make(chan struct{}), go_: make(chan struct{})}
	r.must(func(d func(error)) { r.s.w.mb.Post(msgCall{func() { r.s.w.cur.f = slow; d(nil) }}) })
	x, link := l.next(100)
	done := make(chan error, 1)
	l.c.Append(x, link, false, func(err error) { done <- err })
	<-slow.begun
	a := r.s.Stalled()
	for r.s.Stalled() <= a { // time passes
	}
	close(slow.go_)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.must(func(d func(error)) { r.s.w.mb.Post(msgCall{func() { d(nil) }}) })
	if d := r.s.Stalled(); d != 0 || r.s.Health().LastSync == 0 {
		t.Errorf("stalled %v after the sync, last sync %v", d, r.s.Health().LastSync)
	}
}

// slowFile does not end a sync before it is told to.
type slowFile struct {
	vfs.File
	begun, go_ chan struct{}
}

func (f *slowFile) Sync() error {
	close(f.begun)
	<-f.go_
	return f.File.Sync()
}

// TestTheScrubFindsAFlippedBit in a full file: in a batch's body or head, or in a snapshot's page; and it goes on where it was after a
// restart.
func TestTheScrubFindsAFlippedBit(t *testing.T) {
	for name, which := range map[string]func(layout.Frame) bool{
		"batch": func(f layout.Frame) bool { return f.Typ == layout.FrameBatch && f.Part.Incarnation == 1 },
		"page":  func(f layout.Frame) bool { return f.Typ == layout.FramePage },
	} {
		for _, at := range []int64{24, layout.FrameHead + 100} {
			t.Run(fmt.Sprintf("%s at %d", name, at), func(t *testing.T) {
				b := newBox(t, Options{CacheBytes: 1, ScrubChunk: 16 << 10, ScrubEvery: time.Hour})
				l, whole := b.log(1), b.log(2)
				b.add(l, 1000)
				b.snapshot(l, partition.Page{Number: 1, Data: make([]byte, 500)})
				for range 100 {
					b.add(whole, 5000)
				}
				b.flipInFull(which, at)
				b.opt.ScrubEvery = time.Second
				b.restart()
				b.sim.RunFor(3 * time.Second)
				if d := b.find(l).Image().Damaged; !strings.Contains(d, "scrub") {
					t.Errorf("damaged %q", d)
				}
				if h := b.s.Health(); h.Class != Corruption || h.Copy != l.c.part || h.Closed {
					t.Errorf("health %+v", h)
				}
				b.sim.RunFor(2 * time.Minute)
				b.restart()
				if i := b.find(l).Image(); !strings.Contains(i.Damaged, "scrub") {
					t.Errorf("after a restart: %+v", i)
				}
				if i := b.find(whole).Image(); i.Damaged != "" || i.Tail != whole.tail {
					t.Errorf("the whole copy: %+v", i)
				}
			})
		}
	}
}

// flipInFull turns a bit in the first frame of some kind in a full file.
func (b *box) flipInFull(which func(layout.Frame) bool, off int64) {
	b.t.Helper()
	for _, f := range b.s.files[:len(b.s.files)-1] {
		w, err := f.window()
		if err != nil {
			b.t.Fatal(err)
		}
		for at := int64(layout.HeaderSize); ; {
			fr, err := w.frameAt(at)
			if err != nil || fr.Typ == layout.FrameFooterEnd {
				break
			}
			if which(fr) {
				p := make([]byte, 1)
				if _, err := f.f.ReadAt(p, at+off); err != nil {
					b.t.Fatal(err)
				}
				p[0] ^= 1
				if _, err := f.f.WriteAt(p, at+off); err != nil {
					b.t.Fatal(err)
				}
				return
			}
			at += int64(fr.Size)
		}
	}
	b.t.Fatal("no such frame")
}

func TestTheScrubRemembersItsPlace(t *testing.T) {
	b := newBox(t, Options{FileSize: 40 << 20, CacheBytes: 1, ScrubEvery: time.Hour})
	l := b.log(1)
	for range 130 {
		b.add(l, 1<<20)
	}
	b.opt.ScrubEvery = time.Second
	b.restart()
	b.sim.RunFor(75 * time.Second) // a MiB a second, and the place is noted every 64 MiB
	had := b.s.w.scrub
	if had.Generation < 2 || b.s.files[0].generation == had.Generation {
		t.Fatalf("the scrub came to %+v", had)
	}
	for range 2 {
		b.restart()
		if b.s.r.scrub != had {
			t.Fatalf("the scrub goes on at %+v, it was at %+v", b.s.r.scrub, had)
		}
	}
	b.sim.RunFor(10 * time.Second)
	if got := b.s.r.scrub; got.Generation < had.Generation || got == had {
		t.Fatalf("the scrub is at %+v", got)
	}
}
