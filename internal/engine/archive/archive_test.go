package archive

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/vfs"
)

func offer(s *site, es ...*evidence.Evidence) { s.a.Offer(es) }

func TestARecordIsOfferedBeforeItIsTrue(t *testing.T) {
	w := newWorld(t, 1, 3)
	p := w.declare(1)[0]
	w.all()
	e := w.pend(p, w.sites[1])
	offer(w.sites[0], e)
	w.run()
	for _, s := range w.sites {
		s.apply()
	}
	w.run()
	if es := w.sameOf(p); len(es) != 1 || es[0].Outcome != "" || w.sites[2].a.Get(e.ID) == nil || len(w.sites[2].a.Last(5)) != 1 {
		t.Fatalf("under way: %s", list(es))
	}
	w.commit(e)
	for _, s := range w.sites {
		s.apply()
	}
	w.sites[1].a.Learn(p, 2, evidence.Became{Serving: 5_000_000_000})
	w.run()
	es := w.sameOf(p)
	w.proven(p, es)
	if es[0].Committed == 0 || es[0].Serving != 5_000_000_000 {
		t.Fatalf("became %+v", es[0].Became)
	}
	if len(w.sites[0].a.open) > 0 || w.sites[0].a.opens != 0 || len(w.sites[0].a.mine) > 0 || len(w.sites[1].a.facts) > 0 {
		t.Error("what was settled is still open")
	}
}

// A session begins as a record is offered: what each side holds is said and answered before the record is held.
func TestARecordIsOfferedAsANodeComesUp(t *testing.T) {
	w := newWorld(t, 1, 2)
	p := w.declare(1)[0]
	w.all()
	w.part(w.sites[0], w.sites[1])
	w.run()
	e := w.pend(p, w.sites[1])
	w.sites[0].reaches["n2"] = true
	w.sites[0].a.PeerUp("n2")
	w.sites[0].a.Deliver("n2", protocol.EvidenceHeld{})
	offer(w.sites[0], e)
	w.run()
	if w.sites[1].a.Get(e.ID) == nil {
		t.Error("the other node never had it")
	}
}

// Two controllers choose in different ways, each in good faith; the catalog says which of them committed.
func TestTheCatalogSaysWhichRecordIsTrue(t *testing.T) {
	w := newWorld(t, 2, 3)
	p := w.declare(1)[0]
	w.all()
	one := w.pend(p, w.sites[1])
	other := *one
	other.After.Owner = w.sites[2].run()
	offer(w.sites[0], one)
	offer(w.sites[1], &other)
	w.run()
	w.commit(&other)
	w.all()
	es := w.sameOf(p)
	if w.proven(p, es); len(es) != 1 {
		t.Fatalf("kept %s", list(es))
	}
	offer(w.sites[0], one) // late
	w.run()
	if es := w.sameOf(p); len(es) != 1 {
		t.Fatalf("kept %s", list(es))
	}
}

func TestWhatIsWithdrawnIsKeptAsThat(t *testing.T) {
	w := newWorld(t, 3, 2)
	p := w.declare(1)[0]
	w.all()
	e := w.pend(p, w.sites[1])
	waits := *e
	waits.After.Owner, waits.Reason = w.sites[1].run(), "1 of 2 answers needed"
	offer(w.sites[0], &waits)
	w.all()
	if es := w.sameOf(p); len(es) != 1 || es[0].Reason != waits.Reason || es[0].Outcome != "" {
		t.Fatalf("while it waits: %s", list(es))
	}
	a := w.assignment(p)
	w.do(catalog.CancelPending(p, a.Version, e.ID))
	cancelled := *e
	cancelled.Outcome, cancelled.Reason = evidence.Cancelled, "wrong"
	offer(w.sites[0], &cancelled)
	w.all()
	if es := w.sameOf(p); len(es) != 1 || es[0].Outcome != evidence.Cancelled || es[0].Reason != "wrong" || es[0].Committed != 0 {
		t.Fatalf("withdrawn: %s", list(es))
	}
	next := w.pend(p, w.sites[1]) // to the same epoch
	offer(w.sites[0], next)
	w.commit(next)
	w.all()
	es := w.sameOf(p)
	if w.proven(p, es); len(es) != 2 {
		t.Fatalf("kept %s", list(es))
	}
}

