package archive

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

func sortedKeys(m map[string]bool) []string { return slices.Sorted(maps.Keys(m)) }

func compareNumbers(a, b uint64) int { return cmp.Compare(a, b) }

// verdict is what the catalog says of a record.
type verdict uint8

const (
	later verdict = iota // it does not say yet
	yes
	no
)

// judge asks the catalog whether what a record says was decided. Where the catalog does not know any more, because the resource was deleted
// or the start is one of so many, the word of who gave the record counts.
func (a *Archive) judge(e *evidence.Evidence) (v verdict) {
	if e.Outcome == evidence.Cancelled || e.Outcome == evidence.Refused {
		return yes
	}
	told := no
	if e.Outcome == evidence.Committed {
		told = yes
	}
	a.env.View(func(view *catalog.View) {
		as, _ := view.Assignment(e.Partition)
		if as == nil {
			if v = later; told == yes {
				v = yes
			}
			return
		}
		i := slices.IndexFunc(as.Starts, func(s catalog.HistoryStart) bool { return s.Epoch == e.After.Epoch })
		switch {
		case i >= 0 && as.Starts[i].Evidence == e.Digest():
			v = yes
		case i >= 0:
			v = no
		case len(as.Starts) > 0 && as.Starts[0].Epoch > e.After.Epoch:
			v = told
		case as.Version > e.Version:
			v = no // decided otherwise, or withdrawn: a commit is the next version
		default:
			v = later
		}
	})
	return v
}

// take keeps a record as far as it is true, or may be.
func (a *Archive) take(e *evidence.Evidence) {
	switch a.judge(e) {
	case yes:
		a.conclude(e, a.env.Clock.Wall().UnixMicro())
	case later:
		a.keepOpen(e)
	case no:
		delete(a.mine, e.ID)
	}
}

// conclude puts a record on the shelf that is true. at is when that was seen; it counts, and is told to the others, where the controller
// here has made the commit.
func (a *Archive) conclude(e *evidence.Evidence, at int64) {
	c := *e
	if c.Outcome == "" {
		c.Outcome = evidence.Committed
	}
	mine := a.mine[e.ID]
	if delete(a.mine, e.ID); mine && c.Outcome == evidence.Committed {
		word := evidence.Became{Committed: at}
		c.Became, _ = c.Became.Merge(word)
		a.later = append(a.later, evidence.Facts(e.Partition, e.After.Epoch, word))
	}
	a.put(&c)
}

// put adds a record to the shelf, with all that is known of what became of it, and drops what was not chosen.
func (a *Archive) put(e *evidence.Evidence) {
	k := key{e.Partition, e.After.Epoch}
	a.mu.Lock()
	defer a.mu.Unlock()
	c := *e
	old := a.shelf.Get(e.ID)
	if old != nil {
		var more bool
		if c.Became, more = old.Became.Merge(e.Became); !more {
			a.close(e)
			return
		}
	}
	if f, ok := a.facts[k]; ok && c.Outcome == evidence.Committed {
		c.Became, _ = c.Became.Merge(f)
		delete(a.facts, k)
	}
	a.close(e)
	if _, ok := a.shelf.Put(&c); ok {
		a.unkept = append(a.unkept, &c)
		a.known(old, &c)
	}
}

func (a *Archive) known(before, after *evidence.Evidence) {
	if a.env.Known != nil && a.box != nil {
		a.env.Known(before, after)
	}
}

// close drops the open records that a concluded one leaves no room for: those of its transition, and of its epoch where it was committed.
// Those of earlier epochs may be true: the catalog will say. The lock is held.
func (a *Archive) close(e *evidence.Evidence) {
	a.setOpen(e.Partition, slices.DeleteFunc(slices.Clone(a.open[e.Partition]), func(x *evidence.Evidence) bool {
		return x.ID == e.ID || e.Outcome == evidence.Committed && x.After.Epoch == e.After.Epoch
	}))
}

func (a *Archive) setOpen(p ident.Partition, list []*evidence.Evidence) {
	a.opens += len(list) - len(a.open[p])
	if len(list) == 0 {
		delete(a.open, p)
		return
	}
	a.open[p] = list
}

// keepOpen keeps a record that the catalog has not spoken of yet.
func (a *Archive) keepOpen(e *evidence.Evidence) {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := e.Digest()
	list := slices.DeleteFunc(slices.Clone(a.open[e.Partition]), func(x *evidence.Evidence) bool { return x.Digest() == digest })
	if len(list) == len(a.open[e.Partition]) {
		a.unkept = slices.DeleteFunc(a.unkept, func(x *evidence.Evidence) bool { return x.ID == e.ID && !decided(x) })
		a.unkept = append(a.unkept, e)
	}
	list = append(list, e)
	a.setOpen(e.Partition, list[max(0, len(list)-maxVariants):])
	if a.opens > maxOpen {
		var oldest *evidence.Evidence
		for _, l := range a.open {
			if oldest == nil || evidence.Compare(l[0], oldest) < 0 {
				oldest = l[0]
			}
		}
		a.setOpen(oldest.Partition, a.open[oldest.Partition][1:])
	}
}

// look asks the catalog again for the records that it had not spoken of.
func (a *Archive) look(m looked) {
	first := !a.caughtUp
	a.caughtUp = true
	a.mu.Lock()
	for _, p := range m.gone {
		for _, e := range a.open[p] {
			delete(a.mine, e.ID)
		}
		a.setOpen(p, nil)
	}
	var open []*evidence.Evidence
	for _, l := range a.open {
		open = append(open, l...)
	}
	a.mu.Unlock()
	slices.SortStableFunc(open, evidence.Compare)
	for _, e := range open {
		v := a.judge(e)
		if first && v == later && !a.exists(e.Partition) {
			v = no // the file had it, and its resource was deleted meanwhile
		}
		switch v {
		case yes:
			a.conclude(e, m.at)
		case no:
			delete(a.mine, e.ID)
			a.mu.Lock()
			a.setOpen(e.Partition, slices.DeleteFunc(slices.Clone(a.open[e.Partition]), func(x *evidence.Evidence) bool { return x == e }))
			a.mu.Unlock()
		case later:
		}
	}
}

func (a *Archive) exists(p ident.Partition) (ok bool) {
	a.env.View(func(v *catalog.View) {
		as, _ := v.Assignment(p)
		ok = as != nil
	})
	return ok
}

// learn takes what is known of what became of a transition, and reports whether it is news.
func (a *Archive) learn(e *evidence.Evidence) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, have := range a.shelf.Of(e.Partition) {
		if have.After.Epoch != e.After.Epoch || have.Outcome != evidence.Committed {
			continue
		}
		b, more := have.Became.Merge(e.Became)
		if more {
			c := *have
			c.Became = b
			a.shelf.Put(&c)
			a.unkept = append(a.unkept, e)
			a.known(have, &c)
		}
		return more
	}
	k := key{e.Partition, e.After.Epoch}
	b, more := a.facts[k].Merge(e.Became)
	if more {
		if _, ok := a.facts[k]; !ok && len(a.facts) >= maxOpen {
			for oldest := range a.facts { // any: nobody has asked for it
				delete(a.facts, oldest)
				break
			}
		}
		a.facts[k] = b
		a.unkept = append(a.unkept, evidence.Facts(e.Partition, e.After.Epoch, b))
	}
	return more
}
