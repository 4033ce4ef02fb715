package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/lease"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
)

// plantedInClusters are what is planted in them, and what simulations say of it.
var plantedInClusters = []struct {
	name   string
	plant  func() plant
	faults []Fault
	says   []string // one of them
	act    Act
	nodes  int // 3 if 0
}{
	{"confirm before the sync", func() plant { return confirmEarly{} }, []Fault{FaultPower}, []string{"was durable up to", string(check.RuleLost)}, "", 0},
	{
		"followers say that they hold what they have not synced", func() plant { return hasty{} },
		[]Fault{},
		[]string{"copies hold durably"},
		"", 0,
	},
	{"W from survivors", func() plant { return survivors{} }, []Fault{FaultKill}, []string{"copies hold durably"}, "", 0},
	{
		"a member admitted without the joint rule", func() plant { return unjoined{} },
		[]Fault{},
		[]string{"copies that hold durably what is confirmed", "copies hold durably"},
		"", 0,
	},
	{"seal without a durable promise", func() plant { return noPromise{} }, []Fault{FaultPower}, []string{"was promised"}, "", 0},
	{"resend out of order", func() plant { return &swap{} }, []Fault{FaultBreak, FaultStall}, []string{string(check.RuleOrder)}, "", 0},
	{
		"a stale frame replayed", func() plant { return &stale{} },
		[]Fault{},
		[]string{string(check.RuleDuplicate), string(check.RuleLost), string(check.RuleReader)},
		"", 0,
	},
	{
		"a settle that is lost", func() plant { return loseSettles{} },
		[]Fault{FaultPower},
		[]string{string(check.RuleSettled), string(check.RuleCursor), "is settled before that is durable"},
		"", 0,
	},
	{
		"a restarted owner keeps its epoch", func() plant { return sameBoot{} },
		[]Fault{FaultKill, FaultPower},
		[]string{
			string(check.RuleEpoch), "no service", "no copies of everything", "another history than what was confirmed",
			"nothing of that was done to", "no outcome of every publish", "copies hold durably",
		},
		"", 0,
	},
	{"cut before promise", func() plant { return cutFirst{} }, []Fault{FaultBoot, FaultPower}, []string{"was promised"}, ActRelay, 0},
	{
		// What the catalog's choice makes of it: it goes by an end that nobody confirmed, or finds that links differ and waits for ever.
		"raw tail instead of clipped", func() plant { return rawTail{} },
		[]Fault{},
		[]string{"another history than what was confirmed", "cuts to position", "no service"},
		ActRelay, 0,
	},
	{
		"a wiped copy's seal counted", func() plant { return wipedCounts{} },
		[]Fault{},
		[]string{"another history than what was confirmed", "cuts to position", "copies that hold durably what is confirmed", "no an empty broker"},
		ActWipe, 5,
	},
	{
		"a late seal re-sealing", func() plant { return reseal{} },
		[]Fault{FaultKill},
		[]string{string(check.RuleCause)},
		ActWithout, 0,
	},
	{
		"a log that is not kept for who is away", func() plant { return wasteful{} },
		[]Fault{FaultKill},
		[]string{"nothing has kept it from going on with its log"},
		"", 0,
	},
	{"damage that is not noticed", func() plant { return unnoticed{} }, []Fault{}, []string{string(check.RuleBytes)}, ActFlip, 0},
	{"an owner that ignores its lease", func() plant { return lasting{ttl: time.Hour} }, []Fault{}, []string{"and its lease was over"}, ActLease, 0},
	{"copies that never move for balance", func() plant { return still{} }, []Fault{}, []string{"no balance within"}, ActBalance, 5},
	{"a lease that is no more than its margin", func() plant { return lasting{ttl: lease.Margin} }, []Fault{}, []string{"though nothing is wrong", "no an answer to what is published"}, ActLease, 0},
}

// TestFaultsPlantedInClustersAreFound lies to three nodes in one way after another and demands that simulations find it, and say what it
// is.
func TestFaultsPlantedInClustersAreFound(t *testing.T) {
	for _, p := range plantedInClusters {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(40) {
				r := Run(Options{Seed: seed, Nodes: max(3, p.nodes), Faults: p.faults, Act: p.act, Small: p.act != "", plant: p.plant()})
				if !r.Failed() {
					continue
				}
				if !slices.ContainsFunc(p.says, func(s string) bool { return strings.Contains(r.Failure, s) }) {
					t.Fatalf("seed %d finds something, and not what was planted: %s", seed, r.Failure)
				}
				t.Logf("found with seed %d: %.200s", seed, r.Failure)
				return
			}
			t.Fatal("40 seeds did not find it")
		})
	}
}

// still has copies stay where they are.
type still struct{ honest }

func (still) setting(name, value string) string {
	if name == catalog.Rebalance {
		return "off"
	}
	return value
}

// lasting has owners go by leases of another length than they were granted.
type lasting struct {
	honest
	ttl time.Duration
}

func (p lasting) granted(_ *site, g lease.Grant) lease.Grant {
	if g.TTL > 0 {
		g.TTL = p.ttl
	}
	return g
}

// unnoticed has what is read from a disk of which a bit was turned be other bytes, and pass every check.
type unnoticed struct{ honest }

