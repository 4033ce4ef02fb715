package gateway

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/value"
)

func TestLogin(t *testing.T) {
	h := newHarness(t, Limits{ConnectionsPerUser: 2})
	h.propose(catalog.PutUser(catalog.User{Name: "ann", Hash: "pw"}), catalog.CreateVHost("other"),
		catalog.PutPermission(catalog.Permission{User: "ann", VHost: "/"}))
	try := func(user, password, vhost string, loopback bool) string {
		c := &client{h: h}
		h.do(func() {
			c.s = h.sh.Open(broker.Peer{Loopback: loopback}, c)
			c.s.Login(user, password, vhost, c.done("login"))
		})
		if got := c.take(); got != "login: ok" {
			c.s.Close()
			return got
		}
		return "login: ok"
	}
	for _, x := range []struct {
		user, password, vhost string
		loopback              bool
		want                  string
	}{
		{"ann", "pw", "/", false, "login: ok"},
		{"ann", "no", "/", false, "login: error 10 wrong user name or password"},
		{"bob", "pw", "/", false, "login: error 10 wrong user name or password"},
		{"ann", busyPassword, "/", false, "login: error 7 too many wait"},
		{"ann", "pw", "missing", false, "login: error 5 vhost 'missing' not found"},
		{"ann", "pw", "other", false, "login: error 5 access to vhost 'other' refused for user 'ann'"},
		{"guest", "guest", "/", false, "login: error 10 user 'guest' can only connect from this machine (loopback)"},
		{"guest", "guest", "/", true, "login: ok"},
		{"ann", "pw", "/", false, "login: ok"},
		{"ann", "pw", "/", false, "login: error 5 connection refused: user 'ann' has reached the limit of 2 connections"},
	} {
		if got := try(x.user, x.password, x.vhost, x.loopback); got != x.want {
			t.Errorf("%s/%s at %s: %s\nwant %s", x.user, x.password, x.vhost, got, x.want)
		}
	}
}

// A queue that is deleted through one node may be declared anew through another, which still has it then.
func TestDeclaringWhatIsBeingDeletedMakesItAnew(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true // it is closed, and gone before it answers
	h.do(func() {
		c.s.DeclareQueue(durable("q"), func(i broker.QueueInfo, e *broker.Error) { c.result("declare "+i.Name, e) })
	})
	c.expect("")
	h.propose(catalog.DeleteResource("/", "q", 0, 0))
	c.expect("declare q: ok")
	if r := h.state.View().Resource("/", "q"); r == nil || partition(r) == o.p {
		t.Errorf("the queue is %+v", r)
	}
}

func TestNothingGoesBeforeLogin(t *testing.T) {
	h := newHarness(t, Limits{})
	c := &client{h: h}
	h.do(func() {
		c.s = h.sh.Open(broker.Peer{}, c)
		c.publish(1, "", "q", "x")
		c.s.DeclareExchange(catalog.Exchange{Name: "x"}, true, c.done("declare"))
		c.s.Consume(broker.ConsumeSpec{Queue: "q", Consumer: 1}, c.done("consume"))
	})
	c.expect("publish 1: error 5 not logged in; declare: error 5 not logged in; consume: error 5 not logged in")
}

func TestRights(t *testing.T) {
	h := newHarness(t, Limits{})
	h.propose(catalog.PutUser(catalog.User{Name: "ann", Hash: "pw"}),
		catalog.PutPermission(catalog.Permission{User: "ann", VHost: "/", Configure: "^mine", Write: "^mine", Read: "^mine"}))
	guest := h.client()
	guest.declare(durable("theirs"))
	c := &client{h: h}
	h.do(func() {
		c.s = h.sh.Open(broker.Peer{}, c)
		c.s.Login("ann", "pw", "/", c.done("login"))
	})
	c.expect("login: ok")
	h.do(func() {
		c.publish(1, "", "theirs", "x")
		c.s.Consume(broker.ConsumeSpec{Queue: "theirs", Consumer: 1}, c.done("consume"))
		c.s.PurgeQueue("theirs", func(_ uint32, e *broker.Error) { c.result("purge", e) })
		c.s.DeleteQueue("theirs", false, false, func(_ uint32, e *broker.Error) { c.result("delete", e) })
		c.s.Bind(catalog.Binding{Source: "amq.fanout", Destination: "mine"}, c.done("bind"))
		c.s.DeclareExchange(catalog.Exchange{Name: "mine.x", Type: "fanout", Durable: true}, false, c.done("declare"))
	})
	for _, want := range []string{
		"publish 1: error 2 write access to exchange 'amq.default' in vhost '/' refused for user 'ann'",
		"consume: error 2 read access to queue 'theirs' in vhost '/' refused for user 'ann'",
		"purge: error 2 read access", "delete: error 2 configure access", "bind: error 2 read access to exchange 'amq.fanout'",
		"declare: ok",
	} {
		if !strings.Contains(strings.Join(c.told, "; "), want) {
			t.Errorf("%q is missing in %v", want, c.told)
		}
	}
	// A right that is taken away counts from then on.
	c.take()
	h.do(func() { c.publish(2, "mine.x", "", "x") })
	h.propose(catalog.PutPermission(catalog.Permission{User: "ann", VHost: "/", Configure: "^mine"}))
	h.do(func() { c.publish(3, "mine.x", "", "x") })
	c.expect("confirmed 2; publish 3: error 2 write access to exchange 'mine.x' in vhost '/' refused for user 'ann'")
}

