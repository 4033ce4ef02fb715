package node

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
)

// TestNothingIsKeptOfANodeThatHasLeft: once it was told, and is spoken to no more.
func TestNothingIsKeptOfANodeThatHasLeft(t *testing.T) {
	c := newCluster(t, 5, 3)
	c.await("three voters", func() bool { return c.voters(0) == 3 })
	gone := c.nodes[2]
	c.kill(2)
	c.sim.RunFor(time.Second)
	n := c.nodes[0].n
	n.questions.ask(gone.name, 1, func(any) {})
	noted := func() int { return len(n.reaches) + len(n.questions.open) + len(n.lost) }
	before := noted()
	c.propose(0, catalog.RemoveNode(gone.name, gone.n.Local().Store))
	c.sim.RunFor(2*farewell + time.Second)
	if _, ok := n.reaches[gone.name]; ok || noted() != before-3 {
		t.Errorf("kept: %v, %d questions, %v", n.reaches, len(n.questions.open), n.lost)
	}
}
