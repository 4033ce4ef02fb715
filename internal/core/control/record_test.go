package control

import (
	"reflect"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

// The record says what the choice went by: every answer, what did not count and why, and the floor with who reported it.
func TestTheRecordOfAChoice(t *testing.T) {
	a := three(4, catalog.HistoryStart{Epoch: 1}, catalog.HistoryStart{Epoch: 4, Position: 100})
	a.Version, a.Policy, a.Pending.Cause = 9, "majority_durable", "why"
	old := answer(instance("b", 1), tail(3, 120, 1)) // an older owner's end
	last := answer(instance("c", 1), tail(4, 110, 2))
	last.Confirmed = 105
	lost := answer(instance("d", 1), tail(4, 900, 3))
	r := &catalog.Resource{VHost: "/", Name: "q", Kind: catalog.Queue}
	in := Input{Assignment: a, W: 2, Floor: 101, Answers: []Answer{old, last, lost}}
	d := Choose(in)
	e := EvidenceOf(r, in, d, "a")
	if e.ID != "t" || e.Workflow != evidence.Failover || e.Cause != "why" || e.E != 3 || e.W != 2 || e.R != 2 || e.Version != 9 {
		t.Errorf("%+v", e)
	}
	if e.Before.Epoch != 4 || e.Before.Owner != a.Owner || e.After.Epoch != 5 {
		t.Errorf("reigns: %+v %+v", e.Before, e.After)
	}
	if e.Start != (evidence.Place{}) || !reflect.DeepEqual(e.After, evidence.Reign{Epoch: 5}) {
		t.Errorf("nobody is chosen before the furthest was asked: %+v, from %+v", e.After, e.Start)
	}
	in.Said, in.Links = last.Instance, map[uint64]batch.Link{100: {}}
	if e = EvidenceOf(r, in, Choose(in), "a"); e.Start != (evidence.Place{Epoch: 5, Position: 110, Offset: 110, Link: evidence.Link{2}}) || e.After.Owner != last.Instance {
		t.Errorf("it starts at %+v", e.Start)
	}
	in.Floor = 108
	if e = EvidenceOf(r, in, Choose(in), "a"); e.Floor != (evidence.Floor{Position: 108, By: "a"}) {
		t.Errorf("the floor of a heartbeat: %+v", e.Floor)
	}
	in.Floor = 101
	if e = EvidenceOf(r, in, Choose(in), "a"); len(e.Answers) != 3 || e.Answers[0].End.Position != 120 || e.Answers[0].Clipped != 100 || e.Answers[1].Clipped != 110 {
		t.Errorf("answers: %+v", e.Answers)
	}
	want := []evidence.Exclusion{
		{Node: "d", Store: ident.StoreID{'d'}, Reason: "its store is not admitted"}, {Node: "a", Store: ident.StoreID{'a'}, Reason: "did not answer"},
	}
	if !reflect.DeepEqual(e.Exclusions, want) || e.Floor != (evidence.Floor{Position: 105, By: "c"}) {
		t.Errorf("excluded %+v, floor %+v", e.Exclusions, e.Floor)
	}
}
