package gateway

import (
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/protocol"
)

// request is one question to an owner that is asked again on every new stream until it is answered.
type request struct {
	id   uint64
	born time.Duration
	late bool // answered by a time-out
	// after is the index of the first record published later. A question waits until what was published before it has its outcome,
	// so that who publishes and then asks finds what was published; and until what was given back is back in its place, which is
	// confirmed by the settle message numbered back.
	after uint64
	back  uint64
	asked bool // on the present stream
	what  any  // protocol.Get, Purge, Stats or Close, without its address
	// done is called once with the answer, or with an error once there cannot be one.
	done func(c protocol.Counted, g protocol.GetDone, err *broker.Error)
}

// request asks the owner.
func (a *attachment) request(what any, done func(protocol.Counted, protocol.GetDone, *broker.Error)) {
	a.sh.requests++
	a.sh.now = a.sh.env.Clock.Mono() // clients call between messages
	r := &request{id: a.sh.requests, born: a.sh.now, after: a.out.tail, back: a.settles.back, what: what, done: done}
	a.requests = append(a.requests, r)
	a.touch()
	a.askReady()
}

// askReady asks, in order, what need not wait any more.
func (a *attachment) askReady() {
	if a.state != open {
		return
	}
	for _, r := range a.requests {
		if r.asked {
			continue
		}
		if a.out.head < min(r.after, a.out.tail) && a.sh.blocked == "" || a.settles.pending(r.back) {
			return
		}
		r.asked = true
		a.ask(r)
	}
}

func (a *attachment) ask(r *request) {
	switch q := r.what.(type) {
	case protocol.Get:
		q.To, q.Request = a.address(), r.id
		a.to.Send(q)
	case protocol.Purge:
		q.To, q.Request = a.address(), r.id
		a.to.Send(q)
	case protocol.Stats:
		q.To, q.Request = a.address(), r.id
		a.to.Send(q)
	case protocol.Close:
		q.To, q.Request = a.address(), r.id
		a.to.Send(q)
	}
}

func (a *attachment) answered(id uint64, c protocol.Counted, g protocol.GetDone) {
	for i, r := range a.requests {
		if r.id == id {
			a.requests = append(a.requests[:i], a.requests[i+1:]...)
			if _, closed := r.what.(protocol.Close); closed && c.Refused == "" {
				a.undo = false
			}
			r.done(c, g, nil)
			return
		}
	}
}
