package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// directOutcome is what the completion of a write says that is done only once it is durable. What the system does not do at all, or did in part, is
// done by plain calls. After any other failure nothing is tried again: it may be one of the sync.
func (f *osFile) directOutcome(c completion, n int, before, p []byte, off int64) error {
	if int(c.res) == n {
		return nil
	}
	switch errno := syscall.Errno(-min(c.res, 0)); errno {
	case syscall.EINVAL, syscall.EOPNOTSUPP:
		f.refused = true
	case 0, syscall.EAGAIN, syscall.EINTR, syscall.ECANCELED:
	default:
		return &os.PathError{Op: "write and sync", Path: f.Name(), Err: errno}
	}
	return f.plainly(before, p, off)
}

// goesDirect reports whether the file can be written past the system's cache, as f.direct then. It is asked for once. Only file systems are taken
// of which it is known that they drop what the cache has of the pages, and that such a write is durable when it ends, and no kernel of which it is known
// that it is not; a refusal costs speed only.
func (f *osFile) goesDirect() bool {
	if f.direct != nil || f.refused {
		return f.direct != nil
	}
	f.refused = true
	if release, err := release(); err != nil || directIsBroken(release) {
		return false
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil || fs.Type != unix.EXT4_SUPER_MAGIC && fs.Type != unix.XFS_SUPER_MAGIC {
		return false
	}
	was, err := f.Stat()
	if err != nil || !was.Mode().IsRegular() {
		return false
	}
	d, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR|syscall.O_DIRECT, 0) // by number: it may go by another name by now
	if err != nil {
		return false
	}
	if is, err := d.Stat(); err != nil || !os.SameFile(was, is) {
		_ = d.Close() // nothing was written to it
		return false
	}
	f.direct, f.refused = d, false
	return true
}

// release is the kernel's version, such as "6.12.3-amd64".
func release() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// directIsBroken reports whether a kernel may take a direct write with RWF_DSYNC for durable too early: 6.15 and early 6.16 did, in parts of a file that were
// allocated and not written before, on disks without a cache of their own (commit d279c80e0bac; mended by "iomap: Fix broken data integrity guarantees for
// O_SYNC writes").
func directIsBroken(release string) bool {
	return strings.HasPrefix(release, "6.15.") || strings.HasPrefix(release, "6.15-") || strings.HasPrefix(release, "6.16.") || strings.HasPrefix(release, "6.16-")
}

// edge is what the page holds in which the last WriteSync ended, up to there, so that the next one need not read it.
type edge struct {
	at    int64 // where the page begins
	bytes []byte
}

// forget drops what is about to be changed.
func (e *edge) forget(off int64, n int) {
	if off < e.at+PageSize && off+int64(n) > e.at {
		e.bytes = e.bytes[:0]
	}
}

// keep takes the end of what was written; before is what its first page holds before off, if that is known.
func (e *edge) keep(before, p []byte, off int64, known bool) {
	end := off + int64(len(p))
	at := max(end-1, 0) &^ (PageSize - 1)
	switch {
	case len(p) == 0:
	case at >= off:
		e.at, e.bytes = at, append(e.bytes[:0], p[at-off:]...)
	case known: // in the page that it began in
		e.at, e.bytes = at, append(append(e.bytes[:0], before...), p...)
	default:
		e.bytes = e.bytes[:0]
	}
}

// before is what the page of off holds before it; known is false where that cannot be read. It is valid until the next write.
func (f *osFile) before(off int64) (before []byte, known bool) {
	at := off &^ (PageSize - 1)
	n := int(off - at)
	if n == 0 {
		return nil, true
	}
	e := &f.edge
	if e.at != at || len(e.bytes) < n {
		page := make([]byte, n)
		if _, err := f.ReadAt(page, at); err != nil && !errors.Is(err, io.EOF) { // what a file does not have reads as zeros
			return nil, false
		}
		e.at, e.bytes = at, page
	}
	return e.bytes[:n], true
}
