package partition

import (
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
)

// TestMain raises rapid's default: schedules here are cheap and rarely interesting.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f != nil && f.Value.String() == f.DefValue {
		if err := f.Value.Set("3000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// item is an entry of the dumb model's log: a record of a producer, or an event of this package.
type item struct {
	producer, seq uint64
	event         uint8
	pairs         []Forgotten
}

// dumb judges by looking through the whole log.
type dumb struct {
	log       []item
	confirmed int
}

func (m *dumb) judge(id, seq uint64) (v Verdict, at uint64) {
	stored, refused, last := false, false, uint64(0)
	for i, e := range m.log {
		switch {
		case e.event == 0 && e.producer == id:
			last = max(last, e.seq)
			if e.seq == seq {
				stored, refused, at = true, false, uint64(i+1)
			}
		case e.event == EventRefused && e.pairs[0] == Forgotten{id, seq}:
			refused = refused || !stored && seq > last
		}
	}
	switch {
	case seq > last:
		return New, 0
	case stored:
		return Duplicate, at
	case refused || !Named(id):
		return Absent, 0
	}
	return Duplicate, 0 // a named producer's numbers may leave gaps: at or below the last, it counts as stored
}

func (m *dumb) build(upTo int) *Producers {
	t := &Producers{}
	for i, e := range m.log[:upTo] {
		if e.event != 0 {
			if err := t.Apply(e.event, AppendPairs(nil, e.pairs)); err != nil {
				panic(err)
			}
			continue
		}
		t.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: e.producer, First: e.seq}, uint64(i+1), int64(i))
	}
	return t
}

var all = cmp.Options{cmp.AllowUnexported(Producers{}, producer{}, past{}), cmpopts.EquateEmpty()}

func TestProducersAgainstALog(t *testing.T) {
	ids := []uint64{1, 2, namedBit | 3, namedBit | 4}
	rapid.Check(t, func(rt *rapid.T) {
		m, p := &dumb{}, &Producers{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			id := rapid.SampledFrom(ids).Draw(rt, "producer")
			seq := rapid.Uint64Range(1, 20).Draw(rt, "number")
			v, at := p.Judge(id, seq)
			if wv, wat := m.judge(id, seq); v != wv || v == Duplicate && (at < wat || at > uint64(len(m.log))) {
				rt.Fatalf("number %d of %x: %d at %d, want %d at %d", seq, id, v, at, wv, wat)
			}
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what < 5 && v == New:
				m.log = append(m.log, item{producer: id, seq: seq})
				p.Stage(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: id, First: seq}, uint64(len(m.log)))
			case what == 5 && v == New && Named(id):
				m.log = append(m.log, item{event: EventRefused, pairs: []Forgotten{{id, seq}}})
				p.Refuse(id, seq)
			case what == 6:
				for m.confirmed < len(m.log) { // everything becomes confirmed
					e := m.log[m.confirmed]
					m.confirmed++
					if e.event == 0 {
						p.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: e.producer, First: e.seq}, uint64(m.confirmed), int64(m.confirmed-1))
					} else if err := p.Apply(e.event, AppendPairs(nil, e.pairs)); err != nil {
						rt.Fatal(err)
					}
				}
				// The table is what the log alone makes of it, and survives a snapshot.
				if d := cmp.Diff(m.build(m.confirmed), p, all); d != "" {
					rt.Fatalf("rebuilt from the log (-) and live (+):\n%s", d)
				}
				again, err := RestoreProducers(p.Pages())
				if err != nil {
					rt.Fatal(err)
				}
				if d := cmp.Diff(*p, again, all); d != "" {
					rt.Fatalf("live (-) and restored (+):\n%s", d)
				}
			}
		}
	})
}

