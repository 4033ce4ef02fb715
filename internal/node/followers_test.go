package node

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/front/admin"
)

func TestFollowersThatAreBehindOrLost(t *testing.T) {
	out := admin.ReplicaMetrics{LostFollowers: map[string]uint64{}, Lag: map[string]uint64{}}
	a := &catalog.Assignment{Followers: []catalog.Member{{Node: "b"}, {Node: "c"}}}
	followersOf(a, &protocol.CopyStatus{Position: 10, Feeds: []protocol.FeedStatus{{Node: "b", Durable: 7}}}, &out)
	followersOf(a, &protocol.CopyStatus{Position: 10, Feeds: []protocol.FeedStatus{{Node: "b", Durable: 9}, {Node: "c", Durable: 12}}}, &out)
	if out.Lag["b"] != 3 || out.Lag["c"] != 0 || out.LostFollowers["c"] != 1 || out.LostFollowers["b"] != 0 {
		t.Errorf("%+v", out)
	}
}
