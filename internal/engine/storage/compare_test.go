package storage

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/engine/storage/layout"
	"github.com/tanist/tanist/internal/port/vfs"
)

// copies are stores that hold copies of partition 1/0.
type copies struct {
	t    *testing.T
	rigs []*rig
	logs []*log
}

func newCopies(t *testing.T, n int) *copies {
	k := &copies{t: t}
	for range n {
		r := newRig(t, Options{FileSize: 256 << 10, CacheBytes: 1, ScrubEvery: -1})
		k.rigs, k.logs = append(k.rigs, r), append(k.logs, r.log(1))
	}
	return k
}

// extend appends the same batches of one record, of one epoch, to some copies, which must have the same tail.
func (k *copies) extend(epoch uint64, n int, which ...int) {
	for range n {
		var b batch.Batch
		for i, w := range which {
			l := k.logs[w]
			if i == 0 {
				l.build.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, make([]byte, 3000)))
				b = l.build.Finish(l.c.part, epoch, l.tail, int64(l.tail.Offset))
			}
			l.tail = l.tail.After(b, b.Link())
			k.rigs[w].must(func(d func(error)) { l.c.Append(b, b.Link(), false, d) })
		}
	}
}

func (k *copies) role(epoch uint64, which ...int) {
	for _, w := range which {
		k.rigs[w].must(func(d func(error)) { k.logs[w].c.SetPromise(epoch, d) })
		k.rigs[w].must(func(d func(error)) { k.logs[w].c.SetRole(partition.Follower, epoch, d) })
	}
}

// compare closes the stores and compares them; the one partition is in the answer.
func (k *copies) compare() (*Comparison, PartitionComparison) {
	k.t.Helper()
	var dirs []string
	for _, r := range k.rigs {
		if r.s != nil {
			r.close()
		}
		dirs = append(dirs, r.dir)
	}
	got, err := Compare(vfs.OS(), dirs)
	if err != nil {
		k.t.Fatal(err)
	}
	if len(got.Partitions) != 1 || got.Partitions[0].Partition != (ident.Partition{Incarnation: 1}) {
		k.t.Fatalf("compared %+v", got.Partitions)
	}
	return got, got.Partitions[0]
}

func (k *copies) same() PartitionComparison {
	k.t.Helper()
	got, p := k.compare()
	if len(got.Problems) > 0 {
		k.t.Fatalf("problems %q", got.Problems)
	}
	return p
}

func (k *copies) differ(want string) {
	k.t.Helper()
	got, _ := k.compare()
	if len(got.Problems) == 0 || !strings.Contains(got.Problems[0], want) {
		k.t.Fatalf("problems %q, want one with %q", got.Problems, want)
	}
}

func TestCompareSame(t *testing.T) {
	k := newCopies(t, 3)
	k.role(1, 0, 1, 2)
	k.extend(1, 100, 0, 1, 2)
	k.extend(1, 7, 0, 1)
	p := k.same()
	if p.From != 0 || p.To != 100 || p.Same != 307 || p.Copies[0].Lag != 0 || p.Copies[2].Lag != 7 {
		t.Fatalf("%+v", p)
	}
}

// TestCompareHeads shows that copies which kept different parts are compared where both hold something, and at their ends.
func TestCompareHeads(t *testing.T) {
	k := newCopies(t, 3)
	k.extend(1, 100, 0, 1, 2)
	k.rigs[1].must(func(d func(error)) { k.logs[1].c.DropHead(100, d) })
	k.rigs[2].must(func(d func(error)) { k.logs[2].c.DropHead(50, d) })
	k.extend(1, 1, 0)
	if p := k.same(); p.From != 100 || p.To != 100 || p.Same != 50 {
		t.Fatalf("%+v", p)
	}
}

func TestCompareDiffer(t *testing.T) {
	t.Run("a batch", func(t *testing.T) {
		k := newCopies(t, 2)
		k.extend(1, 20, 0, 1)
		k.extend(1, 1, 0)
		k.extend(2, 1, 1)
		k.differ("at position 20, links")
	})
	t.Run("an end, where nothing else is kept", func(t *testing.T) {
		k := newCopies(t, 2)
		k.extend(1, 20, 0)
		k.extend(2, 20, 1)
		for i, r := range k.rigs {
			r.must(func(d func(error)) { k.logs[i].c.DropHead(20, d) })
		}
		k.differ("at position 20, links")
	})
	t.Run("an end before what another keeps", func(t *testing.T) {
		k := newCopies(t, 2)
		k.extend(1, 20, 0)
		k.extend(2, 21, 1)
		k.rigs[1].must(func(d func(error)) { k.logs[1].c.DropHead(20, d) })
		k.rigs[0].must(func(d func(error)) { k.logs[0].c.DropHead(20, d) })
		k.differ("before position 20, links")
	})
	t.Run("where a batch ends", func(t *testing.T) {
		k := newCopies(t, 2)
		k.extend(1, 20, 0, 1)
		k.extend(1, 2, 0)
		l := k.logs[1]
		l.build.Add(batch.Run{Kind: batch.KindRecord, Count: 2}, batch.AppendRecord(batch.AppendRecord(nil, batch.RecordHeader{}, nil), batch.RecordHeader{}, nil))
		b := l.build.Finish(l.c.part, 1, l.tail, 20)
		k.rigs[1].must(func(d func(error)) { l.c.Append(b, b.Link(), false, d) })
		k.differ("one has entries 20 to 21 together and the other 20 to 22")
	})
}

// TestCompareCut shows that an end which a later owner did not take over is no difference while its copy has not applied the later
// epoch's role, and is one after.
func TestCompareCut(t *testing.T) {
	k := newCopies(t, 3)
	k.role(1, 0, 1, 2)
	k.extend(1, 20, 0, 1, 2)
	k.extend(1, 5, 0)
	k.role(2, 1, 2)
	k.extend(2, 30, 1, 2)
	if p := k.same(); p.To != 20 || p.Copies[0].Cut != 5 || p.Copies[0].Lag != 30 || p.Copies[1].Cut != 0 {
		t.Fatalf("%+v", p)
	}
	k.rigs[0].open()
	k.logs[0].c = k.rigs[0].find(k.logs[0].c.part)
	k.role(2, 0)
	k.differ("at position 20, links")
}

// TestCompareDamage shows that a flipped bit is found, and where.
func TestCompareDamage(t *testing.T) {
	k := newCopies(t, 2)
	k.extend(1, 200, 0, 1)
	k.same()
	x := k.rigs[1].frames(k.rigs[1].logFiles()[0], layout.FrameBatch)
	p, err := os.ReadFile(x.file)
	if err != nil {
		t.Fatal(err)
	}
	p[x.from+(x.to-x.from)/2] ^= 4
	if err := os.WriteFile(x.file, p, 0o600); err != nil {
		t.Fatal(err)
	}
	k.differ("copy 1/0 in " + k.rigs[1].dir + " is damaged")
}

func TestCompareRefused(t *testing.T) {
	if _, err := Compare(vfs.OS(), []string{filepath.Join(t.TempDir(), "nothing")}); err == nil {
		t.Fatal("a directory that is not there was compared")
	}
}
