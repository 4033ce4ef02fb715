package check

import (
	"fmt"
	"slices"
	"strings"
)

// maxViolations bounds what is kept: the first ones tell, the rest follow from them.
const maxViolations = 20

// Violation is one promise that was not kept.
type Violation struct {
	Rule     Rule
	Event    uint64 // how many events had been observed
	Resource string
	Message  uint64
	Text     string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s (event %d)", v.Rule, v.Text, v.Event)
}

// Rule names a promise. The numbers are those of design 2 §11 where it has one.
type Rule string

// The rules.
const (
	RuleLost        Rule = "confirmed is never lost"                        // 1, 7
	RuleMoved       Rule = "an offset holds one record for ever"            // 1
	RuleBytes       Rule = "a record keeps its bytes"                       // 1, 3
	RuleEpoch       Rule = "epochs only rise, and one owner has an epoch"   // 2
	RuleCause       Rule = "no owner changes without a cause"               // 10
	RuleUnconfirmed Rule = "nothing unconfirmed is delivered"               // 4
	RuleSettled     Rule = "a settled message is never delivered again"     // 6
	RuleFlag        Rule = "a message that comes again says so"             //
	RuleHeld        Rule = "a message is held by one consumer at a time"    //
	RuleOutcome     Rule = "a publish has one outcome"                      // 7
	RuleRefused     Rule = "refused means absent"                           // 7
	RuleDuplicate   Rule = "a publish is appended once"                     // 7
	RulePhantom     Rule = "nothing is delivered that was not published"    //
	RuleOrder       Rule = "a channel's order is kept"                      //
	RuleReader      Rule = "a reader sees each record once, in order"       //
	RuleCursor      Rule = "a cursor resumes where its last settle left it" //
	RuleCounters    Rule = "counters balance"                               //
	RuleDamage      Rule = "damage is reported where there is some"         // evidence matches what was injected
	RuleHistory     Rule = "a history makes sense"                          // a fault of the recorder, not the broker
)

// Checker judges a history as it grows. It is not safe for concurrent use: whoever records concurrently takes a lock, so that the
// order is one.
type Checker struct {
	events     uint64
	run        uint64
	restarts   uint64
	resources  map[string]*resource
	order      []*resource
	sessions   map[uint64]bool // open
	lost       map[uint64]bool // ended with their node
	publishes  map[uint64]*publish
	readers    map[uint64]*reader
	ended      map[string]bool // owners whose runs are over
	doubted    map[string]bool // owners
	exact      bool            // all owners are named that may be doubted
	disturbed  bool
	scattered  bool // it ever was
	anyDamage  bool
	violations []Violation
	count      int
}

// publish is one message on its way to its targets.
type publish struct {
	message uint64
	outcome Outcome
	session uint64
	targets []*copyOf
	loose   bool // it was given before, and that may come to its resource yet, whatever is said of the new one
}

// New makes a checker of an empty history.
func New() *Checker {
	return &Checker{
		run:       1,
		resources: map[string]*resource{},
		sessions:  map[uint64]bool{},
		lost:      map[uint64]bool{},
		publishes: map[uint64]*publish{},
		readers:   map[uint64]*reader{},
		ended:     map[string]bool{},
		doubted:   map[string]bool{},
	}
}

// Violations are those found so far, the first ones if there are many.
func (c *Checker) Violations() []Violation { return c.violations }

// Failed reports whether any promise was broken so far.
func (c *Checker) Failed() bool { return c.count > 0 }

// Events is the number of events observed.
func (c *Checker) Events() uint64 { return c.events }

// Verdict is nil if every promise was kept, else an error that lists what was not.
func (c *Checker) Verdict() error {
	if c.count == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d broken promises in %d events:", c.count, c.events)
	for _, v := range c.violations {
		fmt.Fprintf(&b, "\n  %s", v)
	}
	return fmt.Errorf("%s", b.String())
}

