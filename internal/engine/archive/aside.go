package archive

import (
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

const (
	// asideFolder holds what a node set aside before it followed a recovered catalog (docs/OPERATIONS.md, "Two of three nodes are lost for good").
	asideFolder = "aside"
	catalogName = "catalog-"
	// lookAgain is how old what Aside says may be when it is asked: people take files away while the node runs.
	lookAgain = 5 * time.Second
)

// Pile is how many files of one kind there are, and how many bytes they take together.
type Pile struct {
	Files int
	Bytes int64
}

// Aside is what lies in the data directory for people alone: nothing reads it by itself, and it stays until somebody takes it away. Ends are
// bounded by MaxEnds and MaxEndBytes; a catalog is set aside once for each time that a node is told to follow a recovered one.
type Aside struct {
	Ends     Pile // cut ends of former owners
	Catalogs Pile // consensus logs from before a recovered catalog was followed
}

// AsideIn counts what lies in a data directory. An error is one of the file system's; a retry is safe.
func AsideIn(fsys vfs.FS, dir string) (out Aside, err error) {
	files, err := ends(fsys, dir)
	if err != nil {
		return out, err
	}
	for _, f := range files {
		out.Ends.add(f.size)
	}
	names, err := fsys.List(path.Join(dir, asideFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	for _, n := range names {
		if !strings.HasPrefix(n, catalogName) || strings.HasSuffix(n, ".new") {
			continue // not ours, or not whole
		}
		size, err := sizeOf(fsys, path.Join(dir, asideFolder, n))
		if err != nil {
			return out, err
		}
		out.Catalogs.add(size)
	}
	return out, nil
}

func (p *Pile) add(size int64) {
	p.Files++
	p.Bytes += size
}

// lookAside is a message: count what is put aside.
type lookAside struct{}

// Aside is what is put aside here, as it was counted last. It waits for nothing; where the count is older than 5 s it is made again, for who asks next.
func (a *Archive) Aside() Aside {
	now := a.env.Clock.Mono()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now-a.looked >= lookAgain {
		a.looked = now
		a.box.Post(lookAside{})
	}
	return a.aside
}

// countAside counts anew, and keeps what was known where that fails.
func (a *Archive) countAside() {
	now, err := AsideIn(a.env.FS, a.env.Dir)
	if err != nil {
		trace.Warn(a.env.Trace, "aside.unread", slog.String("error", err.Error()))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.aside, a.looked = now, a.env.Clock.Mono()
}
