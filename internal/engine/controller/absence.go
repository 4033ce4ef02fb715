package controller

import (
	"log/slog"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trace"
)

// absences is what the controller does about nodes that are away: the catalog is to say since when, so that the hold of their places
// outlives the controller (design 2 §6).
type absences struct {
	look  bool            // something has happened that may make a difference
	any   bool            // the catalog says of a node that it is away
	asked map[string]bool // nodes of which a proposal is under way
}

// noteAbsences proposes what the catalog does not say yet: that a node which is suspected is away, and that one which is heard is there.
// A run that has been followed by another is neither: the next registers by itself.
func (c *Controller) noteAbsences() {
	d := c.watch.detector
	if !c.absent.look || !c.leading || d == nil {
		return
	}
	c.absent.look, c.absent.any = false, false
	now, wall := c.now(), c.env.Clock.Wall().UnixMilli()
	var items []catalog.Item
	var of []string
	c.env.View(func(v *catalog.View) {
		for _, s := range d.Standings(now) {
			n := v.Node(s.Run.Node)
			if n == nil || s.Run != (ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}) {
				continue
			}
			c.absent.any = c.absent.any || n.Absent != 0
			if c.absent.asked[n.Name] {
				continue
			}
			if since, ok := c.absence(n, s, now, wall); ok {
				items, of = append(items, catalog.NoteAbsent(n.Name, n.Store, n.Boot, since)), append(of, n.Name)
			}
		}
	})
	c.proposeAbsences(items, of)
}

// absence is what the catalog should say of a node, if it says another thing.
func (c *Controller) absence(n *catalog.Node, s control.Standing, now time.Duration, wall int64) (since int64, ok bool) {
	suspicion, sick := c.watch.detector.Suspect(s.Run)
	switch {
	case sick && n.Absent == 0 && suspicion.Symptom != control.Rebooted:
		return max(1, wall-(now-suspicion.Since).Milliseconds()), true
	case !sick && s.Live && n.Absent != 0:
		return 0, true
	}
	return 0, false
}

func (c *Controller) proposeAbsences(items []catalog.Item, of []string) {
	if len(items) == 0 {
		return
	}
	cmds, err := catalog.Chunks(items)
	if err != nil {
		trace.Error(c.env.Trace, "node.absence", slog.String("error", err.Error()))
		return
	}
	if c.absent.asked == nil {
		c.absent.asked = map[string]bool{}
	}
	asked := c.absent.asked // of this term
	for _, node := range of {
		asked[node] = true
	}
	left := len(cmds)
	for _, cmd := range cmds {
		c.propose(cmd, func(err error) {
			c.box.Post(func() {
				if err != nil {
					trace.Info(c.env.Trace, "node.absence.unknown", slog.String("reason", err.Error()))
				}
				if left--; left > 0 {
					return
				}
				clear(asked)
				c.box.After(careAgain, func() { c.absent.look = true }) // what was refused, or was not done
			})
		})
	}
}
