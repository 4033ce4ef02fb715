package explore

import "github.com/tanist/tanist/internal/core/partition"

// A copy that is too far behind is made anew in its place, with Bounds.Reseeds: the owner's log is taken not to go on from where the copy's ends, for it
// may let go of whatever is confirmed. The copy discards its log, durably, and answers for nothing until the image is whole; it is taken at once
// then, or begun and not gone on with before other things have happened. Not with Lazy, where what is confirmed is not told.

// reseeds are the copies that may be made anew, and those whose image may become whole.
func (w *world) reseeds(out []Action) []Action {
	for i := range Nodes {
		for j := range Nodes {
			if w.reseedable(i, j) {
				out = append(out, Action{Kind: Reseed, A: uint8(i), B: uint8(j)})
			}
			if w.importable(i, j) {
				out = append(out, Action{Kind: Import, A: uint8(i), B: uint8(j)})
			}
		}
	}
	return out
}

// obeyed reports whether a copy takes from an owner what it sends.
func (w *world) obeyed(of, with int) bool {
	o, c := w.nodes[of], w.nodes[with]
	return o.up && c.up && o.copy.Open() && c.follows() && c.copy.Epoch() == o.copy.Epoch() && c.heard.a.Owner == o.instance() &&
		w.feedOf(o, with, message{epoch: o.copy.Epoch()}) != nil
}

func (w *world) reseedable(of, with int) bool {
	c := w.nodes[with]
	at := c.log.end().Position
	return int(w.used.reseeds) < w.x.bounds.Reseeds && w.obeyed(of, with) && !c.copy.Importing() && c.copy.InFlight() == 0 &&
		at > 0 && at < w.nodes[of].copy.Confirmed()
}

func (w *world) importable(of, with int) bool {
	return w.nodes[with].copy.Importing() && w.obeyed(of, with)
}

// reseed has a copy discard its log for an image of the owner's.
func (w *world) reseed(of, with int) bool {
	if !w.reseedable(of, with) {
		return false
	}
	w.used.reseeds++
	o, c := w.mine(of), w.mine(with)
	o.copy.Renews(c.instance().Store)
	w.feedOf(o, with, message{epoch: o.copy.Epoch()}).Lose()
	if !c.copy.Discard(c.log.end().Position) {
		w.breaks("%s does not take an image, and nothing is under way", nodeName(with))
	}
	c.log = nil
	c.disk.log, c.disk.snapshot, c.disk.importing = nil, nil, true
	w.tell("discards its log")
	return true
}

// imported has an image become whole: what the owner has confirmed by then.
func (w *world) imported(of, with int) bool {
	if !w.importable(of, with) {
		return false
	}
	o, c := w.nodes[of], w.mine(with)
	c.log = o.log.at(o.copy.Confirmed())
	c.disk.log, c.disk.snapshot, c.disk.importing = c.log, c.log, false
	w.do(c, func(fx *partition.Effects) { c.copy.Imported(c.image(), nil, fx) }) // what is confirmed lies in every later history
	w.tell("holds %s", c.log)
	w.flush(c)
	return true
}
