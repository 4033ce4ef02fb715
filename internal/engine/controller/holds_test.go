package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
)

// quartet is a trio that a fourth node has joined, with a hold of five seconds.
func newQuartet(t *testing.T) *trio {
	w := newTrio(t)
	w.more = []string{"four"}
	changes := w.do(catalog.RegisterBoot(catalog.Node{Name: "four", Store: run("four", 1).Store, Boot: 1}), catalog.PutSetting(catalog.FollowerLossHold, "5s", 0))
	w.c.Apply(changes)
	w.c.PeerUp(run("four", 1))
	w.sim.RunFor(time.Second)
	if w.node4().Absent != 0 || w.assignment().Version != 1 {
		t.Fatalf("with everything well: %+v, %+v", w.node4(), w.assignment())
	}
	return w
}

func (w *trio) node4() *catalog.Node { return w.state.View().Node("four") }

func (w *trio) absent(node string) int64 { return w.state.View().Node(node).Absent }

// kill ends a node's process.
func (w *trio) kill(node string) {
	w.halted[node] = true
	w.c.PeerDown(run(node, 1), control.Refused)
}

// revive has the same run of a node heard again.
func (w *trio) revive(node string) {
	delete(w.halted, node)
	w.c.PeerUp(run(node, 1))
}

// admit does what the owner does once the learner has caught up.
func (w *trio) admit() {
	a := w.assignment()
	m := catalog.Membership{Partition: w.p, Version: a.Version, Epoch: a.Epoch, Policy: a.Policy, Floor: 1}
	for _, f := range slices.Concat(a.Followers, a.Learners) {
		if !slices.Contains(a.Leaving, f) {
			m.Followers = append(m.Followers, f)
		}
	}
	for _, f := range append([]catalog.Member{{Store: a.Owner.Store}}, m.Followers...) {
		m.Evidence = append(m.Evidence, catalog.Evidence{Store: f.Store, Position: 1})
	}
	w.c.Apply(w.do(catalog.ChangeMembers(m)))
}

func places(ms []catalog.Member) (out []string) {
	for _, m := range ms {
		out = append(out, m.Node)
	}
	return out
}

// settled checks the copies that are left when nothing is to be done any more, and that no epoch has changed.
func (w *trio) settled(what string, followers ...string) {
	w.t.Helper()
	a := w.assignment()
	if got := places(a.Followers); a.Epoch != 1 || a.Pending != nil || !slices.Equal(got, followers) || len(a.Learners)+len(a.Leaving) > 0 {
		w.t.Fatalf("%s: %+v; want epoch 1, followers %v and nothing under way", what, a, followers)
	}
}

func TestALostFollowerIsHeldAndThenReplaced(t *testing.T) {
	w := newQuartet(t)
	w.kill("three")
	killed := w.sim.Now()
	w.sim.RunFor(4900 * time.Millisecond)
	a := w.assignment()
	if since := w.absent("three"); since != 1+killed.Milliseconds() || a.Version != 1 {
		t.Fatalf("while it is held: away since %d, killed at %d; %+v", since, 1+killed.Milliseconds(), a)
	}
	w.sim.RunFor(200 * time.Millisecond)
	a = w.assignment()
	if !slices.Equal(places(a.Learners), []string{"four"}) || !slices.Equal(places(a.Leaving), []string{"three"}) {
		t.Fatalf("its hold is over: %+v", a)
	}
	w.admit()
	w.sim.RunFor(time.Minute)
	w.settled("replaced", "one", "four")
	w.revive("three")
	w.sim.RunFor(time.Minute)
	if w.settled("it came back, and its place is another's", "one", "four"); w.absent("three") != 0 {
		t.Error("it is there, and the catalog says that it is away")
	}
}

func TestAFollowerThatComesBackKeepsItsPlace(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		moved bool
	}{{4900 * time.Millisecond, false}, {8 * time.Second, true}} {
		w := newQuartet(t)
		w.c.Apply(w.do(catalog.PutSetting(catalog.Rebalance, "off", 0)))
		w.kill("three")
		w.sim.RunFor(c.after)
		if learns := len(w.assignment().Learners) > 0; learns != c.moved {
			t.Fatalf("after %s: %+v", c.after, w.assignment())
		}
		w.revive("three")
		w.sim.RunFor(time.Minute)
		w.settled("it came back after "+c.after.String(), "one", "three")
		if moved := w.assignment().Version != 1; moved != c.moved {
			t.Errorf("after %s: version %d", c.after, w.assignment().Version)
		}
	}
}

