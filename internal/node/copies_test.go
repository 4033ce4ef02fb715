package node

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func TestChangesOfCopiesAreTold(t *testing.T) {
	of := func(names ...string) (out []catalog.Member) {
		for _, n := range names {
			out = append(out, catalog.Member{Node: n, Store: ident.StoreID{n[0]}})
		}
		return out
	}
	again := catalog.Member{Node: "c", Store: ident.StoreID{9}}
	before := catalog.Assignment{Version: 4, Followers: of("b", "c"), Learners: of("d"), Leaving: of("c"), Policy: "majority_durable"}
	for want, change := range map[string]func(a *catalog.Assignment){
		"":                             func(a *catalog.Assignment) { a.Version, a.Pending = 5, &catalog.Pending{ID: "x"} },
		"d follows, c follows no more": func(a *catalog.Assignment) { a.Followers, a.Learners, a.Leaving = of("b", "d"), nil, nil },
		"c stays, d learns no more":    func(a *catalog.Assignment) { a.Learners, a.Leaving = nil, nil },
		"c learns":                     func(a *catalog.Assignment) { a.Learners = append(of("d"), again) },
		"c follows, c follows no more": func(a *catalog.Assignment) { a.Followers, a.Leaving = append(of("b"), again), nil },
		"b is to leave":                func(a *catalog.Assignment) { a.Leaving = of("c", "b") },
		"the policy is all_durable":    func(a *catalog.Assignment) { a.Policy = "all_durable" },
	} {
		after := before
		change(&after)
		if got := copiesChanged(&before, &after); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
