package control

import (
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
)

// EvidenceOf is the record of a failover that was chosen, from what Choose went by: the input with the assignment and its pending
// transition, and the decision. r is its resource, floorBy who reported the input's floor. Members that did not answer are excluded with that
// reason. Times but that of the suspicion are the caller's to set, before the digest is taken.
func EvidenceOf(r *catalog.Resource, in Input, d Decision, floorBy string) *evidence.Evidence {
	a := in.Assignment
	e := &evidence.Evidence{Decided: evidence.Decided{
		Workflow: evidence.Failover, Partition: a.Partition, VHost: r.VHost, Resource: r.Name, Kind: r.Kind,
		Before: evidence.Reign{Owner: a.Owner, Epoch: a.Epoch}, Version: a.Version, Policy: a.Policy,
		E: a.Eligible(), W: in.W, R: readQuorum(a, in.W), Floor: evidence.Floor{Position: d.Floor},
	}}
	if p := a.Pending; p != nil {
		e.ID, e.Cause, e.SeenBy, e.After.Epoch, e.Suspected = p.ID, p.Cause, p.By, p.Epoch, p.Suspected
	}
	if d.Verdict == Chosen {
		e.After.Owner, e.Start = d.Owner, placeOf(d.Start)
	}
	if a.Pending != nil {
		e.Floor.By = floorFrom(in, d, floorBy)
	}
	answered := map[string]bool{}
	for _, x := range in.Answers {
		at := catalog.HistoryStart{Epoch: x.Tail.Epoch, Position: x.Tail.Position, Offset: x.Tail.Offset, Link: x.Tail.Link}
		clipped := at
		if a.Pending != nil {
			clipped = Clip(a.Starts, x.Tail, a.Pending.Epoch)
		}
		e.Answers = append(e.Answers, evidence.Answer{
			From: x.Instance, End: placeOf(at), Clipped: clipped.Position, Confirmed: x.Confirmed, Health: x.Damaged,
		})
		answered[x.Instance.Node] = true
		e.LastConfirm = max(e.LastConfirm, x.LastConfirm)
	}
	for _, x := range d.Excluded {
		e.Exclusions = append(e.Exclusions, evidence.Exclusion{Node: x.Answer.Instance.Node, Store: x.Answer.Instance.Store, Reason: x.Reason})
	}
	for _, m := range asked(a) {
		if !answered[m.Node] {
			e.Exclusions = append(e.Exclusions, evidence.Exclusion{Node: m.Node, Store: m.Store, Reason: "did not answer"})
		}
	}
	return e
}

func placeOf(s catalog.HistoryStart) evidence.Place {
	return evidence.Place{Epoch: s.Epoch, Position: s.Position, Offset: s.Offset, Link: evidence.Link(s.Link)}
}
