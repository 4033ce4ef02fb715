package vfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// aio is a context of the kernel's asynchronous I/O that does one write at a time, past the system's cache, which ends when it is durable. Whoever waits
// for it waits in the runtime's poller. An io_uring would do it too, but there a write that ends is told by the thread that began it, as soon as that is in no
// call of the system which cannot be interrupted, such as a read of the disk; and a process that is killed ends before its writes do. Here the kernel tells
// it by itself, and a process has not ended before its writes have.
//
// It is used by one goroutine at a time.
type aio struct {
	context uintptr
	told    *os.File // an eventfd: counts the writes that have ended
	raw     syscall.RawConn
	done    func(uintptr) bool // reports whether there is an end
	control controlBlock
	event   aioEvent
	failed  syscall.Errno // of asking for it
	tasks   uint64        // submitted so far
	// The runtime's scheduler is told of submissions until then; see slowSubmit.
	announced time.Time
}

// controlBlock is struct iocb of linux/aio_abi.h.
type controlBlock struct {
	data           uint64
	_, rwFlags     uint32
	opcode         uint16
	_              int16
	fd             uint32
	buf, size      uint64
	off            int64
	_              uint64
	flags, eventFD uint32
}

// aioEvent is struct io_event.
type aioEvent struct {
	data, _   uint64
	res, res2 int64
}

// A submission hands the write to the disk's queue, within some 20 microseconds. Told of it, the runtime's scheduler looks after the thread, and at a thousand
// messages a second a quarter more CPU goes into each message. But where the disk or the file system's journal has no room it waits, and the thread's
// processor with it: once one took slowSubmit, the scheduler is told of those of the next announceFor.
const (
	slowSubmit  = 2 * time.Millisecond
	announceFor = time.Second
)

const (
	aioWrite = 1 // IOCB_CMD_PWRITE
	aioTells = 1 // IOCB_FLAG_RESFD
)

// newAIO makes a context.
func newAIO() (*aio, error) {
	a := &aio{}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
		return nil, os.NewSyscallError("io_setup", errno)
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err == nil {
		a.told = os.NewFile(uintptr(fd), "eventfd")
		a.raw, err = a.told.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	a.done = a.look
	return a, nil
}

func (a *aio) close() error {
	var err error
	if _, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0); errno != 0 {
		err = os.NewSyscallError("io_destroy", errno)
	}
	if a.told != nil {
		err = errors.Join(err, a.told.Close())
	}
	return err
}

// took takes note of how long a submission took.
func (a *aio) took(began, ended time.Time) {
	if ended.Sub(began) >= slowSubmit {
		a.announced = ended.Add(announceFor)
	}
}

// look asks the kernel whether a write has ended, and does not wait.
func (a *aio) look(uintptr) bool {
	var now unix.Timespec
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_IO_GETEVENTS, a.context, 0, 1, uintptr(unsafe.Pointer(&a.event)), uintptr(unsafe.Pointer(&now)), 0)
		if errno != unix.EINTR {
			a.failed = errno
			return errno != 0 || n == 1
		}
	}
}

// write writes p, which is nobody else's memory and in its place for good, of whole pages, at off, and ends when it is durable. It fails with errNotTaken
// where the kernel did not take it, and with errLost where it is not known what became of it.
func (a *aio) write(fd uintptr, p []byte, off int64) (c completion, err error) {
	a.tasks++
	a.control = controlBlock{
		data: a.tasks, rwFlags: unix.RWF_DSYNC, opcode: aioWrite, fd: uint32(fd), buf: uint64(uintptr(unsafe.Pointer(&p[0]))), size: uint64(len(p)), off: off,
		flags: aioTells,
	}
	told := func(to uintptr) {
		a.control.eventFD = uint32(to)
		block := &a.control
		began := time.Now()
		submit := unix.RawSyscall
		if began.Before(a.announced) {
			submit = unix.Syscall
		}
		n, _, errno := submit(unix.SYS_IO_SUBMIT, a.context, 1, uintptr(unsafe.Pointer(&block)))
		a.took(began, time.Now())
		switch {
		case errno == unix.EINVAL || errno == unix.EOPNOTSUPP: // this file's system has no such writes
			c = completion{userData: ofWrite, res: -int32(errno)}
		case errno != 0 || n != 1:
			err = errNotTaken
		}
	}
	if failed := a.raw.Control(told); failed != nil {
		return c, errNotTaken
	}
	if err != nil || c.res != 0 {
		return c, err
	}
	if err := a.raw.Read(a.done); err != nil {
		return c, errors.Join(errLost, err)
	}
	switch e := a.event; {
	case a.failed != 0:
		return c, fmt.Errorf("%w: %w", errLost, os.NewSyscallError("io_getevents", a.failed))
	case e.data != a.tasks:
		return c, fmt.Errorf("%w: an end of write %d came for write %d", errLost, e.data, a.tasks)
	default:
		return completion{userData: ofWrite, res: int32(e.res)}, nil
	}
}
