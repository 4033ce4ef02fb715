package stream_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
	. "github.com/tanist/tanist/internal/core/stream"
)

// op is one staged change, as the model says it.
type op struct {
	name    string
	offset  uint64
	back    bool
	deleted bool
}

type logged struct {
	b   batch.Batch
	ops []op
}

// rig drives a machine and maps that say the same.
type rig struct {
	m         *Machine
	cursors   map[string]uint64 // confirmed
	staged    []op              // since TakeEvents, each a change that counts
	pending   []logged
	confirmed []logged
	tail      batch.Tail
	disk      map[uint32][]byte
	diskAt    int
}

// view is the cursors once everything staged has come.
func (r *rig) view() map[string]uint64 {
	v := map[string]uint64{}
	for k, o := range r.cursors {
		v[k] = o
	}
	for _, l := range r.pending {
		for _, o := range l.ops {
			o.apply(v)
		}
	}
	for _, o := range r.staged {
		o.apply(v)
	}
	return v
}

func (o op) apply(v map[string]uint64) {
	if o.deleted {
		delete(v, o.name)
	} else if now, ok := v[o.name]; !ok || o.back || o.offset > now {
		v[o.name] = o.offset
	}
}

func TestCursorsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &rig{m: New(Settings{}), cursors: map[string]uint64{}, disk: map[uint32][]byte{}}
		names := rapid.SampledFrom([]string{"a", "b", "c", strings.Repeat("n", MaxCursorName)})
		if rapid.Bool().Draw(t, "many") {
			names = rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "n")) })
		}
		t.Repeat(map[string]func(*rapid.T){
			"move": func(t *rapid.T) {
				for range rapid.IntRange(1, 5).Draw(t, "times") {
					o := op{name: names.Draw(t, "name"), offset: rapid.Uint64Range(0, 50).Draw(t, "offset"), back: rapid.Bool().Draw(t, "back")}
					if err := r.m.Move(o.name, o.offset, o.back); err != nil {
						t.Fatal(err)
					}
					r.staged = append(r.staged, o)
				}
			},
			"forget": func(t *rapid.T) {
				name := names.Draw(t, "name")
				r.m.Forget(name)
				r.staged = append(r.staged, op{name: name, deleted: true})
			},
			"flush":   func(*rapid.T) { r.flush() },
			"confirm": func(t *rapid.T) { r.flush(); r.confirm(t) },
			"save":    func(*rapid.T) { r.save() },
			"crash":   r.crash,
			"":        r.check,
		})
	})
}

func (r *rig) flush() {
	payload, count := r.m.TakeEvents()
	if count == 0 {
		r.staged = nil // nothing of it changed anything
		return
	}
	var b batch.Builder
	b.Add(batch.Run{Kind: batch.KindEvent, Count: count}, payload)
	l := logged{b.Finish(ident.Partition{Incarnation: 1}, 1, r.tail, 1), r.staged}
	r.tail = r.tail.After(l.b, batch.Link{})
	r.pending, r.staged = append(r.pending, l), nil
}

func (r *rig) confirm(t *rapid.T) {
	if len(r.pending) == 0 {
		return
	}
	l := r.pending[0]
	r.pending = r.pending[1:]
	r.confirmed = append(r.confirmed, l)
	if err := r.m.ApplyBatch(l.b); err != nil {
		t.Fatal(err)
	}
	for _, o := range l.ops {
		o.apply(r.cursors)
	}
}

func (r *rig) save() {
	pages, gone := r.m.Snapshot(false)
	for _, n := range gone {
		delete(r.disk, n)
	}
	for _, p := range pages {
		r.disk[p.Number] = p.Data
	}
	r.diskAt = len(r.confirmed)
}

