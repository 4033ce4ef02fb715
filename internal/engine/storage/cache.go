package storage

import (
	"slices"
	"sync"
)

// cacheSeconds is how long a batch is kept in memory at most. Who reads something older reads it from the file, many batches at a time;
// what nobody reads does not stay.
const cacheSeconds = 10

// cache bounds the newest batches in memory over all copies, by size and by age: first in, first out. A batch enters once it is in the
// journal.
type cache struct {
	mu      sync.Mutex
	limit   int64
	bytes   int64
	queue   []cached
	next    int
	seconds uint32   // counted by rest
	gone    []cached // scratch of add, which only the writer calls
}

type cached struct {
	c    *Copy
	end  uint64
	size uint32
	born uint32 // in cache.seconds
}

// add counts a batch of c that ends at end, and lets the oldest go: many at a time, so that those of one copy go together. To look at a
// copy that has not been used for a while costs more than what is done to it.
func (k *cache) add(c *Copy, end uint64, size int) {
	k.mu.Lock()
	k.queue = append(k.queue, cached{c, end, uint32(size), k.seconds})
	k.bytes += int64(size)
	gone := k.gone[:0]
	if k.bytes > k.limit {
		for k.bytes > k.limit-k.limit/16 && k.next < len(k.queue)-1 {
			gone = append(gone, k.pop())
		}
	}
	if k.next > 1024 && k.next > len(k.queue)/2 {
		k.queue = append(k.queue[:0], k.queue[k.next:]...)
		k.next = 0
	}
	k.mu.Unlock()
	release(gone)
	clear(gone)
	k.gone = gone
}

func (k *cache) pop() cached {
	o := k.queue[k.next]
	k.bytes -= int64(o.size)
	k.queue[k.next] = cached{}
	k.next++
	return o
}

// release begins with the newest of each copy, with which all before it goes.
func release(gone []cached) {
	for i := len(gone) - 1; i >= 0; i-- {
		gone[i].c.forget(gone[i].end)
	}
}

// rest is called once a second and lets go of what is too old.
func (k *cache) rest() {
	k.mu.Lock()
	k.seconds++
	var gone []cached
	for k.next < len(k.queue) && k.seconds-k.queue[k.next].born > cacheSeconds {
		gone = append(gone, k.pop())
	}
	if k.next == len(k.queue) {
		k.queue, k.next = nil, 0
	}
	k.mu.Unlock()
	release(gone)
}

// Few frames in a second, such as the scrub's, need less than this of the space that the writer works with.
const (
	fewFrames = 64
	fewBytes  = 64 << 10
)

// rest is called once a second. A writer that has had little to do since the last time gives back the space that it works with: a
// burst, such as the start of many copies, must not hold it for ever.
func (w *writer) rest() {
	w.s.cache.rest()
	few := w.sequence-w.restedAt <= fewFrames
	w.restedAt = w.sequence
	if !few {
		return
	}
	if len(w.buf) == 0 && cap(w.buf) > fewBytes {
		w.buf = nil
	}
	if len(w.dones) == 0 && cap(w.dones) > fewFrames {
		w.dones, w.group, w.witness = nil, nil, slices.Clone(w.witness)
	}
	w.mu.Lock()
	for _, q := range []*opQueue{&w.urgent, &w.normal} {
		if q.len() == 0 && cap(q.ops) > fewFrames {
			*q = opQueue{}
		}
	}
	w.mu.Unlock()
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
