package amqp

import (
	"sync"
	"sync/atomic"
)

// large lends memory for large outputs. One that grows from nothing is copied several times on its way, which costs as much as all else
// that is done for a delivery, and connections that are sent much are sent much again. What nobody uses the collector takes. The zero
// value is ready. It is safe for concurrent use.
type large struct {
	pool sync.Pool
	held atomic.Int32 // connections that have such memory waiting for what comes next
}

// follow says whether a connection is to have large memory for what comes next, after an output of so many bytes; roomy says that it had.
func (l *large) follow(roomy bool, bytes int) bool {
	if roomy {
		l.held.Add(-1)
	}
	if bytes <= outputKept {
		return false
	}
	if l.held.Add(1) > mostLarge {
		l.held.Add(-1)
		return false
	}
	return true
}

// take gives memory, or nil where there is none.
func (l *large) take() []byte {
	if b, ok := l.pool.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

// give takes memory that was written out.
func (l *large) give(b []byte) {
	if cap(b) <= outputLarge {
		b = b[:0]
		l.pool.Put(&b)
	}
}