// TestAnotherControllerGoesOnWithAHold puts another controller in the stead of the one before after each command that was applied, one
// after another and all together, and every 700 ms: the hold ends when it would have, and the place goes to the fourth node.
func TestAnotherControllerGoesOnWithAHold(t *testing.T) {
	for at := range 8 { // 7: after every command
		w := newQuartet(t)
		n := 0
		w.applied = func([]catalog.Change) {
			if n++; n-1 == at || at == 7 {
				w.control()
			}
		}
		var again func()
		again = func() {
			w.control()
			w.sim.At(w.sim.Now()+700*time.Millisecond, again)
		}
		w.sim.At(w.sim.Now()+700*time.Millisecond, again)
		w.kill("three")
		killed := w.sim.Now()
		w.sim.RunFor(4500 * time.Millisecond)
		if a := w.assignment(); a.Version != 1 || w.absent("three") == 0 {
			t.Fatalf("another after command %d, held: away since %d, %+v", at, w.absent("three"), a)
		}
		since := w.absent("three")
		w.sim.RunFor(1500 * time.Millisecond)
		a := w.assignment()
		if !slices.Equal(places(a.Learners), []string{"four"}) || !slices.Equal(places(a.Leaving), []string{"three"}) {
			t.Fatalf("another after command %d, its hold is over: %+v", at, a)
		}
		if late := since - 1 - killed.Milliseconds(); late < 0 || late > 2000 || w.absent("three") != since {
			t.Errorf("another after command %d: away since %d, killed at %d", at, w.absent("three"), killed.Milliseconds())
		}
		w.admit()
		w.sim.RunFor(10 * time.Second)
		w.settled("another controller", "one", "four")
	}
}

// TestAnAbsenceWaitsForTheRecord: that the owner's node is away is written down after the change of owner, which waits for nothing.
func TestAnAbsenceWaitsForTheRecord(t *testing.T) {
	w := newQuartet(t)
	var order []string
	w.applied = func(changes []catalog.Change) {
		for _, c := range changes {
			switch x := c.After.(type) {
			case *catalog.Resource:
				if x.Partitions[0].Pending != nil {
					order = append(order, "recorded")
				} else if x.Partitions[0].Epoch > 1 {
					order = append(order, "committed")
				}
			case *catalog.Node:
				order = append(order, x.Name+" away")
			}
		}
	}
	w.kill("two")
	w.sim.RunFor(time.Second)
	if len(order) != 3 || order[0] != "recorded" || order[1] != "two away" || order[2] != "committed" {
		t.Fatalf("in this order: %v", order)
	}
	// The old owner is a follower now, and its hold counts from when it went.
	w.sim.RunFor(5 * time.Second)
	a := w.assignment()
	if !slices.Equal(places(a.Leaving), []string{"two"}) || !slices.Equal(places(a.Learners), []string{"four"}) {
		t.Errorf("the old owner's hold is over: %+v", a)
	}
}

// TestAnAbsenceIsProposedUntilItIsThere: what arrives late is not proposed twice, and what was right when it was proposed is taken back.
func TestAnAbsenceIsProposedUntilItIsThere(t *testing.T) {
	w := newQuartet(t)
	w.slow = 3 * time.Second // what is proposed arrives late: no second proposal goes out meanwhile
	commands := 0
	w.applied = func(changes []catalog.Change) {
		for _, c := range changes {
			if n, ok := c.After.(*catalog.Node); ok && n.Name == "three" {
				commands++
			}
		}
	}
	w.kill("three")
	w.sim.RunFor(2 * time.Second)
	w.revive("three")
	w.sim.RunFor(2 * time.Second)
	if w.absent("three") == 0 || commands != 1 {
		t.Fatalf("it was away when it was proposed: %d commands, away since %d", commands, w.absent("three"))
	}
	w.sim.RunFor(10 * time.Second)
	if w.absent("three") != 0 || commands != 2 {
		t.Fatalf("it is back: %d commands, away since %d", commands, w.absent("three"))
	}
	w.settled("nothing moved", "one", "three")
}

