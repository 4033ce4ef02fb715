package node

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// BenchmarkSeal seals a copy that holds nothing and one with history in turn, in one store on disk, and prints the ratio of their median
// times: what a seal costs is one sync, however long the history (design 2 §5).
func BenchmarkSeal(b *testing.B) {
	for _, mib := range []int{64, 1 << 10, 4 << 10, 10 << 10} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) { benchSeal(b, mib) })
	}
}

func benchSeal(b *testing.B, mib int) {
	ex := exec.New(1)
	defer ex.Stop()
	store, err := storage.Open(storage.Env{FS: vfs.OS(), Clock: clock.System(), Exec: ex, Random: rand.Reader}, b.TempDir(),
		storage.Options{FileSize: 128 << 20, LowWater: 1, HighWater: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		closed := make(chan error)
		store.Close(func(err error) { closed <- err })
		if err := <-closed; err != nil {
			b.Error(err)
		}
	}()
	empty, full := ident.Partition{Incarnation: 1}, ident.Partition{Incarnation: 2}
	fillHistory(b, store, full, mib)
	m := replica.New(replica.Env{
		Exec: ex, Clock: clock.System(), Trace: trace.Discard, Store: logs{store},
		Local: ident.Instance{Node: "n1", Store: store.ID(), Boot: store.Boot()},
	})
	epoch := uint64(1)
	seal := func(p ident.Partition) time.Duration {
		answered := make(chan []replica.SealAnswer)
		began := time.Now()
		m.Seal([]replica.SealRequest{{Partition: p, Epoch: epoch, Transition: fmt.Sprint("t", epoch)}},
			func(as []replica.SealAnswer) { answered <- as })
		a := (<-answered)[0]
		took := time.Since(began)
		if a.Damaged != "" || a.Refused != "" || (p == full) != (a.Tail.Position > 0) {
			b.Fatalf("%+v", a)
		}
		return took
	}
	var times [2][]time.Duration
	for b.Loop() {
		epoch++
		for i, p := range []ident.Partition{empty, full} {
			times[i] = append(times[i], seal(p))
		}
	}
	median := func(ts []time.Duration) float64 {
		slices.Sort(ts)
		return float64(ts[len(ts)/2].Nanoseconds()) / 1000
	}
	of := [2]float64{median(times[0]), median(times[1])}
	b.ReportMetric(of[0], "µs/empty")
	b.ReportMetric(of[1], "µs/full")
	b.ReportMetric(of[1]/of[0], "full/empty")
	b.ReportMetric(0, "ns/op") // both seals together, with their waits for each other
}

// fillHistory writes a copy with so many batches of 1 MiB of records of 1 KiB.
func fillHistory(b *testing.B, store *storage.Store, p ident.Partition, mib int) {
	c, err := store.Create(p)
	if err != nil {
		b.Fatal(err)
	}
	promised := make(chan error)
	c.SetPromise(1, func(err error) { promised <- err })
	if err := <-promised; err != nil {
		b.Fatal(err)
	}
	record := batch.AppendRecord(nil, batch.RecordHeader{}, make([]byte, 1000))
	var build batch.Builder
	var tail batch.Tail
	var waiting sync.WaitGroup
	slots := make(chan struct{}, 16)
	for range mib {
		for range 1024 {
			build.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, record)
		}
		made := build.Finish(p, 1, tail, 1)
		link := made.Link()
		tail = tail.After(made, link)
		slots <- struct{}{}
		waiting.Add(1)
		c.Append(made, link, false, func(err error) {
			if err != nil {
				b.Error(err)
			}
			<-slots
			waiting.Done()
		})
	}
	waiting.Wait()
}
