package controller

import (
	"log/slog"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/port/trace"
)

// freshBeat is how long a heartbeat is answered with a lease: one counts from its sending, so the next one is better.
const freshBeat = 500 * time.Millisecond

// leases are what the controller grants in answer to heartbeats (design 2 §7).
type leases struct {
	book    lease.Book
	set     bool
	asks    map[string]ask // the last heartbeat of each node
	waiting []string       // nodes that were heard and not looked at yet
	proving bool           // asked whether this node still leads
	barred  map[ident.Instance]bool
}

// ask is a heartbeat.
type ask struct {
	run  ident.Instance
	sent time.Duration // on its clock
	at   time.Duration // when it came, on this one
}

// proved says that a majority obeyed a term after a time.
type proved struct {
	term uint64
	at   time.Duration
	err  error
}

// leasesSet learns how long leases are. What was set before this run began is not known where it was ever set.
func (c *Controller) leasesSet(changes []catalog.Change) {
	l := &c.leases
	touched := func(ch catalog.Change) bool {
		before, was := ch.Before.(*catalog.Setting)
		after, is := ch.After.(*catalog.Setting)
		return is && after.Name == catalog.Lease || was && before.Name == catalog.Lease
	}
	if l.set && !slices.ContainsFunc(changes, touched) {
		return
	}
	c.env.View(func(v *catalog.View) {
		l.book.Set(v.Tunables().Lease, c.now())
		if !l.set && v.Setting(catalog.Lease) != nil {
			l.book.Doubt(c.now())
		}
	})
	l.set = true
}

// leaseAnew begins to grant, or stops.
func (c *Controller) leaseAnew(leading bool) {
	l := &c.leases
	l.proving, l.barred = false, nil
	if !leading || c.env.Term == nil {
		l.book.Begin(0, c.now())
		return
	}
	l.book.Begin(c.env.Term(), c.now())
	for _, n := range c.watch.detector.Standings(c.now()) {
		if a, ok := l.asks[n.Run.Node]; ok && a.run == n.Run && c.now()-a.at < freshBeat {
			l.waiting = append(l.waiting, n.Run.Node) // it spoke before this term was ready to listen
		}
	}
}

// asksLease notes a heartbeat.
func (c *Controller) asksLease(b control.Beat, now time.Duration) {
	l := &c.leases
	if c.env.Grant == nil {
		return
	}
	if l.asks == nil {
		l.asks = map[string]ask{}
	}
	l.asks[b.From.Node] = ask{b.From, b.Sent, now}
	if c.leading && l.book.Due(b.From, now) && !slices.Contains(l.waiting, b.From.Node) {
		l.waiting = append(l.waiting, b.From.Node)
	}
}

// grant answers heartbeats with leases where they are due. It is called once it is known who is suspected.
func (c *Controller) grant() {
	l := &c.leases
	if len(l.waiting) == 0 {
		return
	}
	now := c.now()
	l.waiting = slices.DeleteFunc(l.waiting, func(node string) bool {
		a := l.asks[node]
		if !c.leading || now-a.at >= freshBeat || !l.book.Due(a.run, now) || !c.mayHold(a.run) {
			return true
		}
		if l.book.Stale(now) {
			c.prove()
			return false
		}
		if g, ok := l.book.Grant(a.run, a.sent, now); ok {
			c.env.Grant(g)
		}
		return true
	})
}

// mayHold reports whether a run is to be granted a lease: it is the registered one, nothing speaks against it, and it is not being given up.
func (c *Controller) mayHold(run ident.Instance) (yes bool) {
	if c.leases.barred[run] {
		return false
	}
	if _, suspected := c.watch.detector.Suspect(run); suspected {
		return false
	}
	c.env.View(func(v *catalog.View) {
		n := v.Node(run.Node)
		yes = n != nil && n.Store == run.Store && n.Boot == run.Boot
	})
	return yes
}

// withhold takes back what a run was granted, if it can be told, and grants nothing more while there is a reason.
func (c *Controller) withhold(run ident.Instance) {
	if c.env.Grant == nil {
		return
	}
	var sent time.Duration
	if a := c.leases.asks[run.Node]; a.run == run {
		sent = a.sent
	}
	if g, ok := c.leases.book.Withhold(run, sent, c.now()); ok {
		c.env.Grant(g)
	}
}

// bar withholds leases from a run that an accepted loss gives up, until unbar or the end of the term.
func (c *Controller) bar(run ident.Instance) {
	if c.leases.barred == nil {
		c.leases.barred = map[ident.Instance]bool{}
	}
	c.leases.barred[run] = true
	c.withhold(run)
}

func (c *Controller) unbar(run ident.Instance) { delete(c.leases.barred, run) }

// leaseOver is when no lease of a run can be in force any more, on this node's monotonic clock, provided that none is granted to it from now on:
// an accepted loss that gives up an owner whose lease fences bars it, and waits until then (design 2 §8). Where nothing is leased, it is now.
func (c *Controller) leaseOver(run ident.Instance) time.Duration {
	if c.env.Grant == nil {
		return c.now()
	}
	return c.leases.book.Over(run)
}

// leaseFences reports whether the end of its owner's lease closes a partition to durable changes.
func (c *Controller) leaseFences(p ident.Partition) (yes bool) {
	if c.env.Grant == nil {
		return false
	}
	c.env.View(func(v *catalog.View) {
		if a, r := v.Assignment(p); a != nil {
			yes = lease.Fences(r, a, v.Tunables().FenceAlways)
		}
	})
	return yes
}

// lapsed reports whether no lease of a run is in force any more, and takes care that none will be while this is asked for.
func (c *Controller) lapsed(run ident.Instance) bool {
	c.bar(run)
	return c.now() >= c.leaseOver(run)
}

// prove asks whether this node still leads.
func (c *Controller) prove() {
	l := &c.leases
	if l.proving || c.env.Prove == nil {
		return
	}
	l.proving = true
	term, at := c.env.Term(), c.now()
	c.env.Prove(func(err error) { c.box.Post(proved{term, at, err}) })
}

func (c *Controller) proven(m proved) {
	l := &c.leases
	if !c.leading || m.term != c.env.Term() {
		return
	}
	l.proving = false
	if m.err != nil {
		l.waiting = l.waiting[:0] // the next heartbeats ask again
		c.env.Trace.Emit(trace.Event{Level: slog.LevelDebug, Name: "lease.unproved", Attrs: []slog.Attr{slog.String("error", m.err.Error())}})
		return
	}
	l.book.Prove(m.at)
}
