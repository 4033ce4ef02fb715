package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/quorum"
)

// operator is who changes what a cluster is to be, while it works.
type operator struct {
	w *world
	// hold is the setting follower_loss_hold; empty leaves it at its default.
	hold string
	// retain is retain_for_absent, and rate learner_rate; empty leaves them at their defaults.
	retain  string
	rate    string
	changed bool // something is not as it was at first
	// moves is set once copies may lose their places, or what is kept for them: until then nothing keeps one from going on with its log.
	moves bool
}

// newOperator draws how long lost followers keep their places: in clusters that have a node to spare mostly not for long.
func newOperator(w *world) *operator {
	rng := rand.New(rand.NewPCG(w.opt.Seed, 7))
	o := &operator{w: w}
	if holds := []string{"", "0", "1s", "1s", "2s", "4s"}; len(w.sites) > 3 {
		o.hold = holds[rng.IntN(len(holds))]
	}
	o.moves = o.hold != ""
	o.retain = []string{"", "", "0", "4KiB"}[rng.IntN(4)]
	o.rate = []string{"", "", "1MiB"}[rng.IntN(3)]
	return o
}

// propose has some node propose a change again and again until it is known to be done, or not to be wanted any more. item is made anew each
// time, from what the node knows; none ends it.
func (o *operator) propose(item func(v *catalog.View) []catalog.Item) {
	w := o.w
	again := func(d time.Duration) { w.sim.At(w.sim.Now()+d, func() { o.propose(item) }) }
	h := w.anyHost()
	if h == nil {
		again(50 * time.Millisecond)
		return
	}
	var items []catalog.Item
	h.node.View(func(v *catalog.View) { items = item(v) })
	if len(items) == 0 {
		return
	}
	cmd, err := catalog.Encode(items...)
	if err != nil {
		w.fail("an operator's change: %v", err)
		return
	}
	answered := false
	h.node.Propose(cmd, func(r catalog.Result, err error) {
		w.sim.At(w.sim.Now(), func() {
			first := !answered
			if answered = true; first && (err != nil || r.Err() != nil) {
				again(20 * time.Millisecond)
			}
		})
	})
	w.sim.At(w.sim.Now()+2*time.Second, func() { // the node may have gone with the question; what is done twice changes nothing
		if !answered {
			o.propose(item)
		}
	})
}

// settle puts the settings that the simulation begins with.
func (o *operator) settle() {
	o.set(catalog.FollowerLossHold, o.hold)
	o.set(catalog.RetainForAbsent, o.retain)
	o.set(catalog.LearnerRate, o.rate)
}

// set puts a setting.
func (o *operator) set(name, value string) {
	if value == "" {
		return
	}
	o.moves = o.moves || name == catalog.FollowerLossHold || name == catalog.RetainForAbsent
	value = o.w.opt.plant.setting(name, value)
	o.propose(func(v *catalog.View) []catalog.Item {
		version := uint64(0)
		if s := v.Setting(name); s != nil {
			if s.Value == value {
				return nil
			}
			version = s.Version
		}
		return []catalog.Item{catalog.PutSetting(name, value, version)}
	})
}

// wish changes the policy, or how many copies there are to be, of one resource.
func (o *operator) wish(p planned) {
	t := o.w.targets[p.a%uint64(len(o.w.targets))]
	if t.memory || t.maker || t.gone {
		return
	}
	policy, copies := "", uint32(0)
	if p.b%3 != 0 {
		policy = []string{"all_durable", "replica_durable(2)", "majority_durable", "local_durable"}[p.c%4]
	}
	if p.b%3 != 1 {
		copies = uint32(1 + p.c>>8%uint64(min(len(o.w.sites), 5)))
	}
	o.changed = true
	o.want(t.spec.Name, policy, copies)
}

