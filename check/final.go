package check

// drained judges what is missing from a resource that has been emptied, or read to its end.
func (c *Checker) drained(r *resource, e Event) {
	if r.gone || r.damaged {
		return
	}
	if r.stream {
		c.readThrough(r, e)
		return
	}
	c.suffixes(r)
	for _, id := range r.ids {
		m := r.messages[id]
		if !m.confirmed && !m.seen || m.mayVanish {
			continue
		}
		if why := c.missing(r, m); why != "" {
			c.fail(lostRule(m), r, id, "message %d is gone: it was %s, and %s", id, evidence(m), why)
		}
	}
}

// lostRule tells a confirmed message that is lost from one that was delivered without ever having been durable.
func lostRule(m *copyOf) Rule {
	if m.confirmed {
		return RuleLost
	}
	return RuleUnconfirmed
}

func evidence(m *copyOf) string {
	switch {
	case m.confirmed && m.seen:
		return "confirmed and delivered"
	case m.confirmed:
		return "confirmed"
	default:
		return "delivered"
	}
}

// missing says why a message ought to have been there; "" if it is where it should be.
func (c *Checker) missing(r *resource, m *copyOf) string {
	if m.settled == Accept || m.late == Accept {
		return ""
	}
	if r.deadLetter == "" {
		switch {
		case m.settled == Reject || m.late == Reject || r.lossy:
			return ""
		case m.settled == Requeue:
			return "did not come back after it was requeued"
		case m.seen:
			return "did not come back though it was never settled"
		}
		return "never came"
	}
	to := c.resources[r.deadLetter]
	if to == nil || to.gone || to.damaged || to.lossy {
		return ""
	}
	if d := to.messages[m.message]; d != nil && (d.seen || d.mayVanish) {
		return ""
	}
	if m.settled == Reject {
		return "was rejected and did not come to " + r.deadLetter
	}
	return "came neither back nor to " + r.deadLetter
}

// readThrough judges a stream that a reader has read from its head to its tail.
func (c *Checker) readThrough(r *resource, e Event) {
	d := c.readers[e.Reader]
	if d == nil {
		c.fail(RuleHistory, r, 0, "a stream is drained by a reader that was not attached")
		return
	}
	if d.next < r.top {
		m := r.byOffset[r.top-1]
		c.fail(RuleUnconfirmed, r, m.message, "ends at offset %d; message %d was delivered at offset %d", d.next, m.message, m.offset)
	}
	if r.lossy {
		return
	}
	c.suffixes(r)
	for _, id := range r.ids {
		m := r.messages[id]
		if m.confirmed && !m.placed && !m.given {
			c.fail(RuleLost, r, id, "message %d is gone: it was confirmed and is at no offset", id)
		}
	}
}

// counted holds the broker's count of messages against what can be there: at least what was confirmed and not settled, at most what
// was not refused and not confirmed as settled.
func (c *Checker) counted(r *resource, e Event) {
	if r.gone || r.damaged {
		return
	}
	var least, most uint64
	for _, id := range r.ids {
		m := r.messages[id]
		over := !r.stream && (m.settled == Accept || m.settled == Reject)
		if (m.confirmed || m.seen) && !over && !m.mayVanish && !r.lossy && m.late == "" {
			least++
		}
		if !m.refused && !(over && m.kept) {
			most++
		}
	}
	if c.receives(r) { // what dies elsewhere comes here without having been published to it
		most = max(most, e.Count)
	}
	if e.Count < least || e.Count > most {
		c.fail(RuleCounters, r, 0, "counts %d messages; there are at least %d and at most %d", e.Count, least, most)
	}
}
