package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"syscall"
)

// OS is the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}
func (osFS) Open(name string) (File, error)     { return osOpen(name, os.O_RDWR) }
func (osFS) OpenRead(name string) (File, error) { return osOpen(name, os.O_RDONLY) }

func osOpen(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, refused: flag&os.O_RDWR == 0, unsynced: flag&os.O_CREATE == 0}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o700) }
func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
}

func (osFS) Free(dir string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return s.Bavail * uint64(s.Bsize), nil
}

type osFile struct {
	*os.File

	mu       sync.Mutex // of what follows; held while something is written or synced
	unsynced bool       // something may have been written that no sync has followed
	edge     edge
	direct   *os.File // the same file, written past the system's cache; opened when needed
	refused  bool     // there is no such thing
}

// WriteAt writes all of p at off.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writeAt(p, off)
}

func (f *osFile) writeAt(p []byte, off int64) (int, error) {
	f.unsynced = true
	f.edge.forget(off, len(p))
	return f.File.WriteAt(p, off)
}

// Close closes the file.
func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.File.Close()
	if f.direct != nil {
		err = errors.Join(err, f.direct.Close())
		f.direct = nil
	}
	f.refused = true
	return err
}

func (f *osFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sync()
}

func (f *osFile) sync() error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if errors.Is(err, syscall.EINTR) {
			continue // the call did not begin; nothing failed
		}
		if err != nil {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
		f.unsynced = false
		return nil
	}
}

func (f *osFile) Preallocate(size int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.EOPNOTSUPP) {
			return f.extend(size)
		}
		if err != nil {
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
		}
		return nil
	}
}

// extend is for file systems that cannot allocate ahead: zeros are written, so that space is taken now.
func (f *osFile) extend(size int64) error {
	have, err := f.Size()
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for have < size {
		n := min(size-have, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], have); err != nil {
			return err
		}
		have += n
	}
	return nil
}

func (f *osFile) Size() (int64, error) {
	s, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return s.Size(), nil
}