// want has a resource wish for what is asked, and gives up once something else is: only the last wish of a resource counts.
func (o *operator) want(name, policy string, copies uint32) {
	w := o.w
	t := w.target(name)
	t.wishes++
	turn := t.wishes
	t.policy, t.copies = cmp.Or(policy, t.policy), cmp.Or(int(copies), t.copies)
	o.moves = true
	w.say("WISH of %s: %s, %d copies", name, policy, copies)
	o.propose(func(v *catalog.View) []catalog.Item {
		r := v.Resource("/", name)
		if r == nil || turn != t.wishes || (policy == "" || r.Policy == policy) && (copies == 0 || r.Target() == int(copies)) {
			return nil
		}
		return []catalog.Item{catalog.SetWishes("/", name, r.Incarnation, policy, copies)}
	})
}

// drain has a node be left for a while.
func (o *operator) drain(s *site, p planned) {
	o.changed = true
	o.draining(s, true)
	o.w.sim.At(o.w.sim.Now()+between(p.a, 100*time.Millisecond, 4*time.Second), func() { o.draining(s, false) })
}

func (o *operator) draining(s *site, yes bool) {
	s.drains++
	turn := s.drains
	o.moves = o.moves || yes
	o.w.say("DRAINING of %s: %v", s.name, yes)
	o.propose(func(v *catalog.View) []catalog.Item {
		n := v.Node(s.name)
		if n == nil || turn != s.drains || n.Draining == yes {
			return nil
		}
		return []catalog.Item{catalog.DrainNode(n.Name, n.Store, yes)}
	})
}

// restore asks for everything to be as it was at first, and again later: what was asked for before may be done yet, by a node that did not
// answer.
func (o *operator) restore() {
	if !o.changed {
		return
	}
	o.changed = false
	o.reset()
	for _, late := range []time.Duration{time.Second, 4 * time.Second, 8 * time.Second} {
		o.w.sim.At(o.w.sim.Now()+late, o.reset)
	}
}

// reset is one round of restore.
func (o *operator) reset() {
	if o.changed {
		return
	}
	policy, err := quorum.Parse(o.w.policy)
	if err != nil {
		o.w.fail("%v", err)
		return
	}
	for _, t := range o.w.targets {
		if !t.memory && !t.maker && t.born > 0 {
			o.want(t.spec.Name, policy.String(), catalog.DefaultCopies)
		}
	}
	for _, s := range o.w.sites {
		o.draining(s, false)
	}
}

// judged is the policy that owners are held to: the assignment's, unless it was declared with one that is planted.
func (w *world) judged(a *catalog.Assignment) (quorum.Policy, error) {
	if p := w.opt.plant.policy(); p != "" && a.Policy == p {
		return quorum.Parse(w.policy)
	}
	return quorum.Parse(a.Policy)
}

// unfinished says what is yet to change in the copies of a partition; empty if nothing is.
func (w *world) unfinished(r *catalog.Resource, a *catalog.Assignment) (text string) {
	if n := min(len(w.sites), r.Target()); a.Eligible() != n {
		text += fmt.Sprintf("%s has %d copies of %d; ", r.Name, a.Eligible(), n)
	}
	if len(a.Learners)+len(a.Leaving) > 0 {
		text += fmt.Sprintf("%s has the learners %v, and %v leave it; ", r.Name, a.Learners, a.Leaving)
	}
	if t := w.target(r.Name); t != nil && (t.policy != "" && r.Policy != t.policy || t.copies != 0 && r.Target() != t.copies) {
		text += fmt.Sprintf("%s wishes %s and %d copies, and was asked to wish %s and %d; ", r.Name, r.Policy, r.Target(), t.policy, t.copies)
	}
	if r.Policy != a.Policy {
		text += fmt.Sprintf("%s is confirmed by %s and wishes %s; ", r.Name, a.Policy, r.Policy)
	}
	return text
}

// loses reports whether a node's disk may be lost and nothing with it that was confirmed.
func (w *world) spared(a *catalog.Assignment, r *catalog.Resource) bool {
	p, err := w.judged(a)
	return err == nil && r.Policy == a.Policy && quorum.W(p, a.Eligible(), r.Kind) > 1 && !slices.ContainsFunc(a.Followers, func(m catalog.Member) bool {
		return slices.Contains(a.Leaving, m)
	})
}
