package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
)

// sector is the unit in which a crash keeps or loses what was written and not synced.
const sector = 512

// Memory is a file system in memory, for one thread at a time, that keeps apart what is durable and what only the kernel has, and
// that fails when told to. A crash may leave any mixture of sectors written since the last sync, and any beginning of a directory's
// changes since its last sync.
type Memory struct {
	// Syncing, if not nil, is called at the beginning of each sync of a file: what it names is durable once that has returned, and the sync.
	Syncing func(name string)

	rng     *rand.Rand
	now     map[string]*inode // by name, as a process sees it
	synced  map[string]*inode // as a crash leaves it at least
	changes []change          // not synced, in order
	locks   map[string]bool
	life    int // handles of an earlier life are dead

	syncFails, writeFails int // how many calls from now; 0: none
	isFull                bool
}

// inode is one file.
type inode struct {
	data    []byte // as a process reads it
	durable []byte
	dirty   []write // since the last sync, in order
	apart   bool    // a sync has failed: data may differ from what is durable though nothing is dirty
}

// write is what changed: data at off, or with data nil, the length.
type write struct {
	off  int64
	data []byte
}

// change is one change of a directory: name is given to file, or taken away if nil; from, if not empty, is taken away with it.
type change struct {
	name string
	file *inode
	from string
}

// NewMemory makes an empty disk whose choices depend on the seed alone.
func NewMemory(seed uint64) *Memory {
	return &Memory{
		rng: rand.New(rand.NewPCG(seed, 3)), now: map[string]*inode{}, synced: map[string]*inode{}, locks: map[string]bool{},
	}
}

// FailAfter has the nth write or sync from now return EIO.
func (d *Memory) FailAfter(sync bool, n int) {
	if sync {
		d.syncFails = n + 1
	} else {
		d.writeFails = n + 1
	}
}

// Full makes the disk refuse to grow, or lets it.
func (d *Memory) Full(is bool) { d.isFull = is }

// Heal takes every fault away.
func (d *Memory) Heal() { d.syncFails, d.writeFails, d.isFull = 0, 0, false }

// Crash leaves what a kernel may leave. how picks between the extremes, which find most, and mixtures.
func (d *Memory) Crash(how uint64) {
	d.life++
	clear(d.locks)
	d.syncFails, d.writeFails = 0, 0
	keep := len(d.changes)
	switch how % 3 {
	case 0:
		keep = 0
	case 1:
		keep = d.rng.IntN(len(d.changes) + 1)
	}
	for _, c := range d.changes[:keep] {
		apply(d.synced, c)
	}
	d.changes = nil
	names := names(d.synced)
	for _, n := range names {
		d.synced[n].crash(d.rng, how/3%3)
	}
	d.now = map[string]*inode{}
	for _, n := range names {
		d.now[n] = d.synced[n]
	}
}

func (f *inode) crash(rng *rand.Rand, how uint64) {
	if len(f.dirty) == 0 && !f.apart {
		return // most files of most crashes
	}
	after := f.durable
	for _, w := range f.dirty {
		if how == 0 {
			break
		}
		if w.data == nil {
			after = resize(after, w.off)
			continue
		}
		for at := 0; at < len(w.data); {
			// Sectors end where the disk's do, not where the write does.
			n := min(sector-int((w.off+int64(at))%sector), len(w.data)-at)
			if how == 1 || rng.IntN(2) == 0 {
				after = put(after, w.off+int64(at), w.data[at:at+n])
			}
			at += n
		}
	}
	f.durable, f.data, f.dirty, f.apart = after, slices.Clone(after), nil, false
}

func resize(p []byte, size int64) []byte {
	if int64(len(p)) >= size {
		return p[:size]
	}
	n := len(p)
	p = slices.Grow(p, int(size)-n)[:size]
	clear(p[n:])
	return p
}

func put(p []byte, off int64, data []byte) []byte {
	if end := off + int64(len(data)); end > int64(len(p)) {
		p = resize(p, end)
	}
	copy(p[off:], data)
	return p
}

// Flip turns one bit of what was written of some file, and says which.
func (d *Memory) Flip(a, b uint64) string {
	var files []string
	for _, n := range names(d.now) {
		if len(written(d.now[n].data)) > 0 {
			files = append(files, n)
		}
	}
	if len(files) == 0 {
		return "nothing"
	}
	name := files[a%uint64(len(files))]
	f := d.now[name]
	at := int(b % uint64(len(written(f.data))))
	f.data[at] ^= 1 << (b >> 60 & 7)
	if at < len(f.durable) {
		f.durable[at] ^= 1 << (b >> 60 & 7)
	}
	return fmt.Sprintf("%s at %d", name, at)
}

// written is a file without the zeros at its end, which nothing was written to.
func written(p []byte) []byte {
	for len(p) > 0 && p[len(p)-1] == 0 {
		p = p[:len(p)-1]
	}
	return p
}

