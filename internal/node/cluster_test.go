package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// cluster is a few nodes in virtual time.
type cluster struct {
	t     *testing.T
	sim   *exec.Sim
	net   *mesh.Virtual
	nodes []*world
	seen  func(mesh.Purpose)     // told of every message; may be nil
	known map[string][]mesh.Peer // what nodes keep beside their data
}

// newCluster brings up so many nodes: the first begins the cluster, the others join.
func newCluster(t *testing.T, seed uint64, n int) *cluster {
	c := &cluster{t: t, sim: exec.NewSim(seed), known: map[string][]mesh.Peer{}}
	c.net = mesh.NewVirtual(c.sim)
	c.net.Delay = func(_, _ string, p mesh.Purpose) time.Duration {
		if c.seen != nil {
			c.seen(p)
		}
		return 100 * time.Microsecond
	}
	for i := range n {
		c.add(i)
	}
	return c
}

func (c *cluster) add(i int) {
	c.t.Helper()
	w := &world{t: c.t, sim: c.sim, disk: vfs.NewMemory(uint64(i + 1)), name: fmt.Sprint("n", i+1)}
	w.env = func(e *Env) {
		e.Mesh = func(local ident.Instance, g ident.Generation, waits func() bool) (mesh.Mesh, error) {
			return c.net.EndOf(local, g, waits), nil
		}
	}
	w.cfg = func(cfg *Config) {
		cfg.Mesh, cfg.Peers, cfg.SnapshotEvery = w.name+":1", c.known[w.name], 64
		cfg.PeersChanged = func(list []mesh.Peer) { c.known[w.name] = list }
		if c.known[w.name] != nil {
			return
		}
		if i > 0 {
			first := c.nodes[0].n.Local()
			cfg.Joining, cfg.Peers = true, []mesh.Peer{{Node: first.Node, Store: first.Store, Address: "n1:1"}}
		}
	}
	c.nodes = append(c.nodes, w)
	n, err := w.make()
	if err != nil {
		c.t.Fatal(err)
	}
	w.n = n
	if i > 0 {
		c.enrol(n.Local())
	}
	c.begin(w)
}

// enrol has the first node record another, as its registrar does.
func (c *cluster) enrol(i ident.Instance) {
	c.t.Helper()
	c.propose(0, catalog.RegisterBoot(catalog.Node{Name: i.Node, Store: i.Store, Boot: i.Boot, Mesh: i.Node + ":1"}))
}

func (c *cluster) begin(w *world) {
	c.t.Helper()
	started, err := false, error(nil)
	w.n.Start(func(e error) { started, err = true, e })
	c.await("the start of "+w.name, func() bool { return started })
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	if !c.sim.RunUntil(cond, patience) {
		c.t.Fatalf("%s does not come", what)
	}
}

func (c *cluster) kill(i int) {
	w := c.nodes[i]
	c.net.Kill(w.name)
	w.exec.Stop()
	w.disk.Crash(0)
}

func (c *cluster) restart(i int) {
	c.t.Helper()
	w := c.nodes[i]
	n, err := w.make()
	if err != nil {
		c.t.Fatal(err)
	}
	w.n = n
	c.begin(w)
}

// assignment is that of a queue's only partition, as a node knows it.
func (c *cluster) assignment(i int, name string) (a catalog.Assignment) {
	c.nodes[i].n.View(func(v *catalog.View) {
		if r := v.Resource("/", name); r != nil {
			a = *r.Partitions[0]
		}
	})
	return a
}

// copies are the statuses of a queue's copies, by node.
func (c *cluster) copies(name string) (out []replica.Status) {
	c.t.Helper()
	p := c.assignment(0, name).Partition
	left := 0
	for _, w := range c.nodes {
		left++
		w.n.manager.Status([]ident.Partition{p}, func(s []replica.Status) {
			out = append(out, s...)
			left--
		})
	}
	c.await("statuses", func() bool { return left == 0 })
	return out
}

