package partition

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// AnewMost is how often, at most, one run makes a copy anew that was damaged: what breaks again and again is not healed by copying.
const AnewMost = 3

// KeptBack says why a damaged copy is not made anew in its place from the owner's image; empty if it may be. Its data goes for that, so it may be only
// where all that was ever confirmed is with others (design 2 §10):
//
//   - An owner was chosen, by enough answers or by the last owner's own, and is another's node: it holds all that was confirmed. While one is
//     being chosen nobody knows yet whether that needs this copy, and it may have answered, in a run before, with a promise that is lost with
//     what broke: until that transition has ended it must not count for the owner of before. A transition is recorded before any copy is
//     sealed, and the node has read all that was committed before it began, so one that has not ended is seen here.
//   - Nothing that it promised is above the assignment's epoch.
//   - No operator has given up, since its last batch, what others lacked: that may be whole here.
//
// done is how often this run has made the copy anew.
func (c *Copy) KeptBack(a *catalog.Assignment, me ident.Instance, done int) string {
	role, _ := RoleOf(a, me)
	switch {
	case a.Epoch == 0 || role != Follower && role != Learner:
		return "it has no place to be made anew in"
	case a.Pending != nil:
		return "another owner is being chosen"
	case max(c.promise, c.vow, c.sealing) > a.Epoch:
		return fmt.Sprintf("it has promised epoch %d, and the catalog is at %d", max(c.promise, c.vow, c.sealing), a.Epoch)
	case done >= AnewMost:
		return fmt.Sprintf("it was made anew %d times since its node began, and broke again", done)
	}
	for _, s := range a.Starts {
		if s.Loss.Accepted && s.Epoch > c.tail.Epoch {
			return fmt.Sprintf("the loss that epoch %d began with was accepted, and it may hold what was given up", s.Epoch)
		}
	}
	return ""
}

// Anew tells that storage has durably given up what a damaged copy held: it is to be made of an image, and answers for nothing until Imported. Its
// promise stays, and what it has applied before; it has no role until one is assigned.
func (c *Copy) Anew() {
	if c.damaged == "" {
		return
	}
	c.damaged, c.importing, c.role = "", true, None
	c.tail, c.durable, c.confirmed, c.mark = batch.Tail{}, batch.Tail{}, 0, 0
	c.sets, c.progress, c.doubted = nil, nil, nil
}
