package admin

import (
	"context"
	"slices"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// Exchange is where clients publish to.
type Exchange struct {
	VHost      string            `json:"vhost"`
	Name       string            `json:"name"` // "" is the default exchange, which routes to queues by their name
	Type       string            `json:"type"` // direct, fanout, topic or headers
	Durable    bool              `json:"durable"`
	AutoDelete bool              `json:"auto_delete"`
	Internal   bool              `json:"internal"` // no client publishes to it
	Builtin    bool              `json:"builtin"`
	Alternate  string            `json:"alternate,omitempty"` // exchange for what it cannot route
	Node       string            `json:"node,omitempty"`      // that it ends with, where it is not durable
	Arguments  map[string]string `json:"arguments,omitempty"`
}

// Binding leads from an exchange to a queue, a stream or another exchange.
type Binding struct {
	VHost       string            `json:"vhost"`
	Source      string            `json:"source"`
	Destination string            `json:"destination"`
	Kind        string            `json:"kind"` // of the destination: queue, stream or exchange
	Key         string            `json:"key"`
	Arguments   map[string]string `json:"arguments,omitempty"`
}

// Clients are the connected clients of all nodes in reach.
type Clients struct {
	Clients []Client `json:"clients"` // by node, those first that came first; of each node at most 2 000, with at most 10 000 consumers
	Total   int      `json:"total"`
	Silent  []string `json:"silent"` // nodes that did not answer
}

// Client is one client's connection.
type Client struct {
	Node      string     `json:"node"`
	ID        uint64     `json:"id"`   // unique in a run of the node
	Peer      string     `json:"peer"` // host:port
	TLS       bool       `json:"tls"`
	Since     int64      `json:"since"` // milliseconds since 1970
	State     string     `json:"state"` // opening, running, blocked (its publishing is held) or closing
	User      string     `json:"user"`
	VHost     string     `json:"vhost"`
	Name      string     `json:"name,omitempty"`    // that it gave itself
	Product   string     `json:"product,omitempty"` // of the client, with its version
	Channels  int        `json:"channels"`
	Unsettled uint64     `json:"unsettled"` // deliveries
	In        uint64     `json:"received_bytes"`
	Out       uint64     `json:"sent_bytes"`
	Consumers []Consumer `json:"consumers"`
}

// Consumers are the consumers of all nodes in reach.
type Consumers struct {
	Consumers []Consumer `json:"consumers"`
	Silent    []string   `json:"silent"` // nodes that did not answer
}

// Consumer is one consumer of a queue or stream.
type Consumer struct {
	Node       string `json:"node"` // that its client is connected to
	Connection uint64 `json:"connection"`
	Channel    int    `json:"channel"`
	VHost      string `json:"vhost"`
	Resource   string `json:"resource"`
	Tag        string `json:"tag"`
	Prefetch   int    `json:"prefetch"` // of its channel; 0: no bound
	NoAck      bool   `json:"no_ack"`   // deliveries are settled as they are sent
}

// Cursor is a named cursor of a stream.
type Cursor struct {
	VHost     string `json:"vhost"`
	Resource  string `json:"resource"`
	Partition uint32 `json:"partition"`
	Name      string `json:"name"`
	Offset    uint64 `json:"offset"` // of the next record wanted
}

// Lists is the part of a Backend that lists what clients have made and do.
type Lists interface {
	// Exchanges and Bindings are sorted by virtual host, and then by name and by source and destination.
	Exchanges(ctx context.Context) ([]Exchange, error)
	Bindings(ctx context.Context) ([]Binding, error)
	// Clients asks all nodes.
	Clients(ctx context.Context) (Clients, error)
	// Cursors are the confirmed named cursors of a stream, by partition and name. A *broker.Error with code NotFound: there is no stream of that
	// name; Precondition: it is a queue; Unavailable: its owner does not answer, ask again.
	Cursors(ctx context.Context, vhost, stream string) ([]Cursor, error)
	// ForgetCursor forgets one in every partition, and returns once that is confirmed. A consumer that goes on with it makes it anew. Errors as for
	// Cursors; NotFound also where there is no such cursor. Repeating it is safe.
	ForgetCursor(ctx context.Context, vhost, stream, cursor string) error
}

var listRoutes = []route{
	{
		method: "GET", path: "/api/v1/exchanges", summary: "Exchanges", query: byName[:1], response: []Exchange{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			all, err := b.Exchanges(ctx)
			return list(slices.DeleteFunc(all, func(x Exchange) bool { return !r.wants(x.VHost, "") }), err)
		},
	},
	{
		method: "GET", path: "/api/v1/bindings", summary: "Bindings, those of the default exchange left out", response: []Binding{},
		query: []parameter{byName[0], {"resource", "only those that lead to or from this queue, stream or exchange"}},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			all, err := b.Bindings(ctx)
			return list(slices.DeleteFunc(all, func(x Binding) bool { return !r.wants(x.VHost, x.Destination) && !r.wants(x.VHost, x.Source) }), err)
		},
	},
	{
		method: "GET", path: "/api/v1/connections", summary: "Connected clients of all nodes, with their consumers", query: byName[:1], response: Clients{}, do: getClients,
	},
	{
		method: "GET", path: "/api/v1/consumers", summary: "Consumers of all nodes", query: byName, response: Consumers{}, do: getConsumers,
	},
	{
		method: "GET", path: "/api/v1/cursors/{resource}", summary: "Named cursors of a stream", query: ofStream[:1], response: []Cursor{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			all, err := b.Cursors(ctx, r.ofVHost(), r.path("resource"))
			if err != nil {
				return nil, err
			}
			return list(all, nil)
		},
	},
	{
		method: "DELETE", path: "/api/v1/cursors/{resource}", summary: "Forget a named cursor of a stream", query: ofStream,
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			if r.query("cursor") == "" {
				return nil, broker.Errorf(broker.Precondition, "no cursor is named: ?cursor=NAME")
			}
			return nil, b.ForgetCursor(ctx, r.ofVHost(), r.path("resource"), r.query("cursor"))
		},
	},
}

var ofStream = []parameter{{"vhost", "the virtual host; / if nothing is said"}, {"cursor", "its name"}}

// ofVHost is the virtual host that a request names, or the default one.
func (r *request) ofVHost() string {
	if v := r.query("vhost"); v != "" {
		return v
	}
	return catalog.DefaultVHost
}

func getClients(ctx context.Context, b Backend, r *request) (any, error) {
	all, err := b.Clients(ctx)
	if err != nil {
		return nil, err
	}
	if v := r.query("vhost"); v != "" {
		all.Clients = slices.DeleteFunc(all.Clients, func(c Client) bool { return c.VHost != v })
	}
	all.Clients, all.Silent = append([]Client{}, all.Clients...), append([]string{}, all.Silent...)
	for i := range all.Clients {
		all.Clients[i].Consumers = append([]Consumer{}, all.Clients[i].Consumers...)
	}
	return all, nil
}

func getConsumers(ctx context.Context, b Backend, r *request) (any, error) {
	all, err := b.Clients(ctx)
	if err != nil {
		return nil, err
	}
	out := Consumers{Consumers: []Consumer{}, Silent: append([]string{}, all.Silent...)}
	for _, c := range all.Clients {
		for _, k := range c.Consumers {
			if r.wants(k.VHost, k.Resource) {
				out.Consumers = append(out.Consumers, k)
			}
		}
	}
	return out, nil
}
