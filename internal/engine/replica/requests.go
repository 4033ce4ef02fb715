package replica

import (
	"log/slog"

	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/trace"
)

// settle passes settles on to the queue. They are answered once the events that follow from them are confirmed.
func (r *replica) settle(m protocol.Settle) {
	in := r.inlet(&m.To)
	if in == nil {
		return
	}
	if q, ok := r.side.(*queueSide); ok {
		for _, i := range m.Items {
			q.m.Settle(queue.Holder{Gateway: in.number, Consumer: i.Consumer}, i.First, i.Last, queue.Outcome(i.Outcome))
		}
	}
	in.settled = max(in.settled, m.Seq+1)
}

// cursor moves a stream's named cursor.
func (r *replica) cursor(m protocol.Cursor) {
	in := r.inlet(&m.To)
	if in == nil {
		return
	}
	if s, ok := r.side.(*streamSide); ok {
		if err := s.m.Move(m.Name, min(m.Offset, r.applied.Offset), false); err != nil {
			trace.Warn(r.m.env.Trace, "replica.cursor.refused", r.attr(), slog.String("cursor", m.Name), slog.String("reason", err.Error()))
		}
	}
	in.settled = max(in.settled, m.Seq+1)
}

// cursors are the confirmed named cursors of a stream that this copy owns. One is forgotten first, where one is named: that is confirmed once it
// is not among them any more.
func (r *replica) cursors(forget string) (out protocol.CursorsAnswer) {
	s, ok := r.side.(*streamSide)
	switch {
	case !ok:
		out.Refused = "it is no stream"
	case r.copy.Role() != partition.Owner || r.phase < claiming:
		out.Refused = "its owner does not serve yet"
	}
	if out.Refused != "" {
		return out
	}
	if forget != "" {
		if err := r.fenced(); err != nil {
			out.Refused = err.Error()
			return out
		}
		_, out.Known = s.m.Cursor(forget)
		s.m.Forget(forget)
		r.touch()
	}
	s.m.Cursors(func(name string, offset uint64) {
		out.Items = append(out.Items, protocol.CursorAt{Name: name, Offset: offset})
	})
	return out
}

func (r *replica) subscribe(m protocol.Subscribe) {
	in := r.inlet(&m.To)
	if in == nil || r.stopping() {
		return // a stopping node is no answer: the gateway asks on its next stream, whoever owns then
	}
	if why := r.closing(); why != "" {
		in.reply.Send(protocol.Subscribed{Partition: r.id, Stream: in.stream, Consumer: m.Consumer, Refused: why})
		return
	}
	r.side.subscribe(r, in, m)
	r.claimed()
}

func (r *replica) unsubscribe(m protocol.Unsubscribe) {
	if in := r.inlet(&m.To); in != nil {
		r.side.unsubscribe(r, in, m)
		r.claimed()
	}
}

func (r *replica) credit(m protocol.Credit) {
	in := r.inlet(&m.To)
	if in == nil {
		in = r.localInlet(&m.To)
	}
	if in != nil {
		r.side.credit(in, m)
	}
}

// get hands out one message, or says that none is ready.
func (r *replica) get(m protocol.Get) {
	in := r.inlet(&m.To)
	if in == nil {
		return
	}
	none := protocol.GetDone{Partition: r.id, Stream: in.stream, Request: m.Request}
	q, ok := r.side.(*queueSide)
	switch {
	case !ok:
		none.Refused = "a stream is read by consumers only"
	case r.fenced() != nil:
		none.Refused, _ = r.shut()
	case !r.cutOff() && r.handOne(q, in, &m):
		return
	default:
		// What was given back or published before it was asked for may be on its way into the log: it counts as there. And an owner that is cut off
		// hands out nothing: it will be in touch again, or the gateway will ask another.
		w := r.asks()
		w.gets = append(w.gets, waitingGet{in: in, m: m})
		return
	}
	in.reply.Send(none)
}

// waitingGet is a Get that found nothing ready while something may have been on its way, or that came while the owner was cut off.
type waitingGet struct {
	in *inlet
	m  protocol.Get
	at uint64 // 0: what was on its way is not appended yet
}

func (r *replica) handOne(q *queueSide, in *inlet, m *protocol.Get) bool {
	a, left, ok := q.m.Get(in.number, m.NoAck, r.now())
	if ok {
		r.outgoing().push(outItem{kind: outGet, in: in, a: a, request: m.Request, left: left})
	}
	return ok
}

