package partition

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// places is what NextChange looks at, drawn: an assignment whose copies are on a few nodes, some of which come with a second store, wishes, and
// how far each copy holds the log.
type places struct {
	a      *catalog.Assignment
	wishes Wishes
	floor  uint64
	at     map[ident.StoreID]uint64 // missing: what the copy says does not count
}

var somePolicies = []string{"local_durable", "majority_durable", "all_durable", "replica_durable(2)", "replica_durable(3)", "replica_accepted(2)"}

func drawPlaces(t *rapid.T) *places {
	x := &places{floor: rapid.Uint64Range(1, 3).Draw(t, "floor"), at: map[ident.StoreID]uint64{}}
	x.a = &catalog.Assignment{
		Epoch: 4, Version: 9, Owner: ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 1}, Policy: rapid.SampledFrom(somePolicies).Draw(t, "policy"),
	}
	for i, node := range []string{"b", "c", "d", "e"} {
		store := byte(10 * (i + 1))
		switch rapid.SampledFrom([]string{"follows", "learns", "neither", "learns anew"}).Draw(t, node) {
		case "follows":
			x.a.Followers = append(x.a.Followers, place(node, store))
		case "learns":
			x.a.Learners = append(x.a.Learners, place(node, store))
		case "learns anew": // its store was replaced
			x.a.Followers = append(x.a.Followers, place(node, store))
			x.a.Learners = append(x.a.Learners, place(node, store+1))
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "a") == 0 { // the owner's node, with another store
		x.a.Learners = append(x.a.Learners, place("a", 2))
	}
	x.a.Learners = rapid.Permutation(x.a.Learners).Draw(t, "learners")
	for _, m := range rapid.Permutation(x.a.Followers).Draw(t, "leaving") {
		if rapid.Bool().Draw(t, "leaves") {
			x.a.Leaving = append(x.a.Leaving, m)
		}
	}
	for _, m := range slices.Concat(x.a.Followers, x.a.Learners) {
		if rapid.IntRange(0, 4).Draw(t, "counts") > 0 {
			x.at[m.Store] = rapid.Uint64Range(0, x.floor+1).Draw(t, "holds")
		}
	}
	x.wishes = Wishes{
		Kind:   rapid.SampledFrom([]ident.Kind{ident.Queue, ident.Stream}).Draw(t, "kind"),
		Copies: rapid.IntRange(1, 5).Draw(t, "copies"), Policy: rapid.SampledFrom(somePolicies).Draw(t, "wished"),
	}
	return x
}

func (x *places) held(store ident.StoreID) (uint64, bool) {
	at, counts := x.at[store]
	return at, counts
}

// outcome is what a change leads to: followers as a set, what goes on to learn, and the policy.
type outcome struct {
	followers, learners []catalog.Member
	policy              string
}

// enough says, by counting, that as many copies of the new set hold the floor as must confirm. The owner's does.
func (x *places) enough(n outcome) bool {
	p, err := quorum.Parse(n.policy)
	if err != nil {
		return false
	}
	hold := 1
	for _, m := range n.followers {
		if at, counts := x.at[m.Store]; counts && at >= x.floor {
			hold++
		}
	}
	return hold >= quorum.W(p, 1+len(n.followers), x.wishes.Kind)
}

// model looks through everything that could be proposed, in the order of its classes: each learner in the stead of each follower and of none, each
// follower left out, the wished policy. The first that is allowed, and that enough copies hold, is the one.
func (x *places) model() *outcome {
	a := x.a
	has := func(list []catalog.Member, m catalog.Member) bool { return slices.Contains(list, m) }
	but := func(list []catalog.Member, m catalog.Member) []catalog.Member {
		return slices.DeleteFunc(slices.Clone(list), func(o catalog.Member) bool { return o == m })
	}
	copies := 1 + len(a.Followers)
	for _, l := range a.Learners {
		if at, counts := x.at[l.Store]; !counts || at < x.floor {
			continue
		}
		for _, gone := range append([]catalog.Member{{}}, a.Followers...) {
			n := outcome{but(append(slices.Clone(a.Followers), l), gone), but(a.Learners, l), a.Policy}
			nodes := map[string]int{"a": 1}
			for _, m := range n.followers {
				nodes[m.Node]++
			}
			twice := false
			for _, times := range nodes {
				twice = twice || times > 1
			}
			own := slices.ContainsFunc(a.Followers, func(f catalog.Member) bool { return f.Node == l.Node })
			switch {
			case twice: // a node has one copy
			case own: // the only way without two on the node: in the stead of its old store
			case gone == (catalog.Member{}) && copies >= x.wishes.Copies: // there is no further place
				continue
			case gone != (catalog.Member{}) && (copies < x.wishes.Copies || !has(a.Leaving, gone)): // nobody goes who need not
				continue
			}
			if !twice && (!own || gone.Node == l.Node) && x.enough(n) {
				return &n
			}
			if !twice && !own && gone != (catalog.Member{}) {
				break // the first that leaves is the one, or none
			}
		}
	}
	if copies > x.wishes.Copies {
		for _, l := range a.Leaving {
			if n := (outcome{but(a.Followers, l), a.Learners, a.Policy}); has(a.Followers, l) && x.enough(n) {
				return &n
			}
		}
	}
	p, _ := quorum.Parse(a.Policy)
	q, _ := quorum.Parse(x.wishes.Policy)
	if n := (outcome{a.Followers, a.Learners, x.wishes.Policy}); p != q && x.enough(n) {
		return &n
	}
	return nil
}

