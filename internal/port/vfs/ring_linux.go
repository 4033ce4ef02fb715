package vfs

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is an io_uring that does one thing at a time: it writes, and then syncs. Whoever waits for it waits as for a socket, in the
// runtime's poller. A thread that waits in a call of the system instead gives its processor away, to a thread that is woken for it, and has
// the runtime look after it every few microseconds; where syncs are short and many, that costs as much as all that leads to them.
//
// It is used by one goroutine at a time.
type ring struct {
	file *os.File
	raw  syscall.RawConn
	done func(fd uintptr) bool // reports whether there is a completion

	queues, entries []byte // what is shared with the kernel; the rest points into it
	sqTail          *uint32
	sqMask          uint32
	sqArray         []uint32
	sqes            []submission
	cqHead, cqTail  *uint32
	cqMask          uint32
	cqes            []completion

	held  []byte // what is being written: it is nobody else's memory, so the kernel may read it for as long as it likes
	aio   *aio   // for what goes past the system's cache; nil where the kernel gives none
	tasks uint64 // submitted so far; each completion says which one it is of
}

// submission is struct io_uring_sqe, as far as it is used here.
type submission struct {
	opcode, flags uint8
	_             uint16
	fd            int32
	off, addr     uint64
	len, opFlags  uint32
	userData      uint64
	_             [3]uint64
}

// completion is struct io_uring_cqe.
type completion struct {
	userData uint64
	res      int32 // negative: an error's number
	_        uint32
}

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, thread, idle, features, shared uint32
	_                                                           [3]uint32
	sq                                                          struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// Of the kernel's interface, linux/io_uring.h.
const (
	opNop, opFsync, opWrite    = 0, 3, 23
	chained, elsewhere, silent = 1 << 2, 1 << 4, 1 << 6 // flags of a submission: with the next; by a worker; no completion unless it fails
	datasync                   = 1
	oneMapping, canBeSilent    = 1 << 0, 1 << 11 // features
	atQueues, atEntries        = 0, 0x10000000   // where to map them
	ringSize                   = 4
)

// What a completion is of: the lowest bits of its userData; above them is the number of the task.
const (
	ofWrite  uint64 = 1
	ofSync   uint64 = 2
	whatBits        = 2
)

var (
	errNotTaken = errors.New("the kernel did not take it")
	errLost     = errors.New("the kernel may still be at work on it")
)

// newRing makes a ring and has it do nothing once, to see it work.
func newRing() (*ring, error) {
	var p ringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, ringSize, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, os.NewSyscallError("io_uring_setup", errno)
	}
	if err := unix.SetNonblock(int(fd), true); err != nil { // else package os does not give it to the poller
		return nil, errors.Join(err, unix.Close(int(fd)))
	}
	r := &ring{file: os.NewFile(fd, "io_uring")}
	err := r.open(int(fd), &p)
	if err == nil {
		err = r.submit(fd, submission{opcode: opNop, userData: ofSync})
	}
	if err == nil {
		_, err = r.result()
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// open maps the queues.
func (r *ring) open(fd int, p *ringParams) (err error) {
	if p.features&oneMapping == 0 || p.features&canBeSilent == 0 {
		return errors.New("the kernel's io_uring is too old")
	}
	size := int(max(p.sq.array+4*p.sqEntries, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(completion{}))))
	if r.queues, err = unix.Mmap(fd, atQueues, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	size = int(p.sqEntries) * int(unsafe.Sizeof(submission{}))
	if r.entries, err = unix.Mmap(fd, atEntries, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	// Of whole pages and in its place for good, as is needed to write past the system's cache.
	if r.held, err = unix.Mmap(-1, 0, PageSize+ringMost, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[off])) }
	r.sqTail, r.sqMask, r.sqArray = at(p.sq.tail), *at(p.sq.mask), unsafe.Slice(at(p.sq.array), p.sqEntries)
	r.sqes = unsafe.Slice((*submission)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqHead, r.cqTail, r.cqMask = at(p.cq.head), at(p.cq.tail), *at(p.cq.mask)
	r.cqes = unsafe.Slice((*completion)(unsafe.Pointer(&r.queues[p.cq.cqes])), p.cqEntries)
	r.done = func(uintptr) bool { return atomic.LoadUint32(r.cqTail) != *r.cqHead }
	if r.aio, err = newAIO(); err != nil {
		r.aio = nil // all goes through the cache then
	}
	r.raw, err = r.file.SyscallConn()
	return err
}

func (r *ring) close() error {
	err := r.file.Close()
	if r.aio != nil {
		err = errors.Join(err, r.aio.close())
	}
	for _, m := range [][]byte{r.queues, r.entries, r.held} {
		if m != nil {
			err = errors.Join(err, unix.Munmap(m))
		}
	}
	return err
}

// submit gives the kernel a chain, as one task. It fails with errNotTaken where none of it was taken, and with errLost where a part was.
//
// The kernel reads the entries once it sees the tail behind them, and what it has written once the head says so; both are atomic stores, which
// no access before them passes. The tail and the head that are read plainly are this side's own.
func (r *ring) submit(fd uintptr, chain ...submission) error {
	r.tasks++
	tail := *r.sqTail
	for i, s := range chain {
		at := (tail + uint32(i)) & r.sqMask
		s.userData |= r.tasks << whatBits
		r.sqes[at], r.sqArray[at] = s, at
	}
	atomic.StoreUint32(r.sqTail, tail+uint32(len(chain)))
	for {
		// It hands work to others and does not take long, so the runtime's scheduler need not know.
		n, _, errno := unix.RawSyscall6(unix.SYS_IO_URING_ENTER, fd, uintptr(len(chain)), 0, 0, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0 || n == 0:
			atomic.StoreUint32(r.sqTail, tail)
			return errNotTaken
		case int(n) < len(chain):
			return errLost
		default:
			return nil
		}
	}
}

// result waits for the completion of the task submitted last. One of an earlier task fails with errLost: it would be taken for the word that
// this task is done, and nothing else of this ring can be believed either.
func (r *ring) result() (completion, error) {
	if err := r.raw.Read(r.done); err != nil {
		return completion{}, errors.Join(errLost, err)
	}
	head := *r.cqHead
	c := r.cqes[head&r.cqMask]
	atomic.StoreUint32(r.cqHead, head+1)
	if c.userData>>whatBits != r.tasks {
		return completion{}, fmt.Errorf("%w: a completion of task %d came for task %d", errLost, c.userData>>whatBits, r.tasks)
	}
	c.userData &= 1<<whatBits - 1
	return c, nil
}

// hold takes what is to be written, in two pieces, and says how much that is.
func (r *ring) hold(a, b []byte) int { return copy(r.held[copy(r.held, a):], b) + len(a) }

// writeSync writes n bytes of what the ring holds and then syncs. There is one completion: of the write where that failed or fell short, and else of
// the sync.
func (r *ring) writeSync(fd uintptr, n int, off int64) (c completion, err error) {
	chain := [2]submission{
		{
			opcode: opWrite, flags: chained | elsewhere | silent, fd: int32(fd), off: uint64(off),
			addr: uint64(uintptr(unsafe.Pointer(&r.held[0]))), len: uint32(n), userData: ofWrite,
		},
		{opcode: opFsync, flags: elsewhere, fd: int32(fd), opFlags: datasync, userData: ofSync},
	}
	var failed error
	if err := r.raw.Control(func(ring uintptr) { failed = r.submit(ring, chain[:]...) }); err != nil {
		failed = errNotTaken
	}
	if failed == nil {
		c, failed = r.result()
	}
	return c, failed
}
