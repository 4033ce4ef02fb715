package node

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/vfs"
)

// cheap is the hash of guest's password with the least work that the product takes.
const cheap = "$argon2id$v=19$m=8,t=1,p=1$c2ltdWxhdGlvbnM$QammyDmdSZucNn9wLIGB2A"

// patience is virtual time.
const patience = time.Minute

// world is one node over a disk in memory, in virtual time.
type world struct {
	t    *testing.T
	sim  *exec.Sim
	disk *vfs.Memory
	exec *exec.SimNode
	n    *Node
	runs uint64
	name string // "": one
	env  func(*Env)
	cfg  func(*Config)
	off  *exec.SimNode // of what an operator does while the node does not run
}

func newWorld(t *testing.T) *world {
	return &world{t: t, sim: exec.NewSim(1), disk: vfs.NewMemory(1)}
}

func (w *world) make() (*Node, error) {
	w.runs++
	if w.name == "" {
		w.name = "one"
	}
	w.exec = w.sim.Node(w.name, 2)
	env, cfg := Env{
		Clock: clock.NewSim(w.sim.Now, time.UnixMilli(1_900_000_000_000)), Exec: w.exec, FS: w.disk,
		Random: exec.NewSimRandom(w.runs, w.name),
	}, Config{
		Name: w.name, Dir: "data", Storage: storage.Options{FileSize: 1 << 20, LowWater: 64 << 20, HighWater: 64 << 20},
		GuestHash: func() (string, error) { return cheap, nil },
	}
	if w.env != nil {
		w.env(&env)
		w.cfg(&cfg)
	}
	return New(env, cfg)
}

// start begins a run and waits until it takes clients.
func (w *world) start() {
	w.t.Helper()
	n, err := w.make()
	if err != nil {
		w.t.Fatal(err)
	}
	w.n = n
	if n.Ready() == nil {
		w.t.Fatal("ready before the start")
	}
	started, err := false, error(nil)
	n.Start(func(e error) { started, err = true, e })
	w.await("the start", func() bool { return started })
	if err != nil {
		w.t.Fatal(err)
	}
	w.await("readiness", func() bool { return n.Ready() == nil })
}

// stop ends the run in order.
func (w *world) stop() {
	w.t.Helper()
	stopped := false
	w.n.Stop(func(err error) {
		if stopped = true; err != nil {
			w.t.Error(err)
		}
	})
	if w.n.Ready() == nil {
		w.t.Error("ready while it stops")
	}
	w.await("the end", func() bool { return stopped })
	w.exec.Stop()
}

// crash ends the run as a loss of power does.
func (w *world) crash() {
	w.exec.Stop()
	w.disk.Crash(0)
}

func (w *world) await(what string, cond func() bool) {
	w.t.Helper()
	if !w.sim.RunUntil(cond, patience) {
		w.t.Fatalf("%s does not come", what)
	}
}

// user is a client on one of the node's loops.
type user struct {
	w         *world
	box       exec.Mailbox
	s         broker.Session
	confirmed int
	blocked   string
	got       []broker.Delivery
	ended     map[uint64]broker.Outcome // publishes by number, where not all are to be confirmed; nil: they are
}

func (u *user) Receive(msg any) { msg.(func())() }
func (u *user) Flush()          {}

func (u *user) Resolved(tags []broker.Tag, o broker.Outcome, reason string) {
	for _, t := range tags {
		if was, twice := u.ended[t.Seq]; twice && u.ended != nil {
			u.w.t.Errorf("publish %d ended as %d, and then as %d", t.Seq, was, o)
		}
		if u.ended != nil {
			u.ended[t.Seq] = o
		}
	}
	if o != broker.Confirmed && u.ended == nil {
		u.w.t.Errorf("publishes ended as %d: %s", o, reason)
	}
	u.confirmed += len(tags)
}
func (u *user) Returned(broker.Tag, *broker.Message, string) {}
func (u *user) Rejected(broker.Tag, *broker.Error)           {}
func (u *user) Delivered(_ uint64, ds []broker.Delivery)     { u.got = append(u.got, ds...) }
func (u *user) GetsGone(_ ident.Partition, _ uint64, reason string) {
	u.w.t.Errorf("what was fetched is gone: %s", reason)
}

func (u *user) ConsumerGone(_ uint64, reason string) { u.w.t.Errorf("consumer ended: %s", reason) }
func (u *user) Flow(bool)                            {}
func (u *user) Blocked(reason string)                { u.blocked = reason }
func (u *user) Close(err *broker.Error)              { u.w.t.Logf("asked to close: %v", err) }

// ask runs f on the user's loop and waits for its answer.
func (u *user) ask(what string, f func(done func(*broker.Error))) {
	u.w.t.Helper()
	answered, refused := false, (*broker.Error)(nil)
	u.box.Post(func() { f(func(err *broker.Error) { answered, refused = true, err }) })
	u.w.await(what, func() bool { return answered })
	if refused != nil {
		u.w.t.Fatalf("%s: %v", what, refused)
	}
}

