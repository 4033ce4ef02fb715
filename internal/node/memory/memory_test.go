package memory

import (
	"errors"
	"math"
	"testing"
)

// Memory is returned once after each busy time, when it has been quiet for a while, and not for little.
func TestMemoryIsReturnedOnceAfterABusyTime(t *testing.T) {
	const mib = 1 << 20
	var q quiet
	at := uint64(0)
	look := func(allocated, live uint64) bool { at += allocated; return q.look(at, live) }
	for i := range 10 {
		if look(100*mib, 30*mib) {
			t.Fatalf("returned while busy, at look %d", i)
		}
	}
	for i := range quietLooks {
		if got, want := look(1*mib, 30*mib), i == quietLooks-1; got != want {
			t.Fatalf("quiet look %d: %v, want %v", i, got, want)
		}
	}
	for range 7 {
		if look(1*mib, 30*mib) {
			t.Fatal("returned again for little")
		}
	}
	if !look(1*mib, 30*mib) {
		t.Fatal("8 MiB later nothing was returned")
	}
	// A large heap is worth a collection less often.
	for range 24 {
		if look(1*mib, 100*mib) {
			t.Fatal("returned for less than a quarter of the heap")
		}
	}
	if !look(1*mib, 100*mib) {
		t.Fatal("a quarter of the heap later nothing was returned")
	}
}

func TestAllowedMemoryIsTheLeastOfTheControlGroups(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no control groups", nil, math.MaxInt64},
		{"no limit", map[string]string{"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "max\n"}, math.MaxInt64},
		{"of a container", map[string]string{"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "536870912\n"}, 512 << 20},
		{"above is less", map[string]string{
			"/proc/self/cgroup": "4:cpu:/x\n0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "4096\n", "/sys/fs/cgroup/a/memory.max": "2048\n",
		}, 2048},
	} {
		read := func(name string) ([]byte, error) {
			if text, ok := c.files[name]; ok {
				return []byte(text), nil
			}
			return nil, errors.New("no such file")
		}
		if got := allowed(read); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
