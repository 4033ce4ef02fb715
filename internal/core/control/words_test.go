package control

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

type suspected struct{ s Suspicion }

func (s suspected) Suspect(ident.Instance) (Suspicion, bool) { return s.s, s.s.Node.Node != "" }

// gone says that every store was replaced.
type gone struct{}

func (gone) Node(string) *catalog.Node { return nil }

func (gone) Removed(s ident.StoreID) *catalog.Removed { return &catalog.Removed{Store: s} }

// TestEveryCauseHasItsWord asks CauseOf itself for its texts, so that neither changes without the other.
func TestEveryCauseHasItsWord(t *testing.T) {
	view := func(boot uint64, store byte) *catalog.View {
		w := &world{t: t, s: catalog.New()}
		w.do(catalog.CreateVHost("/"), catalog.RegisterBoot(catalog.Node{Name: "a", Store: ident.StoreID{store}, Boot: boot}))
		return w.s.View()
	}
	a := &catalog.Assignment{Partition: ident.Partition{Incarnation: 1}, Epoch: 1, Owner: instance("a", 1)}
	with := *a
	with.Followers = []catalog.Member{{Node: "b", Store: ident.StoreID{'b'}}}
	for want, r := range map[string]Reason{
		WordDamaged:   CauseOfDamage(&with, Damage{Run: a.Owner, Epoch: 1, Reason: "a word of storage's own"}),
		WordRestarted: CauseOf(a, view(2, 'a'), suspected{}, nil),
		WordReplaced:  CauseOf(a, view(1, 'x'), suspected{}, nil),
		WordPromise:   CauseOf(a, view(1, 'a'), suspected{}, []Promise{{Node: "a", Store: ident.StoreID{'a'}, Epoch: 7}}),
	} {
		if got := CauseWord(r.Text); r.Why == NoReason || got != want {
			t.Errorf("%q: %q, want %q", r.Text, got, want)
		}
	}
	for s := Rebooted; s <= Unheard; s++ {
		r := CauseOf(a, view(1, 'a'), suspected{Suspicion{Node: a.Owner, Symptom: s, By: []string{"b"}, Detail: "a word of the node's own"}}, nil)
		if got := CauseWord(r.Text); r.Why != OwnerSuspected || got != s.String() {
			t.Errorf("%q: %q, want %q", r.Text, got, s)
		}
	}
	if got := CauseWord(Cause(a, gone{})); got != WordReplaced {
		t.Errorf("%q: %q", Cause(a, gone{}), got)
	}
	if got := CauseWord("an operator moved it"); got != WordOther {
		t.Errorf("%q", got)
	}
}
