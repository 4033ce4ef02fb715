package admin

import (
	"context"

	"github.com/tanist/tanist/internal/core/control"
)

// Check is the answer to a question that is yes or no.
type Check struct {
	OK        bool               `json:"ok"`
	Node      string             `json:"node"`      // that answered
	Obstacles []control.Obstacle `json:"obstacles"` // what stands against it, at most control.MaxConditions
	Total     int                `json:"total"`     // how many there are
	// InMemory counts, of quorum-critical, the queues that live in the node's memory alone and end with it: no other node could serve them.
	InMemory int `json:"in_memory"`
}

// Checker is the part of a Backend that answers before and after something is done to a node.
type Checker interface {
	// Healthy says what keeps the cluster from being healthy (control.Unhealthy). It asks all nodes in reach, and waits for nothing else.
	Healthy(ctx context.Context) (Check, error)
	// QuorumCritical says what would stop if a node was stopped now (control.StopsWithout). A *broker.Error with code NotFound: there is
	// no such node.
	QuorumCritical(ctx context.Context, node string) (Check, error)
}

var checkRoutes = []route{
	{
		method: "GET", path: "/api/v1/checks/healthy", response: Check{},
		summary: "Whether all nodes live, and all partitions are served with every copy caught up and no change of owner pending",
		do:      func(ctx context.Context, b Backend, _ *request) (any, error) { return checked(b.Healthy(ctx)) },
	},
	{
		method: "GET", path: "/api/v1/checks/quorum-critical/{node}", response: Check{},
		summary: "Whether a node can be stopped now without stopping anything else",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			return checked(b.QuorumCritical(ctx, r.path("node")))
		},
	},
}

func checked(c Check, err error) (any, error) {
	c.OK = err == nil && c.Total == 0
	if c.Obstacles == nil {
		c.Obstacles = []control.Obstacle{}
	}
	return c, err
}
