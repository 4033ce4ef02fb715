package gateway

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// answer turns the catalog's word on an item into an error for the client.
func answer(o catalog.ItemResult, err error) *broker.Error {
	var said *broker.Error
	switch {
	case errors.As(err, &said):
		return said
	case err != nil:
		return broker.Errorf(broker.Unavailable, "the catalog did not take the change: %v", err)
	}
	r := o.Refused
	if r == nil {
		return nil
	}
	switch r.Code {
	case catalog.NotFound:
		return broker.Errorf(broker.NotFound, "%s", r.Error())
	case catalog.Locked:
		return broker.Errorf(broker.Locked, "%s", r.Error())
	case catalog.Reserved:
		return broker.Errorf(broker.AccessRefused, "%s", r.Error())
	case catalog.Inequivalent, catalog.InUse, catalog.Exists, catalog.Invalid:
		return broker.Errorf(broker.Precondition, "%s", r.Error())
	case catalog.IncarnationMoved, catalog.VersionMoved, catalog.TransitionMoved:
		return broker.Errorf(broker.Unavailable, "%s", r.Error())
	}
	return broker.Errorf(broker.Internal, "%s", r.Error())
}

// change proposes one item and tells the client how it went, once this shard has applied it.
func (x *session) change(it catalog.Item, done func(catalog.ItemResult, *broker.Error)) {
	x.sh.propose(it, func(o catalog.ItemResult, err error) {
		if !x.closed {
			done(o, answer(o, err))
		}
	})
}

func reserved(name string) bool { return strings.HasPrefix(name, "amq.") }

// DeclareExchange implements broker.Session.
func (x *session) DeclareExchange(e catalog.Exchange, passive bool, done func(*broker.Error)) {
	if x.waits(func() { x.DeclareExchange(e, passive, done) }) {
		return
	}
	if err := x.usable(); err != nil {
		done(err)
		return
	}
	if passive {
		x.sure(func() *broker.Error { return x.checkExchange(&e, true) }, done)
		return
	}
	if err := x.checkExchange(&e, false); err != nil {
		done(err)
		return
	}
	e.VHost = x.vhost
	e.Home = nil
	if !e.Durable {
		e.Home = x.sh.home(0)
	}
	x.change(catalog.DeclareExchange(e), func(_ catalog.ItemResult, err *broker.Error) { done(err) })
}

func (x *session) checkExchange(e *catalog.Exchange, passive bool) *broker.Error {
	have := x.sh.view.Exchange(x.vhost, e.Name)
	if passive {
		if have == nil {
			return x.noExchange(e.Name)
		}
		return nil
	}
	if e.Name == "" {
		return broker.Errorf(broker.AccessRefused, "operation not permitted on the default exchange")
	}
	if len(e.Name) > catalog.MaxName {
		return broker.Errorf(broker.Precondition, "exchange name is longer than %d bytes", catalog.MaxName)
	}
	if have == nil && reserved(e.Name) {
		return broker.Errorf(broker.AccessRefused, "exchange name '%s' contains reserved prefix 'amq.*'", e.Name)
	}
	if err := x.mayConfigure("exchange", e.Name); err != nil {
		return err
	}
	if e.Alternate == "" {
		return nil
	}
	if err := x.mayRead("exchange", e.Name); err != nil {
		return err
	}
	return x.may(authz.Write, "exchange", e.Alternate)
}

func (x *session) noExchange(name string) *broker.Error {
	return broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '%s'", name, x.vhost)
}

func (x *session) noQueue(name string) *broker.Error {
	return broker.Errorf(broker.NotFound, "no queue '%s' in vhost '%s'", name, x.vhost)
}

