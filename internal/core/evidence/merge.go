package evidence

import (
	"slices"

	"github.com/tanist/tanist/internal/core/ident"
)

// Facts is what a copy knows of what became of the transition to an epoch of a partition: a record without an id. Whoever has the record
// itself takes it in with Merge.
func Facts(p ident.Partition, epoch uint64, b Became) *Evidence {
	return &Evidence{Decided: Decided{Partition: p, After: Reign{Epoch: epoch}}, Became: b}
}

// Kept reports whether the copy that owned before owns on: after a restart, or a suspicion that was wrong. Only the epoch is another.
func (e *Evidence) Kept() bool {
	b, a := e.Before.Owner, e.After.Owner
	return a.Node != "" && a.Node == b.Node && a.Store == b.Store
}

// FactsOnly reports whether a record says only what became of a transition.
func (e *Evidence) FactsOnly() bool { return e.ID == "" }

// Merge is what two say of what became of the same transition, and whether that is more than b alone. The order in which words come does
// not matter, nor how often: of two times the earlier counts, of two ends of a cut the one that cut more.
func (b Became) Merge(o Became) (Became, bool) {
	m := b
	if rank(o.Outcome) > rank(b.Outcome) {
		m.Outcome, m.Reason = o.Outcome, o.Reason
	} else if o.Outcome == b.Outcome {
		m.Reason = max(b.Reason, o.Reason)
	}
	m.Committed, m.Serving, m.FirstConfirm = first(b.Committed, o.Committed), first(b.Serving, o.Serving), first(b.FirstConfirm, o.FirstConfirm)
	m.Cuts = slices.Clone(b.Cuts)
	for _, c := range o.Cuts {
		m.Cuts = mergeCut(m.Cuts, c)
	}
	m.Cuts = (&Evidence{Became: m}).canonical().Cuts
	same := m.Outcome == b.Outcome && m.Reason == b.Reason && m.Committed == b.Committed && m.Serving == b.Serving &&
		m.FirstConfirm == b.FirstConfirm && slices.Equal(m.Cuts, (&Evidence{Became: b}).canonical().Cuts)
	return m, !same
}

// rank orders outcomes: that of the catalog's commit stands over every other word.
func rank(o Outcome) int { return slices.Index([]Outcome{"", Refused, Cancelled, Committed}, o) }

func first(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

func mergeCut(cuts []Cut, c Cut) []Cut {
	i := slices.IndexFunc(cuts, func(x Cut) bool { return x.Node == c.Node && x.Store == c.Store })
	if i < 0 {
		return append(cuts, c)
	}
	x := &cuts[i]
	x.From, x.To, x.Quarantined = min(x.From, c.From), max(x.To, c.To), x.Quarantined || c.Quarantined
	return cuts
}
