package sim

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
)

// evident says which changes of owner some node keeps no evidence of; empty if none (design 2 §11, 10). What a node does keep must be what
// the catalog names.
func (w *world) evident() (text string) {
	for _, s := range w.sites {
		if s.host == nil || !s.host.serving {
			continue
		}
		kept := s.host.node.Evidence()
		s.host.node.View(func(v *catalog.View) {
			for _, r := range v.AllResources() {
				for _, a := range r.Partitions {
					if r.Home == nil {
						text += w.evidentOf(s, r, a, kept.Of(a.Partition))
					}
				}
			}
		})
	}
	return text
}

func (w *world) evidentOf(s *site, r *catalog.Resource, a *catalog.Assignment, kept []*evidence.Evidence) (text string) {
	starts := a.Starts[max(0, len(a.Starts)-evidence.DefaultPerPartition):]
	for _, start := range starts {
		if start.Epoch == 1 {
			continue // the first owner was placed, not chosen
		}
		i := slices.IndexFunc(kept, func(e *evidence.Evidence) bool {
			return e.After.Epoch == start.Epoch && e.Outcome == evidence.Committed
		})
		switch {
		case i < 0:
			text += fmt.Sprintf("%s keeps no evidence of epoch %d of %s; ", s.name, start.Epoch, r.Name)
		case kept[i].Digest() != start.Evidence, kept[i].After.Owner.Node != start.Node, kept[i].Start.Position != start.Position:
			w.fail("%s keeps of epoch %d of %s %+v, with digest %s: the catalog names %s, an owner on %s from %d", s.name, start.Epoch, r.Name,
				kept[i].Decided, kept[i].Digest(), start.Evidence, start.Node, start.Position)
		}
	}
	return text
}
