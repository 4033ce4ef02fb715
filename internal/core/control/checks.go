package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Obstacle is one thing that stands against what was asked.
type Obstacle struct {
	Subject string `json:"subject"` // the catalog, a node, or a resource with its partition
	What    string `json:"what"`
	Next    string `json:"next"` // the command that shows more
}

// End is where an owner's log ended, and up to where it was confirmed, when it was asked before the copies were: what a copy holds of that
// by now, it does not lack for want of time. Answers of several nodes are of no one moment, so nothing less would be true under load.
type End struct{ Position, Confirmed uint64 }

// Unhealthy says what keeps a cluster from being healthy: every registered node is live and its store takes writes, unless it is away,
// holds no place in any partition and votes on nothing; the catalog can be changed and has the voters that it should have; and every
// durable partition is served by its owner with no transition pending, with as many copies as it wants and can have, as its wishes say, and
// with every copy holding durably what its owner had when it was asked first. It says at most MaxConditions, nodes before partitions; total
// is how many there are. Source: issue 4, "wait healthy"; issue 5: it is healthy once what a lost node held is replaced.
func Unhealthy(k Known) (list []Obstacle, total int) {
	s := newSurvey(k)
	var out []Obstacle
	if k.NoQuorum != "" {
		out = append(out, Obstacle{"catalog", k.NoQuorum, "tanist node list"})
	} else if k.VotersDue != "" {
		out = append(out, Obstacle{"catalog", k.VotersDue, "tanist node list"})
	}
	for _, n := range k.View.Nodes() {
		switch x := s.nodes[n.Name]; {
		case !x.Live && s.needless(n):
		case !x.Live:
			out = append(out, Obstacle{"node " + n.Name, "it is not live" + because(x.Reason), "tanist node list"})
		case x.Closed:
			out = append(out, Obstacle{"node " + n.Name, "its store takes no more writes" + because(x.Reason), "tanist node list"})
		}
	}
	for _, r := range k.View.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			if why := s.unhealthy(a, r); why != "" {
				name, show, _ := s.resource(a.Partition)
				out = append(out, Obstacle{name, why, show})
			}
		}
	}
	return out[:min(len(out), MaxConditions)], len(out)
}

// needless reports whether nothing needs a node: it has no place in any durable partition, and no vote.
func (s *survey) needless(n *catalog.Node) bool {
	if slices.Contains(s.k.Voters, n.Name) {
		return false
	}
	for _, r := range s.k.View.AllResources() {
		for _, a := range r.Partitions {
			if r.Home != nil {
				continue
			}
			if a.Owner.Node == n.Name || slices.ContainsFunc(slices.Concat(a.Followers, a.Learners), func(m catalog.Member) bool { return m.Node == n.Name }) {
				return false
			}
		}
	}
	return true
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// unhealthy says what one partition lacks; "" if nothing.
func (s *survey) unhealthy(a *catalog.Assignment, r *catalog.Resource) string {
	if why := s.unserved(a); why != "" {
		return why
	}
	end, known := s.k.Ends[a.Partition]
	if !known {
		return "its owner has not said where its log ends"
	}
	var lacks []string
	for _, f := range a.Followers {
		if why := s.lacks(a, f, end.Position); why != "" {
			lacks = append(lacks, f.Node+" "+why)
		}
	}
	for _, h := range HoldsOf(s.k.View, a, r.Kind, s.k.Now) {
		if h.Fate == Drained && !slices.Contains(a.Leaving, h.Member) && s.room(a) {
			lacks = append(lacks, "the copy on "+h.Member.Node+" is to leave, since its node is draining")
		}
	}
	lacks = append(lacks, underWay(r, a)...)
	if missing := missingCopies(r, a); missing != "" && len(lacks) == 0 && s.room(a) {
		lacks = append(lacks, missing+", and there is a node for another")
	}
	return strings.Join(lacks, "; ")
}

// room reports whether a node could take another copy.
func (s *survey) room(a *catalog.Assignment) bool {
	return slices.ContainsFunc(s.k.View.Nodes(), func(n *catalog.Node) bool {
		x := s.nodes[n.Name]
		return x.Live && !x.Closed && !x.Blocked && !n.Draining && !a.Names(n.Store)
	})
}

// unserved says why clients are not served by a partition's owner; "" if they are.
func (s *survey) unserved(a *catalog.Assignment) string {
	if a.Pending != nil {
		return "a change of its owner is under way: " + a.Pending.Cause
	}
	owner := s.held[copyKey{a.Partition, a.Owner.Node}]
	switch {
	case a.Owner.Node == "":
		return "it has no owner yet"
	case !s.nodes[a.Owner.Node].Live:
		return "its owner's node " + a.Owner.Node + " is not live"
	case owner == nil || owner.Run != a.Owner || owner.Epoch != a.Epoch:
		return "its owner " + a.Owner.Node + " has not taken it over yet"
	case !owner.Serves:
		return "its owner " + a.Owner.Node + " does not serve it yet" + because(owner.Reason)
	}
	return ""
}

// lacks says why a follower's copy does not take part and hold everything up to a position; "" if it does.
func (s *survey) lacks(a *catalog.Assignment, m catalog.Member, position uint64) string {
	n, x := s.k.View.Node(m.Node), s.held[copyKey{a.Partition, m.Node}]
	owner := s.held[copyKey{a.Partition, a.Owner.Node}]
	switch state := s.nodes[m.Node]; {
	case n == nil || n.Store != m.Store:
		return "has another store, and must learn anew"
	case !state.Live:
		return "is not live"
	case state.Closed:
		return "takes no more writes"
	case x == nil || x.Run.Store != m.Store:
		return "holds no copy"
	case x.Damaged != "":
		return "is damaged: " + x.Damaged
	case x.Epoch != a.Epoch:
		return fmt.Sprintf("has not taken up epoch %d yet", a.Epoch)
	case owner != nil && !slices.Contains(owner.Feeds, m.Node):
		return "takes nothing from its owner " + a.Owner.Node
	case x.Durable < position:
		return fmt.Sprintf("is %s behind", entries(position-x.Durable))
	}
	return ""
}

func entries(n uint64) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

// StopsWithout says what would stop if a node was stopped now: the catalog would lose its majority; a partition would have fewer copies
// left than a confirm needs, counting those that take part and hold all that was confirmed when its owner was asked first; or, of one that
// the node owns, fewer copies could answer than a new owner needs. A partition with a place on the node that is not served now, or whose
// owner is being changed, is named too: what would become of it cannot be told. With none the node may be stopped. At most MaxConditions,
// the catalog first; total is how many there are. Source: design 6 "check quorum-critical".
func StopsWithout(k Known, node string) (list []Obstacle, total int) {
	s := newSurvey(k)
	var out []Obstacle
	left := 0
	for _, v := range k.Voters {
		if v != node && s.nodes[v].Live && !s.nodes[v].Closed {
			left++
		}
	}
	switch need := len(k.Voters)/2 + 1; {
	case k.NoQuorum != "":
		out = append(out, Obstacle{"catalog", k.NoQuorum, "tanist node list"})
	case left < need:
		out = append(out, Obstacle{
			"catalog", fmt.Sprintf("%d of %s would be left, and it takes %d: nothing could be declared or moved", left, plural(len(k.Voters), "voter"), need),
			"tanist node list",
		})
	}
	for _, r := range k.View.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			if why := s.critical(a, r, node); why != "" {
				name, show, _ := s.resource(a.Partition)
				out = append(out, Obstacle{name, why, show})
			}
		}
	}
	return out[:min(len(out), MaxConditions)], len(out)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// critical says what would become of one partition without a node; "" if it goes on.