func (unnoticed) log(s *site, l replica.Log) replica.Log { return uncheckedLog{l, s} }

type uncheckedLog struct {
	replica.Log
	s *site
}

func (l uncheckedLog) ReadOffset(offset uint64, most int, done func([]batch.Batch, error)) {
	l.Log.ReadOffset(offset, most, func(bs []batch.Batch, err error) {
		if err == nil && l.s.flipped {
			bs = turned(bs)
		}
		done(bs, err)
	})
}

// hasty makes every copy tell its owner that it holds a little more than it has synced.
type hasty struct{ honest }

func (hasty) toPeer(_ *site, _ string, p mesh.Purpose, _ uint64, msg []byte, send func([]byte)) {
	if p == mesh.Copies {
		m, err := protocol.Parse(msg)
		if held, ok := m.(protocol.Held); err == nil && ok {
			held.Durable += 1000
			msg = protocol.Append(nil, held)
		}
	}
	send(msg)
}

// survivors has one copy be enough, as it would be if W were taken from the copies that are left.
type survivors struct{ honest }

func (survivors) policy() string { return "local_durable" }

var _ replica.Images = (*witnessedLog)(nil)

// cutFirst makes the cut of a copy durable before its promise, and the promise with the role.
type cutFirst struct{ honest }

func (cutFirst) log(_ *site, l replica.Log) replica.Log { return &cuttingLog{Log: l} }

type cuttingLog struct {
	replica.Log
	owed uint64
}

func (l *cuttingLog) SetPromise(epoch uint64, done func(error)) {
	l.owed = epoch
	done(nil)
}

func (l *cuttingLog) SetRole(r partition.Role, epoch uint64, done func(error)) {
	l.Log.SetPromise(l.owed, func(err error) {
		if err != nil {
			done(err)
			return
		}
		l.Log.SetRole(r, epoch, done)
	})
}

// rawTail has no answer be clipped: each seems to end in the last owner's history.
type rawTail struct{ honest }

func (rawTail) sealed(_ *site, a control.SealAnswer) control.SealAnswer {
	a.Tail.Epoch = 1 << 40
	return a
}

// wipedCounts has the answer of a node that lost its disk pass for that of the disk.
type wipedCounts struct{ honest }

func (wipedCounts) sealed(s *site, a control.SealAnswer) control.SealAnswer {
	for _, o := range s.w.sites {
		if o.name == a.Instance.Node && !o.before.IsZero() {
			a.Instance.Store, a.Damaged, a.Refused = o.before, "", ""
		}
	}
	return a
}

// reseal has copies take a seal that comes late, after they have begun to follow the owner that it led to.
type reseal struct{ honest }

func (reseal) toPeer(s *site, _ string, p mesh.Purpose, _ uint64, msg []byte, send func([]byte)) {
	send(msg)
	if p != mesh.Control {
		return
	}
	m, err := protocol.Parse(msg)
	q, ok := m.(protocol.SealRequests)
	if err != nil || !ok {
		return
	}
	q.Items = slices.Clone(q.Items)
	for i := range q.Items {
		q.Items[i].Epoch++ // the same one is refused, whatever the network does
	}
	h := s.host
	s.w.sim.At(s.w.sim.Now()+300*time.Millisecond, func() {
		if s.host == h {
			send(protocol.Append(nil, q))
		}
	})
}

// unjoined has an owner leave the joint state while nobody knows what became of its proposal: it is told that it was refused, and the catalog
// gets it later. The learner is cut off meanwhile, as it may be.
type unjoined struct{ honest }

func (unjoined) members(s *site, m replica.Members) replica.Members { return lateMembers{m, s} }

type lateMembers struct {
	replica.Members
	s *site
}

func (l lateMembers) ChangeMembers(m catalog.Membership, done func(error)) {
	w, h := l.s.w, l.s.host
	learner := m.Followers[len(m.Followers)-1].Node
	w.net.Cut(l.s.name, learner)
	w.net.Cut(learner, l.s.name)
	in := func(d time.Duration, f func()) {
		w.sim.At(w.sim.Now()+d, func() {
			if l.s.host == h {
				f()
			}
		})
	}
	in(50*time.Millisecond, func() { done(&catalog.Refusal{Code: catalog.Invalid}) })
	in(100*time.Millisecond, func() { l.Members.ChangeMembers(m, func(error) {}) })
	w.sim.At(w.sim.Now()+200*time.Millisecond, func() {
		w.net.Restore(l.s.name, learner)
		w.net.Restore(learner, l.s.name)
	})
}

// wasteful has a log let go of all that its newest snapshot does not need, whoever is to be fed from it.
type wasteful struct{ honest }

func (wasteful) log(_ *site, l replica.Log) replica.Log {
	images, _ := l.(replica.Images)
	return &wastingLog{Log: l, Images: images}
}

type wastingLog struct {
	replica.Log
	replica.Images
	saved uint64
}

func (l *wastingLog) WriteSnapshot(s partition.Snapshot, done func(error)) {
	l.Log.WriteSnapshot(s, func(err error) {
		if err == nil {
			l.saved = s.At.Position
		}
		done(err)
	})
}

func (l *wastingLog) Retain(from uint64, live []partition.Span, done func(error)) {
	l.Log.Retain(max(from, l.saved), live, done)
}
