package control

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
)

const (
	// movesAtOnce bounds the copies that move for balance: nothing presses.
	movesAtOnce = 2
	// unbalanced is by how many copies two nodes must differ for one of them to move, and worthwhile by how many they must for a move that is
	// under way to go on.
	unbalanced, worthwhile = 2, 1
)

// keepsMoving reports whether a partition is one whose follower moves for balance, and should: nothing else is to do for it, and its node
// still has more copies than the other would. A follower that came back while another node was learning in its stead is judged alike. One
// that does not move on is given its place back by what follows.
func (p *planner) keepsMoving(w want) bool {
	a := w.a
	if len(w.held) > 0 || len(a.Learners) != 1 || len(a.Leaving) != 1 || a.Eligible() != w.target || !p.v.Tunables().Rebalance {
		return false
	}
	from, to := p.site(a.Leaving[0].Node), p.site(a.Learners[0].Node)
	if from == nil || to == nil || to.Store != a.Learners[0].Store || p.moves == movesAtOnce {
		return false
	}
	to.Load.Learning-- // as if it had not begun
	better := p.better(a, from, to, worthwhile)
	to.Load.Learning++
	if !better || !p.hopeful(to) {
		return false
	}
	from.Load.Followed-- // as if it was done
	p.moves++
	return true
}

// better reports whether a follower's copy would better be on another site: that has fewer copies by as many, and the partition's zones are
// no worse.
func (p *planner) better(a *catalog.Assignment, from, to *Site, by int) bool {
	if from.Load.Copies()-to.Load.Copies() < by {
		return false
	}
	zones := p.zones(a, nil)
	return from.Zone == to.Zone || zones[to.Zone] < zones[from.Zone]
}

// balance begins moves of followers' copies from sites that have many to sites that have few.
func (p *planner) balance() {
	begun := map[*catalog.Assignment]bool{}
	for p.moves < movesAtOnce && p.budget > 0 {
		var of *catalog.Assignment
		var who catalog.Member
		var to *Site
		gain := 0
		for _, r := range p.resources {
			if r.Home != nil {
				continue
			}
			for _, a := range r.Partitions {
				if a.Eligible() != r.Target() || len(a.Learners)+len(a.Leaving) > 0 || begun[a] {
					continue
				}
				if m, s, g := p.move(a); g > gain {
					of, who, to, gain = a, m, s, g
				}
			}
		}
		if of == nil {
			return
		}
		begun[of] = true
		p.moves++
		p.propose(of, []catalog.Member{who}, nil, to)
		p.site(who.Node).Load.Followed--
	}
}

// move is the best move of a partition's followers, and by how many copies its sites differ; 0 where none is good.
func (p *planner) move(a *catalog.Assignment) (who catalog.Member, to *Site, gain int) {
	for _, m := range a.Followers {
		from := p.site(m.Node)
		if from == nil {
			continue
		}
		for i := range p.sites {
			s := &p.sites[i]
			g := from.Load.Copies() - s.Load.Copies()
			if g <= gain || g < unbalanced || !s.open() || slices.ContainsFunc(asked(a), func(m catalog.Member) bool { return m.Node == s.Node }) {
				continue
			}
			if p.better(a, from, s, unbalanced) {
				who, to, gain = m, s, g
			}
		}
	}
	return who, to, gain
}
