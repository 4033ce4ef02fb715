package control

import (
	"fmt"
	"reflect"
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

func (r runs) Removed(store ident.StoreID) *catalog.Removed {
	for _, i := range r {
		if i.Node == "" && i.Store == store {
			return &catalog.Removed{Store: store}
		}
	}
	return nil
}

func TestAnOwnerWhoseStoreWasReplacedIsGone(t *testing.T) {
	a := three(4)
	a.Owner = instance("a", 5)
	fresh := instance("a", 1)
	fresh.Store = ident.StoreID{'z'}
	if why := Cause(a, runs{fresh, {Store: a.Owner.Store}}); why == "" {
		t.Error("it is no cause")
	}
	a.Owner = fresh
	if why := Cause(a, runs{fresh, {Store: ident.StoreID{'a'}}}); why != "" {
		t.Errorf("the store that replaced it: %s", why)
	}
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
	if p.Epoch != 5 || p.ID != "7/0@5.0" || p.Since != 7 {
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

type suspects []Suspicion

func (s suspects) Suspect(run ident.Instance) (Suspicion, bool) {
	for _, x := range s {
		if x.Node == run {
			return x, true
		}
	}
	return Suspicion{}, false
}

func TestCausesOfATransition(t *testing.T) {
	a := three(4)
	a.Owner, a.Pending = instance("a", 5), nil
	pending := three(4)
	pending.Owner, pending.Pending.Epoch = a.Owner, 6
	learns := three(4)
	learns.Owner, learns.Pending = a.Owner, nil
	learns.Learners = []catalog.Member{{Node: "b", Store: ident.StoreID{'x'}}}
	wiped := instance("a", 6)
	wiped.Store = ident.StoreID{'z'}
	well := runs{instance("a", 5), instance("b", 1), instance("c", 1)}
	gone := Suspicion{Node: instance("a", 5), Symptom: Gone, By: []string{"b", "c"}}
	promise := func(node string, epoch uint64) Promise {
		return Promise{Node: node, Store: ident.StoreID{node[0]}, Epoch: epoch}
	}
	for name, c := range map[string]struct {
		of       *catalog.Assignment
		runs     runs
		suspects suspects
		promises []Promise
		want     Reason
	}{
		"all is well":                     {a, well, nil, nil, Reason{}},
		"its owner is suspected":          {a, well, suspects{gone}, nil, Reason{Why: OwnerSuspected, Text: gone.String(), By: []string{"b", "c"}}},
		"an earlier run is suspected":     {a, well, suspects{{Node: instance("a", 4)}}, nil, Reason{}},
		"a follower is suspected":         {a, well, suspects{{Node: instance("b", 1)}}, nil, Reason{}},
		"suspected, and it has restarted": {a, runs{instance("a", 6)}, suspects{gone}, nil, Reason{Why: OwnerRestarted, Text: "owner a restarted: boot 5 is over, now 6"}},
		"another store in its place": {a, runs{wiped}, nil, nil, Reason{
			Why: OwnerReplaced, Text: "owner a/61000000/5 has another store now: 7a000000000000000000000000000000",
		}},
		"a promise at its epoch": {a, well, nil, []Promise{promise("a", 4), promise("b", 3)}, Reason{}},
		"promises above its epoch": {a, well, suspects{gone}, []Promise{promise("c", 7), promise("a", 5), promise("b", 7)}, Reason{
			Why: PromiseAhead, Text: "b, c promised epoch 7, while the catalog is at 4", By: []string{"b", "c"}, Epoch: 7,
		}},
		"a promise of a store that has no place": {a, well, nil, []Promise{{"b", ident.StoreID{'x'}, 9}, promise("d", 9)}, Reason{}},
		"a learner that cannot learn": {learns, well, nil, []Promise{{"b", ident.StoreID{'x'}, 5}}, Reason{
			Why: PromiseAhead, Text: "b promised epoch 5, while the catalog is at 4", By: []string{"b"}, Epoch: 5,
		}},
		"a promise that is pending": {pending, well, nil, []Promise{promise("b", 6), promise("c", 5)}, Reason{
			Why: PromiseMet, Text: "b promised epoch 6, while the pending transition is at 6", By: []string{"b"}, Epoch: 6,
		}},
		"a promise above the pending one": {pending, well, nil, []Promise{promise("b", 8)}, Reason{
			Why: PromiseAhead, Text: "b promised epoch 8, while the pending transition is at 6", By: []string{"b"}, Epoch: 8,
		}},
	} {
		if got := CauseOf(c.of, c.runs, c.suspects, c.promises); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestATransitionSealsAboveWhatWasPromised(t *testing.T) {
	a := three(4)
	a.Version = 3
	pending := a.Pending
	a.Pending = nil
	by := []string{"b", "c"}
	if p := Pend(a, Reason{Why: OwnerSuspected, Text: "x", By: by}, 7); !p.Equal(&catalog.Pending{ID: "7/0@5.3", Epoch: 5, Cause: "x", Since: 7, By: by}) {
		t.Errorf("a suspicion: %+v", p)
	}
	for promised, epoch := range map[uint64]uint64{5: 5, 9: 9} {
		p := Pend(a, Reason{Why: PromiseAhead, Epoch: promised}, 7)
		if p.Epoch != epoch || p.ID != fmt.Sprintf("7/0@%d.3", epoch) {
			t.Errorf("promised %d: %+v", promised, p)
		}
	}
	a.Pending = pending
	if p := Pend(a, Reason{Why: PromiseAhead, Epoch: 9}, 7); p.ID != "t" || p.Epoch != 9 || p.Since != pending.Since {
		t.Errorf("raised: %+v", p)
	}
	if p := Pend(a, Reason{Why: OwnerSuspected, Text: "x"}, 7); !p.Equal(pending) {
		t.Errorf("left as it is: %+v", p)
	}
}

// After a seal was sent, the promise may be made whatever becomes of the answer.
func TestATransitionIsWithdrawnOnlyBeforeASealWasSent(t *testing.T) {
	for _, c := range []struct {
		now        Reason
		here, sent bool
		want       bool
	}{
		{Reason{}, true, false, true},
		{Reason{}, true, true, false},
		{Reason{}, false, false, false}, // who knows what the other has sent
		{Reason{Why: OwnerSuspected}, true, false, false},
	} {
		if got := MayCancel(c.now, c.here, c.sent); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// A controller that withdrew what it recorded for a promise would find the same promise ahead of the catalog again, for ever.
func TestATransitionThatMeetsAPromiseIsNotWithdrawn(t *testing.T) {
	a := three(4)
	a.Owner, a.Pending = instance("a", 5), nil
	well := runs{instance("a", 5), instance("b", 1), instance("c", 1)}
	promises := []Promise{{"b", ident.StoreID{'b'}, 5}}
	p := Pend(a, CauseOf(a, well, suspects{}, promises), 7)
	a.Pending = &p
	now := CauseOf(a, well, suspects{}, promises)
	if MayCancel(now, true, false) {
		t.Errorf("withdrawn: %+v", now)
	}
	if again := Pend(a, now, 8); !again.Equal(&p) {
		t.Errorf("recorded anew: %+v", again)
	}
}
