package replica

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// A backlog that is taken a few messages at a time, by a consumer with a prefetch of 1 and by a target of dead letters, is read from
// the log in pieces, and not once for each few.
func TestABacklogIsReadInPieces(t *testing.T) {
	const n = 300
	dlx := "dlx"
	w := newWorld(t, 4)
	w.courier = &fakeGateway{w: w}
	w.declare(catalog.Queue, &queue.Settings{DeadLetterExchange: &dlx}, nil)
	g := w.gateway(0)
	g.attach(1)
	for i := range n {
		g.publish(fmt.Sprint(i))
	}
	w.settle()
	w.crash()
	w.start()
	w.disk.slow, w.disk.reads = true, 0
	w.transition()
	g = w.gateway(0)
	g.attach(1)
	g.subscribe(1, 1)
	w.settle()
	for i := range uint64(n) {
		if got := items(g); len(got) != 1 || string(got[0].Body) != fmt.Sprint(i) {
			t.Fatalf("delivery %d: %+v", i, got)
		}
		g.settleOne(1, i, protocol.Reject)
		w.settle()
		for _, d := range take[protocol.DeadLetter](w.courier) {
			if string(d.Body) != fmt.Sprint(d.Offset) {
				t.Fatalf("dead letter %+v", d)
			}
			d.Reply.Send(protocol.DeadLettered{Partition: part, Number: d.Number, Offset: d.Offset})
		}
		w.settle()
	}
	if s := w.status(); s.Ready+s.DeadLetters+s.Unsettled != 0 {
		t.Fatalf("status %+v", s)
	}
	if w.disk.reads > 3 {
		t.Fatalf("%d reads for %d messages", w.disk.reads, n)
	}
	for _, l := range w.m.lanes {
		if len(l.windows) != 0 {
			t.Fatal("an empty queue keeps what it read")
		}
	}
}