func (r *rig) rebuilt(t *rapid.T) *Machine {
	m, from := New(Settings{}), 0
	if len(r.disk) > 0 {
		var pages []batch.Page
		for n, data := range r.disk {
			pages = append(pages, batch.Page{Number: n, Data: data})
		}
		slices.SortFunc(pages, func(a, b batch.Page) int { return int(b.Number) - int(a.Number) })
		if err := m.Restore(pages); err != nil {
			t.Fatal(err)
		}
		from = r.diskAt
	}
	for _, l := range r.confirmed[from:] {
		if err := m.ApplyBatch(l.b); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// crash loses some of what was staged; the next owner inherits the rest.
func (r *rig) crash(t *rapid.T) {
	r.pending, r.staged = r.pending[:rapid.IntRange(0, len(r.pending)).Draw(t, "kept")], nil
	r.tail = batch.Tail{}
	for _, l := range slices.Concat(r.confirmed, r.pending) {
		r.tail = r.tail.After(l.b, batch.Link{})
	}
	if rapid.Bool().Draw(t, "same") {
		r.m.Demote()
	} else {
		r.m = r.rebuilt(t)
	}
	for len(r.pending) > 0 { // an owner begins once all that it inherits is confirmed
		r.confirm(t)
	}
}

func (r *rig) check(t *rapid.T) {
	got := map[string]uint64{}
	last := ""
	r.m.Cursors(func(name string, offset uint64) {
		if name <= last {
			t.Fatalf("%q after %q", name, last)
		}
		got[name], last = offset, name
	})
	if !reflect.DeepEqual(got, r.cursors) {
		t.Fatalf("confirmed: machine %v, model %v", got, r.cursors)
	}
	view := r.view()
	for _, name := range []string{"a", "b", "c", "1", "2", "77"} {
		off, ok := r.m.Cursor(name)
		if want, wok := view[name]; off != want || ok != wok {
			t.Fatalf("cursor %q: machine %d %v, model %d %v", name, off, ok, want, wok)
		}
	}
	again := map[string]uint64{}
	back := r.rebuilt(t)
	back.Cursors(func(name string, offset uint64) { again[name] = offset })
	if !reflect.DeepEqual(again, r.cursors) {
		t.Fatalf("rebuilt: %v, model %v", again, r.cursors)
	}
}

func TestCursorBounds(t *testing.T) {
	m := New(Settings{})
	for _, name := range []string{"", strings.Repeat("x", MaxCursorName+1)} {
		if err := m.Move(name, 1, false); !errors.Is(err, ErrCursorName) {
			t.Errorf("%d bytes: %v", len(name), err)
		}
	}
	for i := range MaxCursors {
		if err := m.Move(fmt.Sprint(i), 1, false); err != nil {
			t.Fatal(err)
		}
		if i == 300 {
			take(t, m)
		}
	}
	if err := m.Move("one more", 1, false); !errors.Is(err, ErrCursors) {
		t.Error(err)
	}
	take(t, m)
	m.Forget("7")
	if err := m.Move("one more", 1, false); !errors.Is(err, ErrCursors) {
		t.Errorf("the place is not free before the deletion is confirmed: %v", err)
	}
	take(t, m)
	if err := m.Move("one more", 1, false); err != nil {
		t.Error(err)
	}
	take(t, m)
	pages, _ := m.Snapshot(true)
	for _, p := range pages {
		if len(p.Data) > 1<<20 {
			t.Errorf("page %d: %d bytes", p.Number, len(p.Data))
		}
	}
}

// take takes events and applies them.
func take(t testing.TB, m *Machine) []byte {
	payload, count := m.TakeEvents()
	rest := payload
	for range count {
		size := uint32(rest[0]) | uint32(rest[1])<<8
		if size > 32<<10 {
			t.Fatalf("an event of %d bytes", size)
		}
		if err := m.ApplyEvent(rest[4], rest[8:8+size]); err != nil {
			t.Fatal(err)
		}
		rest = rest[8+size:]
	}
	return payload
}

// TestGoldens pins the bytes of events and pages: they are on disks. A change needs a new Version.
func TestGoldens(t *testing.T) {
	var b strings.Builder
	m := New(Settings{})
	step := func(name string, errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n%s", name, hex.Dump(take(t, m)))
	}
	step("new cursors", m.Move("beta", 300, false), m.Move("alpha", 7, false))
	step("forward and back", m.Move("alpha", 9, false), m.Move("beta", 1, true))
	pages, _ := m.Snapshot(true)
	m.Forget("beta")
	step("forgotten")
	for _, p := range pages {
		fmt.Fprintf(&b, "page %d\n%s", p.Number, hex.Dump(p.Data))
	}
	name := filepath.Join("testdata", "events.golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the encoding changed; got\n%s", b.String())
	}
}

func FuzzApplyEvent(f *testing.F) {
	f.Add(EventCursors, []byte{1, 1, 'a', 5, 2, 1, 'b', 0, 3, 1, 'a'})
	f.Fuzz(func(t *testing.T, typ uint8, body []byte) {
		m := New(Settings{})
		if err := m.ApplyEvent(typ, body); err != nil {
			if !errors.Is(err, ErrEvent) {
				t.Fatal(err)
			}
			return
		}
		pages, _ := m.Snapshot(false)
		if err := New(Settings{}).Restore(pages); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(uint32(1), []byte{1, 0, 1, 'a', 5, 3, 1, 'b', 0})
	f.Fuzz(func(t *testing.T, number uint32, data []byte) {
		m := New(Settings{})
		if err := m.Restore([]batch.Page{{Data: []byte{1}}, {Number: number, Data: data}}); err != nil {
			if !errors.Is(err, ErrPage) {
				t.Fatal(err)
			}
			return
		}
		pages, _ := m.Snapshot(true)
		again := New(Settings{})
		if err := again.Restore(pages); err != nil {
			t.Fatalf("refused its own pages: %v", err)
		}
		if twice, _ := again.Snapshot(true); !reflect.DeepEqual(pages, twice) {
			t.Fatalf("%v became %v", pages, twice)
		}
	})
}

func TestResolve(t *testing.T) {
	b := Bounds{Head: 10, Confirmed: 20}
	for _, c := range []struct {
		start  Start
		want   uint64
		lookup Lookup
	}{
		{Start{}, 20, NoLookup},
		{Start{Kind: StartNext}, 20, NoLookup},
		{Start{Kind: StartFirst}, 10, NoLookup},
		{Start{Kind: StartOffset, Offset: 3}, 10, NoLookup},
		{Start{Kind: StartOffset, Offset: 15}, 15, NoLookup},
		{Start{Kind: StartOffset, Offset: 99}, 99, NoLookup},
		{Start{Kind: StartLast}, 0, LookupLast},
		{Start{Kind: StartTimestamp, Time: 5}, 0, LookupTime},
	} {
		if got, lookup := Resolve(c.start, b); got != c.want || lookup != c.lookup {
			t.Errorf("%+v: %d, lookup %d", c.start, got, lookup)
		}
	}
	if got, lookup := Resolve(Start{Kind: StartLast}, Bounds{Head: 4, Confirmed: 4}); got != 4 || lookup != NoLookup {
		t.Errorf("last of an empty stream: %d, lookup %d", got, lookup)
	}
}

// TestRetainAgainstModel: what goes is the longest run of batches from the head of which each is too old, or lies wholly beyond the
// newest MaxBytes or MaxRecords; and nothing unconfirmed.
func TestRetainAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Settings{
			MaxAge:     rapid.Int64Range(0, 60).Draw(t, "age"),
			MaxBytes:   rapid.Int64Range(0, 3000).Draw(t, "bytes"),
			MaxRecords: rapid.Int64Range(0, 30).Draw(t, "records"),
		}
		var all []batch.Info
		var bytes, records int64
		at, pos, off := int64(100), uint64(40), uint64(30)
		for range rapid.IntRange(0, 12).Draw(t, "batches") {
			at += rapid.Int64Range(0, 10).Draw(t, "later")
			n := rapid.Uint32Range(1, 8).Draw(t, "count")
			rec := rapid.Uint32Range(0, n).Draw(t, "records")
			all = append(all, batch.Info{
				Position: pos, Offset: off, Count: n, Records: rec, Time: at, Size: rapid.IntRange(80, 700).Draw(t, "size"),
			})
			pos, off = pos+uint64(n), off+uint64(rec)
			bytes, records = bytes+int64(all[len(all)-1].Size), records+int64(rec)
		}
		now, confirmed := int64(160), rapid.Uint64Range(40, pos).Draw(t, "confirmed")
		want := uint64(0)
		for i, b := range all {
			var newerBytes, newerRecords int64
			for _, n := range all[i+1:] {
				newerBytes, newerRecords = newerBytes+int64(n.Size), newerRecords+int64(n.Records)
			}
			end := b.Position + uint64(b.Count)
			if end > confirmed || !(s.MaxAge > 0 && b.Time+s.MaxAge <= now || s.MaxBytes > 0 && newerBytes >= s.MaxBytes ||
				s.MaxRecords > 0 && newerRecords >= s.MaxRecords) {
				break
			}
			want = end
		}
		if got := New(s).Retain(now, confirmed, bytes, records, all); got != want {
			t.Fatalf("drops below %d, model %d", got, want)
		}
	})
}

