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

// TestFeedKnowsItsReads has a copy say twice where it stands, while what it misses is read: the second read comes late, and must not pass for
// the third, whose answer nobody would wait for then.
func TestFeedKnowsItsReads(t *testing.T) {
	var f Feed
	read := func() uint64 {
		t.Helper()
		from, ok := f.Behind(100)
		if !ok {
			t.Fatal("nothing is read for a copy that is behind")
		}
		return from
	}
	f.Stand(10, 10)
	first := read()
	f.Stand(10, 10)
	second := read()
	if !f.Read(first) {
		t.Fatal("what it misses is not wanted")
	}
	f.Sent(50, 40, 0)
	third := read()
	if f.Read(second) {
		t.Fatal("what was sent already is wanted")
	}
	if !f.Read(third) {
		t.Fatal("what it misses is not wanted any more, and nothing else is under way")
	}
}
