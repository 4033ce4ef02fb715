package gateway

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/port/trace"
)

// policy of resources that are declared without one.
const policy = "majority_durable"

// DeclareQueue implements broker.Session.
func (x *session) DeclareQueue(q broker.QueueSpec, done func(broker.QueueInfo, *broker.Error)) {
	if x.waits(func() { x.DeclareQueue(q, done) }) {
		return
	}
	made := q.Name == ""
	counted := func(info broker.QueueInfo, err *broker.Error) {
		if wentMeanwhile(err) {
			x.DeclareQueue(q, done)
			return
		}
		done(info, err)
	}
	err := x.usable()
	if err == nil && q.Passive {
		x.find(q.Name, x.resource, func(r *catalog.Resource, err *broker.Error) {
			if err != nil {
				done(broker.QueueInfo{}, err)
				return
			}
			x.count(r, counted)
		})
		return
	}
	if err == nil {
		err = x.checkQueue(&q)
	}
	if err != nil {
		done(broker.QueueInfo{}, err)
		return
	}
	r := catalog.Resource{
		VHost: x.vhost, Name: q.Name, Kind: q.Kind, Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive,
		Args: q.Args, Policy: cmp.Or(q.Policy, policy), Copies: q.Copies,
	}
	if q.Kind == catalog.Stream {
		r.Stream = &q.Stream
	} else {
		r.Kind, r.Queue = catalog.Queue, &q.Queue
	}
	if q.Exclusive {
		r.Home = x.sh.home(x.id)
	} else if !q.Durable {
		r.Home = x.sh.home(0)
	}
	if have := x.sh.view.Resource(x.vhost, q.Name); have != nil {
		want := r
		if have.Exclusive {
			want.Home = have.Home // checkQueue has seen that it is this session's, so what differs is what is named
		}
		if refused := catalog.EquivalentResource(have, &want); refused != nil {
			done(broker.QueueInfo{}, answer(catalog.ItemResult{Refused: refused}, nil))
			return
		}
		x.count(have, counted)
		return
	}
	answered := func(o catalog.ItemResult, err error) { x.declared(q.Name, o, err, done) }
	if made && q.Exclusive && x.sh.env.Node.locals != nil && !x.sh.others {
		x.sh.declareLocal(r, answered)
		return
	}
	owner, followers := x.sh.place(&r)
	x.sh.propose(catalog.DeclareResource(r, owner, followers, 1), answered)
}

// place says where the copies of a resource go. What lives in memory lives here.
func (s *Shard) place(r *catalog.Resource) (ident.Instance, []catalog.Member) {
	if r.Home != nil || s.env.Place == nil {
		return s.env.Local, nil
	}
	return s.env.Place(r)
}

// checkQueue checks what the catalog does not, and makes up a name where none is given.
func (x *session) checkQueue(q *broker.QueueSpec) *broker.Error {
	if len(q.Name) > catalog.MaxName {
		return broker.Errorf(broker.Precondition, "queue name is longer than %d bytes", catalog.MaxName)
	}
	made := q.Name == ""
	if made {
		q.Name = x.sh.madeUpName()
	}
	if err := x.mayConfigure("queue", q.Name); err != nil {
		return err
	}
	have := x.sh.view.Resource(x.vhost, q.Name)
	if have == nil && !made && reserved(q.Name) {
		return broker.Errorf(broker.AccessRefused, "queue name '%s' contains reserved prefix 'amq.*'", q.Name)
	}
	if have != nil && x.locked(have) {
		_, err := x.resource(q.Name)
		return err
	}
	if dlx := q.Queue.DeadLetterExchange; dlx != nil {
		if err := x.mayRead("queue", q.Name); err != nil {
			return err
		}
		if err := x.may(authz.Write, "exchange", *dlx); err != nil {
			return err
		}
	}
	if most := x.sh.limits.Queues; have == nil && most > 0 && x.sh.resources >= most {
		return broker.Errorf(broker.ResourceError, "queue '%s' was not declared: the limit of %d queues is reached", q.Name, most)
	}
	return nil
}

