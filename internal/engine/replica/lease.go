package replica

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

// An owner asks its node's lease before it takes a durable change and before it confirms one, where the lease fences (design 2 §7). What it may
// not do waits: events, settles, cursors and purges until it may, or until another owns; publishes for a moment, and are refused then.

// fencedFor is how long, in milliseconds, publishes wait for what fences their owner to pass, before they are refused.
const fencedFor = 1000

// rights are what a node's lease lets its owners do.
type rights struct {
	now atomic.Pointer[right] // nil: no leases are granted here

	mu     sync.Mutex
	fenced map[*replica]bool // that look again when they change
}

// right is one state of them. It is replaced, never changed.
type right struct {
	lease  lease.Lease
	term   uint64 // of the latest controller
	always bool
	// regained counts how often there was a lease again after none was in force: owners go by it once they have taken in what the catalog said
	// until then.
	regained regained
}

// change replaces the rights and has those looked at again that wait for it.
func (m *Manager) change(f func(*right)) {
	old := m.rights.now.Load()
	if old == nil {
		return
	}
	next := *old
	f(&next)
	m.rights.now.Store(&next)
	m.rights.mu.Lock()
	waiting := slices.SortedFunc(maps.Keys(m.rights.fenced), func(a, b *replica) int { return a.id.Compare(b.id) })
	m.rights.mu.Unlock()
	for _, r := range waiting {
		r.box.Post(release{})
	}
}

// SetLease says what this run's lease is from now on: for what it owns by the changes that Apply was given before.
func (m *Manager) SetLease(l lease.Lease) {
	again := false
	m.change(func(x *right) {
		if was := x.lease; was.Term == 0 || was.Revoked || m.env.Clock.Mono() >= was.Expires {
			x.regained++
			again = true
		}
		x.lease = l
	})
	if x := m.rights.now.Load(); again && x != nil {
		for _, r := range m.sorted() {
			r.box.Post(x.regained)
		}
	}
}

// LeaseEnds is when this run's lease does, on the node's monotonic clock; 0 where it holds none, or leases are not granted here.
func (m *Manager) LeaseEnds() time.Duration {
	x := m.rights.now.Load()
	if x == nil || x.lease.Term == 0 || x.lease.Revoked {
		return 0
	}
	return x.lease.Expires
}

// regained says that all assignments of before are taken in. It is small, since every copy has one, and may begin anew at 0: it is only ever
// compared with one that is on its way.
type regained uint16

// SetTerm says of which term the latest controller is that this node knows of.
func (m *Manager) SetTerm(term uint64) { m.change(func(x *right) { x.term = max(x.term, term) }) }

// FenceAlways says whether a lease fences every partition, or only those that confirm on one copy.
func (m *Manager) FenceAlways(always bool) { m.change(func(x *right) { x.always = always }) }

// fence is what an owner knows of being fenced.
type fence struct{ since int64 } // monotonic time in ms

// fenced says why an owner may neither take nor confirm a durable change now; nil where it may, and of a copy that owns nothing. The time is
// looked at with every call: a process that was stopped, and goes on, finds its lease over before it does anything.
func (r *replica) fenced() error {
	x := r.m.rights.now.Load()
	if x == nil || r.w > 1 && !x.always && r.fence == nil {
		return nil
	}
	err := r.admits(x)
	switch {
	case err == nil && r.fence != nil:
		r.fence = nil
		r.m.rights.wait(r, false)
	case err != nil && r.fence == nil:
		r.fence = &fence{r.mono()}
		r.m.rights.wait(r, true)
		if r.m.rights.now.Load() != x { // they changed between: nobody else says so
			r.box.Post(release{})
		}
		r.box.After(fencedFor*time.Millisecond, release{})
	}
	return err
}

func (r *replica) admits(x *right) error {
	if r.want == nil || r.copy.Role() != partition.Owner {
		return nil
	}
	if r.regained != x.regained {
		x = &right{term: x.term, always: x.always} // that lease is not this copy's yet
	}
	h := lease.Holding{
		Node: r.m.env.Local, Epoch: r.copy.Epoch(), Lease: x.lease, Term: x.term, Always: x.always, Now: r.m.env.Clock.Mono(),
	}
	return h.Admit(r.res, r.want)
}

// wait has a replica look again whenever the rights change, or not any more.
func (x *rights) wait(r *replica, on bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case !on:
		delete(x.fenced, r)
	case x.fenced == nil:
		x.fenced = map[*replica]bool{r: true}
	default:
		x.fenced[r] = true
	}
}

// fencePasses reports whether an owner is fenced for a reason that ends by itself, and was not for long: what comes waits.
func (r *replica) fencePasses() bool {
	var f *lease.Fenced
	return errors.As(r.fenced(), &f) && f.Reason.Passing() && r.mono()-r.fence.since < fencedFor
}

// shut says why nothing new is admitted, as far as that is known: refused beats unknown (design 2 §6); "" where it is.
func (r *replica) shut() (reason string, cause protocol.Cause) {
	if err := r.fenced(); err != nil {
		return err.Error(), protocol.CauseLease
	}
	if short := r.broken(); short != "" {
		return short, protocol.CauseCopies
	}
	return "", protocol.CauseOther
}
