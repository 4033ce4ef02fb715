package gateway

import (
	"errors"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// behind is a shard whose node has not applied the newest of the catalog. What is held comes with the leader's answer.
type behind struct {
	*harness
	held  []catalog.Change
	asked int
	fails error
	slow  bool
	later []func()
}

func newBehind(t *testing.T) *behind {
	b := &behind{harness: newHarness(t, Limits{})}
	b.propose(catalog.RegisterBoot(catalog.Node{Name: "n2", Store: ident.StoreID{2}, Boot: 1, Shards: 1}))
	b.sh.env.Barrier = func(done func(error)) {
		b.asked++
		answer := func() {
			b.sh.Apply(b.held)
			b.held = nil
			done(b.fails)
		}
		if b.slow {
			b.later = append(b.later, answer)
			return
		}
		answer()
	}
	return b
}

// elsewhere makes a queue on another node.
func (b *behind) elsewhere(r catalog.Resource) *fakeOwner {
	b.t.Helper()
	r.VHost, r.Kind, r.Queue = "/", catalog.Queue, &queue.Settings{}
	b.hold(catalog.DeclareResource(r, ident.Instance{Node: "n2", Store: ident.StoreID{2}, Boot: 1}, nil, 1))
	return b.owner(partition(b.state.View().Resource("/", r.Name)))
}

// hold changes the catalog on another node.
func (b *behind) hold(items ...catalog.Item) {
	b.t.Helper()
	b.index++
	cmd, err := catalog.Encode(items...)
	if err != nil {
		b.t.Fatal(err)
	}
	res, changes, err := b.state.Apply(b.index, cmd)
	if err != nil || res.Err() != nil {
		b.t.Fatal(err, res.Err())
	}
	b.held = append(b.held, changes...)
}

// A consumer that is cancelled while its queue is still looked for never begins: nobody would take what it is handed (simulation of clusters, seed
// 420).
func TestAConsumerThatIsCancelledBeforeItsQueueIsFound(t *testing.T) {
	b := newBehind(t)
	b.slow = true
	c := b.client()
	o := b.elsewhere(catalog.Resource{Name: "q", Durable: true})
	b.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 5}, c.done("consume 5")) })
	b.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 6}, c.done("consume 6")) })
	b.do(func() { c.s.Cancel(5, func() { c.say("cancelled") }) })
	for len(b.later) > 0 {
		answers := b.later
		b.later = nil
		b.do(func() {
			for _, answer := range answers {
				answer()
			}
		})
		b.settle()
	}
	c.expect("cancelled; consume 5: error 4 consumer on queue 'q' was cancelled before it began; consume 6: ok")
	if s := all[protocol.Subscribe](o); len(s) != 1 {
		t.Errorf("subscriptions %+v", s)
	}
}

// What this node does not know to be deleted, and declared anew elsewhere since, is worked with as it is now.
func TestWhatWasDeletedAndIsThereAnew(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	for what, do := range map[string]func(name string){
		"passive": func(n string) {
			c.s.DeclareQueue(broker.QueueSpec{Name: n, Passive: true}, func(_ broker.QueueInfo, e *broker.Error) { c.result(n, e) })
		},
		"purge":   func(n string) { c.s.PurgeQueue(n, func(_ uint32, e *broker.Error) { c.result(n, e) }) },
		"get":     func(n string) { c.s.Get(n, false, func(_ broker.Delivery, _ bool, e *broker.Error) { c.result(n, e) }) },
		"consume": func(n string) { c.s.Consume(broker.ConsumeSpec{Queue: n, Consumer: 5}, c.done(n)) },
	} {
		for _, anew := range []bool{true, false} {
			c.declare(durable(what)).quiet = true
			b.do(func() { do(what) })
			c.expect("")
			b.hold(catalog.DeleteResource("/", what, 0, 0))
			gone := b.held
			b.held = nil
			want := what + ": error 1 no queue '" + what + "' in vhost '/'"
			if anew {
				b.elsewhere(catalog.Resource{Name: what, Durable: true})
				want = what + ": ok"
			}
			b.do(func() { b.sh.Apply(gone) })
			c.expect(want)
			if anew {
				b.propose(catalog.DeleteResource("/", what, 0, 0))
				c.take()
			}
		}
	}
}

