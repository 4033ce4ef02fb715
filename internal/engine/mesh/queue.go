package mesh

import (
	"sync"
	"sync/atomic"
)

// What goes into one packet.
const (
	packetBytes = 256 << 10       // of messages in a packet; with a part of a large one behind small ones, half as much again
	laneBytes   = packetBytes / 2 // that large messages get of a packet that carries small ones too
	frameBytes  = 24              // what a frame costs beside its data, about
	leastPart   = 4 << 10         // no smaller part of a message is begun
)

// part is a frame to be sent: a message or a part of one.
type part struct {
	key   uint64
	total int // of the whole message, on its first part of several
	more  bool
	data  []byte
}

// queue is what waits to be sent to a peer for one purpose. Small messages go in the order they came. A message that does not fit into a
// packet opens a lane for its key: it and what follows of its key go there, and lanes take turns, so that no other key waits for it.
type queue struct {
	mu     sync.Mutex
	fifo   []waiting
	head   int
	lanes  map[uint64]*lane
	active []*lane      // whose place in the fifo was reached; the first one is next
	bytes  atomic.Int64 // of all that waits, with the cost of frames
	ready  chan struct{}
}

// waiting is a message, or the place of a lane.
type waiting struct {
	key  uint64
	msg  []byte
	lane *lane
}

// lane is what waits of one key from a large message on.
type lane struct {
	key  uint64
	msgs [][]byte
	sent int // bytes of the first that are gone
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// push adds a message.
func (q *queue) push(key uint64, msg []byte) {
	q.mu.Lock()
	q.bytes.Add(int64(len(msg) + frameBytes))
	switch l := q.lanes[key]; {
	case l != nil:
		l.msgs = append(l.msgs, msg)
	case len(msg) > packetBytes:
		l = &lane{key: key, msgs: [][]byte{msg}}
		if q.lanes == nil {
			q.lanes = map[uint64]*lane{}
		}
		q.lanes[key] = l
		q.fifo = append(q.fifo, waiting{lane: l})
	default:
		q.fifo = append(q.fifo, waiting{key: key, msg: msg})
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// take appends the parts of the next packet to parts; none means that nothing waits.
func (q *queue) take(parts []part) []part {
	q.mu.Lock()
	defer q.mu.Unlock()
	used := 0
	for q.head < len(q.fifo) {
		w := &q.fifo[q.head]
		if w.lane != nil {
			q.active = append(q.active, w.lane)
		} else {
			room := packetBytes
			if len(q.active) > 0 {
				room = packetBytes - laneBytes
			}
			cost := len(w.msg) + frameBytes
			if used > 0 && used+cost > room {
				break
			}
			used += cost
			parts = append(parts, part{key: w.key, data: w.msg})
		}
		*w = waiting{}
		q.head++
	}
	q.trim()
	q.bytes.Add(-int64(used))
	if len(q.active) == 0 {
		return parts
	}
	room := packetBytes
	if used > 0 {
		room = laneBytes
	}
	return q.turn(parts, room)
}

// turn takes about room bytes from the lanes that are next.
func (q *queue) turn(parts []part, room int) []part {
	for room > leastPart && len(q.active) > 0 {
		l := q.active[0]
		for room > leastPart && len(l.msgs) > 0 {
			msg := l.msgs[0]
			n := min(len(msg)-l.sent, room)
			p := part{key: l.key, data: msg[l.sent : l.sent+n], more: l.sent+n < len(msg)}
			if l.sent == 0 && p.more {
				p.total = len(msg)
			}
			parts = append(parts, p)
			room -= n + frameBytes
			q.bytes.Add(-int64(n))
			if l.sent += n; !p.more {
				q.bytes.Add(-frameBytes)
				l.msgs[0] = nil
				l.msgs, l.sent = l.msgs[1:], 0
			}
		}
		q.active = append(q.active[:0], q.active[1:]...)
		if len(l.msgs) > 0 {
			q.active = append(q.active, l)
		} else {
			delete(q.lanes, l.key)
		}
	}
	return parts
}

// trim gives back what the fifo no longer needs.
func (q *queue) trim() {
	switch {
	case q.head == len(q.fifo):
		q.head = 0
		if cap(q.fifo) > 1<<14 {
			q.fifo = nil // after a burst
		}
		q.fifo = q.fifo[:0]
	case q.head > 1024 && q.head > len(q.fifo)/2:
		n := copy(q.fifo, q.fifo[q.head:])
		clear(q.fifo[n:])
		q.fifo, q.head = q.fifo[:n], 0
	}
}
