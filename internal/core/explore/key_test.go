package explore

import (
	"crypto/sha256"
	"slices"
	"strings"
	"testing"
)

// reach goes through all states within bounds, taken as the same by key, and calls each for every arrival.
func reach(b Bounds, plain bool, key func(*world) []byte, each func(w *world, key string, known bool)) {
	x := newExplorer(b, NoFault)
	x.plain = plain
	var seen prints
	var level []*world
	meet := func(w *world) {
		k := key(w)
		fresh := seen.add(k)
		if each(w, string(k), !fresh); fresh {
			level = append(level, w)
		}
	}
	for meet(x.begin()); len(level) > 0; {
		last := level
		level = nil
		for i, w := range last {
			last[i] = nil
			for _, a := range w.actions() {
				if n := w.take(a); n != nil && !n.long {
					meet(n)
				}
			}
		}
	}
}

var small = []Bounds{
	{Copies: 3, Epochs: 2, Crashes: 1},
	{Copies: 3, Epochs: 1, Crashes: 1, Wipes: 1},
	{Copies: 2, Appends: 1, Epochs: 1, Breaks: 1},
	{Copies: 3, Epochs: 3, Suspect: true, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
	{Copies: 3, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
	{Copies: 3, Entries: 2, Epochs: 2, Crashes: 1, Wipes: 1, Suspect: true, Overlap: true, Cancels: 1, Direct: true, Lazy: true},
	{Copies: 3, Entries: 3, Epochs: 2, Crashes: 1, Suspect: true, Direct: true, Lazy: true},
	{Copies: 3, Entries: 3, Epochs: 1, Crashes: 1, Wipes: 1, Direct: true, Lazy: true},
	{Copies: 2, Wanted: 2, Changes: 2, Epochs: 1, Crashes: 1, Direct: true, Lazy: true},
	{Copies: 3, Changes: 2, Wishes: []uint8{1, 2}, Entries: 2, Epochs: 1, Direct: true, Lazy: true},
	{Copies: 2, Wanted: 2, Crashes: 1, Losses: 1, Epochs: 2, Direct: true},
	{Copies: 3, Reseeds: 1, Appends: 1, Epochs: 1, Crashes: 1, Direct: true},
}

// TestEqualKeysBehaveAlike comes to the same key on several ways, and finds the same steps and the same keys behind them.
func TestEqualKeysBehaveAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, b := range small {
		after := map[string][sha256.Size]byte{}
		arrivals := 0
		reach(b, false, (*world).key, func(w *world, key string, known bool) {
			if known {
				if arrivals++; arrivals > 2000 && arrivals%8 > 0 {
					return
				}
			}
			var keys []string
			for _, a := range w.actions() {
				if n := w.take(a); n != nil && !n.long {
					keys = append(keys, kinds[a.Kind]+string(n.key()))
				}
			}
			slices.Sort(keys)
			sum := sha256.Sum256([]byte(strings.Join(slices.Compact(keys), "\x00")))
			if !known {
				after[key] = sum
				return
			}
			if after[key] != sum {
				t.Fatalf("%+v: two states with one key have different steps: %s", b, w.describe())
			}
		})
		if arrivals < 30 {
			t.Errorf("%+v: only %d arrivals at known states", b, arrivals)
		}
	}
}

// TestFollowersAreExchangeable finds as many states, taken as the same where only followers change places, whether it follows one of each
// or all.
func TestFollowersAreExchangeable(t *testing.T) {
	for _, b := range small[:2] {
		one, all, each := map[string]bool{}, map[string]bool{}, 0
		reach(b, false, (*world).key, func(_ *world, key string, _ bool) { one[key] = true })
		reach(b, false, func(w *world) []byte { return w.encode(0) }, func(w *world, _ string, known bool) {
			if !known {
				each++
				all[string(w.key())] = true
			}
		})
		if len(one) != len(all) || each <= len(one) {
			t.Errorf("%+v: %d states one of each, %d of %d all", b, len(one), len(all), each)
		}
		t.Logf("%+v: %d of %d states", b, len(one), each)
	}
}
