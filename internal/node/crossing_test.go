package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
)

// These tests are about a change of owner as clients of the nodes that stay see it (design 2 §2, "Order and claims"; design 5, "Across a change
// of owner"): a pause.

// ready is a cluster of three whose voters are settled.
func ready(t *testing.T, seed uint64) *cluster {
	c := newCluster(t, seed, 3)
	c.await("three voters", func() bool { return c.voters(0) == 3 })
	c.sim.RunFor(2 * time.Second)
	return c
}

// make declares a resource that a certain node owns, and gives its name.
func (c *cluster) make(owner int, q broker.QueueSpec) string {
	c.t.Helper()
	u := c.nodes[owner].login(0)
	for i := range 100 {
		q.Name = fmt.Sprint("q", i)
		u.declare(q)
		if c.assignment(owner, q.Name).Owner.Node == c.nodes[owner].name {
			c.await("three copies", func() bool { return len(c.assignment(owner, q.Name).Followers) == 2 })
			return q.Name
		}
	}
	c.t.Fatal("it is never placed where it is to be")
	return ""
}

// lose kills the owner of a resource and waits until another serves it, as the node next to it sees.
func (c *cluster) lose(name string) (lost int) {
	c.t.Helper()
	lost = c.owner(name)
	epoch := c.assignment(lost, name).Epoch
	c.kill(lost)
	c.taken((lost+1)%3, name, epoch+1)
	return lost
}

// taken waits until a resource is served in an epoch.
func (c *cluster) taken(see int, name string, epoch uint64) {
	c.t.Helper()
	c.await("another owner", func() bool {
		a := c.assignment(see, name)
		return a.Epoch == epoch && a.Pending == nil
	})
	own := c.nodes[slices.IndexFunc(c.nodes, func(w *world) bool { return w.name == c.assignment(see, name).Owner.Node })]
	c.await("the new owner to serve", func() bool {
		s, _ := own.one(name)
		return s.State == replica.Serving
	})
}

// take consumes without waiting for deliveries.
func (u *user) take(spec broker.ConsumeSpec) {
	u.w.t.Helper()
	u.ask("consume", func(done func(*broker.Error)) { u.s.Consume(spec, done) })
}

// bodies are those of what was delivered.
func (u *user) bodies() (out []string) {
	u.w.t.Helper()
	for _, d := range u.got {
		m, err := broker.DecodeEnvelope(d.Payload)
		if err != nil {
			u.w.t.Fatal(err)
		}
		out = append(out, string(m.Body))
	}
	return out
}

// settle settles deliveries by their place in what was delivered.
func (u *user) settle(o broker.Settlement, places ...int) {
	u.box.Post(func() {
		for _, i := range places {
			u.s.Settle([]broker.Ref{u.got[i].Ref}, o)
		}
	})
}

// The single active consumer is the same one after a change of owner, whichever gateway comes first to the new owner: another would be handed
// the next message while it still works on the one before.
func TestTheSingleActiveConsumerStays(t *testing.T) {
	for active := range 2 {
		c := ready(t, 21)
		name := c.make(0, broker.QueueSpec{Durable: true, Kind: catalog.Queue, Queue: queue.Settings{SingleActive: true}})
		a, b := c.nodes[1+active].login(0), c.nodes[2-active].login(1)
		a.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 1})
		b.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 1, Priority: 5})
		a.publish(name, "1", "2", "3")
		c.await("the first delivery", func() bool { return len(a.got) == 1 })
		c.lose(name)
		b.publish(name, "4")
		c.sim.RunFor(time.Second)
		if len(a.got) != 1 || len(b.got) != 0 {
			t.Fatalf("while 1 is held, %q and %q were delivered", a.bodies(), b.bodies())
		}
		for i := range 4 {
			a.settle(broker.Accept, i)
			c.await("the next delivery", func() bool { return len(a.got) == min(i+2, 4) })
		}
		c.sim.RunFor(time.Second)
		if got := a.bodies(); !slices.Equal(got, []string{"1", "2", "3", "4"}) || len(b.got) != 0 {
			t.Fatalf("%q and %q were delivered", got, b.bodies())
		}
	}
}

