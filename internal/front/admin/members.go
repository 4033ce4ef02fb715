package admin

import (
	"context"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
)

// Bounds of a join token's life.
const (
	DefaultTokenLife = time.Hour
	MaxTokenLife     = 7 * 24 * time.Hour
)

// TokenRequest asks for a join token.
type TokenRequest struct {
	Node string `json:"node,omitempty"` // the only name that may use it; "": any
	// TTL is how long it can be used, as 30m or 1h; "": an hour, at most 7 days.
	TTL string `json:"ttl,omitempty"`
}

// Token is a join token. Its text is a secret that nothing keeps.
type Token struct {
	ID      string `json:"id"`
	Token   string `json:"token"`
	Node    string `json:"node,omitempty"`
	Expires int64  `json:"expires"` // milliseconds since 1970
	// Join are mesh addresses of members, for --join.
	Join []string `json:"join"`
}

// Drain says whether a node is to be left.
type Drain struct {
	Draining bool `json:"draining"`
}

// Members is the part of a Backend that changes who is in the cluster.
type Members interface {
	// JoinToken makes a token for a node that is to join. Refused for the name of a node that is there.
	JoinToken(ctx context.Context, node string, life time.Duration) (Token, error)
	// ReplaceToken makes a token for a new store under the name of a node that is lost. Refused while that node lives.
	ReplaceToken(ctx context.Context, node string, life time.Duration) (Token, error)
	// RemoveNode takes a node out of the cluster for good. Refused while it holds an owner or a follower.
	RemoveNode(ctx context.Context, node string) error
	// DrainNode says whether a node takes new copies. Repeating it changes nothing.
	DrainNode(ctx context.Context, node string, draining bool) error
}

var memberRoutes = []route{
	{
		method: "POST", path: "/api/v1/tokens", summary: "Make a token that lets one node join, once", request: TokenRequest{}, response: Token{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			q, life, err := tokenRequest(r)
			if err != nil {
				return nil, err
			}
			return token(b.JoinToken(ctx, q.Node, life))
		},
	},
	{
		method: "DELETE", path: "/api/v1/nodes/{name}", summary: "Remove a node that holds no copies, for good",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return nil, b.RemoveNode(ctx, r.path("name"))
		},
	},
	{
		method: "POST", path: "/api/v1/nodes/{name}/replace", request: TokenRequest{}, response: Token{},
		summary: "Make a token that lets a node with an empty data directory take the place of a lost one",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			q, life, err := tokenRequest(r)
			if err != nil {
				return nil, err
			}
			if q.Node != "" && q.Node != r.path("name") {
				return nil, broker.Errorf(broker.Precondition, "the path names node '%s' and the body '%s'", r.path("name"), q.Node)
			}
			return token(b.ReplaceToken(ctx, r.path("name"), life))
		},
	},
	{
		method: "PUT", path: "/api/v1/nodes/{name}/drain", summary: "Say whether a node is to be left: it takes no new copies, and others follow in its stead", request: Drain{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var d Drain
			if err := r.body(&d); err != nil {
				return nil, err
			}
			return nil, b.DrainNode(ctx, r.path("name"), d.Draining)
		},
	},
}

func tokenRequest(r *request) (q TokenRequest, life time.Duration, err error) {
	if err := r.body(&q); err != nil {
		return q, 0, err
	}
	life = DefaultTokenLife
	if q.TTL != "" {
		life, err = time.ParseDuration(q.TTL)
		if err != nil || life < time.Second || life > MaxTokenLife {
			return q, 0, broker.Errorf(broker.Precondition, "ttl %q: want a duration from 1s to %s, such as 30m", q.TTL, MaxTokenLife)
		}
	}
	return q, life, nil
}

func token(t Token, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if t.Join == nil {
		t.Join = []string{}
	}
	return t, nil
}
