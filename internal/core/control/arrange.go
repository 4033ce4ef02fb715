package control

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// learnerPatience is for how long a learner whose node is away is waited for at most, in milliseconds: what it holds is a part of the way.
// No longer than a follower's hold.
const learnerPatience = 60_000

// StepKind is what a Step does.
type StepKind uint8

// The kinds of step.
const (
	Learn  StepKind = iota // a further copy is to catch up
	GiveUp                 // a learner is dropped
	Mark                   // the list of followers that are to leave is another
)

// Step is one change towards the copies that a partition is to have.
type Step struct {
	Partition ident.Partition
	Version   uint64 // of the assignment that it finds, the steps before it done
	Kind      StepKind
	Member    catalog.Member   // of Learn and GiveUp
	Leaving   []catalog.Member // of Mark: the whole list
}

// Item is the guarded write that does it. A refusal means that the partition has moved on: arrange anew.
func (s Step) Item() catalog.Item {
	switch s.Kind {
	case GiveUp:
		return catalog.DropLearner(s.Partition, s.Version, s.Member)
	case Mark:
		return catalog.MarkLeaving(s.Partition, s.Version, s.Leaving)
	case Learn:
	}
	return catalog.AddLearner(s.Partition, s.Version, s.Member)
}

// String says it in words.
func (s Step) String() string {
	switch s.Kind {
	case GiveUp:
		return "the learner on " + s.Member.Node + " is given up"
	case Mark:
		nodes := make([]string, 0, len(s.Leaving))
		for _, m := range s.Leaving {
			nodes = append(nodes, m.Node)
		}
		return "leaving: " + first(strings.Join(nodes, ", "), "none")
	case Learn:
	}
	return s.Member.Node + " learns"
}

// Arrangement is what is to be done about copies.
type Arrangement struct {
	Steps []Step // in order; those of one partition are to be proposed together
	Held  []Held // as Holds has it
	// Next is when to arrange again even if nothing happens, in milliseconds since 1970; 0: time alone changes nothing.
	Next int64
}

// Arrange says what is to be done so that every durable partition has the copies that its resource wants, on nodes that are there: which
// nodes are to learn, which learners are not wanted any more, and which followers are to leave. The owners do the rest by the joint rule
// (design 2 §5, §6). now is in milliseconds since 1970.
//
// A follower that is to be replaced (Holds) leaves once another copy has caught up: on its own node, where that came back with another
// store, else where Place would put it. One that comes back with its store before that keeps its place; while it is away, what was begun
// goes on. Where there are more copies than
// wanted, those leave first that are not there. A partition has one learner at a time and nothing is begun beside a transition; no more
// than limit partitions learn at a time, those first that have too few copies to confirm. Where nothing else is to do, copies are balanced
// (balance.go). It goes through all partitions: call it when nodes, resources or settings have changed, at Next, and not in between.
func Arrange(v *catalog.View, sites []Site, now int64, limit int) Arrangement {
	p := planner{v: v, resources: v.AllResources(), sites: slices.Clone(sites), now: now, budget: limit}
	p.survey()
	for _, urgency := range [...]urgency{cannotConfirm, replaces, grows} {
		for _, x := range p.wants {
			if x.urgency == urgency {
				p.arrange(x)
			}
		}
	}
	if v.Tunables().Rebalance && p.idle && len(p.out.Steps) == 0 {
		p.balance()
	}
	return p.out
}

type planner struct {
	v         *catalog.View
	resources []*catalog.Resource // by incarnation
	sites     []Site
	now       int64
	budget    int // how many more partitions may learn
	wants     []want
	moves     int  // copies that move for balance
	idle      bool // nothing else is under way
	out       Arrangement
}

// want is a partition of which something may have to be done.
type want struct {
	a       *catalog.Assignment
	target  int
	held    []Held // all that are not simply there
	urgency urgency
}

type urgency uint8

const (
	cannotConfirm urgency = iota
	replaces
	grows
)

