package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// needDirect skips where files cannot be written past the system's cache, and gives one that can, of a mebibyte.
func needDirect(t *testing.T) *osFile {
	t.Helper()
	needRings(t)
	f := osCreate(t).(*osFile)
	if err := f.Preallocate(1 << 20); err != nil {
		t.Fatal(err)
	}
	if !f.goesDirect() {
		if os.Getenv("E2E_DIRECT") != "" {
			t.Fatal("files here cannot be written past the cache")
		}
		t.Skip("no files here that can be written past the cache")
	}
	return f
}

func page(b byte) []byte { return bytes.Repeat([]byte{b}, PageSize) }

// Pages that are written whole go past the system's cache, and what the cache holds of them is dropped; the part of a page that was written
// before goes with them.
func TestGroupsGoDirect(t *testing.T) {
	f := needDirect(t)
	r := ownRing(t)
	var want []byte
	read := func() {
		t.Helper()
		got := make([]byte, 4*PageSize) // the cache has all of it now
		if _, err := f.ReadAt(got, 0); err != nil {
			t.Fatal(err)
		}
		if want = append(want, make([]byte, len(got)-len(want))...); !bytes.Equal(got, want) {
			t.Error("other bytes than were written")
		}
	}
	for i, end := range []int{100, 700, PageSize, PageSize + 1, 2*PageSize + 9, 3 * PageSize} {
		off := max(0, len(bytes.TrimRight(want, "\x00")))
		p := bytes.Repeat([]byte{byte(i + 1)}, end-off)
		p = append(p, make([]byte, -end&(PageSize-1))...)
		want = append(want[:off], p...)
		if err := WriteSync(f, p, int64(off)); err != nil {
			t.Fatal(err)
		}
		b := r.aio.control
		if b.data != uint64(i+1) || b.opcode != aioWrite || b.rwFlags != unix.RWF_DSYNC || b.fd != uint32(f.direct.Fd()) || b.off%PageSize != 0 || b.size%PageSize != 0 {
			t.Errorf("group %d went by %+v", i, b)
		}
		read()
	}
}

