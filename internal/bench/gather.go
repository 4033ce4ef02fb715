package bench

import (
	"bufio"
	"net"
	"sync"
)

// gatherMost is how many bytes wait to be written at most, and readAhead how many are read at a time.
const gatherMost, readAhead = 256 << 10, 64 << 10

// gathered is a connection that writes what gathered while its last write ran in one, and reads much at a time. The client library writes
// each message by itself and reads 4 KiB at a time; where clients share the processors with the broker, what that costs would be measured
// as the broker's.
type gathered struct {
	net.Conn
	in      *bufio.Reader
	mu      sync.Mutex
	changed sync.Cond // waiting has grown or shrunk, or err is set
	waiting []byte
	err     error
}

func gather(c net.Conn) *gathered {
	g := &gathered{Conn: c, in: bufio.NewReaderSize(c, readAhead)}
	g.changed.L = &g.mu
	go g.write()
	return g
}

// Read reads.
func (g *gathered) Read(b []byte) (int, error) { return g.in.Read(b) }

// Write takes b. An error of an earlier write is returned.
func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.err == nil && len(g.waiting) > gatherMost {
		g.changed.Wait()
	}
	if g.err != nil {
		return 0, g.err
	}
	if g.waiting = append(g.waiting, b...); len(g.waiting) == len(b) {
		g.changed.Broadcast()
	}
	return len(b), nil
}

func (g *gathered) write() {
	var out []byte
	for {
		g.mu.Lock()
		for g.err == nil && len(g.waiting) == 0 {
			g.changed.Wait()
		}
		if g.err != nil {
			g.mu.Unlock()
			return
		}
		full := len(g.waiting) > gatherMost
		out, g.waiting = g.waiting, out[:0]
		if full {
			g.changed.Broadcast()
		}
		g.mu.Unlock()
		if _, err := g.Conn.Write(out); err != nil {
			g.fail(err)
			return
		}
	}
}

func (g *gathered) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
	}
	g.changed.Broadcast()
}

// Close ends the connection. What waits is lost: the library has waited for the answer to its last words before.
func (g *gathered) Close() error {
	g.fail(net.ErrClosed)
	return g.Conn.Close()
}
