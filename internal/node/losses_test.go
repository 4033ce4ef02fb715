package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/consensus"
)

// loss asks the leader's controller about the loss of a queue's missing copies, from a node that lives.
func (c *cluster) loss(i int, name string, m protocol.LossAsk) (a protocol.LossAnswer) {
	c.t.Helper()
	m.Partition = c.assignment(i, name).Partition
	answered := false
	c.leading(i).n.answerLoss(m, func(x protocol.LossAnswer) { a, answered = x, true })
	c.await("an answer about the loss", func() bool { return answered })
	return a
}

// leading is the node that leads the catalog, as another knows.
func (c *cluster) leading(i int) *world {
	c.t.Helper()
	var s consensus.Status
	c.await("a leader", func() bool {
		answered := false
		c.nodes[i].n.consensus.Status(func(x consensus.Status) { s, answered = x, true })
		return c.sim.RunUntil(func() bool { return answered }, patience) && s.Leader != 0
	})
	at := slices.IndexFunc(c.nodes, func(w *world) bool { return consensus.ID(w.n.Local().Store) == s.Leader })
	return c.nodes[at]
}

// isolate cuts a node off from all others, or ends that.
func (c *cluster) isolate(i int) {
	for k, w := range c.nodes {
		if k != i {
			c.net.Cut(w.name, c.nodes[i].name)
			c.net.Cut(c.nodes[i].name, w.name)
		}
	}
}

func (c *cluster) index(node string) int {
	return slices.IndexFunc(c.nodes, func(w *world) bool { return w.name == node })
}

func (c *cluster) propose(i int, items ...catalog.Item) {
	c.t.Helper()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		c.t.Fatal(err)
	}
	done := false
	c.nodes[i].n.consensus.Propose(cmd, func(r catalog.Result, err error) {
		if done = true; err != nil || r.Err() != nil {
			c.t.Errorf("propose: %v, %v", err, r.Err())
		}
	})
	c.await("the proposal", func() bool { return done })
}

// lossy is a cluster of five with a queue on three of them, none of which is the first. The first and the other take no copies.
func lossy(t *testing.T, seed uint64) (c *cluster, q string, owner, follower, survivor int) {
	c = newCluster(t, seed, 5)
	c.await("five voters", func() bool { return c.voters(0) == 5 })
	u := c.nodes[0].login(0)
	for i := range 40 {
		q = fmt.Sprint("q", i)
		u.declare(durable(q))
		a := c.assignment(0, q)
		if a.Owner.Node == "n1" || slices.ContainsFunc(a.Followers, func(m catalog.Member) bool { return m.Node == "n1" }) {
			continue
		}
		owner, follower, survivor = c.index(a.Owner.Node), c.index(a.Followers[0].Node), c.index(a.Followers[1].Node)
		for k, w := range c.nodes {
			if k != owner && k != follower && k != survivor {
				c.propose(0, catalog.DrainNode(w.name, w.n.Local().Store, true))
			}
		}
		return c, q, owner, follower, survivor
	}
	t.Fatal("every queue has a copy on the first node")
	return
}

// TestALossIsAcceptedAndTheCopiesThatReturnFollow: a copy is behind, and the two others, which have confirmed much more and written snapshots of
// it, are lost. An operator goes on with the one that is left. The others come back longer, and follow.
func TestALossIsAcceptedAndTheCopiesThatReturnFollow(t *testing.T) {
	c, q, owner, follower, survivor := lossy(t, 11)
	u := c.nodes[0].login(0)
	const kept, lost = 30, 200
	for i := range kept {
		u.publish(q, fmt.Sprint("m", i))
	}
	c.sim.RunFor(time.Second)
	c.isolate(survivor)
	for i := range lost {
		u.publish(q, fmt.Sprint("lost", i))
	}
	c.sim.RunFor(3 * time.Second)
	at := c.copies(q)
	c.kill(owner)
	c.kill(follower)
	c.net.Heal()
	names := []string{c.nodes[owner].name, c.nodes[follower].name}
	slices.Sort(names)
	c.await("an answer of the survivor", func() bool { a := c.loss(0, q, protocol.LossAsk{}); return a.Against == "" && a.Candidate.Node == c.nodes[survivor].name })

	plan := c.loss(0, q, protocol.LossAsk{})
	if plan.Candidate.Node != c.nodes[survivor].name || plan.Offset != kept || plan.To-plan.Position != lost || plan.FloorBy != c.nodes[owner].name ||
		!slices.Equal(plan.Missing, names) || !slices.Equal(plan.Fence, names) {
		t.Fatalf("the plan is %+v; copies were %+v", plan, at)
	}
	go1 := protocol.LossAsk{Execute: true, Plan: plan.Hash, Reason: "two disks are gone", Stopped: names}
	for _, x := range []struct {
		change func(*protocol.LossAsk)
		want   string
	}{
		{func(m *protocol.LossAsk) { m.Plan = "another" }, "another by now"},
		{func(m *protocol.LossAsk) { m.Stopped = names[:1] }, names[1] + " may still run"},
	} {
		m := go1
		x.change(&m)
		if a := c.loss(0, q, m); a.Transition != "" || !strings.Contains(a.Refused, x.want) {
			t.Fatalf("it should be refused for %q: %+v", x.want, a)
		}
	}
	done := c.loss(0, q, go1)
	if done.Refused != "" || done.Transition == "" {
		t.Fatalf("not accepted: %+v", done)
	}
	for i := range 10 {
		u.publish(q, fmt.Sprint("n", i))
	}
	a := c.assignment(0, q)
	start := a.Starts[len(a.Starts)-1]
	if a.Owner.Node != c.nodes[survivor].name || a.Epoch != 2 || !start.Loss.Accepted || start.Position != plan.Position || start.Loss.To != plan.To {
		t.Fatalf("the assignment is %+v", a)
	}

	c.restart(owner)
	c.restart(follower)
	c.await("two followers", func() bool { return len(c.assignment(0, q).Followers) == 2 })
	c.sim.RunFor(3 * time.Second)
	c.same(q, kept+10)
	e := c.evidenceOf(0, q)[0]
	if e.Workflow != evidence.LossWindow || e.ID != done.Transition || e.Start.Position != plan.Position || e.Floor.Position != plan.To || len(e.Cuts) != 2 {
		t.Fatalf("the record is %+v", e)
	}
	for _, x := range e.Cuts {
		if x.From != plan.Position || x.To != plan.To || !x.Quarantined {
			t.Errorf("cut %+v", x)
		}
	}
	c.proven(0, q)

	// An ordinary change of owner follows: what the returned copies hold is the new history.
	c.kill(survivor)
	c.await("another owner", func() bool { a := c.assignment(0, q); return a.Epoch == 3 && a.Pending == nil })
	u.publish(q, "last")
	got := c.nodes[0].login(1).consume(q, kept+10+1)
	if got[kept-1] != fmt.Sprint("m", kept-1) || got[kept] != "n0" || got[kept+10] != "last" {
		t.Fatalf("consumed %v", got)
	}
}

// same checks that three copies of a queue hold the same, and so many messages.
func (c *cluster) same(name string, messages uint64) {
	c.t.Helper()
	copies := c.copies(name)
	held := 0
	for _, s := range copies {
		if s.Role == "none" {
			continue
		}
		if held++; s.Durable != copies[0].Durable || s.Confirmed != s.Durable || s.Offset != messages || s.State != "serving" {
			c.t.Fatalf("copies %+v", copies)
		}
	}
	if held != 3 {
		c.t.Fatalf("copies %+v", copies)
	}
}
