package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// Nodes knows the registered runs of nodes, as a view of the catalog does.
type Nodes interface {
	// Node is nil if there is none of that name.
	Node(name string) *catalog.Node
	// Removed is nil if the store was never removed or replaced.
	Removed(store ident.StoreID) *catalog.Removed
}

// Cause says why a partition needs a transition, as far as the catalog alone can tell: the owner's node has registered a later run over
// the same store (design 2 §3: an owner owns an epoch only within one run), or the owner's store was replaced, and is barred for ever.
// Empty means that it needs none. A store that has only appeared under the owner's name is no cause: that copy is not admitted, and
// whoever holds the old store must answer.
func Cause(a *catalog.Assignment, nodes Nodes) string {
	o := a.Owner
	if nodes.Removed(o.Store) != nil {
		return fmt.Sprintf("owner %s is gone: its store %s was replaced", o.Node, o.Store)
	}
	n := nodes.Node(o.Node)
	if n == nil || n.Store != o.Store || o.Boot >= n.Boot {
		return ""
	}
	return fmt.Sprintf("owner %s restarted: boot %d is over, now %d", o.Node, o.Boot, n.Boot)
}

// NewTransition is the pending transition to record for a cause, at now milliseconds since 1970.
func NewTransition(a *catalog.Assignment, cause string, now int64) catalog.Pending {
	return catalog.Pending{ID: transitionID(a, a.Epoch+1), Epoch: a.Epoch + 1, Cause: cause, Since: now}
}

