package sim

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// TestCatalogsMustAgree: two nodes that have come to the same entry say the same.
func TestCatalogsMustAgree(t *testing.T) {
	at := func(index, version uint64) *catalog.View {
		v := catalog.NewView()
		v.Apply([]catalog.Change{{Index: index, After: &catalog.Resource{
			VHost: "/", Name: "q", Incarnation: 1, Partitions: []*catalog.Assignment{{Version: version}},
		}}})
		return v
	}
	for _, c := range []struct {
		what   string
		second *catalog.View
		fails  bool
	}{
		{"the same", at(7, 1), false},
		{"another entry", at(8, 2), false},
		{"something else at the same entry", at(7, 2), true},
	} {
		w := newWorld(Options{Nodes: 3})
		h := &host{w: w, site: w.sites[0]}
		w.agrees(h, at(7, 1))
		w.agrees(h, c.second)
		if w.failed() != c.fails {
			t.Errorf("%s: %v", c.what, w.fault)
		}
	}
}

// TestWhatIsHandedOutAgainSaysSo: an owner that gives what it or an earlier one gave before says so; one that was replaced knows of none later.
func TestWhatIsHandedOutAgainSaysSo(t *testing.T) {
	type given struct {
		epoch uint64
		again bool
	}
	for _, c := range []struct {
		what  string
		gives []given
		says  string
	}{
		{"once", []given{{1, false}}, ""},
		{"by the next owner, who says so", []given{{1, false}, {2, true}}, ""},
		{"by the owner before, which knows nothing of it", []given{{2, false}, {1, false}}, ""},
		{"by the next owner", []given{{1, false}, {2, false}}, "does not say"},
		{"twice by one", []given{{1, false}, {1, false}}, "does not say"},
	} {
		w := newWorld(Options{Nodes: 3})
		by := &host{w: w, site: w.sites[0]}
		h := w.historyOf(ident.Partition{Incarnation: 1})
		own := h.in(by.site.witness)
		own.marks = []mark{{tail: batch.Tail{Position: 2, Offset: 2}}}
		for _, g := range c.gives {
			m := &mouth{e: &ear{ears: w.earsOf(h.p), h: by}, epoch: g.epoch}
			m.handsOut(h, own, protocol.Item{Offset: 1, Again: g.again})
		}
		if fails := w.failed(); fails != (c.says != "") || fails && !strings.Contains(w.fault.Error(), c.says) {
			t.Errorf("%s: %v", c.what, w.fault)
		}
	}
}
