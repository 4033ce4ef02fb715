package catalog

import (
	"slices"

	"github.com/tanist/tanist/internal/core/codec"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Changes of a partition's copies that keep owner and epoch (design 2 §5, the joint rule).

// learner names a place to be made or given up.
type learner struct {
	partition ident.Partition
	version   uint64
	member    Member
}

func (c *coder) learner(l *learner) {
	c.Partition(&l.partition)
	c.U64(&l.version)
	c.member(&l.member)
}

// AddLearner names a copy that is to catch up and counts for nothing until then, if the assignment is still at version. It is
// refused with TransitionMoved while a transition is pending, with Exists if the store has a place already, and with NotFound or
// StoreMoved if it is not a registered node's. The store of a node that came back empty may learn while its old store's place is
// kept. Transient partitions have one copy only: Invalid. Decide anew on every refusal but Exists and Invalid.
func AddLearner(p ident.Partition, version uint64, m Member) Item {
	l := learner{p, version, m}
	return item(opAddLearner, func(c *coder) { c.learner(&l) })
}

// DropLearner gives up a copy that was catching up, by its store, if the assignment is still at version. Refused as AddLearner is;
// with NotFound if the store is no learner here.
func DropLearner(p ident.Partition, version uint64, m Member) Item {
	l := learner{p, version, m}
	return item(opDropLearner, func(c *coder) { c.learner(&l) })
}

// MarkLeaving says which followers are to leave, in the stead of what was said before, if the assignment is still at version. It is refused
// with VersionMoved; with TransitionMoved while a transition is pending; with NotFound if one is no follower, and with Invalid if one is
// named twice or the partition is transient. What is marked already changes nothing. Decide anew on every refusal but Invalid.
func MarkLeaving(p ident.Partition, version uint64, leaving []Member) Item {
	l := leave{p, version, leaving}
	return item(opMarkLeaving, func(c *coder) { c.leaving(&l) })
}

type leave struct {
	partition ident.Partition
	version   uint64
	members   []Member
}

func (c *coder) leaving(l *leave) {
	c.Partition(&l.partition)
	c.U64(&l.version)
	codec.List(c, &l.members, (*coder).member)
}

// Evidence says that a copy holds the log durably below a position.
type Evidence struct {
	Store    ident.StoreID `json:"store"`
	Position uint64        `json:"position"`
}

// Membership is a change of the copies or the policy of a partition under the same owner and epoch.
type Membership struct {
	Partition ident.Partition
	Version   uint64 // of the assignment that it was decided on
	Epoch     uint64
	Followers []Member // the whole new set but the owner; each must be a follower or a learner now
	Learners  []Member // all that are to remain
	Policy    string
	// Floor is max(confirmed position, where this epoch's start mark ends), read after the owner began to confirm by both sets.
	// Evidence is by store; W′ of the new set, the owner counted, must stand at Floor or above.
	Floor    uint64
	Evidence []Evidence
}

// ChangeMembers changes a partition's followers, learners and policy; what is no follower any more is not leaving either. Only the owner of
// the epoch may propose it, while it confirms what satisfies the old and the new set both, until it knows the answer (design 2 §5). It is
// refused with VersionMoved if the version or the epoch has moved; with TransitionMoved while a transition is pending; with Unproven if the
// evidence does not show that W′ of the new set hold everything below Floor, or Floor is not past this epoch's start; with Invalid if a
// follower was neither follower nor learner, a node has two places that count, or the policy is none; with NotFound or StoreMoved if a
// learner that is to follow is not on its node's registered store any more. Every refusal is an answer: nothing changed.
func ChangeMembers(m Membership) Item {
	return item(opChangeMembers, func(c *coder) { c.membership(&m) })
}

func (c *coder) membership(m *Membership) {
	c.Partition(&m.Partition)
	c.U64(&m.Version)
	c.U64(&m.Epoch)
	codec.List(c, &m.Followers, (*coder).member)
	codec.List(c, &m.Learners, (*coder).member)
	c.Name(&m.Policy)
	c.U64(&m.Floor)
	codec.List(c, &m.Evidence, func(c *coder, e *Evidence) {
		c.Fixed(e.Store[:])
		c.U64(&e.Position)
	})
}

// nodeTwice reports whether a node has two places that count, which would let one machine confirm twice.
func nodeTwice(owner string, followers []Member) bool {
	names := []string{owner}
	for _, m := range followers {
		names = append(names, m.Node)
	}
	slices.Sort(names)
	return len(slices.Compact(names)) != 1+len(followers)
}

// distinct reports whether no node has two places that count and no store has two at all. A node may learn on a new store while the
// place of its old one is kept.
func distinct(owner ident.Instance, followers, learners []Member) bool {
	if nodeTwice(owner.Node, followers) {
		return false
	}
	stores := map[ident.StoreID]bool{owner.Store: true}
	for _, m := range slices.Concat(followers, learners) {
		if stores[m.Store] {
			return false
		}
		stores[m.Store] = true
	}
	return true
}

// stored checks that a member is a registered node with its store.
func (s *State) stored(m Member) *Refusal {
	n := s.view.Node(m.Node)
	switch {
	case n == nil:
		return &Refusal{Code: NotFound, What: "node", Name: m.Node}
	case n.Store != m.Store:
		return &Refusal{
			Code: StoreMoved, What: "node", Name: m.Node, Argument: "store", Have: n.Store.String(), Want: m.Store.String(),
		}
	}
	return nil
}

// steady finds an assignment at a version that no transition is about to change, and that may have more than one copy.
func (s *State) steady(p ident.Partition, version uint64) (*Assignment, *Refusal) {
	a, refused := s.guard(p, version)
	switch {
	case refused != nil:
		return nil, refused
	case p.Transient():
		return nil, &Refusal{Code: Invalid, What: "partition", Name: p.String(), Argument: "copies", Want: "it lives in memory and has one"}
	case a.Pending != nil:
		return nil, transitionMoved(a, "none").Refused
	}
	return a, nil
}

func (s *State) addLearner(l *learner) ItemResult {
	a, refused := s.steady(l.partition, l.version)
	if refused == nil {
		refused = s.stored(l.member)
	}
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	if a.Names(l.member.Store) {
		return refuse(Refusal{Code: Exists, What: "copy", Name: l.partition.String() + " on " + l.member.Node})
	}
	if a.Eligible()+len(a.Learners) >= quorum.MaxCopies {
		return refuse(Refusal{Code: Invalid, What: "partition", Name: l.partition.String(), Argument: "learners", Want: "too many"})
	}
	after := *a
	after.Learners = append(slices.Clone(a.Learners), l.member)
	return s.assign(after)
}

func (s *State) dropLearner(l *learner) ItemResult {
	a, refused := s.steady(l.partition, l.version)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	left := slices.DeleteFunc(slices.Clone(a.Learners), func(m Member) bool { return m.Store == l.member.Store })
	if len(left) == len(a.Learners) {
		return refuse(Refusal{Code: NotFound, What: "learner", Name: l.partition.String() + " on " + l.member.Node})
	}
	after := *a
	after.Learners = left
	return s.assign(after)
}

func (s *State) markLeaving(l *leave) ItemResult {
	a, refused := s.steady(l.partition, l.version)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	for i, m := range l.members {
		if !slices.Contains(a.Followers, m) {
			return refuse(Refusal{Code: NotFound, What: "follower", Name: l.partition.String() + " on " + m.Node})
		}
		if slices.Contains(l.members[:i], m) {
			return refuse(Refusal{Code: Invalid, What: "partition", Name: l.partition.String(), Argument: "leaving", Want: m.Node + " is named twice"})
		}
	}
	if slices.Equal(a.Leaving, l.members) {
		return done(s.view.Incarnation(l.partition.Incarnation))
	}
	after := *a
	after.Leaving = l.members
	return s.assign(after)
}

// among are those of some members that are in a list, in their order.
func among(some, list []Member) []Member {
	var out []Member
	for _, m := range some {
		if slices.Contains(list, m) {
			out = append(out, m)
		}
	}
	return out
}

func (s *State) changeMembers(m *Membership) ItemResult {
	a, refused := s.steady(m.Partition, m.Version)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	if a.Epoch != m.Epoch {
		return refuse(Refusal{
			Code: VersionMoved, What: "partition", Name: m.Partition.String(), Argument: "epoch", Have: number(a.Epoch), Want: number(m.Epoch),
		})
	}
	invalid := func(argument, why string) ItemResult {
		return refuse(Refusal{Code: Invalid, What: "partition", Name: m.Partition.String(), Argument: argument, Want: why})
	}
	if len(m.Followers)+len(m.Learners) >= quorum.MaxCopies || !distinct(a.Owner, m.Followers, m.Learners) {
		return invalid("members", "too many, a store twice, or two places on one node")
	}
	for _, f := range slices.Concat(m.Followers, m.Learners) {
		if !slices.Contains(a.Followers, f) && !slices.Contains(a.Learners, f) {
			return invalid("members", "the copy on "+f.Node+" is neither a follower nor a learner now")
		}
	}
	for _, f := range m.Followers {
		if slices.Contains(a.Followers, f) {
			continue
		}
		if refused := s.stored(f); refused != nil { // what it held is gone, whatever the evidence says
			return ItemResult{Refused: refused}
		}
	}
	policy, err := quorum.Parse(m.Policy)
	if err != nil {
		return invalid("policy", err.Error())
	}
	if refused := s.proven(a, m, policy); refused != nil {
		return ItemResult{Refused: refused}
	}
	after := *a
	after.Followers, after.Learners, after.Policy, after.Leaving = m.Followers, m.Learners, m.Policy, among(a.Leaving, m.Followers)
	return s.assign(after)
}

// proven checks the evidence of a change: W′ of the new set, by store, stand at the floor, and the floor is past the epoch's start, so
// that the start's mark is among what they hold.
func (s *State) proven(a *Assignment, m *Membership, policy quorum.Policy) *Refusal {
	unproven := func(argument, have, want string) *Refusal {
		return &Refusal{Code: Unproven, What: "partition", Name: m.Partition.String(), Argument: argument, Have: have, Want: want}
	}
	for _, start := range a.Starts {
		if start.Epoch == a.Epoch && m.Floor <= start.Position {
			return &Refusal{
				Code: Invalid, What: "partition", Name: m.Partition.String(), Argument: "floor",
				Want: number(m.Floor) + " is not past the start of epoch " + number(a.Epoch) + " at " + number(start.Position),
			}
		}
	}
	after := Assignment{Owner: a.Owner, Followers: m.Followers}
	holds := map[ident.StoreID]bool{}
	for _, e := range m.Evidence {
		if e.Position >= m.Floor && after.Member(e.Store) {
			holds[e.Store] = true
		}
	}
	w := quorum.W(policy, after.Eligible(), s.view.Incarnation(m.Partition.Incarnation).Kind)
	if len(holds) < w {
		return unproven("evidence", number(uint64(len(holds))), number(uint64(w)))
	}
	return nil
}
