package gateway

import (
	"errors"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// localHarness has two shards, and takes note of what they make without the catalog.
func localHarness(t *testing.T) (h *harness, second *Shard, live map[string]bool) {
	h = newHarness(t, Limits{})
	live = map[string]bool{}
	h.sh.env.Node.locals = func(cs []catalog.Change) {
		for _, c := range cs {
			if r, ok := c.After.(*catalog.Resource); ok {
				live[r.Name] = true
			} else if r, ok := c.Before.(*catalog.Resource); ok {
				delete(live, r.Name)
			}
		}
	}
	second = New(Env{
		Loop: h.sim.Node("n1", 1).Loop(0), Shard: 1, Shards: 2, Local: local, Number: 1, Clock: simClock{h.sim}, Trace: trace.Discard,
		Directory: h, Passwords: plain{}, Proposer: h, Node: h.sh.env.Node,
	})
	second.Apply(h.state.Changes())
	h.settle()
	return h, second, live
}

func declareMade(c *client, sh *Shard) string {
	c.h.t.Helper()
	var name string
	sh.post(func() {
		c.s.DeclareQueue(broker.QueueSpec{Kind: catalog.Queue, Exclusive: true}, func(i broker.QueueInfo, e *broker.Error) {
			if e != nil {
				c.h.t.Errorf("declare: %v", e)
			}
			name = i.Name
		})
	})
	c.h.settle()
	return name
}

func TestExclusiveQueuesThatTheBrokerNamesNeedNoCatalog(t *testing.T) {
	h, second, live := localHarness(t)
	c := h.client()
	index := h.index
	name := declareMade(c, h.sh)
	if !live[name] || h.index != index || h.state.View().Resource("/", name) != nil {
		t.Fatalf("queue %q: live %v, %d commands", name, live, h.index-index)
	}
	// A session on another shard publishes to it by its name.
	other := &client{h: h}
	second.post(func() {
		other.s = second.Open(broker.Peer{Loopback: true}, other)
		other.s.Login("guest", "guest", "/", other.done("login"))
	})
	h.settle()
	second.post(func() { other.publish(1, "", name, "reply") })
	h.settle()
	if got := h.owner(partition(h.sh.view.Resource("/", name))).bodies(); got != "reply" {
		t.Errorf("stored %q", got)
	}
	h.do(func() { c.s.Close() })
	if live[name] || second.view.Resource("/", name) != nil || h.index != index {
		t.Errorf("it outlived its session, or took %d commands", h.index-index)
	}
}

func TestBindingPutsALocalQueueIntoTheCatalog(t *testing.T) {
	h, _, _ := localHarness(t)
	c := h.client()
	name := declareMade(c, h.sh)
	p := partition(h.sh.view.Resource("/", name))
	bind := catalog.Binding{Source: "amq.fanout", Destination: name}
	h.do(func() {
		c.s.Bind(bind, c.done("bind"))
		c.s.Bind(bind, c.done("again"))
	})
	c.expect("bind: ok; again: ok")
	if r := h.state.View().Resource("/", name); r == nil || partition(r) != p {
		t.Fatal("the catalog does not know it, or as another")
	}
	if h.sh.resources != 1 {
		t.Errorf("%d resources are counted", h.sh.resources)
	}
	h.do(func() { c.publish(1, "amq.fanout", "", "x") })
	h.do(func() { c.s.Close() })
	if h.owner(p).bodies() != "x" || h.state.View().Resource("/", name) != nil || h.sh.view.Resource("/", name) != nil {
		t.Errorf("stored %q; the catalog still knows it, or the shard does", h.owner(p).bodies())
	}
}

func TestALocalQueueGoesThoughItsAdoptionFailed(t *testing.T) {
	h, _, live := localHarness(t)
	c := h.client()
	name := declareMade(c, h.sh)
	h.refuse = errors.New("no catalog")
	h.do(func() { c.s.Bind(catalog.Binding{Source: "amq.fanout", Destination: name}, c.done("bind")) })
	c.expect("bind: error 7 the catalog did not take the change: no catalog")
	h.do(func() { c.s.Close() })
	if live[name] || h.sh.view.Resource("/", name) != nil {
		t.Error("it outlived its session")
	}
}

func TestReplicasDeleteLocalQueues(t *testing.T) {
	h, _, live := localHarness(t)
	c := h.client()
	name := declareMade(c, h.sh)
	inc := h.sh.view.Resource("/", name).Incarnation
	got := errors.New("not answered")
	h.sh.env.Node.DeleteLocal(inc, func(err error) { got = err })
	h.settle()
	if got != nil || live[name] || !IsLocal(inc) {
		t.Errorf("deleted: %v, still there: %v", got, live[name])
	}
	h.sh.env.Node.DeleteLocal(1, func(err error) { got = err })
	if got == nil {
		t.Error("a resource of the catalog was deleted as a local one")
	}
}

var _ exec.Actor = (*Shard)(nil)

// What is exclusive goes with its session also where the catalog cannot be reached as that ends.
func TestExclusiveQueuesGoOnceTheCatalogIsBack(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	h.do(func() {
		c.s.DeclareQueue(broker.QueueSpec{Name: "mine", Kind: catalog.Queue, Exclusive: true}, func(_ broker.QueueInfo, e *broker.Error) { c.result("queue", e) })
	})
	c.expect("queue: ok")
	h.refuse = errors.New("no quorum")
	h.do(func() { c.s.Close() })
	h.sim.RunFor(10 * time.Second)
	h.refuse = nil
	h.sim.RunFor(2 * endAgain)
	if r := h.state.View().Resource("/", "mine"); r != nil {
		t.Error("it outlived its session")
	}
}
