package controller

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/trace"
)

// watch is what the controller hears of nodes. It listens while it does not lead, too: a new leader knows how the last one went.
type watch struct {
	looking  bool              // a timer runs for changes of owner that were put off
	detector *control.Detector // of the present term; nil while this node does not lead
	sights   map[string]sight  // of other nodes
	wake     time.Duration     // when the timer runs; 0: none is set
	cancel   func() bool       // the timer
	handed   time.Duration     // when leadership was last offered to another; 0: never
	// promises are those that copies have reported which are above the epoch of their role.
	promises map[ident.Partition][]control.Promise
	// damages are the copies that are to own and are damaged, by the word of their runs.
	damages map[ident.Partition]control.Damage
	// confirms are how far owners have said that they confirmed, in the epoch that they said it of.
	confirms map[ident.Partition]floor
	// heard are how far sealed copies knew the log to be confirmed, in the epoch of the assignment that they were sealed under.
	heard map[ident.Partition]floor
	// reports are what nodes have said of their sessions while this node did not lead, as far as those sessions last. Who learns of a new leader
	// speaks at once, and only once; the leader's term begins here when it has applied all that was committed before.
	reports map[string]report
}

// floor is how far an owner has confirmed, by its own word.
type floor struct {
	by       ident.Instance
	epoch    uint64
	position uint64
	at       int64 // wall time in milliseconds here, when it said so
}

// sight is how this node's session with another stands, or how the last attempt failed.
type sight struct {
	run    ident.Instance
	up     bool
	ending control.Ending
	at     time.Duration
}

// messages
type (
	unreachable struct {
		node   string
		ending control.Ending
	}
	beat   control.Beat
	report struct {
		from ident.Instance
		of   []control.Reach
	}
	promises struct {
		from ident.Instance
		of   []Promised
	}
	confirms struct {
		from ident.Instance
		of   []Confirmed
	}
	damages struct {
		from ident.Instance
		of   []Damaged
	}
	ticked struct{}
)

// Confirmed is how far an owner has confirmed a partition in its epoch.
type Confirmed struct {
	Partition ident.Partition
	Epoch     uint64
	Position  uint64
}

// Promised is a copy's promise that is above the epoch of its role.
type Promised struct {
	Partition ident.Partition
	Epoch     uint64
}

// Damaged is a copy that is to own by the assignment of an epoch, and is damaged.
type Damaged struct {
	Partition ident.Partition
	Epoch     uint64
	Reason    string
}

// Unreachable says that an attempt to reach a node without a session failed.
func (c *Controller) Unreachable(node string, e control.Ending) { c.box.Post(unreachable{node, e}) }

// Beat takes a heartbeat, of this node or another.
func (c *Controller) Beat(b control.Beat) { c.box.Post(beat(b)) }

// Report takes what a node says of its sessions with others.
func (c *Controller) Report(from ident.Instance, of []control.Reach) { c.box.Post(report{from, of}) }

// Confirms takes how far owners on a node have confirmed.
func (c *Controller) Confirms(from ident.Instance, of []Confirmed) { c.box.Post(confirms{from, of}) }

// Heard gives, on the controller's loop, what owners have said of how far they confirmed, owner by owner in order.
func (c *Controller) Heard(each func(by ident.Instance, of []Confirmed)) {
	c.box.Post(func() {
		by := map[ident.Instance][]Confirmed{}
		for p, f := range c.watch.confirms {
			by[f.by] = append(by[f.by], Confirmed{p, f.epoch, f.position})
		}
		for _, i := range slices.SortedFunc(maps.Keys(by), func(x, y ident.Instance) int { return strings.Compare(x.String(), y.String()) }) {
			of := by[i]
			slices.SortFunc(of, func(x, y Confirmed) int { return x.Partition.Compare(y.Partition) })
			each(i, of)
		}
	})
}

// Promises takes the promises of a node's copies that are above the epoch of their role.
func (c *Controller) Promises(from ident.Instance, of []Promised) { c.box.Post(promises{from, of}) }

// Damages takes which copies of a node are to own and are damaged: all of them, each time.
func (c *Controller) Damages(from ident.Instance, of []Damaged) { c.box.Post(damages{from, of}) }

func (c *Controller) now() time.Duration { return c.env.Clock.Mono() }

