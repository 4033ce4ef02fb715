package mesh

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/exec"
)

func (r *recorder) toldOf() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outrun
}

// lines are pairs of generations that two nodes go by: which of the two is told that it was left behind.
var lines = []struct {
	a, b  ident.Generation
	waits string // the node that has no catalog yet
	left  string // "": neither
}{
	{ident.FirstGeneration, ident.Generation{Number: 2, Mark: 5}, "", "a"},
	{ident.Generation{Number: 2, Mark: 5}, ident.FirstGeneration, "", "b"},
	{ident.Generation{}, ident.Generation{Number: 2, Mark: 5}, "", "a"},                       // none is the first
	{ident.Generation{Number: 2, Mark: 4}, ident.Generation{Number: 2, Mark: 5}, "", "a"},     // recovered twice, apart
	{ident.Generation{Number: 3, Mark: 1}, ident.Generation{Number: 2, Mark: 5}, "", "b"},     // the number goes first
	{ident.FirstGeneration, ident.Generation{Number: 2, Mark: 5}, "b", ""},                    // who waits proves nothing
	{ident.Generation{Number: 3, Mark: 1}, ident.Generation{Number: 2, Mark: 5}, "b", "b"},    // it waits for what is over
	{ident.Generation{Number: 2, Mark: 5}, ident.Generation{Number: 2, Mark: 5}, "b", "both"}, // one line: a session
}

// Nodes of different generations hold no session; the one that goes by the earlier is told, by whichever of them dials, and the other logs it.
func TestGenerationsHoldNoSession(t *testing.T) {
	for _, x := range lines {
		t.Run(fmt.Sprint(x.a, x.b, x.waits), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				all := w.peers("a", "b")
				a := w.nodeWith(Options{Generation: x.a, Waits: func() bool { return x.waits == "a" }}, "a", 1, all...)
				b := w.nodeWith(Options{Generation: x.b, Waits: func() bool { return x.waits == "b" }}, "b", 1, all...)
				defer stopAll(a, b)
				settle(3 * time.Second)
				if x.left == "both" {
					wantUp(t, a, "b")
					return
				}
				for _, n := range []*node{a, b} {
					if n.count("up") > 0 {
						t.Errorf("%s has a session: %v", n.self.Node, n.lines())
					}
					if told := n.toldOf(); (len(told) > 0) != (n.self.Node == x.left) {
						t.Errorf("%s was told %v", n.self.Node, told)
					}
					if n.clue.find("WARN mesh.denied", "the catalog was recovered without") == "" {
						t.Errorf("%s says nothing of it: %q", n.self.Node, n.clue.all)
					}
				}
			})
		})
	}
}

// Also one that is no member any more where the catalog was recovered is told that it was left behind, and not only that it is no member.
func TestAStrangerIsToldThatItWasLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.nodeWith(Options{Generation: ident.Generation{Number: 2, Mark: 5}}, "a", 1)
		b := w.node("b", 1, w.peers("a")...)
		defer stopAll(a, b)
		settle(3 * time.Second)
		if told := b.toldOf(); len(told) == 0 || !strings.HasPrefix(told[0], "a 2 (") {
			t.Errorf("it was told %v", told)
		}
	})
}

// The network of a simulation keeps the same rule.
func TestVirtualGenerations(t *testing.T) {
	for _, x := range lines {
		sim := exec.NewSim(1)
		v := NewVirtual(sim)
		told := map[string]*recorder{}
		for i, name := range []string{"a", "b"} {
			g := []ident.Generation{x.a, x.b}[i]
			if g.IsZero() {
				g = ident.FirstGeneration
			}
			local := ident.Instance{Node: name, Store: ident.StoreID{byte(i + 1)}, Boot: 1}
			e := v.EndOf(local, g, func() bool { return x.waits == name })
			e.SetPeers([]Peer{{Node: "a", Store: ident.StoreID{1}}, {Node: "b", Store: ident.StoreID{2}}})
			told[name] = newRecorder(t)
			e.Start(told[name])
		}
		sim.RunFor(3 * time.Second)
		for name, r := range told {
			if (len(r.toldOf()) > 0) != (name == x.left) || (v.Sessions() > 0) != (x.left == "both") {
				t.Errorf("%v and %v: %s was told %v, %d sessions", x.a, x.b, name, r.toldOf(), v.Sessions())
			}
		}
	}
}
