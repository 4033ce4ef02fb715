package gateway

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// When queues on another node get a new owner, the shard tells that node once for all those that it does not work with; the others it
// attaches to. Without a way to the node it says so when there is one, if it is still so.
func TestShardSaysWhatItDoesNotHold(t *testing.T) {
	h := newHarness(t, Limits{})
	two := ident.Instance{Node: "n2", Store: ident.StoreID{2}, Boot: 1}
	h.propose(catalog.RegisterBoot(catalog.Node{Name: "n2", Store: two.Store, Boot: 1, Shards: 1}))
	h.sh.env.Place = func(*catalog.Resource) (ident.Instance, []catalog.Member) { return two, nil }
	var said []protocol.Unclaimed
	reachable := true
	h.sh.env.Unclaimed = func(owner ident.Instance, m protocol.Unclaimed) bool {
		if owner.Node != "n2" {
			t.Errorf("%s was told", owner)
		}
		if reachable {
			said = append(said, m)
		}
		return reachable
	}
	c := h.client()
	var owners []*fakeOwner
	for i := range 4 {
		owners = append(owners, c.declare(durable(fmt.Sprint("q", i))))
	}
	for i := range 3 { // all but the first are left again
		h.do(func() { h.sh.byPartition[owners[i+1].p].leave() })
	}
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q0", Consumer: 1}, c.done("consume")) })
	if len(said) > 0 {
		t.Fatalf("said %+v of queues that nobody owned before", said)
	}
	move := func() {
		two.Boot++
		h.moveAll(two, owners)
	}
	epoch := func() uint64 { return two.Boot }
	held := func() (n int) {
		for _, m := range said {
			if m.Gateway != h.sh.gateway {
				t.Fatalf("said by %+v", m.Gateway)
			}
			for _, i := range m.Items {
				if i.Epoch != epoch() || i.Partition == owners[0].p {
					t.Fatalf("said %+v at epoch %d", i, epoch())
				}
				n++
			}
		}
		return n
	}
	move()
	if len(said) != 1 || held() != 3 {
		t.Fatalf("said %+v", said)
	}
	if a := all[protocol.Attach](owners[0]); len(a) != 2 {
		t.Fatalf("attached %d times to the queue that is worked with", len(a))
	}

	said, reachable = nil, false
	move()
	h.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q1", Consumer: 2}, c.done("consume")) })
	reachable = true
	h.sh.PeerUp("n2")
	h.settle()
	if len(said) != 1 || held() != 2 {
		t.Fatalf("said when there was a way: %+v", said)
	}
	h.sh.PeerUp("n2")
	h.settle()
	if len(said) != 1 {
		t.Fatalf("said again: %+v", said)
	}
}

// moveAll gives partitions to a later run of their owner, which is registered first; runs and epochs count alike.
func (h *harness) moveAll(to ident.Instance, owners []*fakeOwner) {
	h.t.Helper()
	h.propose(catalog.RegisterBoot(catalog.Node{Name: to.Node, Store: to.Store, Boot: to.Boot, Shards: 1}))
	var record, commit []catalog.Item
	for _, o := range owners {
		a, _ := h.state.View().Assignment(o.p)
		epoch := a.Epoch + 1
		id := fmt.Sprint("t", epoch)
		record = append(record, catalog.RecordPending(o.p, a.Version, catalog.Pending{ID: id, Epoch: epoch, Cause: "boot"}))
		commit = append(commit, catalog.CommitTransition(catalog.Commit{
			Partition: o.p, Version: a.Version + 1, Transition: id, Owner: to, Start: catalog.HistoryStart{Epoch: epoch, Node: to.Node},
		}))
	}
	h.propose(record...)
	h.propose(commit...)
}
