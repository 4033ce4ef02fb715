package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/gateway"
	"github.com/tanist/tanist/internal/engine/passwords"
	"github.com/tanist/tanist/internal/front/admin"
	"github.com/tanist/tanist/internal/front/amqp"
)

// backend answers the admin front.
type backend struct {
	n       *Node
	front   *amqp.Server
	version string
	started time.Time
	open    atomic.Bool // clients are listened for
	said    struct {
		sync.Mutex
		last []control.Condition
	}
}

var _ admin.Backend = (*backend)(nil)

// await waits for one answer, or for the end of ctx.
func await[T any](ctx context.Context, ask func(func(T))) (T, error) {
	c := make(chan T, 1)
	ask(func(v T) { c <- v })
	select {
	case v := <-c:
		return v, nil
	case <-ctx.Done():
		var none T
		return none, broker.Errorf(broker.Unavailable, "the node did not answer in time; try again")
	}
}

// Authenticate implements admin.Backend.
func (b *backend) Authenticate(ctx context.Context, user, password string, loopback bool) ([]string, error) {
	var u *catalog.User
	none := false
	b.n.View(func(v *catalog.View) {
		u = v.User(user)
		none = u == nil && len(v.Users()) == 0
	})
	if none { // and so it is not known who may log in
		return nil, broker.Errorf(broker.Unavailable, "%s; ask another node, or wait", noCatalog)
	}
	type verdict struct {
		right bool
		err   *broker.Error
	}
	v, err := await(ctx, func(done func(verdict)) {
		b.n.checker.Verify(u, password, func(right bool, err *broker.Error) { done(verdict{right, err}) })
	})
	if err != nil {
		return nil, err
	}
	if v.err != nil {
		return nil, v.err
	}
	if !v.right || u == nil {
		return nil, broker.Errorf(broker.AuthFailed, "wrong user or password")
	}
	if !authz.FromHere(user, loopback) {
		return nil, broker.Errorf(broker.AuthFailed, "user '%s' may only connect from this machine; make a user with `tanist user add`", user)
	}
	return u.Roles, nil
}

// propose changes the catalog and turns a refusal into what a client is told.
func (b *backend) propose(ctx context.Context, items ...catalog.Item) error {
	return refusal(b.change(ctx, items...))
}

// change changes the catalog. The error is a *catalog.Refusal, or a *broker.Error.
func (b *backend) change(ctx context.Context, items ...catalog.Item) error {
	_, err := b.n.change(ctx, items...)
	switch {
	case err == nil || catalog.CodeOf(err) != 0:
		return err
	case errors.Is(err, catalog.ErrTooLarge), errors.Is(err, catalog.ErrMalformed):
		return broker.Errorf(broker.Precondition, "%s", err)
	}
	var said *broker.Error
	if errors.As(err, &said) {
		return err
	}
	return forOperators(err)
}

// refusal turns a refusal of the catalog into what a client is told.
func refusal(err error) error {
	var refused *catalog.Refusal
	if !errors.As(err, &refused) {
		return err
	}
	code := broker.Precondition
	if refused.Code == catalog.NotFound {
		code = broker.NotFound
	}
	return broker.Errorf(code, "%s", refused.Error())
}

// Users implements admin.Backend.
func (b *backend) Users(context.Context) ([]catalog.User, error) {
	var out []catalog.User
	b.n.View(func(v *catalog.View) {
		for _, u := range v.Users() {
			c := *u
			c.Hash = ""
			out = append(out, c)
		}
	})
	return out, nil
}

// PutUser implements admin.Backend. It changes the user that it has read, or decides anew: of two who change a password and a role at the
// same time, neither undoes the other's. Whenever it has to, somebody else's change was made, so it ends.
func (b *backend) PutUser(ctx context.Context, u admin.UserUpdate) error {
	hash := ""
	if u.Password != nil {
		var err error
		if hash, err = passwords.Hash(*u.Password, nil); err != nil {
			return err
		}
	}
	for {
		next := catalog.User{Name: u.Name}
		var known bool
		b.n.View(func(v *catalog.View) {
			if have := v.User(u.Name); have != nil {
				next, known = *have, true
			}
		})
		if u.Password != nil {
			next.Hash = hash
		} else if !known {
			return broker.Errorf(broker.Precondition, "user '%s' does not exist yet: a new user needs a password", u.Name)
		}
		if u.Roles != nil {
			next.Roles = *u.Roles
		}
		if err := b.change(ctx, catalog.PutUser(next)); catalog.CodeOf(err) != catalog.VersionMoved {
			return refusal(err)
		}
	}
}

// DeleteUser implements admin.Backend.
func (b *backend) DeleteUser(ctx context.Context, name string) error {
	return b.propose(ctx, catalog.DeleteUser(name))
}

// VHosts implements admin.Backend.
func (b *backend) VHosts(context.Context) ([]catalog.VHost, error) {
	var out []catalog.VHost
	b.n.View(func(v *catalog.View) {
		for _, h := range v.VHosts() {
			out = append(out, *h)
		}
	})
	return out, nil
}

// PutVHost implements admin.Backend.
func (b *backend) PutVHost(ctx context.Context, name string) error {
	return b.propose(ctx, catalog.CreateVHost(name))
}

// DeleteVHost implements admin.Backend.
func (b *backend) DeleteVHost(ctx context.Context, name string) error {
	return b.propose(ctx, catalog.DeleteVHost(name))
}

// Permissions implements admin.Backend.
func (b *backend) Permissions(context.Context) ([]catalog.Permission, error) {
	var out []catalog.Permission
	b.n.View(func(v *catalog.View) {
		for _, p := range v.Permissions() {
			out = append(out, *p)
		}
	})
	return out, nil
}

// PutPermission implements admin.Backend.
func (b *backend) PutPermission(ctx context.Context, p catalog.Permission) error {
	if err := authz.Validate(&p); err != nil {
		return broker.Errorf(broker.Precondition, "%s", err)
	}
	return b.propose(ctx, catalog.PutPermission(p))
}

// DeletePermission implements admin.Backend.
func (b *backend) DeletePermission(ctx context.Context, user, vhost string) error {
	return b.propose(ctx, catalog.DeletePermission(user, vhost))
}

// Ready implements admin.Backend.
func (b *backend) Ready() error {
	if err := b.n.Ready(); err != nil {
		return err
	}
	if !b.open.Load() {
		return errors.New("clients are not listened for yet")
	}
	return nil
}

// shards asks every shard for its status.
func (b *backend) shards(ctx context.Context) ([]gateway.Status, error) {
	b.n.mu.Lock()
	shards := b.n.shards
	b.n.mu.Unlock()
	var out []gateway.Status
	for _, s := range shards {
		st, err := await(ctx, s.Status)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

func (b *backend) catalogStatus(ctx context.Context) (consensus.Status, error) {
	return await(ctx, b.n.consensus.Status)
}
