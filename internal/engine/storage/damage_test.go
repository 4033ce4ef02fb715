package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/vfs"
)

// filled is a store of two copies over several files, one copy with a snapshot in the first of them, closed.
func filled(t *testing.T) (*rig, map[ident.Partition]*log) {
	r := newRig(t, Options{FileSize: 256 << 10, CacheBytes: 1, ScrubEvery: -1})
	a, b := r.log(1), r.log(2)
	logs := map[ident.Partition]*log{a.c.part: a, b.c.part: b}
	for i := range 120 {
		a.append(r, 5000)
		if i%6 == 0 {
			b.append(r, 300)
		}
		if i == 10 {
			r.must(func(d func(error)) {
				b.c.WriteSnapshot(partition.Snapshot{At: b.tail, Version: 1, Pages: []partition.Page{{Number: 1, Data: make([]byte, 900)}}}, d)
			})
		}
	}
	r.must(func(d func(error)) { a.c.SetPromise(3, d) })
	r.must(func(d func(error)) { b.c.SetPromise(3, d) })
	r.close()
	return r, logs
}

// place is what a damage is done to: a file and a stretch of it.
type target struct {
	file     string
	from, to int64
}

func (r *rig) logFiles() (used []string) {
	r.t.Helper()
	names, err := filepath.Glob(filepath.Join(r.dir, "*"+logSuffix))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range names {
		p, err := os.ReadFile(n)
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := layout.ParseFileHeader(p); err == nil {
			used = append(used, n)
		}
	}
	slices.SortFunc(used, func(a, b string) int { return int(generationOf(r.t, a)) - int(generationOf(r.t, b)) })
	return used
}

func generationOf(t testing.TB, name string) uint32 {
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := layout.ParseFileHeader(p)
	if err != nil {
		t.Fatal(err)
	}
	return h.Generation
}

// frames finds the first stretch of frames of some types in a file.
func (r *rig) frames(name string, types ...layout.FrameType) target {
	r.t.Helper()
	p, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	for at := int64(layout.HeaderSize); ; {
		fr, err := layout.ParseFrame(p[at:])
		if err != nil {
			r.t.Fatalf("no frame of %v in %s", types, name)
		}
		if slices.Contains(types, fr.Typ) {
			return target{name, at, at + int64(fr.Size)}
		}
		at += int64(fr.Size)
	}
}

func (r *rig) targets() map[string]target {
	files := r.logFiles()
	last, first := files[len(files)-1], files[0]
	return map[string]target{
		"current file": {last, 0, 0}, "full file": {first, 0, 0}, "footer": r.frames(first, layout.FrameFooter, layout.FrameFooterEnd),
		"checkpoint": r.frames(last, layout.FrameCheckpoint, layout.FrameCheckEnd), "snapshot page": r.frames(first, layout.FramePage),
		"store id": {filepath.Join(r.dir, identityName), 0, 0}, "batch in the middle": r.frames(first, layout.FrameBatch),
	}
}

var damages = map[string]func(p []byte, at target) []byte{
	"empty": func([]byte, target) []byte { return nil },
	"half header": func(p []byte, x target) []byte {
		return slices.Concat(p[:x.from+20], make([]byte, len(p)-int(x.from)-20))
	},
	"torn":       func(p []byte, x target) []byte { return p[:x.from+(x.to-x.from)/2] },
	"garbage":    func(p []byte, x target) []byte { return fill(p, x, 0xa5) },
	"zeroed end": func(p []byte, x target) []byte { return fill(p, target{x.file, x.from + (x.to-x.from)/2, x.to}, 0) },
	"one bit": func(p []byte, x target) []byte {
		p[x.from+(x.to-x.from)/2] ^= 4
		return p
	},
	"missing": nil,
}

func fill(p []byte, x target, with byte) []byte {
	for i := x.from; i < x.to; i++ {
		p[i] = with
	}
	return p
}