func TestRollback(t *testing.T) {
	var p Producers
	run := func(id, first uint64) batch.Run {
		return batch.Run{Kind: batch.KindRecord, Count: 2, Producer: id, First: first}
	}
	p.Confirm(run(1, 1), 2, 0)
	p.Stage(run(1, 3), 4)
	p.Stage(run(2, 1), 6)
	p.Rollback()
	if last, at := p.Last(1); last != 2 || at != 2 {
		t.Fatalf("producer 1 is at %d, position %d", last, at)
	}
	if known, _ := p.Len(); known != 1 {
		t.Fatalf("%d producers are known", known)
	}
	if v, _ := p.Judge(1, 3); v != New {
		t.Fatalf("a number that was cut is %d", v)
	}
}

func TestForgetting(t *testing.T) {
	var p Producers
	for i := range uint64(MaxNamed + MaxNamed/8) {
		p.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: namedBit | (1<<40 + i), First: 7}, i+1, 99)
	}
	if p.TooMany() {
		t.Fatal("too many already")
	}
	p = Producers{}
	for i := range uint64(MaxNamed + 10) {
		p.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: namedBit | (i + 1), First: 7}, i+1, int64(i))
	}
	p.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 42, First: 1}, 9999, 0)
	gone := p.Forgettable(100, func(id uint64) bool { return id == 42 })
	if len(gone) != 11 || gone[0].ID != 42 || gone[1].ID != namedBit|1 || gone[10].ID != namedBit|10 {
		t.Fatalf("to be forgotten: %v", gone)
	}
	// One of them appends before the event is applied: it stays.
	p.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: namedBit | 1, First: 8}, 10000, 50)
	if err := p.Apply(EventForget, AppendPairs(nil, gone)); err != nil {
		t.Fatal(err)
	}
	if v, _ := p.Judge(namedBit|1, 8); v != Duplicate {
		t.Fatalf("the one that stayed: %d", v)
	}
	if v, _ := p.Judge(namedBit|2, 7); v != UnknownNamed {
		t.Fatalf("a late resend of a forgotten producer: %d", v)
	}
	if v, _ := p.Judge(namedBit|2, 8); v != New {
		t.Fatalf("a forgotten producer goes on: %d", v)
	}
	if last, _ := p.Last(42); last != 0 {
		t.Fatal("the buried gateway is still known")
	}
	known, refused := p.Len()
	if known != MaxNamed+1 || refused != 9 || len(p.Forgettable(100, nil)) != 1 {
		t.Fatalf("known %d, refused %d", known, refused)
	}
	if silent := p.Forgettable(Silence+1000+MaxNamed+10, nil); len(silent) != known {
		t.Fatalf("%d of %d are silent", len(silent), known)
	}
	again, err := RestoreProducers(p.Pages())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(p, again, all); d != "" {
		t.Fatal(d)
	}
}

// A forgotten producer that comes back keeps nothing of what was known of its old numbers: one that was refused then must not pass for
// a duplicate, which its client would take for stored.
func TestAForgottenProducerComesBack(t *testing.T) {
	const id = namedBit | 5
	run := func(seq uint64) batch.Run {
		return batch.Run{Kind: batch.KindRecord, Count: 1, Producer: id, First: seq}
	}
	for _, staged := range []bool{false, true} {
		var p Producers
		p.Confirm(run(1), 1, 1)
		p.Refuse(id, 2)
		p.Confirm(run(3), 3, 1)
		if staged {
			p.Refuse(id, 8) // behind the event, before it is confirmed
			p.Stage(run(10), 5)
		}
		p.Forget([]Forgotten{{id, 3}})
		p.Refuse(id, 8)
		p.Confirm(run(10), 5, 2)
		for seq, want := range map[uint64]Verdict{1: Unsure, 2: Unsure, 3: Unsure, 8: Absent, 10: Duplicate, 11: New} {
			if v, _ := p.Judge(id, seq); v != want {
				t.Errorf("staged %v: number %d is %d, want %d", staged, seq, v, want)
			}
		}
		again, err := RestoreProducers(p.Pages())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p, again, all); d != "" {
			t.Fatal(d)
		}
	}
}