// declared is called once the catalog's answer has been applied here.
func (x *session) declared(name string, o catalog.ItemResult, err error, done func(broker.QueueInfo, *broker.Error)) {
	if x.closed {
		return // what is exclusive to it goes, once it is there (own)
	}
	if e := answer(o, err); e != nil {
		done(broker.QueueInfo{}, e)
		return
	}
	r := x.sh.view.Resource(x.vhost, name)
	if r == nil {
		done(broker.QueueInfo{}, broker.Errorf(broker.Unavailable, "queue '%s' was deleted while it was declared", name))
		return
	}
	x.count(r, done)
}

// wentMeanwhile reports whether an owner cannot answer since its queue is deleted. That may have been done on another node, and answered there
// before this was asked: what is there by that name now is to be looked for, as for any name that is not known here (see sure).
func wentMeanwhile(err *broker.Error) bool { return err != nil && err.Code == broker.NotFound }

// count asks the owner for counts; that it answers also means that the partition exists.
func (x *session) count(r *catalog.Resource, done func(broker.QueueInfo, *broker.Error)) {
	a := x.sh.attach(r, partition(r))
	a.request(protocol.Stats{}, func(c protocol.Counted, _ protocol.GetDone, err *broker.Error) {
		if x.closed {
			return
		}
		if err == nil && c.Refused != "" {
			err = broker.Errorf(broker.Unavailable, "queue '%s' in vhost '%s': %s", r.Name, r.VHost, c.Refused)
		}
		done(broker.QueueInfo{Name: r.Name, Messages: clamp(c.Ready), Consumers: clamp(c.Consumers)}, err)
	})
}