// readerState is a reader as the model sees it.
type readerState struct {
	next   uint64
	credit int64
	busy   bool
	order  int
}

// readers is a machine beside the model of its readers.
type readers struct {
	m         *Machine
	all       map[Holder]*readerState
	confirmed uint64
	order     int
	fetches   []Fetch
}

func genReader(t *rapid.T) Holder {
	return Holder{rapid.Uint64Range(1, 2).Draw(t, "gateway"), rapid.Uint64Range(1, 9).Draw(t, "consumer")}
}

// TestReadersAgainstModel: each reader is sent each record once, in order, within its credit, and never two reads at a time.
func TestReadersAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &readers{m: New(Settings{}), all: map[Holder]*readerState{}}
		t.Repeat(map[string]func(*rapid.T){
			"subscribe": r.subscribe,
			"unsubscribe": func(t *rapid.T) {
				h := genReader(t)
				r.m.Unsubscribe(h)
				delete(r.all, h)
			},
			"release": func(t *rapid.T) {
				g := rapid.Uint64Range(1, 2).Draw(t, "gateway")
				r.m.ReleaseGateway(g)
				for h := range r.all {
					if h.Gateway == g {
						delete(r.all, h)
					}
				}
			},
			"credit": func(t *rapid.T) {
				h := genReader(t)
				r.m.Credit(h, 20)
				if s := r.all[h]; s != nil {
					s.credit += 20
				}
			},
			"confirm": func(*rapid.T) { r.confirmed += 3 },
			"due":     r.due,
			"sent":    r.sent,
			"": func(t *rapid.T) {
				if r.m.Readers() != len(r.all) {
					t.Fatalf("%d readers, model %d", r.m.Readers(), len(r.all))
				}
			},
		})
	})
}