// send publishes without waiting, under the numbers from first on.
func (u *user) send(queue string, first uint64, bodies ...string) {
	u.box.Post(func() {
		for i, body := range bodies {
			m := broker.Message{RoutingKey: queue, Body: [][]byte{[]byte(body)}}
			if err := u.s.Publish(broker.Tag{Channel: 1, Seq: first + uint64(i)}, &m); err != nil {
				u.w.t.Error(err)
			}
		}
	})
}

// What is in flight when the owner is lost, at any moment of it, is sent again by every gateway in its order and answered once; and where
// the queue takes so many and no more, what was refused is not there and what was confirmed is, once.
func TestPublishesCrossInOrderOnce(t *testing.T) {
	most := int64(25)
	for _, limit := range []*int64{nil, &most} {
		for moment := range 7 {
			c := ready(t, uint64(31+moment))
			name := c.make(0, broker.QueueSpec{
				Durable: true, Kind: catalog.Queue, Queue: queue.Settings{MaxLength: limit, Overflow: queue.RejectPublish},
			})
			var us []*user
			for _, at := range [][2]int{{1, 0}, {1, 1}, {2, 0}} {
				u := c.nodes[at[0]].login(at[1])
				u.ended = map[uint64]broker.Outcome{}
				us = append(us, u)
			}
			const each = 20
			for burst := range 4 { // some is confirmed, some on its way, some not sent
				for i, u := range us {
					var bodies []string
					for n := range each / 4 {
						bodies = append(bodies, fmt.Sprintf("%d.%02d", i, burst*each/4+n))
					}
					u.send(name, uint64(burst*each/4)+1, bodies...)
				}
				c.sim.RunFor(150 * time.Microsecond)
			}
			c.sim.RunFor(time.Duration(moment) * 200 * time.Microsecond)
			c.lose(name)
			c.await("all outcomes", func() bool {
				return !slices.ContainsFunc(us, func(u *user) bool { return len(u.ended) < each })
			})
			stored := map[string]bool{}
			for i, u := range us {
				for n, o := range u.ended {
					switch {
					case o == broker.Confirmed:
						stored[fmt.Sprintf("%d.%02d", i, n-1)] = true
					case o == broker.Unknown || limit == nil:
						t.Errorf("moment %d: publish %d of %d ended as %d", moment, n, i, o)
					}
				}
			}
			if limit != nil && int64(len(stored)) != most {
				t.Errorf("moment %d: %d were confirmed into a queue of %d", moment, len(stored), most)
			}
			v := c.nodes[1].login(0)
			v.consume(name, len(stored))
			c.sim.RunFor(100 * time.Millisecond)
			last := map[byte]string{}
			for _, body := range v.bodies() {
				if !stored[body] || body <= last[body[0]] {
					t.Fatalf("moment %d: %s comes after %s; %d were confirmed:\n%q", moment, body, last[body[0]], len(stored), v.bodies())
				}
				last[body[0]] = body
			}
			if len(v.got) != len(stored) {
				t.Fatalf("moment %d: %d were confirmed and %d are there", moment, len(stored), len(v.got))
			}
		}
	}
}

// fetch gets one message.
func (u *user) fetch(queue string, noAck bool) (d broker.Delivery, ok bool) {
	u.w.t.Helper()
	u.ask("get", func(done func(*broker.Error)) {
		u.s.Get(queue, noAck, func(got broker.Delivery, found bool, err *broker.Error) {
			d, ok = got, found
			if ok {
				d.Payload = slices.Clone(got.Payload)
			}
			done(err)
		})
	})
	return d, ok
}