// observe takes what was heard of nodes.
func (c *Controller) observe(msg any) {
	d, now := c.watch.detector, c.now()
	c.absent.look = c.absent.look || c.absent.any
	switch m := msg.(type) {
	case unreachable:
		s := c.watch.sights[m.node]
		s.up, s.ending, s.at = false, m.ending, now
		c.watch.sights[m.node] = s
		if d != nil {
			d.Unreachable(m.node, m.ending, now)
		}
	case beat:
		c.asksLease(control.Beat(m), now)
		c.noteFull(control.Beat(m))
		if d != nil {
			d.Beat(control.Beat(m), now)
		}
	case report:
		if d == nil {
			c.foretold(m)
		} else {
			d.Report(m.from, m.of, now)
		}
	case promises:
		c.promised(m)
	case damages:
		c.damaged(m)
	case confirms:
		for _, x := range m.of { // an owner of an earlier epoch, that has not heard of its end, takes nothing back
			have := c.watch.confirms[x.Partition]
			if x.Epoch > have.epoch || x.Epoch == have.epoch && x.Position > have.position {
				c.watch.confirms[x.Partition] = floor{m.from, x.Epoch, x.Position, c.env.Clock.Wall().UnixMilli()}
			}
		}
	case ticked:
		c.watch.wake = 0
	}
}

// foretold keeps what a node says of others for the term that may begin; what it does not name is as it said before.
func (c *Controller) foretold(m report) {
	if have := c.watch.reports[m.from.Node]; have.from == m.from {
		for _, x := range have.of {
			if !slices.ContainsFunc(m.of, func(y control.Reach) bool { return y.Node.Node == x.Node.Node }) {
				m.of = append(m.of, x)
			}
		}
	}
	c.watch.reports[m.from.Node] = m
}

func (c *Controller) sessionBegan(peer ident.Instance) {
	now := c.now()
	delete(c.watch.reports, peer.Node)
	c.watch.sights[peer.Node] = sight{run: peer, up: true, at: now}
	if d := c.watch.detector; d != nil {
		d.Up(peer, now)
	}
}

func (c *Controller) sessionEnded(peer ident.Instance, e control.Ending) {
	now := c.now()
	delete(c.watch.reports, peer.Node)
	c.watch.sights[peer.Node] = sight{run: peer, ending: e, at: now}
	if d := c.watch.detector; d != nil {
		d.Down(peer, e, now)
	}
}

// watchAnew begins to watch, with what is known already, or stops.
func (c *Controller) watchAnew(leading bool) {
	c.watch.detector, c.watch.handed = nil, 0
	clear(c.watch.promises)
	clear(c.watch.damages)
	if !leading {
		return
	}
	var runs []ident.Instance
	c.env.View(func(v *catalog.View) {
		for _, n := range v.Nodes() {
			runs = append(runs, ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot})
		}
		maps.DeleteFunc(c.watch.confirms, func(p ident.Partition, _ floor) bool {
			a, _ := v.Assignment(p)
			return a == nil
		})
	})
	maps.DeleteFunc(c.watch.sights, func(node string, s sight) bool { // of nodes that have left
		return !s.up && !slices.ContainsFunc(runs, func(r ident.Instance) bool { return r.Node == node })
	})
	now := c.now()
	d := control.NewDetector(control.DefaultLimits(), c.env.Local.Node, runs, now)
	c.watch.detector = d
	for _, r := range runs {
		switch s, ok := c.watch.sights[r.Node]; {
		case !ok:
		case s.up:
			d.Up(s.run, now-c.quiet(r.Node))
		case s.run.Boot > 0:
			d.Down(s.run, s.ending, s.at)
		default:
			d.Unreachable(r.Node, s.ending, s.at)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(c.watch.reports)) {
		m := c.watch.reports[node]
		d.Report(m.from, m.of, now)
	}
	clear(c.watch.reports)
}

// quiet is for how long nothing has been heard of a node, whether it was for this controller or not.
func (c *Controller) quiet(node string) time.Duration {
	if c.env.Quiet == nil {
		return 0
	}
	return c.env.Quiet(node)
}

// judge looks what has changed of whom to suspect, and what follows.
func (c *Controller) judge() {
	d := c.watch.detector
	if d == nil || !c.leading {
		return
	}
	now := c.now()
	found, wake, ok := d.Tick(now)
	for _, f := range found {
		c.found(f)
	}
	if _, sick := d.Suspect(c.env.Local); sick {
		c.handOn(now)
		if !ok || wake > now+retryAfter {
			wake, ok = now+retryAfter, true
		}
	}
	if !ok || c.watch.wake > 0 && c.watch.wake <= wake {
		return
	}
	if c.watch.wake > 0 {
		c.watch.cancel()
	}
	c.watch.wake = max(wake, now+1)
	c.watch.cancel = c.box.After(c.watch.wake-now, ticked{})
}

