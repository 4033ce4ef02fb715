package account

import (
	"slices"
	"time"
)

// Pause is the longest time without a confirm between from and to: between two confirms, between from and the first, or between the last
// and to. began is when it began.
func (l *Ledger) Pause(from, to time.Duration) (longest, began time.Duration) {
	last := from
	for _, at := range l.confirms {
		if at <= from {
			continue
		}
		if at >= to {
			break
		}
		if at-last > longest {
			longest, began = at-last, last
		}
		last = at
	}
	if to-last > longest {
		longest, began = to-last, last
	}
	return longest, began
}

// LastConfirm is when the last confirm came that came no later than at; false if none did.
func (l *Ledger) LastConfirm(at time.Duration) (time.Duration, bool) {
	i, exact := slices.BinarySearch(l.confirms, at)
	if exact {
		return at, true
	}
	if i == 0 {
		return 0, false
	}
	return l.confirms[i-1], true
}

// Served is when the first message that was published at or after from was confirmed; false if none was. Whatever was under way before
// tells nothing: its confirm may have been.
func (l *Ledger) Served(from time.Duration) (at time.Duration, ok bool) {
	for i := range l.messages {
		m := &l.messages[i]
		if m.sent >= from && m.outcome == Confirmed && (!ok || m.ended < at) {
			at, ok = m.ended, true
		}
	}
	return at, ok
}

// ServedIn is when the first message of a session was confirmed; false if none was.
func (l *Ledger) ServedIn(session uint32) (at time.Duration, ok bool) {
	for i := range l.messages {
		m := &l.messages[i]
		if m.session == session && m.outcome == Confirmed && (!ok || m.ended < at) {
			at, ok = m.ended, true
		}
	}
	return at, ok
}
