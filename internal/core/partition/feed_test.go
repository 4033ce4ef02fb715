package partition

import "testing"

// A copy that has something to answer is not told the confirmed position by itself, for that comes with what is sent next or after the
// answer; but it is always told in the end, and where no more can be sent to it, at once.
func TestTheConfirmedPositionIsToldAloneOnlyWhereNothingWillCarryIt(t *testing.T) {
	var f Feed
	if f.Tells(1) {
		t.Fatal("told before it stands")
	}
	f.Stand(0, 0)
	f.Sent(1, 100, 0)
	f.Sent(2, 100, 0)
	f.Held(1)
	if f.Tells(1) {
		t.Fatal("told while an answer is awaited")
	}
	f.Sent(3, 100, 1) // carries it
	f.Held(3)
	if f.Tells(1) {
		t.Fatal("told twice")
	}
	if !f.Tells(3) {
		t.Fatal("not told when nothing is on its way")
	}
	if f.Tells(3) {
		t.Fatal("told twice")
	}
	f.Sent(4, FeedWindow, 3)
	if !f.Tells(4) {
		t.Fatal("not told where nothing more can be sent")
	}
	f.Lose()
	f.Stand(4, 3)
	if !f.Tells(4) {
		t.Fatal("not told again after it was lost")
	}
}
