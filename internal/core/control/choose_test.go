package control

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func instance(name string, boot uint64) ident.Instance {
	return ident.Instance{Node: name, Store: ident.StoreID{name[0]}, Boot: boot}
}

func tail(epoch, position uint64, link byte) batch.Tail {
	return batch.Tail{Epoch: epoch, Position: position, Offset: position, Link: batch.Link{link}}
}

func three(epoch uint64, starts ...catalog.HistoryStart) *catalog.Assignment {
	return &catalog.Assignment{
		Partition: ident.Partition{Incarnation: 7}, Epoch: epoch, Owner: instance("a", 1),
		Followers: []catalog.Member{{Node: "b", Store: ident.StoreID{'b'}}, {Node: "c", Store: ident.StoreID{'c'}}},
		Pending:   &catalog.Pending{ID: "t", Epoch: epoch + 1}, Starts: starts,
	}
}

func answer(i ident.Instance, t batch.Tail) Answer {
	return Answer{Transition: "t", Instance: i, Tail: t}
}

func TestOwnerAloneIsEnoughAfterItsRestart(t *testing.T) {
	a := three(3, catalog.HistoryStart{Epoch: 3, Position: 10})
	d := Choose(Input{Assignment: a, W: 2, Answers: []Answer{answer(instance("a", 2), tail(3, 12, 1))}})
	if d.Verdict != Chosen || d.Owner != instance("a", 2) || d.Start.Position != 12 || d.Start.Epoch != 4 {
		t.Fatalf("got %+v", d)
	}
	d = Choose(Input{Assignment: a, W: 2, Answers: []Answer{answer(instance("a", 2), tail(2, 9, 1))}})
	if d.Verdict != Wait {
		t.Fatalf("an owner that lost its own epoch's start was believed alone: %+v", d)
	}
}

func TestOneFollowerOfThreeIsNotEnough(t *testing.T) {
	d := Choose(Input{Assignment: three(1), W: 2, Answers: []Answer{answer(instance("b", 1), tail(1, 12, 1))}})
	if d.Verdict != Wait || !strings.Contains(d.Reason, "1 of 2") {
		t.Fatalf("got %+v", d)
	}
}

// A is owner of epoch 1 at 120 with 100 to 120 unconfirmed; B takes over at 100 and confirms to 110 with C; A rejoins, B dies
// before A applies its role. Raw tails would say A.
func TestAnOlderOwnersLongerEndDoesNotWin(t *testing.T) {
	a := three(2, catalog.HistoryStart{Epoch: 1}, catalog.HistoryStart{Epoch: 2, Position: 100, Offset: 100, Link: batch.Link{9}})
	a.Owner = instance("b", 1)
	a.Followers[0] = catalog.Member{Node: "a", Store: ident.StoreID{'a'}}
	in := Input{Assignment: a, W: 2, Answers: []Answer{answer(instance("a", 1), tail(1, 120, 1)), answer(instance("c", 1), tail(2, 110, 2))}}
	d := Choose(in)
	if d.Verdict != Ask || d.Owner.Node != "c" || len(d.Positions) != 1 || d.Positions[0] != 100 {
		t.Fatalf("got %+v", d)
	}
	in.Said, in.Links = d.Owner, map[uint64]batch.Link{100: {9}}
	if d = Choose(in); d.Verdict != Chosen || d.Owner.Node != "c" || d.Start.Position != 110 {
		t.Fatalf("got %+v", d)
	}
	in.Links = map[uint64]batch.Link{100: {8}}
	if d = Choose(in); d.Verdict != Blocked {
		t.Fatalf("contradictory evidence was resolved: %+v", d)
	}
}

func TestWhatTheFurthestCopyHasDroppedIsNotCompared(t *testing.T) {
	in := Input{Assignment: three(1), W: 2, Answers: []Answer{answer(instance("b", 1), tail(1, 90, 1)), answer(instance("c", 1), tail(1, 20, 2))}}
	if d := Choose(in); d.Verdict != Ask {
		t.Fatalf("got %+v", d)
	}
	in.Said, in.Dropped = instance("b", 1), []uint64{20}
	if d := Choose(in); d.Verdict != Chosen || d.Owner.Node != "b" {
		t.Fatalf("got %+v", d)
	}
	in.Links = map[uint64]batch.Link{20: {9}}
	if d := Choose(in); d.Verdict != Blocked {
		t.Fatalf("got %+v", d)
	}
}

