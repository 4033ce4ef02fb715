// Package buffers keeps byte slices for use again. It knows nothing of what they hold, and nothing of who uses them may come in.
package buffers

// Pool keeps slices by size class, so that a shard publishes without allocating in the steady state. The zero value is empty and ready. It belongs to one
// loop: nothing of it may be called from two goroutines at a time.
type Pool struct {
	free [len(classes)][][]byte
}

// classes are the capacities kept; a buffer that outgrew the last (one large message) is let go.
var classes = [...]int{2 << 10, 4 << 10, 8 << 10, 64 << 10, 1<<20 + 64<<10}

// keep bounds the buffers of each class that are kept: about 9 MiB together, for each shard. Many are small, since with many partitions
// each message in flight may have a buffer of its own, or share one with the next.
var keep = [...]int{1024, 512, 128, 24, 2}

func classOf(size int) int {
	for i, c := range classes {
		if size <= c {
			return i
		}
	}
	return len(classes)
}

// Get gives an empty buffer with room for size bytes.
func (b *Pool) Get(size int) []byte {
	c := classOf(size)
	if c == len(classes) {
		return make([]byte, 0, size)
	}
	if n := len(b.free[c]); n > 0 {
		p := b.free[c][n-1]
		b.free[c] = b.free[c][:n-1]
		return p
	}
	return make([]byte, 0, classes[c])
}

// Grow gives a buffer that holds what p does and has room for more bytes: p itself, where it has. Else p is put back, and must not be used any more.
func (b *Pool) Grow(p []byte, more int) []byte {
	if len(p)+more <= cap(p) {
		return p
	}
	q := append(b.Get(len(p)+more), p...)
	b.Put(p)
	return q
}

// Put takes a buffer that nobody else refers to. One whose capacity is of no class, and one of a class of which enough are kept, is let go.
func (b *Pool) Put(p []byte) {
	for i, c := range classes {
		if cap(p) == c && len(b.free[i]) < keep[i] {
			b.free[i] = append(b.free[i], p[:0])
			return
		}
	}
}
