package gateway

import (
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/value"
)

// What this node's catalog does not have may have been made on another node a moment ago. So a lookup that misses is made again once this
// node has applied everything that the catalog's leader knew of when it was asked, and only then believed (design 2 §12). A publish that
// finds no resource, no exchange, or only an alternate exchange, is such a lookup: it is parked until then, and what must not pass it with it.
//
// Publishes that nobody wants are common (an exchange without bindings, say), so what they cost is bounded. All that a shard's sessions have
// parked shares one question, one is open at a time, and a question that found nothing is followed by a pause, which doubles up to
// askPauseMost. A session parks up to parkMost bytes before it is held. Once a question had no answer, publishes are not parked: they are
// refused at once, and a question stays open to learn when the leader is back.

const (
	askPauseLeast = 500 * time.Microsecond
	askPauseMost  = 4 * time.Millisecond
	parkMost      = 1 << 20 // bytes that a session has parked before it is held; one message may pass it
	parkedCost    = 256     // bytes of memory that a parked message is counted with beside its own
)

// lookups are those that wait for the leader's word: one question at a time, for all that came since the last.
type lookups struct {
	asking  bool
	asked   uint64 // questions so far
	waiting []func(error)
	patient []func(error) // that wait for a pause too
	parking []*session    // that have publishes parked, in the order they began to
	lost    error         // why the last question had no answer; nil: it had one
	last    time.Duration // when the last was asked
	pause   time.Duration // between two that only publishes ask for
	paused  bool          // askAgain was posted for its end
	soon    bool          // the next Flush asks
	found   bool          // the last answer has brought something that was looked for
	vain    bool          // something was not there even then
}

// askAgain is posted at the end of a pause.
type askAgain struct{}

// doubts reports whether other nodes may have made what is not known here.
func (s *Shard) doubts() bool { return s.others && s.env.Barrier != nil }

// current calls then once this shard has applied everything that was committed before the call, or with why that is not known.
func (s *Shard) current(then func(error)) {
	s.lookups.waiting = append(s.lookups.waiting, then)
	if !s.lookups.asking {
		s.askLeader()
	}
}

// currentSoon is current for what may come often and in vain. then says how it went by looked.
func (s *Shard) currentSoon(then func(error)) {
	s.lookups.patient = append(s.lookups.patient, then)
	s.askSoon()
}

func (s *Shard) askLeader() {
	s.look()
	l := &s.lookups
	group := slices.Concat(l.waiting, l.patient)
	l.asking, l.waiting, l.patient, l.last = true, nil, nil, s.now
	l.asked++
	s.env.Barrier(func(err error) { s.post(func() { s.answered(group, err) }) })
}

func (s *Shard) answered(group []func(error), err error) {
	l := &s.lookups
	l.asking, l.lost, l.found, l.vain = false, err, false, false
	for _, f := range group {
		f(err)
	}
	s.release(err)
	switch {
	case l.found:
		l.pause = 0
	case l.vain:
		l.pause = min(max(2*l.pause, askPauseLeast), askPauseMost)
	}
	switch {
	case l.asking:
	case len(l.waiting) > 0:
		s.askLeader()
	case len(l.parking)+len(l.patient) > 0:
		s.askSoon()
	}
}

// looked notes whether a look after an answer missed again.
func (l *lookups) looked(missed bool) { l.found, l.vain = l.found || !missed, l.vain || missed }

// askSoon asks on behalf of the round's publishes: at its end, or after a pause where the last such questions were in vain.
func (s *Shard) askSoon() {
	s.look()
	l := &s.lookups
	if l.asking || l.paused || l.soon {
		return
	}
	if wait := l.last + l.pause - s.now; wait > 0 {
		l.paused = true
		s.box.After(wait, askAgain{})
		return
	}
	l.soon = true
	s.box.Touch()
}

func (s *Shard) askAgain() {
	l := &s.lookups
	l.paused, l.soon = false, false
	if !l.asking && (len(l.parking)+len(l.patient) > 0 || l.lost != nil) {
		s.askLeader()
	}
}

