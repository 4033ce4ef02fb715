package controller

import "github.com/tanist/tanist/internal/core/control"

// Waits asks for the transitions that cannot go on, in order of partition: none while this node does not lead. done is called once, on the
// controller's loop.
func (c *Controller) Waits(done func([]Waiting)) {
	c.box.Post(func() {
		var out []Waiting
		for _, p := range c.partitions() {
			if t := c.open[p]; t.stands() {
				out = append(out, c.waitOf(t))
			}
		}
		done(out)
	})
}

// waitOf is a transition that waits, for those who ask.
func (c *Controller) waitOf(t *transition) Waiting {
	if t.assignment.Pending == nil {
		return Waiting{Partition: t.assignment.Partition, Reason: t.reason}
	}
	_, by := c.floor(t.assignment)
	w := control.WaitOf(c.input(t), t.decision, by)
	w.Reason = t.reason
	return w
}
