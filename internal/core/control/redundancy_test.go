package control

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// TestWhatBecomesOfALostCopyIsSaid: a place that is kept while copies enough are left needs nobody; where one copy less would stop confirms it
// does, and what would end it, and when, is said.
func TestWhatBecomesOfALostCopyIsSaid(t *testing.T) {
	const since, now = 1_000_000, 1_060_000
	five := []string{"a", "b", "c", "d", "e"}
	lost := func(node string) func(w *world) {
		return func(w *world) { w.do(catalog.NoteAbsent(node, ident.StoreID{node[0]}, 1, since)) }
	}
	for _, c := range []struct {
		name    string
		nodes   []string
		copies  []string // the first owns
		dead    string
		do      []func(w *world)
		want    string
		needing int
	}{
		{
			"kept, and copies enough are left", five, five, "c",
			[]func(*world){lost("c")},
			"hold-running | without c | copies enough are left, and the place of who is away is kept: q |  | c is back, or a node joins that can take its place; the place is kept for another 4m0s | tanist node list", 0,
		},
		{
			"nobody has said yet that it is away", five, five, "c", nil,
			"under-replicated | without c | copies are missing: q | missing quorum | c is back | tanist status q", 1,
		},
		{
			"its hold is over", five, five, "c",
			[]func(*world){func(w *world) { w.do(catalog.PutSetting(catalog.FollowerLossHold, "30s", 0)) }, lost("c")},
			"under-replicated | without c | copies are missing: q | missing quorum | c is back, or a node joins that can take its place | tanist status q", 1,
		},
		{
			"kept, and the last to spare", five, five[:3], "c",
			[]func(*world){lost("c")},
			"quorum-critical | without c | if one more copy goes, nothing can be confirmed: q | missing quorum | c is back, or another node has learned in its place; the place is kept for another 4m0s | tanist status q", 1,
		},
		{
			"another learns", five[:4], five[:3], "c",
			[]func(*world){lost("c"), func(w *world) {
				w.do(catalog.PutSetting(catalog.FollowerLossHold, "0", 0), catalog.AddLearner(checked, 1, catalog.Member{Node: "d", Store: ident.StoreID{'d'}}),
					catalog.MarkLeaving(checked, 2, []catalog.Member{{Node: "c", Store: ident.StoreID{'c'}}}))
			}},
			"quorum-critical | without c | if one more copy goes, nothing can be confirmed: q | missing quorum | c is back, or d has learned in its place, which it does now | tanist status q", 1,
		},
		{
			"who is to learn is away", five[:4], five[:2], "c",
			[]func(*world){func(w *world) {
				w.do(catalog.AddLearner(checked, 1, catalog.Member{Node: "c", Store: ident.StoreID{'c'}}))
			}},
			"under-replicated | 2 of 3 copies | fewer copies than were asked for, and who is to learn is away: q | resource pressure | c is back, or another node has learned in its place | tanist node list", 1,
		},
		{
			"no node for all that were asked for", five[:3], five[:2], "c",
			[]func(*world){lost("c")},
			"under-replicated | 2 of 3 copies | fewer copies than were asked for: q | resource pressure | a node that is not away, full or draining can take another, or fewer are asked for (tanist policy) | tanist node list", 1,
		},
	} {
		w := newWorld(t, c.nodes...)
		w.declare("q", uint32(max(3, len(c.copies))), c.copies[0], c.copies[1:]...)
		for _, do := range c.do {
			do(w)
		}
		k := Known{Now: now, View: w.s.View()}
		for _, n := range c.nodes {
			k.Nodes = append(k.Nodes, NodeState{Node: n, Live: n != c.dead})
		}
		got, total, needing := Attention(k, nil)
		if text := strings.Join(said(got), "\n"); text != c.want || needing != c.needing || total != 1 {
			t.Errorf("%s: %d of %d need somebody\n%s\nwant %d\n%s", c.name, needing, total, text, c.needing, c.want)
		}
	}
}
