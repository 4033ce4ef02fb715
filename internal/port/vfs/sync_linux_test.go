package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func osCreate(t *testing.T) File {
	t.Helper()
	f, err := OS().Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func needRings(t *testing.T) {
	t.Helper()
	if err := Rings(); err != nil {
		t.Skip("no io_uring here: ", err)
	}
}

// What is written is there, whoever else writes at the same time.
func TestWriteSyncWrites(t *testing.T) {
	var all sync.WaitGroup
	for i := range 4 {
		f := osCreate(t)
		if err := f.Preallocate(2 << 20); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			var want []byte
			for n := range 40 {
				p := bytes.Repeat([]byte{byte(i*40 + n)}, n*n*60) // the last ones by plain calls
				if err := WriteSync(f, p, int64(len(want))); err != nil {
					t.Error(err)
				}
				want = append(want, p...)
			}
			got := make([]byte, len(want))
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("file %d: other bytes than were written (%v)", i, err)
			}
		})
	}
	all.Wait()
}

// Errors are those of WriteAt and Sync.
func TestWriteSyncFails(t *testing.T) {
	readOnly := func() (File, error) {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, []byte("before"), 0o600); err != nil {
			return nil, err
		}
		return OS().OpenRead(name)
	}
	closed := func() (File, error) {
		f := osCreate(t)
		return f, f.Close()
	}
	for _, c := range []struct {
		name string
		open func() (File, error)
		op   string
		want error
	}{
		{"a file that may only be read", readOnly, "write", syscall.EBADF},
		{"a full disk", func() (File, error) { return OS().Open("/dev/full") }, "write", syscall.ENOSPC},
		{"a sync that fails", func() (File, error) { return OS().Open("/dev/null") }, "fdatasync", syscall.EINVAL},
		{"a closed file", closed, "", os.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := c.open()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			err = WriteSync(f, []byte("after"), 0)
			var path *os.PathError
			if !errors.Is(err, c.want) || c.op != "" && (!errors.As(err, &path) || path.Op != c.op) {
				t.Errorf("got %v, want %v of %s", err, c.want, c.op)
			}
		})
	}
}

// A sync that failed is not tried again, and a write that fell short is made whole.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		c     completion
		want  error
		again bool // written by plain calls
	}{
		{completion{userData: ofSync}, nil, false},
		{completion{userData: ofSync, res: -int32(syscall.EIO)}, syscall.EIO, false},
		{completion{userData: ofSync, res: -int32(syscall.ENOSPC)}, syscall.ENOSPC, false},
		{completion{userData: ofSync, res: -int32(syscall.ECANCELED)}, nil, true},
		{completion{userData: ofWrite, res: -int32(syscall.EIO)}, syscall.EIO, false},
		{completion{userData: ofWrite, res: -int32(syscall.EAGAIN)}, nil, true},
		{completion{userData: ofWrite, res: 2}, nil, true},
	} {
		t.Run(fmt.Sprint(c.c.userData, c.c.res), func(t *testing.T) {
			f := osCreate(t)
			if err := f.(*osFile).outcome(c.c, nil, []byte("bytes"), 3); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if size, err := f.Size(); err != nil || (size == 8) != c.again {
				t.Errorf("the file has %d bytes (%v)", size, err)
			}
		})
	}
}

// Rings are used again, but not one that the kernel may still be at work with, and then there are no more.
func TestRingsAreKept(t *testing.T) {
	needRings(t)
	a, err := takeRing()
	if err != nil {
		t.Fatal(err)
	}
	giveRing(a, nil)
	if b, err := takeRing(); b != a || err != nil {
		t.Fatalf("another ring (%v)", err)
	}
	rings.mu.Lock()
	spare := rings.spare
	rings.spare = nil
	rings.mu.Unlock()
	giveRing(a, errLost)
	if _, err := takeRing(); !errors.Is(err, errLost) {
		t.Errorf("got %v", err)
	}
	if err := WriteSync(osCreate(t), []byte("by plain calls"), 0); err != nil {
		t.Error(err)
	}
	rings.mu.Lock()
	rings.spare, rings.lost, rings.why = append(spare, a), nil, nil // the kernel has nothing of it
	rings.mu.Unlock()
}

// BenchmarkWriteSync shows what a small group costs, by a ring and by plain calls.
func BenchmarkWriteSync(b *testing.B) {
	for _, c := range []struct {
		name string
		call func(File, []byte, int64) error
	}{{"ring", WriteSync}, {"plain", writeThenSync}} {
		b.Run(c.name, func(b *testing.B) {
			f, err := OS().Create(filepath.Join(b.TempDir(), "file"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if err := f.Preallocate(8 << 20); err != nil {
				b.Fatal(err)
			}
			p := make([]byte, 1312)
			for n := range b.N {
				if err := c.call(f, p, int64(n%6000)*1312); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
