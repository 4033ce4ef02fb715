package partition

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// RoleOf is what an assignment wants of the copy of an instance, and whether it names its store at all. An owner named with another
// boot is an earlier run: the copy is named, but the role is nobody's until a transition gives it anew (design 2 §3).
func RoleOf(a *catalog.Assignment, me ident.Instance) (r Role, named bool) {
	place := catalog.Member{Node: me.Node, Store: me.Store}
	switch {
	case a.Owner == me:
		return Owner, true
	case a.Owner.Node == me.Node && a.Owner.Store == me.Store:
		return None, true
	case slices.Contains(a.Followers, place):
		return Follower, true
	case slices.Contains(a.Learners, place):
		return Learner, true
	}
	return None, false
}

// SetOf is what confirms an entry under an assignment, by the assignment's own policy: what its resource wishes counts only once an
// assignment says it. The error is quorum's, of a policy that is none.
func SetOf(a *catalog.Assignment, kind ident.Kind) (Set, error) {
	policy, err := quorum.Parse(a.Policy)
	if err != nil {
		return Set{}, fmt.Errorf("assignment of %s: %w", a.Partition, err)
	}
	s := Set{W: quorum.W(policy, a.Eligible(), kind)}
	for _, f := range a.Followers {
		s.Followers = append(s.Followers, f.Store)
	}
	return s, nil
}
