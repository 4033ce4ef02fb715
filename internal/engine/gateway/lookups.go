package gateway

import (
	"slices"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// What this node's catalog does not have may have been made on another node a moment ago. So a lookup that misses is made again once this
// node has applied everything that the catalog's leader knew of when it was asked, and only then believed (design 2 §12).

// lookups are those that wait for the leader's word: one question at a time, for all that came since the last.
type lookups struct {
	asking  bool
	waiting []func(error)
}

// current calls then once this shard has applied everything that was committed before the call, or with why that is not known.
func (s *Shard) current(then func(error)) {
	s.lookups.waiting = append(s.lookups.waiting, then)
	if !s.lookups.asking {
		s.askLeader()
	}
}

func (s *Shard) askLeader() {
	l := &s.lookups
	group := l.waiting
	l.asking, l.waiting = true, nil
	s.env.Barrier(func(err error) {
		s.post(func() {
			l.asking = false
			for _, f := range group {
				f(err)
			}
			if len(l.waiting) > 0 && !l.asking {
				s.askLeader()
			}
		})
	})
}

// sure looks for something, again where it is not there at first, and then calls then, unless the session was closed meanwhile.
func (x *session) sure(look func() *broker.Error, then func(*broker.Error)) {
	err := look()
	if err == nil || err.Code != broker.NotFound || x.sh.env.Barrier == nil {
		then(err)
		return
	}
	x.sh.current(func(failed error) {
		switch {
		case x.closed:
		case failed != nil:
			then(broker.Errorf(broker.Unavailable, "%s on this node, and the catalog's leader could not be asked whether it is on another: %v",
				err.Text, failed))
		default:
			then(look())
		}
	})
}

// find is sure for a queue or stream; look is one of resource, readable and the like.
func (x *session) find(name string, look func(string) (*catalog.Resource, *broker.Error), then func(*catalog.Resource, *broker.Error)) {
	var r *catalog.Resource
	x.sure(func() (err *broker.Error) {
		r, err = look(name)
		return err
	}, func(err *broker.Error) { then(r, err) })
}

// parked is a publish whose queue is not known here.
type parked struct {
	tag broker.Tag
	m   *broker.Message
}

// parks reports whether a publish must wait for the leader's word: it names a queue that is not known here, or waits behind one that does.
// Only a name is sure to be missing if it is; an exchange that routes a message nowhere does so by what this node knows.
func (x *session) parks(m *broker.Message, routed bool) bool {
	if m.Exchange != "" || len(m.CC) > 0 {
		return false
	}
	if routed {
		return slices.ContainsFunc(x.parked, func(p parked) bool { return p.m.RoutingKey == m.RoutingKey })
	}
	return x.sh.others && x.sh.env.Barrier != nil
}

// park keeps a copy of a publish, and holds the session, until this node has caught up with the catalog's leader.
func (x *session) park(tag broker.Tag, m *broker.Message) {
	kept := *m
	kept.Properties = slices.Clone(m.Properties)
	kept.Body = [][]byte{slices.Concat(m.Body...)}
	kept.Headers = nil // a name is routed without
	x.parked = append(x.parked, parked{tag, &kept})
	if len(x.parked) > 1 {
		return // the first asks again for what comes behind it
	}
	x.stop()
	x.unparkLater()
}

func (x *session) unparkLater() {
	n := len(x.parked)
	x.sh.current(func(failed error) {
		if x.closed {
			return
		}
		all := x.parked
		x.parked = nil
		for _, p := range all[:n] {
			x.unpark(p, failed)
		}
		if x.parked = all[n:]; len(x.parked) > 0 {
			x.unparkLater()
			return
		}
		x.parked = nil
		x.goOn()
	})
}

func (x *session) unpark(p parked, failed error) {
	targets, err := x.targets(p.m)
	switch {
	case err != nil:
		x.resolved(p.tag, broker.Refused, err.Text)
	case len(targets) == 0 && failed != nil:
		x.resolved(p.tag, broker.Refused, "there is no such queue on this node, and the catalog's leader could not be asked: "+failed.Error())
	case len(targets) == 0:
		x.unroutable(p.tag, p.m)
	default:
		targets[0].add(p.m, envelopeSize(p.m), entry{session: x, tag: p.tag})
		x.hold(targets)
	}
}