func sorted(list []catalog.Member) string {
	var names []string
	for _, m := range list {
		names = append(names, fmt.Sprint(m.Node, m.Store[0]))
	}
	slices.Sort(names)
	return fmt.Sprint(names)
}

// TestNextChangeIsTheFirstThatIsAllowed holds the decision against one that tries everything.
func TestNextChangeIsTheFirstThatIsAllowed(t *testing.T) {
	owners := map[uint64]*Copy{}
	for floor := uint64(1); floor <= 3; floor++ {
		owners[floor] = ownerWith(t, floor)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := drawPlaces(t)
		c, err := NextChange(x.a, x.wishes, owners[x.floor], ident.StoreID{1}, x.held)
		if err != nil {
			t.Fatal(err)
		}
		want := x.model()
		if (c == nil) != (want == nil) {
			t.Fatalf("%+v, wishes %+v, held %v: %+v, want %+v", x.a, x.wishes, x.at, c, want)
		}
		if c == nil {
			return
		}
		p, err := quorum.Parse(want.policy)
		m := c.membership
		if err != nil || sorted(m.Followers) != sorted(want.followers) || sorted(m.Learners) != sorted(want.learners) || m.Policy != p.String() {
			t.Fatalf("%+v, wishes %+v, held %v: %+v, want %+v", x.a, x.wishes, x.at, m, want)
		}
		if w := quorum.W(p, 1+len(m.Followers), x.wishes.Kind); c.Set().W != w {
			t.Fatalf("confirms by %d, want %d", c.Set().W, w)
		}
	})
}

// TestChangesComeToRest makes one change after the other while every copy holds everything: they end, what is wished is reached as far as there are
// copies for it, and nobody leaves who was not to.
func TestChangesComeToRest(t *testing.T) {
	owner := ownerWith(t, 2)
	rapid.Check(t, func(t *rapid.T) {
		x := drawPlaces(t)
		first := *x.a
		all := func(ident.StoreID) (uint64, bool) { return 2, true }
		for n := 0; ; n++ {
			if n > len(first.Learners)+len(first.Leaving)+1 {
				t.Fatalf("%+v, wishes %+v: no rest after %d changes, at %+v", first, x.wishes, n, x.a)
			}
			c, err := NextChange(x.a, x.wishes, owner, ident.StoreID{1}, all)
			if err != nil {
				t.Fatal(err)
			}
			if c == nil {
				break
			}
			a := *x.a
			a.Followers, a.Learners, a.Policy = c.membership.Followers, c.membership.Learners, c.membership.Policy
			a.Leaving = slices.DeleteFunc(slices.Clone(a.Leaving), func(m catalog.Member) bool { return !slices.Contains(a.Followers, m) })
			a.Version++
			x.a = &a
		}
		if differ, err := policiesDiffer(x.a.Policy, x.wishes.Policy); err != nil || differ {
			t.Fatalf("the policy is %s and %s is wished: %v", x.a.Policy, x.wishes.Policy, err)
		}
		copies := x.a.Eligible()
		if copies > x.wishes.Copies && len(x.a.Leaving) > 0 {
			t.Fatalf("%d copies of %d, and %v still leave", copies, x.wishes.Copies, x.a.Leaving)
		}
		for _, l := range x.a.Learners {
			if l.Node != x.a.Owner.Node && copies < x.wishes.Copies || slices.ContainsFunc(x.a.Followers, func(f catalog.Member) bool { return f.Node == l.Node }) {
				t.Fatalf("%s learns for ever: %+v, wishes %+v", l.Node, x.a, x.wishes)
			}
		}
		for _, f := range first.Followers {
			renewed := slices.ContainsFunc(first.Learners, func(l catalog.Member) bool { return l.Node == f.Node })
			if !slices.Contains(x.a.Followers, f) && !slices.Contains(first.Leaving, f) && !renewed {
				t.Fatalf("%s left and was not to: %+v became %+v", f.Node, first, x.a)
			}
		}
	})
}

// ownerWith is an owner whose floor is at a position.
func ownerWith(t *testing.T, floor uint64) *Copy {
	t.Helper()
	c := ownerAt(t, 4, floor)
	if c.Floor() != floor {
		t.Fatalf("the floor is at %d", c.Floor())
	}
	return c
}
