package storage

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
)

var update = flag.Bool("update", false, "write the golden files anew")

// everyFrame has two stores write frames of every type, except the parts before the last of a long checkpoint or footer.
func everyFrame(t testing.TB) []*box {
	b := newBox(t, Options{FileSize: 24 << 10, ScrubEvery: -1, CacheBytes: 1})
	a, old, gone, bad := b.log(1), b.log(2), b.log(3), b.log(4)
	b.add(old, 10)
	b.snapshot(old, partition.Page{Number: 3, Data: []byte("page")})
	b.must(func(d func(error)) { old.c.Retain(1, []partition.Span{{From: 0, To: 1}}, d) })
	b.must(func(d func(error)) {
		old.c.WriteSnapshot(partition.Snapshot{At: old.tail, Version: 1, Gone: []uint32{8}}, d)
	})
	b.add(old, 10)
	b.add(bad, 10)
	b.must(gone.c.Delete)
	b.must(func(d func(error)) { a.c.SetPromise(7, d) })
	b.must(func(d func(error)) { a.c.SetRole(partition.Owner, 7, d) })
	m := b.s.Consensus()
	b.must(func(d func(error)) {
		m.Append([]byte("hard"), []catalog.LogEntry{{Index: 1, Term: 2, Data: []byte("entry")}}, d)
	})
	b.must(func(d func(error)) { m.SaveSnapshot(catalog.LogSnapshot{Index: 1, Term: 2, Data: []byte("state")}, d) })
	b.add(a, 10)
	b.add(a, 10)
	b.must(func(d func(error)) { a.c.Cut(a.tails[0], d) })
	a.tail = a.tails[0]
	to := newBox(t, Options{FileSize: 24 << 10, ScrubEvery: -1})
	x, err := b.export(old.c, nil)
	if err != nil {
		t.Fatal(err)
	}
	transfer(t, b, x, to, to.log(2).c, 1<<20)
	x.Close()
	b.s.corrupt(bad.c, fmt.Errorf("%w: for the test", ErrDamaged))
	b.must(func(d func(error)) { b.s.r.mb.Post(msgCall{func() { b.s.r.noteScrub(); d(nil) }}) })
	for range 20 { // on to other files, so that the first is emptied and given up
		b.add(a, 4000)
	}
	b.must(func(d func(error)) { a.c.DropHead(a.tail.Position-1, d) })
	b.must(bad.c.Delete)
	b.sim.RunFor(10 * time.Second)
	return []*box{b, to}
}

// firstFrames are the bytes of the first frame of each type, and of a file header and a slot of the identity.
func firstFrames(t testing.TB, boxes []*box) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for _, b := range boxes {
		for _, f := range slices.Concat(b.s.files, b.s.spares) {
			p := make([]byte, b.opt.FileSize)
			n, _ := f.f.ReadAt(p, 0)
			h, err := layout.ParseFileHeader(p[:n])
			if err != nil {
				continue
			}
			if found["file header"] == nil {
				found["file header"] = p[:layout.HeaderUsed]
			}
			for at := layout.HeaderSize; ; {
				fr, err := layout.ParseFrame(p[at:n])
				if err != nil || fr.Generation != h.Generation {
					break
				}
				if found[fr.Typ.String()] == nil {
					found[fr.Typ.String()] = p[at : at+fr.Size]
				}
				at += fr.Size
			}
		}
	}
	id := boxes[0].s.identity
	found["store identity"] = id.encode()[:identityUsed]
	return found
}

// TestGoldenFrames holds the layout of what is on disk: where it fails without a new format version, old directories are misread.
func TestGoldenFrames(t *testing.T) {
	found := firstFrames(t, everyFrame(t))
	var lines []string
	for name, p := range found {
		lines = append(lines, name+": "+hex.EncodeToString(p))
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	name := filepath.Join("testdata", "frames.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("frames differ from %s:\n%s", name, got)
	}
	for typ := layout.FrameType(1); typ < layout.FrameTypeEnd; typ++ {
		if n := typ.String(); n != "" && typ != layout.FrameCheckpoint && typ != layout.FrameFooter && found[n] == nil {
			t.Errorf("there is no %s frame among them", n)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, p := range firstFrames(f, everyFrame(f)) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		fr, err := layout.ParseFrame(p)
		if err == nil {
			again := layout.AppendFrame(nil, fr, fr.Body)
			if fr.Size > len(p) || len(again) != fr.Size || string(again[layout.FrameHead:layout.FrameHead+fr.Length]) != string(fr.Body) {
				t.Fatalf("%d bytes of %d", fr.Size, len(p))
			}
		}
		if h, err := layout.ParseFileHeader(p); err == nil {
			if back, err := layout.ParseFileHeader(h.Encode()); err != nil || back != h {
				t.Fatalf("header %+v: %+v, %v", h, back, err)
			}
		}
		if id, ok := parseIdentity(p); ok {
			if back, ok := parseIdentity(id.encode()); !ok || back.store != id.store || back.boot != id.boot || back.newest != id.newest {
				t.Fatalf("identity %+v: %+v", id, back)
			}
		}
	})
}

// FuzzBodies has bodies whose checksum holds and that mean nothing: whatever they say, they are refused or taken, and nothing else.
func FuzzBodies(f *testing.F) {
	for _, p := range firstFrames(f, everyFrame(f)) {
		if fr, err := layout.ParseFrame(p); err == nil {
			f.Add(uint8(fr.Typ), fr.Body)
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		s := &Store{copies: map[ident.Partition]*Copy{}}
		s.w, s.r = &writer{s: s}, newReader(s)
		if ft, err := parseFooter(body); err == nil && ft.bytes < 0 {
			t.Fatal("a footer of less than nothing")
		}
		if k, err := parseChunk(body); err == nil && len(k.raw) != len(body) {
			t.Fatal("a chunk of another length")
		}
		file := &logFile{name: "file", generation: 1}
		if err := s.restoreCheckpoint(body, map[uint32]*logFile{1: file}, map[uint32]bool{}); err == nil {
			s.generation = 1
			s.files = []*logFile{file}
			if s.identity.boot == 0 && len(body) > 0 && body[0] > 0 && body[0] < 0x80 {
				t.Fatal("the boot counter was not taken")
			}
		}
		part := ident.Partition{Incarnation: 1}
		s.copies = map[ident.Partition]*Copy{part: {s: s, part: part}}
		rp := newReplay(s, nil)
		rp.frame(file, layout.HeaderSize, layout.Frame{Typ: layout.FrameType(typ % uint8(layout.FrameTypeEnd)), Part: part, Generation: 1, Body: body, Length: len(body)})
		for _, c := range s.sorted() {
			c.Image()
			c.Size()
			c.missing()
			c.checkpoint(nil)
		}
	})
}
