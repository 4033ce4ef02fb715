package node

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/port/trace"
)

// tellCopies logs, on the owner's node, which copies of a partition a change of the catalog has made others, where its owner stayed: no
// transition tells of these.
func (n *Node) tellCopies(c *catalog.Change) {
	before, _ := c.Before.(*catalog.Resource)
	after, _ := c.After.(*catalog.Resource)
	if before == nil || after == nil {
		return
	}
	for i, a := range after.Partitions {
		if i >= len(before.Partitions) || a.Owner != n.local || a.Epoch != before.Partitions[i].Epoch {
			continue
		}
		if what := copiesChanged(before.Partitions[i], a); what != "" {
			trace.Info(n.env.Trace, "copies.changed", slog.String("partition", a.Partition.String()), slog.String("resource", after.Name),
				slog.String("change", what), slog.Uint64("version", a.Version))
		}
	}
}

// copiesChanged says in what two assignments of one epoch differ; "" if in nothing that people would know.
func copiesChanged(b, a *catalog.Assignment) string {
	var out []string
	note := func(text string, before, after []catalog.Member) {
		for _, m := range after {
			if !slices.Contains(before, m) {
				out = append(out, m.Node+" "+text)
			}
		}
	}
	note("learns", b.Learners, a.Learners)
	note("is to leave", b.Leaving, a.Leaving)
	note("follows", b.Followers, a.Followers)
	note("follows no more", a.Followers, b.Followers)
	for _, m := range b.Leaving {
		if !slices.Contains(a.Leaving, m) && slices.Contains(a.Followers, m) {
			out = append(out, m.Node+" stays")
		}
	}
	for _, m := range b.Learners {
		if !slices.Contains(a.Learners, m) && !slices.Contains(a.Followers, m) {
			out = append(out, m.Node+" learns no more")
		}
	}
	if b.Policy != a.Policy {
		out = append(out, "the policy is "+a.Policy)
	}
	return strings.Join(out, ", ")
}
