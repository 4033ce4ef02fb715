package replica

import (
	"errors"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// outbound is what a queue has decided to send and whose bodies are still to be had, in order. Order is kept across the whole queue: a
// body that must be read holds back what was decided after it.
type outbound struct {
	items   []outItem
	head    int
	recent  []batch.Batch // confirmed just now, valid until the end of the flush
	window  []batch.Batch // read from the log last; see lane.windows
	cursor  batch.Cursor
	reading bool
}

// outKind says what becomes of an item.
type outKind uint8

const (
	outDeliver outKind = iota
	outGet
	outDead
	outUnsubscribed // nothing more comes for the consumer
)

type outItem struct {
	kind    outKind
	in      *inlet // nil for a dead letter
	a       queue.Assignment
	request uint64 // of Get; the number of a dead letter
	left    uint64
	reason  queue.Reason
	lane    uint8
}

// outgoing is what is on its way out, made if there is nothing yet.
func (r *replica) outgoing() *outbound {
	if r.out == nil {
		r.out = &outbound{}
	}
	return r.out
}

func (o *outbound) len() int {
	if o == nil {
		return 0
	}
	return len(o.items) - o.head
}

func (o *outbound) busy() bool { return o != nil && o.reading }

func (o *outbound) push(i outItem) {
	if o.head > 0 && len(o.items) == cap(o.items) {
		n := copy(o.items, o.items[o.head:])
		clear(o.items[n:])
		o.items, o.head = o.items[:n], 0
	}
	o.items = append(o.items, i)
}

func (o *outbound) pop() {
	o.items[o.head] = outItem{}
	if o.head++; o.head == len(o.items) {
		o.items, o.head = o.items[:0], 0
		if cap(o.items) > 1024 {
			o.items = nil
		}
	}
}

// find is the record at an offset, if its batch is at hand.
func (o *outbound) find(offset uint64) (h batch.RecordHeader, body []byte, ok bool) {
	c := &o.cursor
	if b := c.Batch(); offset < c.Offset() || offset >= b.EndOffset() || b.Count == 0 {
		b, ok := holds(o.recent, offset)
		if !ok {
			b, ok = holds(o.window, offset)
		}
		if !ok {
			return h, nil, false
		}
		*c = b.Cursor()
	}
	for {
		at := c.Offset()
		if h, body, ok = c.Next(); !ok || at == offset {
			return h, body, ok
		}
	}
}

func holds(bs []batch.Batch, offset uint64) (batch.Batch, bool) {
	i, ok := slices.BinarySearchFunc(bs, offset, func(b batch.Batch, offset uint64) int {
		switch {
		case b.EndOffset() <= offset:
			return -1
		case b.Offset > offset:
			return 1
		}
		return 0
	})
	if !ok {
		return batch.Batch{}, false
	}
	return bs[i], true
}

// errMissing is given when a message that lives is not in the log.
var errMissing = errors.New("a message that lives is not in the log")

// pump sends what has been decided, as far as bodies are at hand, and asks the log for the first that is not.
func (q *queueSide) pump(r *replica) {
	o := r.out
	bytes := paceBytes // since the way was looked at
	for o.len() > 0 && !o.reading {
		i := &o.items[o.head]
		if i.in != nil && i.in.dead {
			o.pop()
			continue
		}
		if i.in != nil && bytes >= paceBytes {
			q.sendAll(r)
			bytes = 0
			if protocol.Crowded(i.in.reply) {
				r.pace()
				return
			}
		}
		if i.kind == outUnsubscribed {
			q.sendAll(r)
			i.in.reply.Send(protocol.Unsubscribed{Partition: r.id, Stream: i.in.stream, Consumer: i.a.Holder.Consumer})
			o.pop()
			continue
		}
		h, body, ok := o.find(i.a.Offset)
		if !ok {
			if !q.fetch(r, i.a.Offset) {
				break
			}
			continue
		}
		bytes += len(body)
		q.send(r, i, h, body)
		o.pop()
	}
	q.sendAll(r)
}

const (
	// paceBytes is how much is sent before it is asked again whether the way to a gateway is crowded.
	paceBytes = 1 << 20
	// paceEvery is how soon it is asked again where it was. Ways are as fast as the network, so order is kept among gateways: one that is
	// behind a slow way holds up the others on the queue, until the way is free or its session ends (mesh.Limits.Silence).
	paceEvery = 2 * time.Millisecond
)

// pace has the replica go on sending a moment later.
func (r *replica) pace() {
	if r.pacing {
		return
	}
	r.pacing = true
	r.box.After(paceEvery, call{func() {
		r.pacing = false
		r.touch()
	}})
}

// maxWindows bounds the replicas of one loop that keep what they read of their log last.
const maxWindows = 16

// forget lets go of bodies at the end of a flush. What was read from the log stays while there is more to send: consumers and targets
// of dead letters take a few messages at a time, and each few must not cost a read.
func (q *queueSide) forget(r *replica) {
	o := r.out
	if o == nil {
		return
	}
	clear(o.recent)
	o.recent = o.recent[:0]
	if c := q.m.Counts(); o.len() == 0 && c.Ready == 0 && c.Dead == 0 {
		r.dropWindow()
		return
	}
	b := o.cursor.Batch()
	if w, ok := holds(o.window, b.Offset); !ok || w.Position != b.Position {
		o.cursor = batch.Cursor{}
	}
}

// keepWindow takes batches that were read in the place of those before. The replica that read longest ago may have to let go of its own.
func (r *replica) keepWindow(bs []batch.Batch) {
	l := r.lane
	r.dropWindow()
	r.out.window = bs
	if len(l.windows) == maxWindows {
		l.windows[0].dropWindow()
	}
	l.windows = append(l.windows, r)
}

func (r *replica) dropWindow() {
	if r.out == nil || r.out.window == nil {
		return
	}
	r.out.window, r.out.cursor = nil, batch.Cursor{}
	i := slices.Index(r.lane.windows, r)
	r.lane.windows = slices.Delete(r.lane.windows, i, i+1)
}

// fetch reads the batches from an offset on. It reports whether they are at hand now, and is at work otherwise.
func (q *queueSide) fetch(r *replica, offset uint64) bool {
	o := r.out
	o.reading = true
	now := true
	r.read(func(done func([]batch.Batch, error)) { r.log.ReadOffset(offset, readChunk, done) }, func(bs []batch.Batch, err error) {
		o.reading = false
		bs = slices.DeleteFunc(bs, func(b batch.Batch) bool { return b.Records == 0 })
		if _, ok := holds(bs, offset); err == nil && !ok {
			err = errMissing
		}
		if err != nil {
			q.groups = nil
			r.fail("read", err)
			return
		}
		r.keepWindow(bs)
		if !now {
			r.touch()
		}
	})
	now = false
	return !o.reading && r.side != nil
}

// send adds one item to what goes to its consumer.
func (q *queueSide) send(r *replica, i *outItem, h batch.RecordHeader, body []byte) {
	item := protocol.Item{Offset: i.a.Offset, Count: i.a.Count, Again: i.a.Again, Record: h, Body: body}
	switch i.kind {
	case outDeliver:
		g := q.group(i.in, i.a.Holder.Consumer)
		g.items = append(g.items, item)
	case outGet:
		i.in.reply.Send(protocol.GetDone{
			Partition: r.id, Stream: i.in.stream, Request: i.request, OK: true, Item: item, Left: i.left,
		})
	case outDead:
		if to := r.m.env.Courier(r.id); to != nil {
			to.Send(protocol.DeadLetter{
				Partition: r.id, Number: i.request, Lane: i.lane, Offset: i.a.Offset, Reason: i.reason.String(), Count: i.a.Count,
				Time: r.now(), Record: h, Body: body, Reply: r,
			})
		} else {
			q.m.DeadKept(i.request, "nobody publishes dead letters yet", r.now())
		}
	}
}

// group is the items that go to one consumer in one message.
type group struct {
	in       *inlet
	consumer uint64
	items    []protocol.Item
}

func (q *queueSide) group(in *inlet, consumer uint64) *group {
	for i := len(q.groups) - 1; i >= 0; i-- {
		if g := &q.groups[i]; g.in == in && g.consumer == consumer {
			return g
		}
	}
	q.groups = append(q.groups, group{in: in, consumer: consumer})
	return &q.groups[len(q.groups)-1]
}

// sendAll sends what was grouped.
func (q *queueSide) sendAll(r *replica) {
	for i := range q.groups {
		g := &q.groups[i]
		g.in.reply.Send(protocol.Deliver{Partition: r.id, Stream: g.in.stream, Consumer: g.consumer, Items: g.items})
		*g = group{}
	}
	q.groups = q.groups[:0]
}
