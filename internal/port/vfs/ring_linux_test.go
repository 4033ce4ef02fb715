package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownRing makes a ring the only one that there is until the test ends.
func ownRing(t *testing.T) *ring {
	t.Helper()
	needRings(t)
	r, err := newRing()
	if err != nil {
		t.Fatal(err)
	}
	rings.mu.Lock()
	spare, lost, why := rings.spare, rings.lost, rings.why
	rings.spare, rings.lost, rings.why = []*ring{r}, nil, nil
	rings.mu.Unlock()
	t.Cleanup(func() {
		rings.mu.Lock()
		rings.spare, rings.lost, rings.why = spare, lost, why
		rings.mu.Unlock()
	})
	return r
}

// endsLost demands that a ring is out of use for good.
func endsLost(t *testing.T, r *ring) {
	t.Helper()
	rings.mu.Lock()
	defer rings.mu.Unlock()
	if len(rings.spare) != 0 || len(rings.lost) != 1 || rings.lost[0] != r || !errors.Is(rings.why, errLost) {
		t.Errorf("%d rings to be used again, lost %v, why %v", len(rings.spare), rings.lost, rings.why)
	}
}

// A completion that is of another task must never be taken for the word that this one is durable.
func TestAStaleCompletionIsNotBelieved(t *testing.T) {
	r := ownRing(t)
	var failed error
	if err := r.raw.Control(func(fd uintptr) { failed = r.submit(fd, submission{opcode: opNop, userData: ofSync}) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	f := osCreate(t)
	if err := WriteSync(f, []byte("bytes"), 0); !errors.Is(err, errLost) {
		t.Errorf("got %v, want that its fate is not known", err)
	}
	endsLost(t, r)
	if err := WriteSync(f, []byte("bytes"), 0); err != nil {
		t.Errorf("by plain calls: %v", err)
	}
}

// A ring whose file is gone takes nothing: plain calls do the work.
func TestAClosedRingTakesNothing(t *testing.T) {
	r := ownRing(t)
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	f := osCreate(t)
	if err := WriteSync(f, []byte("bytes"), 3); err != nil {
		t.Error(err)
	}
	if size, err := f.Size(); err != nil || size != 8 {
		t.Errorf("the file has %d bytes (%v)", size, err)
	}
}

// A ring that ends while the kernel writes leaves the outcome open, which is an error, and keeps what the kernel reads from being used again.
func TestARingThatEndsWhileItWrites(t *testing.T) {
	r := ownRing(t)
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	out, f := os.NewFile(uintptr(ends[0]), "out"), &osFile{File: os.NewFile(uintptr(ends[1]), "in")}
	size, err := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, size)); err != nil { // it is full: the next write waits until somebody reads
		t.Fatal(err)
	}
	p := []byte("bytes")
	before := atomic.LoadUint32(r.sqTail)
	done := make(chan error)
	go func() { done <- WriteSync(f, p, 0) }()
	for atomic.LoadUint32(r.sqTail) == before {
		runtime.Gosched()
	}
	if err := r.file.Close(); err != nil { // waits until the kernel has been given the chain
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errLost) {
		t.Errorf("got %v, want that its fate is not known", err)
	}
	endsLost(t, r)
	if !bytes.HasPrefix(r.held, p) {
		t.Error("the ring let go of what the kernel may still read")
	}
	if _, err := io.CopyN(io.Discard, out, int64(size)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(f.Close(), out.Close()); err != nil {
		t.Error(err)
	}
}

// child runs a test of this file again in a process of its own, where what it changes harms nobody, and demands that it passes.
func child(t *testing.T) (inside bool) {
	t.Helper()
	if os.Getenv("E2E_RING_CHILD") != "" {
		return true
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), "E2E_RING_CHILD=1")
	out, err := c.CombinedOutput()
	switch {
	case err == nil && strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skip(string(out))
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// A write that falls short, as on a full disk, is made whole by plain calls or fails with their error; it is never taken for done.
func TestAWriteThatFallsShort(t *testing.T) {
	needRings(t)
	if !child(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	const most = 64
	f := osCreate(t)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: syscall.RLIM_INFINITY & (1<<63 - 1)}); err != nil {
		t.Fatal(err)
	}
	if err := WriteSync(f, make([]byte, 100), 0); !errors.Is(err, syscall.EFBIG) {
		t.Errorf("got %v", err)
	}
	if size, err := f.Size(); err != nil || size != most {
		t.Errorf("the file has %d bytes (%v)", size, err)
	}
	p := bytes.Repeat([]byte("x"), most)
	if err := WriteSync(f, p, 0); err != nil { // the ring is as good as before
		t.Error(err)
	}
	if err := Rings(); err != nil {
		t.Error(err)
	}
}

// forbid has the kernel refuse a call of the system in this process from now on, as a container does.
func forbid(t *testing.T, call uint32, errno syscall.Errno) {
	t.Helper()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Skip("no filters here: ", err)
	}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		t.Skip("no filters here: ", failed)
	}
}

