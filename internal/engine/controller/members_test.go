package controller

import (
	"errors"
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
		Propose: func(uint64, []byte, func(error)) {},
		Voters:  func(done func(Members)) { done(Members{Self: 7, Voters: []uint64{2, 7}}) },
		SeatOf:  func(s ident.StoreID) uint64 { return uint64(s[0]) },
		ChangeVoters: func(change control.VoterChange, done func(error)) {
			changes = append(changes, change)
			done(nil)
		},
		Settled: func([]Waiting) {},
	})
	c.Leads(1, true)
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

// A voter that is away gives its vote to another node when it has been away for voter_replace_after, by a timer of the controller's own.
func TestAVoterThatStaysAwayIsReplaced(t *testing.T) {
	sim := exec.NewSim(1)
	state, node := catalog.New(), sim.Node("a", 1)
	var moves []control.VoterChange
	m := Members{Self: 1, Voters: []uint64{1, 2, 3}, Learners: []uint64{4}, Ready: []uint64{4}}
	names := []string{"a", "b", "c", "d"}
	store := func(i int) ident.StoreID { return ident.StoreID{byte(i + 1)} }
	c := New(Env{
		Loop: node.Loop(0), Clock: clock.NewSim(sim.Now, time.UnixMilli(1_000_000)), Trace: trace.Discard, Local: ident.Instance{Node: "a", Store: store(0), Boot: 1},
		View: func(f func(*catalog.View)) { f(state.View()) }, Settled: func([]Waiting) {},
		Propose: func(_ uint64, _ []byte, done func(error)) { done(nil) },
		Voters:  func(done func(Members)) { done(m) },
		SeatOf:  func(s ident.StoreID) uint64 { return uint64(s[0]) },
		ChangeVoters: func(change control.VoterChange, done func(error)) {
			moves = append(moves, change)
			done(errors.New("not in this test"))
		},
	})
	items := catalog.Bootstrap(ident.StoreID{9}, "hash")
	for i, name := range names {
		items = append(items, catalog.RegisterBoot(catalog.Node{Name: name, Store: store(i), Boot: 1}))
	}
	items = append(items, catalog.PutSetting(catalog.VoterReplaceAfter, "1m", 0), catalog.NoteAbsent("c", store(2), 1, 1_000_000))
	cmd, err := catalog.Encode(items...)
	if err != nil {
		t.Fatal(err)
	}
	if r, _, err := state.Apply(1, cmd); err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	c.Apply(state.Changes())
	for _, i := range []int{1, 3} {
		c.PeerUp(ident.Instance{Node: names[i], Store: store(i), Boot: 1})
	}
	c.Leads(1, true)
	var beat func()
	beat = func() {
		for _, i := range []int{0, 1, 3} {
			c.Beat(control.Beat{From: ident.Instance{Node: names[i], Store: store(i), Boot: 1}})
		}
		sim.At(sim.Now()+500*time.Millisecond, beat)
	}
	beat()
	sim.RunFor(59 * time.Second)
	if len(moves) > 0 {
		t.Fatalf("it is replaced too soon: %v", moves)
	}
	sim.RunFor(2 * time.Second)
	if len(moves) == 0 || moves[0] != (control.VoterChange{Move: control.AddVoter, ID: 4}) {
		t.Fatalf("after a minute: %v", moves)
	}
}