// survey finds the partitions of which something may have to be done.
func (p *planner) survey() {
	p.idle = true
	for _, r := range p.resources {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			held := HoldsOf(p.v, a, r.Kind, p.now)
			p.out.Held = append(p.out.Held, held...)
			held = slices.DeleteFunc(held, p.heard)
			w := want{a: a, target: r.Target(), held: held, urgency: grows}
			for _, h := range held {
				p.at(h.Until)
				switch h.Fate {
				case Kept:
				case TooFewLeft:
					w.urgency = cannotConfirm
				case HoldOver, Drained, StoreReplaced, NodeRemoved:
					w.urgency = min(w.urgency, replaces)
				}
			}
			if len(a.Learners) > 0 {
				p.budget--
			}
			if a.Pending != nil {
				p.idle = false
				continue
			}
			if len(held)+len(a.Learners)+len(a.Leaving) > 0 || a.Eligible() != w.target {
				p.wants = append(p.wants, w)
			}
		}
	}
}

// heard reports whether a follower is there that the catalog has as away: it has come back, and that is still to be written down.
func (p *planner) heard(h Held) bool {
	s := p.site(h.Member.Node)
	return h.Since != 0 && h.Fate != Drained && s != nil && s.Live && s.Store == h.Member.Store
}

// at asks to arrange again at a time that is to come.
func (p *planner) at(t int64) {
	if t > p.now && (p.out.Next == 0 || t < p.out.Next) {
		p.out.Next = t
	}
}

func (p *planner) site(node string) *Site {
	i := slices.IndexFunc(p.sites, func(s Site) bool { return s.Node == node })
	if i < 0 {
		return nil
	}
	return &p.sites[i]
}

// arrange plans the steps of one partition.
func (p *planner) arrange(w want) {
	a := w.a
	if p.keepsMoving(w) {
		return
	}
	leave, replaced := p.leavers(w)
	need := max(0, w.target-a.Eligible()) + len(replaced)
	free := p.free(w, replaced, need)
	kept, dropped := p.learners(w, replaced, need, len(free) > 0)
	var add *Site
	if p.noneComes(kept) && len(kept) < need && len(free) > 0 && (p.budget > 0 || len(a.Learners) > 0) {
		s := p.best(a, free, replaced)
		add = p.site(s.Node)
	}
	for _, m := range replaced {
		own := func(l catalog.Member) bool { return l.Node == m.Node }
		switch {
		case add != nil && add.Node == m.Node, slices.ContainsFunc(kept, own): // it needs no mark
		case add != nil, len(kept) > 0, slices.Contains(a.Leaving, m) && len(free) > 0: // where nothing can take its place, it stays
			leave = append(leave, m)
		}
	}
	p.idle = p.idle && len(w.held) == 0 && len(kept) == 0
	p.propose(a, leave, dropped, add)
}

// propose writes down the steps that lead from an assignment to what is wanted of it.
func (p *planner) propose(a *catalog.Assignment, leave, dropped []catalog.Member, add *Site) {
	version := a.Version
	step := func(s Step) {
		s.Partition, s.Version = a.Partition, version
		p.out.Steps = append(p.out.Steps, s)
		version++
	}
	for _, l := range dropped {
		step(Step{Kind: GiveUp, Member: l})
	}
	if !sameMembers(a.Leaving, leave) {
		step(Step{Kind: Mark, Leaving: leave})
	}
	if add != nil {
		step(Step{Kind: Learn, Member: add.member()})
		add.Load.Learning++
		if len(a.Learners) == 0 {
			p.budget--
		}
	}
}

func sameMembers(a, b []catalog.Member) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(m catalog.Member) bool { return !slices.Contains(b, m) })
}

// leavers are the followers that are to leave because there are more copies than wanted, and those whose place another is to take.
func (p *planner) leavers(w want) (leave, replaced []catalog.Member) {
	a := w.a
	fate := func(m catalog.Member) (Fate, bool) {
		i := slices.IndexFunc(w.held, func(h Held) bool { return h.Member == m })
		if i < 0 {
			return 0, false
		}
		return w.held[i].Fate, true
	}
	if excess := a.Eligible() - w.target; excess > 0 {
		rank := func(m catalog.Member) int {
			switch f, away := fate(m); {
			case !away:
				return 3
			case f == Drained:
				return 2
			case f == Kept:
				return 1
			}
			return 0
		}
		zones, tie := p.zones(a, nil), byHash(a.Partition.String())
		order := slices.Clone(a.Followers)
		load := func(m catalog.Member) int { return p.v.Load(m.Store).Copies() }
		zone := func(m catalog.Member) int {
			if s := p.site(m.Node); s != nil {
				return zones[s.Zone]
			}
			return 0
		}
		slices.SortFunc(order, func(x, y catalog.Member) int {
			return cmp.Or(cmp.Compare(rank(x), rank(y)), compareBool(!slices.Contains(a.Leaving, x), !slices.Contains(a.Leaving, y)),
				cmp.Compare(zone(y), zone(x)), cmp.Compare(load(y), load(x)), tie(x.Node, y.Node))
		})
		leave = slices.Clone(order[:min(excess, len(order))])
	}
	for _, m := range a.Followers {
		f, away := fate(m)
		begun := slices.Contains(a.Leaving, m) && len(a.Learners) > 0
		if away && (f != Kept || begun) && !slices.Contains(leave, m) {
			replaced = append(replaced, m)
		}
	}
	return leave, replaced
}

