package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/replica"
)

// TestFaultsPlantedInClustersAreFound lies to three nodes in one way after another and demands that simulations find it, and say what it
// is.
func TestFaultsPlantedInClustersAreFound(t *testing.T) {
	for _, p := range []struct {
		name   string
		plant  func() plant
		faults []Fault
		says   []string // one of them
	}{
		{"confirm before the sync", func() plant { return confirmEarly{} }, []Fault{FaultPower}, []string{"was durable up to"}},
		{
			"followers say that they hold what they have not synced", func() plant { return hasty{} },
			[]Fault{},
			[]string{"copies hold durably"},
		},
		{"W from survivors", func() plant { return survivors{} }, []Fault{FaultKill}, []string{"copies hold durably"}},
		{"seal without a durable promise", func() plant { return noPromise{} }, []Fault{FaultPower}, []string{"was promised"}},
		{"resend out of order", func() plant { return &swap{} }, []Fault{FaultBreak, FaultStall}, []string{string(check.RuleOrder)}},
		{
			"a stale frame replayed", func() plant { return &stale{} },
			[]Fault{},
			[]string{string(check.RuleDuplicate), string(check.RuleLost), string(check.RuleReader)},
		},
		{
			"a settle that is lost", func() plant { return loseSettles{} },
			[]Fault{FaultPower},
			[]string{string(check.RuleSettled), string(check.RuleCursor)},
		},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(40) {
				r := Run(Options{Seed: seed, Nodes: 3, Faults: p.faults, plant: p.plant()})
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

// hasty makes every copy tell its owner that it holds a little more than it has synced.
type hasty struct{ honest }

func (hasty) toPeer(p mesh.Purpose, msg []byte) []byte {
	if p != mesh.Copies {
		return msg
	}
	m, err := protocol.Parse(msg)
	if held, ok := m.(protocol.Held); err == nil && ok {
		held.Durable += 1000
		return protocol.Append(nil, held)
	}
	return msg
}

// survivors has one copy be enough, as it would be if W were taken from the copies that are left.
type survivors struct{ honest }

func (survivors) policy() string { return "local_durable" }

var _ replica.Images = (*witnessedLog)(nil)
