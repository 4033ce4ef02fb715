package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

// beside begins to read on a node's copy from an offset on, as consumer 9 of a gateway on that node.
func (x *member) beside(stream uint64, offset uint64, credit int64) *fakeGateway {
	g := x.gateway(5)
	g.stream = stream
	g.send(protocol.Read{To: g.to(), Consumer: 9, Offset: offset, Credit: credit, Reply: g})
	x.g.run(5)
	return g
}

func (g *fakeGateway) readAll() string {
	out, _ := g.read(9)
	return strings.Join(out, " ")
}

// ended is why a reading stream has ended; "" if it has not.
func (g *fakeGateway) ended() string {
	for _, m := range take[protocol.NotServing](g) {
		return m.Reason
	}
	return ""
}

func TestStreamIsReadFromACopyThatFollows(t *testing.T) {
	g := newTrio(t, 21, 3)
	g.declare(catalog.Stream, 1, 2)
	c := g.client(0)
	c.publish("a", "b", "c")
	g.run(10)
	near := g.nodes[1].beside(1, 1, 1<<20)
	if got := near.readAll(); got != "1:b 2:c" {
		t.Fatalf("read %q", got)
	}
	c.publish("d")
	g.run(10)
	if got := near.readAll(); got != "3:d" {
		t.Fatalf("read %q", got)
	}
	if s := g.nodes[1].status(); s.Readers != 1 || s.Consumers != 0 {
		t.Fatalf("status %+v", s)
	}

	// Nothing that is not confirmed: the owner alone has it.
	for _, i := range []int{1, 2} {
		g.nodes[i].disk.stuck = true
	}
	c.publish("e")
	g.run(50)
	if got := near.readAll(); got != "" {
		t.Fatalf("read %q, which is not confirmed", got)
	}
	for _, i := range []int{1, 2} {
		g.nodes[i].disk.stuck = false
		g.nodes[i].store.run()
	}
	g.run(20)
	if got := near.readAll(); got != "4:e" {
		t.Fatalf("read %q", got)
	}

	// Credit bounds what comes, and more of it gives more.
	slow := g.nodes[1].beside(2, 0, 1)
	if got := slow.readAll(); got != "0:a 1:b 2:c" {
		t.Fatalf("with a byte of credit: read %q", got)
	}
	slow.send(protocol.Credit{To: slow.to(), Consumer: 9, Bytes: 1 << 20})
	g.run(5)
	if got := slow.readAll(); got != "3:d 4:e" {
		t.Fatalf("with more credit: read %q", got)
	}
	slow.send(protocol.Unread{To: slow.to()})
	c.publish("f")
	g.run(10)
	if got := slow.readAll() + near.readAll(); got != "5:f" {
		t.Fatalf("after one has ended: read %q", got)
	}
}

func TestCopiesThatCannotServeSaySo(t *testing.T) {
	g := newTrio(t, 22, 3)
	g.declare(catalog.Stream, 1)
	c := g.client(0)
	c.publish("a")
	g.run(10)
	if why := g.nodes[0].beside(1, 0, 1).ended(); why == "" {
		t.Error("an owner took a reader beside its own")
	}
	if why := g.nodes[1].beside(1, lagRecords+2, 1).ended(); why == "" {
		t.Error("a copy that is far behind took a reader")
	}
	near := g.nodes[1].beside(2, 1, 1<<20)
	g.transition(1, 0, 1) // the copy owns from now on
	if why := near.ended(); why == "" {
		t.Error("the reader was not sent to the new owner")
	}
	q := newTrio(t, 23, 2)
	q.declare(catalog.Queue, 1)
	if why := q.nodes[1].beside(1, 0, 1).ended(); why == "" {
		t.Error("a queue was read")
	}
}

// A copy that falls behind, or whose owner does not feed it, sends its readers away; an idle one does not, and neither does one that has
// no way to its owner.
func TestReadersLeaveACopyThatLags(t *testing.T) {
	g := newTrio(t, 24, 3)
	g.declare(catalog.Stream, 1, 2)
	c := g.client(0)
	c.publish("a")
	g.run(10)
	near := g.nodes[1].beside(1, 0, 1<<20)
	g.run(60_000)
	if why := near.ended(); why != "" {
		t.Fatalf("an idle copy sent its reader away: %s", why)
	}
	g.nodes[1].cut["n1"] = true
	g.nodes[0].m.PeerDown("n2")
	g.nodes[1].m.PeerDown("n1")
	g.run(60_000)
	if why := near.ended(); why != "" || near.readAll() != "0:a" {
		t.Fatalf("a copy without a way to its owner sent its reader away: %s", why)
	}
	delete(g.nodes[1].cut, "n1")
	g.nodes[1].connect()
	g.run(100)
	c.publish("b")
	g.run(10)
	if got := near.readAll(); got != "1:b" {
		t.Fatalf("read %q", got)
	}

	g.nodes[1].cut["n1"] = true // a session that carries nothing
	c.publish("c")
	g.nodes[1].clock.Skew(-time.Hour, 0) // changes nothing
	g.run(2*lagLimit - 100)
	if why := near.ended(); why != "" {
		t.Fatalf("sent away too soon: %s", why)
	}
	g.run(200)
	if why := near.ended(); why == "" {
		t.Fatal("a copy that hears nothing of its owner kept its reader")
	}
	delete(g.nodes[1].cut, "n1")
	g.nodes[1].connect()
	g.run(100)

	near = g.nodes[1].beside(2, 2, 1<<20)
	if got := near.readAll(); got != "2:c" {
		t.Fatalf("read %q", got)
	}
	g.nodes[1].disk.stuck = true // once so much is on its way to it, it only hears of what is confirmed
	large := strings.Repeat("x", 512<<10)
	for range 2 * partition.FeedWindow / len(large) {
		c.publish(large)
		g.run(20)
	}
	g.run(lagLimit / 2)
	if why := near.ended(); why != "" {
		t.Fatalf("sent away too soon: %s", why)
	}
	g.run(lagLimit/2 + 2000)
	if why := near.ended(); why == "" || g.nodes[1].status().Role != partition.Follower.String() {
		t.Fatalf("a copy that is behind kept its reader: %q", why)
	}
}
