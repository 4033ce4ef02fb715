package control

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/quorum"
)

// Changing says what there is yet to do of what is wished of a partition, in the order in which its owner does it; none where all is so. What
// waits for a node to come is named too. Source: design 2 §5 "Changes without a new epoch".
func Changing(r *catalog.Resource, a *catalog.Assignment) []string {
	out := underWay(r, a)
	if missing := missingCopies(r, a); missing != "" {
		out = append(out, missing)
	}
	return out
}

// underWay is what an owner has been told to do and can.
func underWay(r *catalog.Resource, a *catalog.Assignment) (out []string) {
	for _, m := range a.Learners {
		out = append(out, m.Node+" is learning what the others hold")
	}
	for _, m := range a.Leaving {
		out = append(out, "the copy on "+m.Node+" is to leave")
	}
	if have, want := a.Eligible(), r.Target(); have > want && len(a.Leaving) == 0 {
		out = append(out, fmt.Sprintf("it has %s where %d are wished", copies(have), want))
	}
	if have, want := policyName(a.Policy), policyName(r.Policy); have != want {
		out = append(out, "its policy is still "+have)
	}
	return out
}

// missingCopies says that there are fewer than wished, and none on its way.
func missingCopies(r *catalog.Resource, a *catalog.Assignment) string {
	if have, want := a.Eligible(), r.Target(); have < want && len(a.Learners) == 0 {
		return fmt.Sprintf("it has %d of %s", have, copies(want))
	}
	return ""
}

// policyName is a policy as it is written; one that cannot be read stays as it is.
func policyName(text string) string {
	p, err := quorum.Parse(text)
	if err != nil {
		return text
	}
	return p.String()
}
