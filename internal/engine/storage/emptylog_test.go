package storage

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
)

// fillLog writes a consensus log with a snapshot, entries and a hard state.
func (b *box) fillLog() catalog.LogState {
	b.t.Helper()
	c := b.s.Consensus()
	b.must(func(done func(error)) {
		c.SaveSnapshot(catalog.LogSnapshot{Index: 5, Term: 2, Data: []byte("the catalog")}, done)
	})
	b.must(func(done func(error)) {
		c.Append([]byte("hard"), []catalog.LogEntry{{Index: 6, Term: 2, Data: []byte("six")}, {Index: 7, Term: 3, Data: []byte("seven")}}, done)
	})
	state, err := c.Load()
	if err != nil || state.Snapshot.Index != 5 || len(state.Entries) != 2 {
		b.t.Fatalf("%v: %+v", err, state)
	}
	return state
}

// A log that is emptied is empty after every start, and can begin anew; a crash on the way leaves it whole or empty.
func TestALogIsEmptiedWholeOrNotAtAll(t *testing.T) {
	seen := map[bool]bool{}
	for seed := range uint64(40) {
		b := newBox(t, Options{})
		want := b.fillLog()
		b.restart()
		b.s.Consensus().Empty(func(error) {})
		for range seed % 20 {
			b.sim.Step()
		}
		b.node.Stop()
		b.mem.Crash(seed / 20)
		b.open()
		got, err := b.s.Consensus().Load()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		gone := reflect.DeepEqual(got, catalog.LogState{})
		if seen[gone] = true; !gone && !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %+v is left", seed, got)
		}
		b.must(b.s.Consensus().Empty)
		b.must(func(done func(error)) {
			b.s.Consensus().SaveSnapshot(catalog.LogSnapshot{Index: 3, Term: 1, Data: []byte("another")}, done)
		})
		b.restart()
		if got, err := b.s.Consensus().Load(); err != nil || got.Snapshot.Index != 3 || len(got.Entries) != 0 || got.Hard != nil {
			t.Fatalf("seed %d: %v, %+v", seed, err, got)
		}
	}
	if !seen[true] || !seen[false] {
		t.Errorf("crashes left only one of whole and empty: %v", seen)
	}
}

// A log that was set aside reads back as it was, from the directory and from its file; where one byte of the file is another, that is said.
func TestALogThatIsSetAside(t *testing.T) {
	b := newBox(t, Options{})
	want := b.fillLog()
	b.kill()
	got, store, inUse, err := ReadLog(b.fs, "data")
	if err != nil || inUse || store != b.s.ID() || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, in use %t, store %v: %+v", err, inUse, store, got)
	}
	const name = "data/aside/catalog"
	for range 2 { // also over one that is there
		if err := SetLogAside(b.fs, name, got); err != nil {
			t.Fatal(err)
		}
	}
	if back, err := ReadLogAside(b.fs, name); err != nil || fmt.Sprint(back) != fmt.Sprint(want) {
		t.Fatalf("%v: %+v", err, back)
	}
	f, err := b.fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, asideHeader+3); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLogAside(b.fs, name); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged file: %v", err)
	}
}
