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
