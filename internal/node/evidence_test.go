package node

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
)

// evidenceOf are the records that a node keeps of a queue's only partition.
func (c *cluster) evidenceOf(i int, name string) []*evidence.Evidence {
	return c.nodes[i].n.Evidence().Of(c.assignment(i, name).Partition)
}

// proven checks that every change of owner of a queue has, on a node, the record whose digest the catalog holds, and returns them.
func (c *cluster) proven(i int, name string) []*evidence.Evidence {
	c.t.Helper()
	a, list := c.assignment(i, name), c.evidenceOf(i, name)
	for _, s := range a.Starts {
		at := slices.IndexFunc(list, func(e *evidence.Evidence) bool { return e.After.Epoch == s.Epoch })
		switch {
		case s.Epoch == 1:
		case at < 0:
			c.t.Fatalf("%s keeps no evidence of epoch %d of %s", c.nodes[i].name, s.Epoch, name)
		case list[at].Digest() != s.Evidence || list[at].Outcome != evidence.Committed:
			c.t.Fatalf("%s keeps %+v of epoch %d, digest %s; the catalog says %s", c.nodes[i].name, list[at], s.Epoch, list[at].Digest(), s.Evidence)
		}
	}
	return list
}

func (c *cluster) ownerOf(name string) int {
	owner := c.assignment(0, name).Owner.Node
	return slices.IndexFunc(c.nodes, func(w *world) bool { return w.name == owner })
}

func TestEveryNodeKeepsTheEvidenceOfAChangeOfOwner(t *testing.T) {
	c := newCluster(t, 7, 3)
	u := c.nodes[0].login(0)
	u.declare(durable("q"))
	c.await("three copies", func() bool { return len(c.assignment(0, "q").Followers) == 2 })
	u.publish("q", "a")
	before := c.assignment(0, "q")
	owner := c.ownerOf("q")
	c.kill(owner)
	c.restart(owner)
	c.await("another epoch", func() bool { a := c.assignment(0, "q"); return a.Epoch > 1 && a.Pending == nil })
	c.sim.RunFor(2 * time.Second)
	after := c.assignment(0, "q")
	first := c.proven(0, "q")[0]
	for i := range c.nodes {
		if got := c.proven(i, "q"); len(got) != 1 || !reflect.DeepEqual(got[0], first) {
			t.Errorf("%s keeps %+v, the first node %+v", c.nodes[i].name, got[0], first)
		}
	}
	start := after.Starts[len(after.Starts)-1]
	switch e := first; {
	case e.Workflow != evidence.Failover || e.Kind != catalog.Queue || e.VHost != "/" || e.Resource != "q" || e.Cause == "":
		t.Errorf("it is of %+v", e)
	case e.Before != evidence.Reign{Owner: before.Owner, Epoch: 1} || e.After != evidence.Reign{Owner: after.Owner, Epoch: after.Epoch}:
		t.Errorf("from %+v to %+v", e.Before, e.After)
	case e.E != 3 || e.W != 2 || e.R != 2 || len(e.Answers) < 2 || e.Start.Position != start.Position || e.Start.Link != evidence.Link(start.Link):
		t.Errorf("decided on %+v", e.Decided)
	case e.Recorded == 0 || e.Sealed < e.Recorded || e.Chosen < e.Sealed || e.Committed < e.Chosen:
		t.Errorf("recorded %d, sealed %d, chosen %d, committed %d", e.Recorded, e.Sealed, e.Chosen, e.Committed)
	}
}
