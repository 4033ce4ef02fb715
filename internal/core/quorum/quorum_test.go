package quorum

import (
	"fmt"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
)

const maxE = 7

// policies are all that differ for sets up to maxE.
func policies() []Policy {
	out := []Policy{{}, {Rule: Local}, {Rule: All}}
	for n := 1; n <= maxE+1; n++ {
		out = append(out, Policy{Rule: Replica, N: n})
	}
	return out
}

var kinds = []ident.Kind{ident.Queue, ident.Stream}

func TestTable(t *testing.T) {
	for _, c := range []struct {
		policy string
		e      int
		kind   ident.Kind
		w      int
	}{
		{"local_durable", 1, ident.Queue, 1},
		{"local_durable", 3, ident.Queue, 1},
		{"local_durable", 3, ident.Stream, 3},
		{"replica_durable(2)", 1, ident.Queue, 1},
		{"replica_durable(2)", 3, ident.Queue, 2},
		{"replica_durable(2)", 3, ident.Stream, 2},
		{"replica_durable(1)", 3, ident.Queue, 1},
		{"replica_durable(1)", 3, ident.Stream, 3},
		{"replica_durable(9)", 3, ident.Stream, 3},
		{"replica_accepted(2)", 3, ident.Queue, 2},
		{"majority_durable", 1, ident.Stream, 1},
		{"majority_durable", 2, ident.Stream, 2},
		{"majority_durable", 3, ident.Queue, 2},
		{"", 5, ident.Queue, 3},
		{"all_durable", 3, ident.Queue, 3},
		{"all_durable", 0, ident.Queue, 1},
	} {
		p, err := Parse(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		if w := W(p, c.e, c.kind); w != c.w {
			t.Errorf("W(%s, %d, %s) = %d, want %d", c.policy, c.e, c.kind, w, c.w)
		}
	}
}

func TestPoliciesAsText(t *testing.T) {
	for _, p := range policies() {
		if got, err := Parse(p.String()); err != nil || got != p {
			t.Errorf("%s is read as %v, %v", p, got, err)
		}
	}
	for _, bad := range []string{
		"local", "replica_durable", "replica_durable(0)", "replica_durable(65)", "replica_durable(x)", "replica_durable(2",
		"replica_durable(2)x", "replica_durable()", "Majority_durable", "replica_accepted(-1)",
	} {
		if p, err := Parse(bad); err == nil {
			t.Errorf("%q is read as %v", bad, p)
		}
	}
}

// Set is an eligible set with what it needs: of one assignment, or of one half of a joint change.
type Set struct {
	Members []string // stores or nodes; the owner included, none twice
	W       int
}

// Confirmed is the rule in words, for Reached to be held against: it reports whether the copies that hold an entry durably suffice. The owner must be among them: what its own storage did
// not take is not confirmed, whoever else holds it.
func Confirmed(owner string, durable func(member string) bool, sets ...Set) bool {
	if !durable(owner) {
		return false
	}
	for _, s := range sets {
		n := 0
		for _, m := range s.Members {
			if durable(m) {
				n++
			}
		}
		if n < s.W {
			return false
		}
	}
	return len(sets) > 0
}

// subsets calls f with every set of exactly n of e members, as bits.
func subsets(e, n int, f func(set uint)) {
	for set := range uint(1) << e {
		count := 0
		for i := range e {
			count += int(set >> i & 1)
		}
		if count == n {
			f(set)
		}
	}
}

// Whatever W copies confirmed an entry, any R sealed copies have one of them among them, and no fewer would do.
func TestEveryWMeetsEveryR(t *testing.T) {
	for _, p := range policies() {
		for _, kind := range kinds {
			for e := 1; e <= maxE; e++ {
				w, r := W(p, e, kind), R(p, e, kind)
				if w < 1 || w > e || r < 1 || r > e {
					t.Fatalf("%s of %d, %s: W %d, R %d", p, e, kind, w, r)
				}
				fewer := false
				subsets(e, w, func(confirmed uint) {
					subsets(e, r, func(sealed uint) {
						if confirmed&sealed == 0 {
							t.Fatalf("%s of %d, %s: %b confirmed and %b sealed share nobody", p, e, kind, confirmed, sealed)
						}
					})
					subsets(e, r-1, func(sealed uint) { fewer = fewer || confirmed&sealed == 0 })
				})
				if !fewer {
					t.Fatalf("%s of %d, %s: R %d is more than is needed", p, e, kind, r)
				}
			}
		}
	}
}

func members(bits uint, e int) (out []string) {
	for i := range e {
		if bits>>i&1 == 1 {
			out = append(out, fmt.Sprint(i))
		}
	}
	return out
}

func size(bits uint) (n int) {
	for ; bits != 0; bits &= bits - 1 {
		n++
	}
	return n
}

func holds(bits uint) func(string) bool {
	return func(m string) bool { return bits>>(m[0]-'0')&1 == 1 }
}

// What is confirmed under the joint rule meets every R of the old set and every R of the new one, whichever of the two the catalog
// turns out to have. Member 0 is the owner and in both sets.
func TestJointRuleMeetsBoth(t *testing.T) {
	for _, p := range []Policy{{}, {Rule: Local}, {Rule: All}, {Rule: Replica, N: 2}} {
		for _, kind := range kinds {
			for old := uint(1); old < 1<<5; old += 2 {
				for changed := uint(1); changed < 1<<5; changed += 2 {
					jointCase(t, p, kind, old, changed)
				}
			}
		}
	}
}

func jointCase(t *testing.T, p Policy, kind ident.Kind, old, changed uint) {
	sets := []Set{{members(old, 5), W(p, size(old), kind)}, {members(changed, 5), W(p, size(changed), kind)}}
	for durable := range uint(1) << 5 {
		got := Confirmed("0", holds(durable), sets...)
		want := durable&1 == 1 && size(durable&old) >= sets[0].W && size(durable&changed) >= sets[1].W
		if got != want {
			t.Fatalf("%s %s %b+%b: durable on %b, confirmed %v", p, kind, old, changed, durable, got)
		}
		if !got {
			continue
		}
		for _, set := range []uint{old, changed} {
			r := R(p, size(set), kind)
			for sealed := range uint(1) << 5 {
				if sealed&^set == 0 && size(sealed) == r && sealed&durable == 0 {
					t.Fatalf("%s %s %b+%b: confirmed on %b, sealed %b", p, kind, old, changed, durable, sealed)
				}
			}
		}
	}
}

// joint is the lowest of what several sets reached: the owner is member "0" of each.
func joint(at map[string]uint64, sets ...Set) uint64 {
	if len(sets) == 0 {
		return 0
	}
	lowest := at["0"]
	for _, s := range sets {
		var followers []uint64
		for _, m := range s.Members {
			if m != "0" {
				followers = append(followers, at[m])
			}
		}
		lowest = min(lowest, Reached(s.W, at["0"], followers))
	}
	return lowest
}

// Reached agrees with asking Confirmed about one position after the other.
func TestReachedIsTheHighestConfirmed(t *testing.T) {
	const e, top = 4, 3
	sets := [][]Set{
		{{members(0b1111, e), 1}},
		{{members(0b1111, e), 2}},
		{{members(0b1111, e), 3}},
		{{members(0b1111, e), 4}},
		{{members(0b0111, e), 2}, {members(0b1101, e), 2}},
		{{members(0b0011, e), 2}, {members(0b1111, e), 3}},
		{{members(0b0001, e), 1}},
		{{members(0b0011, e), 3}},
		{{members(0b0011, e), 0}},
		{},
	}
	for _, set := range sets {
		for code := range (top + 1) * (top + 1) * (top + 1) * (top + 1) {
			at := map[string]uint64{}
			for i, c := 0, code; i < e; i, c = i+1, c/(top+1) {
				at[fmt.Sprint(i)] = uint64(c % (top + 1))
			}
			want := uint64(0)
			for pos := uint64(1); pos <= top; pos++ {
				possible := true
				for _, s := range set {
					possible = possible && s.W >= 1
				}
				if possible && Confirmed("0", func(m string) bool { return at[m] >= pos }, set...) {
					want = pos
				}
			}
			if got := joint(at, set...); got != want {
				t.Fatalf("%v with %v: position %d, want %d", set, at, got, want)
			}
		}
	}
}
