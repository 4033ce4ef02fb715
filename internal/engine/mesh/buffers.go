package mesh

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Buffers of the pool are of powers of two of bytes, from the smallest that gRPC returns to as much as is read or written at a time.
const leastBuffer, mostBuffer = 11, 19

// pool gives gRPC its buffers. Unlike gRPC's own it does not clear them: whoever takes one fills it first, and what is cleared is written
// twice.
type pool struct {
	sizes [mostBuffer + 1]sync.Pool // of *[]byte, by the power of two
}

var buffers = &pool{}

// Get implements mem.BufferPool.
func (p *pool) Get(n int) *[]byte {
	power := max(bits.Len(uint(max(n, 1)-1)), leastBuffer)
	if power > mostBuffer {
		b := make([]byte, n)
		return &b
	}
	b, ok := p.sizes[power].Get().(*[]byte)
	if !ok {
		made := make([]byte, 1<<power)
		b = &made
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool. What is no buffer of the pool's is left to the collector.
func (p *pool) Put(b *[]byte) {
	if n := cap(*b); n&(n-1) == 0 && n >= 1<<leastBuffer && n <= 1<<mostBuffer {
		p.sizes[bits.Len(uint(n))-1].Put(b)
	}
}

var _ mem.BufferPool = buffers