func (s *survey) critical(a *catalog.Assignment, r *catalog.Resource, node string) string {
	owns := a.Owner.Node == node
	if !owns && !slices.ContainsFunc(a.Followers, func(m catalog.Member) bool { return m.Node == node }) {
		return ""
	}
	if why := s.unserved(a); why != "" {
		return why
	}
	if a.Eligible() == 1 {
		return "its only copy is there"
	}
	e := a.Eligible()
	w, rr := e, e
	if p, err := quorum.Parse(a.Policy); err == nil {
		w, rr = quorum.W(p, e, r.Kind), quorum.R(p, e, r.Kind)
	}
	confirm, answer := 0, 0
	var lacks []string
	if !owns {
		confirm++
	}
	for _, f := range a.Followers {
		if f.Node == node {
			continue
		}
		why := s.lacks(a, f, s.k.Ends[a.Partition].Confirmed)
		if why == "" {
			confirm++
		} else {
			lacks = append(lacks, f.Node+" "+why)
		}
		if s.answers(a, f) {
			answer++
		}
	}
	missing := ""
	if len(lacks) > 0 {
		missing = " (" + strings.Join(lacks, "; ") + ")"
	}
	switch {
	case confirm < w:
		return fmt.Sprintf("%s in step would be left, %s confirms with %d%s", copies(confirm), first(a.Policy, "majority_durable"), w, missing)
	case owns && answer < rr:
		return fmt.Sprintf("%s could answer, a new owner needs %d%s", copies(answer), rr, missing)
	}
	return ""
}

// answers reports whether a copy's answer to a seal would count.
func (s *survey) answers(a *catalog.Assignment, m catalog.Member) bool {
	x := s.held[copyKey{a.Partition, m.Node}]
	return s.nodes[m.Node].Live && x != nil && x.Run.Store == m.Store && x.Damaged == ""
}

func copies(n int) string {
	if n == 1 {
		return "1 copy"
	}
	return fmt.Sprintf("%d copies", n)
}

func first(words ...string) string {
	return words[slices.IndexFunc(words, func(w string) bool { return w != "" })]
}

// copyKey names one copy.
type copyKey struct {
	partition ident.Partition
	node      string
}

// Candidates says which copies could own their partitions.
type Candidates struct{ s survey }

// NewCandidates takes what is known of all copies.
func NewCandidates(k Known) Candidates { return Candidates{newSurvey(k)} }

// Unfit says what stands against a copy's owning its partition if its owner was lost now, as far as the copies have said; "" where nothing
// does. Who does own then is for the answers to the seals. Source: design 2 §5 step 3.
func (c Candidates) Unfit(a *catalog.Assignment, node string) string {
	s := &c.s
	n, x := s.k.View.Node(node), s.held[copyKey{a.Partition, node}]
	switch state := s.nodes[node]; {
	case slices.ContainsFunc(a.Learners, func(m catalog.Member) bool { return m.Node == node }):
		return "it is learning, and counts for nothing until it is a follower"
	case n == nil || !admitted(a, node, n.Store):
		return "its store is not one that the catalog admits"
	case !state.Live:
		return "its node is not live" + because(state.Reason)
	case state.Closed:
		return "its store takes no more writes" + because(state.Reason)
	case x == nil || x.Run.Store != n.Store:
		return "it holds nothing"
	case x.Damaged != "":
		return "it is damaged: " + x.Damaged
	case x.Durable < s.k.Ends[a.Partition].Confirmed:
		return fmt.Sprintf("it lacks %s of what is confirmed", entries(s.k.Ends[a.Partition].Confirmed-x.Durable))
	}
	return ""
}
