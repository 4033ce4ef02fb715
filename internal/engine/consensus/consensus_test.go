package consensus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func TestFirstStartMakesTheCluster(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.mustStart()
	v := w.c.State().View()
	if v.Cluster() == nil || v.VHost("/") == nil || v.User("guest").Hash != guest || v.Permission("guest", "/") == nil {
		t.Fatalf("bootstrap is incomplete")
	}
	if want := []string{"told /"}; !slices.Equal(w.events, want) {
		t.Fatalf("listeners were told %v, want %v", w.events, want)
	}
	id := v.Cluster().ID
	again := newWorld(t, w.log.crash(0), 2, 0)
	again.c.env.Bootstrap = func() ([]byte, error) { t.Error("bootstrapped twice"); return nil, nil }
	again.mustStart()
	if got := again.c.State().View().Cluster().ID; got != id {
		t.Fatalf("cluster id changed from %v to %v", id, got)
	}
	if s := again.status(); !s.Leading || s.Leader != ID(storeA) || s.Err != nil {
		t.Fatalf("status %+v", s)
	}
}

func TestListenersAreToldBeforeProposers(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.propose("early") // waits for the start
	w.mustStart()
	w.propose("a")
	w.propose("b")
	w.run()
	at := func(event string) int { return slices.Index(w.events, event) }
	if len(w.events) != 7 || at("told /") != 0 || at("told early") != 1 || at("done early") != 2 || at("told a") > at("told b") ||
		at("done a") > at("done b") || at("told a") > at("done a") || at("told b") > at("done b") || at("told a") < 0 || at("told b") < 0 {
		t.Fatalf("got %v", w.events)
	}
	w.events = nil
	w.c.OnApply(func(ch []catalog.Change) {
		w.events = append(w.events, fmt.Sprint(len(ch) == len(w.c.State().Changes())))
	})
	w.run()
	if !slices.Equal(w.events, []string{"true"}) {
		t.Fatalf("a late listener was told %v", w.events)
	}
}

func TestProposalsOfOneRoundAreOneAppend(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.mustStart()
	before := len(w.log.ops)
	cmd, _ := catalog.Encode(catalog.PutUser(catalog.User{Name: "u"}))
	answered := 0
	for range 1000 {
		w.c.Propose(cmd, func(catalog.Result, error) { answered++ })
	}
	w.run()
	// The simulated loop may end a round early, never after each message.
	if got := len(w.log.ops) - before; answered != 1000 || got > 300 {
		t.Fatalf("%d answers of 1000 took %d appends", answered, got)
	}
	before = len(w.log.ops)
	for i := range 50 { // one after the other: one append each, none for the commit index
		w.propose(fmt.Sprint("v", i))
		w.run()
	}
	if got := len(w.log.ops) - before; got != 50 {
		t.Fatalf("50 proposals, one at a time, took %d appends", got)
	}
}

// steps runs a small life: start, proposals alone and together, a log small enough to be compacted on the way. It stops once the log
// has synced the given number of operations.
func (w *world) steps(syncs int) {
	next := 0
	for done := 0; done < syncs; done++ {
		w.turn()
		if next < 40 && (done%2 == 1 || len(w.log.pending) == 0) {
			for range 1 + next%3 {
				w.propose(fmt.Sprintf("v%d-%d", w.c.env.Local.Boot, next))
				next++
			}
			w.turn()
		}
		if !w.log.sync() {
			return
		}
	}
	w.turn()
}

func TestCrashAtEveryStep(t *testing.T) {
	total := newWorld(t, &memLog{}, 1, 300)
	total.steps(1000)
	if total.log.count < 15 || !strings.Contains(strings.Join(total.log.ops[1:], "\n"), "snapshot") {
		t.Fatalf("the life is too small to be worth crashing: %d operations", total.log.count)
	}
	cases := 0
	for at := range total.log.count + 1 {
		for kept := 0; ; kept++ {
			w := newWorld(t, &memLog{}, 1, 300)
			w.steps(at)
			if kept > len(w.log.pending) {
				break
			}
			cases++
			before := w.c.State().Snapshot()
			r := newWorld(t, w.log.crash(kept), 2, 300)
			r.mustStart()
			view := r.c.State().View()
			for v, ok := range w.acked {
				if ok && view.VHost(v) == nil {
					t.Fatalf("crash after %d, %d kept: %s was acknowledged and is gone", at, kept, v)
				}
			}
			if w.c.State().Index() > r.c.State().Index() {
				t.Fatalf("crash after %d, %d kept: applied %d, then %d; %x", at, kept, w.c.State().Index(), r.c.State().Index(), before)
			}
			r.steps(1000)
			for v, ok := range r.acked {
				if !ok || view.VHost(v) == nil {
					t.Fatalf("crash after %d, %d kept: %s was not taken after the restart", at, kept, v)
				}
			}
			last := newWorld(t, r.log.crash(0), 3, 300)
			last.mustStart()
			if a, b := r.c.State().Snapshot(), last.c.State().Snapshot(); string(a) != string(b) {
				t.Fatalf("crash after %d, %d kept: the state differs after a restart in peace", at, kept)
			}
		}
	}
	t.Logf("%d crashes", cases)
}

