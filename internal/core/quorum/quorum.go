// Package quorum says how many copies must hold an entry before it is confirmed (W), and how many must be sealed before a new owner
// may be chosen (R). It is the one place where this is decided, for the owner and the controller alike, so that they cannot
// disagree. Who is alive may not come in: W and R follow from the assignment's set alone. Source: design 2 §2 and §5.
package quorum

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tanist/tanist/internal/core/ident"
)

// Rule is how a policy finds W.
type Rule uint8

// The rules.
const (
	Majority Rule = iota // the default
	Local
	Replica
	All
)

// Policy is what a resource asks for. The zero Policy is the default, majority_durable.
type Policy struct {
	Rule Rule
	N    int // of Replica: 1 to 64
}

// MaxCopies bounds n of replica_durable(n).
const MaxCopies = 64

// Parse reads a policy: local_durable, replica_durable(n), majority_durable, all_durable; "" is the default. replica_accepted(n), of
// old metadata, is read as replica_durable(n).
func Parse(text string) (Policy, error) {
	switch text {
	case "", "majority_durable":
		return Policy{}, nil
	case "local_durable":
		return Policy{Rule: Local}, nil
	case "all_durable":
		return Policy{Rule: All}, nil
	}
	for _, name := range []string{"replica_durable(", "replica_accepted("} {
		arg, ok := strings.CutPrefix(text, name)
		if !ok {
			continue
		}
		arg, ok = strings.CutSuffix(arg, ")")
		n, err := strconv.Atoi(arg)
		if !ok || err != nil || n < 1 || n > MaxCopies {
			return Policy{}, fmt.Errorf("policy %q: want a number from 1 to %d in brackets", text, MaxCopies)
		}
		return Policy{Rule: Replica, N: n}, nil
	}
	return Policy{}, fmt.Errorf("policy %q: want local_durable, replica_durable(n), majority_durable or all_durable", text)
}

// String is the policy as Parse reads it.
func (p Policy) String() string {
	switch p.Rule {
	case Local:
		return "local_durable"
	case Replica:
		return fmt.Sprintf("replica_durable(%d)", p.N)
	case All:
		return "all_durable"
	}
	return "majority_durable"
}

// W is the number of copies, the owner included, that must hold an entry durably before it is confirmed, where e copies are
// eligible: 1 to e. e below 1 counts as 1.
func W(p Policy, e int, kind ident.Kind) int {
	e = max(e, 1)
	w := e/2 + 1
	switch p.Rule {
	case Local:
		w = 1
	case Replica:
		w = min(max(p.N, 1), e)
	case All:
		w = e
	}
	if kind == ident.Stream && w == 1 && p.Rule != Majority {
		return e // a replicated stream has no owner-only mode
	}
	return w
}

// R is the number of copies that must have been sealed before a new owner may be chosen: any R of e share a member with any W.
func R(p Policy, e int, kind ident.Kind) int { return max(e, 1) - W(p, e, kind) + 1 }

// Reached is the highest position that the owner and w-1 of an eligible set's followers hold durably, from how far each of them does:
// what that set confirms. 0 if w is below 1 or above the set. Where a change keeps owner and epoch, the lowest of both sets' counts
// (design 2 §5, the joint rule). followers are sorted in place.
func Reached(w int, owner uint64, followers []uint64) uint64 {
	others := w - 1
	switch {
	case others < 0 || others > len(followers):
		return 0
	case others == 0:
		return owner
	}
	slices.Sort(followers)
	return min(owner, followers[len(followers)-others])
}
