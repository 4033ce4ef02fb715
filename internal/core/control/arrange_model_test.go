package control

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// chaos is a cluster to which everything happens in any order. The controller is another at every turn: nothing is remembered but the
// catalog.
type chaos struct {
	*world
	t     *rapid.T
	nodes []string
	next  byte
	dead  []string
}

func (c *chaos) event() {
	v := c.s.View()
	node := v.Node(rapid.SampledFrom(c.nodes).Draw(c.t, "node"))
	run := func() string { return fmt.Sprintf("%s/%d", node.Name, node.Store[0]) }
	switch rapid.SampledFrom([]string{"die", "missed", "back", "drain", "undrain", "replace", "join", "wish", "time", "hold"}).Draw(c.t, "event") {
	case "die":
		if len(c.dead) < 2 && !slices.Contains(c.dead, node.Name) {
			c.dead = append(c.dead, node.Name)
		}
	case "missed":
		if slices.Contains(c.dead, node.Name) {
			c.happens([]string{"away", run()})
		}
	case "back":
		c.dead = slices.DeleteFunc(c.dead, func(n string) bool { return n == node.Name })
		c.happens([]string{"back", run()})
	case "drain", "undrain":
		c.do(catalog.DrainNode(node.Name, node.Store, rapid.Bool().Draw(c.t, "draining")))
	case "replace":
		owns := v.Load(node.Store).Owned > 0
		if !owns { // its partitions would need another owner first
			c.next++
			c.happens([]string{"replace", fmt.Sprintf("%s/%d", node.Name, c.next)})
		}
	case "join":
		if len(c.nodes) < 6 {
			c.next++
			name := fmt.Sprint("n", c.next)
			c.nodes = append(c.nodes, name)
			c.happens([]string{"join", name, "zone=" + rapid.SampledFrom([]string{"x", "y"}).Draw(c.t, "zone")})
		}
	case "wish":
		r := rapid.SampledFrom(v.AllResources()).Draw(c.t, "resource")
		c.happens([]string{"wish", r.Name, fmt.Sprint("copies=", rapid.IntRange(1, 4).Draw(c.t, "copies"))})
	case "time":
		c.now += int64(rapid.IntRange(1, 400).Draw(c.t, "seconds")) * 1000
	case "hold":
		c.happens([]string{"set", "follower_loss_hold", "to=" + rapid.SampledFrom([]string{"0", "5s", "5m"}).Draw(c.t, "hold")})
	}
}

// turn plans, checks the plan against what it may do, and does a part of it: a controller may be lost in between.
func (c *chaos) turn(whole bool) (any bool) {
	x := c.plan(3, c.dead...)
	v := c.s.View()
	learning := 0
	for _, r := range v.AllResources() {
		if len(r.Partitions[0].Learners) > 0 {
			learning++
		}
	}
	for _, s := range x.Steps {
		a, r := v.Assignment(s.Partition)
		switch s.Kind {
		case Learn:
			n := v.Node(s.Member.Node)
			if slices.Contains(c.dead, n.Name) || n.Draining {
				c.t.Fatalf("%s is to learn on %s", r.Name, n.Name)
			}
			if len(a.Learners) == 0 {
				learning++
			}
		case Mark:
			held := HoldsOf(v, a, r.Kind, c.now)
			unexplained := 0
			for _, m := range s.Leaving {
				i := slices.IndexFunc(held, func(h Held) bool { return h.Member == m })
				switch {
				case i < 0 && !v.Tunables().Rebalance, i >= 0 && held[i].Fate == Kept && !slices.Contains(a.Leaving, m):
					unexplained++
				}
			}
			if unexplained > max(0, a.Eligible()-r.Target()) {
				c.t.Fatalf("%s: %+v leave, held %+v, %d of %d copies", r.Name, s.Leaving, held, a.Eligible(), r.Target())
			}
		case GiveUp:
		}
	}
	if learning > 3 {
		c.t.Fatalf("%d partitions learn at a time: %+v", learning, x.Steps)
	}
	if x.Next != 0 && x.Next <= c.now {
		c.t.Fatalf("again at %d, now %d", x.Next, c.now)
	}
	n := len(x.Steps)
	if !whole {
		n = rapid.IntRange(0, n).Draw(c.t, "steps")
	}
	for _, s := range x.Steps[:n] {
		c.do(s.Item())
	}
	return n > 0
}

