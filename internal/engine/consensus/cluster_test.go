package consensus

import (
	"os"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func TestThreeVotersAgree(t *testing.T) {
	cl := newCluster(t, 1)
	cl.grow(3)
	for i := range 60 {
		cl.put(cl.members[i%3])
		cl.read(cl.members[(i+1)%3])
	}
	cl.await("outcomes", 2*time.Second, func() bool { return cl.open == 0 && cl.alike() })
	if cl.unsure+cl.refused > 0 || len(cl.settled) != 60 {
		t.Fatalf("%d unsure, %d refused, %d confirmed", cl.unsure, cl.refused, len(cl.settled))
	}
	for _, m := range cl.members {
		if s := m.c.status(); len(s.Voters) != 3 || len(s.Learners) != 0 || s.Leader != cl.leader().id {
			t.Errorf("%s: %+v", m.local.Node, s)
		}
	}
}

// Alone, a voter needs no ticks: a quiet node does nothing.
func TestAloneNothingTicks(t *testing.T) {
	cl := newCluster(t, 1)
	cl.grow(1)
	cl.put(cl.members[0])
	cl.sim.RunFor(10 * time.Second)
	before := cl.sim.Steps()
	cl.sim.RunFor(10 * time.Second)
	if n := cl.sim.Steps() - before; n > 0 || cl.members[0].c.ticking {
		t.Fatalf("%d steps in 10 quiet seconds", n)
	}
}

func TestLeaderLost(t *testing.T) {
	for name, lose := range map[string]struct {
		how   func(*cluster, *member)
		limit time.Duration
	}{
		"crashed, and said so": {func(cl *cluster, m *member) {
			m.stop()
			for _, o := range cl.members {
				if o.up {
					o.c.PeerDown(m.id)
				}
			}
		}, 60 * time.Millisecond},
		"cut off, and said so": {func(cl *cluster, m *member) { cl.sever(m, true) }, 60 * time.Millisecond},
		"crashed in silence":   {func(_ *cluster, m *member) { m.stop() }, 800 * time.Millisecond},
		"cut off in silence":   {func(cl *cluster, m *member) { cl.sever(m, false) }, 800 * time.Millisecond},
		"its disk stalled":     {func(_ *cluster, m *member) { m.log.stalled = true; m.cl.put(m) }, 2500 * time.Millisecond},
		"its disk stalled, and nobody took over": {func(cl *cluster, m *member) {
			m.log.stalled = true
			cl.filter = func(b []byte) bool {
				x := &raftpb.Message{}
				return b[0] == kindRaft && proto.Unmarshal(b[1:], x) == nil && x.GetType() == raftpb.MsgTimeoutNow
			}
			cl.put(m)
		}, 3800 * time.Millisecond},
	} {
		for seed := range uint64(20) {
			cl := newCluster(t, seed)
			cl.grow(3)
			old := cl.leader()
			cl.sim.RunFor(time.Duration(cl.sim.Rand().Int64N(int64(300 * time.Millisecond))))
			lose.how(cl, old)
			took := cl.await("new leader, "+name, lose.limit, func() bool { l := cl.leader(); return l != nil && l != old })
			if seed == 0 {
				t.Logf("%s: %v", name, took)
			}
			cl.put(cl.leader())
			cl.await("outcome", time.Second, func() bool { return len(cl.settled) > 0 || cl.open == 0 })
			if !old.up {
				old.start()
			}
			cl.heal()
			cl.await("peace, "+name, 5*time.Second, func() bool { return cl.open == 0 && cl.alike() })
		}
	}
}

// storm lets everything happen to a cluster for a while, and then makes peace.
func storm(t *testing.T, seed uint64, voters, learners int, length time.Duration) *cluster {
	cl := newCluster(t, seed)
	cl.grow(voters)
	for range learners {
		cl.change(AddLearner, cl.add().id)
	}
	r := cl.sim.Rand()
	cl.loss, cl.twice = r.Float64()*0.2, r.Float64()*0.2
	cl.delay = time.Duration(1 + r.Int64N(int64(30*time.Millisecond)))
	cl.disk = time.Duration(1 + r.Int64N(int64(20*time.Millisecond)))
	for end := cl.sim.Now() + length; cl.sim.Now() < end; {
		cl.sim.RunFor(time.Duration(r.Int64N(int64(40 * time.Millisecond))))
		if m := cl.members[r.IntN(len(cl.members))]; m.up && cl.given < 300 {
			cl.put(m)
		}
		if m := cl.members[r.IntN(len(cl.members))]; m.up && m.started {
			cl.read(m)
		}
		if r.IntN(12) == 0 {
			cl.mishap()
		}
	}
	for _, m := range cl.members {
		if !m.up && !m.removed {
			m.start()
		}
	}
	cl.heal()
	cl.disk = 2 * time.Millisecond
	cl.await("peace", 45*time.Second, func() bool { return cl.open == 0 && cl.alike() })
	for _, m := range cl.members {
		if m.removed {
			continue
		}
		for name, f := range cl.settled {
			m.check(name, f)
		}
	}
	return cl
}

// mishap does one thing to one member.
func (cl *cluster) mishap() {
	r := cl.sim.Rand()
	m := cl.members[r.IntN(len(cl.members))]
	if m.removed {
		return
	}
	for range 2 { // the leader is the more rewarding victim
		if l := cl.leader(); l != nil && r.IntN(2) == 0 {
			m = l
		}
	}
	switch r.IntN(8) {
	case 0, 1:
		if m.up {
			m.stop()
		} else {
			m.start()
			cl.meet(m)
		}
	case 2:
		cl.sever(m, r.IntN(2) == 0)
	case 3: // one way only
		if o := cl.members[r.IntN(len(cl.members))]; o != m {
			m.cut[o.id] = true
		}
	case 4:
		m.log.stalled = true
	case 5:
		if m.up {
			m.run.Pause(time.Duration(r.Int64N(int64(time.Second))))
		}
	case 6:
		if m.up {
			m.c.Transfer(cl.members[r.IntN(len(cl.members))].id)
		}
	case 7:
		for _, m := range cl.members {
			clear(m.cut)
			m.log.recover()
			if !m.up && !m.removed {
				m.start()
			}
			cl.meet(m)
		}
	}
}

// seeds is how many a test tries; SIM_SEEDS says otherwise.
func seeds(t *testing.T, standard uint64) uint64 {
	text := os.Getenv("SIM_SEEDS")
	if text == "" {
		return standard
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStorms(t *testing.T) {
	installed, unsure, confirmed := 0, 0, 0
	for seed := range seeds(t, 60) {
		cl := storm(t, seed, 3+2*int(seed%2), int(seed%3), 4*time.Second)
		installed += cl.shipped
		unsure += cl.unsure
		confirmed += len(cl.settled)
	}
	t.Logf("%d confirmed, %d of unknown outcome, %d snapshots installed", confirmed, unsure, installed)
	if installed < 100 || confirmed < 500 {
		t.Fatal("the storms are too tame, or nothing gets through")
	}
}

func TestReplayOfAStorm(t *testing.T) {
	var hashes [2]uint64
	for i := range hashes {
		hashes[i] = storm(t, 7, 5, 1, 3*time.Second).sim.Hash()
	}
	if hashes[0] != hashes[1] {
		t.Fatalf("two runs of one seed differ: %x, %x", hashes[0], hashes[1])
	}
}