func clamp(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// DeleteQueue implements broker.Session. Deleting what does not exist succeeds.
func (x *session) DeleteQueue(name string, ifUnused, ifEmpty bool, done func(uint32, *broker.Error)) {
	if x.waits(func() { x.DeleteQueue(name, ifUnused, ifEmpty, done) }) {
		return
	}
	x.find(name, x.deletable, func(r *catalog.Resource, err *broker.Error) {
		if err != nil {
			if err.Code == broker.NotFound {
				err = nil
			}
			done(0, err)
			return
		}
		a := x.sh.attach(r, partition(r))
		a.request(protocol.Close{IfUnused: ifUnused, IfEmpty: ifEmpty},
			func(c protocol.Counted, _ protocol.GetDone, err *broker.Error) {
				epoch := uint64(0)
				if ifUnused || ifEmpty {
					epoch = a.epoch
				}
				x.closedForDeletion(a, r, epoch, c, err, func(n uint32, err *broker.Error, moved bool) {
					if moved { // another owner must be asked
						x.DeleteQueue(name, ifUnused, ifEmpty, done)
						return
					}
					done(n, err)
				})
			})
	})
}

// deletable finds a resource that this session may delete.
func (x *session) deletable(name string) (*catalog.Resource, *broker.Error) {
	if err := x.usable(); err != nil {
		return nil, err
	}
	if err := x.mayConfigure("queue", name); err != nil {
		return nil, err
	}
	return x.resource(name)
}

// closedForDeletion is called when the owner has stopped admitting, or says why not. With an epoch the resource is deleted only if that
// owner's has not ended; moved says that it has.
func (x *session) closedForDeletion(a *attachment, r *catalog.Resource, epoch uint64, c protocol.Counted, err *broker.Error,
	done func(n uint32, err *broker.Error, moved bool),
) {
	reply := func(n uint32, e *broker.Error) {
		if !x.closed {
			done(n, e, false)
		}
	}
	if err != nil && err.Code == broker.NotFound {
		reply(0, nil) // somebody else was quicker
		return
	}
	if err != nil {
		reply(0, err)
		return
	}
	if c.Refused != "" {
		reply(0, broker.Errorf(broker.Precondition, "queue '%s' in vhost '%s' %s", r.Name, r.VHost, c.Refused))
		return
	}
	a.closing++ // until it is known what came of it: an owner that is left opens, and what it confirmed then could go with the queue
	x.sh.deleteResource(r, epoch, func(o catalog.ItemResult, perr error) {
		e := answer(o, perr)
		if e != nil && e.Code == broker.Uncertain {
			a.deleteAgain(r, epoch)
			reply(0, e)
			return
		}
		a.closing--
		if o.Refused != nil && o.Refused.Code == catalog.VersionMoved && !x.closed {
			done(0, nil, true)
			return
		}
		if e != nil && e.Code != broker.NotFound {
			a.reopen()
			trace.Warn(x.sh.env.Trace, "gateway.delete.refused", slog.String("queue", r.Name), slog.String("vhost", r.VHost),
				slog.String("reason", e.Text))
			reply(0, e)
			return
		}
		reply(clamp(c.Ready), nil)
	})
}

// deleteAgain asks for a deletion again whose outcome is not known, until the catalog has said what became of one. Its owner stays closed until
// then: the deletion may come into force yet.
func (a *attachment) deleteAgain(r *catalog.Resource, epoch uint64) {
	a.sh.box.After(endAgain, call(func() {
		a.sh.deleteResource(r, epoch, func(o catalog.ItemResult, err error) {
			if err != nil {
				a.deleteAgain(r, epoch)
				return
			}
			if a.closing--; o.Refused != nil && !a.gone {
				a.reopen()
			}
		})
	}))
}

// reopen undoes Close. It is said again on each later stream, for it may have been lost with this one, until another Close has found the
// owner open: closing outlives a stream. It does not outlive an owner.
func (a *attachment) reopen() {
	a.undo = true
	if !a.gone && a.state == open {
		a.to.Send(protocol.Reopen{To: a.address()})
	}
}

// PurgeQueue implements broker.Session.
func (x *session) PurgeQueue(name string, done func(uint32, *broker.Error)) {
	if x.waits(func() { x.PurgeQueue(name, done) }) {
		return
	}
	x.find(name, x.readable, func(r *catalog.Resource, err *broker.Error) {
		if err == nil && r.Kind == catalog.Stream {
			err = broker.Errorf(broker.NotImplemented, "queue '%s' in vhost '%s' is a stream and cannot be purged", name, x.vhost)
		}
		if err != nil {
			done(0, err)
			return
		}
		x.sh.attach(r, partition(r)).request(protocol.Purge{}, func(c protocol.Counted, _ protocol.GetDone, err *broker.Error) {
			if x.closed {
				return
			}
			if wentMeanwhile(err) {
				x.PurgeQueue(name, done)
				return
			}
			if err == nil && c.Refused != "" {
				err = broker.Errorf(broker.Unavailable, "queue '%s' in vhost '%s': %s", r.Name, r.VHost, c.Refused)
			}
			done(clamp(c.Ready), err)
		})
	})
}

// readable finds a resource that this session may take messages from.
func (x *session) readable(name string) (*catalog.Resource, *broker.Error) {
	if err := x.usable(); err != nil {
		return nil, err
	}
	if err := x.mayRead("queue", name); err != nil {
		return nil, err
	}
	return x.resource(name)
}

// Get implements broker.Session.
func (x *session) Get(name string, noAck bool, done func(broker.Delivery, bool, *broker.Error)) {
	if x.waits(func() { x.Get(name, noAck, done) }) {
		return
	}
	x.find(name, x.readable, func(r *catalog.Resource, err *broker.Error) {
		if err == nil && r.Kind == catalog.Stream {
			err = broker.Errorf(broker.NotImplemented, "queue '%s' in vhost '%s' is a stream and is only read by consumers", name, x.vhost)
		}
		if err != nil {
			done(broker.Delivery{}, false, err)
			return
		}
		a := x.sh.attach(r, partition(r))
		a.request(protocol.Get{NoAck: noAck}, func(_ protocol.Counted, g protocol.GetDone, err *broker.Error) {
			if wentMeanwhile(err) && !x.closed {
				x.Get(name, noAck, done)
				return
			}
			x.got(a, r, noAck, g, err, done)
		})
	})
}

func (x *session) got(a *attachment, r *catalog.Resource, noAck bool, g protocol.GetDone, err *broker.Error,
	done func(broker.Delivery, bool, *broker.Error),
) {
	if x.closed {
		if err == nil && g.OK && !noAck {
			a.settles.add(0, g.Item.Offset, protocol.Release)
			a.touch()
		}
		return
	}
	if err == nil && g.Refused != "" {
		err = broker.Errorf(broker.Unavailable, "queue '%s' in vhost '%s': %s", r.Name, r.VHost, g.Refused)
	}
	if err != nil || !g.OK {
		done(broker.Delivery{}, false, err)
		return
	}
	if !noAck {
		x.fetched(a).hold(g.Item.Offset)
	}
	x.sh.stats.Delivered++
	if g.Item.Again {
		x.sh.stats.Again++
	}
	done(broker.Delivery{
		Ref:         broker.Ref{Partition: a.p, Offset: g.Item.Offset},
		Redelivered: g.Item.Again, Count: g.Item.Count, Record: g.Item.Record, Payload: g.Item.Body, Left: clamp(g.Left),
	}, true, nil)
}

// Consume implements broker.Session.
func (x *session) Consume(c broker.ConsumeSpec, done func(*broker.Error)) {
	x.coming = append(x.coming, c.Consumer)
	x.find(c.Queue, x.readable, func(r *catalog.Resource, err *broker.Error) {
		i := slices.Index(x.coming, c.Consumer)
		if i >= 0 {
			x.coming = slices.Delete(x.coming, i, i+1)
		}
		switch {
		case err != nil:
		case i < 0:
			err = cancelledEarly(c.Queue)
		default:
			err = x.checkConsumer(&c, r)
		}
		if err != nil {
			done(err)
			return
		}
		a := x.sh.attach(r, partition(r))
		x.consume(c, r, func(err *broker.Error) {
			if wentMeanwhile(err) && a.gone && !x.closed {
				x.Consume(c, done)
				return
			}
			done(err)
		})
	})
}

func (x *session) consume(c broker.ConsumeSpec, r *catalog.Resource, done func(*broker.Error)) {
	s := x.sh
	s.consumers++
	s.now = s.env.Clock.Mono() // clients call between messages
	n := &consumer{num: c.Consumer, spec: c, started: done, asked: s.now, window: s.limits.ConsumerBytes, prefetch: c.Prefetch}
	n.a, n.session, n.id = s.attach(r, partition(r)), x, s.consumers
	if r.Kind == catalog.Stream {
		n.reader = &reader{}
	}
	x.consumers[c.Consumer] = n
	x.order = append(x.order, n)
	n.a.consumers = append(n.a.consumers, n)
	n.a.touch()
	if n.a.state == open {
		n.subscribe()
	}
}

func (x *session) checkConsumer(c *broker.ConsumeSpec, r *catalog.Resource) *broker.Error {
	if r.Kind != catalog.Stream && (c.Cursor != "" || c.Start != stream.Start{}) {
		// Who means to read a stream would take the messages out of a queue.
		return broker.Errorf(broker.Precondition, "queue '%s' in vhost '%s' is not a stream: it has no offsets and no cursors", r.Name, r.VHost)
	}
	if c.Consumer == 0 || x.consumers[c.Consumer] != nil {
		return broker.Errorf(broker.Internal, "consumer number %d is taken", c.Consumer)
	}
	if most := x.sh.limits.Consumers; most > 0 && len(x.order) >= most {
		return broker.Errorf(broker.ResourceError, "no further consumer on queue '%s': the limit of %d consumers of one connection is reached",
			c.Queue, most)
	}
	return nil
}

// Cancel implements broker.Session.
func (x *session) Cancel(consumer uint64, done func()) {
	c := x.consumers[consumer]
	if c == nil {
		x.coming = slices.DeleteFunc(x.coming, func(n uint64) bool { return n == consumer })
		done()
		return
	}
	c.cancel(func() {
		if x.closed {
			return
		}
		if c.held.Len() == 0 {
			x.forget(c)
		}
		done()
	})
}
