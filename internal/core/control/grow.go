package control

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Growth is one step towards the copies that a partition wants: a learner to be added, or one to be given up because it is in the way.
type Growth struct {
	Partition ident.Partition
	Version   uint64 // of the assignment that it was decided on
	Member    catalog.Member
	Drop      bool
}

// Item is the guarded write that does it. A refusal means that the partition has moved on: decide anew.
func (g Growth) Item() catalog.Item {
	if g.Drop {
		return catalog.DropLearner(g.Partition, g.Version, g.Member)
	}
	return catalog.AddLearner(g.Partition, g.Version, g.Member)
}

// Grow says which partitions want another copy and where: those with fewer copies than their resource's target, and those with a
// follower on a node that came back with another store, which learns in its own place. It plans at most one step for a partition,
// none beside a transition or a learner that is on its way, and no more learners than would make limit partitions learn at a time, nor
// more than limit to be given up. Partitions come by incarnation. It goes through all of them: call it when nodes or resources have
// changed, or when a step has ended, and not in between. What is planned counts as load for what is planned next.
func Grow(v *catalog.View, sites []Site, limit int) []Growth {
	sites = slices.Clone(sites)
	var add, drop []Growth
	learning := 0
	for _, r := range v.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			if len(a.Learners) > 0 {
				learning++
			}
			switch g, ok := grow(a, r.Target(), sites); {
			case !ok:
			case g.Drop:
				drop = append(drop, g)
			case len(add) < limit:
				add = append(add, g)
				i := slices.IndexFunc(sites, func(s Site) bool { return s.Store == g.Member.Store })
				sites[i].Load.Learning++
			}
		}
	}
	add = add[:min(len(add), max(0, limit-learning))]
	return append(drop[:min(len(drop), max(0, limit))], add...)
}

// grow is the next step of one partition.
func grow(a *catalog.Assignment, target int, sites []Site) (Growth, bool) {
	step := Growth{Partition: a.Partition, Version: a.Version}
	if a.Pending != nil {
		return step, false
	}
	site := func(node string) *Site {
		i := slices.IndexFunc(sites, func(s Site) bool { return s.Node == node })
		if i < 0 {
			return nil
		}
		return &sites[i]
	}
	zones, places := map[string]int{}, map[string]bool{a.Owner.Node: true}
	if s := site(a.Owner.Node); s != nil {
		zones[s.Zone]++
	}
	var lost []string // nodes that came back with another store, where a follower's place is kept
	for _, m := range a.Followers {
		places[m.Node] = true
		switch s := site(m.Node); {
		case s == nil:
		case s.Store != m.Store:
			lost = append(lost, m.Node)
		default:
			zones[s.Zone]++
		}
	}
	free := slices.DeleteFunc(slices.Clone(sites), func(s Site) bool {
		wanted := slices.Contains(lost, s.Node) || !places[s.Node] && len(places) < target
		return !s.open() || a.Names(s.Store) || !wanted
	})
	for _, m := range a.Learners {
		s := site(m.Node)
		if s == nil || s.Store != m.Store || (!s.open() && len(free) > 0) ||
			(len(places) >= target && !slices.Contains(lost, m.Node)) {
			step.Member, step.Drop = m, true
			return step, true
		}
	}
	if len(a.Learners) > 0 || len(free) == 0 {
		return step, false
	}
	step.Member = best(free, zones, byHash(a.Partition.String())).member()
	return step, true
}
