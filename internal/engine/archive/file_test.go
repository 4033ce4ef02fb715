package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/vfs"
)

func record(n int, cause string) *evidence.Evidence {
	return (&evidence.Evidence{Decided: evidence.Decided{
		ID: fmt.Sprint(n), Partition: ident.Partition{Incarnation: uint64(n)}, Cause: cause, Recorded: int64(n),
	}, Became: evidence.Became{Outcome: evidence.Committed}}).Canonical()
}

// opened is a file over a disk, with a clock that stands where now says.
func opened(disk vfs.FS, now *time.Duration) *file {
	return &file{fs: disk, dir: "data", store: ident.StoreID{1}, clock: clock.NewSim(func() time.Duration { return *now }, time.UnixMilli(0))}
}

// The disk fails at any write or sync, and the power at any moment: what was written without an error is there afterwards, in its last
// form or one that was written after it, and nothing else than what was given.
func TestTheFileOutlivesCrashes(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 2))
		disk, now := vfs.NewMemory(seed), time.Duration(0)
		given, safe := map[string][]string{}, map[string]int{} // by id: what was given, and the first of them that may be read
		memory := map[string]*evidence.Evidence{}
		f := opened(disk, &now)
		all := func() (out []*evidence.Evidence) {
			for n := range 8 {
				if e := memory[fmt.Sprint(n)]; e != nil {
					out = append(out, e)
				}
			}
			return out
		}
		for range 30 {
			switch rng.IntN(6) {
			case 0:
				disk.FailAfter(rng.IntN(2) == 0, rng.IntN(3))
			case 1:
				if f.f != nil {
					if err := f.f.Close(); err != nil {
						t.Fatal(err)
					}
				}
				disk.Crash(rng.Uint64())
				f = opened(disk, &now)
				records, _, err := f.read()
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				clear(memory)
				for _, e := range records {
					memory[e.ID] = e
				}
				for id, first := range safe {
					e := memory[id]
					if e == nil || slices.Index(given[id], e.Cause) < first {
						t.Fatalf("seed %d: of %q, safe from the %dth on, %+v is read", seed, given[id], first, e)
					}
				}
				for id, e := range memory {
					if !slices.Contains(given[id], e.Cause) {
						t.Fatalf("seed %d: %s is read as %q, which nobody gave", seed, id, e.Cause)
					}
					given[id] = given[id][:slices.Index(given[id], e.Cause)+1]
				}
			default:
				var some []*evidence.Evidence
				for range 1 + rng.IntN(3) {
					e := record(rng.IntN(8), fmt.Sprint(rng.Uint64(), strings.Repeat("x", rng.IntN(900))))
					memory[e.ID] = e
					given[e.ID] = append(given[e.ID], e.Cause)
					some = append(some, e)
				}
				now += time.Minute
				err := f.write(some, all)
				if disk.Heal(); err != nil {
					break
				}
				for id, e := range memory {
					safe[id] = slices.Index(given[id], e.Cause)
				}
			}
		}
	}
}

// bytesOf is a file of some records.
func bytesOf(es ...*evidence.Evidence) []byte {
	b := appendHeader(nil, ident.StoreID{1})
	for _, e := range es {
		b = appendFrame(b, e)
	}
	return append(b, make([]byte, 100)...)
}

func TestDamageCostsTheRecordThatItHits(t *testing.T) {
	var es []*evidence.Evidence
	for n := range 5 {
		es = append(es, record(n, strings.Repeat("c", 10*n)))
	}
	whole := bytesOf(es...)
	if got, _, broken := parse(whole); len(got) != 5 || broken != 0 {
		t.Fatalf("%d records, %d bytes broken", len(got), broken)
	}
	end := len(whole) - 100
	for at := headerSize; at < end; at++ {
		p := slices.Clone(whole)
		p[at] ^= 1 << (at % 8)
		got, _, _ := parse(p)
		if len(got) < 4 {
			t.Fatalf("a bit in byte %d costs %d records", at, 5-len(got))
		}
		for _, e := range got {
			if !slices.ContainsFunc(es, func(o *evidence.Evidence) bool { return equal(e, o) }) {
				t.Fatalf("a bit in byte %d: read %+v", at, e)
			}
		}
	}
	for n := range end - frameSize { // the last record may have zeros behind it
		if got, _, _ := parse(whole[:n]); len(got) == 5 {
			t.Fatalf("%d bytes of %d are the whole", n, end)
		}
	}
}