func (c *Checker) fail(rule Rule, r *resource, message uint64, format string, a ...any) {
	c.count++
	if len(c.violations) >= maxViolations {
		return
	}
	v := Violation{Rule: rule, Event: c.events, Message: message, Text: fmt.Sprintf(format, a...)}
	if r != nil {
		v.Resource = r.name
		v.Text = r.name + ": " + v.Text
	}
	c.violations = append(c.violations, v)
}

// Observe takes the next event of the history.
func (c *Checker) Observe(e Event) {
	c.events++
	switch e.Kind {
	case Opened:
		c.sessions[e.Session] = true
	case Closed:
		delete(c.sessions, e.Session)
	case Lost:
		delete(c.sessions, e.Session)
		c.lost[e.Session] = true
	case Crashed:
		c.crashed()
	case Restarted:
		c.restarts++
	case Disturbed:
		c.run++
		c.disturbed, c.scattered = true, true
		if e.Owner != "" {
			c.ended[e.Owner] = true
		}
	case Calm:
		c.run++
		c.disturbed = false
		clear(c.doubted)
	case Doubted:
		c.exact = true
		c.doubted[e.Owner] = true
	case Declared:
		c.declare(e)
	case Publish:
		c.publish(e)
	case Again:
		if p := c.publishes[e.Message]; p != nil && p.outcome != Refused {
			p.loose = p.loose || c.scattered
			p.outcome, p.session = "", e.Session
			return
		}
		c.fail(RuleHistory, nil, e.Message, "message %d is given again and was never given, or was refused", e.Message)
	case Resolved:
		c.resolved(e)
	case Totals:
		c.totals(e)
	case Quiet:
		c.quiet()
	case Injected:
		if e.Resource == "" {
			c.anyDamage = true
			return
		}
		c.of(e, func(r *resource) { r.injected = true })
	default:
		c.ofResource(e)
	}
}

func (c *Checker) ofResource(e Event) {
	handle := handlers[e.Kind]
	if handle == nil {
		c.fail(RuleHistory, nil, e.Message, "unknown kind of event %q", e.Kind)
		return
	}
	c.of(e, func(r *resource) { handle(c, r, e) })
}

// handlers take the events that are of a resource.
var handlers = map[Kind]func(*Checker, *resource, Event){
	Deleted: (*Checker).deleted, Attached: (*Checker).attached, Delivered: (*Checker).delivered, Settle: (*Checker).settle,
	Settled: (*Checker).settled, CursorSent: (*Checker).cursorSent, CursorKept: (*Checker).cursorKept, Purge: (*Checker).purge,
	Purged: (*Checker).purged, PurgeLost: (*Checker).purgeLost, Drained: (*Checker).drained, Owned: (*Checker).owned,
	Damaged: (*Checker).damaged, GivenUp: (*Checker).givenUp, Counted: (*Checker).counted,
}

func (c *Checker) of(e Event, f func(*resource)) {
	r := c.resources[e.Resource]
	if r == nil {
		c.fail(RuleHistory, nil, e.Message, "%s of the undeclared resource %q", e.Kind, e.Resource)
		return
	}
	f(r)
}

func (c *Checker) crashed() {
	c.run++
	clear(c.sessions)
	for _, r := range c.order {
		r.forget()
		r.users = nil
	}
}

// live reports whether a session is open.
func (c *Checker) live(session uint64) bool { return session != 0 && c.sessions[session] }

func (c *Checker) declare(e Event) {
	if c.resources[e.Resource] != nil {
		c.fail(RuleHistory, nil, 0, "%q was declared before", e.Resource)
		return
	}
	r := &resource{
		name: e.Resource, stream: e.Stream, lossy: e.Lossy, ordered: e.Ordered, deadLetter: e.DeadLetter,
		messages: map[uint64]*copyOf{}, lanes: map[uint64]*lane{}, cursors: map[string]*cursor{}, byOffset: map[uint64]*copyOf{},
	}
	c.resources[e.Resource] = r
	c.order = append(c.order, r)
}

