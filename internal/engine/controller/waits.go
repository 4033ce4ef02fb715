package controller

// Waits asks for the transitions that cannot go on, in order of partition: none while this node does not lead. done is called once, on the
// controller's loop.
func (c *Controller) Waits(done func([]Waiting)) {
	c.box.Post(func() {
		var out []Waiting
		for _, p := range c.partitions() {
			if t := c.open[p]; t.step == waiting {
				out = append(out, c.waitOf(t))
			}
		}
		done(out)
	})
}

// waitOf is a transition that waits, for those who ask.
func (c *Controller) waitOf(t *transition) Waiting {
	w := Waiting{Partition: t.assignment.Partition, Reason: t.reason}
	if p := t.assignment.Pending; p != nil {
		w.Transition, w.Since = p.ID, p.Since
	}
	return w
}
