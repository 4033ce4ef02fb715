package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
)

// deletion asks the leader's controller about deleting a resource by force.
func (c *cluster) deletion(incarnation uint64, m protocol.DeletionAsk) (a protocol.DeletionAnswer) {
	c.t.Helper()
	m.Incarnation = incarnation
	answered := false
	c.leading(0).n.answerDeletion(m, func(x protocol.DeletionAnswer) { a, answered = x, true })
	c.await("an answer about the deletion", func() bool { return answered })
	return a
}

// aside reports whether a node keeps a copy without serving it, and whether it has one on its disk at all.
func (c *cluster) aside(i int, p ident.Partition) (kept, onDisk bool) {
	n := c.nodes[i].n
	n.manager.Status(nil, func(list []replica.Status) {
		kept = slices.ContainsFunc(list, func(s replica.Status) bool { return s.Partition == p && s.Role == replica.SetAside })
	})
	c.sim.RunFor(time.Millisecond)
	return kept, slices.ContainsFunc(n.store.Copies(), func(x *storage.Copy) bool { return x.Partition() == p })
}

// TestAnOperatorDeletesWhatCannotBeServed: a client cannot delete a queue that waits for copies, and is told who can. An operator does; the name is
// free, what is left and what returns is put aside, in later runs too, until the deletion is forgotten.
func TestAnOperatorDeletesWhatCannotBeServed(t *testing.T) {
	for name, cutOff := range map[string]bool{"killed": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			b := bereave(t, 11, 20, cutOff)
			p := b.assignment(0, b.q).Partition
			b.refusedToClients()
			plan := b.deletion(p.Incarnation, protocol.DeletionAsk{})
			if e := plan.Parts[0]; plan.Against != "" || plan.Refused != "" || !slices.Equal(plan.Fence, b.lost) || e.Served ||
				!slices.Equal(e.Missing, b.lost) || !slices.Equal(e.Left, []string{b.nodes[b.survivor].name}) || e.Floor < keptMessages+20 {
				t.Fatalf("the plan is %+v", plan)
			}
			ask := protocol.DeletionAsk{Execute: true, Plan: plan.Hash, Reason: "a fire", Stopped: b.lost}
			another, running := ask, ask
			another.Plan, running.Stopped = "another", b.lost[:1]
			if a := b.deletion(p.Incarnation, another); a.Done || !a.Moved {
				t.Fatalf("by another plan: %+v", a)
			}
			if a := b.deletion(p.Incarnation, running); a.Done || !strings.Contains(a.Refused, b.lost[1]) {
				t.Fatalf("while a node may run: %+v", a)
			}
			old := b.assignment(0, b.q).Pending.ID
			if a := b.deletion(p.Incarnation, ask); !a.Done || a.Refused != "" {
				t.Fatalf("not deleted: %+v", a)
			}
			b.await("the evidence", func() bool {
				e := b.nodes[0].n.Evidence().Get(old)
				return e != nil && e.Workflow == evidence.Deletion && e.Outcome == evidence.Cancelled && strings.Contains(e.Reason, "a fire")
			})
			b.u.declare(broker.QueueSpec{Name: b.q, Kind: catalog.Queue, Durable: true, Copies: 1})
			b.u.publish(b.q, "new")
			b.back()
			b.allAside(p)
			b.kill(b.follower)
			b.restart(b.follower)
			b.allAside(p)
			if got := b.nodes[0].login(1).consume(b.q, 1); got[0] != "new" {
				t.Fatalf("consumed %v", got)
			}
			b.propose(0, catalog.ForgetDeletion(p.Incarnation))
			b.await("everything is dropped", func() bool {
				return !slices.ContainsFunc([]int{b.owner, b.follower, b.survivor}, func(i int) bool { _, on := b.aside(i, p); return on })
			})
		})
	}
}

// allAside waits until all three copies are put aside.
func (b *bereft) allAside(p ident.Partition) {
	b.t.Helper()
	for _, i := range []int{b.owner, b.follower, b.survivor} {
		b.await("a copy is put aside on "+b.nodes[i].name, func() bool { kept, on := b.aside(i, p); return kept && on })
	}
}

// refusedToClients has a client try to delete the queue.
func (b *bereft) refusedToClients() {
	b.t.Helper()
	var said *broker.Error
	answered := false
	b.u.box.Post(func() {
		b.u.s.DeleteQueue(b.q, false, false, func(_ uint32, e *broker.Error) { said, answered = e, true })
	})
	b.await("an answer to a client", func() bool { return answered })
	if said == nil || !said.Retryable() || !strings.Contains(said.Text, "tanist plan delete") {
		b.t.Fatalf("a client was told %v", said)
	}
}

// What is served is its clients' to delete; what an owner is being chosen for soon is not given up.
func TestWhatIsServedIsNotDeletedByForce(t *testing.T) {
	c, q, owner, _, _ := lossy(t, 12)
	inc := c.assignment(0, q).Partition.Incarnation
	a := c.deletion(inc, protocol.DeletionAsk{Execute: true, Plan: c.deletion(inc, protocol.DeletionAsk{}).Hash, Reason: "r"})
	if a.Done || !strings.Contains(a.Refused, "its clients can delete it") {
		t.Fatalf("of what is served: %+v", a)
	}
	c.kill(owner)
	c.sim.RunFor(time.Millisecond)
	if a := c.deletion(inc, protocol.DeletionAsk{}); a.Done || a.Against == "" {
		t.Fatalf("just after its owner was lost: %+v", a)
	}
	c.await("another owner", func() bool { a := c.assignment(0, q); return a.Epoch == 2 && a.Pending == nil })
}
