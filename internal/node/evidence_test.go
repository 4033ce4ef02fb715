package node

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/mesh"
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

// sameEvidence checks that all nodes keep the same records of a queue, each with the digest that the catalog holds, and returns them.
func (c *cluster) sameEvidence(name string) []*evidence.Evidence {
	c.t.Helper()
	first := c.proven(0, name)
	for i := range c.nodes {
		if got := c.proven(i, name); !reflect.DeepEqual(got, first) {
			for k := range got {
				c.t.Errorf("%s keeps %+v", c.nodes[i].name, got[k])
			}
			for k := range first {
				c.t.Errorf("the first node keeps %+v", first[k])
			}
			c.t.Fatal("nodes keep other evidence")
		}
	}
	return first
}

// three brings up a cluster of three nodes with a queue that has a copy on each, and says who owns it: not the first.
func three(t *testing.T, seed uint64) (c *cluster, q string, owner int) {
	c = newCluster(t, seed, 3)
	u := c.nodes[0].login(0)
	for i := range 20 {
		q = fmt.Sprint("q", i)
		u.declare(durable(q))
		c.await("three copies", func() bool { return len(c.assignment(0, q).Followers) == 2 })
		if owner = c.ownerOf(q); owner != 0 {
			return c, q, owner
		}
	}
	t.Fatal("the first node owns everything")
	return
}

func TestEveryNodeKeepsTheEvidenceOfAChangeOfOwner(t *testing.T) {
	c, q, owner := three(t, 7)
	u := c.nodes[0].login(0)
	u.publish(q, "a", "b")
	before := c.assignment(0, q)
	killed := c.nodes[0].n.env.Clock.Wall().UnixMicro()
	c.kill(owner)
	c.await("another epoch", func() bool { a := c.assignment(0, q); return a.Epoch > 1 && a.Pending == nil })
	u.publish(q, "c")
	c.sim.RunFor(time.Second)
	c.restart(owner)
	c.sim.RunFor(5 * time.Second)
	after := c.assignment(0, q)
	list := c.sameEvidence(q)
	if len(list) != 1 {
		t.Fatalf("%d records of one change of owner", len(list))
	}
	start := after.Starts[len(after.Starts)-1]
	switch e := list[0]; {
	case e.Workflow != evidence.Failover || e.Kind != catalog.Queue || e.VHost != "/" || e.Resource != q || e.Cause == "" || len(e.SeenBy) == 0:
		t.Errorf("it is of %+v", e)
	case e.Before != evidence.Reign{Owner: before.Owner, Epoch: 1} || e.After != evidence.Reign{Owner: after.Owner, Epoch: after.Epoch}:
		t.Errorf("from %+v to %+v", e.Before, e.After)
	case e.E != 3 || e.W != 2 || e.R != 2 || len(e.Answers) != 2 || e.Start.Position != start.Position || e.Start.Link != evidence.Link(start.Link):
		t.Errorf("decided on %+v", e.Decided)
	case len(e.Exclusions) != 1 || e.Exclusions[0].Node != before.Owner.Node:
		t.Errorf("excluded %+v", e.Exclusions)
	default:
		last := killed
		for i, at := range []int64{e.Suspected, e.Recorded, e.Sealed, e.Chosen, e.Committed, e.Serving, e.FirstConfirm} {
			if at < last {
				t.Errorf("moment %d is %d, after one at %d", i, at, last)
			}
			last = at
		}
		if e.LastConfirm == 0 || e.LastConfirm > killed {
			t.Errorf("the old owner confirmed last at %d, and was killed at %d", e.LastConfirm, killed)
		}
	}
}

// An owner's end that nobody else has is cut when it comes back, and kept aside; every node comes to know.
func TestACutIsInTheEvidence(t *testing.T) {
	c, q, owner := three(t, 11)
	u, own := c.nodes[0].login(0), c.nodes[owner].login(0)
	u.publish(q, "a")
	normal := c.net.Delay
	c.net.Delay = func(from, to string, p mesh.Purpose) time.Duration {
		if from == c.nodes[owner].name && p == mesh.Copies {
			return time.Minute
		}
		return normal(from, to, p)
	}
	own.box.Post(func() {
		for i := range 5 {
			m := broker.Message{RoutingKey: q, Body: [][]byte{[]byte("lost")}}
			if err := own.s.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, &m); err != nil {
				t.Error(err)
			}
		}
	})
	c.sim.RunFor(50 * time.Millisecond)
	old := c.assignment(0, q).Owner
	c.kill(owner)
	c.net.Delay = normal
	c.await("another epoch", func() bool { a := c.assignment(0, q); return a.Epoch > 1 && a.Pending == nil })
	u.publish(q, "b")
	c.restart(owner)
	c.sim.RunFor(5 * time.Second)
	list := c.sameEvidence(q)
	e := list[len(list)-1]
	if len(list) != 1 || len(e.Cuts) != 1 || !e.Cuts[0].Quarantined || e.Cuts[0].Node != old.Node || e.Cuts[0].Store != old.Store || e.Cuts[0].From != e.Start.Position {
		t.Fatalf("cuts %+v", e.Cuts)
	}
	ends, broken, err := archive.Ends(c.nodes[owner].disk, "data")
	if err != nil || broken != 0 || len(ends) != 1 {
		t.Fatalf("%d ends, %d broken, %v", len(ends), broken, err)
	}
	end, records := ends[0], uint32(0)
	for _, b := range end.Batches {
		records += b.Records
	}
	if end.From != e.Cuts[0].From || end.To != e.Cuts[0].To || end.Epoch != e.After.Epoch || records != 5 || end.Batches[0].Position != end.From {
		t.Fatalf("kept %d records from %d to %d of epoch %d, cut %+v", records, end.From, end.To, end.Epoch, e.Cuts[0])
	}
	var said protocol.StatusAnswer
	c.nodes[owner].n.answerStatus(protocol.StatusAsk{All: true}, func(a protocol.StatusAnswer) { said = a })
	c.sim.RunFor(time.Millisecond)
	if aside := asideOf(&said); len(aside) != 1 || aside[0].Kind != control.CutEnds || aside[0].Count != 1 || aside[0].Bytes == 0 {
		t.Fatalf("its node says that it has put aside %+v", aside)
	}
}

// Who was away is told when the session begins, whatever happened meanwhile, with a new disk too.
func TestWhoWasAwayIsGivenTheEvidence(t *testing.T) {
	c, q, owner := three(t, 13)
	u := c.nodes[0].login(0)
	away := 3 - owner
	epoch := c.assignment(0, q).Epoch
	c.kill(away)
	for range 3 {
		i := c.ownerOf(q)
		if i != 0 {
			c.kill(i)
			c.restart(i)
			epoch++
			c.await("another epoch", func() bool { a := c.assignment(0, q); return a.Epoch >= epoch && a.Pending == nil })
		}
		u.publish(q, "x")
	}
	c.sim.RunFor(2 * time.Second)
	kept := c.proven(0, q)
	if len(kept) == 0 {
		t.Fatal("nothing happened while a node was away")
	}
	c.restart(away)
	c.sim.RunFor(3 * time.Second)
	if got := c.sameEvidence(q); len(got) < len(kept) {
		t.Fatalf("%d records of %d", len(got), len(kept))
	}
	for i := range c.nodes {
		c.kill(i)
	}
	for i := range c.nodes {
		n, err := c.nodes[i].make()
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Evidence().Of(kept[0].Partition); len(got) < len(kept) {
			t.Errorf("%s comes back with %d records of %d", c.nodes[i].name, len(got), len(kept))
		}
	}
}
