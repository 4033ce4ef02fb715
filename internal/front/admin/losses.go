package admin

import (
	"context"
	"strconv"
	"strings"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
)

// Consent is what an operator says to a plan that gives something up.
type Consent struct {
	Plan    string   `json:"plan"`              // the hash of the plan that was seen
	Reason  string   `json:"reason"`            // is kept with the evidence; at most catalog.MaxReason bytes
	Stopped []string `json:"stopped,omitempty"` // nodes that are stopped, by the operator's word
}

// check refuses what was not planned or has no reason. plans is where a plan is to be had.
func (c *Consent) check(plans string) error {
	switch {
	case c.Plan == "":
		return broker.Errorf(broker.Precondition, "no plan is named: POST %s gives one", plans)
	case strings.TrimSpace(c.Reason) == "" || len(c.Reason) > catalog.MaxReason:
		return broker.Errorf(broker.Precondition, "a reason of 1 to %d bytes is needed: it is kept with the evidence", catalog.MaxReason)
	}
	return nil
}

// LossQuery names a partition of which copies are missing. Partition may be left out where there is one.
type LossQuery struct {
	VHost     string  `json:"vhost"`
	Resource  string  `json:"resource"`
	Partition *uint32 `json:"partition,omitempty"`
}

// LossRequest asks for a plan to be carried out.
type LossRequest struct {
	LossQuery
	Consent
}

// LossPlan is what giving up on the missing copies of a partition would do (design 2 §8). Nodes are named for copies.
type LossPlan struct {
	Plan      string `json:"plan"` // its hash, which accept-loss takes; it changes with everything that decides
	VHost     string `json:"vhost"`
	Resource  string `json:"resource"`
	Kind      string `json:"kind"`
	Partition uint32 `json:"partition"`
	// Against says why nothing can be given up; where it is there, there is no more than that.
	Against   string `json:"against,omitempty"`
	Epoch     uint64 `json:"epoch"` // in force
	Owner     string `json:"owner"` // of that epoch
	Candidate string `json:"candidate"`
	// From is where what may be gone begins, and the new owner's history: what its copy holds below it stays.
	From       uint64 `json:"from"` // position
	FromOffset uint64 `json:"from_offset"`
	// To is the position that ends what may be gone: the highest that anyone reported as confirmed. That of From where nothing confirmed is
	// known to be gone. What was confirmed after that report is gone too.
	To         uint64 `json:"to"`
	Entries    uint64 `json:"entries"`                  // that are known to be gone, settles and other events counted
	ReportedBy string `json:"reported_by,omitempty"`    // who reported To
	ReportedAt int64  `json:"reported_at_ms,omitempty"` // milliseconds since 1970, on the controller's clock
	// Followers hold all that the candidate does. Learners follow it once they have caught up; of them Missing have not answered.
	Followers []string `json:"followers"`
	Learners  []string `json:"learners"`
	Missing   []string `json:"missing"`
	// MustBeStopped are the missing nodes that could go on confirming if they run: accept-loss wants the word that they do not.
	MustBeStopped []string `json:"must_be_stopped"`
	// Notes say which answers do not count, and why.
	Notes []string `json:"notes"`
}

// LossDone is what became of an accepted loss.
type LossDone struct {
	Transition string   `json:"transition"` // its evidence has the workflow loss-window
	Done       LossPlan `json:"done"`
}

// MaxLosses is how many partitions one plan gives up on at the most.
const MaxLosses = 1000

// LossesPlan is what giving up on the missing copies of everything that waits for them would do.
type LossesPlan struct {
	Plan string `json:"plan"` // hash of all of Plans; "" where there is none
	// Plans are those that can go on, and Left those that cannot: Against says why. Both by virtual host, resource and partition; together they are at
	// most MaxLosses.
	Plans []LossPlan `json:"plans"`
	Left  []LossPlan `json:"left"`
	More  int        `json:"more"` // that wait too, and are left for the next plan
	// MustBeStopped are the missing nodes that one of them could go on confirming with.
	MustBeStopped []string `json:"must_be_stopped"`
}

// LossesDone is what became of it. Each partition is given up on by itself, with evidence of its own.
type LossesDone struct {
	Done    []LossDone `json:"done"`
	Refused []LossPlan `json:"refused"` // Against says why
}

