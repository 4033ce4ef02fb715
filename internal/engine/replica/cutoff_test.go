package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/clock"
)

// An owner that reaches too few copies delivers nothing, from then on, whether the sessions ended for silence or broke. What the wall clock shows
// changes nothing.
func TestAnOwnerThatIsCutOffStopsDelivering(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			g := newTrio(t, 9, 3)
			g.declare(catalog.Queue, 1, 2)
			c := g.client(0)
			for i := range 20 {
				c.publish(fmt.Sprint("m", i))
			}
			g.run(20)
			if silent {
				for _, x := range g.nodes[1:] {
					g.nodes[0].cut[x.name] = true
					g.nodes[0].m.PeerSilent(x.name)
				}
			} else {
				g.nodes[1].kill()
				g.nodes[2].kill()
			}
			g.run(1)
			g.nodes[0].clock.Skew(-time.Hour, 0)
			c.got = nil
			c.send(protocol.Get{To: c.to(), Request: 1, NoAck: true}, protocol.Subscribe{To: c.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
			g.run(50)
			if got, one := c.bodies(), take[protocol.GetDone](c); len(got)+len(one) > 0 {
				t.Fatalf("delivered %v, and %+v, while another owner may have been chosen", got, one)
			}
			if silent {
				clear(g.nodes[0].cut)
				g.nodes[0].connect()
			} else {
				g.nodes[2].restart()
			}
			g.run(50)
			if got, one := c.bodies(), take[protocol.GetDone](c); len(got)+len(one) != 20 || len(one) != 1 || !one[0].OK {
				t.Fatalf("delivered %d of 20 once a follower was back, and %+v", len(got), one)
			}
		})
	}
}

// Copies are sealed by one request for all of a node. One that takes its time, here over an append that does not become durable, holds up
// no other's answer.
func TestACopyThatIsSlowToSealHoldsUpNoOther(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	g := w.gateway(0)
	g.attach(1)
	w.settle()
	var got []SealAnswer
	seal := func(ps ...ident.Partition) {
		var reqs []SealRequest
		for _, p := range ps {
			reqs = append(reqs, SealRequest{Partition: p, Epoch: 2, Transition: "t"})
		}
		w.m.Seal(reqs, func(as []SealAnswer) { got = append(got, as...) })
	}
	other := ident.Partition{Incarnation: part.Incarnation + 1}
	seal(other)
	w.settle()
	got = nil
	w.disk.stuck = true
	g.publish("a")
	seal(part, other)
	w.sim.RunFor(2 * sealedAfter)
	if len(got) != 1 || got[0].Partition != other {
		t.Fatalf("answers %+v while one copy cannot", got)
	}
	w.disk.stuck = false
	w.store.box.Post(func() {})
	w.settle()
	if len(got) != 2 || got[1].Partition != part || got[1].Transition != "t" {
		t.Fatalf("answers %+v", got)
	}
}

// A seal that comes after the catalog has deleted the partition makes no copy, which nobody would delete again.
func TestASealOfADeletedPartition(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	w.settle()
	w.m.Apply([]catalog.Change{{Before: w.res}})
	var got []SealAnswer
	w.m.Seal([]SealRequest{{Partition: part, Epoch: 2, Transition: "t"}}, func(as []SealAnswer) { got = append(got, as...) })
	w.settle()
	if len(got) != 1 || got[0].Refused == "" || got[0].Transition != "t" || len(w.m.sorted()) > 0 || w.m.Promises() != nil {
		t.Fatalf("answers %+v; copies %v, promises %v", got, w.m.sorted(), w.m.Promises())
	}
}

// An owner that hears nothing of the catalog, and reaches another copy all the same, learns from that one that it is no owner any more: it delivers
// nothing that the one that was chosen may have handed out and had settled. Whether that one tells it, or one that follows it.
func TestAnOwnerLearnsOfAnotherFromItsCopies(t *testing.T) {
	for _, owner := range []int{1, 2} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("owner=%d late=%v", owner, late), func(t *testing.T) {
				g := newTrio(t, 11, 3)
				g.declare(catalog.Queue, 1, 2)
				c := g.client(0)
				c.publish("a", "b", "c")
				g.run(20)
				old := g.nodes[0]
				old.cut["n3"] = true // it goes on to hear n2
				if late {
					old.cut["n2"] = true
				}
				old.deaf = true
				g.transition(owner, 1, 2)
				if late { // the word was lost, and the way opens again
					g.nodes[1].m.PeerDown("n1")
					old.m.PeerDown("n2")
					delete(old.cut, "n2")
					old.connect()
				}
				old.m.PeerSilent("n3")
				g.run(20)
				c.got = nil
				c.send(protocol.Subscribe{To: c.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
				g.run(50)
				if got := c.bodies(); len(got) > 0 {
					t.Fatalf("delivered %v while another owns", got)
				}
			})
		}
	}
}

