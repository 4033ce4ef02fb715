package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

// named registers the members in the catalog, so that voters have names.
func (cl *cluster) named() {
	cl.t.Helper()
	for _, m := range cl.members {
		cl.propose(cl.leader(), catalog.RegisterBoot(catalog.Node{Name: m.local.Node, Store: m.local.Store, Boot: m.local.Boot}), func(r catalog.Result) {
			if r.Err() != nil {
				cl.t.Error(r.Err())
			}
		})
	}
	cl.await("names", 5*time.Second, func() bool {
		for _, m := range cl.members {
			if len(m.c.State().View().Nodes()) < len(cl.members) {
				return false
			}
		}
		return true
	})
}

func (m *member) examine() *Survey {
	m.cl.t.Helper()
	state, err := m.log.Load()
	if err != nil {
		m.cl.t.Fatal(err)
	}
	s, err := Examine(state, m.local.Store)
	if err != nil {
		m.cl.t.Fatal(err)
	}
	return s
}

// recover has a member that is down go on alone; the disk keeps so many of the writes.
func (m *member) recover(kept int, lost ...string) Recovery {
	m.cl.t.Helper()
	s := m.examine()
	r, err := s.Recover(m.local.Node, lost, nil, "the rack burnt", time.UnixMilli(5000))
	if err != nil {
		m.cl.t.Fatal(err)
	}
	m.log.memLog.SaveSnapshot(s.Snapshot(r), func(error) {})
	m.log = &disk{memLog: m.log.crash(kept), cl: m.cl}
	return r
}

// What is no way out is refused, and nothing is changed by it.
func TestRecoveriesThatAreRefused(t *testing.T) {
	cl := newCluster(t, 1)
	cl.grow(3)
	cl.named()
	m := cl.members[0]
	m.stop()
	for says, x := range map[string]struct{ lost, stopped []string }{
		"nothing is said of n2":   {[]string{"n1"}, nil},
		"is no voter":             {[]string{"n1", "n9"}, nil},
		"is this node itself":     {[]string{"n0", "n1", "n2"}, nil},
		"which is a majority":     {[]string{"n1"}, []string{"n2"}},
		"as lost and as stopped":  {[]string{"n1", "n2"}, []string{"n2"}},
		"nothing is said of n1, ": {nil, nil},
	} {
		if _, err := m.examine().Recover("n0", x.lost, x.stopped, "", time.UnixMilli(1)); !errors.Is(err, ErrNoRecovery) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q of %+v: %v", says, x, err)
		}
	}
	if s := m.examine(); s.Generation != ident.FirstGeneration || len(s.Voters) != 3 {
		t.Errorf("%+v", s)
	}
	if _, err := Examine(catalog.LogState{}, m.local.Store); err == nil {
		t.Error("an empty log is examined")
	}
	state, _ := m.log.Load()
	if _, err := Examine(state, ident.StoreID{1}); err == nil {
		t.Error("another store's log is examined")
	}
}

// Of five voters two are left: the one with the further log goes on, the other is named as stopped, and both words are kept.
func TestOfTwoThatAreLeftOneFollows(t *testing.T) {
	cl := newCluster(t, 6)
	cl.grow(5)
	cl.named()
	cl.await("outcomes", 10*time.Second, func() bool { return cl.open == 0 && cl.alike() })
	for _, m := range cl.members {
		m.stop()
	}
	s := cl.members[0].examine()
	if _, err := s.Recover("n0", []string{"n1", "n2"}, []string{"n3", "n4"}, "", time.UnixMilli(1)); !errors.Is(err, ErrNoRecovery) {
		t.Errorf("three of five are left: %v", err)
	}
	r, err := s.Recover("n0", []string{"n3", "n1", "n4"}, []string{"n2"}, "the rack burnt", time.UnixMilli(1))
	if err != nil || listed(r.Lost) != "n1, n3, n4" || listed(r.Stopped) != "n2" {
		t.Fatalf("%v: %+v", err, r)
	}
	after, err := Examine(catalog.LogState{Snapshot: s.Snapshot(r)}, cl.members[0].local.Store)
	if err != nil || len(after.Voters) != 1 || after.Generation != r.Generation() || len(after.Recoveries) != 1 || listed(after.Recoveries[0].Stopped) != "n2" {
		t.Fatalf("%v: %+v", err, after)
	}
	if _, again := after.Recover("n0", []string{"n3", "n1", "n4"}, []string{"n2"}, "the rack burnt", time.UnixMilli(2)); again == nil ||
		!strings.Contains(again.Error(), "the only voter already (recovered on n0 at 1970-01-01 00:00:00, generation 2): start it") {
		t.Errorf("asked again, since nobody heard the answer: %v", again)
	}
}

