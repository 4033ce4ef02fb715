package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/quorum"
)

// redundancy looks at every replicated partition that does not wait already. Those that miss the same nodes stand together, since what
// would end them is the same.
func (s *survey) redundancy() {
	groups := map[[2]string]int{} // index in out
	for _, r := range s.k.View.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			c, ok := s.redundant(a, r)
			if !ok || s.waits[a.Partition] {
				continue
			}
			name, show, _ := s.resource(a.Partition)
			key := [2]string{string(c.Code), c.Subject}
			i, known := groups[key]
			if !known {
				i = len(s.out)
				groups[key] = i
				c.What, c.Next = c.What+": "+name, first(c.Next, show)
				s.add(c)
			} else if s.out[i].Partitions < maxExamples {
				s.out[i].What += "; " + name
			} else if s.out[i].Partitions == maxExamples {
				s.out[i].What += "; …"
			}
			s.out[i].Partitions++
		}
	}
}

// redundant says what one partition lacks.
func (s *survey) redundant(a *catalog.Assignment, r *catalog.Resource) (Condition, bool) {
	e := a.Eligible()
	w := e // of a policy that cannot be read, the strictest
	if p, err := quorum.Parse(a.Policy); err == nil {
		w = quorum.W(p, e, r.Kind)
	}
	var missing []string
	for _, m := range append([]catalog.Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers...) {
		n := s.k.View.Node(m.Node)
		if n == nil || n.Store != m.Store || !s.nodes[m.Node].Live || s.nodes[m.Node].Closed || slices.Contains(s.damaged[a.Partition], m.Node) {
			missing = append(missing, m.Node)
		}
	}
	slices.Sort(missing)
	have, without := e-len(missing), strings.Join(missing, ", ")
	if len(missing) == 0 {
		return s.fewer(a, r)
	}
	since := int64(0) // when the last of them was lost: the condition is what it is since then
	for _, m := range missing {
		since = max(since, s.nodes[m].Since)
	}
	held := HoldsOf(s.k.View, a, r.Kind, s.k.Now)
	c := Condition{Code: UnderReplicated, Subject: "without " + without, Since: since, Limit: MissingQuorum, Ends: s.returns(a, missing, held)}
	switch {
	case have < w:
		c.Subject, c.What = "too few without "+without, "too few copies are left to confirm anything"
		c.last = s.planLoss(a.Partition)
		c.Ends += s.start(missing)
	case have == w:
		c.Code, c.What = QuorumCritical, "if one more copy goes, nothing can be confirmed"
	case allKept(missing, held):
		c.Code, c.Limit, c.Notice, c.Next = HoldRunning, "", true, "tanist node list"
		c.What = "copies enough are left, and the place of who is away is kept"
	default:
		c.What = "copies are missing"
	}
	return c, true
}

// fewer says that a partition whose copies are all there has fewer of them than were asked for, and nodes enough are registered.
func (s *survey) fewer(a *catalog.Assignment, r *catalog.Resource) (Condition, bool) {
	have, want := a.Eligible(), min(r.Target(), len(s.k.View.Nodes()))
	there := func(m catalog.Member) bool { return s.nodes[m.Node].Live && !s.nodes[m.Node].Closed }
	if have >= want || slices.ContainsFunc(a.Learners, there) {
		return Condition{}, false
	}
	c := Condition{
		Code: UnderReplicated, Subject: fmt.Sprintf("%d of %d copies", have, want), What: "fewer copies than were asked for",
		Limit: ResourcePressure, Ends: "the missing ones have learned, which begins by itself",
	}
	switch {
	case len(a.Learners) > 0:
		var away []string
		for _, m := range a.Learners {
			away = append(away, m.Node)
		}
		c.What += ", and who is to learn is away"
		c.Ends, c.Next = strings.Join(away, ", ")+" is back, or another node has learned in its place", "tanist node list"
	case !s.room(a):
		c.Ends, c.Next = "a node that is not away, full or draining can take another, or fewer are asked for (tanist policy)", "tanist node list"
	}
	return c, true
}

// allKept reports whether the places of all who are missing are kept.
func allKept(missing []string, held []Held) bool {
	return !slices.ContainsFunc(missing, func(node string) bool {
		return !slices.ContainsFunc(held, func(h Held) bool { return h.Member.Node == node && h.Fate == Kept })
	})
}

// returns says what would bring back the copies of nodes that are missing, each for itself.
func (s *survey) returns(a *catalog.Assignment, missing []string, held []Held) string {
	var out []string
	for _, node := range missing {
		i := slices.IndexFunc(held, func(h Held) bool { return h.Member.Node == node })
		if i < 0 {
			out = append(out, node+" is back")
			continue
		}
		out = append(out, s.ending(a, held[i]))
	}
	return strings.Join(out, "; ")
}

// ending says what would end the absence of one follower.
func (s *survey) ending(a *catalog.Assignment, h Held) string {
	back, other := h.Member.Node+" is back", "another node has learned in its place"
	switch {
	case h.Fate == StoreReplaced:
		return h.Member.Node + ", which came back with another store, or another node has learned in its place"
	case h.Fate == NodeRemoved:
		back, other = "another node has learned in the place of "+h.Member.Node+", which was removed", ""
	case h.Learner != "":
		return back + ", or " + h.Learner + " has learned in its place, which it does now"
	case !s.room(a):
		other = "a node joins that can take its place"
	}
	if other != "" {
		back += ", or " + other
	}
	if h.Fate == Kept {
		back += fmt.Sprintf("; the place is kept for another %v", (time.Duration(h.Until-s.k.Now) * time.Millisecond).Round(time.Second))
	}
	return back
}

// drains says which draining nodes keep copies because no other node can take them. It is no obstacle to health: all copies are there.
func (s *survey) drains() {
	stay := map[string]int{}
	for _, r := range s.k.View.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			if len(a.Learners) > 0 || s.room(a) {
				continue
			}
			for _, h := range HoldsOf(s.k.View, a, r.Kind, s.k.Now) {
				if h.Fate == Drained && s.nodes[h.Member.Node].Live {
					stay[h.Member.Node]++
				}
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(stay)) {
		s.add(Condition{
			Code: DrainWaits, Subject: node, What: fmt.Sprintf("it is draining, and %s there that no other node can take", stays(stay[node])), Notice: true,
			Limit: ResourcePressure, Partitions: stay[node], Next: "tanist node list",
			Ends: "a node that is not away, full or draining can take them, or fewer copies are asked for (tanist policy), or tanist node undrain " + Quoted(node),
		})
	}
}

func stays(n int) string {
	if n == 1 {
		return "1 copy stays"
	}
	return fmt.Sprintf("%d copies stay", n)
}
