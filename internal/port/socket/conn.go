package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// mostWritten is how much is given to the system in one call: a thread that is in one is not seen by the scheduler.
const mostWritten = 64 << 10

// conn is a connection with quick reads and writes. The runtime's poller waits for it, as for any.
type conn struct {
	*net.TCPConn
	raw syscall.RawConn
	in  transfer
	out transfer
}

// transfer is a read or a write under way. It is kept, with its step as a function, so that neither is made for each.
type transfer struct {
	mu    sync.Mutex
	p     []byte
	n     int
	errno syscall.Errno
	step  func(fd uintptr) bool
	once  func(fd uintptr) bool // of a write: as step, and never waits
}

// begin takes the transfer for p.
func (t *transfer) begin(p []byte) {
	t.mu.Lock()
	t.p, t.n, t.errno = p, 0, 0
}

// end gives it back, with what it came to.
func (t *transfer) end(c *conn, op string, err error) (int, error) {
	n, errno := t.n, t.errno
	t.p = nil
	t.mu.Unlock()
	if err == nil && errno == 0 {
		return n, nil
	}
	var failed *net.OpError
	switch {
	case err == nil:
		err = &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, errno)}
	case errors.As(err, &failed):
		failed.Op = op
	}
	return n, err
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in.begin(p)
	n, err := c.in.end(c, "read", c.raw.Read(c.in.step))
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.out.begin(p)
	return c.out.end(c, "write", c.raw.Write(c.out.step))
}

// TryWrite writes as much of p as the system takes at once, without waiting for more. It returns fewer bytes than p has, and no error, where
// that is not all.
func (c *conn) TryWrite(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.out.begin(p)
	return c.out.end(c, "write", c.raw.Write(c.out.once))
}

// read reads once, and reports whether that is over, or has to wait.
func (t *transfer) read(fd uintptr) bool {
	for {
		n, errno := now(syscall.SYS_READ, fd, t.p)
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		}
		t.n, t.errno = n, errno
		return true
	}
}

// write writes until all is written, or it fails or has to wait.
func (t *transfer) write(fd uintptr) bool {
	for t.n < len(t.p) {
		n, errno := now(syscall.SYS_WRITE, fd, t.p[t.n:min(len(t.p), t.n+mostWritten)])
		switch errno {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		case 0:
			t.n += n
		default:
			t.errno = errno
			return true
		}
	}
	return true
}

// now is read(2) or write(2). p is not empty.
func now(call, fd uintptr, p []byte) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
