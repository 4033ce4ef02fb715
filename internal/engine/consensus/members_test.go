package consensus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tanist/tanist/internal/core/catalog"
)

func (cl *cluster) changeErr(m *member, op MemberOp, id uint64) (err error) {
	cl.t.Helper()
	answered := false
	m.c.Change(MemberChange{op, id}, func(e error) { answered, err = true, e })
	cl.await("answer to a change", 5*time.Second, func() bool { return answered })
	return err
}

func TestChangesThatAreRefused(t *testing.T) {
	cl := newCluster(t, 1)
	cl.grow(3)
	l := cl.leader()
	other := cl.members[(slices.Index(cl.members, l)+1)%3]
	fresh := ID([16]byte{0: 9})
	for name, c := range map[string]struct {
		at   *member
		op   MemberOp
		id   uint64
		want error
		text string
	}{
		"not the leader":     {other, AddLearner, fresh, ErrNotLeader, name(l.id)},
		"the leader's vote":  {l, AddLearner, l.id, ErrNoChange, "it leads"},
		"votes already":      {l, AddVoter, other.id, ErrNoChange, "votes already"},
		"no learner":         {l, AddVoter, ID([16]byte{0: 7}), ErrNoChange, "not a learner"},
		"no member":          {l, Remove, ID([16]byte{0: 7}), ErrNoChange, "not a member"},
		"no store":           {l, AddLearner, 0, ErrNoChange, "no store"},
		"no such change":     {l, 9, fresh, ErrNoChange, "no such change"},
		"learner of nothing": {l, AddLearner, fresh, nil, ""},
		"learner already":    {l, AddLearner, ID([16]byte{0: 6}), ErrNoChange, "learner already"},
		"no log yet":         {l, AddVoter, ID([16]byte{0: 8}), ErrNoChange, "caught up"},
	} {
		if name == "no log yet" || name == "learner already" {
			if err := cl.changeErr(l, AddLearner, c.id); err != nil {
				t.Fatal(err)
			}
		}
		err := cl.changeErr(c.at, c.op, c.id)
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One at a time.
	var errs []error
	for i := range 2 {
		l.c.Change(MemberChange{AddLearner, ID([16]byte{0: 20, 1: byte(i)})}, func(err error) { errs = append(errs, err) })
	}
	cl.await("answers", time.Second, func() bool { return len(errs) == 2 })
	if !errors.Is(errs[0], ErrChanging) || errs[1] != nil {
		t.Errorf("two at once: %v", errs)
	}
	single := newCluster(t, 2)
	single.grow(1)
	if err := single.changeErr(single.members[0], AddLearner, single.members[0].id); !errors.Is(err, ErrNoChange) || !strings.Contains(err.Error(), "last voter") {
		t.Errorf("the last voter gave up its vote: %v", err)
	}
	if err := single.changeErr(single.members[0], Remove, single.members[0].id); !errors.Is(err, ErrNoChange) {
		t.Errorf("the last voter was removed: %v", err)
	}
	five := newCluster(t, 3)
	five.grow(5)
	sixth := five.add()
	five.change(AddLearner, sixth.id)
	five.await("start", 5*time.Second, func() bool { return sixth.started })
	if err := five.changeErr(five.leader(), AddVoter, sixth.id); !errors.Is(err, ErrNoChange) || !strings.Contains(err.Error(), "5 voters") {
		t.Errorf("a sixth voter: %v", err)
	}
}

// A member that is removed learns of it, whatever it is and whether it was there when it happened; the others go on.
func TestRemovedMemberLearnsOfIt(t *testing.T) {
	for _, who := range []string{"leader", "follower", "learner", "down", "learner down"} {
		for seed := range uint64(10) {
			cl := newCluster(t, seed)
			cl.grow(3)
			learner := cl.add()
			cl.change(AddLearner, learner.id)
			cl.await("start", 5*time.Second, func() bool { return learner.started }) // else it knows nobody to learn it from
			l := cl.leader()
			m := cl.members[(slices.Index(cl.members, l)+1)%3]
			switch who {
			case "leader":
				m = l
			case "learner", "learner down":
				m = cl.members[3]
			}
			if strings.HasSuffix(who, "down") {
				m.stop()
			}
			cl.loss = 0.1
			cl.change(Remove, m.id)
			if !m.up && !m.removed {
				m.start()
			}
			cl.await(who+" to learn of its removal", 10*time.Second, func() bool { return m.removed })
			for _, o := range cl.members {
				if o != m {
					cl.put(o)
				}
			}
			cl.await("peace", 15*time.Second, func() bool { return cl.open == 0 && cl.alike() })
			if err := cl.changeErr(cl.leader(), AddLearner, m.id); !errors.Is(err, ErrNoChange) {
				t.Fatalf("a removed store was taken again: %v", err)
			}
		}
	}
}

// A voter whose store is lost is replaced: a learner takes its vote, and what the old store may still send counts for nothing.
func TestReplacement(t *testing.T) {
	cl := newCluster(t, 4)
	cl.grow(3)
	lost := cl.leader()
	lost.stop()
	fresh := cl.add()
	cl.change(AddLearner, fresh.id)
	cl.change(Remove, lost.id)
	cl.change(AddVoter, fresh.id)
	for i := range 20 {
		cl.put(cl.members[1+i%3])
	}
	lost.start()
	cl.await("peace", 10*time.Second, func() bool { return cl.open == 0 && lost.removed && cl.alike() })
	if s := cl.leader().c.status(); len(s.Voters) != 3 || slices.Contains(s.Voters, lost.id) || !slices.Contains(s.Voters, fresh.id) {
		t.Fatalf("%+v", s)
	}
}

// A voter gives up its vote while it is there, or is made to while it is not: it applies everything as before and elects nobody, and may vote
// again.
func TestAVoterGivesUpItsVote(t *testing.T) {
	cl := newCluster(t, 7)
	cl.grow(4)
	var voters []*member
	for _, m := range cl.members {
		if m != cl.leader() {
			voters = append(voters, m)
		}
	}
	there, away := voters[0], voters[1]
	away.stop()
	cl.change(AddLearner, there.id)
	cl.change(AddLearner, away.id)
	if s := cl.leader().c.status(); len(s.Voters) != 2 || slices.Contains(s.Voters, there.id) || slices.Contains(s.Voters, away.id) || len(s.Learners) != 2 {
		t.Fatalf("%+v", s)
	}
	for range 10 {
		cl.put(there)
	}
	away.start()
	cl.await("peace", 10*time.Second, func() bool { return cl.open == 0 && cl.alike() })
	lost := cl.leader()
	cl.change(AddVoter, there.id)
	lost.stop()
	cl.await("another leader", 10*time.Second, func() bool { l := cl.leader(); return l != nil && l != lost })
	if l := cl.leader(); l == away {
		t.Errorf("who does not vote leads: %s", name(l.id))
	}
	cl.put(there)
	lost.start()
	cl.await("peace", 10*time.Second, func() bool { return cl.open == 0 && cl.alike() })
}

// Without a quorum a proposal ends in time, and says truly whether it can still come into force.
func TestProposalsWithoutQuorum(t *testing.T) {
	cl := newCluster(t, 5)
	cl.grow(3)
	l := cl.leader()
	for _, m := range cl.members {
		if m != l {
			m.stop()
		}
	}
	var sent, unsent, read error
	cmd, err := catalog.Encode(catalog.PutSetting("x", "y", 0))
	if err != nil {
		t.Fatal(err)
	}
	l.c.Propose(cmd, func(_ catalog.Result, err error) { sent = err })
	cl.await("the leader to step down", 3*time.Second, func() bool { return !l.leading })
	l.c.Propose(cmd, func(_ catalog.Result, err error) { unsent = err })
	l.c.Barrier(func(err error) { read = err })
	took := cl.await("outcomes", 13*time.Second, func() bool { return sent != nil && unsent != nil && read != nil })
	if !errors.Is(sent, ErrUncertain) || !errors.Is(unsent, ErrNotProposed) || !errors.Is(read, ErrNotProposed) || took < 9*time.Second {
		t.Fatalf("after %v: %v; %v; %v", took, sent, unsent, read)
	}
	for _, err := range []error{sent, unsent, read} {
		if !strings.Contains(err.Error(), "no quorum") {
			t.Errorf("%v does not say why", err)
		}
	}
	if s := l.c.status(); s.Waiting != 0 || s.Leader != 0 {
		t.Errorf("%+v", s)
	}
}

// A start that waits says for whom.
func TestStartSaysWhatItWaitsFor(t *testing.T) {
	cl := newCluster(t, 6)
	cl.grow(3)
	for range 10 {
		cl.put(cl.leader())
		cl.sim.RunFor(50 * time.Millisecond)
	}
	for _, m := range cl.members {
		m.stop()
	}
	cl.told = nil
	cl.members[0].start()
	cl.sim.RunFor(10 * time.Second)
	if cl.members[0].started {
		t.Fatal("started without a quorum")
	}
	lines := 0
	for _, e := range cl.told {
		if e.Name == "consensus.waiting" {
			lines++
			if text := fmt.Sprint(e.Attrs); !strings.Contains(text, name(cl.members[1].id)) || !strings.Contains(text, name(cl.members[2].id)) ||
				!strings.Contains(text, "leader=none") {
				t.Errorf("it says %s", text)
			}
		}
	}
	if lines < 2 || lines > 4 {
		t.Errorf("%d lines in 10 s", lines)
	}
	cl.members[1].start()
	cl.await("start", 2*time.Second, func() bool { return cl.members[0].started && cl.members[1].started })
}

// Messages lost on the way are sent again: each member proposes while half of everything is lost.
func TestEveryMemberProposesThroughLoss(t *testing.T) {
	cl := newCluster(t, 8)
	cl.snapshot = 1 << 20 // a snapshot would take outcomes with it
	cl.grow(3)
	learner := cl.add()
	cl.change(AddLearner, learner.id)
	cl.await("start of the learner", time.Second, func() bool { return learner.started })
	cl.loss, cl.twice = 0.3, 0.3
	for i := range 40 {
		cl.put(cl.members[i%4])
		cl.read(cl.members[(i+1)%4])
		cl.sim.RunFor(20 * time.Millisecond)
	}
	cl.loss = 0
	cl.await("outcomes", 20*time.Second, func() bool { return cl.open == 0 && cl.alike() })
	if len(cl.settled) != 40 {
		t.Fatalf("%d of 40 confirmed, %d unsure, %d refused", len(cl.settled), cl.unsure, cl.refused)
	}
}

// A follower that lags a little is sent entries, one that lags a lot is sent a snapshot, and memory stays bounded either way.
func TestLaggingFollower(t *testing.T) {
	for entries, snapshots := range map[int]int{2: 0, 400: 1} {
		cl := newCluster(t, 9)
		cl.snapshot = 20_000
		cl.grow(3)
		l := cl.leader()
		m := cl.members[(slices.Index(cl.members, l)+1)%3]
		for range 500 { // so that the log has been compacted
			cl.put(l)
			cl.sim.RunFor(5 * time.Millisecond)
		}
		cl.sim.RunFor(time.Second)
		cl.sever(m, true)
		installed := cl.shipped
		for range entries {
			cl.put(l)
			cl.sim.RunFor(5 * time.Millisecond)
		}
		l.c.save()
		cl.sim.RunFor(time.Second)
		cl.heal()
		cl.await("peace", 5*time.Second, func() bool { return cl.open == 0 && cl.alike() })
		if got := cl.shipped - installed; got != snapshots {
			t.Errorf("%d entries behind: %d snapshots, want %d", entries, got, snapshots)
		}
		for _, m := range cl.members {
			from, _ := m.c.mem.FirstIndex()
			to, _ := m.c.mem.LastIndex()
			if n := to + 1 - from; n > 600 {
				t.Errorf("%s keeps %d entries in memory", m.local.Node, n)
			}
		}
	}
}

// A follower that lags is sent much at once, committed already. A crash between any two pieces of its append leaves a log that it can start from.
func TestCrashAsAFollowerCatchesUpInPieces(t *testing.T) {
	for kept := 0; ; kept++ {
		cl := newCluster(t, 11)
		cl.snapshot = 64 << 20
		cl.grow(3)
		l := cl.leader()
		m := cl.members[(slices.Index(cl.members, l)+1)%3]
		cl.sever(m, false)
		for i := range 8 {
			name := fmt.Sprint("big", i)
			cl.propose(l, catalog.PutSetting(name, strings.Repeat("x", 200<<10), 0), func(r catalog.Result) {
				cl.settled[name] = fact{true, r.Items[0].Object.(*catalog.Setting).Version}
			})
		}
		cl.await("outcomes", time.Second, func() bool { return cl.open == 0 })
		m.log.stalled = true
		clear(m.cut)
		for _, o := range cl.members {
			clear(o.cut)
		}
		cl.await("an append in pieces", 5*time.Second, func() bool { return len(m.log.pending) >= 2 })
		if kept > len(m.log.pending) {
			return
		}
		m.crash(kept)
		m.start()
		cl.heal()
		cl.await("peace", 10*time.Second, func() bool { return cl.alike() })
	}
}

// A crash at every step of joining, and of being sent a snapshot after that, with any part of what was on its way to the disk kept.
func TestCrashAtEveryStepOfASnapshot(t *testing.T) {
	cases := 0
	for at := 0; ; at++ {
		for kept := 0; ; kept++ {
			cl := newCluster(t, 10)
			cl.snapshot = 4000
			cl.grow(3)
			m := cl.add()
			l := cl.leader()
			for range 30 {
				cl.put(l)
			}
			cl.change(AddLearner, m.id)
			after := func(ms int, f func()) { cl.sim.At(cl.sim.Now()+time.Duration(ms)*time.Millisecond, f) }
			for i := range 60 {
				after(5*i, func() { cl.put(l) })
			}
			after(100, func() { cl.sever(m, true) })
			after(320, func() { l.c.save() })
			after(400, cl.heal)
			// Every operation of its disk is a step.
			if !cl.sim.RunUntil(func() bool { return m.log.count >= at }, time.Second) {
				if at < 20 || cl.shipped < 4 {
					t.Fatalf("%d operations, %d snapshots", at, cl.shipped)
				}
				t.Logf("%d crashes", cases)
				return
			}
			if kept > len(m.log.pending) {
				break
			}
			cases++
			m.crash(kept)
			m.start()
			cl.put(m)
			cl.sim.RunFor(500 * time.Millisecond)
			cl.heal()
			cl.await("peace", 10*time.Second, func() bool { return cl.open == 0 && cl.alike() })
		}
	}
}

func TestLedgerTakesOnce(t *testing.T) {
	l := newLedger()
	take := func(id, boot, seq, low uint64, want bool) {
		t.Helper()
		again, err := decodeLedger(l.encode())
		if err != nil {
			t.Fatal(err)
		}
		if l = again; l.take(header{id, boot, seq, low}) != want {
			t.Fatalf("boot %d sequence %d low %d: %v", boot, seq, low, !want)
		}
	}
	take(1, 1, 1, 1, true)
	take(1, 1, 1, 1, false)
	take(2, 1, 1, 1, true) // each its own
	take(1, 1, 3, 2, true)
	take(1, 1, 2, 2, true)
	take(1, 1, 3, 2, false)
	if p := l.proposers[1]; p.floor != 4 || len(p.above) != 0 {
		t.Fatalf("%+v", p)
	}
	take(1, 1, 9, 4, true)
	take(1, 1, 8, 8, true) // 4 to 7 were given up
	take(1, 1, 7, 4, false)
	take(1, 1, 9, 8, false)
	take(1, 2, 1, 1, true) // a new run
	take(1, 1, 10, 8, false)
	if !l.applied(1, 1, 10) || !l.applied(1, 2, 1) || l.applied(1, 2, 2) {
		t.Fatal("it does not know what was applied")
	}
	l.remove(1)
	take(1, 3, 1, 1, false)
	for n := range l.encode() {
		if _, err := decodeLedger(l.encode()[:n]); err == nil {
			t.Fatalf("%d bytes of %d were taken", n, len(l.encode()))
		}
	}
}

// A leader takes nothing from another member that would stop everybody.
func TestMalformedMessages(t *testing.T) {
	cl := newCluster(t, 11)
	cl.grow(3)
	l := cl.leader()
	from := cl.members[(slices.Index(cl.members, l)+1)%3].id
	last := l.c.applied
	for _, e := range []*raftpb.Entry{
		{Data: []byte{1}},
		{Data: encodeProposal(header{l.id, 1, 1, 1}, nil)}, // in another's name
		{Type: raftpb.EntryConfChange.Enum(), Data: nil},
		{},
	} {
		b, err := encodeMessage(&raftpb.Message{Type: raftpb.MsgProp.Enum(), To: new(l.id), From: new(from), Entries: []*raftpb.Entry{e}})
		if err != nil {
			t.Fatal(err)
		}
		l.c.Deliver(b)
	}
	for _, b := range [][]byte{nil, {kindRaft}, {kindRaft, 0xff}, {kindRemoved}, {9, 1, 1}, appendUvarints([]byte{kindRemoved}, 77, from, 1)} {
		l.c.Deliver(b)
	}
	cl.put(l)
	cl.await("outcome", time.Second, func() bool { return cl.open == 0 && cl.alike() })
	if got := l.c.applied; got > last+2 { // the setting, and perhaps its deletion
		t.Fatalf("%d entries were appended", got-last)
	}
}