// getAgain answers the Gets that waited for what was on its way when they came, and is applied now.
func (r *replica) getAgain() {
	w := r.asked
	if w == nil || len(w.gets) == 0 || r.cutOff() {
		return
	}
	n := 0
	for ; n < len(w.gets) && w.gets[n].at != 0 && w.gets[n].at <= r.applied.Position; n++ {
		g := &w.gets[n]
		q, ok := r.side.(*queueSide)
		switch {
		case g.in.dead || !ok:
		case r.handOne(q, g.in, &g.m):
			r.touch() // for what goes out
		default:
			g.in.reply.Send(protocol.GetDone{Partition: r.id, Stream: g.in.stream, Request: g.m.Request})
		}
	}
	if w.gets = w.gets[n:]; len(w.gets) == 0 {
		w.gets = nil
	}
}

// purge drops what is ready. It is answered once that is confirmed.
func (r *replica) purge(m protocol.Purge) {
	in := r.inlet(&m.To)
	if in == nil {
		return
	}
	answer := protocol.Counted{Partition: r.id, Stream: in.stream, Request: m.Request}
	q, ok := r.side.(*queueSide)
	if !ok {
		answer.Refused = "a stream cannot be purged"
		in.reply.Send(answer)
		return
	}
	if err := r.fenced(); err != nil && !r.fencePasses() {
		answer.Refused = err.Error()
		in.reply.Send(answer)
		return
	}
	answer.Ready = q.m.Purge()
	w := r.asks()
	w.purges = append(w.purges, purge{in: in, answer: answer})
}

// counted is what Stats and Close are answered with.
func (r *replica) counted(in *inlet, request uint64) protocol.Counted {
	var s Status
	r.side.count(r, &s)
	return protocol.Counted{
		Partition: r.id, Stream: in.stream, Request: request, Ready: s.Ready, Unsettled: s.Unsettled, Consumers: s.Consumers,
	}
}

func (r *replica) stats(m protocol.Stats) {
	if in := r.inlet(&m.To); in != nil {
		in.reply.Send(r.counted(in, m.Request))
	}
}

// close stops admission ahead of a deletion.
func (r *replica) close(m protocol.Close) {
	in := r.inlet(&m.To)
	if in == nil || r.stopping() {
		return // as for subscribe
	}
	answer := r.counted(in, m.Request)
	switch e := r.ending; {
	case e != nil && e.closedBy == in && e.request == m.Request: // asked again: the answer was lost with its stream
	case r.closing() != "":
		answer.Refused = r.closing()
	case m.IfUnused && answer.Consumers > 0:
		answer.Refused = "in use"
	case m.IfEmpty && (answer.Ready+answer.Unsettled > 0 || r.staged > 0):
		answer.Refused = "not empty"
	default:
		r.ending = &ending{closing: "about to be deleted", closedBy: in, request: m.Request}
	}
	in.reply.Send(answer)
}

// askDelete closes admission and asks the catalog to delete the resource.
func (r *replica) askDelete(reason string) {
	if r.m.env.Resources == nil || r.closing() != "" {
		return
	}
	r.ending = &ending{closing: "about to be deleted: " + reason}
	box := r.box
	r.m.env.Resources.DeleteResource(r.res.Incarnation, r.copy.Epoch(), reason, func(err error) {
		if err != nil {
			box.Post(reopen{err})
		}
	})
}

// reopen undoes close for the gateway that asked for it.
func (r *replica) reopen(m protocol.Reopen) {
	if in := r.inlet(&m.To); in != nil && r.ending != nil && r.ending.closedBy == in {
		r.reopened(nil)
	}
}

// reopened undoes close: the resource was not deleted.
func (r *replica) reopened(err error) {
	if r.stopping() {
		return
	}
	if err != nil {
		trace.Warn(r.m.env.Trace, "replica.delete.refused", r.attr(), slog.String("reason", err.Error()))
	}
	if q, ok := r.side.(*queueSide); ok && err != nil {
		q.askAt = r.now() + askDeleteEvery
	}
	r.ending = nil
	r.admitHeld()
}

// deadLettered ends a dead letter, or has it asked for again later.
func (r *replica) deadLettered(m protocol.DeadLettered) {
	q, ok := r.side.(*queueSide)
	if !ok || r.phase != serving {
		return // a later owner asks again with the same number
	}
	if m.Kept != "" {
		q.m.DeadKept(m.Number, m.Kept, r.now())
		return
	}
	q.m.DeadSettled(m.Number)
}