func (w *world) login(loop int) *user {
	w.t.Helper()
	u := &user{w: w}
	u.box = w.exec.Loop(loop).Spawn("user", u)
	u.ask("login", func(done func(*broker.Error)) {
		u.s = w.n.Broker(loop).Open(broker.Peer{Address: "127.0.0.1:1", Loopback: true}, u)
		u.s.Login("guest", "guest", "/", done)
	})
	return u
}

func (u *user) declare(q broker.QueueSpec) {
	u.w.t.Helper()
	u.ask("declare "+q.Name, func(done func(*broker.Error)) {
		u.s.DeclareQueue(q, func(_ broker.QueueInfo, err *broker.Error) { done(err) })
	})
}

func (u *user) publish(queue string, bodies ...string) {
	u.w.t.Helper()
	want := u.confirmed + len(bodies)
	u.box.Post(func() {
		for i, body := range bodies {
			m := broker.Message{RoutingKey: queue, Body: [][]byte{[]byte(body)}}
			if err := u.s.Publish(broker.Tag{Channel: 1, Seq: uint64(i + 1)}, &m); err != nil {
				u.w.t.Error(err)
			}
		}
	})
	u.w.await("confirms", func() bool { return u.confirmed == want })
}

func (u *user) consume(queue string, n int) []string {
	u.w.t.Helper()
	u.ask("consume", func(done func(*broker.Error)) { u.s.Consume(broker.ConsumeSpec{Queue: queue, Consumer: 1}, done) })
	u.w.await(fmt.Sprintf("%d deliveries", n), func() bool { return len(u.got) >= n })
	var out []string
	for _, d := range u.got {
		m, err := broker.DecodeEnvelope(d.Payload)
		if err != nil {
			u.w.t.Fatal(err)
		}
		out = append(out, string(m.Body))
	}
	return out
}

// one is the state of the only partition.
func (w *world) one(name string) (replica.Status, *catalog.Assignment) {
	w.t.Helper()
	var of *catalog.Assignment
	w.n.View(func(v *catalog.View) { of = v.Resource("/", name).Partitions[0] })
	var found *replica.Status
	answered := false
	w.n.Statuses(func(all []replica.Status) {
		answered = true
		for _, s := range all {
			if s.Partition == of.Partition {
				found = &s
			}
		}
	})
	w.await("status", func() bool { return answered })
	if found == nil {
		w.t.Fatalf("no replica of %s", name)
	}
	return *found, of
}

func TestEveryRestartIsATransitionAndKeepsEverything(t *testing.T) {
	w := newWorld(t)
	w.start()
	u := w.login(0)
	u.declare(broker.QueueSpec{Name: "kept", Durable: true, Kind: catalog.Queue})
	u.declare(broker.QueueSpec{Name: "memory", Kind: catalog.Queue})
	u.publish("kept", "a", "b")
	u.publish("memory", "x")
	w.stop()
	w.start()
	w.n.View(func(v *catalog.View) {
		if v.Resource("/", "memory") != nil {
			t.Error("what lived in memory outlived its run")
		}
	})
	if s, a := w.one("kept"); a.Epoch != 2 || a.Owner != w.n.Local() || s.State != replica.Serving || s.Ready != 2 {
		t.Fatalf("after a stop: %+v, epoch %d, owner %v", s, a.Epoch, a.Owner)
	}
	w.login(1).publish("kept", "c")
	w.crash()
	w.start()
	if s, a := w.one("kept"); a.Epoch != 3 || a.Owner != w.n.Local() || a.Pending != nil || s.Ready != 3 {
		t.Fatalf("after a loss of power: %+v, epoch %d, owner %v", s, a.Epoch, a.Owner)
	}
	u = w.login(1)
	if got := strings.Join(u.consume("kept", 3), ""); got != "abc" {
		t.Fatalf("delivered %q", got)
	}
	u.box.Post(func() {
		for _, d := range u.got {
			u.s.Settle([]broker.Ref{d.Ref}, broker.Accept)
		}
	})
	w.sim.RunFor(time.Second) // all of it is in the log, and confirmed
	if s, _ := w.one("kept"); s.Ready+s.Unsettled != 0 || s.Position != s.Confirmed {
		t.Fatalf("a second after all was settled: %+v", s)
	}
	w.crash()
	w.start()
	if s, a := w.one("kept"); a.Epoch != 4 || s.Ready != 0 {
		t.Fatalf("what was settled came back: %+v, epoch %d", s, a.Epoch)
	}
}