// One of three goes on alone with everything that was confirmed, whatever a crash during the recovery leaves: the old log or the new one. The two
// that were lost come back with their logs put aside, learn, and vote.
func TestOneOfThreeGoesOnAlone(t *testing.T) {
	for kept := range 2 {
		for seed := range uint64(20) {
			cl := newCluster(t, 100*seed+uint64(kept)+1)
			cl.grow(3)
			cl.named()
			for range 30 {
				cl.put(cl.leader())
			}
			cl.sim.RunFor(time.Duration(seed%5) * 3 * time.Millisecond)
			m := cl.members[seed%3]
			cl.await("outcomes", 30*time.Second, func() bool { return cl.open == 0 && cl.alike() })
			var others []string
			for _, o := range cl.members {
				if o != m {
					others = append(others, o.local.Node)
				}
				o.stop()
			}
			before, r := m.examine(), m.recover(kept, others...)
			if kept == 0 {
				if s := m.examine(); s.Generation != ident.FirstGeneration || s.Index != before.Index {
					t.Fatalf("a recovery that a crash undid leaves %+v", s)
				}
				r = m.recover(1, others...)
			}
			if r.Index != before.Index+1 || r.Term <= before.Term {
				t.Fatalf("%+v after %+v", r, before)
			}
			clear(cl.states) // the other line has other states at these indexes
			m.start()
			cl.await("the start of the one that is left", 5*time.Second, func() bool { return m.started })
			if s := m.c.status(); s.Generation != r.Generation() || len(s.Recoveries) != 1 || s.Recoveries[0].Reason != "the rack burnt" {
				t.Fatalf("%+v", s)
			}
			for name, f := range cl.confirmed() {
				m.check(name, f)
			}
			cl.rejoin(m, r.Generation())
		}
	}
}

// rejoin has the others come back with empty logs.
func (cl *cluster) rejoin(m *member, g ident.Generation) {
	cl.t.Helper()
	for _, o := range cl.members {
		if o == m {
			continue
		}
		o.log = &disk{memLog: &memLog{silent: true}, cl: cl}
		o.joining, o.line = true, g
		o.start()
		cl.change(AddLearner, o.id)
		cl.await("the start of one that comes back", 10*time.Second, func() bool { return o.started })
		cl.change(AddVoter, o.id)
	}
	cl.put(cl.leader())
	cl.await("all alike", 30*time.Second, func() bool { return cl.open == 0 && cl.alike() })
	for _, o := range cl.members {
		if s := o.c.status(); s.Generation != g || len(s.Voters) != 3 {
			cl.t.Fatalf("%s: %+v", o.local.Node, s)
		}
	}
}

// The two that were lost are a majority of their own line: together they would go on, which is why nothing but the operator's word keeps them
// apart before they meet the one that is left. From then on each is told, and stops for good.
func TestTheOldMajorityStopsWhenItIsTold(t *testing.T) {
	cl := newCluster(t, 3)
	cl.grow(3)
	cl.named()
	m, n1, n2 := cl.members[0], cl.members[1], cl.members[2]
	cl.sever(m, true)
	cl.await("a leader of the old line", 10*time.Second, func() bool { return n1.leading || n2.leading })
	var failed []error
	for _, o := range []*member{n1, n2} {
		o.c.env.Failed = func(err error) { failed = append(failed, err) }
		o.c.Supersede("n0", ident.Generation{Number: 2, Mark: 7})
	}
	cl.await("the end of the old line", time.Second, func() bool { return len(failed) == 2 })
	for _, err := range failed {
		var by *Superseded
		if !errors.As(err, &by) || by.By != "n0" || by.Of.Number != 2 || by.Here != ident.FirstGeneration {
			t.Errorf("stopped by %v", err)
		}
	}
	cl.sim.RunFor(5 * time.Second)
	if n1.leading || n2.leading {
		t.Error("one leads on")
	}
	var err error
	n1.c.Propose(nil, func(_ catalog.Result, e error) { err = e })
	cl.sim.RunFor(time.Second)
	if !errors.Is(err, ErrNotProposed) {
		t.Errorf("a proposal ends with %v", err)
	}
}

// A member takes no catalog of another generation than it goes by, whoever sends it: no session should have carried it.
func TestACatalogOfAnotherLineIsNotTaken(t *testing.T) {
	cl := newCluster(t, 4)
	first := cl.add()
	cl.await("first start", 5*time.Second, func() bool { return first.started })
	o := cl.add()
	o.stop()
	o.line = ident.Generation{Number: 2, Mark: 7}
	o.start()
	var failed error
	o.c.env.Failed = func(err error) { failed = err }
	cl.change(AddLearner, o.id)
	cl.await("the end of it", 10*time.Second, func() bool { return failed != nil })
	if o.started || !strings.Contains(failed.Error(), "it is of generation 1, this member goes by 2 (0000000000000007)") {
		t.Errorf("started %v, %v", o.started, failed)
	}
}

// The evidence survives the ledger's coding, bounded, with the generations counting on; a ledger without any has the bytes that it always had.
func TestRecoveriesAreKept(t *testing.T) {
	l := newLedger()
	if plain := l.encode(); !bytes.Equal(plain, []byte{0, 0}) {
		t.Errorf("an empty ledger is %x", plain)
	}
	for i := range 3 {
		l.recoveries = append(l.recoveries, Recovery{
			Number: uint64(i + 2), Index: 9, Term: 3, At: -5, Node: "a", Reason: fmt.Sprint("r", i), Lost: []Member{{1, "b"}, {2, "c"}}, Stopped: []Member{{3, "d"}},
		})
	}
	b := l.encode()
	got, err := decodeLedger(b)
	if err != nil || !slices.EqualFunc(got.recoveries, l.recoveries, func(x, y Recovery) bool { return bytes.Equal(x.append(nil), y.append(nil)) }) {
		t.Fatalf("%v: %+v", err, got.recoveries)
	}
	if g := got.generation(); g.Number != 4 || g.Mark == 0 || g == got.recoveries[1].Generation() {
		t.Errorf("generation %v", g)
	}
	for n := 3; n < len(b); n++ {
		if _, err := decodeLedger(b[:n]); err == nil {
			t.Errorf("%d bytes of %d are a ledger", n, len(b))
		}
	}
}
