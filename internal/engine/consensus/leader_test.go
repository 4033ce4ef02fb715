package consensus

import (
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
)

// A leader that was lost and won again within one round leads in another term: whoever goes by the term is told.
func TestALaterTermOfTheSameLeaderIsTold(t *testing.T) {
	var told []string
	c := &Consensus{env: Env{Leader: func(term, id uint64) { told = append(told, fmt.Sprintf("%d in %d", id, term)) }}}
	for _, x := range []struct{ term, lead uint64 }{{1, 0}, {1, 7}, {1, 7}, {3, 7}, {4, 0}, {5, 0}, {5, 9}} {
		c.term, c.soft = x.term, raft.SoftState{Lead: x.lead}
		c.tellLeader()
	}
	if want := []string{"7 in 1", "7 in 3", "0 in 4", "9 in 5"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
