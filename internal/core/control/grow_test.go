package control

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// world is a catalog that steps are taken in.
type world struct {
	t *testing.T
	s *catalog.State
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := &world{t, catalog.New()}
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

func (w *world) grow(limit int, dead ...string) []Growth {
	live := func(node string) bool {
		for _, d := range dead {
			if d == node {
				return false
			}
		}
		return true
	}
	return Grow(w.s.View(), Sites(w.s.View(), live), limit)
}

// admit lets every learner in, as an owner does under the joint rule.
func (w *world) admit() {
	for _, r := range w.s.View().AllResources() {
		a := r.Partitions[0]
		for _, l := range a.Learners {
			m := catalog.Membership{Partition: a.Partition, Version: a.Version, Epoch: a.Epoch, Floor: 1}
			m.Evidence = []catalog.Evidence{{Store: a.Owner.Store, Position: 1}, {Store: l.Store, Position: 1}}
			for _, f := range a.Followers {
				if f.Node != l.Node {
					m.Followers = append(m.Followers, f)
					m.Evidence = append(m.Evidence, catalog.Evidence{Store: f.Store, Position: 1})
				}
			}
			m.Followers = append(m.Followers, l)
			w.do(catalog.ChangeMembers(m))
		}
	}
}

// settle takes steps until there are none, and says how many rounds that took.
func (w *world) settle(limit int) int {
	for round := 0; ; round++ {
		steps := w.grow(limit)
		if len(steps) == 0 {
			return round
		}
		if len(steps) > limit || round > 1000 {
			w.t.Fatalf("round %d: %d steps", round, len(steps))
		}
		for _, g := range steps {
			w.do(g.Item())
		}
		w.admit()
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
	if steps := w.grow(7); len(steps) != 7 || steps[0].Drop || steps[0].Member.Node == "a" {
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
	if steps := w.grow(5, "c"); len(steps) != 1 || !steps[0].Drop || steps[0].Member != c {
		t.Errorf("its node is dead and another could learn: %v", steps)
	}
	if steps := w.grow(5, "c", "b", "d"); len(steps) != 0 {
		t.Errorf("its node is dead, and so is every other: %v", steps)
	}
	w.admit()
	w.do(catalog.AddLearner(p, 3, catalog.Member{Node: "d", Store: ident.StoreID{'d'}}))
	if steps := w.grow(5); len(steps) != 1 || !steps[0].Drop || steps[0].Member.Node != "d" {
		t.Errorf("there are two of two: %v", steps)
	}
	w.settle(5)
	if a, _ := w.s.View().Assignment(p); a.Eligible() != 2 || len(a.Learners) != 0 {
		t.Errorf("got %+v", a)
	}
}