func text(t *testing.T, d broker.Delivery) string {
	t.Helper()
	m, err := broker.DecodeEnvelope(d.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return string(m.Body)
}

// What clients hold stays theirs: what they settle while nobody owns the queue lands on the right message, of each kind; nobody is given more
// than its prefetch; what was given back has its count, also after the next change of owner.
func TestWhatIsHeldIsSettledAfterwards(t *testing.T) {
	c := ready(t, 51)
	empty, graves := "", "graves"
	u := c.nodes[1].login(0)
	u.declare(durable(graves))
	name := c.make(0, broker.QueueSpec{
		Durable: true, Kind: catalog.Queue, Queue: queue.Settings{DeadLetterExchange: &empty, DeadLetterRoutingKey: &graves},
	})
	var bodies []string
	for i := range 20 {
		bodies = append(bodies, fmt.Sprintf("m%02d", i))
	}
	u.publish(name, bodies...)
	x, y, z := c.nodes[1].login(0), c.nodes[2].login(1), c.nodes[2].login(0)
	x.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 4})
	c.await("four deliveries", func() bool { return len(x.got) == 4 })
	y.take(broker.ConsumeSpec{Queue: name, Consumer: 7, Prefetch: 3})
	c.await("three deliveries", func() bool { return len(y.got) == 3 })
	fetched, ok := z.fetch(name, false)
	if !ok || text(t, fetched) != "m07" {
		t.Fatalf("got %q", text(t, fetched))
	}
	lost := c.owner(name)
	epoch := c.assignment(lost, name).Epoch
	c.kill(lost)
	x.settle(broker.Accept, 0)
	x.settle(broker.Requeue, 1)
	x.settle(broker.Reject, 2)
	y.settle(broker.Accept, 0, 1)
	z.box.Post(func() { z.s.Settle([]broker.Ref{fetched.Ref}, broker.Requeue) })
	c.sim.RunFor(time.Millisecond)
	c.taken(1, name, epoch+1)
	c.await("what there is room for", func() bool { return len(x.got) == 4+3 && len(y.got) == 3+2 })
	c.sim.RunFor(2 * time.Second)
	if len(x.got) != 7 || len(y.got) != 5 {
		t.Fatalf("delivered %q of at most 4 at a time, and %q of at most 3", x.bodies(), y.bodies())
	}
	if more := append(x.bodies()[4:], y.bodies()[3:]...); len(more) != 5 || slices.Contains(more, "m00") || slices.Contains(more, "m02") {
		t.Fatalf("delivered %q", more)
	}
	x.settle(broker.Accept, 3, 4, 5, 6)
	y.settle(broker.Accept, 2, 3, 4)
	c.await("more", func() bool { return len(x.got) == 11 && len(y.got) == 8 })
	all := append(slices.Clone(x.got[7:]), y.got[5:]...)
	for _, body := range []string{"m01", "m07"} {
		i := slices.IndexFunc(all, func(d broker.Delivery) bool { return text(t, d) == body })
		if i < 0 || all[i].Count != 1 || !all[i].Redelivered {
			t.Fatalf("%s was given back once: %d of %+v", body, i, all)
		}
	}
	grave := c.nodes[2].login(1)
	if got := grave.consume(graves, 1); !slices.Equal(got, []string{"m02"}) {
		t.Fatalf("buried are %q", got)
	}

	c.countsGoOn(name, lost, epoch+1, x, y)
}

// countsGoOn gives a message back to a queue whose owner is lost for the second time, by the one of two clients whose node stays: its count is one
// more.
func (c *cluster) countsGoOn(name string, lost int, epoch uint64, x, y *user) {
	c.t.Helper()
	t := c.t
	c.restart(lost)
	c.await("three copies at one place", func() bool {
		all := c.copies(name)
		return len(all) == 3 && all[0].Durable == all[1].Durable && all[1].Durable == all[2].Durable && all[0].Epoch == all[2].Epoch
	})
	own := c.owner(name)
	keeps := x
	if c.nodes[own] == x.w { // its client is lost with it
		keeps = y
	}
	i := len(keeps.got) - 1
	for keeps.got[i].Count == 0 && i > len(keeps.got)-3 {
		i--
	}
	want := keeps.got[i].Count + 1
	body := text(t, keeps.got[i])
	before := len(keeps.got)
	c.kill(own)
	keeps.settle(broker.Requeue, i)
	c.taken((own+1)%3, name, epoch+1)
	for n := before; ; n++ {
		c.await(body+" again", func() bool { return len(keeps.got) > n })
		if text(t, keeps.got[n]) != body {
			keeps.settle(broker.Accept, n)
			continue
		}
		if got := keeps.got[n]; got.Count != want || !got.Redelivered {
			t.Errorf("%s comes back with count %d, redelivered %t; want %d", body, got.Count, got.Redelivered, want)
		}
		return
	}
}