func (c *cluster) voters(i int) (n int) {
	done := false
	c.nodes[i].n.consensus.Status(func(s consensus.Status) { n, done = len(s.Voters), true })
	c.await("the catalog's status", func() bool { return done })
	return n
}

// TestNodesAreReadyWhereOtherCopiesWereChosen has every node come back at once: what one owned before may be another's now, and it must
// not wait for it.
func TestNodesAreReadyWhereOtherCopiesWereChosen(t *testing.T) {
	c := newCluster(t, 5, 3)
	u := c.nodes[0].login(0)
	for i := range 9 {
		u.declare(durable(fmt.Sprint("q", i)))
	}
	before := map[string]string{}
	for i := range 9 {
		before[fmt.Sprint("q", i)] = c.assignment(0, fmt.Sprint("q", i)).Owner.Node
	}
	for i := range c.nodes {
		c.kill(i)
	}
	starts := 0
	for _, w := range c.nodes {
		n, err := w.make()
		if err != nil {
			t.Fatal(err)
		}
		w.n = n
		n.Start(func(err error) {
			if starts++; err != nil {
				t.Error(err)
			}
		})
	}
	c.await("the starts", func() bool { return starts == len(c.nodes) })
	for _, w := range c.nodes {
		c.await("readiness of "+w.name, func() bool { return w.n.Ready() == nil })
	}
	moved := 0
	for name, owner := range before {
		if c.assignment(0, name).Owner.Node != owner {
			moved++
		}
	}
	if moved == 0 {
		t.Fatal("no queue has moved, which this test is about")
	}
}

func durable(name string) broker.QueueSpec {
	return broker.QueueSpec{Name: name, Kind: catalog.Queue, Durable: true}
}

func TestThreeNodesBecomeACluster(t *testing.T) {
	c := newCluster(t, 1, 3)
	c.sim.RunFor(3 * time.Second)
	for i := range c.nodes {
		if n := c.voters(i); n != 3 {
			t.Fatalf("%s knows %d voters", c.nodes[i].name, n)
		}
	}
	u := c.nodes[1].login(0)
	u.declare(durable("q"))
	u.publish("q", "a", "b", "c")
	c.sim.RunFor(time.Second)
	copies := c.copies("q")
	if len(copies) != 3 {
		t.Fatalf("copies %+v", copies)
	}
	for _, s := range copies {
		if s.Durable != copies[0].Durable || s.Confirmed != s.Durable || s.Confirmed < 3 {
			t.Fatalf("copies %+v", copies)
		}
	}
	for i := range c.nodes { // any node takes any client
		v := c.nodes[i].login(1)
		v.declare(durable(fmt.Sprint("q", i)))
		v.publish(fmt.Sprint("q", i), "x")
	}
	if got := c.nodes[2].login(0).consume("q", 3); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("consumed %v", got)
	}
}

func TestAQueueOfOneNodeGrowsWhenOthersJoin(t *testing.T) {
	c := newCluster(t, 2, 1)
	u := c.nodes[0].login(0)
	u.declare(durable("q"))
	for i := range 50 {
		u.publish("q", fmt.Sprint("m", i))
	}
	c.add(1)
	c.add(2)
	c.await("three copies", func() bool { return len(c.assignment(2, "q").Followers) == 2 })
	if a := c.assignment(2, "q"); a.Epoch != 1 {
		t.Fatalf("growing changed the epoch: %+v", a)
	}
	u.publish("q", "last")
	if got := c.nodes[2].login(0).consume("q", 51); got[0] != "m0" || got[50] != "last" {
		t.Fatalf("consumed %v", got)
	}
}