func TestFailureOfTheLogIsClear(t *testing.T) {
	for at := 1; at <= 20; at++ {
		log := &memLog{failAt: at}
		w := newWorld(t, log, 1, 300)
		w.steps(1000)
		w.propose("after")
		w.turn()
		if len(w.failed) != 1 || !errors.Is(w.failed[0], errDisk) {
			t.Fatalf("failure of operation %d: told %v", at, w.failed)
		}
		if err := w.errs["after"]; !errors.Is(err, ErrNotProposed) || !errors.Is(err, errDisk) {
			t.Fatalf("failure of operation %d: a later proposal got %v", at, err)
		}
		for v, err := range w.errs {
			if err != nil && !errors.Is(err, ErrNotProposed) && !errors.Is(err, ErrUncertain) {
				t.Fatalf("failure of operation %d: %s got %v", at, v, err)
			}
		}
		if len(w.started) != 1 {
			t.Fatalf("failure of operation %d: start was answered %d times", at, len(w.started))
		}
		ops := len(log.ops)
		w.propose("later")
		w.run()
		if len(log.ops) != ops {
			t.Fatalf("failure of operation %d: wrote to a failed log", at)
		}
		r := newWorld(t, log.crash(0), 2, 300)
		r.mustStart()
		for v, ok := range w.acked {
			if ok && r.c.State().View().VHost(v) == nil {
				t.Fatalf("failure of operation %d: %s was acknowledged and is gone", at, v)
			}
		}
	}
}

func TestSameInputsSameLog(t *testing.T) {
	var logs [2]string
	for i := range logs {
		w := newWorld(t, &memLog{}, 1, 300)
		w.steps(1000)
		logs[i] = strings.Join(w.log.ops, "\n")
	}
	if logs[0] != logs[1] {
		t.Fatalf("two runs wrote different logs:\n%s\n\n%s", logs[0], logs[1])
	}
}

func TestUnknownCommandStops(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.mustStart()
	w.propose("before")
	w.c.Propose([]byte{catalog.Format + 1, 0}, func(_ catalog.Result, err error) { w.errs["unknown"] = err })
	w.propose("behind")
	w.run()
	if len(w.failed) != 1 || !errors.Is(w.failed[0], catalog.ErrUnknownCommand) {
		t.Fatalf("told %v", w.failed)
	}
	if err := w.errs["unknown"]; !errors.Is(err, ErrUncertain) {
		t.Fatalf("its proposer got %v", err)
	}
	// It stays in the log, and so the node stops at every start until a version runs that knows it.
	r := newWorld(t, w.log.crash(0), 2, 0)
	r.run()
	if len(r.started) != 1 || !errors.Is(r.started[0], catalog.ErrUnknownCommand) {
		t.Fatalf("started %v", r.started)
	}
}