func TestAMissAsksTheLeaderBeforeItIsBelieved(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	for what, do := range map[string]func(name string){
		"passive": func(n string) {
			c.s.DeclareQueue(broker.QueueSpec{Name: n, Passive: true}, func(_ broker.QueueInfo, e *broker.Error) { c.result(n, e) })
		},
		"purge":   func(n string) { c.s.PurgeQueue(n, func(_ uint32, e *broker.Error) { c.result(n, e) }) },
		"get":     func(n string) { c.s.Get(n, false, func(_ broker.Delivery, _ bool, e *broker.Error) { c.result(n, e) }) },
		"consume": func(n string) { c.s.Consume(broker.ConsumeSpec{Queue: n, Consumer: uint64(len(n))}, c.done(n)) },
		"bind":    func(n string) { c.s.Bind(catalog.Binding{Source: "amq.topic", Destination: n}, c.done(n)) },
		"unbind":  func(n string) { c.s.Unbind(catalog.Binding{Source: "amq.topic", Destination: n}, c.done(n)) },
	} {
		b.elsewhere(catalog.Resource{Name: what, Durable: true})
		b.do(func() { do(what) })
		c.expect(what + ": ok")
		b.do(func() { do(what + " nowhere") })
		if what == "unbind" { // that it is not bound is what was asked for
			c.expect("unbind nowhere: ok")
			continue
		}
		c.expect(what + " nowhere: error 1 no queue '" + what + " nowhere' in vhost '/'")
	}
	o := b.elsewhere(catalog.Resource{Name: "deleted", Durable: true})
	b.do(func() {
		c.s.DeleteQueue("deleted", false, true, func(_ uint32, e *broker.Error) { c.result("delete", e) })
	})
	c.expect("delete: ok")
	if got := all[protocol.Close](o); len(got) != 1 || !got[0].IfEmpty {
		t.Errorf("its owner was asked %+v", got)
	}
	home := &catalog.Home{Node: "n2", Boot: 1, Session: 7}
	b.elsewhere(catalog.Resource{Name: "exclusive", Exclusive: true, Home: home})
	b.do(func() { c.s.Consume(broker.ConsumeSpec{Queue: "exclusive", Consumer: 99}, c.done("exclusive")) })
	c.expect("exclusive: error 3 cannot obtain exclusive access to locked queue 'exclusive' in vhost '/'")
	b.do(func() { c.s.DeclareExchange(catalog.Exchange{Name: "none"}, true, c.done("exchange")) })
	c.expect("exchange: error 1 no exchange 'none' in vhost '/'")

	b.fails = errors.New("no quorum")
	b.do(func() { c.s.PurgeQueue("q", func(_ uint32, e *broker.Error) { c.result("purge", e) }) })
	c.expect("purge: error 7 no queue 'q' in vhost '/' on this node, and the catalog's leader could not be asked whether it is on another: no quorum")
}

func TestManyMissesShareAQuestion(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	b.slow = true
	for range 5 {
		b.do(func() { c.s.PurgeQueue("q", func(_ uint32, e *broker.Error) { c.result("q", e) }) })
	}
	if b.asked != 1 {
		t.Fatalf("asked %d times while the first question was open", b.asked)
	}
	b.later[0]()
	b.settle()
	if b.asked != 2 || len(c.told) != 1 {
		t.Fatalf("asked %d times, %d answers: what came after the question is not answered by it", b.asked, len(c.told))
	}
	b.later[1]()
	b.settle()
	if len(c.told) != 5 {
		t.Fatalf("answers %v", c.told)
	}
}

func TestQueuesMadeWithoutTheCatalogAreAdoptedWhenNodesJoin(t *testing.T) {
	h, _, live := localHarness(t)
	c := h.client()
	name := declareMade(c, h.sh)
	join := func(n byte) {
		h.propose(catalog.RegisterBoot(catalog.Node{Name: string('n' + rune(n)), Store: ident.StoreID{n}, Boot: 1, Shards: 1}))
	}
	join(2)
	r := h.state.View().Resource("/", name)
	if r == nil || !live[name] {
		t.Fatal("the catalog does not know it")
	}
	later := declareMade(c, h.sh)
	if h.state.View().Resource("/", later) == nil || live[later] {
		t.Fatal("with other nodes a queue was made beside the catalog")
	}
	index := h.index
	join(3)
	if h.index != index+1 {
		t.Error("adopted again")
	}
	h.do(func() { c.s.Close() })
	if h.state.View().Resource("/", name) != nil || h.sh.view.Resource("/", name) != nil || h.state.View().Resource("/", later) != nil {
		t.Error("they outlived their session")
	}
}

func TestConsumersAreToldWhenTheNodeOfAQueueInMemoryIsAway(t *testing.T) {
	b := newBehind(t)
	c := b.client()
	o := b.elsewhere(catalog.Resource{Name: "q", Home: &catalog.Home{Node: "n2", Boot: 1}})
	d := b.elsewhere(catalog.Resource{Name: "durable", Durable: true})
	b.do(func() {
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, c.done("q"))
		c.s.Consume(broker.ConsumeSpec{Queue: "durable", Consumer: 2}, c.done("durable"))
	})
	c.expect("q: ok; durable: ok")
	b.started = map[ident.Partition]bool{}
	b.sh.PeerDown("n2")
	b.sim.RunFor(20 * time.Second)
	b.started = map[ident.Partition]bool{o.p: true, d.p: true}
	b.sim.RunFor(20 * time.Second) // back in time
	b.started = map[ident.Partition]bool{}
	b.sh.PeerDown("n2")
	b.sim.RunFor(29 * time.Second)
	c.expect("")
	b.sim.RunFor(3 * time.Second)
	c.expect("consumer 1 gone: queue 'q' in vhost '/' is in the memory of node 'n2', which has not been reached for 30s")
}

func TestRefusalsAreCountedByCause(t *testing.T) {
	h := newHarness(t, Limits{ConfirmTimeout: 2 * time.Second})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a", "b", "c", "d")
	for i, cause := range []protocol.Cause{protocol.CauseFull, protocol.CauseCopies, protocol.CauseCopies, protocol.CauseOther} {
		o.say(protocol.PublishRefused{Partition: o.p, Stream: o.stream, First: uint64(i + 1), Count: 1, Cause: cause, Reason: "r"})
	}
	h.settle()
	h.started = map[ident.Partition]bool{}
	h.sh.PeerDown("")
	p := c.declareAway("away")
	c.publishAll(p, 5, "e")
	h.sim.RunFor(4 * time.Second)
	if s := h.sh.stats; s.Refused != 5 || s.RefusedFull != 1 || s.RefusedCopies != 2 || s.RefusedOther != 1 || s.RefusedUnreached != 1 || s.Unknown != 0 {
		t.Errorf("counted %+v", s)
	}
}

// declareAway makes a queue whose owner is not there.
func (c *client) declareAway(name string) string {
	c.h.propose(catalog.DeclareResource(catalog.Resource{VHost: "/", Name: name, Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}}, local, nil, 1))
	return name
}
