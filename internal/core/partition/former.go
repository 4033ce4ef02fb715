package partition

import (
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// FormerHold is how long, at least, a former copy keeps its data. What it said while it had a place is not on its way any more by then: no
// session outlives such a silence.
const FormerHold = 10 * time.Second

// Former is the wait of a former copy, one that its partition's assignment names no more, until its data goes (design 2 §6: its place is
// another's). The zero value waits for nothing.
type Former struct {
	since time.Duration
	waits bool
}

// Look says what becomes of the copy now: drop that its data may go, else wait how long it is until there is something new to say, 0 if only
// another assignment can change that. rests is what Rests says, now is on this run's own clock, and hold is the setting follower_loss_hold: at
// its present length, but at least least, counted from the first time that the copy rested without a break.
func (f *Former) Look(rests bool, now, hold, least time.Duration) (drop bool, wait time.Duration) {
	if !rests {
		*f = Former{}
		return false, 0
	}
	if !f.waits {
		*f = Former{since: now, waits: true}
	}
	wait = max(hold, least) - (now - f.since)
	return wait <= 0, max(wait, 0)
}

// Waits reports whether the data will go when a time has come.
func (f *Former) Waits() bool { return f.waits }

// Rests reports whether an assignment asks nothing of a copy in a store any more, and may not come to ask for what the copy knows: it names the
// store nowhere, nobody is choosing an owner, and the copy has promised nothing above the assignment's epoch. What it promised up to that epoch
// is of no use to anybody: those owners' time is over, and the node obeys no assignment that is older than one that it has applied, in no
// later run either. A damaged copy does not rest: it is evidence.
func (c *Copy) Rests(a *catalog.Assignment, store ident.StoreID) bool {
	return a.Epoch > 0 && a.Pending == nil && !a.Names(store) && c.damaged == "" && max(c.promise, c.vow, c.sealing) <= a.Epoch
}
