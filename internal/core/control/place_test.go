package control

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func sitesOf(zones ...string) []Site {
	var out []Site
	for i, z := range zones {
		out = append(out, Site{Instance: instance(string(rune('a'+i)), 1), Zone: z, Live: true})
	}
	return out
}

// put counts a placement as the catalog would.
func put(sites []Site, owner ident.Instance, followers []catalog.Member) {
	for i := range sites {
		if sites[i].Instance == owner {
			sites[i].Load.Owned++
		}
		if slices.Contains(followers, sites[i].member()) {
			sites[i].Load.Followed++
		}
	}
}

func between(sites []Site, of func(catalog.Load) int) (least, most int) {
	least = math.MaxInt
	for _, s := range sites {
		least, most = min(least, of(s.Load)), max(most, of(s.Load))
	}
	return least, most
}

func TestPlacementsBalanceWithinOne(t *testing.T) {
	for nodes := 1; nodes <= 7; nodes++ {
		for copies := 1; copies <= 5; copies++ {
			sites := sitesOf(make([]string, nodes)...)
			for i := range 500 {
				near := [...]string{"", "a", "b"}[i%3] // clients of few nodes do not fill them
				owner, followers, ok := Place(fmt.Sprint("queue", i), near, sites, copies)
				if !ok || len(followers)+1 != min(copies, nodes) {
					t.Fatalf("%d copies on %d nodes: %v %v", copies, nodes, ok, followers)
				}
				put(sites, owner, followers)
				least, most := between(sites, func(l catalog.Load) int { return l.Owned })
				if most-least > 1 {
					t.Fatalf("%d copies on %d nodes: after %d from %d to %d owned", copies, nodes, i+1, least, most)
				}
				least, most = between(sites, catalog.Load.Copies)
				if most-least > 1 {
					t.Fatalf("%d copies on %d nodes: after %d from %d to %d copies", copies, nodes, i+1, least, most)
				}
			}
		}
	}
}

func TestTiesSpread(t *testing.T) {
	sites, owned := sitesOf("", "", ""), map[string]int{}
	for i := range 300 { // as many clients at once would have it, who all see the same
		owner, _, _ := Place(fmt.Sprint("queue", i), "", sites, 1)
		owned[owner.Node]++
	}
	for _, n := range []string{"a", "b", "c"} {
		if owned[n] < 60 {
			t.Errorf("ties do not spread: %v", owned)
		}
	}
}

// Of nodes that are as good, the one whose client asks owns, and no other.
func TestTiesGoToWhoeverAsks(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Site)
		owns   bool
	}{
		{"as good", func(*Site) {}, true},
		{"owns more", func(s *Site) { s.Load.Owned++ }, false},
		{"follows more", func(s *Site) { s.Load.Followed++ }, false},
		{"full", func(s *Site) { s.Full = true }, false},
		{"draining", func(s *Site) { s.Draining = true }, false},
		{"not there", func(s *Site) { s.Node = "d" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range 20 { // by hash it would own a third of them
				sites := sitesOf("", "", "")
				c.change(&sites[2])
				owner, followers, ok := Place(fmt.Sprint("queue", i), "c", sites, 2)
				if !ok || len(followers) != 1 || (owner.Node == "c") != c.owns {
					t.Errorf("%v owns, %v follow", owner.Node, followers)
				}
			}
		})
	}
}

// Against every set of copies that could have been chosen: none has its zones spread more evenly, and the owner is one that owns least.
func TestPlacementAgainstEnumeration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sites []Site
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			sites = append(sites, Site{
				Instance: instance(string(rune('a'+i)), 1), Zone: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "zone"),
				Load: catalog.Load{Owned: rapid.IntRange(0, 3).Draw(t, "owned"), Followed: rapid.IntRange(0, 3).Draw(t, "followed")},
				Live: rapid.IntRange(0, 3).Draw(t, "live") > 0, Draining: rapid.IntRange(0, 3).Draw(t, "draining") == 0,
				Full: rapid.IntRange(0, 3).Draw(t, "full") == 0,
			})
		}
		wanted := rapid.IntRange(1, 5).Draw(t, "copies")
		near := rapid.SampledFrom([]string{"", "a", "b", "z"}).Draw(t, "near")
		owner, followers, ok := Place("q", near, sites, wanted)
		shuffled := rapid.Permutation(sites).Draw(t, "order")
		if o, f, again := Place("q", near, shuffled, wanted); o != owner || !slices.Equal(f, followers) || again != ok {
			t.Fatalf("the order of nodes decides: %v %v, %v %v", owner, followers, o, f)
		}
		open := slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.Live || s.Draining || s.Full })
		if len(open) == 0 {
			open = slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.Live || s.Draining })
		}
		live := slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.Live })
		if len(open) == 0 {
			if ok != (len(live) > 0) || len(followers) > 0 {
				t.Fatalf("of %v: %v %v %v", sites, owner, followers, ok)
			}
			return
		}
		chosen := []string{owner.Node}
		for _, f := range followers {
			chosen = append(chosen, f.Node)
		}
		for _, n := range chosen {
			if !slices.ContainsFunc(open, func(s Site) bool { return s.Node == n }) {
				t.Fatalf("%s is not open", n)
			}
		}
		least, _ := between(open, func(l catalog.Load) int { return l.Owned })
		i := slices.IndexFunc(sites, func(s Site) bool { return s.Instance == owner })
		if sites[i].Load.Owned != least || len(chosen) != min(wanted, len(open)) {
			t.Fatalf("%v of %v, wanted %d", chosen, sites, wanted)
		}
		crowd := func(names []string) (most int) {
			in := map[string]int{}
			for _, s := range open {
				if slices.Contains(names, s.Node) {
					in[s.Zone]++
					most = max(most, in[s.Zone])
				}
			}
			return most
		}
		for bits := range 1 << len(open) {
			var names []string
			for i, s := range open {
				if bits&(1<<i) != 0 {
					names = append(names, s.Node)
				}
			}
			if len(names) == len(chosen) && crowd(names) < crowd(chosen) {
				t.Fatalf("%v has fewer in one zone than %v", names, chosen)
			}
		}
	})
}
