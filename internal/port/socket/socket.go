// Package socket is the port to connections: it makes reading from them and writing to them cheap.
//
// A call of the system announces itself to Go's scheduler, for the case that it takes long. Where a process has just been idle, that wakes
// the thread that looks after calls that do, and that thread then looks every few microseconds for a while. With some thousand messages a
// second, each of which finds the process idle, it cost as much as a fifth of all that a broker did. Sockets never take long: they are
// non-blocking. Here they are read and written without the announcement. Only the standard library may come in.
package socket

import (
	"net"
	"syscall"
)

// Quick is c with quick reads and writes, if it is a TCP connection; else it is c. The result
// embeds the *net.TCPConn, and c is not to be read from or written to any more.
func Quick(c net.Conn) net.Conn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return c // it is closed: whoever uses it will be told
	}
	q := &conn{TCPConn: t, raw: raw}
	q.in.step, q.out.step = q.in.read, q.out.write
	q.out.once = func(fd uintptr) bool { q.out.write(fd); return true }
	return q
}

var _ interface {
	net.Conn
	CloseWrite() error
	syscall.Conn
} = &conn{}
