package control

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// TestWhatIsYetToDo: what is wished and not so yet is named, and nothing is healthy before, but for what no node could do.
func TestWhatIsYetToDo(t *testing.T) {
	k := steady(t, "majority_durable")
	w := newWorld(t, "a", "b", "c")
	w.declare("q", 3, "a", "b", "c")
	k.View = w.s.View()
	left := func() string {
		a, r := k.View.Assignment(checked)
		return strings.Join(Changing(r, a), "; ")
	}
	version := func() uint64 { a, _ := k.View.Assignment(checked); return a.Version }
	wish := func(policy string, copies uint32) { w.do(catalog.SetWishes("/", "q", 0, policy, copies)) }
	for _, c := range []struct {
		name          string
		do            func()
		want, healthy string
	}{
		{"nothing", func() {}, "", ""},
		{"another policy", func() { wish("all_durable", 0) }, "its policy is still majority_durable", "q: its policy is still majority_durable > tanist status q"},
		{"the default by its name", func() { wish("majority_durable", 0) }, "", ""},
		{"more copies than nodes", func() { wish("", 5) }, "it has 3 of 5 copies", ""},
		{"fewer copies", func() { wish("", 2) }, "it has 3 copies where 2 are wished", "q: it has 3 copies where 2 are wished > tanist status q"},
		{"one is to leave", func() {
			w.do(catalog.MarkLeaving(checked, version(), []catalog.Member{{Node: "c", Store: ident.StoreID{'c'}}}))
		}, "the copy on c is to leave", "q: the copy on c is to leave > tanist status q"},
		{"one learns", func() {
			wish("", 4)
			w.join("d", 'd')
			k.Nodes = append(k.Nodes, NodeState{Node: "d", Live: true})
			w.do(catalog.MarkLeaving(checked, version(), nil), catalog.AddLearner(checked, version()+1, catalog.Member{Node: "d", Store: ident.StoreID{'d'}}))
		}, "d is learning what the others hold", "q: d is learning what the others hold > tanist status q"},
	} {
		c.do()
		if got := left(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if got := told(Unhealthy(k)); got != c.healthy {
			t.Errorf("%s: healthy %q, want %q", c.name, got, c.healthy)
		}
	}
}

// TestAReplacedNodeIsNotMissed: once others have the places of a node that is away, and its vote, all is well without it.
func TestAReplacedNodeIsNotMissed(t *testing.T) {
	k := steady(t, "majority_durable")
	w := newWorld(t, "a", "b", "c", "d")
	w.declare("q", 3, "a", "b", "c")
	k.View = w.s.View()
	k.Nodes = append(k.Nodes, NodeState{Node: "d"})
	if got := told(Unhealthy(k)); got != "" {
		t.Errorf("nobody needs d: %s", got)
	}
	k.Voters = []string{"a", "b", "d"}
	if got := told(Unhealthy(k)); got != "node d: it is not live > tanist node list" {
		t.Errorf("d votes: %s", got)
	}
	k.Voters = nil
	w.do(catalog.DrainNode("c", ident.StoreID{'c'}, true))
	if got := told(Unhealthy(k)); got != "" {
		t.Errorf("no node can take what drains: %s", got)
	}
	stay := func() (what string) {
		list, _, _ := Attention(k, nil)
		for _, c := range list {
			if c.Code == DrainWaits && c.Notice {
				what += c.Subject + ": " + c.What
			}
		}
		return what
	}
	if got := stay(); got != "c: it is draining, and 1 copy stays there that no other node can take" {
		t.Errorf("what is said of it: %q", got)
	}
	k.Nodes[3].Live = true
	if got := stay(); got != "" {
		t.Errorf("a node can take it, and it is said: %q", got)
	}
	if got := told(Unhealthy(k)); got != "q: the copy on c is to leave, since its node is draining > tanist status q" {
		t.Errorf("a node can take what drains: %s", got)
	}
	k.Nodes[3].Live = false
	w.do(catalog.DrainNode("c", ident.StoreID{'c'}, false))
	w.do(catalog.AddLearner(checked, 1, catalog.Member{Node: "d", Store: ident.StoreID{'d'}}))
	if got := told(Unhealthy(k)); got != "node d: it is not live > tanist node list\nq: d is learning what the others hold > tanist status q" {
		t.Errorf("d learns: %s", got)
	}
}
