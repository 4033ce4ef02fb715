// Package lease is a node's right to take durable changes for what its run owns, for a while: where an owner that was given up by an
// accepted loss could go on alone, no epoch fences it, and the end of its lease does (design 2 §7).
//
// A controller grants (Book), a node holds (Lease), and whoever is asked for a durable change admits it (Admit). One lease covers all that
// a run owns by the catalog. No clock is read here: times are values, each of one node's monotonic clock, and none is ever compared with
// another node's. Loops, messages and what becomes of a change that is refused may not come in.
package lease

import (
	"time"

	"github.com/tanist/tanist/internal/core/ident"
)

const (
	// Margin is what a holder takes off the end of its lease, and what whoever waits for that end adds: for the moments between a look at the
	// clock and what is done by it.
	Margin = 250 * time.Millisecond
	// Longest is the longest lease that can be set.
	Longest = 10 * time.Minute
	// driftParts: no node's clock is taken to run faster or slower than another's by more than one part of so many.
	driftParts = 100
)

// Grant is what a controller says to a run in answer to its heartbeat.
type Grant struct {
	Term   uint64 // of the controller
	Holder ident.Instance
	TTL    time.Duration // from Sent on; 0: the lease is revoked
	Sent   time.Duration // as the heartbeat said it: on the holder's clock
}

// Lease is what a run holds. The zero value is none.
type Lease struct {
	Term    uint64        // of the controller that granted it; 0: none ever did
	Sent    time.Duration // when the heartbeat was sent that it answers: it counts from there, whenever the grant came
	Expires time.Duration // at that time it is expired
	Revoked bool
}

// Take is the lease after a grant, and whether it is another than before. A grant for another run, of an earlier controller, or for an
// earlier heartbeat than the lease that is held, changes nothing.
func (l Lease) Take(g Grant, me ident.Instance) (Lease, bool) {
	if g.Holder != me || g.Term < l.Term || g.Term == l.Term && g.Sent < l.Sent {
		return l, false
	}
	next := Lease{Term: g.Term, Sent: g.Sent, Expires: g.Sent + g.TTL - Margin, Revoked: g.TTL == 0}
	return next, next != l
}

// whole is how long a lease may be in force anywhere, on the clock of whoever waits for its end.
func whole(ttl time.Duration) time.Duration { return ttl + ttl/driftParts + Margin }

// Book is what a controller has granted, and when all that anybody granted will be over. It is kept from one term of its node to the next.
// It is not safe for concurrent use; the zero value is ready.
type Book struct {
	ttl    time.Duration
	term   uint64
	proved time.Duration // a majority obeyed the term at this time or later
	proof  bool
	others time.Duration // until then leases may be in force that are not in runs
	runs   map[ident.Instance]*entry
}

// entry is what one run was granted.
type entry struct {
	over     time.Duration // when nothing granted is in force any more
	renew    time.Duration // when the next grant is due
	withheld bool
}

// Set says how long leases are from now on. Those that were granted before, by whomever, may be in force for as long as was set then.
func (b *Book) Set(ttl, now time.Duration) {
	if ttl < b.ttl {
		b.others = max(b.others, now+whole(b.ttl))
	}
	b.ttl = ttl
}

// Doubt says that leases may once have been longer than they are set to be: nobody here knows what was set before.
func (b *Book) Doubt(now time.Duration) { b.others = max(b.others, now+whole(Longest)) }

// Begin begins a term of this node's controller, or ends it (0). Nothing is granted in it before Prove. Controllers before granted only what
// a majority stood behind, and that of this term has left them: what they granted ends within one lease from now.
func (b *Book) Begin(term uint64, now time.Duration) {
	if term > 0 {
		b.others = max(b.others, now+whole(b.ttl))
	}
	b.term, b.proof = term, false
	for _, e := range b.runs {
		e.renew, e.withheld = now, false
	}
}

// Prove says that a majority of the catalog's voters obeyed the controller's term at some moment after at: no later one had begun by then.
// What is granted counts from there, so that a controller that was stopped and goes on, and does not know that it was replaced, grants nothing
// that lasts.
func (b *Book) Prove(at time.Duration) { b.proved, b.proof = at, b.term > 0 }

// Stale reports whether a new proof is wanted before anything is granted: what is granted on an old one is shorter by its age.
func (b *Book) Stale(now time.Duration) bool { return !b.proof || now-b.proved > b.ttl/10 }

// Due reports whether a run that was heard is to be granted a lease: it has none of this term, or less than two thirds of it are left.
func (b *Book) Due(run ident.Instance, now time.Duration) bool {
	e := b.runs[run]
	return b.term > 0 && (e == nil || now >= e.renew)
}

// Again says that what was granted to a run lately may never have come to it.
func (b *Book) Again(run ident.Instance, now time.Duration) {
	if e := b.runs[run]; e != nil && !e.withheld {
		e.renew = min(e.renew, now)
	}
}

// Grant grants a run a lease for a heartbeat that said Sent, if there is proof that this controller may. It lasts to one lease from the proof
// at most, however late the heartbeat came or the grant will.
func (b *Book) Grant(run ident.Instance, sent, now time.Duration) (Grant, bool) {
	ttl := b.ttl - (now - b.proved)
	if !b.proof || ttl <= Margin {
		return Grant{}, false
	}
	if b.runs == nil {
		b.runs = map[ident.Instance]*entry{}
	}
	e := b.runs[run]
	if e == nil {
		for r, old := range b.runs {
			if now >= old.over {
				delete(b.runs, r) // runs that are over: nothing of them is in force
			}
		}
		e = &entry{}
		b.runs[run] = e
	}
	e.over = max(e.over, now+whole(ttl))
	e.renew, e.withheld = now+ttl/3, false
	return Grant{Term: b.term, Holder: run, TTL: ttl, Sent: sent}, true
}

// Withhold says that a run is to be granted nothing for now. The grant revokes what it may hold, as far as it still hears; ok is false where it
// was told so already, or was granted nothing. sent is that of the last heartbeat.
func (b *Book) Withhold(run ident.Instance, sent, now time.Duration) (Grant, bool) {
	e := b.runs[run]
	if b.term == 0 || e == nil || e.withheld || now >= e.over {
		return Grant{}, false
	}
	e.withheld, e.renew = true, now
	return Grant{Term: b.term, Holder: run, Sent: sent}, true
}

// Over is when no lease of a run can be in force any more, whoever granted it: provided that nothing is granted to it from now on. An accepted
// loss waits for that where the lease fences (design 2 §8). It is on the controller's monotonic clock, as all times here.
func (b *Book) Over(run ident.Instance) time.Duration {
	over := b.others
	if e := b.runs[run]; e != nil {
		over = max(over, e.over)
	}
	return over
}
