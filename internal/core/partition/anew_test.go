package partition

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Each reason not to make a damaged copy anew, alone.
func TestWhatKeepsADamagedCopyBack(t *testing.T) {
	me := ident.Instance{Node: "b", Store: ident.StoreID{2}, Boot: 7}
	of := func(change func(*catalog.Assignment)) *catalog.Assignment {
		a := &catalog.Assignment{
			Epoch: 5, Owner: ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 3}, Followers: []catalog.Member{{Node: "b", Store: ident.StoreID{2}}},
			Starts: []catalog.HistoryStart{{Epoch: 4}, {Epoch: 5, Position: 90}},
		}
		change(a)
		return a
	}
	as := func(*catalog.Assignment) {}
	for name, x := range map[string]struct {
		image Image
		a     *catalog.Assignment
		done  int
		want  string
	}{
		"nothing":                        {Image{Promise: 5}, of(as), 2, ""},
		"a learner":                      {Image{}, of(func(a *catalog.Assignment) { a.Learners, a.Followers = a.Followers, nil }), 0, ""},
		"it owns":                        {Image{}, of(func(a *catalog.Assignment) { a.Owner = me }), 0, "no place"},
		"an earlier run of it owned":     {Image{}, of(func(a *catalog.Assignment) { a.Owner = ident.Instance{Node: "b", Store: me.Store, Boot: 6} }), 0, "no place"},
		"another store has its place":    {Image{}, of(func(a *catalog.Assignment) { a.Followers[0].Store[0] = 9 }), 0, "no place"},
		"nobody owns yet":                {Image{}, of(func(a *catalog.Assignment) { a.Epoch = 0 }), 0, "no place"},
		"an owner is being chosen":       {Image{}, of(func(a *catalog.Assignment) { a.Pending = &catalog.Pending{Epoch: 6} }), 0, "being chosen"},
		"a promise above the catalog":    {Image{Promise: 6}, of(as), 0, "promised epoch 6"},
		"too often":                      {Image{}, of(as), AnewMost, "again"},
		"a loss accepted since":          {Image{Tail: batch.Tail{Position: 95, Epoch: 4}}, of(func(a *catalog.Assignment) { a.Starts[1].Loss.Accepted = true }), 0, "given up"},
		"a loss accepted before its end": {Image{Tail: batch.Tail{Position: 95, Epoch: 5}}, of(func(a *catalog.Assignment) { a.Starts[1].Loss.Accepted = true }), 0, ""},
	} {
		x.image.Damaged = "checksum"
		c := Open(x.image)
		if got := c.KeptBack(x.a, me, x.done); (got == "") != (x.want == "") || !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, want %q", name, got, x.want)
		}
	}
}

// A copy that is made anew obeys nobody below its promise, answers no seal and is no owner until it has its image; then it is as any follower.
func TestADamagedCopyGoesOnWithItsPromise(t *testing.T) {
	var fx Effects
	c := Open(Image{Promise: 4, Role: Owner, RoleEpoch: 4, Tail: batch.Tail{Position: 95, Epoch: 4}, Damaged: "checksum"})
	c.Anew()
	if c.Role() != None || !c.Importing() || c.Damaged() != "" || c.Promise() != 4 || c.Tail().Position != 0 || c.Confirmed() != 0 {
		t.Fatalf("%+v", c)
	}
	if c.Seal(6, &fx) == nil {
		t.Error("it answers a seal with nothing")
	}
	c.Assign(Assignment{Epoch: 3, Role: Follower}, &fx)
	c.Assign(Assignment{Epoch: 6, Role: Owner}, &fx)
	if len(fx) != 2 || fx[0].Kind != Refused || fx[1].Kind != Refused {
		t.Fatalf("an epoch below its promise, and to own: %+v", fx)
	}
	fx = nil
	starts := []catalog.HistoryStart{{Epoch: 4}, {Epoch: 5, Position: 90}}
	c.Assign(Assignment{Epoch: 5, Role: Follower, Starts: starts}, &fx)
	for _, want := range []EffectKind{SavePromise, SaveRole, Assumed} {
		if len(fx) != 1 || fx[0].Kind != want {
			t.Fatalf("%+v, want one of kind %d", fx, want)
		}
		fx = nil
		c.Saved(&fx)
	}
	c.Imported(Image{Tail: batch.Tail{Position: 97, Epoch: 5}}, starts, &fx)
	if len(fx) != 0 || c.Tail().Position != 97 || c.Importing() {
		t.Fatalf("%+v, %+v", fx, c)
	}
	if err := c.Seal(6, &fx); err != nil {
		t.Error(err)
	}
}
