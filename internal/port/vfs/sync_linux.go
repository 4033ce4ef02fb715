package vfs

import (
	"errors"
	"os"
	"sync"
	"syscall"
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
func (f *osFile) WriteSync(p []byte, off int64) error {
	if len(p) == 0 || len(p) > ringMost {
		return writeThenSync(f, p, off)
	}
	r, err := takeRing()
	if err != nil {
		return writeThenSync(f, p, off)
	}
	var c completion
	var failed error
	raw, err := f.SyscallConn()
	if err == nil { // Control keeps the file's number from being another file's until the kernel is done with it
		err = raw.Control(func(fd uintptr) { c, failed = r.writeSync(fd, p, off) })
	}
	giveRing(r, failed)
	switch {
	case errors.Is(failed, errLost): // it may yet write what p holds by then: the file is not to be trusted any more
		return &os.PathError{Op: "write", Path: f.Name(), Err: failed}
	case err != nil || failed != nil:
		return writeThenSync(f, p, off)
	}
	return f.outcome(c, p, off)
}

// outcome is what a completion says. After a sync that failed nothing is tried again; a write that did not come to its end is made by plain
// calls, which say more exactly what is wrong, as a full disk.
func (f *osFile) outcome(c completion, p []byte, off int64) error {
	errno := syscall.Errno(-min(c.res, 0))
	switch {
	case c.userData == ofSync && errno == 0:
		return nil
	case c.userData == ofSync && errno != syscall.EINTR && errno != syscall.ECANCELED: // with these it did not begin
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: errno}
	case c.userData == ofWrite && errno == syscall.EIO:
		return &os.PathError{Op: "write", Path: f.Name(), Err: errno}
	}
	return writeThenSync(f, p, off)
}
