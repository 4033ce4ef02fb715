package evidence

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/ident"
)

var update = flag.Bool("update", false, "write the golden files anew")

func store(b byte) ident.StoreID { return ident.StoreID{b} }

// full is a record in which every field is set.
func full() *Evidence {
	return &Evidence{
		Decided: Decided{
			ID: "7/1@5", Workflow: Failover, Partition: ident.Partition{Incarnation: 7, Index: 1}, VHost: "/", Resource: "orders", Kind: ident.Queue,
			Cause: "a/61000000/3 is suspected: connection refused, seen by b, c", SeenBy: []string{"b", "c"},
			Before:  Reign{ident.Instance{Node: "a", Store: store('a'), Boot: 3}, 4},
			After:   Reign{ident.Instance{Node: "b", Store: store('b'), Boot: 1}, 5},
			Version: 9, Policy: "majority_durable", E: 3, W: 2, R: 2,
			Answers: []Answer{
				{ident.Instance{Node: "b", Store: store('b'), Boot: 1}, Place{4, 1200, 1100, Link{0xb}}, 1200, 1180, "damaged"},
				{ident.Instance{Node: "c", Store: store('c'), Boot: 2}, Place{3, 1190, 1095, Link{0xc}}, 1150, 1170, ""},
			},
			Exclusions: []Exclusion{{"a", store('a'), "did not answer"}},
			Start:      Place{5, 1200, 1100, Link{0xb}}, Floor: Floor{1180, "b"}, Watermark: Place{4, 1180, 1090, Link{0xd}},
			LastConfirm: 1, Suspected: 2, Recorded: 3, Sealed: 4, Chosen: 5,
		},
		Became: Became{
			Outcome: Committed, Reason: "-", Cuts: []Cut{{"a", store('a'), 1200, 1300, true}}, Committed: 6, Serving: 7, FirstConfirm: 8,
		},
	}
}

// What was written once must be read for ever, and the digest that the catalog holds must stay true: the bytes are pinned.
func TestFormatIsPinned(t *testing.T) {
	e := full()
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var back Evidence
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, e) {
		t.Fatalf("as JSON it is read as %+v, %v", back, err)
	}
	for _, bad := range []string{`"0b"`, `"zz000000000000000000000000000000"`} {
		if json.Unmarshal([]byte(bad), &back.Start.Link) == nil {
			t.Errorf("link %s is read", bad)
		}
	}
	got := fmt.Sprintf("record %x\ndigest %s\n%s\n", Append(nil, e), e.Digest(), text)
	const golden = "testdata/format1.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Fatal("the encoding has changed; a new format needs a new number, and the old one must still be read")
	}
	var old []byte
	if _, err := fmt.Sscanf(string(want), "record %x\n", &old); err != nil {
		t.Fatal(err)
	}
	if read, err := Parse(old); err != nil || !reflect.DeepEqual(read, e) {
		t.Fatalf("the pinned record is read as %+v, %v", read, err)
	}
}

// leaves calls f with every number, text and byte below v; it may change them.
func leaves(v reflect.Value, path string, f func(path string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			leaves(v.Index(i), fmt.Sprintf("%s[%d]", path, i), f)
		}
	default:
		f(path, v)
	}
}

// Every field of what was decided is in the digest, and every field of all in the encoding.
func TestNothingIsLeftOut(t *testing.T) {
	e := full()
	digest, encoded, n := e.Digest(), Append(nil, e), 0
	leaves(reflect.ValueOf(e).Elem(), "", func(path string, v reflect.Value) {
		if v.IsZero() && !strings.Contains(path, "Store") && !strings.Contains(path, "Link") && path != ".Decided.Answers[1].Health" {
			t.Errorf("%s is not set: it is not shown to be encoded", path)
		}
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		default:
			v.SetUint(v.Uint() ^ 1)
		}
		n++
		if changed := e.Digest() != digest; changed != strings.HasPrefix(path, ".Decided") {
			t.Errorf("%s: the digest changes: %v", path, changed)
		}
		b := Append(nil, e)
		if slices.Equal(b, encoded) {
			t.Errorf("%s is not encoded", path)
		}
		if again, err := Parse(b); err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%s: read as %+v, %v", path, again, err)
		}
		v.Set(old)
	})
	if n < 100 {
		t.Fatalf("only %d fields", n)
	}
}

