package storage

import "sync"

// cache bounds the newest batches in memory over all copies: first in, first out. A batch enters once it is in the journal.
type cache struct {
	mu    sync.Mutex
	limit int64
	bytes int64
	queue []cached
	next  int
}

type cached struct {
	c    *Copy
	end  uint64
	size int
}

// add counts a batch of c that ends at end, and lets the oldest go.
func (k *cache) add(c *Copy, end uint64, size int) {
	k.mu.Lock()
	k.queue = append(k.queue, cached{c, end, size})
	k.bytes += int64(size)
	var gone []cached
	for k.bytes > k.limit && k.next < len(k.queue)-1 {
		gone = append(gone, k.queue[k.next])
		k.bytes -= int64(k.queue[k.next].size)
		k.queue[k.next] = cached{}
		k.next++
	}
	if k.next > 1024 && k.next > len(k.queue)/2 {
		k.queue = append(k.queue[:0], k.queue[k.next:]...)
		k.next = 0
	}
	k.mu.Unlock()
	for _, g := range gone {
		g.c.forget(g.end)
	}
}

// forget lets batches up to a position leave memory.
func (c *Copy) forget(end uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetBelow(end)
}

func (c *Copy) forgetBelow(end uint64) {
	n := 0
	for n < len(c.newest) && c.newest[n].End() <= end && c.newest[n].End() <= c.logged.Position {
		n++
	}
	if n > 0 {
		clear(c.newest[:n])
		c.newest = c.newest[n:]
		if len(c.newest) == 0 {
			c.newest = nil
		}
	}
}