func (r *rig) damage(x target, how func([]byte, target) []byte) {
	r.t.Helper()
	if how == nil {
		if err := os.Remove(x.file); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	p, err := os.ReadFile(x.file)
	if err != nil {
		r.t.Fatal(err)
	}
	if x.to == 0 {
		x.to = int64(len(bytes.TrimRight(p, "\x00")))
	}
	if err := os.WriteFile(x.file, how(p, x), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestTheDamageMatrix: whatever is broken, the store opens or says why in one error; what it then serves of a copy is what was
// appended, all of it, or the copy says that it is damaged.
func TestTheDamageMatrix(t *testing.T) {
	for where := range map[string]bool{"current file": true, "full file": true, "footer": true, "checkpoint": true, "snapshot page": true, "store id": true, "batch in the middle": true} {
		for name, how := range damages {
			t.Run(where+"/"+name, func(t *testing.T) {
				r, logs := filled(t)
				r.damage(r.targets()[where], how)
				if _, err := Inspect(vfs.OS(), r.dir, nil); err != nil && !strings.Contains(err.Error(), "holds no store") {
					t.Fatalf("inspect: %v", err)
				}
				for range 2 {
					r.open()
					r.verdict(logs, expectation{
						whole: where == "store id" || where == "footer" && name != "empty" && name != "missing",
						// Nothing later says that the end had been synced: it is torn, by the rule.
						tornEnd: where == "current file" && (name == "torn" || name == "zeroed end"),
					})
					r.close()
				}
			})
		}
	}
}

// expectation is what a damage may do.
type expectation struct{ whole, tornEnd bool }

// verdict checks each copy: whole, or damaged.
func (r *rig) verdict(logs map[ident.Partition]*log, want expectation) {
	r.t.Helper()
	found := map[ident.Partition]*Copy{}
	for _, c := range r.s.Copies() {
		found[c.part] = c
	}
	for p, l := range logs {
		c := found[p]
		if c == nil {
			if _, err := r.s.Consensus().Load(); err == nil {
				r.t.Errorf("%s is gone, and nothing says that anything is wrong", p)
			}
			continue
		}
		if want.tornEnd {
			if t := c.Image().Tail; !slices.Contains(l.tails, t) || c.Image().Damaged != "" {
				r.t.Errorf("%s ends at %d (%s), where it never did", p, t.Position, c.Image().Damaged)
			}
			continue
		}
		err := r.readWhole(c, l)
		snap := make(chan error, 1)
		c.ReadSnapshot(func(_ partition.Snapshot, _ bool, err error) { snap <- err })
		if e := <-snap; err == nil {
			err = e
		}
		damaged := c.Image().Damaged
		switch {
		case want.whole && (damaged != "" || err != nil):
			r.t.Errorf("%s is damaged (%s, %v), and nothing of it was", p, damaged, err)
		case damaged == "" && err != nil:
			r.t.Errorf("%s cannot be read (%v), and does not say that it is damaged", p, err)
		case damaged == "" && (c.Image().Tail != l.tail || c.Image().Promise != 3):
			r.t.Errorf("%s was cut silently: %+v, want %+v", p, c.Image(), l.tail)
		}
	}
}

func (r *rig) readWhole(c *Copy, l *log) error {
	var from uint64
	for from < l.tail.Position {
		got := make(chan error, 1)
		c.Read(from, 64<<10, func(bs []batch.Batch, err error) {
			if err == nil && len(bs) == 0 {
				err = io.ErrUnexpectedEOF
			}
			for _, b := range bs {
				if b.Position != from {
					err = fmt.Errorf("read on from %d: the next batch is at %d", from, b.Position)
					break
				}
				from = b.End()
			}
			got <- err
		})
		if err := <-got; err != nil {
			return err
		}
	}
	return nil
}

// TestAStaleFrameOfARecycledFileIsNotTaken puts an old frame, whole, right behind the end of the current file.
func TestAStaleFrameOfARecycledFileIsNotTaken(t *testing.T) {
	r, logs := filled(t)
	files := r.logFiles()
	old := r.frames(files[0], layout.FrameBatch)
	from, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.ReadFile(files[len(files)-1])
	if err != nil {
		t.Fatal(err)
	}
	at := int64(layout.HeaderSize)
	for {
		fr, err := layout.ParseFrame(p[at:])
		if err != nil {
			break
		}
		at += int64(fr.Size)
	}
	copy(p[at:], from[old.from:old.to])
	if err := os.WriteFile(files[len(files)-1], p, 0o600); err != nil {
		t.Fatal(err)
	}
	r.open()
	r.verdict(logs, expectation{whole: true})
	r.close()
}

func TestOneProcessAndNoNewerVersion(t *testing.T) {
	r, _ := filled(t)
	r.open()
	_, err := Open(r.s.env, r.dir, r.opt)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), r.dir) {
		t.Errorf("a second open: %v", err)
	}
	r.close()
	name := filepath.Join(r.dir, identityName)
	p, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := parseIdentity(p)
	id.format = layout.Format + 1
	if err := os.WriteFile(name, append(id.encode(), id.encode()...), 0o600); err != nil {
		t.Fatal(err)
	}
	env := Env{FS: vfs.OS()}
	if _, err := Open(env, r.dir, r.opt); !errors.Is(err, ErrNewer) {
		t.Errorf("a directory of format %d: %v", layout.Format+1, err)
	}
	if _, err := Inspect(vfs.OS(), r.dir, nil); !errors.Is(err, ErrNewer) {
		t.Errorf("inspect of format %d: %v", layout.Format+1, err)
	}
}

func TestInspectReadsEverythingAndChangesNothing(t *testing.T) {
	r, logs := filled(t)
	before := r.contents()
	rep, err := Inspect(vfs.OS(), r.dir, nil)
	if err != nil || len(rep.Problems) > 0 || len(rep.Copies) != 2 || rep.InUse {
		t.Fatalf("%v %+v", err, rep)
	}
	for _, c := range rep.Copies {
		if c.Tail != logs[c.Partition].tail || c.Records != c.Tail.Offset || c.Batches != int(c.Records) {
			t.Errorf("%+v", c)
		}
	}
	n := uint64(0)
	err = InspectEntries(vfs.OS(), r.dir, ident.Partition{Incarnation: 2}, func(b batch.Batch, e batch.Entry) bool {
		if e.Offset != n {
			t.Errorf("offset %d, want %d", e.Offset, n)
		}
		n++
		return true
	})
	if err != nil || n != logs[ident.Partition{Incarnation: 2}].tail.Offset {
		t.Errorf("%d entries, %v", n, err)
	}
	if !bytes.Equal(before, r.contents()) {
		t.Error("inspect changed the directory")
	}
}

func (r *rig) contents() []byte {
	var all []byte
	names, _ := filepath.Glob(filepath.Join(r.dir, "*"))
	for _, n := range names {
		p, err := os.ReadFile(n)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(append(all, n...), p...)
	}
	return all
}