// A gateway that comes too late with its claims has lost them: others are given what it holds, flagged, after 500 ms. What its client settles then
// settles nothing that is another's.
func TestClaimsThatComeTooLate(t *testing.T) {
	c := ready(t, 61)
	name := c.make(0, durable(""))
	u := c.nodes[1].login(0)
	u.publish(name, "a", "b", "c")
	slow := c.nodes[2].login(0)
	slow.take(broker.ConsumeSpec{Queue: name, Consumer: 1, Prefetch: 1})
	c.await("a delivery", func() bool { return len(slow.got) == 1 })
	lost := c.owner(name)
	c.kill(lost)
	killed := c.sim.Now()
	late := false
	plain := c.net.Delay
	c.net.Delay = func(from, to string, p mesh.Purpose) time.Duration {
		if from == "n3" && p == mesh.Work && !late {
			return 3 * time.Second
		}
		return plain(from, to, p)
	}
	c.await("another owner", func() bool { a := c.assignment(1, name); return a.Epoch == 2 && a.Pending == nil })
	if c.assignment(1, name).Owner.Node == "n3" {
		t.Skip("the slow gateway is the owner's own")
	}
	quick := c.nodes[1].login(1)
	if got := quick.consume(name, 3); !slices.Equal(got, []string{"a", "b", "c"}) || !quick.got[0].Redelivered {
		t.Fatalf("got %q", got)
	}
	if took := c.sim.Now() - killed; took < 500*time.Millisecond || took > 900*time.Millisecond {
		t.Errorf("what nobody claimed was delivered after %v", took)
	}
	late = true
	slow.settle(broker.Accept, 0)
	c.sim.RunFor(6 * time.Second)
	if s := quick.info(name); s.Messages != 0 || s.Consumers != 2 {
		t.Errorf("counts %+v", s)
	}
	quick.settle(broker.Requeue, 0) // it is its own
	c.await("it again", func() bool { return len(quick.got)+len(slow.got) == 5 })
}

// A deletion and a purge that are asked for while the owner is lost are answered once, truthfully: a queue that was to be deleted only if it is
// empty is not deleted with what the next owner has confirmed.
func TestDeletionsAndPurgesAcrossAChange(t *testing.T) {
	for moment := range 5 {
		c := ready(t, 71)
		name, purged := c.make(0, durable("")), "purged"
		x, y := c.nodes[1].login(0), c.nodes[2].login(0)
		x.declare(durable(purged))
		x.publish(purged, "a", "b", "c")
		y.ended = map[uint64]broker.Outcome{}
		deletions, purges := 0, 0
		var refused *broker.Error
		lost, epoch := c.owner(name), c.assignment(0, name).Epoch
		x.box.Post(func() {
			x.s.DeleteQueue(name, false, true, func(_ uint32, err *broker.Error) { deletions, refused = deletions+1, err })
			x.s.PurgeQueue(purged, func(_ uint32, err *broker.Error) {
				if purges++; err != nil {
					t.Errorf("purge: %v", err)
				}
			})
		})
		c.sim.RunFor(time.Duration(moment) * 150 * time.Microsecond)
		c.kill(lost)
		y.send(name, 1, "late")
		c.sim.RunUntil(func() bool { return deletions > 0 && purges > 0 && len(y.ended) > 0 }, 40*time.Second)
		c.sim.RunFor(time.Second)
		if deletions != 1 || purges != 1 || len(y.ended) != 1 {
			t.Fatalf("moment %d: %d answers to the deletion, %d to the purge, %d outcomes", moment, deletions, purges, len(y.ended))
		}
		if n := y.info(purged); n.Messages != 0 {
			t.Errorf("moment %d: %d messages after the purge", moment, n.Messages)
		}
		a := c.assignment(1, name)
		switch {
		case refused == nil && (y.ended[1] == broker.Confirmed || x.exists(name)):
			t.Errorf("moment %d: deleted as empty with a message that was confirmed, or there after all: %t", moment, x.exists(name))
		case refused != nil && (refused.Code != broker.Precondition || a.Epoch != epoch+1 || y.ended[1] != broker.Confirmed):
			t.Errorf("moment %d: %v in epoch %d; the publish ended as %d", moment, refused, a.Epoch, y.ended[1])
		}

	}
}

// exists reports whether a node knows a queue.
func (u *user) exists(name string) (found bool) {
	u.w.n.View(func(v *catalog.View) { found = v.Resource("/", name) != nil })
	return found
}
