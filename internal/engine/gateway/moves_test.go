package gateway

import (
	"testing"

	"github.com/tanist/tanist/internal/core/protocol"
)

// Of a cursor's moves that are not confirmed the last is kept, and sent to the next owner after what was settled before.
func TestTheLastMoveOfACursorIsKept(t *testing.T) {
	s := &settles{seq: 1, kept: []settleMessage{{seq: 1, items: []protocol.SettleItem{{Consumer: 1}}}}}
	for off := range uint64(1000) {
		s.sentMove(cursorMove{"a", off})
	}
	s.sentMove(cursorMove{"b", 7})
	if len(s.kept) != 3 || s.kept[0].items == nil || s.kept[1].cursor != (cursorMove{"a", 999}) || s.kept[2].cursor != (cursorMove{"b", 7}) {
		t.Fatalf("%+v", s.kept)
	}
	s.confirmed(s.kept[1].seq - 1) // of one that is not kept any more: it says nothing of the last
	if len(s.kept) != 2 || !s.pending(s.kept[0].seq) {
		t.Fatalf("%+v", s.kept)
	}
	s.confirmed(s.seq)
	if !s.empty() {
		t.Fatalf("%+v", s.kept)
	}
}