func TestDeclarations(t *testing.T) {
	h := newHarness(t, Limits{Queues: 3})
	c := h.client()
	declare := func(q broker.QueueSpec) string {
		h.do(func() {
			c.s.DeclareQueue(q, func(i broker.QueueInfo, e *broker.Error) {
				if e != nil {
					c.result("queue", e)
					return
				}
				c.say("%s %d %d", i.Name, i.Messages, i.Consumers)
			})
		})
		return c.take()
	}
	q := durable("q")
	q.Args = value.Table{{Name: "x-message-ttl", Value: value.Of(5)}}
	if got := declare(q); got != "q 0 0" {
		t.Error(got)
	}
	h.owner(partition(h.state.View().Resource("/", "q"))).counts = protocol.Counted{Ready: 4, Consumers: 2}
	if got := declare(q); got != "q 4 2" {
		t.Error(got)
	}
	if got := declare(broker.QueueSpec{Name: "q", Passive: true}); got != "q 4 2" {
		t.Error(got)
	}
	q.Args = value.Table{{Name: "x-message-ttl", Value: value.Of(6)}}
	if got := declare(q); got != "queue: error 4 inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '6' but current is '5'" {
		t.Error(got)
	}
	if got := declare(broker.QueueSpec{Name: "none", Passive: true}); got != "queue: error 1 no queue 'none' in vhost '/'" {
		t.Error(got)
	}
	if got := declare(durable("amq.mine")); got != "queue: error 2 queue name 'amq.mine' contains reserved prefix 'amq.*'" {
		t.Error(got)
	}
	made := declare(broker.QueueSpec{Kind: catalog.Queue, Exclusive: true})
	if !strings.HasPrefix(made, "amq.gen-n1-1-0-1 ") {
		t.Error(made)
	}
	other := h.client()
	name := strings.Fields(made)[0]
	h.do(func() {
		other.s.Consume(broker.ConsumeSpec{Queue: name, Consumer: 1}, other.done("consume"))
		other.s.DeclareQueue(broker.QueueSpec{Name: name, Kind: catalog.Queue, Exclusive: true}, func(_ broker.QueueInfo, e *broker.Error) {
			other.result("declare", e)
		})
	})
	if got := other.take(); strings.Count(got, "error 3 cannot obtain exclusive access to locked queue") != 2 {
		t.Error(got)
	}
	declare(durable("third"))
	if got := declare(durable("fourth")); got != "queue: error 8 queue 'fourth' was not declared: the limit of 3 queues is reached" {
		t.Error(got)
	}
	h.do(func() { c.s.Close() })
	if r := h.state.View().Resource("/", name); r != nil {
		t.Error("an exclusive queue outlived its session")
	}
}

func TestCopiesAndPolicyReachTheCatalog(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	declare := func(q broker.QueueSpec) string {
		h.do(func() {
			c.s.DeclareQueue(q, func(_ broker.QueueInfo, e *broker.Error) { c.result("queue", e) })
		})
		return c.take()
	}
	q := durable("q")
	q.Copies, q.Policy = 5, "all_durable"
	q.Args = value.Table{{Name: "x-replicas", Value: value.Of(5)}}
	if got := declare(q); got != "queue: ok" {
		t.Fatal(got)
	}
	r := h.state.View().Resource("/", "q")
	if r.Copies != 5 || r.Target() != 5 || r.Policy != "all_durable" || r.Partitions[0].Policy != "all_durable" {
		t.Errorf("declared as %+v", r)
	}
	q.Args = value.Table{{Name: "x-replicas", Value: value.Of(4)}}
	if got := declare(q); got != "queue: error 4 inequivalent arg 'x-replicas' for queue 'q' in vhost '/': received '4' but current is '5'" {
		t.Error(got)
	}
	declare(durable("plain"))
	if r = h.state.View().Resource("/", "plain"); r.Target() != catalog.DefaultCopies || r.Policy != policy {
		t.Errorf("without a wish: %+v", r)
	}
}

