package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/front/admin"
)

// A closed journal blocks every copy; only a copy that is blocked beside a journal that works is damaged.
func TestOnlyItsOwnChecksMakeACopyDamaged(t *testing.T) {
	for _, c := range []struct {
		state  replica.State
		closed bool
		want   bool
	}{{replica.Blocked, false, true}, {replica.Blocked, true, false}, {replica.Serving, false, false}, {replica.Waiting, true, false}} {
		if got := damaged(&protocol.CopyStatus{State: string(c.state)}, &protocol.StatusAnswer{Closed: c.closed}); got != c.want {
			t.Errorf("%s, journal closed %v: damaged %v", c.state, c.closed, got)
		}
	}
}

// Of a partition the owner's node says what it does; what other nodes say, or do not say, is shown of their copies alone.
func TestPartitionIsShownByItsNodesAnswers(t *testing.T) {
	p := ident.Partition{Incarnation: 3}
	run := func(node string, boot uint64) ident.Instance {
		return ident.Instance{Node: node, Store: ident.StoreID{node[0]}, Boot: boot}
	}
	a := &catalog.Assignment{Partition: p, Owner: run("a", 2), Followers: []catalog.Member{{Node: "b"}, {Node: "c"}}, Learners: []catalog.Member{{Node: "d"}}}
	says := func(i ident.Instance, s ...protocol.CopyStatus) protocol.StatusAnswer {
		return protocol.StatusAnswer{From: i, Items: s}
	}
	unfit := func(_ *catalog.Assignment, node string) string {
		if node == "a" || node == "b" {
			return ""
		}
		return "not " + node
	}
	g := gathered{silent: map[string]string{"c": "refused: nobody listens"}}
	g.add("a", says(run("a", 2), protocol.CopyStatus{Partition: p, Role: "owner", State: "serving", Position: 9, Durable: 9}))
	g.add("b", says(run("b", 1), protocol.CopyStatus{Partition: p, Role: "follower", State: "serving", Position: 7, Durable: 6}))
	g.add("d", says(run("d", 1)))
	g.add("e", says(run("e", 1), protocol.CopyStatus{Partition: p, Role: "quarantined", State: "blocked", Position: 10, Kept: 77}))
	if s, why := g.stateOf(a); s != admin.Serving || why != "" {
		t.Errorf("%s %q", s, why)
	}
	want := []admin.Copy{
		{Node: "a", Role: "owner", Position: 9, Durable: 9, Health: "ok", CouldLead: true},
		{Node: "b", Role: "follower", Position: 7, Durable: 6, Lag: 2, Health: "ok", CouldLead: true},
		{Node: "c", Role: "follower", Health: "unreachable", WhyNot: "not c"},
		{Node: "d", Role: "learner", Health: "missing", WhyNot: "not d"},
		{Node: "e", Role: "former", Position: 10, Health: "damaged", Kept: 77, WhyNot: "it is none of the partition's copies any more"},
	}
	got := g.copiesOf(a, unfit)
	if len(got) != len(want) {
		t.Fatalf("copies: %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("copy %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	for _, c := range []struct {
		owner ident.Instance
		state admin.State
		why   string
	}{
		{run("c", 1), admin.Waiting, "node c does not answer here (refused: nobody listens); another copy takes over when the controller misses it too"},
		{run("a", 1), admin.Moving, "started again"},
		{ident.Instance{Node: "a", Store: ident.StoreID{9}, Boot: 2}, admin.Moving, "is gone; another copy takes over"},
		{ident.Instance{}, admin.Waiting, "no owner"},
		{run("d", 1), admin.Recovering, ""},
	} {
		a.Owner = c.owner
		if s, why := g.stateOf(a); s != c.state || !strings.Contains(why, c.why) {
			t.Errorf("owner %v: %s %q", c.owner, s, why)
		}
	}
}

// Beside a transition the owner serves until it is sealed; what the controller waits for is said of the partition.
func TestAPartitionWithATransitionIsShownAsMoving(t *testing.T) {
	p := ident.Partition{Incarnation: 3}
	owner := ident.Instance{Node: "a", Boot: 2}
	g := gathered{silent: map[string]string{"c": "refused: nobody listens"}}
	g.add("a", protocol.StatusAnswer{From: owner, Items: []protocol.CopyStatus{{Partition: p, Role: "owner", State: "serving"}}})
	a := &catalog.Assignment{Partition: p, Owner: ident.Instance{Node: "c", Boot: 1}, Pending: &catalog.Pending{ID: "x", Cause: "c is suspected"}}
	if s, why := g.stateOf(a); s != admin.Moving || !strings.Contains(why, "c is suspected") {
		t.Errorf("a transition: %s %q", s, why)
	}
	a.Owner = owner
	if s, why := g.stateOf(a); s != admin.Serving || !strings.Contains(why, "c is suspected") {
		t.Errorf("a transition that has sealed nothing yet: %s %q", s, why)
	}
	g.waits[p] = control.Waiting{Answers: 1, Needed: 2, Missing: []string{"c"}}
	if s, why := g.stateOf(a); s != admin.Waiting || why != "1 of 2 answers needed; missing: c" {
		t.Errorf("a transition that waits: %s %q", s, why)
	}
	g.waits[p] = control.Waiting{Kind: control.WaitTruth, Reason: "a and b differ"}
	if s, why := g.stateOf(a); s != admin.Blocked || why != "copies contradict each other; a and b differ" {
		t.Errorf("a contradiction: %s %q", s, why)
	}
}

// TestWhyACopyCountsForNothing: what keeps another copy than the owner's from counting is told, and a copy that the catalog names no more is
// told from those that it does.
func TestWhyACopyCountsForNothing(t *testing.T) {
	p := ident.Partition{Incarnation: 1}
	g := gathered{}
	for node, s := range map[string]protocol.CopyStatus{
		"a": {Role: "owner", State: string(replica.Recovering), Reason: "the owner's own"},
		"b": {Role: "follower", State: string(replica.Recovering), Reason: "it takes an image"},
		"c": {Role: "follower", State: string(replica.Blocked), Reason: "a checksum"},
		"d": {Role: "follower", State: string(replica.Waiting), Reason: "no transition"},
	} {
		s.Partition = p
		g.add(node, protocol.StatusAnswer{From: ident.Instance{Node: node}, Items: []protocol.CopyStatus{s}})
	}
	a := catalog.Assignment{Partition: p, Owner: ident.Instance{Node: "a"}, Followers: []catalog.Member{{Node: "b"}, {Node: "c"}}}
	var got []string
	for _, c := range g.copiesOf(&a, func(*catalog.Assignment, string) string { return "" }) {
		got = append(got, strings.Join([]string{c.Node, c.Role, c.Reason, c.WhyNot}, "|"))
	}
	want := []string{"a|owner||", "b|follower|it takes an image|", "c|follower|a checksum|", "d|former||it is none of the partition's copies any more"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