// free are the sites that a further copy could go to, if one is needed.
func (p *planner) free(w want, replaced []catalog.Member, need int) []Site {
	a := w.a
	if need == 0 {
		return nil
	}
	elsewhere := need > p.ownPlaces(replaced)
	return slices.DeleteFunc(slices.Clone(p.sites), func(s Site) bool {
		if !s.open() || a.Names(s.Store) || s.Node == a.Owner.Node {
			return true
		}
		if i := slices.IndexFunc(a.Followers, func(m catalog.Member) bool { return m.Node == s.Node }); i >= 0 {
			return !slices.Contains(replaced, a.Followers[i]) // its own node, with another store
		}
		return !elsewhere
	})
}

// ownPlaces counts the followers to be replaced whose own nodes are to take a copy on another store: those that are there, or on their way.
func (p *planner) ownPlaces(replaced []catalog.Member) (count int) {
	for _, m := range replaced {
		if n := p.v.Node(m.Node); n != nil && n.Store != m.Store && !n.Draining && n.Absent == 0 {
			count++
		}
	}
	return count
}

// best is where a further copy goes: to the own node of a follower that came back with another store, else where Place would put it.
func (p *planner) best(a *catalog.Assignment, free []Site, replaced []catalog.Member) Site {
	own := slices.DeleteFunc(slices.Clone(free), func(s Site) bool {
		return !slices.ContainsFunc(replaced, func(m catalog.Member) bool { return m.Node == s.Node })
	})
	if len(own) > 0 {
		free = own
	}
	return best(free, p.zones(a, replaced), byHash(a.Partition.String()))
}

// zones counts the copies of a partition in each zone, but some.
func (p *planner) zones(a *catalog.Assignment, but []catalog.Member) map[string]int {
	zones := map[string]int{}
	for _, m := range asked(a) {
		if s := p.site(m.Node); s != nil && s.Store == m.Store && !slices.Contains(but, m) {
			zones[s.Zone]++
		}
	}
	return zones
}

// learners are those of a partition that go on, and those that are given up: more than are needed, and those whose nodes have gone, or
// are away, full or to be left while another could learn.
func (p *planner) learners(w want, replaced []catalog.Member, need int, others bool) (kept, dropped []catalog.Member) {
	a := w.a
	for _, l := range a.Learners {
		s := p.site(l.Node)
		own := slices.ContainsFunc(replaced, func(m catalog.Member) bool { return m.Node == l.Node })
		taken := !own && slices.ContainsFunc(a.Followers, func(m catalog.Member) bool { return m.Node == l.Node })
		if s == nil || s.Store != l.Store || taken || len(kept) >= need || others && !p.hopeful(s) {
			dropped = append(dropped, l)
		} else {
			kept = append(kept, l)
		}
	}
	return kept, dropped
}

// noneComes reports whether no learner's node is there: where several are needed, others need not wait for those.
func (p *planner) noneComes(kept []catalog.Member) bool {
	return !slices.ContainsFunc(kept, func(l catalog.Member) bool { return p.site(l.Node).Live })
}

// hopeful reports whether a learner on a site may still come through, and asks to arrange again when it may not.
func (p *planner) hopeful(s *Site) bool {
	n := p.v.Node(s.Node)
	if n == nil || n.Draining || s.Full {
		return false
	}
	if n.Absent == 0 {
		return true
	}
	until := n.Absent + min(learnerPatience, p.v.Tunables().HoldMillis())
	p.at(until)
	return until > p.now
}
