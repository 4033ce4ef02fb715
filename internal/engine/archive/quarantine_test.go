package archive

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/vfs"
)

// cutEnd is an end of so many batches, each with a record of so many bytes.
func cutEnd(n, size int) End {
	e := End{Partition: ident.Partition{Incarnation: 7, Index: 2}, Epoch: 3, From: 40, To: 40 + uint64(n)}
	tail := batch.Tail{Position: 40, Offset: 38, Epoch: 2}
	for i := range n {
		var b batch.Builder
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 3, First: uint64(i + 1)},
			batch.AppendRecord(nil, batch.RecordHeader{}, bytes.Repeat([]byte{byte(i)}, size)))
		x := b.Finish(e.Partition, 2, tail, 9)
		tail = tail.After(x, x.Link())
		e.Batches = append(e.Batches, x)
	}
	return e
}

func sameEnd(a, b End) bool {
	return a.Partition == b.Partition && a.Epoch == b.Epoch && a.From == b.From && a.To == b.To &&
		slices.EqualFunc(a.Batches, b.Batches, func(x, y batch.Batch) bool { return bytes.Equal(x.Bytes(), y.Bytes()) })
}

func TestACutEndIsKeptDurably(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := w.sites[0]
	var kept []bool
	end := cutEnd(3, 100)
	s.a.Keep(end, func(k bool) { kept = append(kept, k) })
	s.a.Keep(end, func(k bool) { kept = append(kept, k) }) // once more: a crash came before the cut
	w.run()
	s.disk.Crash(0)
	got, broken, err := Ends(s.disk, "data")
	if err != nil || broken != 0 || len(got) != 1 || !sameEnd(got[0], end) || !slices.Equal(kept, []bool{true, true}) {
		t.Fatalf("%d kept, %d broken, %v; told %v", len(got), broken, err, kept)
	}
	s.boot()
	s.disk.FailAfter(true, 0)
	other := cutEnd(1, 5)
	other.Epoch = 9
	s.a.Keep(other, func(k bool) { kept = append(kept, k) })
	w.run()
	if kept[2] || !slices.Contains(s.events, "quarantine.failed") {
		t.Error("it is said to be kept, and the disk has failed")
	}
}

func TestTheOldestCutEndsGo(t *testing.T) {
	disk, most := vfs.NewMemory(1), int64(60_000)
	keep := func(epoch uint64, size int) {
		t.Helper()
		e := cutEnd(1, size)
		e.Epoch = epoch
		if _, err := writeEnd(disk, "data", e, most); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...uint64) {
		t.Helper()
		got, _, err := Ends(disk, "data")
		if err != nil {
			t.Fatal(err)
		}
		var epochs []uint64
		for _, e := range got {
			epochs = append(epochs, e.Epoch)
		}
		if !slices.Equal(epochs, want) {
			t.Fatalf("epochs %v, want %v", epochs, want)
		}
	}
	var want []uint64
	for i := range uint64(MaxEnds + 5) {
		keep(i, 10)
		want = append(want, i)
	}
	check(want[5:]...)
	keep(1000, 19_000)
	keep(1001, 19_000)
	keep(1002, 19_000)
	keep(1003, 19_000) // more than all of them may take
	check(1001, 1002, 1003)
}

func TestWhatIsNotAWholeEndIsCounted(t *testing.T) {
	disk := vfs.NewMemory(1)
	name, err := writeEnd(disk, "data", cutEnd(2, 50), MaxEndBytes)
	if err != nil {
		t.Fatal(err)
	}
	whole := content(t, disk, path.Join("data", quarantineFolder, name))
	for n := range whole {
		if _, err := ParseEnd(whole[:n]); !errors.Is(err, ErrEnd) {
			t.Fatalf("%d bytes of it: %v", n, err)
		}
		p := slices.Clone(whole)
		p[n] ^= 4
		if _, err := ParseEnd(p); !errors.Is(err, ErrEnd) {
			t.Fatalf("a bit in byte %d: %v", n, err)
		}
	}
	f, err := disk.Open(path.Join("data", quarantineFolder, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("xx"), 30); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Create(path.Join("data", quarantineFolder, "README")); err != nil {
		t.Fatal(err)
	}
	if list, broken, err := Ends(disk, "data"); err != nil || broken != 1 || len(list) != 0 {
		t.Fatalf("%d whole, %d broken, %v", len(list), broken, err)
	}
	if !strings.HasPrefix(name, "00000001-7-2-epoch3-40-42") {
		t.Error(name)
	}
}

func FuzzEnd(f *testing.F) {
	for i := range 3 {
		e := cutEnd(i, 20)
		f.Add(appendEnd(nil, &e))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		e, err := ParseEnd(p)
		if err != nil {
			if !errors.Is(err, ErrEnd) {
				t.Fatal(err)
			}
			return
		}
		if again := appendEnd(nil, &e); !bytes.Equal(again, p) {
			t.Fatalf("%x is written again as %x", p, again)
		}
	})
}
