package replica

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
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
