package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

var checked = ident.Partition{Incarnation: 1}

// steady is healthy, with all that the checks want to know: a owns q, b and c follow, everything is confirmed up to 90 and durable to 100.
func steady(t *testing.T, policy string) Known {
	w := newWorld(t, "a", "b", "c")
	members := []catalog.Member{{Node: "b", Store: ident.StoreID{'b'}}, {Node: "c", Store: ident.StoreID{'c'}}}
	w.do(catalog.DeclareResource(catalog.Resource{
		VHost: "/", Name: "q", Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}, Policy: policy,
	}, instance("a", 1), members, 1))
	k := Known{Now: 1, View: w.s.View(), Voters: []string{"a", "b", "c"}, Ends: map[ident.Partition]End{checked: {100, 90}}}
	for _, n := range []string{"a", "b", "c"} {
		k.Nodes = append(k.Nodes, NodeState{Node: n, Live: true})
		k.Copies = append(k.Copies, CopyState{Partition: checked, Node: n, Run: instance(n, 1), Epoch: 1, Durable: 100})
	}
	k.Copies[0].Serves, k.Copies[0].Feeds = true, []string{"b", "c"}
	return k
}

func told(list []Obstacle, total int) string {
	var out []string
	for _, o := range list {
		out = append(out, o.Subject+": "+o.What+" > "+o.Next)
	}
	if total != len(list) {
		out = append(out, fmt.Sprint(total))
	}
	return strings.Join(out, "\n")
}

