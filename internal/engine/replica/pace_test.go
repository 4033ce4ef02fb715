package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

// slowWay is a gateway on another node.
type slowWay struct {
	*fakeGateway
	full  bool
	after int // it is full after so many messages; 0: never
}

func (s *slowWay) Send(msg any) {
	s.fakeGateway.Send(msg)
	if s.after > 0 {
		s.after--
		s.full = s.full || s.after == 0
	}
}

// Crowded implements protocol.Crowder.
func (s *slowWay) Crowded() bool { return s.full }

func (s *slowWay) attach() {
	s.stream++
	s.send(protocol.Attach{To: s.to(), Reply: s, Producer: s.prod, First: 1})
	s.w.settle()
}

// Deliveries wait in the log while much waits to be sent to the node of their gateway, and come once each and in order when there is room.
func TestDeliveriesWaitForRoomOnTheWay(t *testing.T) {
	w := newWorld(t, 31)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	g := w.gateway(0)
	g.attach(1)
	large := make([]byte, paceBytes/2)
	for i := range 6 {
		g.publish(fmt.Sprint(i) + string(large))
		w.settle()
	}
	far := &slowWay{fakeGateway: w.gateway(1), full: true}
	far.attach()
	for c := range uint64(6) {
		far.send(protocol.Subscribe{To: far.to(), Consumer: c + 1, Prefetch: 1, Credit: 1})
	}
	w.sim.RunFor(100 * time.Millisecond)
	if got := far.bodies(); len(got) > 0 {
		t.Fatalf("%d were sent on a crowded way", len(got))
	}
	far.full, far.after = false, 1
	var order string
	for range 20 {
		w.sim.RunFor(2 * paceEvery)
		got := far.bodies()
		if len(got) > 3 { // what comes to paceBytes, and the one that passes it
			t.Fatalf("%d were sent before the way was looked at again", len(got))
		}
		for _, b := range got {
			order += b[:1]
		}
		far.full, far.after = false, 1
	}
	if order != "012345" {
		t.Fatalf("delivered %s", order)
	}
}

func TestStreamsWaitForRoomOnTheWay(t *testing.T) {
	w := newWorld(t, 32)
	w.declare(catalog.Stream, nil, &stream.Settings{})
	g := w.gateway(0)
	g.attach(1)
	g.publish("a", "b")
	w.settle()
	far := &slowWay{fakeGateway: w.gateway(1), full: true}
	far.attach()
	far.follow(1, 1<<20, stream.Start{Kind: stream.StartFirst}, "")
	w.sim.RunFor(100 * time.Millisecond)
	if got, _ := far.read(1); len(got) > 0 {
		t.Fatalf("%v was sent on a crowded way", got)
	}
	far.full = false
	w.sim.RunFor(2 * paceEvery)
	if got, _ := far.read(1); len(got) != 2 {
		t.Fatalf("sent %v", got)
	}
}

// What a copy missed waits while its node's way is crowded, and comes then.
func TestCatchingUpWaitsForRoomOnTheWay(t *testing.T) {
	g := newTrio(t, 33, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	g.nodes[1].kill()
	c.publish("a", "b")
	g.run(20)
	g.nodes[0].crowded["n2"] = true
	g.nodes[1].restart()
	g.run(100)
	if s, o := g.nodes[1].status(), g.nodes[0].status(); s.Position >= o.Position {
		t.Fatalf("a copy behind a crowded way was brought from there to %d", s.Position)
	}
	g.nodes[0].crowded["n2"] = false
	g.run(50)
	g.same(0, 1, 2)
}

func TestCopiesOfAQueueHearWhatIsConfirmedWithTheNextBatch(t *testing.T) {
	for _, kind := range []catalog.Kind{catalog.Queue, catalog.Stream} {
		g := newTrio(t, 1, 3)
		g.declare(kind, 1, 2)
		c := g.client(0)
		g.run(50)
		g.alone = 0
		const n, apart = 20, 10
		for range n {
			c.publish("x")
			g.run(apart)
		}
		g.same(0, 1, 2)
		atMost := 2 * (n*apart/int(tellEvery.Milliseconds()) + 1)
		if kind == catalog.Queue && g.alone > atMost {
			t.Errorf("two copies of a queue were told %d times by itself what was confirmed, want at most %d", g.alone, atMost)
		}
		if kind == catalog.Stream && g.alone != 2*n { // clients read there
			t.Errorf("two copies of a stream were told %d times by itself what was confirmed, want %d", g.alone, 2*n)
		}
	}
}
