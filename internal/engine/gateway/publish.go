package gateway

import (
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/value"
)

// headers stands between a message's Headers and the router, to know whether they were asked for.
type headers struct {
	from  func() value.Table
	asked bool
	call  func() value.Table // get, made once
}

func (h *headers) get() value.Table {
	h.asked = true
	if h.from == nil {
		return nil
	}
	return h.from()
}

// Publish implements broker.Session.
func (x *session) Publish(tag broker.Tag, m *broker.Message) *broker.Error {
	if err := x.usable(); err != nil {
		return err
	}
	s := x.sh
	size := envelopeSize(m)
	if size > s.limits.MessageSize {
		return broker.Errorf(broker.TooLarge, "message of %d bytes is larger than the limit of %d", size, s.limits.MessageSize)
	}
	if len(m.Exchange) > 255 || len(m.RoutingKey) > 255 {
		return broker.Errorf(broker.Precondition, "exchange and routing key must be at most 255 bytes")
	}
	targets, err := x.targets(m)
	switch {
	case x.behind(tag.Channel):
		x.park(tag, m, size)
		return nil
	case x.missed && s.doubts() && s.lookups.lost == nil:
		x.park(tag, m, size)
		return nil
	case x.missed && s.doubts():
		s.askSoon()
		if len(targets) == 0 {
			x.refuse(tag, m, s.lookups.lost)
			return nil
		}
	}
	if err != nil {
		return err
	}
	x.take(tag, m, size, targets)
	return nil
}

// take gives a message to the partitions that it goes to.
func (x *session) take(tag broker.Tag, m *broker.Message, size int, targets []*attachment) {
	x.counts()
	switch len(targets) {
	case 0:
		x.unroutable(tag, m)
	case 1:
		targets[0].add(m, size, entry{session: x, tag: tag})
	default:
		x.sh.fanOut(targets, m, size, &group{session: x, tag: tag})
	}
	x.hold(targets)
}

// counts notes that the session has published.
func (x *session) counts() {
	x.sh.stats.Published++
	x.published++
	if !x.publishes {
		x.publishes = true
		x.touch()
	}
}

// unroutable ends a message that no resource takes: that it is gone is what was asked for, unless it is mandatory.
func (x *session) unroutable(tag broker.Tag, m *broker.Message) {
	if m.Mandatory {
		x.returns(tag, m, "NO_ROUTE")
	}
	x.resolved(tag, broker.Confirmed, "")
}

func (x *session) returns(tag broker.Tag, m *broker.Message, reason string) {
	x.sh.stats.Returned++
	if !x.closed {
		x.l.Returned(tag, m, reason)
	}
}

// fanOut appends one message to several partitions; g ends when all of them have answered.
func (s *Shard) fanOut(targets []*attachment, m *broker.Message, size int, g *group) {
	g.left = len(targets)
	rec := targets[0].add(m, size, entry{group: g})
	for _, a := range targets[1:] {
		a.addRecord(m, rec, entry{group: g})
	}
}

// hold stops the session's reading while too much of what was published is not resolved.
func (x *session) hold(targets []*attachment) {
	s := x.sh
	for _, a := range targets {
		if a.out.bytes > s.limits.PartitionBytes {
			a.stop(x)
		}
	}
	if s.bytes > s.publishBytes {
		for _, y := range s.stopped {
			if x == y {
				return
			}
		}
		s.stopped = append(s.stopped, x)
		x.stop()
	}
}

// targets routes a message, and sets missed where something was not found: a resource, the exchange, or a binding before its alternate
// exchange was used. The slice is valid until the next call.
func (x *session) targets(m *broker.Message) ([]*attachment, *broker.Error) {
	s := x.sh
	if len(m.CC) == 0 {
		if k := x.memos.find(s.topology, m); k != nil && alive(k.targets) {
			x.missed = k.missed
			return k.targets, nil
		}
	}
	x.missed = false
	if err := x.mayWrite(m.Exchange); err != nil {
		return nil, err
	}
	x.headers.from, x.headers.asked = m.Headers, false
	found, err := s.router.Route(x.vhost, m.Exchange, m.RoutingKey, m.CC, x.headers.call)
	x.headers.from = nil
	x.missed = err != nil || len(found) == 0 || s.router.Missed()
	if err != nil {
		return nil, broker.Errorf(broker.NotFound, "%s", err)
	}
	to := &x.routed
	if !x.headers.asked && len(m.CC) == 0 {
		k := x.memos.place(s.topology, m)
		k.missed, to = x.missed, &k.targets
	}
	*to = (*to)[:0]
	for _, r := range found {
		*to = append(*to, s.attach(r, partition(r)))
	}
	return *to, nil
}

// alive reports whether none of the attachments was left meanwhile.
func alive(as []*attachment) bool {
	for _, a := range as {
		if a.gone {
			return false
		}
	}
	return true
}
