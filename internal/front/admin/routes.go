package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/authz"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// Roles of users on this port.
const (
	Administrator = authz.Administrator // everything
	Monitoring    = authz.Monitoring    // reading
)

// route is one operation. The OpenAPI document is made of the same table, so that it cannot say what the handlers do not.
type route struct {
	method, path string
	summary      string
	query        []parameter
	request      any // a value of the type of the body; nil: none
	response     any // a value of the type of the answer; nil: 204 without a body
	do           func(ctx context.Context, b Backend, r *request) (any, error)
}

type parameter struct{ name, doc string }

// request is what an operation needs of the HTTP request.
type request struct {
	path  func(name string) string
	query func(name string) string
	body  func(into any) error
}

// UserAnswer is a user as the API shows it.
type UserAnswer struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles"`
}

// Pattern is the body of a permission: regular expressions on names.
type Pattern struct {
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

var byName = []parameter{
	{"vhost", "only those of this virtual host"},
	{"resource", "only those of this queue or stream"},
}

var routes = slices.Concat(memberRoutes, recorderRoutes, checkRoutes, wishRoutes, lossRoutes, listRoutes, deletionRoutes, []route{
	{
		method: "GET", path: "/api/v1/overview", summary: "One screen about the cluster", response: Overview{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) { return b.Overview(ctx) },
	},
	{
		method: "GET", path: "/api/v1/nodes", summary: "The members of the cluster", response: []Node{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) { return list(b.Nodes(ctx)) },
	},
	{
		method: "GET", path: "/api/v1/resources", summary: "Queues and streams", query: byName, response: []Resource{}, do: getResources,
	},
	{
		method: "GET", path: "/api/v1/partitions", summary: "Partitions with their copies", query: byName, response: []Partition{},
		do: getPartitions,
	},
	{
		method: "GET", path: "/api/v1/users", summary: "Users, without passwords", response: []UserAnswer{}, do: getUsers,
	},
	{
		method: "PUT", path: "/api/v1/users/{name}", summary: "Create a user, or change the password or roles", request: UserUpdate{},
		do: putUser,
	},
	{
		method: "DELETE", path: "/api/v1/users/{name}", summary: "Delete a user, with the user's permissions",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return nil, b.DeleteUser(ctx, r.path("name"))
		},
	},
	{
		method: "GET", path: "/api/v1/vhosts", summary: "Virtual hosts", response: []catalog.VHost{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) { return list(b.VHosts(ctx)) },
	},
	{
		method: "PUT", path: "/api/v1/vhosts/{name}", summary: "Create a virtual host",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return nil, b.PutVHost(ctx, r.path("name"))
		},
	},
	{
		method: "DELETE", path: "/api/v1/vhosts/{name}", summary: "Delete a virtual host with everything in it",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return nil, b.DeleteVHost(ctx, r.path("name"))
		},
	},
	{
		method: "GET", path: "/api/v1/permissions", summary: "What users may do in virtual hosts", response: []catalog.Permission{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) { return list(b.Permissions(ctx)) },
	},
	{
		method: "PUT", path: "/api/v1/permissions/{user}/{vhost}", summary: "Set what a user may do in a virtual host", request: Pattern{},
		do: putPermission,
	},
	{
		method: "DELETE", path: "/api/v1/permissions/{user}/{vhost}", summary: "Take away what a user may do in a virtual host",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return nil, b.DeletePermission(ctx, r.path("user"), r.path("vhost"))
		},
	},
})

// list keeps an empty answer from being null.
func list[T any](l []T, err error) (any, error) {
	if l == nil {
		l = []T{}
	}
	return l, err
}

func getResources(ctx context.Context, b Backend, r *request) (any, error) {
	all, err := b.Resources(ctx)
	all = slices.DeleteFunc(slices.Clone(all), func(x Resource) bool { return !r.wants(x.VHost, x.Name) })
	return list(all, err)
}

func getPartitions(ctx context.Context, b Backend, r *request) (any, error) {
	all, err := b.Partitions(ctx)
	all = slices.DeleteFunc(slices.Clone(all), func(x Partition) bool { return !r.wants(x.VHost, x.Resource) })
	for i := range all {
		all[i].Followers = append([]string{}, all[i].Followers...)
		all[i].Learners = append([]string{}, all[i].Learners...)
		all[i].Leaving = append([]string{}, all[i].Leaving...)
		all[i].Changing = append([]string{}, all[i].Changing...)
		all[i].Held = append([]Held{}, all[i].Held...)
		all[i].Copies = append([]Copy{}, all[i].Copies...)
	}
	return list(all, err)
}

func (r *request) wants(vhost, name string) bool {
	v, n := r.query("vhost"), r.query("resource")
	return (v == "" || v == vhost) && (n == "" || n == name)
}

func getUsers(ctx context.Context, b Backend, _ *request) (any, error) {
	users, err := b.Users(ctx)
	out := make([]UserAnswer, 0, len(users))
	for _, u := range users {
		out = append(out, UserAnswer{Name: u.Name, Roles: append([]string{}, u.Roles...)})
	}
	return out, err
}

func putUser(ctx context.Context, b Backend, r *request) (any, error) {
	var u UserUpdate
	if err := r.body(&u); err != nil {
		return nil, err
	}
	u.Name = r.path("name")
	if u.Password != nil && *u.Password == "" {
		return nil, broker.Errorf(broker.Precondition, "an empty password is not allowed")
	}
	if u.Roles != nil {
		for _, role := range *u.Roles {
			if role != Administrator && role != Monitoring {
				return nil, broker.Errorf(broker.Precondition, "unknown role %q: the roles are %s and %s", role, Administrator, Monitoring)
			}
		}
	}
	return nil, b.PutUser(ctx, u)
}

func putPermission(ctx context.Context, b Backend, r *request) (any, error) {
	var p Pattern
	if err := r.body(&p); err != nil {
		return nil, err
	}
	return nil, b.PutPermission(ctx, catalog.Permission{
		User: r.path("user"), VHost: r.path("vhost"), Configure: p.Configure, Write: p.Write, Read: p.Read,
	})
}

// pattern is the path as http.ServeMux wants it. The last name of a path may hold a slash, as the virtual host / does, and the mux takes an
// escaped slash in any other place for the end of the path.
func (r *route) pattern() string {
	if rest, ok := strings.CutSuffix(r.path, "}"); ok {
		return rest + "...}"
	}
	return r.path
}

// reads reports whether an operation changes nothing.
func (r *route) reads() bool { return r.method == http.MethodGet }