func TestCatalogFailureIsSaid(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	h.refuse = errors.New("the journal is closed")
	h.do(func() {
		c.s.DeclareExchange(catalog.Exchange{Name: "x", Type: "direct", Durable: true}, false, c.done("exchange"))
	})
	c.expect("exchange: error 7 the catalog did not take the change: the journal is closed")
}

func TestExchanges(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	h.do(func() {
		for _, e := range []catalog.Exchange{{Name: ""}, {Name: "amq.x", Type: "direct"}, {Name: "amq.direct", Type: "direct", Durable: true}} {
			c.s.DeclareExchange(e, false, c.done("declare '"+e.Name+"'"))
		}
		c.s.DeclareExchange(catalog.Exchange{Name: "none"}, true, c.done("passive"))
		c.s.DeleteExchange("none", false, c.done("delete none"))
		c.s.DeleteExchange("amq.topic", false, c.done("delete built-in"))
		c.s.Bind(catalog.Binding{Source: "none", Destination: "q"}, c.done("bind"))
	})
	c.expect("declare '': error 2 operation not permitted on the default exchange; " +
		"declare 'amq.x': error 2 exchange name 'amq.x' contains reserved prefix 'amq.*'; " +
		"passive: error 1 no exchange 'none' in vhost '/'; " +
		"bind: error 1 no exchange 'none' in vhost '/'; " +
		"declare 'amq.direct': ok; delete none: ok; " +
		"delete built-in: error 2 exchange 'amq.topic' in vhost '/' is built in and may not be changed, bound or deleted")
}

func TestDeleteAsksTheOwnerFirst(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	del := func() string {
		h.do(func() {
			c.s.DeleteQueue("q", true, true, func(n uint32, e *broker.Error) {
				if e != nil {
					c.result("delete", e)
					return
				}
				c.say("deleted with %d", n)
			})
		})
		return c.take()
	}
	o.counts = protocol.Counted{Refused: "not empty"}
	if got := del(); got != "delete: error 4 queue 'q' in vhost '/' not empty" {
		t.Error(got)
	}
	o.counts = protocol.Counted{Ready: 3}
	h.refuse = errors.New("closed")
	if got := del(); !strings.HasPrefix(got, "delete: error 7") {
		t.Error(got)
	}
	if len(all[protocol.Reopen](o)) != 1 {
		t.Error("the owner was not asked to reopen after the catalog had refused")
	}
	h.refuse = nil
	if got := del(); got != "deleted with 3" {
		t.Error(got)
	}
	if got := del(); got != "deleted with 0" {
		t.Error(got)
	}
	if m := all[protocol.Close](o)[0]; !m.IfEmpty || !m.IfUnused {
		t.Errorf("conditions were not passed on: %+v", m)
	}
}

