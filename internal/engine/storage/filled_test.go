package storage

import (
	"path"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/port/vfs"
)

// ends notes where writes to files end that do not end with a page.
type ends struct {
	vfs.FS
	writes int
	odd    []int64
}

type endsFile struct {
	vfs.File
	e *ends
}

func (e *ends) Open(name string) (vfs.File, error) {
	f, err := e.FS.Open(name)
	return e.wrap(name, f), err
}

func (e *ends) Create(name string) (vfs.File, error) {
	f, err := e.FS.Create(name)
	return e.wrap(name, f), err
}

// wrap notes what is written to a log file; the store's identity has slots of its own.
func (e *ends) wrap(name string, f vfs.File) vfs.File {
	if f == nil || path.Base(name) == identityName {
		return f
	}
	return &endsFile{f, e}
}

func (f *endsFile) WriteAt(p []byte, off int64) (int, error) {
	f.e.writes++
	if end := off + int64(len(p)); end%vfs.PageSize != 0 {
		f.e.odd = append(f.e.odd, end)
	}
	return f.File.WriteAt(p, off)
}

// In a file that is used again no write changes a part of a page that it has not written itself: the system would have to read it first.
func TestGroupsFillTheirLastPage(t *testing.T) {
	b := newBox(t, Options{CacheBytes: 1})
	e := &ends{FS: b.mem}
	b.fs = e
	b.restart()
	e.writes, e.odd = 0, nil // recovery marks where the log ends
	l := b.log(1)
	for i := range 300 {
		b.add(l, 100+i)
	}
	if e.writes < 300 {
		t.Fatalf("%d writes for 300 groups", e.writes)
	}
	if len(e.odd) > 0 {
		t.Fatalf("of %d writes %d end within a page, the first at %d", e.writes, len(e.odd), e.odd[0])
	}
	b.restart() // what is behind the last frame says nothing
	if got := b.find(l).Image(); got.Damaged != "" || got.Tail.Offset != 300 {
		t.Fatalf("after a restart: %+v", got)
	}
	if strings.Contains(strings.Join(b.logged, "\n"), "torn") {
		t.Errorf("zeros behind the last frame were taken for a torn end: %q", b.logged)
	}
}