// transitionID names a transition by the partition, the epoch that it seals at, and the version of the assignment that it is recorded
// on: one that follows on a withdrawn one, to the same epoch, has another name.
func transitionID(a *catalog.Assignment, epoch uint64) string {
	return fmt.Sprintf("%s@%d.%d", a.Partition, epoch, a.Version)
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

// Why is what kind of reason there is for a transition.
type Why uint8

// The reasons.
const (
	NoReason Why = iota
	// OwnerRestarted: the owner's node has registered a later run over the same store.
	OwnerRestarted
	// OwnerReplaced: the owner's store has left the cluster, and another is registered in its node's place. The others must do without.
	OwnerReplaced
	// PromiseAhead: a copy of the assignment has promised an epoch that the catalog knows nothing of. A controller died, or withdrew, between a
	// seal and a commit. The copy refuses its owner until there is an owner at that epoch or above.
	PromiseAhead
	// OwnerSuspected: the owner's node is suspected in the very run that owns.
	OwnerSuspected
	// PromiseMet: a copy of the assignment has promised the epoch of the transition that is pending. Nothing is to be recorded anew, and it is not
	// to be withdrawn either: the copy would have promised ahead of the catalog at once.
	PromiseMet
	// OwnerDamaged: the run that owns says that its copy failed its own checks. It serves nothing, and another copy may.
	OwnerDamaged
	// LossAccepted: an operator has given up on missing copies of a partition whose owner still runs (design 2 §8).
	LossAccepted
)

// Reason is why a partition needs a transition.
type Reason struct {
	Why   Why
	Text  string   // for the pending transition and its evidence
	By    []string // the nodes that saw it, sorted; none where the catalog itself says so
	Epoch uint64   // of PromiseAhead: the promise
}

// Suspects are the runs that are suspected, as a Detector has found.
type Suspects interface {
	Suspect(run ident.Instance) (Suspicion, bool)
}

// Promise is the highest epoch that a copy is known to have vowed to obey.
type Promise struct {
	Node  string
	Store ident.StoreID
	Epoch uint64
}

// CauseOf says why a partition needs a transition, from the catalog, from what is suspected, and from the promises that its copies have
// reported; Why is NoReason if it needs none. Where there are several reasons, one that is certain goes before a suspicion.
//
// A promise is a reason only of a store that the assignment names, be it a learner's, which could not learn below its promise: nobody waits
// for another's. Where a transition is pending that seals at that epoch or above, it is a reason to finish that one. Source: design 2 §3
// and §4.
func CauseOf(a *catalog.Assignment, nodes Nodes, suspects Suspects, promises []Promise) Reason {
	if text := Cause(a, nodes); text != "" {
		return Reason{Why: OwnerRestarted, Text: text}
	}
	if n := nodes.Node(a.Owner.Node); n != nil && n.Store != a.Owner.Store {
		return Reason{Why: OwnerReplaced, Text: fmt.Sprintf("owner %s has another store now: %s", a.Owner, n.Store)}
	}
	promised := promisedAbove(a, promises)
	if promised.Why == PromiseAhead {
		return promised
	}
	if s, ok := suspects.Suspect(a.Owner); ok {
		return Reason{Why: OwnerSuspected, Text: s.String(), By: slices.Clone(s.By)}
	}
	return promised
}

// Damage is a copy that failed its own checks, and that is to own by the assignment of an epoch.
type Damage struct {
	Run    ident.Instance // that says so, of its own copy
	Epoch  uint64
	Reason string
}

// CauseOfDamage says whether a partition needs a transition because the copy of its owner is damaged: by the word of the very run that owns, in
// the epoch that it owns, and where there is another copy that counts; Why is NoReason else. Only that partition is given up: what else its node
// owns does not depend on it. Such an owner has closed, so nothing is lost by recording a transition that has to wait, and that one names whom
// it needs. Source: design 2 §10.
func CauseOfDamage(a *catalog.Assignment, d Damage) Reason {
	if d.Run != a.Owner || d.Epoch != a.Epoch || a.Epoch == 0 || len(a.Followers) == 0 {
		return Reason{}
	}
	return Reason{
		Why: OwnerDamaged, Text: fmt.Sprintf(damagedCause+"%s is damaged: %s", a.Owner, d.Reason), By: []string{a.Owner.Node},
	}
}

// promisedAbove is what the highest promise above an assignment's epoch is a reason for.
func promisedAbove(a *catalog.Assignment, promises []Promise) Reason {
	highest := Reason{Epoch: a.Epoch}
	for _, p := range promises {
		switch {
		case !a.Names(p.Store) || p.Epoch <= a.Epoch || p.Epoch < highest.Epoch:
			continue
		case p.Epoch > highest.Epoch:
			highest = Reason{Why: PromiseAhead, Epoch: p.Epoch}
		}
		highest.By = append(highest.By, p.Node)
	}
	if highest.Why == NoReason {
		return Reason{}
	}
	slices.Sort(highest.By)
	highest.By = slices.Compact(highest.By)
	reached, at := a.Epoch, "the catalog is"
	if a.Pending != nil && a.Pending.Epoch > a.Epoch {
		reached, at = a.Pending.Epoch, "the pending transition is"
	}
	if highest.Epoch <= reached {
		highest.Why = PromiseMet
	}
	highest.Text = fmt.Sprintf("%s promised epoch %d, while %s at %d", strings.Join(highest.By, ", "), highest.Epoch, at, reached)
	return highest
}

// Pend is the pending transition to record for a reason, at now milliseconds since 1970. It seals above whatever was promised. A
// transition that is pending already, and seals too low for a promise, keeps its id and is raised.
func Pend(a *catalog.Assignment, r Reason, now int64) catalog.Pending {
	if a.Pending != nil {
		p := *a.Pending
		p.Epoch = max(p.Epoch, r.Epoch)
		return p
	}
	p := NewTransition(a, r.Text, now)
	p.By = slices.Clone(r.By)
	if r.Epoch > p.Epoch {
		p.Epoch = r.Epoch
		p.ID = transitionID(a, p.Epoch)
	}
	return p
}

// MayCancel reports whether a pending failover may be withdrawn: nothing is a reason any more, not even a promise that it meets, and the
// controller that asks has recorded it itself in its present term and has sent no seal of it, to anyone. sent is the moment of sending, not
// of an answer: that may be lost, and the promise not. Of a transition that another controller or an earlier term recorded, nobody knows.
// Otherwise it is finished, and a tie keeps the present owner instance in place. Source: design 2 §4.
func MayCancel(now Reason, recordedHere, sent bool) bool {
	return now.Why == NoReason && recordedHere && !sent
}
