// Package vfs is the port to files.
//
// It has three forms: the operating system's files; files in memory with honest sync semantics, which can crash to any
// state that a kernel may leave behind; and a wrapper that injects faults into either. The interface is what a log-structured
// store needs and no more. Nothing in core may import this package. Only the standard library may come in, and
// golang.org/x/sys for the memory that io_uring shares with the kernel.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
)

// ErrLocked is returned by Lock when another process, or another holder in this one, has the lock. Worth a retry only once
// that holder has ended.
var ErrLocked = errors.New("vfs: locked by another process")

// FS is a file system. Names are slash-separated paths. Its methods are safe for concurrent use and may block. Errors match
// those of package io/fs (ErrNotExist, ErrExist, ErrPermission) and syscall (ENOSPC, EIO) under errors.Is.
type FS interface {
	// Create makes a new file, open for reading and writing. It fails with fs.ErrExist where the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading only.
	OpenRead(name string) (File, error)
	// Rename moves a file, replacing what is at the new name. Durable after SyncDir of the directory.
	Rename(from, to string) error
	// Remove deletes a file. Durable after SyncDir.
	Remove(name string) error
	// List gives the names in a directory, sorted, without the directory itself.
	List(dir string) ([]string, error)
	// MkdirAll makes a directory and its parents, if they are not there.
	MkdirAll(dir string) error
	// SyncDir makes creations, renames and removals in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with Close, or with the process. It returns ErrLocked where it is taken.
	Lock(name string) (io.Closer, error)
	// Free is the number of bytes that may still be allocated below dir.
	Free(dir string) (uint64, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently with each other.
type File interface {
	io.ReaderAt
	// WriteAt writes all of p at off, or returns an error; then how much of p was written is unknown.
	io.WriterAt
	io.Closer
	// Sync makes data written so far durable, with the file's size (fdatasync). After an error nothing is known of what was
	// written since the last success, and calling it again proves nothing.
	Sync() error
	// Preallocate makes sure that the first size bytes can be written without running out of space, and makes the file at
	// least that long. What was not written reads as zeros. It fails with ENOSPC before anything is lost.
	Preallocate(size int64) error
	// Size is the length in bytes.
	Size() (int64, error)
}

// PageSize is what systems read and write of files at a time, in bytes. Where a system's own pages are larger a write costs a read now and then, and disks
// with larger blocks cannot be written past its cache.
const PageSize = 4 << 10

// WriteSync writes all of p at off and makes it durable, with what was written before: WriteAt and then Sync, which files of the operating
// system do at less cost together, and at the least where it ends with a page. After an error nothing is known of either, as after one of
// theirs.
func WriteSync(f File, p []byte, off int64) error {
	if w, ok := f.(interface{ WriteSync([]byte, int64) error }); ok {
		return w.WriteSync(p, off)
	}
	return writeThenSync(f, p, off)
}

func writeThenSync(f File, p []byte, off int64) error {
	if _, err := f.WriteAt(p, off); err != nil {
		return err
	}
	return f.Sync()
}

// Replace makes text the whole of a file, durably and in one piece: after a crash at any moment, and after an error, the file is whole, as it was
// before or as it is to be. The text is written to name+".new" first, which takes the place of one that a crash has left. The folder must be
// there; its entry in the folder above is its maker's to sync. An error is one of the file system's; which of both the file holds is unknown after one
// of SyncDir. Repeating it is safe, but not at the same time for one name.
func Replace(fsys FS, name string, text []byte) error {
	made := name + ".new"
	if err := fsys.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(made)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", made, err)
	}
	if err := fsys.Rename(made, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