func TestHealthy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(k *Known)
		want   string
	}{
		"it is":                      {func(*Known) {}, ""},
		"no leader":                  {func(k *Known) { k.NoQuorum = "no node leads" }, "catalog: no node leads > tanist node list"},
		"a node is to get a vote":    {func(k *Known) { k.VotersDue = VoterChange{Move: AddVoter}.String() }, "catalog: a node is to get a vote > tanist node list"},
		"a follower's node is away":  {func(k *Known) { k.Nodes[2].Live, k.Nodes[2].Reason = false, "refused" }, "node c: it is not live: refused > tanist node list\nq: c is not live > tanist status q"},
		"the owner's node is away":   {func(k *Known) { k.Nodes[0].Live = false }, "node a: it is not live > tanist node list\nq: its owner's node a is not live > tanist status q"},
		"a store is closed":          {func(k *Known) { k.Nodes[1].Closed, k.Nodes[1].Reason = true, "EIO" }, "node b: its store takes no more writes: EIO > tanist node list\nq: b takes no more writes > tanist status q"},
		"one is an entry behind":     {func(k *Known) { k.Copies[1].Durable = 99 }, "q: b is 1 entry behind > tanist status q"},
		"both are behind":            {func(k *Known) { k.Copies[1].Durable, k.Copies[2].Durable = 90, 0 }, "q: b is 10 entries behind; c is 100 entries behind > tanist status q"},
		"one has more than that":     {func(k *Known) { k.Copies[1].Durable = 200 }, ""},
		"one takes nothing":          {func(k *Known) { k.Copies[0].Feeds = []string{"c"} }, "q: b takes nothing from its owner a > tanist status q"},
		"one is in an older epoch":   {func(k *Known) { k.Copies[1].Epoch = 0 }, "q: b has not taken up epoch 1 yet > tanist status q"},
		"one is damaged":             {func(k *Known) { k.Copies[1].Damaged = "checksum" }, "q: b is damaged: checksum > tanist status q"},
		"one is gone":                {func(k *Known) { k.Copies = k.Copies[:2] }, "q: c holds no copy > tanist status q"},
		"one lies on another store":  {func(k *Known) { k.Copies[1].Run.Store[0] = 9 }, "q: b holds no copy > tanist status q"},
		"the owner does not serve":   {func(k *Known) { k.Copies[0].Serves, k.Copies[0].Reason = false, "reading" }, "q: its owner a does not serve it yet: reading > tanist status q"},
		"the owner was started anew": {func(k *Known) { k.Copies[0].Run.Boot = 2 }, "q: its owner a has not taken it over yet > tanist status q"},
		"nobody said how far it is":  {func(k *Known) { k.Ends = nil }, "q: its owner has not said where its log ends > tanist status q"},
	} {
		k := steady(t, "majority_durable")
		c.change(&k)
		if got := told(Unhealthy(k)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestHealthyHasAllItsCopies(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.declare("q", 3, "a", "b")
	k := Known{View: w.s.View(), Ends: map[ident.Partition]End{checked: {}}, Nodes: []NodeState{{Node: "a", Live: true}, {Node: "b", Live: true}}}
	k.Copies = []CopyState{
		{Partition: checked, Node: "a", Run: instance("a", 1), Epoch: 1, Serves: true, Feeds: []string{"b"}}, {Partition: checked, Node: "b", Run: instance("b", 1), Epoch: 1},
	}
	if got := told(Unhealthy(k)); got != "" {
		t.Errorf("two copies on two nodes: %s", got)
	}
	w.join("c", 'c')
	k.Nodes = append(k.Nodes, NodeState{Node: "c", Live: true})
	if got := told(Unhealthy(k)); got != "q: it has 2 of 3 copies, and there is a node for another > tanist status q" {
		t.Errorf("a third node: %s", got)
	}
	w.do(catalog.DrainNode("c", ident.StoreID{'c'}, true))
	if got := told(Unhealthy(k)); got != "" {
		t.Errorf("a third node that takes no copies: %s", got)
	}
	w.do(catalog.DrainNode("c", ident.StoreID{'c'}, false), catalog.AddLearner(checked, 1, catalog.Member{Node: "c", Store: ident.StoreID{'c'}}))
	if got := told(Unhealthy(k)); got != "q: c is learning what the others hold > tanist status q" {
		t.Errorf("a learner: %s", got)
	}
	a, _ := k.View.Assignment(checked)
	w.do(catalog.RecordPending(checked, a.Version, catalog.Pending{ID: "x", Epoch: 2, Cause: "a test"}))
	if got := told(Unhealthy(k)); got != "q: a change of its owner is under way: a test > tanist status q" {
		t.Errorf("a transition: %s", got)
	}
}

func TestWhatStopsWithoutANode(t *testing.T) {
	for name, c := range map[string]struct {
		policy, node string
		change       func(k *Known)
		want         string
	}{
		"a follower's node":           {"majority_durable", "b", func(*Known) {}, ""},
		"the owner's node":            {"majority_durable", "a", func(*Known) {}, ""},
		"a node without a copy":       {"majority_durable", "d", func(*Known) {}, ""},
		"the owner is behind nobody":  {"majority_durable", "a", func(k *Known) { k.Copies[2].Durable = 90 }, ""},
		"the other follower is short": {"majority_durable", "b", func(k *Known) { k.Copies[2].Durable = 89 }, "q: 1 copy in step would be left, majority_durable confirms with 2 (c is 1 entry behind) > tanist status q"},
		"a follower is short":         {"majority_durable", "a", func(k *Known) { k.Copies[2].Durable = 80 }, "q: 1 copy in step would be left, majority_durable confirms with 2 (c is 10 entries behind) > tanist status q"},
		"the short one itself":        {"majority_durable", "c", func(k *Known) { k.Copies[2].Durable = 80 }, ""},
		"the other follower is cut":   {"majority_durable", "b", func(k *Known) { k.Copies[0].Feeds = []string{"b"} }, "q: 1 copy in step would be left, majority_durable confirms with 2 (c takes nothing from its owner a) > tanist status q"},
		"another node is away": {
			"majority_durable", "b", func(k *Known) { k.Nodes[2].Live = false },
			"catalog: 1 of 3 voters would be left, and it takes 2: nothing could be declared or moved > tanist node list\nq: 1 copy in step would be left, majority_durable confirms with 2 (c is not live) > tanist status q",
		},
		"all must confirm":              {"all_durable", "b", func(*Known) {}, "q: 2 copies in step would be left, all_durable confirms with 3 > tanist status q"},
		"one confirms, a follower goes": {"local_durable", "b", func(*Known) {}, ""},
		"one confirms, the owner goes":  {"local_durable", "a", func(*Known) {}, "q: 2 copies could answer, a new owner needs 3 > tanist status q"},
		"it does not serve":             {"majority_durable", "b", func(k *Known) { k.Copies[0].Serves = false }, "q: its owner a does not serve it yet > tanist status q"},
		"the catalog is stuck":          {"majority_durable", "d", func(k *Known) { k.NoQuorum = "no node leads" }, "catalog: no node leads > tanist node list"},
		"the last but one voter":        {"majority_durable", "d", func(k *Known) { k.Voters = []string{"d", "a"} }, "catalog: 1 of 2 voters would be left, and it takes 2: nothing could be declared or moved > tanist node list"},
		"a voter that has gone":         {"majority_durable", "d", func(k *Known) { k.Voters = []string{"", "a"} }, "catalog: 1 of 2 voters would be left, and it takes 2: nothing could be declared or moved > tanist node list"},
	} {
		k := steady(t, c.policy)
		c.change(&k)
		if got := told(StopsWithout(k, c.node)); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, c.want)
		}
	}
	w := newWorld(t, "a")
	w.declare("q", 3, "a")
	k := Known{View: w.s.View(), Voters: []string{"a"}, Nodes: []NodeState{{Node: "a", Live: true}}}
	k.Copies = []CopyState{{Partition: checked, Node: "a", Run: instance("a", 1), Epoch: 1, Serves: true}}
	list, _ := StopsWithout(k, "a")
	if len(list) != 2 || list[1].What != "its only copy is there" {
		t.Errorf("the only node: %+v", list)
	}
}