// What an owner says of a queue that is to be deleted only if it is empty or unused holds as long as it owns it: the catalog is told of its epoch,
// and the next owner is asked if that has ended.
func TestDeletionsAreDecidedByTheOwnerOfTheEpoch(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	deletion := func(epoch uint64) []byte {
		cmd, err := catalog.Encode(catalog.DeleteResource("/", "q", o.p.Incarnation, epoch))
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	asked := 0
	h.answer = func(cmd []byte) (catalog.Result, bool) {
		if !bytes.Equal(cmd, deletion(1)) {
			return catalog.Result{}, false
		}
		asked++
		o.counts = protocol.Counted{Refused: "not empty"} // says the next owner
		moved := catalog.Refusal{Code: catalog.VersionMoved, What: "queue", Name: "q", VHost: "/", Argument: "epoch", Have: "2", Want: "1"}
		return catalog.Result{Items: []catalog.ItemResult{{Refused: &moved}}}, true
	}
	h.do(func() { c.s.DeleteQueue("q", false, true, func(_ uint32, e *broker.Error) { c.result("delete", e) }) })
	c.expect("delete: error 4 queue 'q' in vhost '/' not empty")
	if n := len(all[protocol.Close](o)); asked != 1 || n != 2 {
		t.Errorf("the catalog was asked %d times with the owner's epoch, owners %d times", asked, n)
	}
	o.counts = protocol.Counted{}
	h.do(func() { c.s.DeleteQueue("q", false, false, func(_ uint32, e *broker.Error) { c.result("delete", e) }) })
	if c.expect("delete: ok"); asked != 1 {
		t.Error("a deletion whatever the owner holds was bound to it")
	}
}

// An owner that has closed for a deletion stays closed until it is known what became of that: it must not be left, since it opens then, nor told to
// open. What it confirmed would go with the queue if the deletion came into force after all.
func TestAnOwnerStaysClosedWhileItsDeletionMayComeIntoForce(t *testing.T) {
	for _, refused := range []bool{false, true} {
		h := newHarness(t, Limits{})
		c := h.client()
		o := c.declare(durable("q"))
		var answers []func(catalog.Result, error)
		h.answerLater = func(done func(catalog.Result, error)) { answers = append(answers, done) }
		h.do(func() { c.s.DeleteQueue("q", false, true, func(_ uint32, e *broker.Error) { c.result("delete", e) }) })
		open := func() int { return len(all[protocol.Reopen](o)) + len(all[protocol.Detach](o)) }
		h.sim.RunFor(20 * time.Second)
		if len(answers) != 1 || open() != 0 {
			t.Fatalf("%d proposals; opened %d times while it waits for the catalog", len(answers), open())
		}
		answers[0](catalog.Result{}, broker.Errorf(broker.Uncertain, "not known"))
		h.sim.RunFor(20 * time.Second)
		if c.expect("delete: error 11 not known"); len(answers) != 2 || open() != 0 {
			t.Fatalf("%d proposals; opened %d times while the outcome is not known", len(answers), open())
		}
		answers[1](catalog.Result{}, errors.New("this one was not made")) // which says nothing of the first
		h.sim.RunFor(20 * time.Second)
		if len(answers) != 3 || open() != 0 {
			t.Fatalf("%d proposals; opened %d times after another that was not made", len(answers), open())
		}
		one := catalog.ItemResult{}
		if refused {
			one.Refused = &catalog.Refusal{Code: catalog.VersionMoved}
		}
		answers[2](catalog.Result{Items: []catalog.ItemResult{one}}, nil)
		h.settle()
		if n := len(all[protocol.Reopen](o)); (n == 1) != refused {
			t.Errorf("refused %v: told to open %d times", refused, n)
		}
	}
}

// What undoes a Close may be lost with its stream: it is said again on the next, until another Close found the owner open.
func TestReopenIsSaidAgain(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	del := func() {
		h.do(func() { c.s.DeleteQueue("q", false, false, func(_ uint32, e *broker.Error) { c.result("delete", e) }) })
	}
	again := func() int {
		before := len(all[protocol.Reopen](o))
		o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
		h.sim.RunFor(time.Second)
		return len(all[protocol.Reopen](o)) - before
	}
	if n := again(); n != 0 {
		t.Errorf("%d times, and nothing was closed", n)
	}
	h.refuse = errors.New("closed")
	del()
	if n := again(); n != 1 {
		t.Errorf("%d times after a deletion was refused", n)
	}
	h.refuse = nil
	h.mute = true
	del()
	if n := again(); n != 0 {
		t.Errorf("%d times while a deletion is under way", n)
	}
}

func TestRequestsToAnOwnerThatIsAway(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.silent = true
	o.say(protocol.NotServing{Partition: o.p, Stream: o.stream})
	h.settle()
	h.do(func() { c.s.DeleteQueue("q", false, false, func(_ uint32, e *broker.Error) { c.result("delete", e) }) })
	h.sim.RunFor(requestTimeout + 2*time.Second)
	c.expect("delete: error 7 queue 'q' in vhost '/' has had no owner for 10s, who has to close it before it is deleted; if the copies that it waits for " +
		"never return, an operator can delete it: tanist plan delete")
	o.silent = false
	h.sim.RunFor(5 * time.Second)
	if len(all[protocol.Reopen](o)) != 1 {
		t.Error("a deletion that nobody waits for any more left the queue closed")
	}
}

func TestOwnersThatAreNotThereYet(t *testing.T) {
	h := newHarness(t, Limits{})
	h.started = map[ident.Partition]bool{}
	c := h.client()
	h.do(func() {
		c.s.DeclareQueue(durable("q"), func(i broker.QueueInfo, e *broker.Error) { c.result("declare", e) })
	})
	h.sim.RunFor(500 * time.Millisecond)
	c.expect("")
	p := partition(h.state.View().Resource("/", "q"))
	h.started[p] = true
	h.sh.Serving(p) // an event, not the timer
	h.settle()
	c.expect("declare: ok")
}

func TestDeletedUsersAndVirtualHosts(t *testing.T) {
	h := newHarness(t, Limits{})
	h.propose(catalog.CreateVHost("v"), catalog.PutUser(catalog.User{Name: "ann", Hash: "pw"}),
		catalog.PutPermission(catalog.Permission{User: "ann", VHost: "v"}))
	c, d := h.client(), &client{h: h}
	h.do(func() {
		d.s = h.sh.Open(broker.Peer{}, d)
		d.s.Login("ann", "pw", "v", d.done("login"))
	})
	h.propose(catalog.DeleteVHost("v"))
	d.expect("login: ok; close: vhost 'v' was deleted")
	h.propose(catalog.DeleteUser("guest"))
	c.expect("close: user 'guest' was deleted")
	h.sh.Shutdown("the node stops")
	h.settle()
	c.expect("close: the node stops")
}

func TestDeadLetters(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	q := durable("q")
	x, key := "", "dead"
	q.Queue = queue.Settings{DeadLetterExchange: &x, DeadLetterRoutingKey: &key}
	o := c.declare(q)
	var answers []protocol.DeadLettered
	die := func(n uint64) {
		h.sh.Send(protocol.DeadLetter{
			Partition: o.p, Number: n, Lane: uint8(n % 8), Offset: 10 + n, Reason: "rejected", Body: item(0, "body").Body,
			Reply: sink(func(m any) { answers = append(answers, m.(protocol.DeadLettered)) }),
		})
		h.settle()
	}
	die(1)
	if len(answers) != 1 || answers[0].Kept != "no queue 'dead' in vhost '/'" {
		t.Fatalf("answers %+v", answers)
	}
	dead := c.declare(durable("dead"))
	dead.refuse = func(string) string { return "full" }
	die(1)
	if len(answers) != 2 || answers[1].Kept != "full" {
		t.Fatalf("answers %+v", answers)
	}
	dead.refuse = nil
	die(1)
	die(1) // asked again, as a new owner does
	die(2)
	if len(answers) != 5 || answers[4].Kept != "" || answers[4].Offset != 12 || dead.bodies() != "body body" {
		t.Errorf("answers %+v, stored %q", answers, dead.bodies())
	}
	if dead.log[0].producer != protocol.NamedProducer(o.p.String()+"/dead/1") || dead.log[0].sequence != 1 {
		t.Errorf("stored as %+v", dead.log[0])
	}
}

type sink func(any)

func (s sink) Send(m any) { s(m) }

func TestStatus(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	o := c.declare(durable("q"))
	o.quiet = true
	c.publishAll("q", 1, "a", "b")
	h.sim.RunFor(3 * time.Second)
	var st Status
	h.sh.Status(func(s Status) { st = s })
	h.settle()
	if st.Published != 2 || st.Unresolved != 2 || st.OldestAge < 3*time.Second || st.Oldest != o.p || len(st.Sessions) != 1 {
		t.Errorf("status %+v", st)
	}
	if s := st.Sessions[0]; s.User != "guest" || s.Published != 2 {
		t.Errorf("session %+v", s)
	}
}

// What the catalog cannot take whoever asks again is the client's mistake, and none of the catalog's.
func TestArgumentsThatTheCatalogCannotTake(t *testing.T) {
	h := newHarness(t, Limits{})
	c := h.client()
	c.declare(durable("q"))
	c.take()
	deep := value.Of("x")
	for range 40 {
		deep = value.Of(value.Table{{Name: "in", Value: deep}})
	}
	for _, v := range []value.Value{deep, value.Of(strings.Repeat("x", catalog.MaxCommand))} {
		h.do(func() {
			c.s.Bind(catalog.Binding{Source: "amq.headers", Destination: "q", Args: value.Table{{Name: "a", Value: v}}}, c.done("bind"))
			c.s.Bind(catalog.Binding{Source: "amq.headers", Destination: "q"}, c.done("another"))
		})
		if got := c.take(); !strings.Contains(got, "bind: error 4 the arguments are too large or nested too deep") ||
			!strings.Contains(got, "another: ok") {
			t.Error(got)
		}
	}
}