// The word that a transition was withdrawn does not come, or comes late: the catalog has gone on without it.
func TestWhatTheCatalogGaveUpIsNotUnderWay(t *testing.T) {
	w := newWorld(t, 6, 2)
	p := w.declare(1)[0]
	w.all()
	e := w.pend(p, w.sites[1])
	offer(w.sites[0], e)
	w.all()
	w.do(catalog.CancelPending(p, w.assignment(p).Version, e.ID))
	w.all()
	if es := w.sameOf(p); len(es) != 0 {
		t.Fatalf("kept %s", list(es))
	}
}

// What a copy says goes to whoever has the record, also where it was said before the record came, and over a loss of power.
func TestWhatBecameOfItIsNotLost(t *testing.T) {
	w := newWorld(t, 7, 2)
	p := w.declare(1)[0]
	w.all()
	e := w.pend(p, w.sites[1])
	w.part(w.sites[0], w.sites[1])
	offer(w.sites[0], e)
	w.commit(e)
	w.sites[0].apply()
	w.sites[0].a.Learn(p, 2, evidence.Became{FirstConfirm: 77})
	w.sites[1].apply()
	w.sites[1].a.Learn(p, 2, evidence.Became{Serving: 55})
	w.run()
	for _, s := range w.sites {
		s.crash(0)
		s.boot()
		s.apply()
	}
	if es := w.sites[0].a.Of(p); len(es) != 1 || es[0].FirstConfirm != 77 {
		t.Fatalf("kept %s", list(es))
	}
	w.meet(w.sites[0], w.sites[1])
	w.run()
	if es := w.sameOf(p); len(es) != 1 || es[0].Serving != 55 || es[0].FirstConfirm != 77 {
		t.Fatalf("kept %s", list(es))
	}
}

// A node is behind by two epochs, and hears of the second once more just as its catalog has caught up: the first is still true.
func TestAnEarlierRecordIsNotLostForALaterOne(t *testing.T) {
	w := newWorld(t, 8, 2)
	p := w.declare(1)[0]
	w.all()
	var last *evidence.Evidence
	for range 2 {
		last = w.pend(p, w.sites[1])
		offer(w.sites[0], last)
		w.run()
		w.commit(last)
	}
	s := w.sites[1]
	told := evidence.Append(nil, last)
	a := s.a
	s.a = Open(Env{ // takes what the catalog's changes say, and keeps nothing of it
		Loop: s.node.Dedicated("other"), Clock: a.env.Clock, Trace: a.env.Trace, FS: vfs.NewMemory(1), View: a.env.View, Send: a.env.Send, Ahead: a.env.Send,
	})
	s.apply()
	s.a = a
	a.Deliver("n1", protocol.Evidence{Records: [][]byte{told}})
	w.run()
	a.Apply(s.state.Changes())
	w.run()
	if es := a.Of(p); len(es) != 2 {
		t.Fatalf("kept %s", list(es))
	}
	w.proven(p, a.Of(p))
}

// A resource is deleted while a transition of it is under way, and while a node is down that has its record.
func TestNothingIsUnderWayOfWhatIsGone(t *testing.T) {
	w := newWorld(t, 4, 2)
	ps := w.declare(2)
	w.all()
	for _, p := range ps {
		e := w.pend(p, w.sites[1])
		offer(w.sites[0], e)
	}
	w.all()
	w.sites[1].crash(2)
	w.do(catalog.DeleteResource("/", "q0", 0, 0))
	w.sites[0].apply()
	w.run()
	if len(w.sites[0].a.Of(ps[0])) > 0 || len(w.sites[0].a.Of(ps[1])) != 1 {
		t.Fatalf("kept %s and %s", list(w.sites[0].a.Of(ps[0])), list(w.sites[0].a.Of(ps[1])))
	}
	w.all()
	w.sameOf(ps[0])
	if es := w.sites[1].a.Last(9); len(es) != 1 || es[0].Partition != ps[1] {
		t.Fatalf("the node that was down keeps %s", list(es))
	}
}

