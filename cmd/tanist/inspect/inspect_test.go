package inspect

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/archive"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// keepCut keeps batches as cut from a partition's log, and gives the data directory.
func keepCut(t *testing.T, ends ...archive.End) (dir string) {
	t.Helper()
	dir, sim := t.TempDir(), exec.NewSim(1)
	a := archive.Open(archive.Env{
		Loop: sim.Node("n1", 1).Dedicated("evidence"), Clock: clock.NewSim(sim.Now, time.UnixMilli(0)), Trace: trace.Discard, FS: vfs.OS(), Dir: dir,
		View: func(f func(*catalog.View)) { f(catalog.NewView()) },
	})
	for _, end := range ends {
		a.Keep(end, func(kept bool) {
			if !kept {
				t.Error("not kept")
			}
		})
		sim.RunFor(time.Second)
	}
	return dir
}

// What was cut from a former owner's log can be listed, and read record by record.
func TestInspectShowsWhatWasCut(t *testing.T) {
	var b batch.Builder
	for _, body := range []string{"one", "two"} {
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 3, First: 4}, batch.AppendRecord(nil, batch.RecordHeader{}, []byte(body)))
	}
	p := ident.Partition{Incarnation: 7, Index: 2}
	dir := keepCut(t, archive.End{Partition: p, Epoch: 3, From: 40, To: 42, Batches: []batch.Batch{b.Finish(p, 2, batch.Tail{Position: 40, Offset: 38}, 9)}})
	var out bytes.Buffer
	all := inspected{Report: &storage.Report{}}
	if err := all.addArchive(dir); err != nil {
		t.Fatal(err)
	}
	if err := all.printArchive(&out); err != nil || !strings.Contains(out.String(), "7/2  3      40    42  2") {
		t.Fatalf("%v\n%s", err, &out)
	}
	out.Reset()
	if err := inspectCut(&out, dir, "7/2", false); err != nil || !strings.Contains(out.String(), "41        2      record  39      3      74776f") {
		t.Fatalf("%v\n%s", err, &out)
	}
	if err := inspectCut(&out, dir, "7/3", false); err == nil {
		t.Error("another partition's is shown")
	}
}