func (c *Checker) publish(e Event) {
	if c.publishes[e.Message] != nil {
		c.fail(RuleHistory, nil, e.Message, "message %d was published before", e.Message)
		return
	}
	p := &publish{message: e.Message, session: e.Session}
	c.publishes[e.Message] = p
	for _, name := range e.Targets {
		r := c.resources[name]
		if r == nil {
			c.fail(RuleHistory, nil, e.Message, "message %d goes to the undeclared %q", e.Message, name)
			continue
		}
		m := r.add(e.Message, e.Digest)
		m.lane, m.number = r.lane(e.Lane), r.lane(e.Lane).published
		r.lane(e.Lane).published++
		m.mayVanish = r.purging
		p.targets = append(p.targets, m)
	}
}

func (c *Checker) resolved(e Event) {
	p := c.publishes[e.Message]
	if p == nil {
		c.fail(RuleOutcome, nil, e.Message, "message %d is %s and was never published", e.Message, e.Outcome)
		return
	}
	if p.outcome != "" {
		c.fail(RuleOutcome, nil, e.Message, "message %d is %s after it was %s", e.Message, e.Outcome, p.outcome)
		return
	}
	p.outcome = e.Outcome
	for _, m := range p.targets {
		switch {
		case e.Outcome == Confirmed:
			m.confirmed = true
		case e.Outcome == Refused && len(p.targets) == 1 && !p.loose:
			// Of several targets some may have taken it.
			m.refused = true
			if m.seen {
				c.fail(RuleRefused, m.in, e.Message, "message %d is refused and was delivered", e.Message)
			}
		}
	}
}

// quiet finds publishes of live sessions that have no outcome.
func (c *Checker) quiet() {
	for _, r := range c.order {
		r.users = slices.DeleteFunc(r.users, func(s uint64) bool { return !c.live(s) })
	}
	var waiting, first uint64
	for id, p := range c.publishes {
		if p.outcome == "" && c.live(p.session) {
			waiting++
			if first == 0 || id < first {
				first = id
			}
		}
	}
	if waiting > 0 {
		c.fail(RuleOutcome, nil, first, "%d publishes have no outcome, the first of them message %d", waiting, first)
	}
}

func (c *Checker) totals(e Event) {
	if e.Admitted != e.Confirmed+e.Refused+e.Unknown {
		c.fail(RuleCounters, nil, 0, "%d publishes admitted, but %d confirmed + %d refused + %d unknown",
			e.Admitted, e.Confirmed, e.Refused, e.Unknown)
	}
}

func (c *Checker) owned(r *resource, e Event) {
	switch {
	case r.owner == "":
	case e.Epoch < r.epoch:
		c.fail(RuleEpoch, r, 0, "epoch %d after %d", e.Epoch, r.epoch)
	case e.Epoch == r.epoch && e.Owner != r.owner:
		c.fail(RuleEpoch, r, 0, "epoch %d has the owners %s and %s", e.Epoch, r.owner, e.Owner)
	case e.Epoch > r.epoch && !c.mayLose(r.owner) && (e.Cause == "" || c.restarts == r.restarts):
		c.fail(RuleCause, r, 0, "epoch %d → %d, owner %s → %s, cause %q, %d restarts since", r.epoch, e.Epoch, r.owner, e.Owner,
			e.Cause, c.restarts-r.restarts)
	}
	r.epoch, r.owner, r.restarts = e.Epoch, e.Owner, c.restarts
}

// mayLose reports whether an owner may rightly be replaced: it has ended, or something was done to it.
func (c *Checker) mayLose(owner string) bool {
	return c.ended[owner] || c.doubted[owner] || c.disturbed && !c.exact
}

func (c *Checker) damaged(r *resource, _ Event) {
	if !r.injected && !c.anyDamage {
		c.fail(RuleDamage, r, 0, "says that it is damaged, and nothing was injected")
	}
	r.damaged = true
}
