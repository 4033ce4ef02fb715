package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

// breaks has storage find a copy broken.
func (x *member) breaks() {
	x.disk.copies[part].damaged = "checksum"
	x.m.Damaged(part, "the scrub found it broken")
}

// stocked is a stream with copies on three nodes.
func stocked(t *testing.T, seed uint64) (*trio, *fakeGateway) {
	g := newTrio(t, seed, 3)
	g.declare(catalog.Stream, 1, 2)
	c := g.client(0)
	for range 20 {
		c.publish("x")
		g.run(3)
	}
	return g, c
}

// A follower whose copy is damaged, while it runs or found so as it starts, is made anew in its place from its owner: it counts for nothing until it
// has it all, its assignment does not change, and then it is counted on.
func TestADamagedFollowerIsMadeAnewInItsPlace(t *testing.T) {
	for name, harm := range map[string]func(n3 *member){
		"as it runs":            (*member).breaks,
		"as it appends":         func(n3 *member) { n3.disk.copies[part].damaged, n3.disk.failAfter = "checksum", 0 },
		"found so as it starts": func(n3 *member) { n3.kill(); n3.disk.copies[part].damaged = "checksum"; n3.restart() },
		"while it takes one":    func(n3 *member) { n3.breaks(); n3.g.run(6); n3.breaks() },
		"its word is not heard": func(n3 *member) {
			n3.g.nodes[0].m.PeerDown("n3")
			n3.m.PeerDown("n1")
			n3.breaks()
			n3.g.run(20)
			n3.connect()
		},
		"with a crash behind it": func(n3 *member) { n3.breaks(); n3.g.run(4); n3.kill(); n3.g.run(5); n3.restart() },
	} {
		g, c := stocked(t, 51)
		before, n3 := *g.assignment(), g.nodes[2]
		harm(n3)
		c.publish("y")
		g.run(2)
		n3.disk.failAfter = -1
		var answers []SealAnswer
		if s := n3.status(); s.State == Blocked || s.State == Recovering {
			n3.m.Seal([]SealRequest{{Partition: part, Epoch: 2, Transition: "t"}}, func(as []SealAnswer) { answers = as })
			g.run(1)
			if len(answers) != 1 || answers[0].Damaged == "" {
				t.Fatalf("%s: sealed before it is whole: %+v", name, answers)
			}
		}
		g.run(1500)
		g.same(0, 1, 2)
		if s := n3.status(); s.State != Serving || s.Role != "follower" || n3.disk.anew == 0 {
			t.Fatalf("%s: %+v, given up %d times", name, s, n3.disk.anew)
		}
		if a := g.assignment(); a.Version != before.Version || len(g.asked) != 0 {
			t.Fatalf("%s: the assignment has changed: %+v", name, a)
		}
		g.nodes[1].kill()
		c.publish("counted")
		g.run(50)
		if at := c.upTo(); at != c.next {
			t.Fatalf("%s: confirmed below %d with it, want %d", name, at, c.next)
		}
	}
}

// Where its owner lacks the others too, what is confirmed must not be counted twice: by what the damaged copy had said before.
func TestADamagedCopyCountsForNothingThatComes(t *testing.T) {
	g, c := stocked(t, 52)
	g.nodes[1].kill()
	g.run(5)
	g.nodes[2].disk.stuck = true // it gives nothing up yet
	g.nodes[2].breaks()
	g.run(5)
	before := g.nodes[0].status()
	c.publish("y")
	g.run(50)
	if no := take[protocol.PublishRefused](c); len(no) != 1 || no[0].Cause != protocol.CauseCopies || g.nodes[0].status().Confirmed != before.Confirmed {
		t.Fatalf("with one copy that is whole: %+v, %+v", no, g.nodes[0].status())
	}
}

