package catalog

import "testing"

// What a history lost since an epoch begins at the lowest start of a loss accepted later; other starts take nothing that was confirmed.
func TestWhatWasLostSinceAnEpoch(t *testing.T) {
	a := Assignment{Starts: []HistoryStart{
		{Epoch: 1},
		{Epoch: 2, Offset: 5},
		{Epoch: 3, Offset: 40, Loss: Loss{Accepted: true, To: 60}},
		{Epoch: 4, Offset: 45},
		{Epoch: 5, Offset: 30, Loss: Loss{Accepted: true}},
		{Epoch: 6, Offset: 50, Loss: Loss{Accepted: true, To: 50}},
	}}
	for epoch, want := range []uint64{30, 30, 30, 30, 30, 50} {
		if from, ok := a.LostSince(uint64(epoch)); !ok || from != want {
			t.Errorf("since epoch %d: from %d, %t; want %d", epoch, from, ok, want)
		}
	}
	if from, ok := a.LostSince(6); ok {
		t.Errorf("since the last: from %d", from)
	}
}

// Who joins two states hears of a forced deletion before the resource goes: what is on disk of it must not be dropped.
func TestAForcedDeletionIsToldBeforeItsResourceGoes(t *testing.T) {
	before, after := New(), New()
	for _, s := range []*State{before, after} {
		if _, _, err := s.Apply(1, mustEncode(t, everyOperation()[:6]...)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Apply(2, mustEncode(t, durableQueue("q"))); err != nil {
			t.Fatal(err)
		}
	}
	inc := after.View().Resource("/", "q").Incarnation
	if r, _, err := after.Apply(3, mustEncode(t, ForceDelete(Deletion{Incarnation: inc, VHost: "/", Name: "q", Reason: "r"}, []uint64{1}))); err != nil || r.Err() != nil {
		t.Fatal(err, r.Err())
	}
	changes := Diff(before, after)
	if len(changes) != 2 {
		t.Fatalf("%d changes", len(changes))
	}
	if _, ok := changes[0].After.(*Deletion); !ok || changes[1].After != nil {
		t.Fatalf("the changes are %+v", changes)
	}
}
