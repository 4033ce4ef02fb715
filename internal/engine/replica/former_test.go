package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

// These tests are about copies whose place is another's: when their data goes, and how they begin again.

// swapped is a group in which the copy of n3 has just left for that of n4.
func swapped(t *testing.T, seed uint64, kind catalog.Kind) (*trio, *fakeGateway) {
	g := newTrio(t, seed, 4)
	g.hold("30s")
	g.declare(kind, 1, 2)
	c := g.client(0)
	g.load(c, 20)
	g.say([]int{3}, []int{2})
	g.load(c, 40)
	g.members(1, 1, 3)
	return g, c
}

// hold sets for how long places, and the data of former copies, are kept.
func (g *trio) hold(v string) {
	for _, m := range g.nodes {
		if m.up {
			m.m.Apply([]catalog.Change{{After: &catalog.Setting{Name: catalog.FollowerLossHold, Value: v}}})
		}
	}
}

// has fails unless a node has a copy on its disk, or has none, and no replica.
func (x *member) has(what string, want bool) {
	x.t.Helper()
	if have := x.disk.copies[part] != nil; have != want {
		x.t.Fatalf("%s: %s has a copy: %v", what, x.name, have)
	}
	if !want && x.m.find(part) != nil {
		x.t.Fatalf("%s: %s has a replica", what, x.name)
	}
}

// After the hold, and no earlier, the data of a copy that left goes. The same node learns again in the same epoch, from nothing, and counts.
func TestAFormerCopyGoesAndLearnsAgain(t *testing.T) {
	for _, kind := range []catalog.Kind{catalog.Queue, catalog.Stream} {
		g, c := swapped(t, 71, kind)
		n3 := g.nodes[2]
		if s := n3.status(); s.Kept == 0 || s.Kept-n3.clock.Wall().UnixMilli() > 30_000 {
			t.Fatalf("its data is kept until %d", s.Kept)
		}
		g.run(29_500)
		n3.has("before the end of the hold", true)
		g.run(1000)
		n3.has("after it", false)
		if n := n3.m.FormersDropped(); n != 1 {
			t.Fatalf("counted %d", n)
		}
		var sealed []SealAnswer // a seal that comes late does not make it anew
		n3.m.Seal([]SealRequest{{Partition: part, Epoch: 2}}, func(as []SealAnswer) { sealed = as })
		g.run(5)
		if len(sealed) != 1 || sealed[0].Refused == "" {
			t.Fatalf("seal: %+v", sealed)
		}
		n3.has("after a late seal", false)

		g.say([]int{2}, []int{3})
		g.load(c, 60)
		g.members(1, 1, 2)
		g.same(0, 1, 2)
		if i := n3.disk.copies[part].image; i.Promise != 1 || i.Role != partition.Follower || i.RoleEpoch != 1 {
			t.Fatalf("its copy is %+v", i)
		}
		g.nodes[1].kill()
		g.load(c, 5) // with it
		g.run(31_000)
		g.nodes[3].has("and the other's copy went", false)
	}
}

// A copy that was doubted, left, and learns again counts again.
func TestOneThatWasDoubtedAndLeftCounts(t *testing.T) {
	g := newTrio(t, 72, 4)
	g.hold("0")
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	g.load(c, 20)
	g.nodes[2].kill()
	lost := g.nodes[2].disk.copies[part]
	lost.batches, lost.snap, lost.pages = lost.batches[:2], partition.Snapshot{}, map[uint32][]byte{}
	g.nodes[2].restart()
	g.hold("0")
	g.run(50)
	g.say([]int{3}, []int{2})
	g.load(c, 40)
	g.members(1, 1, 3)
	g.run(11_000)
	g.nodes[2].has("after ten seconds", false)
	g.say([]int{2}, nil)
	g.say([]int{2}, []int{3})
	g.load(c, 40)
	g.members(1, 1, 2)
	g.same(0, 1, 2)
}

// Named again within the hold, a copy goes on with what it holds; and the wait begins anew when it leaves once more.
func TestAFormerCopyThatIsNamedAgainKeepsItsData(t *testing.T) {
	g, c := swapped(t, 73, catalog.Queue)
	g.run(25_000)
	g.say([]int{2}, nil)
	g.run(100) // it is admitted beside the others only where more are wished for: it learns on
	if s := g.nodes[2].status(); s.Kept != 0 || s.Role != "learner" || s.Durable != g.nodes[0].status().Durable {
		t.Fatalf("it learns: %+v", s)
	}
	g.run(20_000)
	g.say(nil, nil)
	g.load(c, 5)
	before := g.nodes[2].status().Durable
	g.run(25_000)
	g.nodes[2].has("its second hold runs", true)
	g.nodes[2].up = false // it reads of it after its owner, whose question it does not answer
	g.say([]int{2}, nil)  // in the role and the epoch that it had
	g.run(10)
	g.nodes[2].up = true
	g.nodes[2].m.Apply([]catalog.Change{{After: g.res}})
	g.load(c, 5)
	if s := g.nodes[2].status(); s.Durable <= before || s.Durable != g.nodes[0].status().Durable {
		t.Fatalf("it is not fed: %+v", s)
	}
	g.say(nil, nil)
	g.run(31_000)
	g.nodes[2].has("its third hold is over", false)
}

