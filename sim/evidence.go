package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/tanist/tanist/check"
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
		default:
			w.believe(r.Name, kept[i])
		}
	}
	return text
}

// harm is what was done to a run of a node, as evidence may speak of it.
type harm uint8

const (
	ended     harm = 1 << iota // it was killed, stopped or wiped
	broken                     // a session of it was broken
	silenced                   // it stood still, or did not hear some node or was not heard by it in time
	diskBroke                  // a write or sync of it failed, or a bit turned
	stalled                    // syncs of it took long
)

// doubt says that the run at a place may rightly lose what it owns, for something that was done to it.
func (s *site) doubt(by harm) {
	s.ailed = s.w.sim.Now()
	if h := s.host; h != nil && h.node != nil && s.w.cluster() {
		s.w.harms[h.instance()] |= by
		s.w.see(check.Event{Kind: check.Doubted, Owner: h.instance()})
	}
}

// grounds are the causes that evidence may give, by what all their texts say, with what must have been done to the owner that was replaced.
var grounds = []struct {
	text string
	of   harm
}{
	{"restarted: boot", ended},
	{"is gone: its store", ended},
	{"has another store now", ended},
	{"a later run was seen", ended},
	{"connection refused", ended},
	{"its session broke", ended | broken | silenced},
	{"no heartbeat", ended | silenced},
	{"never heard", ended | broken | silenced},
	{"its journal cannot sync", diskBroke},
	{" is damaged: ", diskBroke},
	{"its sync has stalled", stalled},
	{"accepted loss", ^harm(0)},
	{" promised epoch ", ^harm(0)}, // a transition that somebody began was not finished: whoever owns meanwhile need have done nothing
}

// believe holds the cause that evidence gives against what was done to the owner that was replaced (design 2 §11, 10).
func (w *world) believe(name string, e *evidence.Evidence) {
	was := e.Before.Owner.String()
	for _, g := range grounds {
		if !strings.Contains(e.Cause, g.text) {
			continue
		}
		if g.of != ^harm(0) && w.harms[was]&g.of == 0 {
			w.fail("evidence of %s says of epoch %d that %q: nothing of that was done to %s", name, e.After.Epoch, e.Cause, was)
		}
		return
	}
	w.fail("evidence of %s says of epoch %d that %q, which nothing can have shown", name, e.After.Epoch, e.Cause)
}

// stand is what some node's catalog was when it had come to an entry of the consensus log.
type stand struct {
	print uint64
	by    string
	text  string // of what it was made, if that is kept
}

// agrees holds what a node's catalog says against what others' said at the same entry: consensus gives all of them the same entries in the same
// order, and whatever is decided is decided on that (design 2 §12).
func (w *world) agrees(h *host, v *catalog.View) {
	if !w.cluster() {
		return
	}
	print, text := stance(v, w.opt.Verbose != nil)
	at, known := w.stands[v.Index()]
	switch {
	case !known:
		w.stands[v.Index()] = stand{print, h.instance(), text}
	case at.print != print:
		w.say("%s: %s\n%s: %s", at.by, at.text, h.instance(), text)
		w.fail("the catalogs of %s and %s differ at entry %d", at.by, h.instance(), v.Index())
	}
}

// stance is what a catalog says of nodes, of resources and of who owns and follows them, as one number; and as text, if asked.
func stance(v *catalog.View, spelled bool) (print uint64, text string) {
	sum := fnv.New64a()
	put := func(format string, a ...any) {
		line := fmt.Appendf(nil, format, a...)
		_, _ = sum.Write(line) // never fails
		if spelled {
			text += string(line)
		}
	}
	for _, n := range v.Nodes() {
		put("%s %v %d %d %v %d; ", n.Name, n.Store, n.Boot, n.Number, n.Draining, n.Absent)
	}
	for _, r := range v.AllResources() {
		put("%d %s %s %d: ", r.Incarnation, r.Name, r.Policy, r.Copies)
		for _, a := range r.Partitions {
			put("%d %d %v %v %v %v %s ", a.Version, a.Epoch, a.Owner, a.Followers, a.Learners, a.Leaving, a.Policy)
			if p := a.Pending; p != nil {
				put("%s %d %d ", p.ID, p.Epoch, p.Since)
			}
			if n := len(a.Starts); n > 0 {
				put("%d %d %x ", n, a.Starts[n-1].Position, a.Starts[n-1].Link[:4])
			}
		}
	}
	return sum.Sum64(), text
}
