package admin

import (
	"context"
	"strconv"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
)

// Bounds of a list of transitions.
const (
	DefaultTransitions = 50
	MaxTransitions     = evidence.DefaultTotal // that a node keeps
)

// Which chooses resources; what is empty chooses all.
type Which struct{ VHost, Resource string }

// Matches reports whether a resource is chosen.
func (w Which) Matches(vhost, resource string) bool {
	return (w.VHost == "" || w.VHost == vhost) && (w.Resource == "" || w.Resource == resource)
}

// Attention is what needs a person. Source: design 6 "Attention".
type Attention struct {
	Conditions []control.Condition `json:"conditions"` // the most pressing first, at most control.MaxConditions
	Total      int                 `json:"total"`      // how many there are
	Needing    int                 `json:"needing"`    // of them; the others, which come last, need nobody
	Node       string              `json:"node"`       // that answered
	// Silent are nodes that said nothing of themselves: what only they know is missing.
	Silent []string `json:"silent,omitempty"`
}

// Recorder is the part of a Backend that tells of changes of owner, and of what needs a person.
type Recorder interface {
	// Transitions are the evidence of the last n transitions of the resources chosen, the newest first, as this node keeps it: that of a
	// resource which was deleted since, too. The records are shared and must not be changed.
	Transitions(ctx context.Context, of Which, n int) ([]*evidence.Evidence, error)
	// Transition is the evidence of one transition. A *broker.Error with code NotFound: this node keeps none of that id.
	Transition(ctx context.Context, id string) (*evidence.Evidence, error)
	// Attention is what needs a person, drawn from what the nodes in reach say of themselves now.
	Attention(ctx context.Context) (Attention, error)
}

var recorderRoutes = []route{
	{
		method: "GET", path: "/api/v1/transitions", summary: "Changes of owner, the newest first, with what they were decided on",
		query: append([]parameter{
			{"n", "at most so many; " + strconv.Itoa(DefaultTransitions) + " if nothing is said, " + strconv.Itoa(MaxTransitions) + " at most"},
		}, byName...), response: []*evidence.Evidence{}, do: getTransitions,
	},
	{
		method: "GET", path: "/api/v1/transitions/{id}", summary: "One change of owner with what it was decided on", response: &evidence.Evidence{},
		do: func(ctx context.Context, b Backend, r *request) (any, error) { return b.Transition(ctx, r.path("id")) },
	},
	{
		method: "GET", path: "/api/v1/attention", summary: "What needs a person, the most pressing first, each with what would end it", response: Attention{},
		do: func(ctx context.Context, b Backend, _ *request) (any, error) {
			a, err := b.Attention(ctx)
			if a.Conditions == nil {
				a.Conditions = []control.Condition{}
			}
			return a, err
		},
	},
}

func getTransitions(ctx context.Context, b Backend, r *request) (any, error) {
	n := DefaultTransitions
	if text := r.query("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > MaxTransitions {
			return nil, broker.Errorf(broker.Precondition, "n %q: want a number from 1 to %d", text, MaxTransitions)
		}
	}
	return list(b.Transitions(ctx, Which{VHost: r.query("vhost"), Resource: r.query("resource")}, n))
}
