package consensus

import (
	"testing"
	"time"
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
