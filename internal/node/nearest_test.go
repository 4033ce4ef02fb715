package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/stream"
)

// readers is how many consumers read from a node's copy of a resource although another node owns it.
func (c *cluster) readers(i int, name string) uint64 {
	s, _ := c.nodes[i].one(name)
	return s.Readers
}

// offsets are those of what a consumer got, which must be dense.
func (u *user) dense(from uint64) (next uint64) {
	u.w.t.Helper()
	for _, d := range u.got {
		if d.Ref.Offset != from {
			u.w.t.Fatalf("%s: offset %d where %d was next", u.w.name, d.Ref.Offset, from)
		}
		from++
	}
	return from
}

// Readers on every node see every record once and in order while records come, their owner dies and returns, and copies are lost.
func TestStreamsAreReadFromTheNearestCopy(t *testing.T) {
	c := newCluster(t, 10, 3)
	c.sim.RunFor(2 * time.Second)
	u := c.nodes[0].login(0)
	u.declare(broker.QueueSpec{Name: "s", Durable: true, Kind: catalog.Stream})
	c.await("three copies", func() bool { return len(c.assignment(0, "s").Followers) == 2 })
	sent := 0
	publish := func(u *user, n int) {
		var bodies []string
		for range n {
			bodies = append(bodies, fmt.Sprint("m", sent))
			sent++
		}
		u.publish("s", bodies...)
	}
	publish(u, 100)
	read := func(w *world) *user {
		v := w.login(1)
		v.ask("consume", func(done func(*broker.Error)) {
			v.s.Consume(broker.ConsumeSpec{Queue: "s", Consumer: 1, NoAck: true, Start: stream.Start{Kind: stream.StartFirst}}, done)
		})
		return v
	}
	readers := []*user{read(c.nodes[0]), read(c.nodes[1]), read(c.nodes[2])}
	caughtUp := func(us ...*user) {
		t.Helper()
		c.await(fmt.Sprintf("%d records", sent), func() bool {
			return !slices.ContainsFunc(us, func(u *user) bool { return len(u.got) < sent })
		})
		for _, u := range us {
			if n := u.dense(0); n != uint64(sent) {
				t.Fatalf("%s read %d of %d", u.w.name, n, sent)
			}
		}
	}
	caughtUp(readers...)
	owner := c.owner("s")
	for i := range c.nodes {
		if n := c.readers(i, "s"); n == 1 != (i != owner) {
			t.Errorf("%d consumers read from the copy on %s; the owner is %s", n, c.nodes[i].name, c.nodes[owner].name)
		}
	}
	x, y := (owner+1)%3, (owner+2)%3
	pub := c.nodes[x].login(0)
	publish(pub, 50)
	caughtUp(readers...)

	c.kill(owner)
	c.sim.RunFor(2 * time.Second)
	c.restart(owner)
	publish(pub, 50)
	caughtUp(readers[x], readers[y])

	other := (c.owner("s") + 1) % 3 // a follower is lost, and comes back
	left := slices.DeleteFunc([]*user{readers[x], readers[y]}, func(u *user) bool { return u.w == c.nodes[other] })
	c.kill(other)
	pub = left[0].w.login(0)
	publish(pub, 50)
	caughtUp(left...)
	c.restart(other)
	again := read(c.nodes[other])
	publish(pub, 50)
	caughtUp(append(left, again)...)
	c.sim.RunFor(20 * time.Second)
	if n := c.readers(other, "s"); n != 1 {
		t.Errorf("%d consumers read from the copy that came back", n)
	}
}
