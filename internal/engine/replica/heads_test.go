package replica

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
)

// TestAFollowerGoesOnWhereTheHeadIs has a stream drop all that a copy holds while it is away: the copy's tail is where the owner's log
// begins, and the link there proves that it may go on.
func TestAFollowerGoesOnWhereTheHeadIs(t *testing.T) {
	g := newTrio(t, 9, 3)
	g.stream.MaxRecords = 4
	g.declare(catalog.Stream, 1, 2)
	c := g.client(0)
	c.publish("a", "b")
	g.run(20)
	at := g.nodes[1].status().Durable
	g.nodes[1].kill()
	for i := range 30 {
		c.publish(fmt.Sprint("m", i))
		g.run(5)
	}
	if b := g.nodes[0].disk.copies[part].batches[0].b; b.Position != at {
		t.Fatalf("the owner keeps its log from %d on, the copy that is away ends at %d", b.Position, at)
	}
	got := map[uint64]batch.Link{}
	g.nodes[0].m.Links(part, []uint64{at - 1, at}, func(links map[uint64]batch.Link) { got = links })
	g.run(1)
	if _, known := got[at-1]; known || got[at] != g.nodes[0].disk.copies[part].batches[0].b.PrevLink {
		t.Fatalf("the owner says that its links are %v", got)
	}
	g.nodes[1].restart()
	g.run(50)
	g.same(0, 1, 2)
}

// TestAnOldWordOfACopyIsPutRight has the owner hear where a copy stood before the last batch after the copy has said that it holds that
// batch: what comes twice is answered again.
func TestAnOldWordOfACopyIsPutRight(t *testing.T) {
	g := newTrio(t, 10, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	c.publish("a")
	g.run(20)
	g.nodes[2].kill()
	n := g.nodes[1]
	old := n.disk.copies[part].batches[len(n.disk.copies[part].batches)-1].tail
	n.disk.stuck = true
	c.publish("b")
	g.run(10)
	n.cut["n1"], n.disk.stuck = true, false
	n.store.run()
	g.run(10) // that it holds the batch is not heard
	n.cut["n1"] = false
	g.nodes[0].m.Receive(n.local, protocol.Standing{Partition: part, Epoch: 1, From: n.local, Tail: old, Durable: old.Position})
	g.run(20)
	if at := c.upTo(); at != 3 {
		t.Fatalf("confirmed below %d, want 3", at)
	}
}