// release goes on with what was parked for the question that was answered, or had no answer.
func (s *Shard) release(failed error) {
	l := &s.lookups
	if len(l.parking) == 0 {
		return
	}
	parking, answered := l.parking, l.asked
	l.parking = nil
	for _, x := range parking {
		x.release(answered, failed)
		if len(x.parked) > 0 {
			l.parking = append(l.parking, x)
		}
	}
	s.relieve()
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

// parked is something that a session does later: a publish that found nothing here, or what must not pass one.
type parked struct {
	tag      broker.Tag
	m        *broker.Message // nil: do is set
	size     int
	question uint64 // whose answer a publish waits for; 0: it only waits for what is before it
	do       func()
}

// behind reports whether a publish of the channel is parked, which a later one must not pass.
func (x *session) behind(channel uint16) bool {
	return len(x.parked) > 0 && slices.ContainsFunc(x.parkedOn, func(n uint16) bool { return n == channel })
}

// waits reports whether something has to wait for the publishes before it, and then does it later.
func (x *session) waits(do func()) bool {
	if len(x.parked) == 0 || x.releasing {
		return false
	}
	x.parked = append(x.parked, parked{do: do})
	return true
}

// park keeps a copy of a publish until this node has caught up with the catalog's leader, or where it found its way, until what is before
// it is done.
func (x *session) park(tag broker.Tag, m *broker.Message, size int) {
	s := x.sh
	kept := *m
	kept.Properties, kept.CC = slices.Clone(m.Properties), slices.Clone(m.CC)
	kept.Body = [][]byte{slices.Concat(m.Body...)}
	if m.Headers != nil {
		table := m.Headers() // it reads what is gone later
		kept.Headers = func() value.Table { return table }
	}
	if len(x.parked) == 0 {
		s.lookups.parking = append(s.lookups.parking, x)
	}
	p := parked{tag: tag, m: &kept, size: size}
	if x.missed {
		p.question = s.lookups.asked + 1 // the open one may have been asked before what is looked for was made
		s.askSoon()
	}
	x.parked = append(x.parked, p)
	if !slices.Contains(x.parkedOn, tag.Channel) {
		x.parkedOn = append(x.parkedOn, tag.Channel)
	}
	x.parks(size + parkedCost)
	if x.parkedBytes > parkMost && !x.parkFull {
		x.parkFull = true
		x.stop()
	}
	x.hold(nil)
}

func (x *session) parks(bytes int) {
	x.parkedBytes += int64(bytes)
	x.sh.bytes += int64(bytes)
}

// release goes on, in order, with what waits for no question after the one that was answered; if that failed, with everything.
func (x *session) release(answered uint64, failed error) {
	x.releasing = true
	for len(x.parked) > 0 && (failed != nil || x.parked[0].question <= answered) {
		p := x.parked[0]
		if p.do != nil {
			x.parked = slices.Delete(x.parked, 0, 1)
			if !x.closed {
				p.do()
			}
			continue
		}
		targets, err := x.targets(p.m)
		if x.missed && p.question == 0 && failed == nil {
			x.parked[0].question = x.sh.lookups.asked + 1 // it has lost its way meanwhile
			break
		}
		x.parked = x.parked[1:]
		x.parks(-p.size - parkedCost)
		if p.question > 0 {
			x.sh.lookups.looked(x.missed)
		}
		x.unpark(&p, targets, err, failed)
	}
	x.releasing = false
	if len(x.parked) == 0 {
		x.parked, x.parkedOn = nil, x.parkedOn[:0]
		if x.parkFull {
			x.parkFull = false
			x.goOn()
		}
	}
}

func (x *session) unpark(p *parked, targets []*attachment, err *broker.Error, failed error) {
	switch {
	case failed != nil && x.missed && len(targets) == 0:
		x.refuse(p.tag, p.m, failed)
	case err == nil:
		x.take(p.tag, p.m, p.size, targets)
	default:
		x.parked = slices.DeleteFunc(x.parked, func(q parked) bool { // what comes after the end of a channel is not heard
			gone := q.m != nil && q.tag.Channel == p.tag.Channel && q.tag.Opened == p.tag.Opened
			if gone {
				x.parks(-q.size - parkedCost)
			}
			return gone
		})
		if !x.closed {
			x.l.Rejected(p.tag, err)
		}
	}
}

// refuse ends a publish that finds nothing here while the catalog's leader cannot be asked. Who did not ask for an outcome gets it back, if
// it is mandatory.
func (x *session) refuse(tag broker.Tag, m *broker.Message, failed error) {
	reason := "nothing on this node takes it, and the catalog's leader could not be asked: " + failed.Error()
	x.counts()
	if m.Mandatory && tag.Seq == 0 {
		x.returns(tag, m, reason)
	}
	x.resolved(tag, broker.Refused, reason)
}
