package control

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// world is a catalog that steps are taken in.
type world struct {
	t   testing.TB
	s   *catalog.State
	now int64
}

func newWorld(t testing.TB, nodes ...string) *world {
	w := &world{t: t, s: catalog.New(), now: 1_000_000}
	w.do(catalog.CreateVHost("/"))
	for _, n := range nodes {
		w.join(n, n[0])
	}
	return w
}

func (w *world) do(items ...catalog.Item) {
	w.t.Helper()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		w.t.Fatal(err)
	}
	res, _, err := w.s.Apply(w.s.Index()+1, cmd)
	if err == nil {
		err = res.Err()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) join(name string, store byte) {
	w.do(catalog.RegisterBoot(catalog.Node{Name: name, Store: ident.StoreID{store}, Boot: 1}))
}

func (w *world) declare(name string, copies uint32, owner string, followers ...string) {
	var members []catalog.Member
	for _, f := range followers {
		members = append(members, catalog.Member{Node: f, Store: ident.StoreID{f[0]}})
	}
	w.do(catalog.DeclareResource(catalog.Resource{
		VHost: "/", Name: name, Kind: catalog.Queue, Durable: true, Copies: copies, Queue: &queue.Settings{},
	}, instance(owner, 1), members, 1))
}

func (w *world) plan(limit int, dead ...string) Arrangement {
	live := func(node string) bool { return !slices.Contains(dead, node) }
	return Arrange(w.s.View(), Sites(w.s.View(), live), w.now, limit)
}

func (w *world) grow(limit int, dead ...string) []Step { return w.plan(limit, dead...).Steps }

// carryOut has owners do the next change of each partition, as they do under the joint rule: a learner comes in the stead of the follower on
// its node, else of one that leaves, else beside; of more copies than wanted one that leaves goes. It reports whether any did.
func (w *world) carryOut() (any bool) {
	for _, r := range w.s.View().AllResources() {
		a := r.Partitions[0]
		if a.Pending != nil {
			continue
		}
		m := catalog.Membership{Partition: a.Partition, Version: a.Version, Epoch: a.Epoch, Floor: 1, Policy: r.Policy, Followers: a.Followers, Learners: a.Learners}
		out := func(n int) { m.Followers = slices.Delete(slices.Clone(m.Followers), n, n+1) }
		switch {
		case len(a.Learners) > 0 && w.s.View().Node(a.Learners[0].Node).Store == a.Learners[0].Store:
			l := a.Learners[0]
			if i := slices.IndexFunc(a.Followers, func(f catalog.Member) bool { return f.Node == l.Node }); i >= 0 {
				out(i)
			} else if len(a.Leaving) > 0 && a.Eligible() >= r.Target() {
				out(slices.Index(a.Followers, a.Leaving[0]))
			}
			m.Followers, m.Learners = append(slices.Clone(m.Followers), l), slices.Clone(a.Learners[1:])
		case a.Eligible() > r.Target() && len(a.Leaving) > 0:
			out(slices.Index(a.Followers, a.Leaving[0]))
		default:
			continue
		}
		for _, f := range asked(&catalog.Assignment{Owner: a.Owner, Followers: m.Followers}) {
			m.Evidence = append(m.Evidence, catalog.Evidence{Store: f.Store, Position: 1})
		}
		w.do(catalog.ChangeMembers(m))
		any = true
	}
	return any
}

// settle takes steps until there are none, and says how many rounds that took.
func (w *world) settle(limit int) int {
	for round := 0; ; round++ {
		steps := w.grow(limit)
		if len(steps) == 0 && !w.carryOut() {
			return round
		}
		if round > 1000 {
			w.t.Fatalf("round %d: %d steps", round, len(steps))
		}
		for _, g := range steps {
			w.do(g.Item())
		}
		w.carryOut()
	}
}

func TestACatalogGrowsToItsTargetsInBalance(t *testing.T) {
	w := newWorld(t, "a")
	for i := range 60 {
		w.declare(fmt.Sprint("q", i), 0, "a")
	}
	w.declare("single", 1, "a")
	w.join("b", 'b')
	w.join("c", 'c')
	w.join("d", 'd')
	if steps := w.grow(7); len(steps) != 7 || steps[0].Kind != Learn || steps[0].Member.Node == "a" {
		t.Fatalf("first %v", steps)
	}
	if rounds := w.settle(7); rounds < 120/7 {
		t.Errorf("%d rounds for 120 copies, 7 at a time", rounds)
	}
	for _, r := range w.s.View().AllResources() {
		want := 3
		if r.Name == "single" {
			want = 1
		}
		if a := r.Partitions[0]; a.Eligible() != want || len(a.Learners) > 0 {
			t.Errorf("%s: %+v", r.Name, a)
		}
	}
	for _, n := range []string{"b", "c", "d"} {
		if l := w.s.View().Load(ident.StoreID{n[0]}); l.Copies() != 40 {
			t.Errorf("%s has %+v, want 40 copies", n, l)
		}
	}
}

