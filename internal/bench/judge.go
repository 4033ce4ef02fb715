package bench

import (
	"slices"
	"time"
)

// Phases are when the steps of a change of owner were done, in milliseconds since the kill, each that of the resource where it was done
// last. What nobody has recorded is 0. A suspicion is as old as its symptom: with a halted node, the last that was heard of it, which may
// be before it was halted.
type Phases struct {
	killed       time.Time
	Transitions  int     `json:"transitions"`
	Suspected    float64 `json:"suspected_ms"`
	Recorded     float64 `json:"recorded_ms"`
	Sealed       float64 `json:"sealed_ms"`
	Chosen       float64 `json:"chosen_ms"`
	Committed    float64 `json:"committed_ms"`
	Serving      float64 `json:"serving_ms"`
	FirstConfirm float64 `json:"first_confirm_ms"`
	Cut          uint64  `json:"cut_entries"` // of all copies of all resources
}

// take reads the evidence of changes of owner that ended after the kill. It reports whether there was any. Of each resource the first
// counts: a node that comes back may cause another.
func (p *Phases) take(story []Transition) bool {
	first := map[string]Transition{}
	for _, t := range story {
		if t.Committed == 0 || t.Committed < p.killed.UnixMicro() {
			continue
		}
		if was, ok := first[t.Resource]; !ok || t.Committed < was.Committed {
			first[t.Resource] = t
		}
	}
	since := func(to *float64, at int64) {
		if ms := float64(at-p.killed.UnixMicro()) / 1000; at != 0 && (*to == 0 || ms > *to) {
			*to = ms
		}
	}
	for _, t := range first {
		p.Transitions++
		since(&p.Suspected, t.Suspected)
		since(&p.Recorded, t.Recorded)
		since(&p.Sealed, t.Sealed)
		since(&p.Chosen, t.Chosen)
		since(&p.Committed, t.Committed)
		since(&p.Serving, t.Serving)
		since(&p.FirstConfirm, t.FirstConfirm)
		for _, c := range t.Cuts {
			p.Cut += c.To - c.From
		}
	}
	return p.Transitions > 0
}

// Median is the middle of a figure over runs; of an even number, the higher of the two. Of none it is 0.
func Median(runs []FailoverRun, of func(FailoverRun) float64) float64 {
	all := figures(runs, of)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2]
}

// Most is the highest of a figure over runs; of none it is 0.
func Most(runs []FailoverRun, of func(FailoverRun) float64) float64 {
	all := figures(runs, of)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}

func figures(runs []FailoverRun, of func(FailoverRun) float64) (all []float64) {
	for _, r := range runs {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all
}

// Figures of a run.
func pauseBefore(r FailoverRun) float64 { return r.Before }
func pauseAfter(r FailoverRun) float64  { return r.Pause }
func allServe(r FailoverRun) float64    { return r.Served }
func reconnected(r FailoverRun) float64 { return r.Reconnected }

// Judge holds what came of a plan against the budgets of failover: three nodes, three copies, majority.
func (p Plan) Judge(runs []FailoverRun) (out []Budget) {
	most := func(what string, value, bound float64) {
		out = append(out, Budget{what, value, bound, true, value <= bound})
	}
	sum := func(of func(account AllTotals) int64) (n float64) {
		for _, r := range runs {
			n += float64(of(r.Books))
		}
		return n
	}
	switch many := p.Resources > 3; {
	case p.Kill == Own:
		most("pause after reconnecting, ms, max", Most(runs, reconnected), 300)
	case p.Kill == Follower:
		most("longest pause, ms, over that before the kill", Most(runs, pauseAfter)/Most(runs, pauseBefore), 1)
	case p.Kill == Controller: // clients have no business with it; the counts below are theirs
	case p.Halt:
		most("longest pause, ms, max", Most(runs, pauseAfter), 2500)
	case many && p.Resources <= 100:
		most("all serve, ms, max", Most(runs, allServe), 500)
	case many:
		most("all serve, ms, max", Most(runs, allServe), 1000)
	case p.Kill == OwnerController:
		most("longest pause, ms, median", Median(runs, pauseAfter), 200)
		most("longest pause, ms, max", Most(runs, pauseAfter), 500)
	default:
		most("longest pause, ms, median", Median(runs, pauseAfter), 100)
		most("longest pause, ms, max", Most(runs, pauseAfter), 300)
	}
	if p.Kill == Follower || p.Kill == Controller {
		most("changed epochs", Most(runs, func(r FailoverRun) float64 { return float64(r.Moved) }), 0)
	} else {
		most("owners that were not replaced", Most(runs, func(r FailoverRun) float64 { return float64(p.Resources - r.Moved) }), 0)
	}
	most("lost", sum(func(t AllTotals) int64 { return t.Lost + t.Damaged }), 0)
	most("duplicate, reordered, moved offsets", sum(func(t AllTotals) int64 { return t.Duplicate + t.Reordered + t.Moved }), 0)
	most("without an outcome, or with two", sum(func(t AllTotals) int64 { return t.Unsettled + t.Twice }), 0)
	if p.Kill != Own { // there, what was not confirmed yet is unknown, as it must be
		most("unknown, nacked", sum(func(t AllTotals) int64 { return t.Unknown + t.Nacked }), 0)
		closed := 0.0
		for _, r := range runs {
			closed += float64(r.Closed)
		}
		most("closed connections", closed, 0)
	}
	return out
}