// An owner tells its node, and that the controller; where another owns by then, it is made anew from that, once nobody is being chosen. What only it
// had is kept aside.
func TestADamagedOwnerIsToldOfAndFollows(t *testing.T) {
	g, c := stocked(t, 53)
	n1 := g.nodes[0]
	n1.cut["n2"], n1.cut["n3"] = true, true
	c.publish("nobody else has it")
	g.run(5)
	for _, o := range g.nodes[1:] {
		o.m.PeerDown("n1")
		n1.m.PeerDown(o.name)
	}
	n1.breaks()
	g.run(5)
	if d := n1.m.Damages(); len(d) != 1 || d[0].Partition != part || d[0].Epoch != 1 || !strings.Contains(d[0].Reason, "broken") {
		t.Fatalf("told of: %+v", d)
	}
	clear(n1.cut)
	g.transition(1, 1, 2)
	n1.connect()
	g.run(1500)
	if d := n1.m.Damages(); len(d) != 0 {
		t.Fatalf("still told of: %+v", d)
	}
	g.same(1, 0, 2)
	if s := n1.status(); s.State != Serving || s.Role != "follower" || n1.disk.anew != 1 {
		t.Fatalf("%+v, given up %d times", s, n1.disk.anew)
	}
	if len(n1.ends) != 1 || n1.ends[0].Epoch != 2 || n1.ends[0].From >= n1.ends[0].To || len(n1.ends[0].Batches) == 0 {
		t.Fatalf("kept aside: %+v", n1.ends)
	}
	if !slices.ContainsFunc(n1.told, func(s string) bool { return strings.Contains(s, "kept true") }) {
		t.Errorf("nothing is told of what was cut: %v", n1.told)
	}
}

// What breaks again and again is left to people, and they are told why.
func TestACopyThatBreaksAgainIsLeftToPeople(t *testing.T) {
	g, _ := stocked(t, 54)
	n3 := g.nodes[2]
	for range partition.AnewMost + 1 {
		n3.breaks()
		g.sim.RunFor(2 * time.Second)
	}
	if s := n3.status(); s.State != Blocked || !strings.Contains(s.Reason, "made anew 3 times") || n3.disk.anew != partition.AnewMost {
		t.Fatalf("%+v, given up %d times", s, n3.disk.anew)
	}
	if d := n3.m.Damages(); len(d) != 0 {
		t.Errorf("a follower is told of as an owner: %v", []protocol.Damaged(d))
	}
}

// While an owner is being chosen, nobody knows whether that needs what a damaged copy holds, nor what it had promised before it broke: it keeps it, and
// says why. Then it is made anew.
func TestADamagedCopyIsKeptWhileAnOwnerIsChosen(t *testing.T) {
	g, _ := stocked(t, 55)
	n3 := g.nodes[2]
	a := *g.assignment()
	a.Version++
	a.Pending = &catalog.Pending{ID: "t", Epoch: 2}
	g.assign(a)
	g.run(5)
	n3.breaks()
	g.run(500)
	if s := n3.status(); s.State != Blocked || !strings.Contains(s.Reason, "another owner is being chosen") || n3.disk.anew != 0 {
		t.Fatalf("%+v, given up %d times", s, n3.disk.anew)
	}
	a.Version++
	a.Pending = nil
	g.assign(a)
	g.run(500)
	if s := n3.status(); s.State != Serving || n3.disk.anew != 1 {
		t.Fatalf("afterwards: %+v, given up %d times", s, n3.disk.anew)
	}
	g.same(0, 1, 2)
}

// A copy that nobody else holds is kept as it is, and people are told.
func TestTheOnlyCopyThatIsDamagedIsKept(t *testing.T) {
	g := newTrio(t, 56, 1)
	g.declare(catalog.Queue)
	g.nodes[0].breaks()
	g.run(500)
	if s := g.nodes[0].status(); s.State != Blocked || !strings.Contains(s.Reason, "no other copy") || g.nodes[0].disk.anew != 0 {
		t.Fatalf("%+v, given up %d times", s, g.nodes[0].disk.anew)
	}
}
