package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// Messages that a shard posts to itself.
type (
	applied  []catalog.Change
	serving  ident.Partition
	blocking string
	shutdown string
	call     func()
	tick     struct{}
)

// tickEvery is how often time-outs are looked at while anything is in hand.
const tickEvery = time.Second

// blockedAfter is how long a session is held by a credit that ran out before its client is told.
const blockedAfter = time.Second

// requestTimeout bounds how long a client waits for an owner that is not there.
const requestTimeout = 30 * time.Second

// deletionTimeout is the same for a deletion while no owner is there. A change of owner that goes well takes less.
const deletionTimeout = 10 * time.Second

// post has f called on the shard's loop.
func (s *Shard) post(f func()) { s.box.Post(call(f)) }

// Receive implements exec.Actor.
func (s *Shard) Receive(msg any) {
	s.look()
	if m, ok := msg.(protocol.Published); ok { // most of what comes
		if a := s.byPartition[m.Partition]; a != nil && a.stream == m.Stream {
			a.published(m)
		}
		return
	}
	switch m := msg.(type) {
	case call:
		m()
	case applied:
		s.apply(m)
	case serving:
		if a := s.byPartition[ident.Partition(m)]; a != nil && a.state == waiting {
			a.again()
		}
	case retry:
		if m.a.state == waiting && m.a.attempt == m.attempt && !m.a.gone {
			m.a.connect()
		}
	case tick:
		s.ticking = false
		s.tick()
	case askAgain:
		s.askAgain()
	case paced:
		s.goOnSending()
	case blocking:
		s.block(string(m))
	case peerUp:
		s.peerUp(string(m))
	case peerDown:
		s.peerDown(string(m))
	case shutdown:
		s.closeSessions(func(*session) bool { return true }, broker.Errorf(broker.Unavailable, "%s", string(m)))
	case protocol.DeadLetter:
		s.courier.receive(m)
	default:
		if n := deliveredBytes(msg); n > 0 {
			s.coming.Add(-n)
			s.looked = false // it may have stood still in the midst of the round
			s.look()
		}
		if p, stream, ok := place(msg); ok {
			if a := s.byPartition[p]; a != nil && a.stream == stream && a.state != waiting {
				a.receive(msg)
			} else if c := s.near[stream]; c != nil {
				c.receiveNear(msg)
			}
		}
	}
}

