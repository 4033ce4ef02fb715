package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"testing"
)

var _ FS = (*Memory)(nil)

func create(t *testing.T, d *Memory, name string) File {
	t.Helper()
	f, err := d.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func writeAt(t *testing.T, f File, data string, off int64) {
	t.Helper()
	if _, err := f.WriteAt([]byte(data), off); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, d *Memory, name string) string {
	t.Helper()
	f, err := d.OpenRead(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "<none>"
	}
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, size)
	if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(p)
}

// TestMemoryKeepsWhatWasSynced crashes in every way: what was synced is there, what was not may be.
func TestMemoryKeepsWhatWasSynced(t *testing.T) {
	seen := map[string]bool{}
	for how := range uint64(90) {
		d := NewMemory(how)
		f := create(t, d, "d/a")
		writeAt(t, f, "synced", 0)
		if err := errors.Join(f.Sync(), d.SyncDir("d")); err != nil {
			t.Fatal(err)
		}
		writeAt(t, f, "SYNCED", 0)
		create(t, d, "d/b")
		if err := d.Rename("d/b", "d/c"); err != nil {
			t.Fatal(err)
		}
		d.Crash(how)
		got := content(t, d, "d/a")
		if got != "synced" && got != "SYNCED" {
			t.Fatalf("way %d: %q", how, got)
		}
		seen[got] = true
		seen["b:"+content(t, d, "d/b")] = true
		seen["c:"+content(t, d, "d/c")] = true
		if content(t, d, "d/b") == "" && content(t, d, "d/c") == "" {
			t.Fatalf("way %d: a rename was half done", how)
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Fatal("a dead process wrote")
		}
	}
	for _, want := range []string{"synced", "SYNCED", "b:<none>", "b:", "c:<none>", "c:"} {
		if !seen[want] {
			t.Errorf("no crash left %q", want)
		}
	}
}

// TestMemoryTearsWrites shows that a crash can leave some sectors of one write and not others.
func TestMemoryTearsWrites(t *testing.T) {
	torn := false
	for how := range uint64(90) {
		d := NewMemory(how)
		f := create(t, d, "a")
		if err := errors.Join(f.Preallocate(8*sector), f.Sync(), d.SyncDir(".")); err != nil {
			t.Fatal(err)
		}
		writeAt(t, f, string(bytes.Repeat([]byte("x"), 8*sector)), 0)
		d.Crash(how)
		n := bytes.Count([]byte(content(t, d, "a")), []byte("x"))
		if n%sector != 0 {
			t.Fatalf("%d bytes are left: half a sector", n)
		}
		torn = torn || n > 0 && n < 8*sector
	}
	if !torn {
		t.Fatal("no write was torn")
	}
}

// TestMemoryFailedSync shows that a sync that failed proves nothing later, as with a kernel.
func TestMemoryFailedSync(t *testing.T) {
	lost := false
	for seed := range uint64(20) {
		d := NewMemory(seed)
		f := create(t, d, "a")
		if err := d.SyncDir("."); err != nil {
			t.Fatal(err)
		}
		d.FailAfter(true, 0)
		writeAt(t, f, "data", 0)
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if got := content(t, d, "a"); got != "data" {
			t.Fatalf("a process reads %q", got)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		d.Crash(0)
		lost = lost || content(t, d, "a") == ""
	}
	if !lost {
		t.Fatal("the second sync made durable what the first had failed on, always")
	}
}

func TestMemoryFull(t *testing.T) {
	d := NewMemory(1)
	f := create(t, d, "a")
	if err := f.Preallocate(100); err != nil {
		t.Fatal(err)
	}
	d.Full(true)
	writeAt(t, f, "inside", 0)
	if _, err := f.WriteAt([]byte("outside"), 98); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Preallocate(200); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	d.Heal()
	if err := f.Preallocate(200); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryLocks(t *testing.T) {
	d := NewMemory(1)
	if _, err := d.Lock("l"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Lock("l"); !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	d.Crash(0)
	if _, err := d.Lock("l"); err != nil {
		t.Fatal(err)
	}
}

// TestReplaceIsOnePiece: whatever fails, and however it crashes, the file is whole, as it was or as it is to be; what was answered stays.
func TestReplaceIsOnePiece(t *testing.T) {
	const old, next = "what was there", "what is to be there, which is longer"
	for how := range uint64(32) {
		d := NewMemory(how)
		if err := Replace(d, "d/f", []byte(old)); err != nil {
			t.Fatal(err)
		}
		d.FailAfter(how%2 == 0, int(how/2)%3)
		failed := Replace(d, "d/f", []byte(next))
		d.Heal()
		d.Crash(how)
		got := content(t, d, "d/f")
		if got != next && (failed == nil || got != old) {
			t.Errorf("crash %d after %v: %q", how, failed, got)
		}
		if err := Replace(d, "d/f", []byte(next)); err != nil { // also over what the crash has left
			t.Fatal(err)
		}
		d.Crash(how)
		if got := content(t, d, "d/f"); got != next {
			t.Errorf("crash %d after it was answered: %q", how, got)
		}
	}
}