// found acts on a finding.
func (c *Controller) found(f control.Finding) {
	attrs := []slog.Attr{
		slog.String("node", f.Node.String()), slog.String("symptom", f.Symptom.String()), slog.String("by", strings.Join(f.By, ",")),
	}
	switch f.Change {
	case control.Suspected:
		trace.Warn(c.env.Trace, "node.suspected", attrs...)
	case control.Cleared:
		trace.Info(c.env.Trace, "node.cleared", attrs...)
	case control.Replaced:
		trace.Info(c.env.Trace, "node.replaced", attrs...)
	}
	c.absent.look = true
	c.careSoon(careAfter)
	c.considerAll(func(a *catalog.Assignment) bool { return a.Owner == f.Node })
	if f.Change == control.Suspected {
		c.withhold(f.Node)
		c.unsure(f.Node)
	}
}

// unsure has transitions that wait for an answer of a node looked at again: it is not waited for any more.
func (c *Controller) unsure(run ident.Instance) {
	for _, p := range c.partitions() {
		t := c.open[p]
		i := slices.IndexFunc(t.members, func(m *copyOf) bool { return m.member.Store == run.Store })
		if t.step != sealing || i < 0 {
			continue
		}
		if t.said.Store == run.Store { // nor for its links: what it answered before is no use without
			t.members[i].answer, t.linksAsked = nil, nil
		}
		c.toChoose = append(c.toChoose, t)
	}
}

// suspects reports whether a member's node is suspected in the run that it is registered with.
func (c *Controller) suspects(m catalog.Member) (yes bool) {
	c.env.View(func(v *catalog.View) {
		if n := v.Node(m.Node); n != nil && n.Store == m.Store {
			_, yes = c.watch.detector.Suspect(ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot})
		}
	})
	return yes
}

// handOn lets another node lead: this one cannot write, and would decide nothing (design 2 §4). It goes on until one does.
func (c *Controller) handOn(now time.Duration) {
	if c.env.HandOn == nil || c.watch.handed > 0 && now-c.watch.handed < retryAfter {
		return
	}
	c.watch.handed = now
	trace.Warn(c.env.Trace, "controller.hands.on", slog.String("node", c.env.Local.Node))
	c.env.HandOn()
}

// promised notes what a node's copies have promised. Each report is the whole of what that node has to say.
func (c *Controller) promised(m promises) {
	if !c.leading {
		return
	}
	for p, of := range c.watch.promises {
		of = slices.DeleteFunc(of, func(x control.Promise) bool { return x.Node == m.from.Node })
		if len(of) == 0 {
			delete(c.watch.promises, p)
		} else {
			c.watch.promises[p] = of
		}
	}
	named := map[ident.Partition]bool{}
	for _, x := range m.of {
		c.watch.promises[x.Partition] = append(c.watch.promises[x.Partition], control.Promise{Node: m.from.Node, Store: m.from.Store, Epoch: x.Epoch})
		named[x.Partition] = true
	}
	c.considerAll(func(a *catalog.Assignment) bool { return named[a.Partition] })
}

// damaged notes which copies of a run are damaged that are to own, and has those partitions looked at.
func (c *Controller) damaged(m damages) {
	if !c.leading {
		return
	}
	maps.DeleteFunc(c.watch.damages, func(_ ident.Partition, d control.Damage) bool { return d.Run.Node == m.from.Node })
	for _, x := range m.of {
		if x.Epoch >= c.watch.damages[x.Partition].Epoch { // else it owned before, and has not heard of its end
			c.watch.damages[x.Partition] = control.Damage{Run: m.from, Epoch: x.Epoch, Reason: x.Reason}
		}
	}
	if len(m.of) > 0 {
		c.considerAll(func(a *catalog.Assignment) bool { return c.watch.damages[a.Partition].Run == a.Owner })
	}
}

// floor is how far an assignment's log is known to be confirmed, by the owner's word or by what copies knew that were sealed, and who said so: 0
// where nobody has said anything in the owner's epoch.
func (c *Controller) floor(a *catalog.Assignment) (position uint64, by string) {
	f := c.watch.confirms[a.Partition]
	if f.by == a.Owner && f.epoch == a.Epoch {
		position, by = f.position, f.by.Node
	}
	if h := c.watch.heard[a.Partition]; h.epoch == a.Epoch && h.position > position {
		position, by = h.position, h.by.Node
	}
	return position, by
}

// hears keeps how far an answer knows the log to be confirmed: it is known also once the copy that said so is lost.
func (c *Controller) hears(a *catalog.Assignment, x control.Answer) {
	at, h := control.Heard(a, x), c.watch.heard[a.Partition]
	if at > 0 && (h.epoch != a.Epoch || at > h.position) {
		c.watch.heard[a.Partition] = floor{by: x.Instance, epoch: a.Epoch, position: at}
	}
}
