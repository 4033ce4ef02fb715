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
	// growAtOnce bounds the partitions that get another copy at a time: what each costs its owner is an image of all it holds.
	growAtOnce = 16
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
}

type (
	caring  struct{}
	seating struct{ at time.Duration }
	voters  struct{ m Members }
	voted   struct {
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

// sites are the nodes as placement sees them.
func (c *Controller) sites(v *catalog.View) []control.Site {
	return control.Sites(v, func(node string) bool {
		n := v.Node(node)
		if node == c.env.Local.Node {
			return true
		}
		p, ok := c.peers[node]
		return ok && n != nil && p == ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}
	})
}

// careFor adds copies where there are too few, and asks for the consensus' members, to do the same there.
func (c *Controller) careFor() {
	if !c.leading {
		return
	}
	var grow []control.Growth
	alone := false
	c.env.View(func(v *catalog.View) {
		sites := c.sites(v)
		if alone = len(sites) < 2; !alone {
			grow = control.Grow(v, sites, growAtOnce)
		}
	})
	var items []catalog.Item
	for _, g := range grow {
		items = append(items, g.Item())
		c.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "copy.planned", Attrs: []slog.Attr{
			slog.String("partition", g.Partition.String()), slog.String("node", g.Member.Node), slog.Bool("drop", g.Drop),
		}})
	}
	cmds, err := catalog.Chunks(items)
	if err != nil {
		trace.Error(c.env.Trace, "copy.plan", slog.String("error", err.Error()))
	}
	for _, cmd := range cmds {
		c.env.Propose(cmd, func(err error) {
			if err != nil {
				c.box.Post(func() { c.careSoon(careAgain) })
			}
		})
	}
	c.askVoters()
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
