package consensus

import (
	"errors"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
)

// What a leader decided in its term is not given to the next one, which decides by what it sees itself: it is part of the log that the next leader
// begins with, or it never is, and that is told. What others ask for is carried on.
func TestADeposedLeadersDecisionsEndWithItsTerm(t *testing.T) {
	cl := newCluster(t, 3)
	cl.grow(3)
	old := cl.leader()
	term := old.c.term
	command := func(name string) []byte {
		cmd, err := catalog.Encode(catalog.PutSetting(name, "x", 0))
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	outcomes := map[string]error{}
	told := func(name string) func(catalog.Result, error) {
		return func(_ catalog.Result, err error) {
			if _, twice := outcomes[name]; twice {
				t.Errorf("%s was answered twice", name)
			}
			outcomes[name] = err
		}
	}
	follower := cl.members[1]
	if follower == old {
		follower = cl.members[0]
	}
	old.c.ProposeIn(term, command("in time"), told("in time"))
	old.c.ProposeIn(term-1, command("of before"), told("of before"))
	follower.c.ProposeIn(term, command("elsewhere"), told("elsewhere"))
	cl.await("outcomes while it leads", time.Second, func() bool { return len(outcomes) == 3 })
	cl.sever(old, false)
	old.c.ProposeIn(term, command("cut off"), told("cut off"))
	old.c.Propose(command("asked"), told("asked"))
	cl.await("new leader", time.Second, func() bool { l := cl.leader(); return l != nil && l != old })
	old.c.ProposeIn(term, command("behind"), told("behind")) // it may not know yet
	cl.heal()
	cl.await("outcomes", 5*time.Second, func() bool { return len(outcomes) == 6 && cl.alike() })
	for name, err := range outcomes {
		there := cl.leader().c.State().View().Setting(name) != nil
		if lives := name == "in time" || name == "asked"; lives != there || lives != (err == nil) || err != nil && !errors.Is(err, ErrNotProposed) {
			t.Errorf("%s: there %v, told %v", name, there, err)
		}
	}
	if n := old.c.proposals.open(); n > 0 {
		t.Errorf("%d proposals wait", n)
	}
}

// A leader whose process was stopped, with a write under way, does not take its own pause for its journal's.
func TestALeaderThatStoodStillHasNotStalled(t *testing.T) {
	cl := newCluster(t, 4)
	cl.grow(2) // the other cannot lead alone
	m := cl.leader()
	m.log.stalled = true
	cl.put(m)
	cl.sim.RunFor(20 * time.Millisecond)
	if len(m.c.writes) == 0 {
		t.Fatal("nothing is being written")
	}
	m.run.Pause(5 * time.Second)
	cl.sim.RunFor(5*time.Second + 300*time.Millisecond)
	for _, e := range cl.told {
		if e.Name == "consensus.stalled" {
			t.Error("the journal was found to have stalled")
		}
	}
	cl.heal()
	cl.await("peace", 5*time.Second, func() bool { return cl.open == 0 && cl.alike() })
}
