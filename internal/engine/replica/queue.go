package replica

import (
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

const (
	// assignAtOnce is how many deliveries are decided at a time, and how many may wait for their bodies.
	assignAtOnce = 512
	// liveGap joins spans of messages that are kept: a body that nobody needs costs less than another span.
	liveGap = 64
	// askDeleteEvery is how long, in milliseconds, a queue whose deletion was refused waits before it asks again.
	askDeleteEvery = 1000
)

// queueSide is a queue's machine and what goes out of it.
type queueSide struct {
	m           queue.Machine
	deadLetters bool
	askAt       int64 // wall time in ms before which the queue's deletion is not asked for: it was refused
	groups      []group
}

func (q *queueSide) apply(b batch.Batch) error                     { return q.m.ApplyBatch(b) }
func (q *queueSide) promote(now int64)                             { q.m.Promote(now) }
func (q *queueSide) events() ([]byte, uint32)                      { return q.m.TakeEvents() }
func (q *queueSide) limited() bool                                 { return q.m.Limited() }
func (q *queueSide) awaited() bool                                 { return q.m.Awaited() }
func (q *queueSide) admit(h batch.RecordHeader) bool               { return !q.m.Limited() || q.m.Admit(h) }
func (q *queueSide) snapshot() (pages []batch.Page, gone []uint32) { return q.m.Snapshot(false) }
func (q *queueSide) restore(pages []batch.Page) error              { return q.m.Restore(pages) }

func (q *queueSide) keep(*replica, int64) {}
func (q *queueSide) keepAt() int64        { return 0 }
func (q *queueSide) live() (int64, bool)  { return q.m.Counts().Bytes, true }

func (q *queueSide) trim() {
	q.m.Trim()
	q.groups = nil
}

func (q *queueSide) advanced(r *replica) { r.touch() }

// work decides and sends until there is nothing more to decide, or enough waits for bodies.
func (q *queueSide) work(r *replica) {
	if r.phase != serving {
		r.claimed()
		if r.phase != serving {
			return
		}
	}
	if r.out == nil && q.m.Quiet() {
		return
	}
	now := r.now()
	if w := q.m.NextWake(); w != 0 && w <= now {
		if n := q.m.Tick(now); n > 0 {
			r.m.expired.Add(uint64(n))
		}
	}
	for r.phase == serving && !r.out.busy() && !r.pacing {
		if r.out.len() < assignAtOnce && !r.cutOff() {
			r.lane.assigned = q.m.Assign(assignAtOnce, r.lane.assigned[:0])
			for _, a := range r.lane.assigned {
				if in := r.holder(a.Holder.Gateway); in != nil {
					r.outgoing().push(outItem{kind: outDeliver, in: in, a: a})
				}
			}
			q.dead(r, now)
		}
		if r.out.len() == 0 {
			break
		}
		q.pump(r)
	}
	q.forget(r)
	if r.phase == serving && r.closing() == "" {
		q.expire(r, now)
	}
}

// holder is the open stream of a gateway by its number.
func (r *replica) holder(number uint64) *inlet {
	for _, in := range r.inlets {
		if in.number == number {
			return in
		}
	}
	if r.local != nil {
		for _, in := range r.local.inlets {
			if in.number == number {
				return in
			}
		}
	}
	return nil
}

// dead takes the dead letters that are due.
func (q *queueSide) dead(r *replica, now int64) {
	if !q.deadLetters || r.m.env.Courier == nil || r.stopping() {
		return
	}
	r.lane.dead = q.m.NextDead(now, r.lane.dead[:0])
	for _, d := range r.lane.dead {
		r.outgoing().push(outItem{
			kind: outDead, request: d.Number, reason: d.Reason, lane: d.Lane,
			a: queue.Assignment{Offset: d.Offset, Size: d.Size, Count: d.Count},
		})
	}
}

// expire asks for the queue's deletion once nobody has used it for long enough, or its last consumer has gone.
func (q *queueSide) expire(r *replica, now int64) {
	switch {
	case now < q.askAt:
	case q.m.Unused(now):
		r.askDelete("unused for longer than x-expires")
	case r.res.AutoDelete && q.m.Abandoned():
		r.askDelete("its last consumer has gone")
	}
}

func (q *queueSide) claimed(r *replica) { r.tellDenied(q.m.Claimed()) }

func (q *queueSide) awaiting() bool { return q.m.Awaiting() }

func (q *queueSide) awaits(gateway, consumer uint64) bool {
	return q.m.Awaits(queue.Holder{Gateway: gateway, Consumer: consumer})
}

func (q *queueSide) attach(r *replica, in *inlet, m *protocol.Attach) []queue.Denied {
	cs, ks := make([]queue.Claim, len(m.Claims)), make([]queue.Kept, len(m.Kept))
	for i, c := range m.Claims {
		cs[i] = queue.Claim(c)
	}
	for i, k := range m.Kept {
		ks[i] = queue.Kept(k)
	}
	last := queue.LastStream{Epoch: m.Epoch, Until: in.until}
	return q.m.Attach(in.number, last, cs, ks, r.now())
}

func (q *queueSide) release(r *replica, gateway uint64) { q.m.ReleaseGateway(gateway, r.now()) }

func (q *queueSide) pause(gateway uint64) { q.m.Pause(gateway) }

func (q *queueSide) subscribe(r *replica, in *inlet, m protocol.Subscribe) {
	err := q.m.Subscribe(queue.Holder{Gateway: in.number, Consumer: m.Consumer}, queue.Options{
		NoAck: m.NoAck, Exclusive: m.Exclusive, Priority: m.Priority, Prefetch: m.Prefetch, Credit: m.Credit,
	})
	answer := protocol.Subscribed{Partition: r.id, Stream: in.stream, Consumer: m.Consumer}
	if err != nil {
		answer.Refused = "exclusive"
	}
	in.reply.Send(answer)
}

func (q *queueSide) unsubscribe(r *replica, in *inlet, m protocol.Unsubscribe) {
	h := queue.Holder{Gateway: in.number, Consumer: m.Consumer}
	q.m.Unsubscribe(h, r.now())
	r.outgoing().push(outItem{kind: outUnsubscribed, in: in, a: queue.Assignment{Holder: h}})
}

func (q *queueSide) credit(in *inlet, m protocol.Credit) {
	q.m.Credit(queue.Holder{Gateway: in.number, Consumer: m.Consumer}, m.Bytes)
}

func (q *queueSide) wake(r *replica) int64 {
	if q.m.Quiet() {
		return 0
	}
	w := q.m.NextWake()
	if r.closing() != "" {
		return w
	}
	at := q.m.UnusedAt()
	if at > 0 || r.res.AutoDelete && q.m.Abandoned() {
		at = max(at, q.askAt)
	}
	if at > 0 && (w == 0 || at < w) {
		return at
	}
	return w
}

func (q *queueSide) count(_ *replica, s *Status) {
	c := q.m.Counts()
	s.Ready, s.Unsettled, s.Consumers, s.DeadLetters = c.Ready+c.Delayed, c.Unsettled, c.Consumers, c.Dead
	if n, _, why := q.m.Stuck(); n > 0 {
		s.Stuck = why
	}
}

// retain tells the log which bodies are needed: of what lives, and of what was settled as it was assigned and is not sent yet.
func (q *queueSide) retain(r *replica) {
	spans := q.m.Live(liveGap, nil)
	o := r.out
	for i := 0; i < o.len(); i++ {
		if k := o.items[o.head+i].kind; k != outUnsubscribed {
			at := o.items[o.head+i].a.Offset
			spans = append(spans, batch.Span{From: at, To: at + 1})
		}
	}
	if o.len() > 0 {
		spans = joined(spans)
	}
	r.log.Retain(r.owed(r.save.at), spans, r.retained)
}

// joined sorts spans and joins those that touch.
func joined(spans []batch.Span) []batch.Span {
	slices.SortFunc(spans, func(a, b batch.Span) int {
		switch {
		case a.From < b.From:
			return -1
		case a.From > b.From:
			return 1
		}
		return 0
	})
	n := 0
	for _, s := range spans {
		if n > 0 && s.From <= spans[n-1].To {
			spans[n-1].To = max(spans[n-1].To, s.To)
			continue
		}
		spans[n] = s
		n++
	}
	return spans[:n]
}