func TestAFileOfALaterVersionIsLeftAlone(t *testing.T) {
	disk, now := vfs.NewMemory(1), time.Duration(0)
	f := opened(disk, &now)
	all := func() []*evidence.Evidence { return []*evidence.Evidence{record(1, "x")} }
	if err := f.write(all(), all); err != nil {
		t.Fatal(err)
	}
	at := path.Join("data", name)
	in, err := disk.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.WriteAt(binary.LittleEndian.AppendUint32(nil, version+1), 8); err != nil {
		t.Fatal(err)
	}
	before := content(t, disk, at)
	f = opened(disk, &now)
	if _, _, err := f.read(); !errors.Is(err, errNewer) {
		t.Fatalf("read: %v", err)
	}
	if err := f.write(all(), all); err != nil || !bytes.Equal(content(t, disk, at), before) {
		t.Fatalf("it was written to: %v", err)
	}
}

func content(t testing.TB, disk *vfs.Memory, name string) []byte {
	t.Helper()
	f, err := disk.OpenRead(name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, n)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// The file stays within a few times of what it holds, however often that changes; and a disk that fails is left alone for a while.
func TestTheFileIsBounded(t *testing.T) {
	disk, now := vfs.NewMemory(1), time.Duration(0)
	f := opened(disk, &now)
	memory := []*evidence.Evidence{record(1, ""), record(2, "")}
	all := func() []*evidence.Evidence { return memory }
	for i := range 2500 {
		memory[i%2] = record(1+i%2, fmt.Sprint(i, strings.Repeat("x", 1000)))
		if err := f.write(memory[i%2:i%2+1], all); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(content(t, disk, path.Join("data", name))); n > 2*slack {
		t.Errorf("%d bytes", n)
	}
	disk.FailAfter(true, 0)
	if err := f.write(memory[:1], all); err == nil {
		t.Fatal("the sync did not fail")
	}
	disk.Heal()
	memory[0] = record(1, "last")
	if err := f.write(memory[:1], all); err != nil || f.f != nil {
		t.Fatalf("tried again at once: %v", err)
	}
	now += againAfter
	if err := f.write(nil, all); err != nil || f.f == nil {
		t.Fatalf("not made anew: %v", err)
	}
	records, _, err := opened(disk, &now).read()
	if err != nil || len(records) != 2 || records[0].Cause != "last" {
		t.Fatalf("%s, %v", list(records), err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add(bytesOf(record(1, "x"), record(2, "y")))
	f.Add(bytesOf())
	torn := bytesOf(record(1, "x"), record(2, "y"), record(3, "z"))
	torn[headerSize+70]++
	f.Add(torn)
	f.Fuzz(func(t *testing.T, p []byte) {
		es, end, broken := parse(p)
		if end > int64(len(p))+frameSize || broken < 0 {
			t.Fatalf("ends at %d of %d", end, len(p))
		}
		if len(es) == 0 {
			return
		}
		again, _, broken := parse(bytesOf(es...))
		if broken != 0 || !slices.EqualFunc(es, again, equal) {
			t.Fatalf("read\n%sand then\n%s", list(es), list(again))
		}
	})
}

// What is decided while the disk is full is written: its room was taken before, for the first of all and ahead of what is needed.
func TestAFullDiskKeepsWhatIsDecided(t *testing.T) {
	for _, before := range []int{0, 40} { // of 4 KiB: more than half of the first step
		disk, now := vfs.NewMemory(1), time.Duration(0)
		f := opened(disk, &now)
		if err := f.ready(); err != nil {
			t.Fatal(err)
		}
		for n := range before + 30 {
			disk.Full(n >= before)
			if err := f.write([]*evidence.Evidence{record(n, strings.Repeat("c", 4<<10))}, nil); err != nil {
				t.Fatalf("after %d: %v", n, err)
			}
		}
		disk.Crash(0)
		records, broken, err := opened(disk, &now).read()
		if err != nil || broken != 0 || len(records) != before+30 {
			t.Errorf("%d records, %d bytes broken, %v", len(records), broken, err)
		}
	}
}