func TestWhatAnotherCopySaidOfItsLinksIsNoEvidence(t *testing.T) {
	in := Input{
		Assignment: three(1), W: 2, Said: instance("c", 1), Links: map[uint64]batch.Link{20: {2}}, Dropped: []uint64{20},
		Answers: []Answer{answer(instance("b", 1), tail(1, 90, 1)), answer(instance("c", 1), tail(1, 20, 2))},
	}
	if d := Choose(in); d.Verdict != Ask || d.Owner.Node != "b" {
		t.Fatalf("got %+v", d)
	}
}

func TestNobodyIsChosenBelowTheConfirmedFloor(t *testing.T) {
	b := answer(instance("b", 1), tail(1, 5, 1))
	c := answer(instance("c", 1), tail(1, 5, 1))
	d := Choose(Input{Assignment: three(1), W: 2, Floor: 6, Answers: []Answer{b, c}})
	if d.Verdict != Wait || d.Floor != 6 {
		t.Fatalf("got %+v", d)
	}
	c.Confirmed = 7
	if d = Choose(Input{Assignment: three(1), W: 2, Answers: []Answer{b, c}}); d.Verdict != Wait || d.Floor != 7 {
		t.Fatalf("got %+v", d)
	}
}

func TestWhatDoesNotCountIsSaid(t *testing.T) {
	stranger := answer(instance("b", 1), tail(1, 9, 1))
	stranger.Instance.Store = ident.StoreID{'x'}
	late := answer(instance("c", 1), tail(1, 9, 1))
	late.Transition = "earlier"
	broken := answer(instance("c", 1), batch.Tail{})
	broken.Damaged = "checksum"
	d := Choose(Input{Assignment: three(1), W: 2, Answers: []Answer{stranger, late, broken}})
	if d.Verdict != Wait || len(d.Excluded) != 3 {
		t.Fatalf("got %+v", d)
	}
	for i, want := range []string{"not admitted", "another transition", "damaged: checksum"} {
		if !strings.Contains(d.Excluded[i].Reason, want) {
			t.Errorf("answer %d: excluded for %q, want %q", i, d.Excluded[i].Reason, want)
		}
	}
}

func TestTiesGoToThePresentInstanceAndElseSpread(t *testing.T) {
	a := three(1)
	all := []Answer{answer(instance("c", 1), tail(1, 5, 1)), answer(instance("a", 1), tail(1, 5, 1)), answer(instance("b", 1), tail(1, 5, 1))}
	if d := Choose(Input{Assignment: a, W: 2, Answers: all}); d.Owner.Node != "a" {
		t.Fatalf("got %+v", d)
	}
	if d := Choose(Input{Assignment: a, W: 2, Answers: all, Suspected: []ident.StoreID{{'a'}, {'c'}}}); d.Owner.Node != "b" {
		t.Fatalf("with a and c suspected after they had answered: got %+v", d)
	}
	ahead := []Answer{answer(instance("a", 1), tail(1, 6, 1)), all[0]}
	if d := Choose(Input{Assignment: a, W: 2, Answers: ahead, Suspected: []ident.StoreID{{'a'}}, Said: instance("a", 1), Links: map[uint64]batch.Link{5: {1}}}); d.Owner.Node != "a" {
		t.Fatalf("what only a suspected copy holds was given up: %+v", d)
	}
	owners := map[string]int{}
	for i := range uint64(300) {
		a.Partition.Incarnation = i + 1
		all[1].Instance.Boot = 2 // restarted: no longer the present instance
		owners[Choose(Input{Assignment: a, W: 2, Answers: all}).Owner.Node]++
	}
	for _, n := range []string{"a", "b", "c"} {
		if owners[n] < 60 {
			t.Errorf("idle partitions do not spread: %v", owners)
		}
	}
}