// Where a container or the kernel's settings forbid io_uring, plain calls do the work, and Rings says why.
func TestRingsThatAreForbidden(t *testing.T) {
	if !child(t) {
		return
	}
	forbid(t, unix.SYS_IO_URING_SETUP, syscall.EPERM)
	if err := Rings(); !errors.Is(err, syscall.EPERM) {
		t.Errorf("got %v", err)
	}
	f := osCreate(t)
	if err := WriteSync(f, []byte("bytes"), 0); err != nil {
		t.Error(err)
	}
	if size, err := f.Size(); err != nil || size != 5 {
		t.Errorf("the file has %d bytes (%v)", size, err)
	}
}

// Where the kernel takes nothing for a while, or for good, plain calls do the work, and nothing of what was not taken is done later.
func TestRingsThatTakeNothing(t *testing.T) {
	needRings(t)
	if !child(t) {
		return
	}
	f := osCreate(t)
	if err := WriteSync(f, []byte("first"), 0); err != nil {
		t.Fatal(err)
	}
	forbid(t, unix.SYS_IO_URING_ENTER, syscall.EAGAIN)
	for i := range 10 { // more than a ring has room for
		if err := WriteSync(f, []byte("later"), int64(5*i)); err != nil {
			t.Error(err)
		}
	}
	if size, err := f.Size(); err != nil || size != 50 {
		t.Errorf("the file has %d bytes (%v)", size, err)
	}
	rings.mu.Lock()
	defer rings.mu.Unlock()
	for _, r := range rings.spare {
		if *r.sqTail != 1+2 { // the first look, and a write with its sync
			t.Errorf("something is left to be taken: tail %d", *r.sqTail)
		}
	}
}

// FuzzWriteSync holds a file that is written by rings against one that is written by plain calls.
func FuzzWriteSync(f *testing.F) {
	for _, seed := range []uint64{1, 2, 3} {
		f.Add(seed, uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, writes uint8) {
		draw := rand.New(rand.NewPCG(seed, 0))
		dir := t.TempDir()
		open := func(name string) File {
			f, err := OS().Create(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		ring, plain := open("ring"), open("plain")
		defer ring.Close()
		defer plain.Close()
		if draw.IntN(2) == 0 {
			if err := errors.Join(ring.Preallocate(1<<20), plain.Preallocate(1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		var end int64
		for i := range writes {
			p := make([]byte, draw.IntN(1<<draw.IntN(18))) // some are larger than what rings write
			for j := range p {
				p[j] = byte(draw.Uint32())
			}
			off := draw.Int64N(1 << 18)
			switch draw.IntN(4) {
			case 0: // to the end of a page, from where the last one ended
				off = end
				p = append(p, make([]byte, -(off+int64(len(p)))&(PageSize-1))...)
			case 1: // over the end of a page
				off = max(0, end-draw.Int64N(PageSize))
				p = append(p, make([]byte, -(off+int64(len(p)))&(PageSize-1))...)
			}
			end = off + int64(len(p))
			if draw.IntN(8) == 0 {
				q := make([]byte, draw.IntN(3*PageSize))
				at := max(0, off-int64(draw.IntN(2*PageSize)))
				for _, f := range []File{ring, plain} {
					if _, err := f.WriteAt(q, at); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := WriteSync(ring, p, off); err != nil {
				t.Fatal(err)
			}
			if err := writeThenSync(plain, p, off); err != nil {
				t.Fatal(err)
			}
			for j := range p {
				p[j] = ^p[j] // the kernel has read it
			}
			if draw.IntN(4) == 0 || i+1 == writes { // what is read stays in the system's cache
				alike(t, ring, plain)
			}
		}
	})
}

func alike(t *testing.T, a, b File) {
	t.Helper()
	read := func(f File) []byte {
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, size)
		if n, err := f.ReadAt(p, 0); int64(n) != size || err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(n, err)
		}
		return p
	}
	if x, y := read(a), read(b); !bytes.Equal(x, y) {
		at := 0
		for at < min(len(x), len(y)) && x[at] == y[at] {
			at++
		}
		t.Fatalf("%d and %d bytes, which differ at %d", len(x), len(y), at)
	}
}
