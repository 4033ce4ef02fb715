package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// trio is a controller on node one, that watches two, which owns a queue, and three, which follows as it does itself.
type trio struct {
	t     *testing.T
	sim   *exec.Sim
	state *catalog.State
	index uint64
	box   exec.Mailbox
	c     *Controller
	p     ident.Partition

	tails    map[string]batch.Tail
	reported map[string]uint64 // confirmed positions that answers speak of
	mute     map[string]bool   // nodes that answer no seal
	halted   map[string]bool   // nodes that send no heartbeats
	sealed   []string
	handedOn int
	quiet    time.Duration // for how long two has been, for this node
	slow     time.Duration // before a command is applied
	started  time.Duration

	node    *exec.SimNode
	more    []string                 // nodes beside the three
	health  func(node string) string // that heartbeats speak of; nil: all are well
	applied func(changes []catalog.Change)
}

func (w *trio) Receive(msg any) { msg.(call)() }
func (w *trio) Flush()          {}

func run(node string, boot uint64) ident.Instance {
	return ident.Instance{Node: node, Store: ident.StoreID{node[0], node[1]}, Boot: boot}
}

var others = []string{"two", "three"}

func newTrio(t *testing.T) *trio {
	w := &trio{
		t: t, sim: exec.NewSim(1), state: catalog.New(), tails: map[string]batch.Tail{}, reported: map[string]uint64{}, mute: map[string]bool{},
		halted: map[string]bool{},
	}
	w.node = w.sim.Node("one", 2)
	w.box = w.node.Loop(1).Spawn("trio", w)
	w.do(catalog.Bootstrap(ident.StoreID{9}, "hash")...)
	member := func(n string) catalog.Member { return catalog.Member{Node: n, Store: run(n, 1).Store} }
	for _, n := range []string{"one", "two", "three"} {
		i := run(n, 1)
		w.do(catalog.RegisterBoot(catalog.Node{Name: n, Store: i.Store, Boot: 1, Mesh: n + ":1"}))
		w.tails[n] = batch.Tail{Epoch: 1, Position: 10, Offset: 10, Link: batch.Link{1}}
	}
	w.do(catalog.DeclareResource(catalog.Resource{
		VHost: catalog.DefaultVHost, Name: "q", Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}, Policy: "majority_durable",
	}, run("two", 1), []catalog.Member{member("one"), member("three")}, 1))
	w.p = w.state.View().AllResources()[0].Partitions[0].Partition
	w.control()
	w.beat()
	w.sim.RunFor(time.Second)
	w.started = w.sim.Now()
	if w.assignment().Pending != nil || w.assignment().Epoch != 1 {
		t.Fatalf("with everything well: %+v", w.assignment())
	}
	return w
}

// control begins a controller, in the stead of the one before, which is gone with all that it knew.
func (w *trio) control() {
	if w.c != nil {
		w.c.Leads(1, false)
	}
	w.c = New(Env{
		Loop: w.node.Loop(0), Clock: clock.NewSim(w.sim.Now, time.UnixMilli(1)), Trace: trace.Discard, Local: run("one", 1), Propose: w.propose,
		Seal: w.seal, View: func(f func(*catalog.View)) { f(w.state.View()) }, Settled: func([]Waiting) {}, HandOn: func() { w.handedOn++ },
		Quiet: func(node string) time.Duration {
			if node == "two" {
				return w.quiet
			}
			return 0
		},
		Links: func(node string, _ ident.Partition, at []uint64, done func(map[uint64]batch.Link)) {
			if w.mute[node] {
				return
			}
			links := map[uint64]batch.Link{}
			for _, x := range at {
				links[x] = batch.Link{1}
			}
			done(links)
		},
	})
	w.c.Apply(w.state.Changes())
	for _, n := range slices.Concat(others, w.more) {
		if !w.halted[n] {
			w.c.PeerUp(run(n, 1))
		}
	}
	w.c.Leads(1, true)
}

