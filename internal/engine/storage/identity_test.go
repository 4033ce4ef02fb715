package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBootIsNeverCountedTwice damages the store's identity in every way between starts that leave no other trace of themselves: each
// start must still get a boot that none before it had, or its owner would pass for one that has ended.
func TestBootIsNeverCountedTwice(t *testing.T) {
	flip := func(at int) func(t *testing.T, path string, p []byte) {
		return func(t *testing.T, path string, p []byte) {
			if at >= len(p) {
				return
			}
			p[at] ^= 4
			if err := os.WriteFile(path, p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, hurt := range map[string]func(t *testing.T, path string, p []byte){
		"nothing": func(*testing.T, string, []byte) {},
		"slot 0":  flip(33), "slot 1": flip(identitySlot + 33), "the magic of slot 1": flip(identitySlot),
		"both slots": func(t *testing.T, path string, p []byte) {
			flip(20)(t, path, p)
			flip(identitySlot+20)(t, path, p)
		},
		"the file": func(t *testing.T, path string, _ []byte) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			id := r.s.ID()
			highest := r.s.Boot()
			for range 6 {
				r.reopen()
				if b := r.s.Boot(); b <= highest {
					t.Fatalf("boot %d after %d", b, highest)
				} else {
					highest = b
				}
				r.reopen()
				highest = max(highest, r.s.Boot())
				r.close()
				path := filepath.Join(r.dir, identityName)
				p, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				hurt(t, path, p)
				r.open()
				if b := r.s.Boot(); b <= highest {
					t.Fatalf("boot %d after %d", b, highest)
				} else {
					highest = b
				}
				if r.s.ID() != id {
					t.Fatal("the store has another id")
				}
			}
		})
	}
}
