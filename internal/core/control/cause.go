package control

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/catalog"
)

// Nodes knows the registered runs of nodes, as a view of the catalog does.
type Nodes interface {
	// Node is nil if there is none of that name.
	Node(name string) *catalog.Node
}

// Cause says why a partition needs a transition, as far as the catalog alone can tell: the owner's node has registered a later run over
// the same store (design 2 §3: an owner owns an epoch only within one run). Empty means that it needs none. Another store under the
// owner's name is no cause here: that copy is not admitted, and whoever holds the old store must answer.
func Cause(a *catalog.Assignment, nodes Nodes) string {
	o := a.Owner
	n := nodes.Node(o.Node)
	if n == nil || n.Store != o.Store || o.Boot >= n.Boot {
		return ""
	}
	return fmt.Sprintf("owner %s restarted: boot %d is over, now %d", o.Node, o.Boot, n.Boot)
}

// NewTransition is the pending transition to record for a cause, at now milliseconds since 1970.
func NewTransition(a *catalog.Assignment, cause string, now int64) catalog.Pending {
	return catalog.Pending{ID: fmt.Sprintf("%s@%d", a.Partition, a.Epoch+1), Epoch: a.Epoch + 1, Cause: cause, Since: now}
}

// CommitOf is the guarded write that ends a transition as chosen. Every other member of the old set stays a follower, the absent ones
// as lost followers: E, and with it W, is the configured requirement and never the number of survivors (design 2 §5, step 4).
func CommitOf(a *catalog.Assignment, d Decision) catalog.Commit {
	c := catalog.Commit{
		Partition: a.Partition, Version: a.Version, Transition: a.Pending.ID,
		Owner: d.Owner, Learners: a.Learners, Start: d.Start,
	}
	if a.Owner.Node != d.Owner.Node {
		c.Followers = append(c.Followers, catalog.Member{Node: a.Owner.Node, Store: a.Owner.Store})
	}
	for _, f := range a.Followers {
		if f.Node != d.Owner.Node {
			c.Followers = append(c.Followers, f)
		}
	}
	return c
}
