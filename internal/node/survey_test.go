package node

import (
	"slices"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
)

// What a copy holds is asked again while it is on its way to what its owner had; where nothing is on its way, waiting cannot help.
func TestCopiesOnTheirWayAreAskedAgain(t *testing.T) {
	p := ident.Partition{Incarnation: 3}
	a := &catalog.Assignment{Partition: p, Owner: ident.Instance{Node: "a"}, Followers: []catalog.Member{{Node: "b"}, {Node: "c"}}, Learners: []catalog.Member{{Node: "d"}}}
	all := []*catalog.Resource{{Partitions: []*catalog.Assignment{a}}}
	ends := map[ident.Partition]control.End{p: {Position: 10}}
	says := func(node string, durable uint64, feeds ...string) protocol.StatusAnswer {
		s := protocol.CopyStatus{Partition: p, Durable: durable}
		for _, f := range feeds {
			s.Feeds = append(s.Feeds, protocol.FeedStatus{Node: f})
		}
		return protocol.StatusAnswer{From: ident.Instance{Node: node}, Items: []protocol.CopyStatus{s}}
	}
	for _, c := range []struct {
		what    string
		feeds   []string
		b, c, d uint64
		want    bool
	}{
		{"all are there", []string{"b", "c", "d"}, 10, 11, 10, false},
		{"one is on its way", []string{"b", "c", "d"}, 10, 9, 10, true},
		{"one takes nothing", []string{"b", "d"}, 10, 9, 10, false},
		{"a learner is far behind", []string{"b", "c", "d"}, 10, 10, 0, false},
	} {
		g := gathered{}
		g.add("a", says("a", 8, c.feeds...))
		g.add("b", says("b", c.b))
		g.add("c", says("c", c.c))
		g.add("d", says("d", c.d))
		if got := g.behind(all, ends); slices.Contains(got, p) != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}

	g, newer, older := gathered{}, gathered{}, gathered{}
	g.add("b", says("b", 5))
	newer.add("b", says("b", 9))
	newer.add("z", says("z", 9)) // was not asked before
	older.add("b", says("b", 7))
	g.update(newer)
	g.update(older)
	if got := g.copies["b"][p].Durable; got != 9 || g.copies["z"] != nil {
		t.Errorf("holds %d, %v", got, g.copies)
	}
}

func TestOnlyWhatIsSureOfAClockCounts(t *testing.T) {
	for _, c := range []struct{ wall, asked, answered, want int64 }{
		{100, 100, 100, 0}, {105, 100, 110, 0}, {3000, 100, 110, 2890}, {50, 100, 110, -50}, {110, 100, 110, 0},
	} {
		if got := ahead(c.wall, c.asked, c.answered); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
