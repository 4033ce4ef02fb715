package control

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// runs are the registered runs of nodes.
type runs []ident.Instance

func (r runs) Node(name string) *catalog.Node {
	for _, i := range r {
		if i.Node == name {
			return &catalog.Node{Name: name, Store: i.Store, Boot: i.Boot}
		}
	}
	return nil
}

func TestOnlyAnEarlierRunOverTheSameStoreIsACause(t *testing.T) {
	a := three(4)
	a.Owner = instance("a", 5)
	other := instance("a", 6)
	other.Store = ident.StoreID{'z'}
	for name, c := range map[string]struct {
		run  ident.Instance
		want bool
	}{
		"this run": {instance("a", 5), false}, "a later run": {instance("a", 6), true}, "another node": {instance("b", 9), false},
		"a wiped store": {other, false}, "an older image": {instance("a", 4), false},
	} {
		if got := Cause(a, runs{c.run}) != ""; got != c.want {
			t.Errorf("%s: cause %v, want %v", name, got, c.want)
		}
	}
	p := NewTransition(a, "x", 7)
	if p.Epoch != 5 || p.ID != "7/0@5" || p.Since != 7 {
		t.Errorf("transition: %+v", p)
	}
}

func TestACommitKeepsTheSetsSize(t *testing.T) {
	a := three(4)
	for _, owner := range []string{"a", "b", "c"} {
		c := CommitOf(a, Decision{Owner: instance(owner, 9)})
		seen := map[string]int{owner: 1}
		for _, f := range c.Followers {
			seen[f.Node]++
		}
		if len(c.Followers) != 2 || seen["a"] != 1 || seen["b"] != 1 || seen["c"] != 1 || c.Transition != "t" {
			t.Errorf("%s owns: %+v", owner, c)
		}
	}
}