// Flush implements exec.Actor: what was gathered in the round is sent.
func (s *Shard) Flush() {
	s.looked = false
	s.look()
	for i := 0; i < len(s.pumps); i++ {
		c := s.pumps[i]
		c.pumping = false
		if c.state == running {
			c.pump()
			c.pay()
		}
	}
	clear(s.pumps)
	s.pumps = s.pumps[:0]
	if s.lookups.soon {
		s.askAgain()
	}
	s.sendProposals()
	if s.removed {
		s.removed = false
		s.attachments = slices.DeleteFunc(s.attachments, func(a *attachment) bool { return a.gone })
	}
	for i := 0; i < len(s.dirty); i++ {
		s.dirty[i].flush()
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
	for i := 0; i < len(s.dirtySessions); i++ {
		s.dirtySessions[i].flush()
	}
	clear(s.dirtySessions)
	s.dirtySessions = s.dirtySessions[:0]
	s.looked = false
}

// look reads the clock, once until the next Flush: nothing that is timed here is shorter than a round.
func (s *Shard) look() {
	if s.looked {
		return
	}
	s.looked, s.now = true, s.env.Clock.Mono()
	if s.env.Pulse == nil {
		return
	}
	if halts := s.env.Pulse.Halts(s.now); halts != s.halts {
		s.halts = halts
		s.stoodStill()
	}
}

// watch keeps the timer going while something may time out.
func (s *Shard) watch() {
	if !s.ticking {
		s.ticking = true
		s.box.After(tickEvery, tick{})
	}
}

func (s *Shard) tick() {
	more := false
	for _, x := range s.sessions {
		more = x.lasts() || more
	}
	for _, a := range slices.Clone(s.attachments) {
		if a.gone {
			continue
		}
		a.expire(s.limits.ConfirmTimeout)
		a.expireRequests()
		a.expireHome()
		more = a.expireStarting() || more
		more = a.comeNear() || more
		if a.state == attaching && s.now-a.since > attachTimeout {
			a.again()
		}
		if a.busy() {
			a.idle = false
			more = more || !a.out.empty() || len(a.requests) > 0 || a.state != open
			continue
		}
		if a.idle {
			a.leave()
			continue
		}
		a.idle, more = true, true
	}
	if more {
		s.watch()
	}
}

// expireRequests answers those that have waited too long. What they asked may still happen; a deletion's Close is undone.
func (a *attachment) expireRequests() {
	for _, r := range a.requests {
		limit := a.patience(r)
		if r.late || a.sh.now-r.born < limit {
			continue
		}
		r.late = true
		done := r.done
		r.done = func(c protocol.Counted, g protocol.GetDone, err *broker.Error) { a.late(r, c, g, err) }
		done(protocol.Counted{}, protocol.GetDone{}, broker.Errorf(broker.Unavailable, "%s", a.unanswered(r, limit)))
	}
}

// patience is how long the owner's answer is waited for: less for a deletion while there is no owner at all, since that may never change.
func (a *attachment) patience(r *request) time.Duration {
	if _, closes := r.what.(protocol.Close); closes && a.state != open {
		return deletionTimeout
	}
	return requestTimeout
}

// unanswered says that the owner did not answer, and what an operator can do where a resource that should go has none.
func (a *attachment) unanswered(r *request, limit time.Duration) string {
	text := fmt.Sprintf("queue '%s' in vhost '%s': its owner did not answer within %s", a.res.Name, a.res.VHost, limit)
	if _, closes := r.what.(protocol.Close); !closes || a.state == open || a.res.Home != nil {
		return text
	}
	text = fmt.Sprintf("queue '%s' in vhost '%s' has had no owner for %s, who has to close it before it is deleted", a.res.Name, a.res.VHost, limit)
	return text + "; if the copies that it waits for never return, an operator can delete it: tanist plan delete"
}

// late takes an answer that nobody waits for any more, so that nothing is left behind at the owner.
func (a *attachment) late(r *request, c protocol.Counted, g protocol.GetDone, err *broker.Error) {
	switch q := r.what.(type) {
	case protocol.Close:
		if err == nil && c.Refused == "" {
			a.reopen()
		}
	case protocol.Get:
		if err == nil && g.OK && !q.NoAck {
			a.settles.add(0, g.Item.Offset, protocol.Release)
			a.touch()
		}
	}
}

// expireStarting ends consumers that no owner has taken for as long as a client waits for any answer of one: it may never come, and a client that
// waits for its basic.consume does nothing else. It reports whether any may time out later.
func (a *attachment) expireStarting() bool {
	waits := false
	for _, c := range slices.Clone(a.consumers) {
		done := c.started
		if c.state != subscribing || done == nil {
			continue
		}
		if a.sh.now-c.asked < requestTimeout {
			waits = true
			continue
		}
		c.leave()
		c.session.forget(c)
		done(broker.Errorf(broker.Unavailable, "queue '%s' in vhost '%s': its owner did not take the consumer within %s", a.res.Name, a.res.VHost, requestTimeout))
	}
	return waits
}

// remove takes an attachment off the lists; the ordered one is cleaned up at the next Flush, for many may go at once.
func (s *Shard) remove(a *attachment) {
	if s.byPartition[a.p] == a {
		delete(s.byPartition, a.p)
		s.env.Node.detach(a.p, s.env.Shard)
	}
	s.removed = true
	s.box.Touch()
}

// Apply takes changes of the catalog, in order; the first call carries the whole catalog. Any goroutine may call it.
func (s *Shard) Apply(changes []catalog.Change) { s.box.Post(applied(changes)) }

// Serving says that the owner of a partition may be reached now: a shard that waits for it tries at once. Any goroutine may call it.
func (s *Shard) Serving(p ident.Partition) { s.box.Post(serving(p)) }

// SetBlocked holds publishes while reason is not empty; settles go on. Any goroutine may call it.
func (s *Shard) SetBlocked(reason string) { s.box.Post(blocking(reason)) }

// Shutdown tells every session to close. Any goroutine may call it.
func (s *Shard) Shutdown(reason string) { s.box.Post(shutdown(reason)) }

// Send implements protocol.Sender: answers of owners and dead letters of the replicas beside the shard. Any goroutine may call it.
func (s *Shard) Send(msg any) {
	if n := deliveredBytes(msg); n > 0 {
		s.coming.Add(n)
	}
	s.box.Post(msg)
}

// Crowded implements protocol.Crowder: an owner on this node sends no more before the shard has seen whether its clients take it.
func (s *Shard) Crowded() bool { return s.coming.Load() >= crowdBytes }

func (s *Shard) apply(changes []catalog.Change) {
	s.topology++
	var ours []*catalog.Resource
	for i := range changes {
		if r, ok := changes[i].After.(*catalog.Resource); ok && s.view.Incarnation(r.Incarnation) == nil {
			s.resources++ // one that the catalog adopts was counted when it was made
			if s.ours(r) {
				ours = append(ours, r)
			}
		}
	}
	s.view.Apply(changes)
	s.router.Apply(changes)
	for _, r := range ours {
		s.own(r)
	}
	for i := range changes {
		if after, ok := changes[i].After.(*catalog.Resource); ok {
			before, _ := changes[i].Before.(*catalog.Resource)
			s.disclaim(before, after)
		}
		if n, ok := changes[i].After.(*catalog.Node); ok && n.Name != s.env.Local.Node && !s.others {
			s.joined()
		}
		switch before := changes[i].Before.(type) {
		case *catalog.Resource:
			after, _ := changes[i].After.(*catalog.Resource)
			if after == nil {
				delete(s.adopted, before.Incarnation)
				s.resources--
				s.disown(before)
			}
			s.resourceChanged(before, after)
		case *catalog.VHost:
			if changes[i].After == nil {
				s.closeSessions(func(x *session) bool { return x.vhost == before.Name },
					broker.Errorf(broker.Unavailable, "vhost '%s' was deleted", before.Name))
			}
		case *catalog.User:
			if changes[i].After == nil {
				s.closeSessions(func(x *session) bool { return x.user == before.Name },
					broker.Errorf(broker.Unavailable, "user '%s' was deleted", before.Name))
			}
		}
	}
	s.sayUnclaimed()
}

func (s *Shard) resourceChanged(before, after *catalog.Resource) {
	for i, old := range before.Partitions {
		a := s.byPartition[old.Partition]
		if a == nil {
			continue
		}
		if after == nil || after.Incarnation != before.Incarnation || i >= len(after.Partitions) {
			a.drop("queue '" + before.Name + "' in vhost '" + before.VHost + "' was deleted")
			continue
		}
		a.res = after
		now := after.Partitions[i]
		if now.Owner != old.Owner || now.Epoch != old.Epoch {
			a.again()
		}
		if after.Kind == catalog.Stream && len(a.consumers) > 0 {
			s.watch() // a copy here may follow now
		}
	}
}

// ours reports whether a resource is exclusive to a session of this shard, one that has ended perhaps.
func (s *Shard) ours(r *catalog.Resource) bool {
	h := r.Home
	return r.Exclusive && h != nil && h.Node == s.env.Local.Node && h.Boot == s.env.Local.Boot && h.Session>>sessionShift == uint64(s.env.Shard)+1
}

// session is the one of a number; nil if it has ended.
func (s *Shard) session(id uint64) *session {
	if i := slices.IndexFunc(s.sessions, func(x *session) bool { return x.id == id }); i >= 0 {
		return s.sessions[i]
	}
	return nil
}

// own gives a resource that has come to be to the session that it is exclusive to. The catalog says so, not the answer to who declared it: that
// may be lost, or come after the session has ended, and then nobody else could use the resource, nor would it go with anything.
func (s *Shard) own(r *catalog.Resource) {
	if x := s.session(r.Home.Session); x != nil {
		x.exclusive = append(x.exclusive, r)
		return
	}
	s.end(r)
}

// disown takes a resource that was deleted from the session that it was exclusive to.
func (s *Shard) disown(r *catalog.Resource) {
	if !s.ours(r) {
		return
	}
	if x := s.session(r.Home.Session); x != nil {
		x.exclusive = slices.DeleteFunc(x.exclusive, func(o *catalog.Resource) bool { return o.Incarnation == r.Incarnation })
	}
}

// closeSessions asks the fronts to end sessions that are logged in.
func (s *Shard) closeSessions(which func(*session) bool, err *broker.Error) {
	for _, x := range slices.Clone(s.sessions) {
		if !x.closed && which(x) {
			x.l.Close(err)
		}
	}
}

// block holds what is published from now on, or lets it go.
func (s *Shard) block(reason string) {
	if s.blocked == reason {
		return
	}
	s.blocked = reason
	for _, x := range s.sessions {
		if x.publishes {
			x.touch()
		}
	}
	if reason != "" {
		return
	}
	for _, a := range s.attachments {
		for _, b := range a.out.blocks {
			b.born = s.now // waiting on purpose does not count against the confirm timeout
		}
		a.touch()
	}
}
