package storage

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// real is what a node has, so that rolls cost what they cost.
var real = Options{FileSize: 128 << 20}

// loadAll appends total records of 1 KiB to n copies in turn, each batch holding per records, with a bounded number in flight.
func loadAll(r *rig, logs []*log, total, per int) {
	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	record := batch.AppendRecord(nil, batch.RecordHeader{}, make([]byte, 1024))
	for i := 0; i < total; i += per {
		l := logs[i/per%len(logs)]
		for range per {
			l.build.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, record)
		}
		b := l.build.Finish(l.c.part, 1, l.tail, 1)
		link := b.Link()
		l.tail = l.tail.After(b, link)
		slots <- struct{}{}
		wg.Add(1)
		l.c.Append(b, link, false, func(err error) {
			if err != nil {
				r.t.Error(err)
			}
			<-slots
			wg.Done()
		})
	}
	wg.Wait()
}

func (r *rig) logs(n int) []*log {
	all := make([]*log, n)
	for i := range all {
		all[i] = r.log(uint64(i + 1))
	}
	r.must(func(d func(error)) { all[n-1].c.SetPromise(1, d) })
	return all
}

// BenchmarkOneAndAThousand appends the same bytes to one copy and to a thousand, in one run, and prints the ratios that design 3
// bounds: syncs at most 1.3 times, throughput at least 0.7 times, bytes written at most 1.3 times the payload.
func BenchmarkOneAndAThousand(b *testing.B) {
	const total, per = 100_000, 20
	for b.Loop() {
		var syncs, written [2]float64
		var took [2]time.Duration
		for i, n := range []int{1, 1000} {
			r := newRig(b, real)
			logs := r.logs(n)
			before, start := r.s.Metrics(), time.Now()
			loadAll(r, logs, total, per)
			took[i] = time.Since(start)
			after := r.s.Metrics()
			syncs[i] = float64(after.Syncs - before.Syncs)
			written[i] = float64(after.BytesWritten - before.BytesWritten)
		}
		b.ReportMetric(syncs[1]/syncs[0], "syncs-ratio")
		b.ReportMetric(float64(took[0])/float64(took[1]), "throughput-ratio")
		b.ReportMetric(written[0]/(total*1024), "written/payload")
		b.ReportMetric(written[1]/(total*1024), "written/payload-1000")
		b.ReportMetric(float64(total*1024)/took[0].Seconds()/(1<<20), "MiB/s")
	}
}

// BenchmarkAppend measures the append path per message: a batch of 200 records of 1 KiB, linked already.
func BenchmarkAppend(b *testing.B) {
	r := newRig(b, real)
	logs := r.logs(1)
	b.ReportAllocs()
	b.ResetTimer()
	loadAll(r, logs, b.N, 200)
}

// BenchmarkAppendMany measures a batch of one record of 1 KiB, of a thousand copies in turn.
func BenchmarkAppendMany(b *testing.B) {
	r := newRig(b, real)
	logs := r.logs(1000)
	b.ReportAllocs()
	b.ResetTimer()
	loadAll(r, logs, b.N, 1)
}

// BenchmarkOpen10000 opens a store of 10 000 copies.
func BenchmarkOpen10000(b *testing.B) {
	r := newRig(b, real)
	logs := r.logs(10_000)
	loadAll(r, logs, 10_000, 1)
	b.ResetTimer()
	for b.Loop() {
		r.reopen()
	}
}

// TestTheJournalHoldsWhatItSays: counters, sizes and files agree with what was appended.
func TestTheJournalHoldsWhatItSays(t *testing.T) {
	r := newRig(t, Options{})
	l := r.log(1)
	for range 10 {
		l.append(r, 1000)
	}
	m := r.s.Metrics()
	if m.Batches != 10 || m.BatchBytes < 10_000 || m.BytesWritten < m.BatchBytes || m.Syncs == 0 || m.Groups == 0 {
		t.Errorf("%+v", m)
	}
	size, records := l.c.Size()
	if records != 10 || size != int64(m.BatchBytes) {
		t.Errorf("size %d, %d records", size, records)
	}
	names, err := filepath.Glob(filepath.Join(r.dir, "*"+logSuffix))
	if err != nil || len(names) < 2 {
		t.Fatalf("%v %v: want the current file and the reserve", names, err)
	}
	for _, n := range names {
		if st, err := os.Stat(n); err != nil || st.Size() != r.opt.FileSize {
			t.Errorf("%s: %v %v, want it preallocated", n, st, err)
		}
	}
	var found []ident.Partition
	for _, c := range r.s.Copies() {
		found = append(found, c.Partition())
	}
	if len(found) != 1 || found[0] != l.c.Partition() {
		t.Errorf("copies: %v", found)
	}
}
