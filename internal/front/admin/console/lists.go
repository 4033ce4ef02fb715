package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/front/admin"
)

// shared is an answer of the backend that is asked of all nodes. Pages that are read at about the same time share one, as they share samples; it is forgotten
// once nobody has looked for a while.
type shared[T any] struct {
	ask    func(ctx context.Context) (T, error)
	now    func() time.Time
	turn   chan struct{} // one at a time asks, or forgets
	last   *T
	at     time.Time
	took   time.Duration
	forget *time.Timer
}

func newShared[T any](now func() time.Time, ask func(ctx context.Context) (T, error)) *shared[T] {
	return &shared[T]{ask: ask, now: now, turn: make(chan struct{}, 1)}
}

// get is the last answer, or a new one; it is not to be changed. The error is the backend's, or that of ctx.
func (s *shared[T]) get(ctx context.Context) (out T, err error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return out, ctx.Err()
	}
	began := s.now()
	if age := began.Sub(s.at); s.last != nil && age >= 0 && age < max(fresh, share*s.took) {
		return *s.last, nil
	}
	if out, err = s.ask(ctx); err != nil {
		return out, err
	}
	s.last, s.at, s.took = &out, began, s.now().Sub(began)
	if s.forget == nil {
		s.forget = time.AfterFunc(history, s.clear)
	} else {
		s.forget.Reset(history)
	}
	return out, nil
}

func (s *shared[T]) clear() {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	s.last = nil
}

type clientsBody struct {
	Find   string
	Rows   []admin.Client
	Pages  pages
	Known  int // that the nodes have named,
	Total  int // of so many
	Silent []string
}

func showClients(ctx context.Context, c *Console, _ *sample, r *http.Request) (any, error) {
	all, err := c.clients.get(ctx)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	b := clientsBody{Find: q.Get("find"), Known: len(all.Clients), Total: all.Total, Silent: all.Silent}
	var found []admin.Client
	for i := range all.Clients {
		if x := &all.Clients[i]; b.Find == "" || has(x, b.Find) {
			found = append(found, *x)
		}
	}
	b.Rows, b.Pages = paged(found, r, listURL("clients", q))
	return b, nil
}

// has reports whether a client goes by a text, or consumes from what does.
func has(x *admin.Client, text string) bool {
	in := func(s string) bool { return strings.Contains(visible(s), text) }
	return slices.ContainsFunc([]string{x.Name, x.Peer, x.User, x.VHost, x.Node, x.State, x.Product}, in) ||
		slices.ContainsFunc(x.Consumers, func(k admin.Consumer) bool { return in(k.Resource) })
}

type deletionsBody struct {
	Rows  []admin.Deletion
	Pages pages
}

func showDeletions(ctx context.Context, c *Console, _ *sample, r *http.Request) (any, error) {
	all, err := c.deletions.get(ctx)
	if err != nil {
		return nil, err
	}
	var b deletionsBody
	b.Rows, b.Pages = paged(all, r, listURL("deletions", r.URL.Query()))
	return b, nil
}

func showDeletion(ctx context.Context, c *Console, _ *sample, r *http.Request) (any, error) {
	q := r.URL.Query()
	return c.env.Backend.PlanDeletion(ctx, admin.DeletionQuery{VHost: q.Get("vhost"), Resource: q.Get("name")})
}
