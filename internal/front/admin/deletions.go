package admin

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/tanist/tanist/internal/core/broker"
)

// DeletionQuery names a queue or stream that cannot be served.
type DeletionQuery struct {
	VHost    string `json:"vhost"`
	Resource string `json:"resource"`
}

// DeletionRequest asks for a plan to be carried out.
type DeletionRequest struct {
	DeletionQuery
	Consent // its reason is kept with the deletion too
}

// DeletionPlan is what deleting a queue or stream by force would give up. Nodes are named for copies.
type DeletionPlan struct {
	Plan        string `json:"plan"` // its hash, which the deletion takes; it changes with everything that decides
	VHost       string `json:"vhost"`
	Resource    string `json:"resource"`
	Kind        string `json:"kind"`
	Incarnation uint64 `json:"incarnation"` // names it once it is deleted
	// Against says why it cannot be deleted by force; where it is there, Plan is not.
	Against    string    `json:"against,omitempty"`
	Partitions []PartEnd `json:"partitions"`
	// MustBeStopped are the missing nodes that could go on confirming if they run: the deletion wants the word that they do not.
	MustBeStopped []string `json:"must_be_stopped"`
}

// PartEnd is how one partition of it stands.
type PartEnd struct {
	Partition  uint32   `json:"partition"`
	Epoch      uint64   `json:"epoch"` // in force
	Owner      string   `json:"owner"` // of that epoch
	Served     bool     `json:"served"`
	Confirmed  uint64   `json:"confirmed"`             // the highest position that anyone reported as confirmed
	ReportedBy string   `json:"reported_by,omitempty"` // who did
	Left       []string `json:"left"`                  // sound copies that have answered: "tanist plan accept-loss" would go on with one
	Missing    []string `json:"missing"`               // copies that have not answered
}

// Deletion is a forced deletion that is remembered.
type Deletion struct {
	Incarnation uint64      `json:"incarnation"`
	VHost       string      `json:"vhost"`
	Resource    string      `json:"resource"`
	Kind        string      `json:"kind"`
	At          int64       `json:"at"` // milliseconds since 1970
	Reason      string      `json:"reason"`
	Stopped     []string    `json:"stopped"` // nodes that were stopped, by the operator's word
	Held        []string    `json:"held"`    // nodes that had a copy when it went
	Aside       []AsideCopy `json:"aside"`   // copies that are put aside, on nodes that answer
}

// AsideCopy is a copy that is kept, and not served.
type AsideCopy struct {
	Node      string `json:"node"`
	Partition uint32 `json:"partition"`
	Position  uint64 `json:"position"` // of its end
	Bytes     uint64 `json:"bytes"`    // in its log
	Damaged   string `json:"damaged,omitempty"`
}

// Compare orders by node, then partition.
func (x AsideCopy) Compare(y AsideCopy) int {
	return cmp.Or(strings.Compare(x.Node, y.Node), cmp.Compare(x.Partition, y.Partition))
}

// Deleter is the part of a Backend that deletes what cannot be served, by an operator's decision. Errors are *broker.Error: NotFound, Unavailable
// (ask again), and Precondition, which says what has to be done first.
type Deleter interface {
	// PlanDeletion changes nothing.
	PlanDeletion(ctx context.Context, q DeletionQuery) (DeletionPlan, error)
	// ForceDelete is refused where the plan is another by now, and where a node must be stopped that was not named. Where the answer is lost,
	// or the error is Unavailable, it may have been done: Deletions tell.
	ForceDelete(ctx context.Context, q DeletionRequest) (DeletionPlan, error)
	// Deletions are those that are remembered, by incarnation.
	Deletions(ctx context.Context) ([]Deletion, error)
	// ForgetDeletion drops what was put aside for one, here and on nodes that return later. There is no way back.
	ForgetDeletion(ctx context.Context, incarnation uint64) error
}

var deletionRoutes = []route{
	{
		method: "POST", path: "/api/v1/plans/delete", request: DeletionQuery{}, response: DeletionPlan{},
		summary: "Say what deleting a queue or stream that cannot be served would give up; changes nothing",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var q DeletionQuery
			if err := r.body(&q); err != nil {
				return nil, err
			}
			p, err := b.PlanDeletion(ctx, q)
			return p.listed(), err
		},
	},
	{
		method: "POST", path: "/api/v1/deletions", request: DeletionRequest{}, response: DeletionPlan{},
		summary: "Delete a queue or stream that cannot be served, as planned",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var q DeletionRequest
			if err := r.body(&q); err != nil {
				return nil, err
			}
			if err := q.check("/api/v1/plans/delete"); err != nil {
				return nil, err
			}
			p, err := b.ForceDelete(ctx, q)
			return p.listed(), err
		},
	},
	{
		method: "GET", path: "/api/v1/deletions", summary: "Queues and streams that were deleted by force, and the copies put aside", response: []Deletion{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) {
			all, err := b.Deletions(ctx)
			for i := range all {
				d := &all[i]
				d.Stopped, d.Held, d.Aside = append([]string{}, d.Stopped...), append([]string{}, d.Held...), append([]AsideCopy{}, d.Aside...)
			}
			return list(all, err)
		},
	},
	{
		method: "DELETE", path: "/api/v1/deletions/{incarnation}", summary: "Forget a forced deletion, and drop the copies that were put aside for it",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			n, err := strconv.ParseUint(r.path("incarnation"), 10, 64)
			if err != nil {
				return nil, broker.Errorf(broker.Precondition, "%q is not the number of a deletion; GET /api/v1/deletions shows them", r.path("incarnation"))
			}
			return nil, b.ForgetDeletion(ctx, n)
		},
	},
}

// Command is as of LossPlan.
func (p DeletionPlan) Command() string {
	return carryOut("tanist delete "+Target(p.VHost, p.Resource), p.Plan, p.MustBeStopped)
}

// listed keeps empty lists from being null.
func (p DeletionPlan) listed() DeletionPlan {
	p.MustBeStopped = append([]string{}, p.MustBeStopped...)
	p.Partitions = append([]PartEnd{}, p.Partitions...)
	for i := range p.Partitions {
		e := &p.Partitions[i]
		e.Left, e.Missing = append([]string{}, e.Left...), append([]string{}, e.Missing...)
	}
	return p
}