func names(m map[string]*inode) []string {
	all := make([]string, 0, len(m))
	for n := range m {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

func apply(m map[string]*inode, c change) {
	if c.file == nil {
		delete(m, c.name)
	} else {
		m[c.name] = c.file
	}
	if c.from != "" {
		delete(m, c.from)
	}
}

func (d *Memory) change(c change) {
	apply(d.now, c)
	d.changes = append(d.changes, c)
}

func failure(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// Create implements FS.
func (d *Memory) Create(name string) (File, error) {
	name = path.Clean(name)
	if d.now[name] != nil {
		return nil, failure("create", name, fs.ErrExist)
	}
	if d.isFull {
		return nil, failure("create", name, syscall.ENOSPC)
	}
	f := &inode{}
	d.change(change{name: name, file: f})
	return &handle{d: d, f: f, name: name, life: d.life}, nil
}

// Open implements FS.
func (d *Memory) Open(name string) (File, error) {
	name = path.Clean(name)
	f := d.now[name]
	if f == nil {
		return nil, failure("open", name, fs.ErrNotExist)
	}
	return &handle{d: d, f: f, name: name, life: d.life}, nil
}

// OpenRead implements FS.
func (d *Memory) OpenRead(name string) (File, error) {
	h, err := d.Open(name)
	if err == nil {
		h.(*handle).reads = true
	}
	return h, err
}

// Rename implements FS. A rename is one change of a directory: a crash keeps all of it or nothing.
func (d *Memory) Rename(from, to string) error {
	from, to = path.Clean(from), path.Clean(to)
	f := d.now[from]
	if f == nil {
		return failure("rename", from, fs.ErrNotExist)
	}
	d.change(change{name: to, file: f, from: from})
	return nil
}

// Remove implements FS.
func (d *Memory) Remove(name string) error {
	name = path.Clean(name)
	if d.now[name] == nil {
		return failure("remove", name, fs.ErrNotExist)
	}
	d.change(change{name: name})
	return nil
}

// List implements FS.
func (d *Memory) List(dir string) ([]string, error) {
	var found []string
	for _, n := range names(d.now) {
		if rest, ok := strings.CutPrefix(n, path.Clean(dir)+"/"); ok {
			if first, _, _ := strings.Cut(rest, "/"); !slices.Contains(found, first) {
				found = append(found, first)
			}
		}
	}
	return found, nil
}

// MkdirAll implements FS. Directories are there as soon as they are named.
func (d *Memory) MkdirAll(string) error { return nil }

// SyncDir implements FS.
func (d *Memory) SyncDir(dir string) error {
	if d.trip(&d.syncFails) {
		return failure("sync", dir, syscall.EIO)
	}
	left := d.changes[:0]
	for _, c := range d.changes {
		if path.Dir(c.name) == path.Clean(dir) {
			apply(d.synced, c)
		} else {
			left = append(left, c)
		}
	}
	d.changes = left
	return nil
}

type unlocker struct {
	d    *Memory
	name string
	life int
}

func (u unlocker) Close() error {
	if u.life == u.d.life {
		delete(u.d.locks, u.name)
	}
	return nil
}

// Lock implements FS.
func (d *Memory) Lock(name string) (io.Closer, error) {
	name = path.Clean(name)
	if d.locks[name] {
		return nil, ErrLocked
	}
	d.locks[name] = true
	return unlocker{d, name, d.life}, nil
}

// Free implements FS.
func (d *Memory) Free(string) (uint64, error) {
	if d.isFull {
		return 0, nil
	}
	return 1 << 40, nil
}

// trip counts down to a fault.
func (d *Memory) trip(n *int) bool {
	if *n == 0 {
		return false
	}
	*n--
	return *n == 0
}

// handle is an open file.
type handle struct {
	d     *Memory
	f     *inode
	name  string
	life  int
	reads bool
}

func (h *handle) dead() bool { return h.life != h.d.life }

// ReadAt implements File.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(h.f.data)) {
		return 0, io.EOF
	}
	n := copy(p, h.f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	switch {
	case h.dead():
		return 0, failure("write", h.name, fs.ErrClosed)
	case h.reads:
		return 0, failure("write", h.name, syscall.EBADF)
	case h.d.trip(&h.d.writeFails):
		h.write(p[:h.d.rng.IntN(len(p)+1)], off)
		return 0, failure("write", h.name, syscall.EIO)
	case h.d.isFull && off+int64(len(p)) > int64(len(h.f.data)):
		return 0, failure("write", h.name, syscall.ENOSPC)
	}
	h.write(p, off)
	return len(p), nil
}

func (h *handle) write(p []byte, off int64) {
	h.f.data = put(h.f.data, off, p)
	h.f.dirty = append(h.f.dirty, write{off, slices.Clone(p)})
}

// Sync implements File. After a failure the kernel believes the pages to be clean: what was written is read back, and no later
// sync makes it durable.
func (h *handle) Sync() error {
	if h.d.Syncing != nil {
		h.d.Syncing(h.name)
	}
	if h.dead() {
		return failure("sync", h.name, fs.ErrClosed)
	}
	if h.d.trip(&h.d.syncFails) {
		if h.d.rng.IntN(2) == 0 {
			h.f.crashKeepingView(h.d.rng)
		}
		h.f.dirty, h.f.apart = nil, true
		return failure("sync", h.name, syscall.EIO)
	}
	for _, w := range h.f.dirty {
		if w.data == nil {
			h.f.durable = resize(h.f.durable, w.off)
		} else {
			h.f.durable = put(h.f.durable, w.off, w.data)
		}
	}
	h.f.dirty = nil
	return nil
}

// crashKeepingView makes some of what is not synced durable, and leaves what a process reads as it is.
func (f *inode) crashKeepingView(rng *rand.Rand) {
	view := f.data
	f.crash(rng, 2)
	f.data = view
}

// Preallocate implements File.
func (h *handle) Preallocate(size int64) error {
	if h.dead() {
		return failure("allocate", h.name, fs.ErrClosed)
	}
	if size <= int64(len(h.f.data)) {
		return nil
	}
	if h.d.isFull {
		return failure("allocate", h.name, syscall.ENOSPC)
	}
	h.f.data = resize(h.f.data, size)
	h.f.dirty = append(h.f.dirty, write{off: size})
	return nil
}

// Size implements File.
func (h *handle) Size() (int64, error) { return int64(len(h.f.data)), nil }

// Close implements File.
func (h *handle) Close() error { return nil }
