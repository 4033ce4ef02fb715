package gateway

import (
	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
)

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