func TestOneStepAtATimeAndNoneBesideATransition(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.declare("q", 0, "a")
	w.do(w.grow(5)[0].Item())
	if steps := w.grow(5); len(steps) != 0 {
		t.Errorf("beside a learner: %v", steps)
	}
	w.declare("other", 0, "a")
	if steps := w.grow(1); len(steps) != 0 {
		t.Errorf("one learns already, and one may: %v", steps)
	}
	w.do(catalog.RecordPending(ident.Partition{Incarnation: 2}, 1, catalog.Pending{ID: "t", Epoch: 2}))
	if steps := w.grow(5); len(steps) != 0 {
		t.Errorf("beside a transition: %v", steps)
	}
}

func TestWhereNothingCanGrow(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.declare("q", 0, "a", "b")
	if steps := w.grow(5, "c"); len(steps) != 0 {
		t.Errorf("to a dead node: %v", steps)
	}
	w.do(catalog.DrainNode("c", ident.StoreID{'c'}, true))
	if steps := w.grow(5); len(steps) != 0 {
		t.Errorf("to a draining node: %v", steps)
	}
}

func TestANodeThatCameBackEmptyLearnsInItsPlace(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	w.declare("q", 0, "a", "b", "c")
	w.do(catalog.ReplaceNode(ident.StoreID{'c'}, catalog.Node{Name: "c", Store: ident.StoreID{'z'}, Boot: 1}))
	if steps := w.grow(5, "c"); len(steps) != 0 {
		t.Errorf("its place is kept while it is away: %v", steps)
	}
	steps := w.grow(5)
	if len(steps) != 1 || steps[0].Member != (catalog.Member{Node: "c", Store: ident.StoreID{'z'}}) {
		t.Fatalf("got %v", steps)
	}
	w.settle(5)
	a, _ := w.s.View().Assignment(ident.Partition{Incarnation: 1})
	if a.Eligible() != 3 || !a.Member(ident.StoreID{'z'}) || a.Member(ident.StoreID{'c'}) {
		t.Errorf("got %+v", a)
	}
}

func TestLearnersInTheWayAreGivenUp(t *testing.T) {
	w := newWorld(t, "a", "b", "c", "d")
	w.declare("q", 2, "a")
	p := ident.Partition{Incarnation: 1}
	c := catalog.Member{Node: "c", Store: ident.StoreID{'c'}}
	w.do(catalog.AddLearner(p, 1, c))
	if steps := w.grow(5); len(steps) != 0 {
		t.Errorf("it is on its way: %v", steps)
	}
	if steps := w.grow(5, "c"); len(steps) != 0 {
		t.Errorf("its node is away, and not missed for long: %v", steps)
	}
	w.do(catalog.NoteAbsent("c", ident.StoreID{'c'}, 1, w.now-learnerPatience+1))
	if x := w.plan(5, "c"); len(x.Steps) != 0 || x.Next != w.now+1 {
		t.Errorf("it is waited for still: %+v", x)
	}
	w.now++
	if steps := w.grow(5, "c"); len(steps) != 2 || steps[0].Kind != GiveUp || steps[0].Member != c {
		t.Errorf("its node is dead and another could learn: %v", steps)
	}
	if steps := w.grow(5, "c", "b", "d"); len(steps) != 0 {
		t.Errorf("its node is dead, and so is every other: %v", steps)
	}
	w.do(catalog.NoteAbsent("c", ident.StoreID{'c'}, 1, 0))
	w.carryOut()
	w.do(catalog.AddLearner(p, 3, catalog.Member{Node: "d", Store: ident.StoreID{'d'}}))
	if steps := w.grow(5); len(steps) != 1 || steps[0].Kind != GiveUp || steps[0].Member.Node != "d" {
		t.Errorf("there are two of two: %v", steps)
	}
	w.settle(5)
	if a, _ := w.s.View().Assignment(p); a.Eligible() != 2 || len(a.Learners) != 0 {
		t.Errorf("got %+v", a)
	}
}
