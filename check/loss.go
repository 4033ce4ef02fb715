package check

// What an accepted loss may take, and what it may not.

// givenUp takes the end of a resource's log away: what was confirmed there may be gone, settles and moves of cursors among it are undone, and
// its offsets are given anew. What is known to lie below stays for ever.
func (c *Checker) givenUp(r *resource, e Event) {
	for _, id := range r.ids {
		m := r.messages[id]
		if !r.stream {
			m.undo()
		}
		if m.placed && m.offset < e.Offset || !m.confirmed && !m.seen {
			continue // it stays; or its outcome is still to come, and counts
		}
		m.given, m.back, m.known, m.open = true, false, m.seen || m.mayVanish, !m.confirmed
		m.mayVanish = true
		if m.placed {
			delete(r.byOffset, m.offset)
			m.placed = false
		}
	}
	for _, l := range r.lanes {
		l.highest = nil
		kept := l.placed[:0]
		for _, m := range l.placed {
			if m.placed {
				kept = append(kept, m)
			}
		}
		l.placed = kept
	}
	r.top = min(r.top, e.Offset)
	for _, k := range r.cursors {
		k.sent, k.kept = min(k.sent, e.Offset), min(k.kept, e.Offset)
	}
	for _, d := range c.readers {
		if d.of == r {
			d.next, d.from = min(d.next, e.Offset), min(d.from, e.Offset)
		}
	}
}

// undo forgets what became of a message: the word of it may lie in the end that was given up, or before it.
func (m *copyOf) undo() {
	if m.settled != "" || m.late != "" || m.purge != notPurged {
		m.mayVanish = true
	}
	m.settled, m.late, m.kept, m.purge = "", "", false, notPurged
	m.held, m.heldIn, m.seenIn = 0, 0, 0
}

// suffixes holds what an accepted loss has taken against the order of channels: it takes the end of a log and nothing else, so of two messages
// of one channel that were there before, the later is not there without the earlier; unless the resource itself drops what is oldest.
func (c *Checker) suffixes(r *resource) {
	if r.lossy {
		return
	}
	gone := map[*lane]*copyOf{}
	for _, id := range r.ids {
		m := r.messages[id]
		switch {
		case !m.given || m.lane == nil || m.open:
		case m.back:
			if first := gone[m.lane]; first != nil {
				c.fail(RuleLost, r, first.message, "message %d is gone, and message %d, which channel %d published after it, is not: a loss takes the end of a log",
					first.message, m.message, m.lane.id)
			}
		case m.confirmed && !m.known && gone[m.lane] == nil:
			gone[m.lane] = m
		}
	}
}
