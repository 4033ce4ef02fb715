package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// session is one client's work. It implements broker.Session.
type session struct {
	sh    *Shard
	l     broker.Listener
	peer  broker.Peer
	id    uint64 // unique among the sessions of this run of the node, not 0
	name  string // for people
	user  string
	vhost string
	// loggedIn is set by Login; counted while the session counts as a connection of its user.
	loggedIn, counted, closed bool

	consumers map[uint64]*consumer
	coming    []uint64    // consumers whose queue is looked for; one that is cancelled meanwhile is taken out
	order     []*consumer // the same, in the order they came
	recent    *consumer   // the one that was settled last
	gets      []*holder   // what was fetched, by partition

	exclusive []*catalog.Resource // goes with the session

	parked      []parked // in order
	parkedOn    []uint16 // channels with some of them, none twice
	parkedBytes int64
	parkFull    bool // and the session is held for it
	releasing   bool // what is parked is being done

	confirmed []broker.Tag
	failed    []failure
	dirty     bool  // on the shard's list for the next Flush
	stops     int   // how many credits hold it
	undrain   int64 // delivered and not left for the client yet
	over      bool  // undrain is too much: no consumer has credit
	since     time.Duration
	short     bool   // it has been held for so long that its client is told
	publishes bool   // has published, and so is told of blocking
	told      string // the reason for blocking that the front was told last
	memos     memos
	routed    []*attachment // where a message goes that is not remembered
	missed    bool          // targets' other result
	headers   headers
	published uint64
	delivered uint64
}

// failure is a publish that was not confirmed.
type failure struct {
	tag     broker.Tag
	outcome broker.Outcome
	reason  string
}

// sessionShift is where a session's number begins to say which shard has it: the bits from there on are the shard's number and 1.
const sessionShift = 40

// Open implements broker.Broker.
func (s *Shard) Open(p broker.Peer, l broker.Listener) broker.Session {
	s.sessionCount++
	x := &session{
		sh: s, l: l, peer: p, id: (uint64(s.env.Shard)+1)<<sessionShift | s.sessionCount, name: p.Address,
		consumers: map[uint64]*consumer{},
	}
	x.headers.call = x.headers.get
	s.sessions = append(s.sessions, x)
	return x
}

// Authenticate implements broker.Session.
func (x *session) Authenticate(user, password string, done func(*broker.Error)) {
	u := x.sh.view.User(user)
	x.verify(u, password, func(ok bool, err *broker.Error) {
		switch {
		case err != nil:
			done(err)
		case !ok || u == nil:
			done(refusedLogin())
		case !authz.FromHere(user, x.peer.Loopback):
			done(broker.Errorf(broker.AuthFailed, "user '%s' can only connect from this machine (loopback)", user))
		default:
			done(nil)
		}
	})
}

// Login implements broker.Session.
func (x *session) Login(user, password, vhost string, done func(*broker.Error)) {
	u := x.sh.view.User(user)
	x.verify(u, password, func(ok bool, err *broker.Error) {
		if err != nil {
			done(err)
			return
		}
		// The user may have been deleted, or given another password, meanwhile.
		if now := x.sh.view.User(user); !ok || u == nil || now == nil || now.Hash != u.Hash {
			done(refusedLogin())
			return
		}
		if err := x.enter(user, vhost); err != nil {
			done(err)
			return
		}
		done(nil)
	})
}

func refusedLogin() *broker.Error {
	return broker.Errorf(broker.AuthFailed, "wrong user name or password")
}

// verify calls done on the loop, unless the session was closed.
func (x *session) verify(u *catalog.User, password string, done func(right bool, err *broker.Error)) {
	x.sh.env.Passwords.Verify(u, password, func(ok bool, err *broker.Error) {
		x.sh.post(func() {
			if !x.closed {
				done(ok, err)
			}
		})
	})
}

// enter opens the virtual host for a user whose password was right.
func (x *session) enter(user, vhost string) *broker.Error {
	s := x.sh
	if !authz.FromHere(user, x.peer.Loopback) {
		return broker.Errorf(broker.AuthFailed, "user '%s' can only connect from this machine (loopback)", user)
	}
	if s.view.VHost(vhost) == nil {
		return broker.Errorf(broker.NotAllowed, "vhost '%s' not found", vhost)
	}
	if !s.rights.Login(user, vhost) {
		return broker.Errorf(broker.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, user)
	}
	if err := s.env.Node.enter(user, &s.limits); err != nil {
		return err
	}
	x.user, x.vhost, x.loggedIn, x.counted = user, vhost, true, true
	x.name = fmt.Sprintf("%s@%s", user, x.peer.Address)
	return nil
}

