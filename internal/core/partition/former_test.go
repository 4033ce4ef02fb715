package partition

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func TestWhenAFormerCopyGoes(t *testing.T) {
	const s = time.Second
	type look struct {
		rests     bool
		now, hold time.Duration
		drop      bool
		wait      time.Duration
	}
	for what, looks := range map[string][]look{
		"the hold":                        {{true, 7 * s, 60 * s, false, 60 * s}, {true, 66 * s, 60 * s, false, s}, {true, 67 * s, 60 * s, true, 0}},
		"no hold: ten seconds":            {{true, 0, 0, false, 10 * s}, {true, 10*s - 1, 0, false, 1}, {true, 10 * s, 0, true, 0}},
		"a short hold: ten seconds":       {{true, 1, s, false, 10 * s}, {true, 10*s + 1, s, true, 0}},
		"looked at late":                  {{true, 5 * s, 60 * s, false, 60 * s}, {true, time.Hour, 60 * s, true, 0}},
		"it has a place":                  {{false, 0, 0, false, 0}, {false, time.Hour, 0, false, 0}},
		"in between it had a place":       {{true, 0, 60 * s, false, 60 * s}, {false, 59 * s, 60 * s, false, 0}, {true, 61 * s, 60 * s, false, 60 * s}},
		"the hold is made longer":         {{true, 0, 20 * s, false, 20 * s}, {true, 20 * s, 60 * s, false, 40 * s}, {true, 60 * s, 60 * s, true, 0}},
		"the hold is made shorter":        {{true, 0, 60 * s, false, 60 * s}, {true, 15 * s, 20 * s, false, 5 * s}},
		"the hold is made much shorter":   {{true, 0, 60 * s, false, 60 * s}, {true, 15 * s, 0, true, 0}},
		"the hold is longer than a clock": {{true, s, 1<<63 - 1, false, 1<<63 - 1}},
	} {
		var f Former
		for i, l := range looks {
			if drop, wait := f.Look(l.rests, l.now, l.hold, FormerHold); drop != l.drop || wait != l.wait || f.Waits() != l.rests {
				t.Errorf("%s: look %d: drop %v, wait %v; want %v, %v", what, i, drop, wait, l.drop, l.wait)
			}
		}
	}
}

func TestWhatACopyThatRestsIs(t *testing.T) {
	me, other := ident.StoreID{1}, ident.StoreID{2}
	for _, c := range []struct {
		what string
		a    func(*catalog.Assignment)
		c    func(*Copy)
		want bool
	}{
		{"unnamed", nil, nil, true},
		{"the owner's", func(a *catalog.Assignment) { a.Owner.Store = me }, nil, false},
		{"a follower", func(a *catalog.Assignment) { a.Followers = append(a.Followers, catalog.Member{Node: "m", Store: me}) }, nil, false},
		{"a learner", func(a *catalog.Assignment) { a.Learners = []catalog.Member{{Node: "m", Store: me}} }, nil, false},
		{"leaving", func(a *catalog.Assignment) {
			a.Followers = append(a.Followers, catalog.Member{Node: "m", Store: me})
			a.Leaving = []catalog.Member{{Node: "m", Store: me}}
		}, nil, false},
		{"a transition is pending", func(a *catalog.Assignment) { a.Pending = &catalog.Pending{} }, nil, false},
		{"no owner was ever chosen", func(a *catalog.Assignment) { a.Epoch = 0 }, nil, false},
		{"damaged", nil, func(c *Copy) { c.damaged = "checksum" }, false},
		{"it has promised more", nil, func(c *Copy) { c.promise = 4 }, false},
		{"it is about to promise more", nil, func(c *Copy) { c.vow = 4 }, false},
		{"it is asked to promise more", nil, func(c *Copy) { c.sealing = 4 }, false},
		{"it has promised what was chosen", nil, func(c *Copy) { c.promise, c.vow = 3, 3 }, true},
		{"it had begun to take an image", nil, func(c *Copy) { c.importing = true }, true},
	} {
		a := catalog.Assignment{
			Epoch: 3, Owner: ident.Instance{Node: "o", Store: other}, Followers: []catalog.Member{{Node: "m", Store: other}},
		}
		copy := Copy{role: Follower, epoch: 3}
		if c.a != nil {
			c.a(&a)
		}
		if c.c != nil {
			c.c(&copy)
		}
		if got := copy.Rests(&a, me); got != c.want {
			t.Errorf("%s: rests %v", c.what, got)
		}
	}
}

// An owner knows nothing any more of a copy that has left, neither how far it came nor that it lost something.
func TestAnOwnerForgetsWhoLeft(t *testing.T) {
	stays, left, doubted := ident.StoreID{1}, ident.StoreID{2}, ident.StoreID{3}
	c := Copy{role: Owner, epoch: 3}
	c.tail.Position = 9
	var fx Effects
	for _, s := range []ident.StoreID{stays, left, doubted} {
		c.Progressed(s, 3, 9, &fx)
	}
	if c.Returned(doubted, 3, 4) || c.Returned(doubted, 3, 9) {
		t.Fatal("it lost what it had synced, and counts")
	}
	c.Keep(func(s ident.StoreID) bool { return s == stays })
	if p := c.Progress(); len(p) != 1 || p[0].Store != stays {
		t.Errorf("progress %+v", p)
	}
	if c.Returned(stays, 3, 0) {
		t.Error("one that stays may come back with less")
	}
	for _, s := range []ident.StoreID{left, doubted} {
		if !c.Returned(s, 3, 0) {
			t.Errorf("%v is held to what it said before it left", s)
		}
	}
}