// DeleteExchange implements broker.Session. Deleting what does not exist succeeds.
func (x *session) DeleteExchange(name string, ifUnused bool, done func(*broker.Error)) {
	if x.waits(func() { x.DeleteExchange(name, ifUnused, done) }) {
		return
	}
	err := x.usable()
	if err == nil && name == "" {
		err = broker.Errorf(broker.AccessRefused, "operation not permitted on the default exchange")
	}
	if err == nil {
		err = x.mayConfigure("exchange", name)
	}
	if err != nil {
		done(err)
		return
	}
	x.change(catalog.DeleteExchange(x.vhost, name, ifUnused), func(o catalog.ItemResult, err *broker.Error) {
		if err != nil && err.Code == broker.NotFound {
			err = nil
		}
		done(err)
	})
}

// Bind implements broker.Session.
func (x *session) Bind(b catalog.Binding, done func(*broker.Error)) {
	if x.waits(func() { x.Bind(b, done) }) {
		return
	}
	b.VHost = x.vhost
	x.sure(func() *broker.Error { return x.checkBinding(&b) }, func(err *broker.Error) {
		if err != nil {
			done(err)
			return
		}
		for _, it := range x.adopt(&b) {
			x.sh.propose(it, func(catalog.ItemResult, error) {}) // a failure shows in the binding that follows
		}
		x.change(catalog.Bind(b), func(_ catalog.ItemResult, err *broker.Error) { done(err) })
	})
}

// Unbind implements broker.Session. Unbinding what does not exist succeeds.
func (x *session) Unbind(b catalog.Binding, done func(*broker.Error)) {
	if x.waits(func() { x.Unbind(b, done) }) {
		return
	}
	b.VHost = x.vhost
	answered := func(err *broker.Error) {
		if err != nil && err.Code == broker.NotFound {
			err = nil
		}
		done(err)
	}
	x.sure(func() *broker.Error { return x.checkBinding(&b) }, func(err *broker.Error) {
		if err != nil {
			answered(err)
			return
		}
		x.change(catalog.Unbind(b), func(_ catalog.ItemResult, err *broker.Error) { answered(err) })
	})
}

func (x *session) checkBinding(b *catalog.Binding) *broker.Error {
	if err := x.usable(); err != nil {
		return err
	}
	if b.Source == "" || b.ToExchange && b.Destination == "" {
		return broker.Errorf(broker.AccessRefused, "operation not permitted on the default exchange")
	}
	kind := "queue"
	if b.ToExchange {
		kind = "exchange"
	}
	if err := x.may(authz.Write, kind, b.Destination); err != nil {
		return err
	}
	if err := x.mayRead("exchange", b.Source); err != nil {
		return err
	}
	if x.sh.view.Exchange(x.vhost, b.Source) == nil {
		return x.noExchange(b.Source)
	}
	if b.ToExchange {
		if x.sh.view.Exchange(x.vhost, b.Destination) == nil {
			return x.noExchange(b.Destination)
		}
		return nil
	}
	_, err := x.resource(b.Destination)
	return err
}

// resource finds a queue or stream that this session may work with.
func (x *session) resource(name string) (*catalog.Resource, *broker.Error) {
	r := x.sh.view.Resource(x.vhost, name)
	if r == nil {
		return nil, x.noQueue(name)
	}
	if x.locked(r) {
		return nil, broker.Errorf(broker.Locked, "cannot obtain exclusive access to locked queue '%s' in vhost '%s'", name, x.vhost)
	}
	return r, nil
}

// locked reports whether a resource is exclusive to another session.
func (x *session) locked(r *catalog.Resource) bool {
	return r.Exclusive && r.Home != nil && *r.Home != *x.sh.home(x.id)
}

// home is where transient objects of this run live; session is set for what is exclusive.
func (s *Shard) home(session uint64) *catalog.Home {
	return &catalog.Home{Node: s.env.Local.Node, Boot: s.env.Local.Boot, Session: session}
}

// madeUpName is a name for a queue that was declared without one. It encodes node, run, shard and a count, so that no two are alike.
func (s *Shard) madeUpName() string {
	s.names++
	return fmt.Sprintf("amq.gen-%s-%x-%x-%x", s.env.Local.Node, s.env.Local.Boot, s.env.Shard, s.names)
}