func TestAUsedQueueGrowsByImage(t *testing.T) {
	c := newCluster(t, 5, 1)
	large := strings.Repeat("x", 16<<10) // files are dropped once nothing in them lives
	u := c.nodes[0].login(0)
	u.declare(durable("q"))
	for i := range 300 {
		u.publish("q", fmt.Sprint("m", i)+large)
	}
	u.ask("purge", func(done func(*broker.Error)) { u.s.PurgeQueue("q", func(_ uint32, err *broker.Error) { done(err) }) })
	c.sim.RunFor(time.Second)
	for i := range 20 { // what a snapshot makes unnecessary goes with the next
		u.publish("q", fmt.Sprint("n", i)+large)
	}
	c.sim.RunFor(time.Second)
	images := 0
	c.seen = func(p mesh.Purpose) {
		if p == mesh.Bulk {
			images++
		}
	}
	c.add(1)
	c.add(2)
	c.await("three copies", func() bool { return len(c.assignment(2, "q").Followers) == 2 })
	u.publish("q", "last")
	c.sim.RunFor(time.Second)
	copies := c.copies("q")
	for _, s := range copies {
		if len(copies) != 3 || s.Durable != copies[0].Durable || s.Confirmed != s.Durable {
			t.Fatalf("copies %+v", copies)
		}
	}
	if images == 0 {
		t.Fatal("no image was sent: the log still holds everything, and the test shows nothing")
	}
}

func TestAFollowersDeathIsNoEvent(t *testing.T) {
	c := newCluster(t, 3, 3)
	u := c.nodes[0].login(0)
	u.declare(durable("q"))
	owner := c.assignment(0, "q").Owner.Node
	follower := slices.IndexFunc(c.nodes, func(w *world) bool { return w.name != owner && w.name != "n1" })
	for i := range 10 {
		u.publish("q", fmt.Sprint("a", i))
	}
	c.kill(follower)
	for i := range 10 {
		u.publish("q", fmt.Sprint("b", i))
	}
	c.restart(follower)
	for i := range 10 {
		u.publish("q", fmt.Sprint("c", i))
	}
	c.sim.RunFor(3 * time.Second)
	copies := c.copies("q")
	if a := c.assignment(0, "q"); a.Epoch != 1 || len(copies) != 3 {
		t.Fatalf("epoch %d, copies %+v", a.Epoch, copies)
	}
	for _, s := range copies {
		if s.Durable != copies[0].Durable || s.Confirmed != s.Durable {
			t.Fatalf("copies %+v", copies)
		}
	}
}

// TestAnOwnersDeathIsATransition kills each node in turn, so that the owner is the controller's node once and twice it is not: another
// copy serves at once, and the old owner follows when it is back.
func TestAnOwnersDeathIsATransition(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint("n", i+1), func(t *testing.T) {
			c := newCluster(t, 4, 3)
			c.await("three voters", func() bool { return c.voters(0) == 3 })
			u := c.nodes[(i+1)%3].login(0)
			name := ""
			for n := 0; name == ""; n++ {
				q := fmt.Sprint("q", n)
				if u.declare(durable(q)); c.assignment(0, q).Owner.Node == c.nodes[i].name {
					name = q
				}
			}
			for m := range 10 {
				u.publish(name, fmt.Sprint("m", m))
			}
			killed := c.sim.Now()
			c.kill(i)
			other := (i + 1) % 3
			c.await("another owner", func() bool { a := c.assignment(other, name); return a.Epoch == 2 && a.Pending == nil })
			if took := c.sim.Now() - killed; took > 100*time.Millisecond {
				t.Errorf("the new owner was chosen after %v", took)
			}
			if got := u.consume(name, 10); got[0] != "m0" || got[9] != "m9" {
				t.Fatalf("consumed %v", got)
			}
			c.restart(i)
			c.await("the old owner to follow", func() bool {
				for _, s := range c.copies(name) {
					if s.Epoch != 2 {
						return false
					}
				}
				return len(c.copies(name)) == 3
			})
			c.sim.RunFor(3 * time.Second)
			if a := c.assignment(other, name); a.Epoch != 2 || len(a.Followers) != 2 {
				t.Fatalf("after it is back: %+v", a)
			}
		})
	}
}