// Losses is the part of a Backend that goes on with less, by an operator's decision. Errors are *broker.Error: NotFound, Unavailable (ask
// again), and Precondition, which says what has to be done first.
type Losses interface {
	// PlanLoss changes nothing.
	PlanLoss(ctx context.Context, q LossQuery) (LossPlan, error)
	// AcceptLoss is refused where the plan is another by now, and where a node must be stopped that was not named. Where the answer is lost,
	// or the error is Unavailable, it may have been done: a plan then says that nothing has to be given up.
	AcceptLoss(ctx context.Context, q LossRequest) (LossDone, error)
	// PlanLosses is PlanLoss of all that waits: of every partition for which no owner can be chosen, and of every one whose owner reaches too few
	// copies to confirm anything. It changes nothing.
	PlanLosses(ctx context.Context) (LossesPlan, error)
	// AcceptLosses is AcceptLoss of all that PlanLosses plans. It is refused as a whole where the plan is another by now; one that is refused then
	// does not refuse the others.
	AcceptLosses(ctx context.Context, q Consent) (LossesDone, error)
}

var lossRoutes = []route{
	{
		method: "POST", path: "/api/v1/plans/accept-loss", request: LossQuery{}, response: LossPlan{},
		summary: "Say what giving up on a partition's missing copies would do, and what may be gone; changes nothing",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var q LossQuery
			if err := r.body(&q); err != nil {
				return nil, err
			}
			p, err := b.PlanLoss(ctx, q)
			return p.listed(), err
		},
	},
	{
		method: "POST", path: "/api/v1/accept-loss", request: LossRequest{}, response: LossDone{},
		summary: "Give up on a partition's missing copies, as planned",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var q LossRequest
			if err := r.body(&q); err != nil {
				return nil, err
			}
			if err := q.check("/api/v1/plans/accept-loss"); err != nil {
				return nil, err
			}
			d, err := b.AcceptLoss(ctx, q)
			d.Done = d.Done.listed()
			return d, err
		},
	},
	{
		method: "POST", path: "/api/v1/plans/accept-losses", response: LossesPlan{},
		summary: "Say what giving up on the missing copies of all that waits for some would do; changes nothing",
		do: func(ctx context.Context, b Backend, _ *request) (any, error) {
			p, err := b.PlanLosses(ctx)
			p.Plans, p.Left, p.MustBeStopped = listedPlans(p.Plans), listedPlans(p.Left), append([]string{}, p.MustBeStopped...)
			return p, err
		},
	},
	{
		method: "POST", path: "/api/v1/accept-losses", request: Consent{}, response: LossesDone{},
		summary: "Give up on the missing copies of all that waits for some, as planned",
		do: func(ctx context.Context, b Backend, r *request) (any, error) {
			var q Consent
			if err := r.body(&q); err != nil {
				return nil, err
			}
			if err := q.check("/api/v1/plans/accept-losses"); err != nil {
				return nil, err
			}
			d, err := b.AcceptLosses(ctx, q)
			d.Done, d.Refused = append([]LossDone{}, d.Done...), listedPlans(d.Refused)
			for i := range d.Done {
				d.Done[i].Done = d.Done[i].Done.listed()
			}
			return d, err
		},
	},
}

func listedPlans(of []LossPlan) []LossPlan {
	out := append([]LossPlan{}, of...)
	for i := range out {
		out[i] = out[i].listed()
	}
	return out
}

// Command is the verb that carries the plan out, as a shell reads it, with TEXT for the reason; not to be used where Against says why there is no plan.
func (p LossPlan) Command() string {
	verb := "tanist accept-loss " + Target(p.VHost, p.Resource)
	if p.Partition > 0 {
		verb += " --partition " + strconv.Itoa(int(p.Partition))
	}
	return carryOut(verb, p.Plan, p.MustBeStopped)
}

// Command is as of LossPlan.
func (p LossesPlan) Command() string {
	return carryOut("tanist accept-loss --all-waiting", p.Plan, p.MustBeStopped)
}

// Target names a queue or stream in a verb, as a shell reads it.
func Target(vhost, resource string) string {
	target := control.Quoted(resource)
	if vhost != catalog.DefaultVHost {
		target += " --vhost " + control.Quoted(vhost)
	}
	return target
}

func carryOut(verb, plan string, stopped []string) string {
	verb += " --plan " + plan + " --reason TEXT"
	if len(stopped) > 0 {
		verb += " --stopped " + strings.Join(stopped, ",")
	}
	return verb
}

// listed keeps empty lists from being null.
func (p LossPlan) listed() LossPlan {
	for _, l := range []*[]string{&p.Followers, &p.Learners, &p.Missing, &p.MustBeStopped, &p.Notes} {
		if *l == nil {
			*l = []string{}
		}
	}
	return p
}