func (r *readers) subscribe(t *rapid.T) {
	h, next := genReader(t), rapid.Uint64Range(0, r.confirmed+2).Draw(t, "next")
	credit := rapid.Int64Range(0, 50).Draw(t, "credit")
	r.m.Subscribe(h, next, credit)
	r.order++
	r.all[h] = &readerState{next: next, credit: credit, order: r.order}
}

func (r *readers) due(t *rapid.T) {
	var want []Fetch
	for h, s := range r.all {
		if !s.busy && s.credit > 0 && s.next < r.confirmed {
			want = append(want, Fetch{h, s.next, s.credit})
			s.busy = true
		}
	}
	slices.SortFunc(want, func(a, b Fetch) int {
		if a.Offset != b.Offset {
			return int(int64(a.Offset) - int64(b.Offset))
		}
		return r.all[a.Holder].order - r.all[b.Holder].order
	})
	got := r.m.Due(r.confirmed, nil)
	if !slices.Equal(got, want) {
		t.Fatalf("due: machine %v, model %v", got, want)
	}
	r.fetches = append(r.fetches, got...)
}

func (r *readers) sent(t *rapid.T) {
	if len(r.fetches) == 0 {
		return
	}
	at := rapid.IntRange(0, len(r.fetches)-1).Draw(t, "which")
	f := r.fetches[at]
	r.fetches = slices.Delete(r.fetches, at, at+1)
	next, bytes := min(f.Offset+2, r.confirmed), rapid.Int64Range(0, 60).Draw(t, "bytes")
	s := r.all[f.Holder]
	ok := s != nil && s.busy && s.next == f.Offset
	if got := r.m.Sent(f.Holder, f.Offset, next, bytes); got != ok {
		t.Fatalf("sent %+v: %v", f, got)
	}
	if ok {
		s.busy, s.next, s.credit = false, next, s.credit-bytes
	}
}

// TestReadersGone: readers that come and go leave nothing behind, and an idle stream is small.
func TestReadersGone(t *testing.T) {
	const streams = 2000
	var before, after runtime.MemStats
	ms := make([]*Machine, streams)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range ms {
		ms[i] = New(Settings{})
		for n := range uint64(100) {
			ms[i].Subscribe(Holder{1, n}, 0, 1)
		}
		ms[i].Due(1, nil)
		ms[i].ReleaseGateway(1)
		ms[i].Trim()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if size := (int(after.HeapAlloc) - int(before.HeapAlloc)) / streams; size > 500 {
		t.Errorf("an idle stream takes %d bytes", size)
	}
	runtime.KeepAlive(ms)
}

// BenchmarkReaders is one record to n readers at the tail: the cost per reader and record, and its ratio to that of one reader.
func BenchmarkReaders(b *testing.B) {
	var one float64
	for _, n := range []uint64{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := New(Settings{})
			for i := range n {
				m.Subscribe(Holder{1, i}, 0, 1<<60)
			}
			var fs []Fetch
			b.ReportAllocs()
			for i := range uint64(b.N) {
				fs = m.Due(i+1, fs[:0])
				for _, f := range fs {
					m.Sent(f.Holder, f.Offset, i+1, 100)
				}
			}
			if uint64(len(fs)) != n {
				b.Fatalf("%d of %d", len(fs), n)
			}
			cost := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
			if n == 1 {
				one = cost
			}
			b.ReportMetric(cost, "ns/reader")
			b.ReportMetric(cost/one, "ratio")
		})
	}
}
