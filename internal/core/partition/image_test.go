package partition

import (
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
)

// An image ends with what its owner had not confirmed. Completed while its copy takes up a later epoch, or after, it is cut to where that began.
func TestAnImageThatIsCompleteInALaterEpochIsCut(t *testing.T) {
	starts := []catalog.HistoryStart{{Epoch: 1}, {Epoch: 2, Position: 70}}
	for _, when := range []string{"as it promises", "as its role is saved", "after"} {
		var fx Effects
		saved := func(want EffectKind) {
			t.Helper()
			if len(fx) != 1 || fx[0].Kind != want {
				t.Fatalf("%s: %+v, want one of kind %d", when, fx, want)
			}
			fx = fx[:0]
		}
		c := Open(Image{Promise: 1, Role: Follower, RoleEpoch: 1, Tail: batch.Tail{Position: 10, Epoch: 1}})
		c.Assign(Assignment{Epoch: 1, Role: Follower, Starts: starts[:1]}, &fx)
		saved(SaveRole)
		c.Saved(&fx)
		saved(Assumed)
		if !c.Discard(10) {
			t.Fatal("it takes no image")
		}
		imported := func(at string) {
			if at == when {
				c.Imported(Image{Tail: batch.Tail{Position: 90, Epoch: 1}}, starts, &fx)
			}
		}
		c.Assign(Assignment{Epoch: 2, Role: Follower, Starts: starts}, &fx)
		saved(SavePromise)
		imported("as it promises")
		c.Saved(&fx)
		if when != "as it promises" {
			saved(SaveRole)
			imported("as its role is saved")
			c.Saved(&fx)
		}
		if when == "after" {
			saved(Assumed)
			imported("after")
		}
		if cut := fx[0].Cut; cut.Position != 70 || !c.Applying() {
			t.Errorf("%s: cut to %+v", when, cut)
		}
		saved(FindTail)
		c.TailFound(batch.Tail{Position: 70, Epoch: 1}, &fx)
		saved(DropEnd)
		c.Saved(&fx)
		saved(SaveRole)
		c.Saved(&fx)
		saved(Assumed)
		if c.Tail().Position != 70 || c.Epoch() != 2 || c.Role() != Follower || c.Applying() {
			t.Errorf("%s: %s of epoch %d, at %d", when, c.Role(), c.Epoch(), c.Tail().Position)
		}
	}
}