// Named again while its log is being deleted, a copy begins with nothing when that is done; and not at all where it was named no more by then, or
// its resource was deleted.
func TestAFormerCopyIsNamedAgainAsItGoes(t *testing.T) {
	for _, then := range []string{"named", "named last", "and not", "deleted"} {
		g, c := swapped(t, 74, catalog.Queue)
		n3 := g.nodes[2]
		n3.disk.stuck = true
		g.run(31_000)
		if n3.m.find(part) == nil || n3.disk.copies[part] == nil {
			t.Fatal("its deletion is done")
		}
		g.hold("20s") // it is looked at again
		g.run(5)
		if then != "named last" {
			g.say([]int{2}, []int{3})
			g.run(20)
		}
		switch then {
		case "and not":
			g.say(nil, nil)
		case "deleted":
			n3.m.Apply([]catalog.Change{{Before: g.res}})
		}
		n3.disk.stuck = false
		n3.store.run()
		if then == "named last" { // the deletion is done, and the replica does not know yet
			g.say([]int{2}, []int{3})
		}
		if then == "named" || then == "named last" {
			g.load(c, 40)
			g.members(1, 1, 2)
			g.same(0, 1, 2)
			continue
		}
		g.run(100)
		n3.has(then, false)
	}
}

// The hold begins anew in another run of the node, and its deletion is done then if it was not before.
func TestTheHoldOfAFormerCopyBeginsAnew(t *testing.T) {
	g, _ := swapped(t, 75, catalog.Queue)
	n3 := g.nodes[2]
	g.run(20_000)
	n3.kill()
	n3.restart()
	g.hold("30s")
	g.run(20_000)
	n3.has("20 s after its start", true)
	n3.disk.stuck = true
	g.run(11_000)
	n3.kill() // before its deletion is durable
	n3.restart()
	g.hold("30s")
	g.run(29_000)
	n3.has("29 s after its second start", true)
	g.run(2000)
	n3.has("31 s after it", false)
}

// The hold is changed as it runs. Less than ten seconds it never is.
func TestTheHoldOfAFormerCopyIsChanged(t *testing.T) {
	g, _ := swapped(t, 76, catalog.Queue)
	n3 := g.nodes[2]
	g.hold("1m")
	g.run(40_000)
	n3.has("it was made longer", true)
	g.hold("45s")
	g.run(2000)
	n3.has("and a little shorter", true)
	g.hold("0")
	g.run(10)
	n3.has("and none", false)
}

// While an owner is being chosen nothing goes, and nothing of a copy that has promised more than was chosen.
func TestAFormerCopyStaysWhileAnOwnerIsChosen(t *testing.T) {
	g, _ := swapped(t, 77, catalog.Queue)
	g.hold("10s")
	g.run(5000)
	a := *g.assignment()
	a.Version++
	a.Pending = &catalog.Pending{ID: "t", Epoch: 2}
	g.assign(a)
	g.run(20_000)
	n3 := g.nodes[2]
	n3.has("an owner is being chosen", true)
	if s := n3.status(); s.Kept != 0 {
		t.Fatalf("kept until %d", s.Kept)
	}
	n3.m.Seal([]SealRequest{{Partition: part, Epoch: 2}}, func([]SealAnswer) {})
	g.run(10)
	a.Version++
	a.Pending = nil
	g.assign(a) // as if it had been cancelled
	g.run(20_000)
	n3.has("it has promised the next epoch", true)
	g.transition(1, 0, 1, 3)
	g.run(9000)
	n3.has("an owner was chosen", true)
	g.run(2000)
	n3.has("ten seconds ago", false)
}

// A damaged copy is evidence: it stays.
func TestADamagedFormerCopyStays(t *testing.T) {
	g, _ := swapped(t, 78, catalog.Queue)
	n3 := g.nodes[2]
	n3.kill()
	n3.disk.copies[part].damaged = "checksum"
	n3.restart()
	g.hold("10s")
	g.run(60_000)
	n3.has("it is damaged", true)
}

// A former copy obeys nobody: what its owner of that epoch sends late does not make it grow, and its answers make it no copy again.
func TestAFormerCopyDoesNotFollow(t *testing.T) {
	g, c := swapped(t, 79, catalog.Queue)
	n3, n1 := g.nodes[2], g.nodes[0]
	at := n3.status().Durable
	g.load(c, 3)
	var sent []batch.Batch
	for _, s := range n1.disk.copies[part].batches {
		if s.b.Position >= at {
			sent = append(sent, s.b)
		}
	}
	n3.m.Receive(n1.local, protocol.Extend{Partition: part, Epoch: 1, From: n1.local, Batches: slices.Clone(sent)})
	n3.m.Receive(n1.local, protocol.Probe{Partition: part, Epoch: 1, From: n1.local})
	g.run(50)
	if s := n3.status(); len(sent) == 0 || s.Durable != at {
		t.Fatalf("it grew from %d to %d with %d batches", at, s.Durable, len(sent))
	}
}

// Who reads from a copy is sent elsewhere when it leaves, and not taken by it after.
func TestReadersAreSentFromAFormerCopy(t *testing.T) {
	g := newTrio(t, 80, 4)
	g.declare(catalog.Stream, 1, 2)
	c := g.client(0)
	g.load(c, 20)
	r := g.nodes[2].gateway(3)
	read := func() []protocol.NotServing {
		r.stream++
		r.send(protocol.Read{To: r.to(), Reply: r, Consumer: 1, Credit: 100})
		g.run(20)
		return take[protocol.NotServing](r)
	}
	if no := read(); len(no) > 0 {
		t.Fatalf("it does not take a reader: %+v", no)
	}
	g.say([]int{3}, []int{2})
	g.load(c, 40)
	if no := take[protocol.NotServing](r); len(no) != 1 || no[0].Gone {
		t.Fatalf("its reader was told %+v", no)
	}
	if no := read(); len(no) != 1 {
		t.Fatalf("a reader after that was told %+v", no)
	}
	g.run(int((6 * time.Minute).Milliseconds()))
	g.nodes[2].has("after the hold", false)
}