func TestManyQueuesAreTakenOverTogether(t *testing.T) {
	const n = 300
	w := newWorld(t)
	w.start()
	u := w.login(0)
	for i := range n {
		u.declare(broker.QueueSpec{Name: fmt.Sprintf("q%d", i), Durable: true, Kind: catalog.Queue})
	}
	w.crash()
	w.start()
	if got := w.n.transitions.Load(); got != n {
		t.Fatalf("%d changes of owner for %d partitions", got, n)
	}
	u = w.login(1)
	for i := range n {
		if i%50 == 0 {
			u.publish(fmt.Sprintf("q%d", i), "m")
		}
	}
	var epochs []uint64
	w.n.View(func(v *catalog.View) {
		for _, r := range v.Resources("/") {
			epochs = append(epochs, r.Partitions[0].Epoch)
		}
	})
	for _, e := range epochs {
		if e != 2 {
			t.Fatalf("epochs %v", epochs)
		}
	}
}

func TestADirectoryIsUsedByOneNode(t *testing.T) {
	w := newWorld(t)
	w.start()
	if _, err := w.make(); !errors.Is(err, storage.ErrInUse) {
		t.Fatalf("the second node: %v", err)
	}
}

func TestAStartThatFailsSaysSo(t *testing.T) {
	w := newWorld(t)
	n, err := w.make()
	if err != nil {
		t.Fatal(err)
	}
	w.disk.FailAfter(true, 1)
	ended, err := false, error(nil)
	n.Start(func(e error) { ended, err = true, e })
	w.await("the end of the start", func() bool { return ended })
	if err == nil || n.Ready() == nil {
		t.Fatalf("the start ended with %v, ready: %v", err, n.Ready())
	}
	stopped := false
	n.Stop(func(error) { stopped = true })
	w.await("the end of a node whose start failed", func() bool { return stopped })
	w.crash()
	w.disk.Heal()
	w.start() // the same directory goes on where it was
}

func TestAFullDiskHoldsPublishersAndLetsThemGo(t *testing.T) {
	w := newWorld(t)
	w.start()
	u := w.login(0)
	u.declare(broker.QueueSpec{Name: "q", Durable: true, Kind: catalog.Queue})
	u.publish("q", "a")
	w.disk.Full(true)
	w.await("word of it", func() bool { return u.blocked != "" })
	confirmed := u.confirmed
	u.box.Post(func() {
		m := broker.Message{RoutingKey: "q", Body: [][]byte{[]byte("b")}}
		if err := u.s.Publish(broker.Tag{Channel: 1, Seq: 9}, &m); err != nil {
			t.Error(err)
		}
	})
	w.sim.RunFor(5 * time.Second)
	if u.confirmed != confirmed {
		t.Fatal("a publish was confirmed while the disk was low")
	}
	w.disk.Full(false)
	w.await("the confirm", func() bool { return u.confirmed == confirmed+1 && u.blocked == "" })
}

func TestARunReplaysExactly(t *testing.T) {
	run := func() uint64 {
		w := newWorld(t)
		w.start()
		u := w.login(1)
		u.declare(broker.QueueSpec{Name: "q", Durable: true, Kind: catalog.Queue})
		u.publish("q", "a", "b", "c")
		w.crash()
		w.start()
		return w.sim.Hash()
	}
	if a, b := run(), run(); a != b {
		t.Fatalf("two runs of one seed differ: %x and %x", a, b)
	}
}

// TestDeclaringDoesNotMakeTheNodeUnready looks at every step while queues are declared: whoever balances load by /readyz must not lose the
// node for it.
func TestDeclaringDoesNotMakeTheNodeUnready(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.await("the node to be ready", func() bool { return w.n.Ready() == nil })
	u := w.login(0)
	left, busy := 3, false
	for i := range left {
		u.box.Post(func() {
			u.s.DeclareQueue(broker.QueueSpec{Name: fmt.Sprintf("q%d", i), Durable: true, Kind: catalog.Queue},
				func(_ broker.QueueInfo, err *broker.Error) {
					if err != nil {
						t.Error(err)
					}
					left--
				})
		})
	}
	w.await("the queues", func() bool {
		busy = busy || w.n.manager.Recovering() > 0
		if err := w.n.Ready(); err != nil {
			t.Fatalf("with %d queues to go: %v", left, err)
		}
		return left == 0
	})
	if !busy {
		t.Error("no queue was ever on its way: the test does not look where it says")
	}
}

// TestWhatCannotBeMadeLeavesNothingOpen fails the making of a node at its keys, and then makes one over the same directory.
func TestWhatCannotBeMadeLeavesNothingOpen(t *testing.T) {
	w := newWorld(t)
	w.start() // so that the store has its id, and only the node's own keys are wanted
	w.stop()
	ex := w.sim.Node("broken", 1)
	_, err := New(Env{Clock: clock.NewSim(w.sim.Now, time.Unix(0, 0)), Exec: ex, FS: w.disk, Random: iotest.ErrReader(io.ErrUnexpectedEOF)},
		Config{Name: "one", Dir: "data"})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("made of no randomness: %v", err)
	}
	w.start()
}