// TestADrainedNodeIsLeft: what a draining node follows goes to another, and its name to a new store learns in its own place.
func TestADrainedNodeIsLeft(t *testing.T) {
	w := newQuartet(t)
	w.c.Apply(w.do(catalog.DrainNode("three", run("three", 1).Store, true)))
	w.sim.RunFor(time.Second)
	w.admit()
	w.sim.RunFor(time.Second)
	w.settled("drained", "one", "four")
	fresh := ident.Instance{Node: "four", Store: ident.StoreID{42}, Boot: 1}
	w.c.Apply(w.do(catalog.ReplaceNode(run("four", 1).Store, catalog.Node{Name: "four", Store: fresh.Store, Boot: 1})))
	w.c.PeerUp(fresh)
	w.sim.At(w.sim.Now()+50*time.Millisecond, func() { w.c.Beat(control.Beat{From: fresh}) })
	w.sim.RunFor(time.Second)
	if a := w.assignment(); len(a.Learners) != 1 || a.Learners[0] != (catalog.Member{Node: "four", Store: fresh.Store}) || len(a.Leaving) > 0 {
		t.Fatalf("with a new store: %+v", a)
	}
}

// TestAnAbsenceIsNoOtherRun: what was asked of a node is not asked again, and what it has answered counts, when the catalog says that it is away.
func TestAnAbsenceIsNoOtherRun(t *testing.T) {
	w := newQuartet(t)
	w.halted["two"], w.mute["two"], w.mute["three"] = true, true, true // the owner hangs, and one is slow to answer
	w.sim.RunFor(1600 * time.Millisecond)
	if w.assignment().Pending == nil || w.absent("two") == 0 {
		t.Fatalf("away since %d, %+v", w.absent("two"), w.assignment())
	}
	w.c.Apply(w.do(catalog.NoteAbsent("three", run("three", 1).Store, 1, 7))) // it is not, and the controller says so
	w.sim.RunFor(300 * time.Millisecond)
	if w.absent("three") != 0 {
		t.Error("three is there, and the catalog says that it is away")
	}
	for _, asked := range []string{"one at 2", "two at 2", "three at 2"} {
		if n := len(slices.DeleteFunc(slices.Clone(w.sealed), func(s string) bool { return s != asked })); n != 1 {
			t.Errorf("%s was asked %d times: %v", asked, n, w.sealed)
		}
	}
}

// A node whose disk is full takes no further copy, and does not keep the place of one that could: its learner is given up where another node has
// room, and goes on where none has.
func TestAFullDiskTakesNoFurtherCopy(t *testing.T) {
	w := newQuartet(t)
	w.more = append(w.more, "five")
	w.c.Apply(w.do(catalog.RegisterBoot(catalog.Node{Name: "five", Store: run("five", 1).Store, Boot: 1})))
	w.c.PeerUp(run("five", 1))
	full := map[string]bool{}
	w.health = func(node string) string {
		if full[node] {
			return "full"
		}
		return ""
	}
	full["four"] = true
	w.sim.RunFor(time.Second)
	w.kill("three")
	w.sim.RunFor(6 * time.Second)
	if l := places(w.assignment().Learners); !slices.Equal(l, []string{"five"}) {
		t.Fatalf("with four full %v learn", l)
	}
	full["five"] = true
	w.sim.RunFor(time.Second)
	if l := places(w.assignment().Learners); !slices.Equal(l, []string{"five"}) {
		t.Fatalf("with all full %v learn", l)
	}
	full["four"] = false
	w.sim.RunFor(time.Second)
	if l := places(w.assignment().Learners); !slices.Equal(l, []string{"four"}) {
		t.Fatalf("with five full %v learn", l)
	}
	w.admit()
	w.sim.RunFor(time.Second)
	full["four"], full["one"] = true, true
	w.sim.RunFor(time.Second)
	w.settled("what follows on a full disk stays", "one", "four")
}