// TestArrangingComesToRest has everything happen to a cluster in any order, with controllers lost between any two steps, and then everything
// heal: every partition has its copies, on nodes and stores that are there, nothing is left under way, and nothing goes round in circles.
func TestArrangingComesToRest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &chaos{world: newWorld(t), t: rt, next: 3, nodes: []string{"n1", "n2", "n3"}}
		for _, n := range c.nodes {
			c.happens([]string{"join", n, "zone=" + rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "zone")})
		}
		for i := range rapid.IntRange(1, 8).Draw(rt, "resources") {
			owner := rapid.IntRange(1, 3).Draw(rt, "owner")
			c.happens([]string{"declare", fmt.Sprint("q", i), fmt.Sprint("owner=n", owner), fmt.Sprint("followers=n", owner%3+1)})
		}
		if rapid.Bool().Draw(rt, "balance off") {
			c.happens([]string{"set", "rebalance", "to=off"})
		}
		for range rapid.IntRange(0, 60).Draw(rt, "events") {
			switch rapid.IntRange(0, 3).Draw(rt, "who") {
			case 0:
				c.turn(false)
			case 1:
				c.turn(true)
			case 2:
				c.carryOut()
			default:
				c.event()
			}
		}
		c.heal()
	})
}

func (c *chaos) heal() {
	c.dead = nil
	for _, n := range c.s.View().Nodes() {
		c.do(catalog.NoteAbsent(n.Name, n.Store, n.Boot, 0), catalog.DrainNode(n.Name, n.Store, false))
	}
	for round := 0; ; round++ {
		planned := c.turn(true)
		if did := c.carryOut(); !planned && !did {
			break
		}
		if round > 200 {
			c.t.Fatalf("it goes round in circles:\n%s", c.text())
		}
	}
	for _, r := range c.s.View().AllResources() {
		a := r.Partitions[0]
		if want := min(r.Target(), len(c.nodes)); a.Eligible() != want || len(a.Learners)+len(a.Leaving) > 0 {
			c.t.Fatalf("%s is to have %d copies:\n%s", r.Name, want, c.text())
		}
		for _, m := range a.Followers {
			if n := c.s.View().Node(m.Node); n.Store != m.Store {
				c.t.Fatalf("%s counts a copy on a store that is gone:\n%s", r.Name, c.text())
			}
		}
	}
	if c.s.View().Tunables().Rebalance {
		c.balanced()
	}
}

// balanced checks that no follower's copy alone could move and make its nodes more alike.
func (c *chaos) balanced() {
	v := c.s.View()
	for _, r := range v.AllResources() {
		a := r.Partitions[0]
		zones := map[string]int{}
		for _, m := range asked(a) {
			zones[v.Node(m.Node).Zone]++
		}
		for _, m := range a.Followers {
			from := v.Node(m.Node)
			for _, to := range v.Nodes() {
				more := v.Load(from.Store).Copies() - v.Load(to.Store).Copies()
				if !a.Names(to.Store) && more >= 2 && (from.Zone == to.Zone || zones[to.Zone] < zones[from.Zone]) {
					c.t.Fatalf("%s could move from %s to %s, which has %d fewer:\n%s", r.Name, from.Name, to.Name, more, c.text())
				}
			}
		}
	}
}

// However a partition is placed, planning its copies depends on the catalog alone, not on the order of sites.
func TestArrangingDoesNotDependOnTheOrderOfSites(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		for n := 1; n <= 5; n++ {
			w.happens([]string{"join", fmt.Sprint("n", n), "zone=" + rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "zone")})
		}
		for i := range 4 {
			w.happens([]string{"declare", fmt.Sprint("q", i), fmt.Sprint("owner=n", i%2+1), "followers=n3"})
		}
		w.do(catalog.NoteAbsent("n3", ident.StoreID{3}, 1, 1))
		w.now = 1_000_000
		sites := Sites(w.s.View(), func(n string) bool { return n != "n3" })
		want := Arrange(w.s.View(), sites, w.now, 16)
		got := Arrange(w.s.View(), rapid.Permutation(sites).Draw(rt, "sites"), w.now, 16)
		if fmt.Sprint(want) != fmt.Sprint(got) {
			rt.Fatalf("%v\n%v", want, got)
		}
	})
}