// A producer whose refused numbers are too many to be remembered is answered honestly: unsure.
func TestManyGaps(t *testing.T) {
	var p Producers
	for i := range uint64(2 * MaxGaps) {
		p.Stage(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 1, First: 2*i + 2}, i+1)
	}
	if v, _ := p.Judge(1, 1); v != Unsure {
		t.Fatalf("an old gap: %d", v)
	}
	if v, _ := p.Judge(1, 4*MaxGaps-1); v != Absent {
		t.Fatalf("a new gap: %d", v)
	}
	if v, _ := p.Judge(1, 4*MaxGaps); v != Duplicate {
		t.Fatalf("a stored number: %d", v)
	}
}

func TestMalformedPagesAndEvents(t *testing.T) {
	var p Producers
	p.Confirm(batch.Run{Kind: batch.KindRecord, Count: 1, Producer: 1, First: 5}, 1, 0)
	page := p.Pages()[0]
	for n := range len(page.Data) {
		if _, err := RestoreProducers([]Page{{Number: page.Number, Data: page.Data[:n]}}); err == nil {
			t.Fatalf("a page cut to %d bytes was read", n)
		}
	}
	if err := p.Apply(EventForget, []byte{1}); err == nil {
		t.Fatal("a malformed event was applied")
	}
	if err := p.Apply(0xff, nil); err == nil {
		t.Fatal("an unknown event was applied")
	}
	if _, _, err := ReadEpochMark(nil); err == nil {
		t.Fatal("an empty mark was read")
	}
	epoch, version, err := ReadEpochMark(AppendEpochMark(nil, 7, 3))
	if epoch != 7 || version != 3 || err != nil {
		t.Fatalf("mark %d %d %v", epoch, version, err)
	}
}

// TestSource checks a stream's numbers against a plain list of what each position confirms.
func TestSource(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var table Producers
		s := NewSource(&table, 1, rapid.Uint64Range(0, 5).Draw(rt, "first"))
		next, position, confirmed := s.Expect(), uint64(0), uint64(0)
		type taken struct{ at, upTo uint64 }
		var waits []taken
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			first := next + rapid.SampledFrom([]uint64{0, 0, 0, 1, ^uint64(0)}).Draw(rt, "offset")
			count := rapid.Uint32Range(1, 4).Draw(rt, "count")
			if first == 0 || first > 1<<60 {
				continue
			}
			repeated, ok := s.Admit(first, count)
			if ok != (first <= next) {
				rt.Fatalf("admit %d, expected %d: %v", first, next, ok)
			}
			if ok {
				if want := uint32(min(next-first, uint64(count))); repeated != want {
					rt.Fatalf("%d repeated, want %d", repeated, want)
				}
				next = max(next, first+uint64(count))
				position += uint64(count - repeated)
				s.Taken(next, position)
				waits = append(waits, taken{position, next})
			}
			if rapid.Bool().Draw(rt, "confirm") {
				confirmed = rapid.Uint64Range(confirmed, position).Draw(rt, "confirmed")
				upTo, news := s.Confirmed(confirmed)
				n := 0
				var want uint64
				for n < len(waits) && waits[n].at <= confirmed {
					want = max(want, waits[n].upTo)
					n++
				}
				waits = slices.Delete(waits, 0, n)
				if news != (n > 0) || news && upTo != want {
					rt.Fatalf("confirmed %d: told %d %v, want %d", confirmed, upTo, news, want)
				}
			}
			if _, waiting := s.Waiting(); waiting != (len(waits) > 0) {
				rt.Fatalf("waiting %v with %d", waiting, len(waits))
			}
		}
	})
}

// TestANewStreamTakesNothingForConfirmed: that a later number is in the log says nothing of an earlier one, which may have been refused.
func TestANewStreamTakesNothingForConfirmed(t *testing.T) {
	var table Producers
	table.Confirm(batch.Run{Kind: batch.KindRecord, Producer: 1, First: 9, Count: 1}, 9, 0)
	s := NewSource(&table, 1, 7)
	if told, _ := s.Confirmed(100); told != 7 || s.Expect() != 10 {
		t.Errorf("below %d is taken for confirmed, and %d is expected: want 7 and 10", told, s.Expect())
	}
}