// beat has all nodes that are not halted send heartbeats.
func (w *trio) beat() {
	for _, n := range slices.Concat([]string{"one"}, others, w.more) {
		if !w.halted[n] {
			b := control.Beat{From: run(n, 1)}
			if w.health != nil {
				b.Health = w.health(n)
			}
			w.c.Beat(b)
		}
	}
	w.sim.At(w.sim.Now()+100*time.Millisecond, w.beat)
}

func (w *trio) do(items ...catalog.Item) []catalog.Change {
	w.t.Helper()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.apply(cmd)
}

func (w *trio) apply(cmd []byte) []catalog.Change {
	w.index++
	_, changes, err := w.state.Apply(w.index, cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	return changes
}

func (w *trio) propose(_ uint64, cmd []byte, done func(error)) {
	w.sim.At(w.sim.Now()+w.slow, func() {
		changes := w.apply(cmd)
		w.c.Apply(changes)
		if w.applied != nil {
			w.applied(changes)
		}
		done(nil)
	})
}

func (w *trio) seal(node string, reqs []control.SealRequest, done func([]control.SealAnswer)) {
	w.sealed = append(w.sealed, fmt.Sprintf("%s at %d", node, reqs[0].Epoch))
	w.box.Post(call(func() {
		if w.mute[node] {
			return
		}
		a := control.SealAnswer{Partition: reqs[0].Partition}
		a.Transition, a.Instance, a.Tail, a.Confirmed = reqs[0].Transition, run(node, 1), w.tails[node], w.reported[node]
		done([]control.SealAnswer{a})
	}))
}

func (w *trio) assignment() *catalog.Assignment {
	a, _ := w.state.View().Assignment(w.p)
	return a
}

// stays demands that nothing is decided until a time after everything was well, and moves that another node than two owns shortly after it.
func (w *trio) stays(until time.Duration) {
	w.t.Helper()
	w.sim.RunFor(w.started + until - w.sim.Now())
	if a := w.assignment(); a.Epoch != 1 || a.Pending != nil || len(w.sealed) > 0 {
		w.t.Fatalf("after %v: %+v, pending %+v, sealed %v", until, a, a.Pending, w.sealed)
	}
}

func (w *trio) moves(within time.Duration) {
	w.t.Helper()
	if !w.sim.RunUntil(func() bool { return w.assignment().Epoch > 1 }, within) {
		w.t.Fatalf("%v later: %+v, pending %+v", within, w.assignment(), w.assignment().Pending)
	}
}

func (w *trio) lose(node string, e ...control.Ending) {
	w.halted[node], w.mute[node] = true, true
	w.c.PeerDown(run(node, 1), e[0])
	for _, x := range e[1:] {
		w.c.Unreachable(node, x)
	}
}

func TestAnOwnerWhoseProcessIsGone(t *testing.T) {
	w := newTrio(t)
	w.lose("two", control.Reset, control.Refused)
	w.moves(time.Millisecond)
	a := w.assignment()
	if a.Owner.Node == "two" || len(a.Followers) != 2 || a.Eligible() != 3 {
		t.Fatalf("%+v", a)
	}
}

func TestAVetoOfWhoStillReachesTheOwner(t *testing.T) {
	w := newTrio(t)
	w.c.Report(run("three", 1), []control.Reach{{Node: run("two", 1), Up: true}})
	w.sim.RunFor(time.Millisecond)
	w.lose("two", control.Reset, control.Refused)
	w.stays(500 * time.Millisecond)
	w.c.Report(run("three", 1), []control.Reach{{Node: run("two", 1), Ending: control.Refused}})
	w.moves(time.Millisecond)
}

func TestAResetOwnerGetsGrace(t *testing.T) {
	w := newTrio(t)
	w.lose("two", control.Reset)
	w.stays(149 * time.Millisecond)
	w.moves(2 * time.Millisecond)

	w = newTrio(t)
	w.lose("two", control.Reset)
	w.stays(149 * time.Millisecond)
	w.c.PeerUp(run("two", 1))
	w.halted["two"] = false
	w.stays(5 * time.Second)
}

// A process that hangs keeps its session, and is asked to be sealed, too: it is not waited for longer than the others give it.
func TestAnOwnerThatHangs(t *testing.T) {
	w := newTrio(t)
	w.halted["two"], w.mute["two"] = true, true
	w.stays(1300 * time.Millisecond)
	w.moves(250 * time.Millisecond)
	if !slices.Contains(w.sealed, "two at 2") {
		t.Fatalf("sealed %v, and not the one that hangs", w.sealed)
	}
}

// A suspicion that was wrong costs nothing while no seal was sent; after that the transition is finished, and a tie keeps the owner.
func TestASuspicionThatWasWrong(t *testing.T) {
	w := newTrio(t)
	w.slow = 50 * time.Millisecond
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	w.halted["two"], w.mute["two"] = false, false
	w.c.PeerUp(run("two", 1))
	w.sim.RunFor(time.Second)
	if a := w.assignment(); a.Epoch != 1 || a.Pending != nil || a.Owner.Node != "two" || len(w.sealed) > 0 || a.Version < 3 {
		t.Fatalf("not withdrawn: %+v, pending %+v, sealed %v", a, a.Pending, w.sealed)
	}

	w = newTrio(t)
	w.mute["one"], w.mute["three"] = true, true
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	clear(w.mute)
	clear(w.halted)
	w.c.PeerUp(run("two", 1))
	w.moves(2 * time.Second)
	if a := w.assignment(); a.Owner.Node != "two" || a.Epoch != 2 || a.Pending != nil {
		t.Fatalf("%+v, pending %+v", a, a.Pending)
	}
}

// A controller whose own storage is broken has others lead, again and again until one does, and gives up what its node owns like any other's.
func TestTheControllersOwnStorage(t *testing.T) {
	w := newTrio(t)
	w.halted["one"] = true
	w.c.Beat(control.Beat{From: run("one", 1), Health: "uncertain", Closed: true})
	w.sim.RunFor(100 * time.Millisecond)
	if w.handedOn != 1 {
		t.Fatalf("handed on %d times", w.handedOn)
	}
	w.sim.RunFor(3 * time.Second)
	if w.handedOn < 3 || w.handedOn > 4 {
		t.Fatalf("handed on %d times in 3 s", w.handedOn)
	}
}

func TestAnOwnerThatSaysItsJournalCannotSync(t *testing.T) {
	for _, b := range []control.Beat{{Health: "uncertain", Closed: true}, {Health: "permission"}, {Stalled: 2 * time.Second}} {
		w := newTrio(t)
		w.halted["two"], w.mute["two"] = true, true
		b.From = run("two", 1)
		w.c.Beat(b)
		w.moves(30 * time.Millisecond)
	}
}

// A promise above the catalog's epoch is met by a transition at that epoch, also where one is pending already that seals lower.
func TestAPromiseAheadOfTheCatalog(t *testing.T) {
	w := newTrio(t)
	w.c.Promises(run("three", 1), []Promised{{w.p, 5}})
	w.moves(time.Second)
	if a := w.assignment(); a.Epoch != 5 {
		t.Fatalf("%+v", a)
	}

	w = newTrio(t)
	w.mute["one"], w.mute["three"] = true, true
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(10 * time.Millisecond)
	w.c.Promises(run("three", 1), []Promised{{w.p, 7}})
	w.sim.RunFor(10 * time.Millisecond)
	w.mute["one"], w.mute["three"] = false, false
	w.moves(3 * time.Second)
	if a := w.assignment(); a.Epoch != 7 {
		t.Fatalf("%+v, sealed %v", a, w.sealed)
	}
}

// Nobody is chosen below what the owner said that it had confirmed, in its present epoch.
func TestTheConfirmedFloor(t *testing.T) {
	w := newTrio(t)
	w.c.Confirms(run("two", 1), []Confirmed{{w.p, 1, 11}})
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(3 * time.Second)
	a := w.assignment()
	if a.Epoch != 1 || a.Pending == nil || !strings.Contains(w.c.open[w.p].reason, "below the confirmed position 11") {
		t.Fatalf("%+v, pending %+v, waits for %q", a, a.Pending, w.c.open[w.p].reason)
	}
	w.tails["three"] = batch.Tail{Epoch: 1, Position: 11, Offset: 11, Link: batch.Link{1}}
	w.moves(2 * time.Second)
	if a := w.assignment(); a.Owner.Node != "three" {
		t.Fatalf("%+v", a)
	}

	w = newTrio(t)
	w.c.Confirms(run("two", 1), []Confirmed{{w.p, 9, 11}}) // of an epoch that is not this one
	w.lose("two", control.Reset, control.Refused)
	w.moves(time.Millisecond)
}

// A new controller has heard nobody: it gives each node the takeover's grace, and knows at once of one whose process it saw go.
func TestATakeover(t *testing.T) {
	w := newTrio(t)
	w.c.Leads(1, false)
	w.lose("two", control.Silent)
	w.sim.RunFor(time.Second)
	w.c.Leads(1, true)
	w.started = w.sim.Now()
	w.stays(299 * time.Millisecond)
	w.moves(2 * time.Millisecond)

	w = newTrio(t)
	w.c.Leads(1, false)
	w.lose("two", control.Reset, control.Refused)
	w.sim.RunFor(time.Second)
	w.c.Leads(1, true)
	w.moves(time.Millisecond)
}

// A node that hangs keeps its session. What was heard of it before the new controller's term counts, so that the expiry does not begin anew.
func TestATakeoverWhileTheOwnerHangs(t *testing.T) {
	w := newTrio(t)
	w.c.Leads(1, false)
	w.halted["two"], w.mute["two"] = true, true
	w.sim.RunFor(time.Second)
	w.quiet = 1400 * time.Millisecond
	w.c.Leads(1, true)
	w.started = w.sim.Now()
	w.stays(99 * time.Millisecond)
	w.moves(30 * time.Millisecond)
}

// With two voters the catalog can lose neither: nobody gets a vote before as many learners have caught up as make the number odd again.
func TestNoVoteBeforeTwoLearnersHaveCaughtUp(t *testing.T) {
	w := newTrio(t)
	ids := map[string]uint64{"one": 1, "two": 2, "three": 3}
	m := Members{Self: 1, Voters: []uint64{1}, Learners: []uint64{2, 3}, Ready: []uint64{3}}
	var made []control.VoterChange
	w.c.env.SeatOf = func(s ident.StoreID) uint64 {
		for n, id := range ids {
			if run(n, 1).Store == s {
				return id
			}
		}
		return 0
	}
	w.c.env.ChangeVoters = func(c control.VoterChange, done func(error)) {
		made = append(made, c)
		m.Voters, m.Learners = append(m.Voters, c.ID), slices.DeleteFunc(m.Learners, func(id uint64) bool { return id == c.ID })
		done(nil)
	}
	w.c.env.Voters = func(done func(Members)) { done(m) }
	w.c.PeerUp(run("two", 1))
	w.sim.RunFor(3 * time.Second)
	if len(made) > 0 {
		t.Fatalf("%v, while two had not caught up", made)
	}
	m.Ready = []uint64{2, 3}
	before := w.sim.Now()
	w.sim.RunUntil(func() bool { return len(made) == 2 }, time.Second)
	if took := w.sim.Now() - before; len(made) != 2 || took > 2*careAfter {
		t.Fatalf("%v after %v", made, took)
	}
}
