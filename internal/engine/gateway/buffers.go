package gateway

// buffers keeps byte slices for use again, by size class, so that publishing allocates nothing in the steady state.
type buffers struct {
	free [len(classes)][][]byte
}

// classes are the capacities kept; a buffer that outgrew the last (one large message) is let go.
var classes = [...]int{2 << 10, 4 << 10, 8 << 10, 64 << 10, 1<<20 + 64<<10}

// keep bounds the buffers of each class that are kept: about 9 MiB together, for each shard. Many are small, since with many partitions
// each message in flight may have a buffer of its own, or share one with the next.
var keep = [...]int{1024, 512, 128, 24, 2}

// keepBlocks bounds the blocks that a shard keeps.
const keepBlocks = 2048

func classOf(size int) int {
	for i, c := range classes {
		if size <= c {
			return i
		}
	}
	return len(classes)
}

// get gives an empty buffer with room for size bytes.
func (b *buffers) get(size int) []byte {
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

// grow gives a buffer that holds what p does and has room for more bytes.
func (b *buffers) grow(p []byte, more int) []byte {
	if len(p)+more <= cap(p) {
		return p
	}
	q := append(b.get(len(p)+more), p...)
	b.put(p)
	return q
}

// put takes a buffer that nobody else refers to.
func (b *buffers) put(p []byte) {
	for i, c := range classes {
		if cap(p) == c && len(b.free[i]) < keep[i] {
			b.free[i] = append(b.free[i], p[:0])
			return
		}
	}
}