func TestWhatACheckSaysIsBounded(t *testing.T) {
	w := newWorld(t, "a")
	for i := range MaxConditions + 7 {
		w.declare(fmt.Sprint("q", i), 1, "a")
	}
	list, total := Unhealthy(Known{View: w.s.View(), Nodes: []NodeState{{Node: "a", Live: true}}})
	if len(list) != MaxConditions || total != MaxConditions+7 {
		t.Errorf("%d of %d", len(list), total)
	}
	list, total = StopsWithout(Known{View: w.s.View(), Nodes: []NodeState{{Node: "a", Live: true}}}, "a")
	if len(list) != MaxConditions || total != MaxConditions+8 || list[0].Subject != "catalog" {
		t.Errorf("%d of %d, %+v", len(list), total, list[0])
	}
}

func TestWhoCouldLead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(k *Known)
		node   string
		want   string
	}{
		"the owner":                {func(*Known) {}, "a", ""},
		"a follower":               {func(*Known) {}, "b", ""},
		"all that is confirmed":    {func(k *Known) { k.Copies[1].Durable = 90 }, "b", ""},
		"one less":                 {func(k *Known) { k.Copies[1].Durable = 89 }, "b", "it lacks 1 entry of what is confirmed"},
		"one that nobody knows":    {func(*Known) {}, "d", "its store is not one that the catalog admits"},
		"one whose node is away":   {func(k *Known) { k.Nodes[1].Live, k.Nodes[1].Reason = false, "refused" }, "b", "its node is not live: refused"},
		"one whose store is full":  {func(k *Known) { k.Nodes[1].Closed = true }, "b", "its store takes no more writes"},
		"one that is damaged":      {func(k *Known) { k.Copies[1].Damaged = "checksum" }, "b", "it is damaged: checksum"},
		"one that holds nothing":   {func(k *Known) { k.Copies = slices.Delete(k.Copies, 1, 2) }, "b", "it holds nothing"},
		"one on another store now": {func(k *Known) { k.Copies[1].Run.Store[0] = 1 }, "b", "it holds nothing"},
	} {
		k := steady(t, "")
		c.change(&k)
		a, _ := k.View.Assignment(checked)
		if got := NewCandidates(k).Unfit(a, c.node); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