// A node whose controller died with the only record has it still, and gives it to the others when it comes back.
// All disks are full as the first owner is replaced, and all nodes lose what they have in memory (simulation, seed 991).
func TestTheFirstRecordIsKeptOnAFullDisk(t *testing.T) {
	w := newWorld(t, 8, 2)
	p := w.declare(1)[0]
	w.all()
	for _, s := range w.sites {
		s.disk.Full(true)
	}
	e := w.pend(p, w.sites[1])
	offer(w.sites[0], e)
	w.commit(e)
	w.all()
	for _, s := range w.sites {
		s.crash(0)
		s.boot()
	}
	w.all()
	if es := w.sameOf(p); len(es) != 1 || es[0].ID != e.ID {
		t.Fatalf("kept %s", list(es))
	}
}

func TestTheOnlyRecordComesBackWithItsNode(t *testing.T) {
	w := newWorld(t, 5, 3)
	p := w.declare(1)[0]
	w.all()
	e := w.pend(p, w.sites[1])
	w.lose = func() bool { return true }
	offer(w.sites[0], e)
	w.sim.RunFor(5e6) // what is decided is written at once
	w.sites[0].crash(0)
	w.commit(e)
	w.sites[1].apply()
	w.run()
	if es := w.sites[1].a.Of(p); len(es) != 0 {
		t.Fatalf("kept %s", list(es))
	}
	w.all()
	w.proven(p, w.sameOf(p))
}

// Controllers offer, nodes lag, lose messages, crash and come back: once all are well again, all keep the same, and it is what the catalog
// names. A record may only be missing where every node that had it in memory died, which this leaves out: its controller lives on.
func TestAllNodesComeToKeepTheSame(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, seed, 3)
		ps := w.declare(3)
		w.all()
		for range 40 {
			p, s := ps[rng.IntN(len(ps))], w.sites[rng.IntN(3)]
			switch rng.IntN(8) {
			case 0, 1, 2:
				a, e := w.assignment(p), (*evidence.Evidence)(nil)
				if a.Pending != nil {
					continue
				}
				if e = w.pend(p, s); rng.IntN(3) == 0 {
					false_ := *e
					false_.Cause = "another controller's"
					offer(w.sites[0], &false_)
				}
				offer(w.sites[0], e)
				w.sim.RunFor(1e6) // it is written before the commit can be
				w.commit(e)
			case 3:
				if s.a != nil {
					s.apply()
				}
			case 4:
				if s.a != nil {
					a := w.assignment(p)
					s.a.Learn(p, a.Epoch, evidence.Became{
						Serving: 1 + rng.Int64N(9), Cuts: []evidence.Cut{{Node: s.name, Store: s.store, From: rng.Uint64N(5), To: 5 + rng.Uint64N(5)}},
					})
				}
			case 5:
				w.part(s, w.sites[(rng.IntN(2)+1+slices.Index(w.sites, s))%3])
			case 6:
				w.meet(s, w.sites[(rng.IntN(2)+1+slices.Index(w.sites, s))%3])
			case 7:
				if s == w.sites[0] || rng.IntN(2) == 0 {
					n := rng.IntN(4)
					w.lose = func() bool { return rng.IntN(4) < n }
				} else if s.a != nil {
					s.crash(rng.Uint64())
				} else {
					s.boot()
				}
			}
			w.sim.RunFor(1e6)
		}
		w.all()
		for _, p := range ps {
			es := w.sameOf(p)
			w.proven(p, es)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// What a transition waits for may change often, and nothing depends on it: it is written seldom, and only as it was last.
func TestWhatATransitionWaitsForIsWrittenSeldom(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := w.sites[0]
	p := w.declare(1)[0]
	w.all()
	e := *w.pend(p, s)
	e.After.Owner = ident.Instance{}
	size := func() int64 { return s.a.file.end }
	w.sim.RunFor(10 * time.Second)
	first := size()
	for i := range 40 {
		x := e
		x.Reason = fmt.Sprintf("%02d of 3 answers needed", i)
		offer(s, &x)
		w.sim.RunFor(100 * time.Millisecond)
	}
	if n := size(); n != first {
		t.Fatalf("%d bytes were written while it waited for 4 s", n-first)
	}
	w.sim.RunFor(10 * time.Second)
	if n := size() - first; n <= 0 || n > 1000 {
		t.Fatalf("%d bytes were written of one wait", n)
	}
}