// ConsumerTimeout implements broker.Session.
func (x *session) ConsumerTimeout(queue string) int64 {
	if r := x.sh.view.Resource(x.vhost, queue); r != nil && r.Queue != nil {
		return r.Queue.ConsumerTimeout
	}
	return 0
}

// SetSecret implements broker.Session.
func (x *session) SetSecret(password string, done func(*broker.Error)) {
	x.verify(x.sh.view.User(x.user), password, func(ok bool, err *broker.Error) {
		if err == nil && !ok {
			err = refusedLogin()
		}
		done(err)
	})
}

// usable says why the session cannot be worked with.
func (x *session) usable() *broker.Error {
	switch {
	case x.closed:
		return broker.Errorf(broker.Unavailable, "the session is closed")
	case !x.loggedIn:
		return broker.Errorf(broker.NotAllowed, "not logged in")
	}
	return nil
}

// resolved takes note of how a publish ended; the front is told at the next Flush.
func (x *session) resolved(tag broker.Tag, o broker.Outcome, reason string) {
	x.sh.stats.count(o)
	if tag.Seq == 0 || x.closed {
		return
	}
	if o == broker.Confirmed {
		x.confirmed = append(x.confirmed, tag)
	} else {
		x.failed = append(x.failed, failure{tag, o, reason})
	}
	x.touch()
}

func (x *session) touch() {
	if !x.dirty {
		x.dirty = true
		x.sh.dirtySessions = append(x.sh.dirtySessions, x)
		x.sh.box.Touch()
	}
}

// flush tells the front what has gathered.
func (x *session) flush() {
	x.dirty = false
	if x.closed {
		return
	}
	if blocked := x.blocked(); x.publishes && x.told != blocked {
		x.told = blocked
		x.l.Blocked(blocked)
	}
	if tags := x.confirmed; len(tags) > 0 {
		x.confirmed = nil
		x.l.Resolved(tags, broker.Confirmed, "")
		if x.confirmed == nil && cap(tags) <= 1<<14 {
			x.confirmed = tags[:0]
		}
	}
	for fs := x.failed; len(fs) > 0; {
		x.failed = nil
		n := 1
		tags := []broker.Tag{fs[0].tag}
		for n < len(fs) && fs[n].outcome == fs[0].outcome && fs[n].reason == fs[0].reason {
			tags = append(tags, fs[n].tag)
			n++
		}
		x.l.Resolved(tags, fs[0].outcome, fs[0].reason)
		fs = fs[n:]
	}
}

// stop and goOn count the credits that hold the session.
func (x *session) stop() {
	if x.stops++; x.stops == 1 && !x.closed {
		x.since = x.sh.env.Clock.Mono() // clients call between messages
		x.sh.watch()
		x.l.Flow(true)
	}
}

func (x *session) goOn() {
	if x.stops--; x.stops > 0 || x.closed {
		return
	}
	if x.short {
		x.short = false
		x.touch()
	}
	x.l.Flow(false)
}

// lasts notes that the session is held for long, and reports whether it is held at all (design 5, "flow control").
func (x *session) lasts() bool {
	if x.stops > 0 && !x.closed && !x.short && x.sh.now-x.since >= blockedAfter {
		x.short = true
		x.touch()
	}
	return x.stops > 0 && !x.closed
}

// blocked is why nothing may be published, if there is a reason that clients are told.
func (x *session) blocked() string {
	if x.sh.blocked == "" && x.short {
		return "the memory for messages that are not confirmed yet is used up"
	}
	return x.sh.blocked
}

// Settle implements broker.Session.
func (x *session) Settle(refs []broker.Ref, o broker.Settlement) {
	for i := range refs {
		r := &refs[i]
		if r.Consumer == 0 {
			x.settleFetched(r, o)
			continue
		}
		c := x.recent
		if c == nil || c.num != r.Consumer {
			if c = x.consumers[r.Consumer]; c == nil {
				continue
			}
			x.recent = c
		}
		if c.a.p != r.Partition || !c.held.Remove(r.Offset) {
			continue
		}
		x.sh.stats.settled(o)
		if c.reader != nil {
			if o == broker.Release || o == broker.Requeue {
				c.reader.pin(r.Offset)
			}
			c.read()
		} else {
			c.a.settles.add(c.id, r.Offset, outcomeOf(o))
			c.a.touch()
		}
		if c.state == ended && c.held.Len() == 0 {
			x.forget(c)
		}
	}
}

func outcomeOf(o broker.Settlement) protocol.Outcome {
	switch o {
	case broker.Accept:
		return protocol.Accept
	case broker.Reject:
		return protocol.Reject
	case broker.Requeue:
		return protocol.Requeue
	}
	return protocol.Release
}

