package explore

import (
	"bytes"
	"os"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
)

// sight is what a state shows of the catalog, of what is confirmed, and of the copies: their logs and roles, and with all their disks, what
// they have promised and know to be confirmed. How messages, reports and syncs stand is left out.
func (w *world) sight(all bool) string {
	var least []byte
	for perm := range w.x.perms {
		p := &w.x.perms[perm]
		store := func(s ident.StoreID) byte { return storeCode(s, p) }
		b := w.ledger.tip.append([]byte(w.cat.v.enc[perm]))
		b = append(b, byte(w.ledger.epoch), w.used.crashes)
		var at [Nodes]int
		for i, to := range p {
			at[to] = i
		}
		for _, i := range at {
			n := w.nodes[i]
			b = append(b, bits(n.up), store(n.instance().Store))
			if !n.up {
				b = n.disk.log.append(b)
				continue
			}
			log := n.log
			if n.step != nil && n.step.Kind == partition.FindTail {
				log = log.at(n.step.Cut.Position)
			}
			role, epoch := n.copy.Role(), n.copy.Epoch()
			if is := n.copy.Becoming(); !all && is != partition.None && is != partition.Owner {
				role, epoch = is, n.heard.a.Epoch // as good as done
				if cut, ok := partition.CutTo(n.heard.a.Starts, log.end(), epoch); ok {
					log = log.at(cut.Position)
				}
			}
			if !all && role == partition.Sealed {
				epoch = 0 // its promise is above it
			}
			b = log.append(append(b, byte(role), byte(epoch)))
			if floor := n.copy.Floor(); role == partition.Owner && floor > 0 && floor == n.copy.Confirmed() {
				b = append(b, byte(n.copy.Confirmed()))
			}
			if all {
				b = append(b, byte(n.copy.Confirmed()), byte(n.copy.Promise()), byte(n.disk.role), byte(n.disk.epoch), byte(len(n.sealing)))
				b = n.disk.log.append(b)
			}
		}
		if least == nil || bytes.Compare(b, least) < 0 {
			least = b
		}
	}
	return string(least)
}

// sights are what the states within bounds show, which of them show that nothing is left to do, and how many states there are.
func sights(b Bounds, all, plain bool) (seen map[string]bool, states int) {
	seen = map[string]bool{}
	reach(b, plain, (*world).key, func(w *world, _ string, known bool) {
		if known {
			return
		}
		states++
		s := w.sight(all)
		if seen[s] = true; w.rests() {
			seen["at rest: "+s] = true
		}
	})
	return seen, states
}

// compare fails where one search does not show what another does, or, if they are to be alike, shows more.
func compare(t *testing.T, b Bounds, all, less map[string]bool, alike bool) {
	t.Helper()
	missing := 0
	for s := range all {
		if !less[s] {
			missing++
		}
	}
	if surplus := len(less) + missing - len(all); missing > 0 || alike && surplus > 0 {
		t.Errorf("%+v: of %d sights %d are missed, %d are new", b, len(all), missing, surplus)
	}
}

// TestReductions finds that searches which leave schedules out come to the same as those that do not. With queues, a copy is not told by
// itself what is confirmed while it has something to answer; direct searches tell it at any time, and so show more of what copies may know.
func TestReductions(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, b := range []Bounds{
		{Copies: 3, Epochs: 2, Crashes: 1},
		{Copies: 3, Epochs: 2, Suspect: true, Overlap: true, Cancels: 1},
		{Copies: 3, Epochs: 1, Crashes: 1, Wipes: 1},
		{Copies: 2, Epochs: 1},
		{Copies: 3, Epochs: 2, Appends: 1, Suspect: true},
	} {
		queues, direct, lazy := b, b, b
		direct.Direct = true
		lazy.Direct, lazy.Lazy = true, true
		q, nq := sights(queues, true, false)
		d, nd := sights(direct, true, false)
		compare(t, b, q, d, false)
		d, _ = sights(direct, false, false)
		l, nl := sights(lazy, false, false)
		compare(t, b, d, l, true)
		t.Logf("%+v: %d states with queues, %d direct, %d lazy", b, nq, nd, nl)
	}
}

// TestNothingIsMissed finds that searches which hear at once what says nothing, forget it, drop what nothing can come of, take what decides nothing
// as the same, make durable at once what cannot be lost, and ask copies at once that have promised, come to the same as those that do none of that.
func TestNothingIsMissed(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	bounds := []Bounds{
		{Copies: 3, Epochs: 2, Crashes: 1},
		{Copies: 3, Epochs: 1, Crashes: 1, Wipes: 1},
		{Copies: 2, Epochs: 1},
		{Copies: 3, Epochs: 2, Suspect: true, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
		{Copies: 3, Entries: 2, Epochs: 2, Crashes: 1, Suspect: true, Direct: true, Lazy: true},
		{Copies: 3, Entries: 2, Epochs: 1, Crashes: 1, Wipes: 1, Direct: true, Lazy: true},
		{Copies: 3, Entries: 2, Epochs: 2, Crashes: 1, Wipes: 1, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
		{Copies: 2, Entries: 2, Epochs: 1, Crashes: 1, Direct: true, Lazy: true},
		{Copies: 2, Wanted: 2, Changes: 2, Epochs: 1, Direct: true, Lazy: true},
		{Copies: 3, Changes: 1, Wishes: []uint8{2}, Entries: 2, Epochs: 1, Direct: true, Lazy: true},
		{Copies: 3, Changes: 1, Wants: []uint8{2}, Epochs: 2, Suspect: true, Direct: true, Lazy: true},
	}
	if os.Getenv("EXPLORE_WIDE") != "" {
		bounds = append(
			bounds,
			Bounds{Copies: 3, Epochs: 3, Suspect: true, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
			Bounds{Copies: 3, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
			Bounds{Copies: 3, Entries: 2, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true, Direct: true, Lazy: true},
			Bounds{Copies: 3, Entries: 3, Epochs: 2, Crashes: 1, Suspect: true, Direct: true, Lazy: true},
			Bounds{Copies: 3, Entries: 3, Epochs: 1, Crashes: 1, Wipes: 1, Direct: true, Lazy: true},
			Bounds{Copies: 2, Entries: 3, Epochs: 2, Suspect: true, Direct: true, Lazy: true},
		)
	}
	for _, b := range bounds {
		p, np := sights(b, false, true)
		l, nl := sights(b, false, false)
		compare(t, b, p, l, true)
		t.Logf("%+v: %d states plainly, %d with less, %d sights", b, np, nl, len(l))
	}
}