func TestDamagedLogIsRefused(t *testing.T) {
	hard := func(term, commit uint64) []byte {
		b, err := proto.Marshal(&raftpb.HardState{Term: new(term), Vote: new(ID(storeA)), Commit: new(commit)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, damage := range map[string]func(*catalog.LogState){
		"a gap":                     func(s *catalog.LogState) { s.Entries = slices.Delete(s.Entries, 1, 2) },
		"a term that falls":         func(s *catalog.LogState) { s.Entries[len(s.Entries)-1].Term = 1 },
		"commit beyond the end":     func(s *catalog.LogState) { s.Hard = hard(9, 1000) },
		"a hard state of rubbish":   func(s *catalog.LogState) { s.Hard = []byte{0xff} },
		"a term below its entries'": func(s *catalog.LogState) { s.Hard = hard(1, 1) },
		"an empty entry":            func(s *catalog.LogState) { s.Entries[1].Data = nil },
		"a type unknown":            func(s *catalog.LogState) { s.Entries[1].Data = []byte{9} },
		"a snapshot of rubbish":     func(s *catalog.LogState) { s.Snapshot.Data = []byte{5} },
		"a snapshot cut":            func(s *catalog.LogState) { s.Snapshot.Data = s.Snapshot.Data[:len(s.Snapshot.Data)-1] },
		"no snapshot":               func(s *catalog.LogState) { s.Snapshot = catalog.LogSnapshot{} },
		"another store's": func(s *catalog.LogState) {
			s.Snapshot.Data = encodeSnapshot(&raftpb.ConfState{Voters: []uint64{5}}, newLedger(), nil)
		},
		"a proposal without command": func(s *catalog.LogState) { s.Entries[1].Data = []byte{0, 1, 1, 1, 1} },
	} {
		w := newWorld(t, &memLog{}, 1, 0)
		w.mustStart()
		w.propose("v")
		w.run()
		log := w.log.crash(0)
		damage(&log.durable)
		r := newWorld(t, log, 2, 0)
		r.run()
		if len(r.started) != 1 || r.started[0] == nil || len(r.failed) != 1 {
			t.Errorf("%s: started %v, failed %v", name, r.started, r.failed)
		}
	}
}

func TestHardStateMayLag(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.mustStart()
	w.propose("v")
	w.run()
	log := w.log.crash(0)
	s := w.c.snapshot(w.c.applied, w.c.appliedAt)
	log.SaveSnapshot(s, func(error) {})
	log.sync()
	for _, hard := range [][]byte{log.durable.Hard, nil} {
		log.durable.Hard = hard
		r := newWorld(t, log.crash(0), 2, 0)
		r.mustStart()
		if r.c.State().View().VHost("v") == nil {
			t.Fatal("v is gone")
		}
	}
}

func TestStopAndBarrier(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	var early error
	w.c.Barrier(func(err error) { early = err })
	w.mustStart()
	if !errors.Is(early, ErrNotProposed) {
		t.Fatalf("a barrier before the start got %v", early)
	}
	passed := false
	w.c.Barrier(func(err error) { passed = err == nil })
	w.run()
	if !passed {
		t.Fatal("the barrier did not pass")
	}
	w.propose("inflight")
	w.turn()
	stopped := false
	w.c.Stop(func() { stopped = true })
	w.turn()
	w.propose("late")
	w.run()
	if !stopped || !errors.Is(w.errs["inflight"], ErrUncertain) || !errors.Is(w.errs["late"], ErrNotProposed) {
		t.Fatalf("stopped %v, errors %v", stopped, w.errs)
	}
	if len(w.failed) != 0 {
		t.Fatalf("a stop that was asked for was reported as %v", w.failed)
	}
}

func TestProposalsAreBounded(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.c.env.MaxInFlight = 3
	w.mustStart()
	for i := range 5 {
		w.propose(fmt.Sprint(i))
	}
	w.run()
	refused := 0
	for _, err := range w.errs {
		if errors.Is(err, ErrNotProposed) {
			refused++
		}
	}
	if refused != 2 || len(w.errs) != 5 {
		t.Fatalf("%d of %d refused, want 2 of 5", refused, len(w.errs))
	}
}

func TestLargeAppendsGoInPieces(t *testing.T) {
	w := newWorld(t, &memLog{}, 1, 0)
	w.mustStart()
	big, answered := strings.Repeat("x", 200<<10), 0
	for i := range 10 {
		cmd, err := catalog.Encode(catalog.PutSetting(fmt.Sprint(i), big, 0))
		if err != nil {
			t.Fatal(err)
		}
		w.c.Propose(cmd, func(_ catalog.Result, err error) {
			if err == nil {
				answered++
			}
		})
	}
	// Before anything of it is durable, no piece is larger than it may be.
	w.turn()
	pieces := 0
	for _, op := range w.log.pending {
		var s catalog.LogState
		op.do(&s)
		size := 0
		for _, e := range s.Entries {
			size += len(e.Data)
		}
		if size > maxPiece || size == 0 {
			t.Fatalf("a piece of %d bytes", size)
		}
		pieces++
	}
	if pieces < 4 || answered != 0 {
		t.Fatalf("%d pieces, %d answers before anything is durable", pieces, answered)
	}
	for kept := range len(w.log.pending) + 1 { // a crash between any two pieces leaves a log that can be started from
		log := &memLog{durable: w.log.durable, pending: w.log.pending}
		r := newWorld(t, log.crash(kept), 2, 0)
		r.mustStart()
		if got := len(r.c.State().View().Settings()); kept == 0 && got != 0 || kept == pieces && got != 10 {
			t.Fatalf("%d of %d pieces kept, %d settings", kept, pieces, got)
		}
	}
	w.run()
	r := newWorld(t, w.log.crash(0), 2, 0)
	r.mustStart()
	if got := len(r.c.State().View().Settings()); answered != 10 || got != 10 {
		t.Fatalf("%d answers, %d settings after a restart", answered, got)
	}
}

func TestRaftIDComesFromTheStore(t *testing.T) {
	seen := map[uint64]bool{}
	for _, s := range []ident.StoreID{{}, {1}, {7: 1}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}} {
		id := ID(s)
		if id == 0 || id >= 1<<63 {
			t.Errorf("%v has id %d", s, id)
		}
		seen[id] = true
	}
	if len(seen) < 4 {
		t.Errorf("ids collide: %v", seen)
	}
}
