package vfs

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// rings are the process's rings: as many as have been needed at a time. They are kept.
var rings struct {
	mu    sync.Mutex
	why   error // the kernel gives none
	spare []*ring
	lost  []*ring // with which it is not known what the kernel still does
}

// takeRing gives a ring that nobody uses. It fails where the kernel gives none; it is not asked again then.
func takeRing() (*ring, error) {
	rings.mu.Lock()
	defer rings.mu.Unlock()
	if n := len(rings.spare); n > 0 {
		r := rings.spare[n-1]
		rings.spare = rings.spare[:n-1]
		return r, nil
	}
	if rings.why != nil {
		return nil, rings.why
	}
	r, err := newRing()
	rings.why = err
	return r, err
}

// giveRing takes a ring back, with how its use ended. One that the kernel may still be at work with is not used again.
func giveRing(r *ring, err error) {
	rings.mu.Lock()
	defer rings.mu.Unlock()
	if errors.Is(err, errLost) {
		rings.lost, rings.why = append(rings.lost, r), err
		return
	}
	rings.spare = append(rings.spare, r)
}

// Rings says why WriteSync has the kernel do its work by plain calls, each of which blocks a thread; nil: it uses io_uring. Old kernels have
// none that will do, and a container or a kernel's settings may forbid it.
func Rings() error {
	r, err := takeRing()
	if err == nil {
		giveRing(r, nil)
	}
	return err
}

// ringMost is how many bytes are written by a ring at most. Its work is done by a thread of the kernel, which must be given a processor first.
// Where little is written that costs less than a blocked thread of the runtime does; much is written where all processors are busy, and there
// it costs more.
const ringMost = 64 << 10

// WriteSync is WriteAt and then Sync, by io_uring where there is one and little is written.
//
// What is written begins where a page does, with what is there before off: the system need not read it, and can be passed by.
func (f *osFile) WriteSync(p []byte, off int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, known := f.before(off)
	err := f.writeSync(before, p, off, known)
	if err != nil {
		f.edge.forget(off, len(p))
		return err
	}
	f.edge.keep(before, p, off, known)
	return nil
}

func (f *osFile) writeSync(before, p []byte, off int64, known bool) error {
	if len(p) == 0 || len(p) > ringMost {
		return f.plainly(before, p, off)
	}
	r, err := takeRing()
	if err != nil {
		return f.plainly(before, p, off)
	}
	to, direct := f.File, false
	if r.aio != nil && known && (off+int64(len(p)))%PageSize == 0 && !f.unsynced && f.goesDirect() {
		to, direct = f.direct, true
	}
	f.unsynced = f.unsynced || !direct
	n := r.hold(before, p)
	var c completion
	var failed error
	raw, err := to.SyscallConn()
	if err == nil { // Control keeps the file's number from being another file's until the kernel is done with it
		err = raw.Control(func(fd uintptr) {
			if direct {
				c, failed = r.aio.write(fd, r.held[:n], off-int64(len(before)))
			} else {
				c, failed = r.writeSync(fd, n, off-int64(len(before)))
			}
		})
	}
	giveRing(r, failed)
	switch {
	case errors.Is(failed, errLost): // it may yet be written: the file is not to be trusted any more
		return &os.PathError{Op: "write", Path: f.Name(), Err: failed}
	case err != nil || failed != nil:
		return f.plainly(before, p, off)
	case direct:
		return f.directOutcome(c, n, before, p, off)
	}
	return f.outcome(c, before, p, off)
}

// plainly writes and syncs by plain calls.
func (f *osFile) plainly(before, p []byte, off int64) error {
	if len(before) > 0 {
		// One call: the system need not read a page that is written whole.
		f.unsynced = true
		if err := f.writeBoth(before, p, off-int64(len(before))); err != nil {
			return err
		}
	} else if _, err := f.writeAt(p, off); err != nil {
		return err
	}
	return f.sync()
}

// writeBoth writes two pieces that follow each other, and what is left of them where the system wrote a part.
func (f *osFile) writeBoth(a, b []byte, off int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var failed error
	if err := raw.Control(func(fd uintptr) { n, failed = unix.Pwritev(int(fd), [][]byte{a, b}, off) }); err != nil {
		return err
	}
	if errors.Is(failed, unix.EIO) {
		return &os.PathError{Op: "write", Path: f.Name(), Err: failed}
	}
	if failed != nil || n < len(a) {
		n = 0 // by the plain call, which says what is wrong
		if _, err := f.File.WriteAt(a, off); err != nil {
			return err
		}
		n = len(a)
	}
	_, err = f.File.WriteAt(b[n-len(a):], off+int64(n))
	return err
}

// outcome is what a completion says. After a sync that failed nothing is tried again; a write that did not come to its end is made by plain
// calls, which say more exactly what is wrong, as a full disk.
func (f *osFile) outcome(c completion, before, p []byte, off int64) error {
	errno := syscall.Errno(-min(c.res, 0))
	switch {
	case c.userData == ofSync && errno == 0:
		f.unsynced = false
		return nil
	case c.userData == ofSync && errno != syscall.EINTR && errno != syscall.ECANCELED: // with these it did not begin
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: errno}
	case c.userData == ofWrite && errno == syscall.EIO:
		return &os.PathError{Op: "write", Path: f.Name(), Err: errno}
	}
	return f.plainly(before, p, off)
}