func TestOrderAndLengthDoNotMatter(t *testing.T) {
	e, shuffled := full(), full()
	slices.Reverse(shuffled.Answers)
	slices.Reverse(shuffled.SeenBy)
	if e.Digest() != shuffled.Digest() || !slices.Equal(Append(nil, e), Append(nil, shuffled)) {
		t.Error("the order of a list decides")
	}
	if shuffled.SeenBy[0] != "c" {
		t.Error("the caller's list was sorted")
	}
	e.Cause = strings.Repeat("x", MaxText+1)
	for i := range 2 * MaxCopies {
		e.Exclusions = append(e.Exclusions, Exclusion{Node: fmt.Sprint(i), Reason: e.Cause})
	}
	b := Append(nil, e)
	read, err := Parse(b)
	if err != nil || len(read.Cause) != MaxText || len(read.Exclusions) != MaxCopies || read.Digest() != e.Digest() || len(b) > 200<<10 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestWhatIsNotARecordIsRefused(t *testing.T) {
	good := Append(nil, full())
	for n := range good {
		if _, err := Parse(good[:n]); !errors.Is(err, ErrMalformed) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := Parse(append(slices.Clone(good), 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := Parse(append([]byte{Format + 1}, good[1:]...)); !errors.Is(err, ErrUnknown) {
		t.Errorf("a later format: %v", err)
	}
	c := writer([]byte{Format})
	e := full()
	slices.Reverse(e.Answers)
	c.decided(&e.Decided)
	c.became(&e.Became)
	if _, err := Parse(c.Buf); !errors.Is(err, ErrMalformed) {
		t.Errorf("a second encoding of the same record: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Append(nil, full()))
	f.Add(Append(nil, &Evidence{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			if e != nil || !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknown) {
				t.Fatalf("%+v, %v", e, err)
			}
			return
		}
		if again := Append(nil, e); !slices.Equal(again, b) {
			t.Fatalf("%x is encoded again as %x", b, again)
		}
	})
}

// drawRecord is a record that differs from others in what a shelf looks at.
func drawRecord(t *rapid.T) *Evidence {
	p := ident.Partition{Incarnation: rapid.Uint64Range(1, 4).Draw(t, "partition")}
	epoch := rapid.Uint64Range(1, 5).Draw(t, "epoch")
	e := &Evidence{Decided: Decided{ID: fmt.Sprintf("%s@%d", p, epoch), Partition: p, After: Reign{Epoch: epoch}}}
	e.Suspected = int64(p.Incarnation*7+epoch*5) % 11 // of an id always the same, and not in the order of epochs
	e.Serving = rapid.Int64Range(0, 9).Draw(t, "serving")
	e.Version = uint64(rapid.IntRange(0, 7).Draw(t, "version")) / 7
	return e
}

// The shelf against a list that is searched for everything.
func TestShelfAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		each, total := rapid.IntRange(1, 3).Draw(t, "each"), rapid.IntRange(1, 6).Draw(t, "total")
		s := NewShelf(each, total, 0)
		var list []*Evidence // by beginning
		of := func(p ident.Partition) (out []*Evidence) {
			for _, e := range list {
				if e.Partition == p {
					out = append(out, e)
				}
			}
			slices.SortFunc(out, byEpoch)
			return out
		}
		for range rapid.IntRange(1, 40).Draw(t, "puts") {
			e := drawRecord(t)
			var wantGone []string
			wantOK := true
			drop := func(x *Evidence) {
				list = slices.DeleteFunc(list, func(y *Evidence) bool { return x == y })
				if x == e {
					wantOK = false
				} else {
					wantGone = append(wantGone, x.ID)
				}
			}
			i := slices.IndexFunc(list, func(x *Evidence) bool { return x.ID == e.ID })
			if i >= 0 && list[i].Version != e.Version {
				wantOK = false
			} else {
				if i >= 0 {
					list = slices.Delete(list, i, i+1)
				}
				list = append(list, e)
				slices.SortFunc(list, Compare)
				if l := of(e.Partition); len(l) > each {
					drop(l[0])
				}
				if len(list) > total {
					drop(list[0])
				}
			}
			if gone, ok := s.Put(e); !slices.Equal(gone, wantGone) || ok != wantOK {
				t.Fatalf("put %s: %q went, %v; want %q, %v", e.ID, gone, ok, wantGone, wantOK)
			}
			bytes := 0
			for _, x := range list {
				bytes += len(Append(nil, x))
				if s.Get(x.ID) != x {
					t.Fatalf("%s is not found", x.ID)
				}
			}
			for i := range 5 {
				q := ident.Partition{Incarnation: uint64(i)}
				if got := s.Of(q); !slices.Equal(got, of(q)) {
					t.Fatalf("of %s: %d, want %d", q, len(got), len(of(q)))
				}
			}
			if !slices.Equal(s.Last(100), list) || !slices.Equal(s.Last(2), list[max(0, len(list)-2):]) || len(s.Last(-1)) > 0 || s.Len() != len(list) {
				t.Fatalf("kept %d, want %d", s.Len(), len(list))
			}
			if len(s.records) != len(list) || len(s.partitions) > len(list) || s.Bytes() != bytes || s.Get("none") != nil {
				t.Fatal("what went is still there")
			}
		}
	})
}

// Nodes are told in different orders, and give each other what one holds and the other does not: they must come to hold the same.
func TestShelvesThatAreToldTheSameHoldTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []*Evidence
		for _, e := range rapid.SliceOfN(rapid.Custom(drawRecord), 1, 20).Draw(t, "records") {
			e.Serving, e.Version = 0, 0
			all = append(all, e)
		}
		a, b := NewShelf(2, 5, 0), NewShelf(2, 5, 0)
		for _, e := range all {
			a.Put(e)
		}
		for _, i := range rapid.Permutation(all).Draw(t, "order") {
			b.Put(i)
		}
		for range 2 {
			for _, e := range a.Last(100) {
				b.Put(e)
			}
			for _, e := range b.Last(100) {
				a.Put(e)
			}
		}
		ids := func(s *Shelf) (out []string) {
			for _, e := range s.Last(100) {
				out = append(out, e.ID)
			}
			return out
		}
		if !slices.Equal(ids(a), ids(b)) {
			t.Fatalf("%q and %q", ids(a), ids(b))
		}
	})
}