func (x *session) settleFetched(r *broker.Ref, o broker.Settlement) {
	for _, h := range x.gets {
		if h.a.p == r.Partition && h.held.Remove(r.Offset) {
			x.sh.stats.settled(o)
			h.a.settles.add(0, r.Offset, outcomeOf(o))
			h.a.touch()
			return
		}
	}
}

// fetched is the holder of what the session got from a partition.
func (x *session) fetched(a *attachment) *holder {
	k := 0
	var found *holder
	for _, h := range x.gets {
		if h.a == a {
			found = h
		} else if h.a.gone || h.held.Len() == 0 {
			continue
		}
		x.gets[k] = h
		k++
	}
	clear(x.gets[k:])
	x.gets = x.gets[:k]
	if found == nil {
		found = &holder{a: a, session: x}
		x.gets = append(x.gets, found)
	}
	return found
}

// Drained implements broker.Session.
func (x *session) Drained(consumer uint64, bytes int) {
	if c := x.consumers[consumer]; c != nil {
		c.drained(int64(bytes))
	}
}

// forget removes a consumer that has ended.
func (x *session) forget(c *consumer) {
	if x.consumers[c.num] == c {
		delete(x.consumers, c.num)
		x.took(c.undrain) // what is left of it is not told of any more
	}
	if i := slices.Index(x.order, c); i >= 0 {
		x.order = slices.Delete(x.order, i, i+1)
	}
	if x.recent == c {
		x.recent = nil
	}
}

// consumerGone tells the front of a consumer that the broker ended.
func (x *session) consumerGone(c *consumer, reason string) {
	if c.a.gone || c.held.Len() == 0 {
		x.forget(c)
	}
	if !x.closed {
		x.l.ConsumerGone(c.num, reason)
	}
}

// Close implements broker.Session.
func (x *session) Close() {
	if x.closed {
		return
	}
	x.closed = true
	s := x.sh
	for _, c := range x.order {
		c.leave()
	}
	for _, h := range x.gets {
		if !h.a.gone {
			h.release()
		}
	}
	x.consumers, x.order, x.gets, x.recent = nil, nil, nil, nil
	x.confirmed, x.failed = nil, nil // what is parked goes on: it was published
	for _, r := range x.exclusive {
		s.end(r)
	}
	x.exclusive = nil
	if x.counted {
		s.env.Node.leave(x.user)
	}
	if i := slices.Index(s.sessions, x); i >= 0 {
		s.sessions = slices.Delete(s.sessions, i, i+1)
	}
}

// leave ends a consumer with its session: what it holds goes back.
func (c *consumer) leave() {
	a := c.a
	c.started, c.stopped = nil, nil
	c.leaveNear()
	c.reader.drop()
	was := c.state
	c.state = ended
	if a.gone {
		return
	}
	if i, _ := a.consumer(c.id); i >= 0 {
		a.consumers = slices.Delete(a.consumers, i, i+1)
		if a.state == open && was != cancelling {
			a.to.Send(protocol.Unsubscribe{To: a.address(), Consumer: c.id})
		}
	}
	if c.reader == nil {
		c.release()
	}
	a.touch()
}

// partition is the partition of a resource that a session works with. There is one, as long as resources have one.
func partition(r *catalog.Resource) ident.Partition { return r.Partitions[0].Partition }

// may checks that the session's user has a right on a name. The checker remembers what it was asked.
func (x *session) may(right authz.Right, kind, name string) *broker.Error {
	if x.sh.rights.Allowed(x.user, x.vhost, right, name) {
		return nil
	}
	if name == "" {
		name = authz.DefaultExchange
	}
	return broker.Errorf(broker.AccessRefused, "%s access to %s '%s' in vhost '%s' refused for user '%s'", right, kind, name, x.vhost,
		x.user)
}

func (x *session) mayConfigure(kind, name string) *broker.Error {
	return x.may(authz.Configure, kind, name)
}

func (x *session) mayRead(kind, name string) *broker.Error { return x.may(authz.Read, kind, name) }

// mayWrite checks that the session's user may publish to an exchange, and that clients may at all.
func (x *session) mayWrite(exchange string) *broker.Error {
	if err := x.may(authz.Write, "exchange", exchange); err != nil {
		return err
	}
	if e := x.sh.view.Exchange(x.vhost, exchange); e != nil && e.Internal {
		return broker.Errorf(broker.AccessRefused, "cannot publish to internal exchange '%s' in vhost '%s'", exchange, x.vhost)
	}
	return nil
}
