package catalog

import (
	"bytes"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// A recovered catalog gives nothing that the lost voters may have given, and every partition with copies on nodes is to be decided anew, above
// whatever was promised: also one that a transition was pending of. What lives in memory is left alone.
func TestARecoveredCatalogGivesNothingTwice(t *testing.T) {
	s := New()
	apply := func(items ...Item) Result {
		t.Helper()
		cmd, err := Encode(items...)
		if err != nil {
			t.Fatal(err)
		}
		r, _, err := s.Apply(s.Index()+1, cmd)
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		return r
	}
	own := ident.Instance{Node: "n1", Store: ident.StoreID{1}, Boot: 3}
	apply(Bootstrap(ident.StoreID{9}, "h")...)
	apply(RegisterBoot(Node{Name: "n1", Store: own.Store, Boot: own.Boot}))
	declare := func(name string, durable bool) *Resource {
		r := Resource{VHost: "/", Name: name, Kind: Queue, Durable: durable, Queue: &queue.Settings{}, Policy: "majority_durable"}
		if !durable {
			r.Home = &Home{Node: "n1", Boot: own.Boot}
		}
		return apply(DeclareResource(r, own, nil, 1)).Items[0].Resource()
	}
	quiet, moving, memory := declare("quiet", true), declare("moving", true), declare("memory", false)
	apply(RecordPending(moving.Partitions[0].Partition, 1, Pending{ID: "x", Epoch: 7, Cause: "c"}))
	before := *s

	s.Recover(s.Index()+5, "the rack burnt", 1000)
	s, err := Restore(s.Snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if s.Index() != before.index+5 || s.incarnations-before.incarnations < 1<<32 || s.runs-before.runs < 1<<16 || s.versions-before.versions < 1<<32 {
		t.Errorf("index %d, incarnations %d, runs %d, versions %d", s.index, s.incarnations, s.runs, s.versions)
	}
	for _, r := range []*Resource{quiet, moving} {
		a, _ := s.view.Assignment(r.Partitions[0].Partition)
		highest := a.Epoch
		if r == moving {
			highest = 7
		}
		if p := a.Pending; p == nil || p.ID == "x" || p.Epoch < highest+1<<20 || p.Since != 1000 || p.Cause != "the rack burnt" || a.Epoch != 1 {
			t.Errorf("%s: epoch %d, pending %+v", r.Name, a.Epoch, p)
		}
	}
	if a, _ := s.view.Assignment(memory.Partitions[0].Partition); a.Pending != nil {
		t.Errorf("what lives in memory is to have another owner: %+v", a.Pending)
	}
	if again := declare("later", true); again.Incarnation <= 1<<32 {
		t.Errorf("the next incarnation is %d", again.Incarnation)
	}

	twice, err := Restore(s.Snapshot())
	if err != nil || !bytes.Equal(twice.Snapshot(), s.Snapshot()) {
		t.Errorf("not the same bytes again: %v", err)
	}
}