// What was written before without a sync is synced with what comes then.
func TestWhatIsNotSyncedIsSyncedFirst(t *testing.T) {
	f := needDirect(t)
	r := ownRing(t)
	write := func(direct bool) {
		t.Helper()
		ring, aio := *r.sqTail, r.aio.tasks
		if err := WriteSync(f, page(1), PageSize); err != nil {
			t.Fatal(err)
		}
		if (*r.sqTail == ring) != direct || (r.aio.tasks == aio+1) != direct {
			t.Errorf("%d tasks of the ring, %d past the cache; direct is to be %v", *r.sqTail-ring, r.aio.tasks-aio, direct)
		}
	}
	write(true)
	if _, err := f.WriteAt(page(2), 0); err != nil {
		t.Fatal(err)
	}
	write(false)
	write(true)
	if _, err := f.WriteAt(page(2), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	write(true)

	again, err := OS().Open(f.Name()) // who knows what the run before left
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	f = again.(*osFile)
	write(false)
	write(true)
}

// What is not written as whole pages, or not where it was thought to be, goes through the cache.
func TestWhatDoesNotGoDirect(t *testing.T) {
	t.Run("a part of a page", func(t *testing.T) {
		f := needDirect(t)
		if err := errors.Join(WriteSync(f, page(1), 0), WriteSync(f, []byte("part"), 10), WriteSync(f, []byte("part"), PageSize-2)); err != nil {
			t.Fatal(err)
		}
		want := append(page(1), "rt"...)
		copy(want[10:], "part")
		copy(want[PageSize-2:], "pa")
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
			t.Errorf("other bytes than were written (%v)", err)
		}
	})
	t.Run("a file that goes by another name", func(t *testing.T) {
		needDirect(t)
		f := osCreate(t).(*osFile)
		if err := os.Rename(f.Name(), f.Name()+".old"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Name(), []byte("another's"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := WriteSync(f, page(1), 0); err != nil {
			t.Fatal(err)
		}
		if p, err := os.ReadFile(f.Name()); err != nil || string(p) != "another's" {
			t.Errorf("the other file has %d bytes (%v)", len(p), err)
		}
		if p, err := os.ReadFile(f.Name() + ".old"); err != nil || !bytes.Equal(p, page(1)) {
			t.Errorf("the file has %d bytes (%v)", len(p), err)
		}
	})
	t.Run("a file that may only be read", func(t *testing.T) {
		f := needDirect(t)
		if err := WriteSync(f, page(1), 0); err != nil {
			t.Fatal(err)
		}
		again, err := OS().OpenRead(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		again.(*osFile).unsynced = false
		if err := WriteSync(again, page(2), 0); !errors.Is(err, syscall.EBADF) {
			t.Errorf("got %v", err)
		}
	})
}

// A page of which the file ends in the middle is filled with zeros before what is written, as the system would.
func TestGroupsBeyondTheEnd(t *testing.T) {
	needDirect(t)
	f := osCreate(t)
	if err := WriteSync(f, page(1)[:PageSize-300], PageSize+300); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*PageSize)
	want := append(make([]byte, PageSize+300), page(1)[300:]...)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes than were written (%v)", err)
	}
}

// A write that the system does not do this way, or did in part, is made whole; after any other failure nothing is tried again.
func TestDirectOutcome(t *testing.T) {
	for _, c := range []struct {
		res          int32
		want         error
		again, never bool // written by plain calls; not tried this way any more
	}{
		{res: PageSize},
		{res: 512, again: true},
		{res: 0, again: true},
		{res: -int32(syscall.EAGAIN), again: true},
		{res: -int32(syscall.EINVAL), again: true, never: true},
		{res: -int32(syscall.EOPNOTSUPP), again: true, never: true},
		{res: -int32(syscall.EIO), want: syscall.EIO},
		{res: -int32(syscall.ENOSPC), want: syscall.ENOSPC},
	} {
		t.Run(fmt.Sprint(c.res), func(t *testing.T) {
			f, err := OS().Create(filepath.Join(t.TempDir(), "file"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			o := f.(*osFile)
			if err := o.directOutcome(completion{userData: ofWrite, res: c.res}, PageSize, []byte("before"), page(1)[6:], 6); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			p, err := os.ReadFile(o.Name())
			if want := append([]byte("before"), page(1)[6:]...); err != nil || c.again != bytes.Equal(p, want) || o.refused != c.never {
				t.Errorf("the file has %d bytes (%v), refused %v", len(p), err, o.refused)
			}
		})
	}
}

// An end that is of another write is never taken for the word that this one is durable; the context is out of use then, and plain calls do the work.
func TestAStaleEndIsNotBelieved(t *testing.T) {
	f := needDirect(t)
	r := ownRing(t)
	if err := WriteSync(f, page(1), 0); err != nil {
		t.Fatal(err)
	}
	look := r.aio.done
	r.aio.done = func(fd uintptr) bool {
		ended := look(fd)
		if ended {
			r.aio.event.data--
		}
		return ended
	}
	if err := WriteSync(f, page(2), 0); !errors.Is(err, errLost) {
		t.Errorf("got %v, want that its fate is not known", err)
	}
	endsLost(t, r)
	if err := WriteSync(f, page(3), 0); err != nil {
		t.Errorf("by plain calls: %v", err)
	}
}

// What the kernel does not take is not waited for.
func TestAWriteThatIsNotTaken(t *testing.T) {
	needDirect(t)
	r := ownRing(t)
	for range 3 {
		if _, err := r.aio.write(1<<20, r.held[:PageSize], 0); !errors.Is(err, errNotTaken) { // of no file
			t.Errorf("got %v", err)
		}
	}
	f := needDirect(t)
	if err := WriteSync(f, page(1), 0); err != nil || f.refused {
		t.Errorf("afterwards: %v, refused %v", err, f.refused)
	}
}

// After a slow submission the scheduler is told of those that follow, for a while.
func TestSlowSubmissionsAreAnnounced(t *testing.T) {
	a, now := &aio{}, time.Now()
	if a.took(now, now.Add(slowSubmit-1)); now.Before(a.announced) {
		t.Error("announced after a quick one")
	}
	ended := now.Add(slowSubmit)
	a.took(now, ended)
	a.took(ended, ended.Add(1)) // a quick one does not end it
	if !ended.Add(announceFor-1).Before(a.announced) || ended.Add(announceFor).Before(a.announced) {
		t.Errorf("announced for %v", a.announced.Sub(ended))
	}
}

func TestKernelsThatAreNotBelieved(t *testing.T) {
	for release, broken := range map[string]bool{
		"6.12.90-amd64": false, "6.14.0": false, "6.15.11": true, "6.15-rc3": true, "6.16.1": true, "6.17.2": false, "6.1.0-35": false, "5.15.0": false, "7.0": false,
	} {
		if directIsBroken(release) != broken {
			t.Errorf("%s: %v", release, !broken)
		}
	}
}
