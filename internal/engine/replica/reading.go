package replica

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
)

const (
	// lagLimit is how long, in milliseconds, a copy may be behind the confirmed position that it knows of, and its owner silent when asked,
	// before those who read here are sent to the owner.
	lagLimit = 5000
	// lagRecords is how far behind a reader's start a copy may be to take it.
	lagRecords = 1 << 16
)

// reading is what a copy that follows does for gateways of its node: they read a stream here, up to the position that this copy knows to
// be confirmed (design 5). Where they begin, and all that changes anything, is their owner's to say.
type reading struct {
	inlets []*inlet
	goal   uint64 // position that the copy has to come to
	since  int64  // monotonic time in ms, as all here, when goal was set
	heard  int64  // when the owner was heard last
	asked  int64  // when it was asked for a sign; 0: it was not, or has given one
}

// readHere begins a reading stream, or says why the gateway must read elsewhere.
func (r *replica) readHere(m protocol.Read) {
	if why := r.unreadable(&m); why != "" {
		m.Reply.Send(protocol.NotServing{Partition: r.id, Stream: m.Stream, Reason: why})
		return
	}
	now := r.mono()
	if r.local == nil {
		r.local = &reading{goal: r.known, since: now, heard: now}
	}
	r.gateways++
	in := &inlet{gateway: m.Gateway, stream: m.Stream, number: r.gateways, reply: m.Reply}
	r.local.inlets = append(r.local.inlets, in)
	r.side.(*streamSide).m.Subscribe(stream.Holder{Gateway: in.number, Consumer: m.Consumer}, m.Offset, m.Credit)
	r.touch()
}

func (r *replica) unreadable(m *protocol.Read) string {
	s, ok := r.side.(*streamSide)
	switch {
	case r.phase != warm || r.copy.Role() != partition.Follower || r.former != nil || r.stopping():
		return "this copy does not follow, or not yet"
	case !ok:
		return "a queue is read from its owner"
	case r.m.gone(m.Gateway):
		return "this run of the gateway's node is over"
	case m.Offset > r.applied.Offset+lagRecords:
		return fmt.Sprintf("this copy has only come to offset %d", r.applied.Offset)
	case m.Offset < s.bounds(r).Head:
		return fmt.Sprintf("this copy holds nothing before offset %d", s.bounds(r).Head)
	}
	return ""
}

// localInlet is the reading stream that a message came on.
func (r *replica) localInlet(to *protocol.To) *inlet {
	if r.local == nil {
		return nil
	}
	for _, in := range r.local.inlets {
		if in.stream == to.Stream && in.gateway == to.Gateway {
			return in
		}
	}
	return nil
}

func (r *replica) unread(m protocol.Unread) {
	in := r.localInlet(&m.To)
	if in == nil {
		return
	}
	in.dead = true
	r.side.(*streamSide).m.ReleaseGateway(in.number)
	l := r.local
	l.inlets = slices.DeleteFunc(l.inlets, func(o *inlet) bool { return o == in })
	if len(l.inlets) == 0 {
		r.local = nil
		r.trim()
	}
}

// endReading sends all readers elsewhere. What they were sent is theirs; they go on behind it.
func (r *replica) endReading(reason string) {
	l := r.local
	if l == nil {
		return
	}
	r.local = nil
	for _, in := range l.inlets {
		in.dead = true
		in.reply.Send(protocol.NotServing{Partition: r.id, Stream: in.stream, Reason: reason})
		if s, ok := r.side.(*streamSide); ok {
			s.m.ReleaseGateway(in.number)
		}
	}
}

// flushReading sends readers what they have credit for, and looks after how far behind this copy is.
func (r *replica) flushReading(stirred bool) {
	now := r.mono()
	if why := r.lag(now); why != "" {
		r.endReading(why)
		return
	}
	if stirred {
		r.side.(*streamSide).serve(r)
	}
}

// lag says why nobody should read here any more; "" where all is well. A copy cannot see how far its owner is ahead when it hears nothing.
// So after a while of silence it says where it stands, as it does when the way to the owner opens, and an owner that feeds it answers with
// the confirmed position. Without a way to the owner there is nothing better to read.
func (r *replica) lag(now int64) string {
	l := r.local
	switch {
	case r.applied.Position >= l.goal:
		l.goal, l.since = r.known, now
	case now-l.since > lagLimit:
		return fmt.Sprintf("this copy is more than %d s behind", lagLimit/1000)
	}
	switch owner, up := r.m.peer(r.want.Owner.Node); {
	case !up || owner != r.want.Owner || !r.follows():
		l.heard, l.asked = now, 0
	case l.asked == 0 && now-l.heard >= lagLimit:
		l.asked = now
		r.sayStanding()
	case l.asked != 0 && now-l.asked >= lagLimit:
		return "the owner does not feed this copy"
	}
	return ""
}

// lagAt is the monotonic time in ms when lag has something new to say.
func (l *reading) lagAt() int64 {
	if l.asked != 0 {
		return l.asked + lagLimit
	}
	return l.heard + lagLimit
}
