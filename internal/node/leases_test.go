package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/protocol"
)

// outcome sends one message, under a number of its own, and says what becomes of it.
func (u *user) outcome(queue string, number uint64) (o broker.Outcome) {
	u.w.t.Helper()
	if u.ended == nil {
		u.ended = map[uint64]broker.Outcome{}
	}
	u.send(queue, number, "m")
	u.w.await("an outcome", func() (ended bool) { o, ended = u.ended[number]; return ended })
	return o
}

// TestALeaseFencesAnOwnerThatIsGivenUp: an owner that is cut off together with a follower goes on, since the two are enough to confirm. An
// operator's word that they are stopped is not needed where a lease fences: its end is waited for, and by then nothing is confirmed there.
func TestALeaseFencesAnOwnerThatIsGivenUp(t *testing.T) {
	b := &bereft{cutOff: true}
	b.cluster, b.q, b.owner, b.follower, b.survivor = lossy(t, 13)
	b.propose(0, catalog.PutSetting(catalog.FenceOnLeaseExpiry, "always", 0))
	u := b.nodes[b.owner].login(0)
	b.sim.RunFor(2 * time.Second)
	if o := u.outcome(b.q, 1); o != broker.Confirmed {
		t.Fatalf("with everything well: %v", o)
	}
	b.lost = []string{b.nodes[b.owner].name, b.nodes[b.follower].name}
	slices.Sort(b.lost)
	b.apart()
	cut := b.sim.Now()
	var plan protocol.LossAnswer
	b.await("a plan", func() bool {
		plan = b.loss(0, b.q, protocol.LossAsk{})
		return plan.Candidate.Node == b.nodes[b.survivor].name
	})
	if o := u.outcome(b.q, 2); o != broker.Confirmed {
		t.Fatalf("while its lease lasts: %v", o)
	}
	accept := protocol.LossAsk{Execute: true, Plan: plan.Hash, Reason: "they are out of reach"}
	if a := b.loss(0, b.q, accept); a.Transition != "" || !strings.Contains(a.Refused, "its lease may let it confirm") {
		t.Fatalf("while its lease lasts: %+v", a)
	}
	b.sim.RunFor(12*time.Second - (b.sim.Now() - cut))
	if o := u.outcome(b.q, 3); o != broker.Refused {
		t.Fatalf("after its lease: %v", o)
	}
	if a := b.loss(0, b.q, accept); a.Transition == "" {
		t.Fatalf("after its lease: %+v", a)
	}
	if e := b.evidenceOf(0, b.q)[0]; !slices.ContainsFunc(e.Exclusions, func(x evidence.Exclusion) bool { return strings.Contains(x.Reason, "its lease is over") }) {
		t.Errorf("the record says nothing of the lease: %+v", e.Exclusions)
	}
	b.net.Heal()
	b.await("the old owner to follow", func() bool { return b.assignment(b.owner, b.q).Epoch == 2 })
	if o := u.outcome(b.q, 4); o != broker.Confirmed {
		t.Errorf("by the new owner: %v", o)
	}
}
