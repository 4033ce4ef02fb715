package queue

import (
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
)

// TestPageThatCameBackIsNotGone saves a page, empties it, lets the machine drop it, and fills the same range of offsets again, all
// between two snapshots: the page is written and must not be named as gone too, or its messages are lost with the next restart.
func TestPageThatCameBackIsNotGone(t *testing.T) {
	saved := map[uint32][]byte{}
	m := New(Settings{})
	save := func() {
		t.Helper()
		pages, gone := m.Snapshot(false)
		for _, p := range pages {
			saved[p.Number] = p.Data
		}
		for _, n := range gone {
			delete(saved, n)
		}
	}
	m.ApplyRecord(0, batch.RecordHeader{Size: 7}, 1)
	save()
	if err := m.ApplyEvent(EventGone, []byte{byte(Accepted), 0, 0}); err != nil {
		t.Fatal(err)
	}
	m.Trim()
	m.ApplyRecord(1, batch.RecordHeader{Size: 9}, 2)
	save()
	var pages []batch.Page
	for n, data := range saved {
		pages = append(pages, batch.Page{Number: n, Data: data})
	}
	again := New(Settings{})
	if err := again.Restore(pages); err != nil {
		t.Fatal(err)
	}
	if c := again.Counts(); c.Messages != 1 || c.Bytes != 9 {
		t.Fatalf("after the restart the queue has %+v, want one message of 9 bytes", c)
	}
}
