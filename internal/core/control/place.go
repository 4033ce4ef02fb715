package control

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Site is a node as placement sees it.
type Site struct {
	ident.Instance // the registered run
	Zone           string
	Load           catalog.Load // what the catalog has placed there; a caller may add what it has asked for and not yet seen
	Live           bool
	Draining       bool
	Full           bool // by its own last word: its disk has no room, and its publishers wait
}

// open reports whether a site takes new copies.
func (s Site) open() bool { return s.Live && !s.Draining && !s.Full }

func (s Site) member() catalog.Member { return catalog.Member{Node: s.Node, Store: s.Store} }

// Sites are the registered nodes of a view, by name. live says who is.
func Sites(v *catalog.View, live func(node string) bool) []Site {
	var out []Site
	for _, n := range v.Nodes() {
		out = append(out, Site{
			Instance: ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}, Zone: n.Zone, Load: v.Load(n.Store),
			Live: live(n.Name), Draining: n.Draining,
		})
	}
	return out
}

// Place chooses where a new resource's copies go: the owner where the fewest are owned and then the fewest copies are, the followers spread over
// zones first and then where the fewest copies are, ties by a hash of key and node (design 2 §12). Of nodes that are as good, near owns, which is
// that of the client who asks: who declares a queue often uses it, and what goes through its owner's node alone goes over one connection less.
// Copies go to live nodes that are not draining, as many as there are, at most wanted. A node whose disk is full takes none while another can; where
// all others are, they do. Where all that live are draining, one of them owns, and nobody follows. ok is false if none lives. The order of sites
// does not matter.
func Place(key, near string, sites []Site, wanted int) (owner ident.Instance, followers []catalog.Member, ok bool) {
	free := slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.open() })
	if len(free) == 0 {
		free = slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.Live || s.Draining })
	}
	if len(free) == 0 {
		free, wanted = slices.DeleteFunc(slices.Clone(sites), func(s Site) bool { return !s.Live }), 1
	}
	if len(free) == 0 {
		return ident.Instance{}, nil, false
	}
	tie := byHash(key)
	chosen := slices.MinFunc(free, func(a, b Site) int {
		return cmp.Or(cmp.Compare(a.Load.Owned, b.Load.Owned), cmp.Compare(a.Load.Copies(), b.Load.Copies()), nearer(near, a.Node, b.Node),
			tie(a.Node, b.Node))
	})
	zones := map[string]int{}
	for taken := chosen; ; {
		zones[taken.Zone]++
		free = slices.DeleteFunc(free, func(s Site) bool { return s.Node == taken.Node })
		if len(free) == 0 || len(followers)+1 >= wanted {
			return chosen.Instance, followers, true
		}
		taken = best(free, zones, tie)
		followers = append(followers, taken.member())
	}
}

// best is which of some sites a further copy goes to: where the zone has the fewest of the partition's copies, then where there are the
// fewest copies of all, then where the most are owned, since those that own few are about to get more, then by tie.
func best(free []Site, zones map[string]int, tie func(a, b string) int) Site {
	return slices.MinFunc(free, func(a, b Site) int {
		return cmp.Or(cmp.Compare(zones[a.Zone], zones[b.Zone]), cmp.Compare(a.Load.Copies(), b.Load.Copies()),
			cmp.Compare(b.Load.Owned, a.Load.Owned), tie(a.Node, b.Node))
	})
}

// nearer orders one node before all others.
func nearer(node, a, b string) int {
	switch {
	case a == b:
		return 0
	case a == node:
		return -1
	case b == node:
		return 1
	}
	return 0
}

// byHash orders nodes differently for each key, so that ties spread.
func byHash(key string) func(a, b string) int {
	hash := func(node string) [sha256.Size]byte { return sha256.Sum256([]byte(key + "\x00" + node)) }
	return func(a, b string) int {
		ha, hb := hash(a), hash(b)
		return bytes.Compare(ha[:], hb[:])
	}
}
