package archive

import (
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// BenchmarkThousand keeps the evidence of the owner of 1 000 partitions that was lost: each decision, when it is committed, and what becomes
// of it. It prints the time on the archive's loop for one of them.
func BenchmarkThousand(b *testing.B) {
	const n = 1000
	var items []catalog.Item
	items = append(items, catalog.Bootstrap(ident.StoreID{9}, "hash")...)
	sim, state := exec.NewSim(1), catalog.New()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := state.Apply(1, cmd); err != nil {
		b.Fatal(err)
	}
	a := Open(Env{
		Loop: sim.Node("n1", 1).Dedicated("evidence"), Clock: clock.NewSim(sim.Now, time.UnixMilli(0)), Trace: trace.Discard, FS: vfs.OS(),
		Dir: b.TempDir(), View: func(f func(*catalog.View)) { f(state.View()) },
	})
	epoch := uint64(1)
	for b.Loop() {
		epoch++
		var list []*evidence.Evidence
		for i := range n {
			list = append(list, failover(ident.Partition{Incarnation: uint64(i + 1)}, epoch))
		}
		a.Offer(list)
		for _, e := range list {
			c := *e
			c.Outcome = evidence.Committed
			a.box.Post(offered{list: []*evidence.Evidence{&c}})
		}
		for i := range n {
			a.Learn(ident.Partition{Incarnation: uint64(i + 1)}, epoch, evidence.Became{Serving: 5, FirstConfirm: 6})
		}
		sim.RunFor(time.Second)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/transition")
	done := false
	a.Stop(func() { done = true })
	sim.RunFor(time.Second)
	if !done {
		b.Fatal("it does not stop")
	}
}

func failover(p ident.Partition, epoch uint64) *evidence.Evidence {
	i := func(n string) ident.Instance { return ident.Instance{Node: n, Store: ident.StoreID{n[1]}, Boot: 1} }
	return &evidence.Evidence{Decided: evidence.Decided{
		ID: p.String() + "@" + time.Duration(epoch).String(), Workflow: evidence.Failover, Partition: p, VHost: "/", Resource: "orders", Kind: catalog.Queue,
		Cause: "n1/61000000/1 is suspected: connection refused, seen by n2, n3", SeenBy: []string{"n2", "n3"},
		Before: evidence.Reign{Owner: i("n1"), Epoch: epoch - 1}, After: evidence.Reign{Owner: i("n2"), Epoch: epoch}, Version: 2 * epoch,
		Policy: "majority_durable", E: 3, W: 2, R: 2, Answers: []evidence.Answer{{From: i("n3")}, {From: i("n2")}},
		Exclusions: []evidence.Exclusion{{Node: "n1", Reason: "did not answer"}}, Suspected: int64(epoch), Recorded: int64(epoch), Chosen: int64(epoch),
	}}
}
