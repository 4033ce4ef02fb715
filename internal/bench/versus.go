package bench

import (
	"context"
	"fmt"
	"slices"
)

// Phase is one load under which two brokers are compared.
type Phase struct {
	Name   string `json:"name"`
	Load   Load   `json:"-"`
	Ours   Result `json:"ours"` // medians over the repeats, figure by figure
	Theirs Result `json:"theirs"`
}

// Budget is a figure of a comparison beside what it is to be.
type Budget struct {
	What   string  `json:"what"`
	Value  float64 `json:"value"`
	Bound  float64 `json:"bound"`
	AtMost bool    `json:"at_most"` // else at least
	Met    bool    `json:"met"`
}

// VersusResult compares two brokers in one run.
type VersusResult struct {
	Repeats int      `json:"repeats"`
	Phases  []Phase  `json:"phases"`
	Budgets []Budget `json:"budgets"`
}

// The rates, in messages a second, at which times to a confirm are compared.
const lowRate, highRate = 1000, 5000

// Versus puts two brokers of three nodes under the same loads, in turn, so that both meet the same machine: as fast as possible without
// and with a consumer, and at fixed rates. With the consumer, publishers are held back by the load's Backlog: all clients are in this
// process, and where they are what limits, its publishers would else take the time that its consumer needs. tell is told of each measurement before it is made.
func Versus(ctx context.Context, ours, theirs Target, l Load, repeats int, tell func(string)) (out VersusResult, err error) {
	out.Repeats = repeats
	base := l
	base.Rate, base.Consumers, base.Backlog, base.Resources = 0, 0, 0, 1
	consuming, low, high := base, base, base
	consuming.Consumers, consuming.Backlog, low.Rate, high.Rate = 1, l.Backlog, lowRate, highRate
	out.Phases = []Phase{
		{Name: "publish", Load: base},
		{Name: "publish-consume", Load: consuming},
		{Name: fmt.Sprint("rate-", lowRate), Load: low},
		{Name: fmt.Sprint("rate-", highRate), Load: high},
	}
	for i := range out.Phases {
		p := &out.Phases[i]
		var of [2][]Result
		for n := range repeats {
			for side, t := range []Target{ours, theirs} {
				load := p.Load
				load.Prefix = fmt.Sprintf("%s-%s-%d", l.Prefix, p.Name, n)
				tell(fmt.Sprintf("%s: %s, %d of %d", p.Name, Redact(t.URLs[0]), n+1, repeats))
				r, err := Throughput(ctx, t, load)
				if err != nil {
					return out, fmt.Errorf("%s: %s: %w", p.Name, Redact(t.URLs[0]), err)
				}
				of[side] = append(of[side], r)
			}
		}
		p.Ours, p.Theirs = medians(of[0]), medians(of[1])
	}
	out.judge()
	return out, nil
}

// medians takes the middle of each figure.
func medians(rs []Result) Result {
	out := rs[0]
	middle := func(of func(*Result) *float64) {
		var all []float64
		for i := range rs {
			all = append(all, *of(&rs[i]))
		}
		slices.Sort(all)
		*of(&out) = all[len(all)/2]
	}
	for _, of := range []func(*Result) *float64{
		func(r *Result) *float64 { return &r.Seconds },
		func(r *Result) *float64 { return &r.Rate }, func(r *Result) *float64 { return &r.Consuming },
		func(r *Result) *float64 { return &r.ConfirmP50 }, func(r *Result) *float64 { return &r.ConfirmP99 },
		func(r *Result) *float64 { return &r.ConfirmMax }, func(r *Result) *float64 { return &r.LongestGap },
		func(r *Result) *float64 { return &r.CPUPerMessage }, func(r *Result) *float64 { return &r.ClientPerMsg }, func(r *Result) *float64 { return &r.WrittenPayload },
		func(r *Result) *float64 { return &r.DiskPayload }, func(r *Result) *float64 { return &r.Syncs },
		func(r *Result) *float64 { return &r.MessagesPerSync }, func(r *Result) *float64 { return &r.ResidentMiB },
	} {
		middle(of)
	}
	out.Confirmed, out.Consumed, out.Nacked = 0, 0, 0
	for _, r := range rs {
		out.Confirmed += r.Confirmed
		out.Consumed += r.Consumed
		out.Nacked += r.Nacked
	}
	return out
}

// judge holds the figures against the budgets of three nodes with three copies.
func (v *VersusResult) judge() {
	publish, consume, low, high := &v.Phases[0], &v.Phases[1], &v.Phases[2], &v.Phases[3]
	least := func(what string, value, bound float64) {
		v.Budgets = append(v.Budgets, Budget{what, value, bound, false, value >= bound})
	}
	most := func(what string, value, bound float64) {
		v.Budgets = append(v.Budgets, Budget{what, value, bound, true, value <= bound})
	}
	least("confirmed rate over theirs", publish.Ours.Rate/publish.Theirs.Rate, 5)
	most("broker CPU a message, µs, over all nodes", publish.Ours.CPUPerMessage, 30)
	most("bytes written over all nodes, a payload byte of one copy", publish.Ours.WrittenPayload/3, 1.3)
	least("consumed rate over theirs", consume.Ours.Consuming/consume.Theirs.Consuming, 6)
	least("consumed over confirmed rate", consume.Ours.Consuming/consume.Ours.Rate, 0.99)
	most(fmt.Sprintf("confirm p50 over theirs at %d/s", lowRate), low.Ours.ConfirmP50/low.Theirs.ConfirmP50, 0.5)
	most(fmt.Sprintf("confirm p99 over theirs at %d/s", lowRate), low.Ours.ConfirmP99/low.Theirs.ConfirmP99, 0.5)
	most(fmt.Sprintf("confirm p50, ms, at %d/s", highRate), high.Ours.ConfirmP50, 5)
	least(fmt.Sprintf("rate held at %d/s", highRate), high.Ours.Rate/highRate, 0.98)
}