func TestADefaultShelfIsBounded(t *testing.T) {
	s := NewShelf(0, 0, 0)
	for i := range DefaultTotal + 100 {
		p := ident.Partition{Incarnation: uint64(i / (2 * DefaultPerPartition))}
		s.Put(&Evidence{Decided: Decided{ID: fmt.Sprint(i), Partition: p, After: Reign{Epoch: uint64(i)}, Recorded: int64(i)}})
	}
	if len(s.Of(ident.Partition{Incarnation: 3})) != DefaultPerPartition || s.Len() > DefaultTotal {
		t.Errorf("%d kept", s.Len())
	}
	s = NewShelf(0, 0, 10_000)
	for i := range 100 {
		s.Put(&Evidence{Decided: Decided{ID: fmt.Sprint(i), Partition: ident.Partition{Incarnation: uint64(i)}, Cause: strings.Repeat("x", 1000), Recorded: int64(i)}})
	}
	if s.Bytes() > 10_000 || s.Len() < 8 || s.Get("99") == nil {
		t.Errorf("%d bytes in %d records", s.Bytes(), s.Len())
	}
}

// Words come in any order, some twice: what is known in the end is the same, and says no less than each of them.
func TestWhatBecameOfItIsMerged(t *testing.T) {
	word := rapid.Custom(func(t *rapid.T) Became {
		b := Became{
			Outcome: rapid.SampledFrom([]Outcome{"", Cancelled, Committed}).Draw(t, "outcome"), Committed: rapid.Int64Range(0, 3).Draw(t, "committed"),
			Serving: rapid.Int64Range(0, 3).Draw(t, "serving"), FirstConfirm: rapid.Int64Range(0, 3).Draw(t, "first confirm"),
		}
		if b.Outcome == Cancelled {
			b.Reason = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "reason")
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "cuts") {
			b.Cuts = append(b.Cuts, Cut{
				Node: string(rune('a' + i)), From: rapid.Uint64Range(1, 4).Draw(t, "from"), To: rapid.Uint64Range(5, 9).Draw(t, "to"),
				Quarantined: rapid.Bool().Draw(t, "quarantined"),
			})
		}
		return b
	})
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(word, 1, 5).Draw(t, "words")
		merge := func(list []Became) (m Became) {
			for _, w := range list {
				m, _ = m.Merge(w)
			}
			return m
		}
		m := merge(words)
		if other := merge(rapid.Permutation(append(slices.Clone(words), words...)).Draw(t, "order")); !reflect.DeepEqual(m, other) {
			t.Fatalf("%+v and %+v", m, other)
		}
		for _, w := range words {
			if again, more := m.Merge(w); more || !reflect.DeepEqual(again, m) {
				t.Fatalf("%+v says more than %+v: %+v", w, m, again)
			}
			if w.Serving != 0 && (m.Serving == 0 || m.Serving > w.Serving) || w.Outcome == Committed && m.Outcome != Committed || len(w.Cuts) > len(m.Cuts) {
				t.Fatalf("%+v is lost in %+v", w, m)
			}
		}
	})
	if m, more := (Became{}).Merge(Became{Serving: 3}); !more || m.Serving != 3 {
		t.Errorf("news is %+v, %v", m, more)
	}
}
