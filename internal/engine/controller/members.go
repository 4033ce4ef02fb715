package controller

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trace"
)

const (
	// careAfter gathers what happens before partitions and members are gone through again.
	careAfter = 100 * time.Millisecond
	// careAgain is how long a step that was refused, or whose outcome is not known, is left alone.
	careAgain = time.Second
	// careAtLeast is how often everything is gone through while a hold runs.
	careAtLeast = time.Minute
	// learnAtOnce bounds the partitions that get another copy at a time: what each costs its owner is an image of all it holds.
	learnAtOnce = 16
)

// Members is the membership of the catalog's consensus.
type Members struct {
	Self             uint64
	Voters, Learners []uint64
	Ready            []uint64 // learners that have caught up
}

// care is the controller's work on what is missing without anything being lost: copies of partitions, and voters.
type care struct {
	timer  bool
	voting bool          // a change of members is under way
	seatAt time.Duration // when a timer has another look taken at who should vote; 0: none runs
	// holds is when time alone changes what is to be done about copies, in milliseconds since 1970, and cancel ends the timer for it; 0: none.
	holds  int64
	cancel func() bool
	full   map[string]bool // nodes whose disks have no room, by their last word
}

type (
	caring  struct{}
	seating struct{ at time.Duration }
	// holdOver is a time at which careFor was to be called.
	holdOver struct{}
	voters   struct{ m Members }
	voted    struct {
		change control.VoterChange
		err    error
	}
)

// careSoon has everything gone through soon.
func (c *Controller) careSoon(after time.Duration) {
	if !c.care.timer {
		c.care.timer = true
		c.box.After(after, caring{})
	}
}

// noteFull has copies arranged anew where a node's disk has no room any more, or has room again.
func (c *Controller) noteFull(b control.Beat) {
	if b.Full() == c.care.full[b.From.Node] {
		return
	}
	if c.care.full == nil {
		c.care.full = map[string]bool{}
	}
	if c.care.full[b.From.Node] = true; !b.Full() {
		delete(c.care.full, b.From.Node)
	}
	c.careSoon(careAfter)
}

// sites are the nodes as placement sees them.
func (c *Controller) sites(v *catalog.View) []control.Site {
	sites := control.Sites(v, func(node string) bool {
		n := v.Node(node)
		if n == nil {
			return false
		}
		run := ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}
		if _, sick := c.watch.detector.Suspect(run); sick {
			return false
		}
		return node == c.env.Local.Node || c.peers[node] == run
	})
	for i := range sites {
		sites[i].Full = c.care.full[sites[i].Node]
	}
	return sites
}

// careFor sees to it that there are as many copies as are wanted, on nodes that are there, and asks for the consensus' members, to do the
// same there.
func (c *Controller) careFor() {
	if !c.leading {
		return
	}
	var plan control.Arrangement
	now := c.env.Clock.Wall().UnixMilli()
	c.env.View(func(v *catalog.View) {
		sites := c.sites(v)
		if len(sites) > 1 {
			plan = control.Arrange(v, sites, now, learnAtOnce)
		}
	})
	c.careAt(plan.Next, now)
	var items []catalog.Item
	for _, s := range plan.Steps {
		items = append(items, s.Item())
		c.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "copy.planned", Attrs: []slog.Attr{
			slog.String("partition", s.Partition.String()), slog.String("step", s.String()),
		}})
	}
	cmds, err := catalog.Chunks(items)
	if err != nil {
		trace.Error(c.env.Trace, "copy.plan", slog.String("error", err.Error()))
	}
	for _, cmd := range cmds {
		c.propose(cmd, func(err error) {
			if err != nil {
				c.box.Post(func() { c.careSoon(careAgain) })
			}
		})
	}
	c.askVoters()
}

// careAt has everything gone through again at a time, when a hold ends; 0: time alone changes nothing.
func (c *Controller) careAt(at, now int64) {
	if c.care.holds == at {
		return
	}
	if c.care.holds != 0 {
		c.care.cancel()
	}
	if c.care.holds = at; at != 0 {
		wait := min(time.Duration(at-now)*time.Millisecond, careAtLeast) // a hold ends by the wall clock, which may be set
		c.care.cancel = c.box.After(wait, holdOver{})
	}
}

// askVoters asks who votes on the catalog, to see whether others should.
func (c *Controller) askVoters() {
	if c.leading && c.env.Voters != nil && !c.care.voting {
		c.env.Voters(func(m Members) { c.box.Post(voters{m}) })
	}
}

// vote makes the next change of the consensus' members, if one is due.
func (c *Controller) vote(m Members) {
	if !c.leading || c.care.voting {
		return
	}
	var change control.VoterChange
	behind, due := false, int64(0)
	now := c.env.Clock.Wall().UnixMilli()
	c.env.View(func(v *catalog.View) {
		var seats []control.Seat
		after := v.Tunables().VoterReplaceAfter
		for _, s := range c.sites(v) {
			id := c.env.SeatOf(s.Store)
			learns := !slices.Contains(m.Voters, id) && !slices.Contains(m.Ready, id)
			behind = behind || learns && s.Live
			gone, at := false, int64(0)
			if n := v.Node(s.Node); !s.Live && n != nil {
				gone, at = control.VoterGone(n.Absent, now, after)
			}
			if at > now && (due == 0 || at < due) {
				due = at
			}
			seats = append(seats, control.Seat{ID: id, Zone: s.Zone, Live: s.Live && !learns, Draining: s.Draining, Gone: gone})
		}
		change = control.Voters(m.Self, seats, m.Voters, m.Learners)
	})
	if change.Move == control.NoMove {
		if behind { // a vote may be due once it has caught up: nobody says when
			c.seatIn(careAfter)
		} else if due > 0 {
			c.seatIn(time.Duration(due-now) * time.Millisecond)
		}
		return
	}
	c.care.voting = true
	c.env.ChangeVoters(change, func(err error) { c.box.Post(voted{change, err}) })
}

// seatIn has another look taken at who should vote, unless one is due before.
func (c *Controller) seatIn(wait time.Duration) {
	if at := c.now() + wait; c.care.seatAt == 0 || at < c.care.seatAt {
		c.care.seatAt = at
		c.box.After(wait, seating{at})
	}
}

func (c *Controller) voted(m voted) {
	c.care.voting = false
	if m.err != nil {
		trace.Info(c.env.Trace, "catalog.members.unchanged", slog.Uint64("member", m.change.ID), slog.String("reason", m.err.Error()))
		c.careSoon(careAgain)
		return
	}
	trace.Info(c.env.Trace, "catalog.members.changed", slog.Uint64("member", m.change.ID))
	c.careSoon(0)
}
