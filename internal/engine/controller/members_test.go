package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// TestNobodyIsRemovedForACatalogThatWasNotReadYet has a controller lead before it is told the catalog, as one does whose node has just
// started: a voter that it does not know of yet keeps its seat.
func TestNobodyIsRemovedForACatalogThatWasNotReadYet(t *testing.T) {
	sim := exec.NewSim(1)
	state, local := catalog.New(), ident.Instance{Node: "n1", Store: ident.StoreID{7}, Boot: 2}
	view := catalog.NewView()
	var changes []control.VoterChange
	c := New(Env{
		Loop: sim.Node("n1", 1).Loop(0), Clock: clock.NewSim(sim.Now, time.UnixMilli(0)), Trace: trace.Discard, Local: local,
		View:    func(f func(*catalog.View)) { f(view) },
		Propose: func([]byte, func(error)) {},
		Voters:  func(done func(Members)) { done(Members{Self: 7, Voters: []uint64{2, 7}}) },
		SeatOf:  func(s ident.StoreID) uint64 { return uint64(s[0]) },
		ChangeVoters: func(change control.VoterChange, done func(error)) {
			changes = append(changes, change)
			done(nil)
		},
		Settled: func([]Waiting) {},
	})
	c.Leads(true)
	c.PeerUp(ident.Instance{Node: "n2", Store: ident.StoreID{2}, Boot: 1})
	sim.RunFor(5 * time.Second)
	if len(changes) > 0 {
		t.Fatalf("changed without a catalog: %+v", changes[0])
	}
	items := append(catalog.Bootstrap(ident.StoreID{9}, "hash"),
		catalog.RegisterBoot(catalog.Node{Name: "n1", Store: ident.StoreID{7}, Boot: 2}),
		catalog.RegisterBoot(catalog.Node{Name: "n2", Store: ident.StoreID{2}, Boot: 1}),
		catalog.RegisterBoot(catalog.Node{Name: "n3", Store: ident.StoreID{3}, Boot: 1}))
	cmd, err := catalog.Encode(items...)
	if err != nil {
		t.Fatal(err)
	}
	if r, _, err := state.Apply(1, cmd); err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	view = state.View()
	c.Apply(state.Changes())
	sim.RunFor(5 * time.Second)
	if len(changes) == 0 || changes[0] != (control.VoterChange{Move: control.AddLearner, ID: 3}) {
		t.Fatalf("with the catalog: %d changes, the first %+v", len(changes), slices.Concat(changes, make([]control.VoterChange, 1))[0])
	}
}