// A copy that is sealed tells its owner before it answers the seal. One whose controller does not reach it, and whose copies it reaches, so stops
// delivering before anybody can have been chosen; as long as enough copies are not sealed, nobody can be, and it goes on.
func TestASealedCopyTellsItsOwner(t *testing.T) {
	for sealed := range 3 {
		g := newTrio(t, 12, 3)
		g.declare(catalog.Queue, 1, 2)
		c := g.client(0)
		c.publish("a", "b", "c")
		g.run(20)
		g.nodes[0].deaf = true
		answered := 0
		for _, x := range g.nodes[1 : 1+sealed] {
			x.m.Seal([]SealRequest{{Partition: part, Epoch: 2, Transition: "t"}}, func(as []SealAnswer) {
				for _, a := range as {
					if a.Refused+a.Damaged == "" {
						answered++
					}
				}
			})
		}
		g.sim.RunUntil(func() bool { return answered == sealed }, time.Second)
		g.run(1) // as long as a message takes
		c.got = nil
		c.send(protocol.Subscribe{To: c.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
		g.run(50)
		want := 3
		if sealed == 2 {
			want = 0
		}
		if got := c.bodies(); answered != sealed || len(got) != want {
			t.Errorf("%d of 2 copies answered a seal: delivered %v", answered, got)
		}
		c.publish("d")
		g.run(50)
		if no := take[protocol.PublishRefused](c); len(no) > 0 {
			t.Errorf("%d of 2 copies answered a seal: refused %+v, which the next owner would take", answered, no)
		}
	}
}

// An owner whose node stood still hands nothing out before as many copies as a confirm needs have said anew that they follow: sessions that look whole
// are none, perhaps, and another may own by now. Where they follow, that is a round trip.
func TestAnOwnerThatStoodStillAsksFirst(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		g := newTrio(t, 13, 3)
		old := g.nodes[0]
		old.m.env.Pulse = new(clock.Pulse)
		g.declare(catalog.Queue, 1, 2)
		c := g.client(0)
		c.publish("a", "b", "c")
		g.run(20)
		old.m.env.Pulse.Beat(old.clock.Mono())
		if replaced {
			old.cut["n2"], old.cut["n3"], old.deaf = true, true, true
			g.transition(1, 1, 2)
		}
		g.run(2 * int(clock.HaltAfter.Milliseconds()))
		c.got = nil
		c.send(protocol.Subscribe{To: c.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
		g.run(1)
		if got := c.bodies(); len(got) > 0 {
			t.Errorf("replaced %v: delivered %v before anybody was asked", replaced, got)
		}
		g.run(50)
		want := 3
		if replaced {
			want = 0
		}
		if got := c.bodies(); len(got) != want {
			t.Errorf("replaced %v: delivered %v", replaced, got)
		}
	}
}

// An owner hears of a follower's copy that has become damaged, or was found so: it cannot confirm, so that new publishes are refused where too few
// are left, and none of what it held is evidence for a change of members.
func TestADamagedFollowerIsToldOf(t *testing.T) {
	for _, when := range []string{"as it writes", "at its start"} {
		g := newTrio(t, 91, 3)
		g.declare(catalog.Queue, 1, 2)
		c := g.client(0)
		c.publish("a")
		g.run(10)
		n3 := g.nodes[2]
		if when == "as it writes" {
			n3.disk.failAfter = 0
			c.publish("b")
		} else {
			n3.kill()
			n3.disk.copies[part].damaged = "checksum"
			n3.disk.stuck = true // it gives up nothing to be made anew
			n3.restart()
		}
		g.run(50)
		c.upTo()
		g.nodes[1].kill()
		g.run(10)
		c.publish("c")
		g.run(10)
		if no := take[protocol.PublishRefused](c); len(no) != 1 || no[0].Cause != protocol.CauseCopies {
			t.Errorf("%s: a publish that nobody can confirm: %+v", when, no)
		}
		if at, counts := g.nodes[0].m.find(part).held(n3.disk.id); counts {
			t.Errorf("%s: its copy counts, and holds the log up to %d", when, at)
		}
	}
}
