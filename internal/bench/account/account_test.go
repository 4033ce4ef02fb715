package account

import (
	"testing"
	"time"
)

const ms = time.Millisecond

func body(id ID) []byte {
	b := make([]byte, 40)
	id.Body(b)
	return b
}

// Each fault that a broker can commit is counted under its own name, once, and nothing else is.
func TestEachFaultHasItsCount(t *testing.T) {
	good := Totals{Published: 4, Confirmed: 4, Found: 4}
	for name, c := range map[string]struct {
		do   func(l *Ledger, ids []ID)
		want func(*Totals)
	}{
		"nothing": {func(l *Ledger, ids []ID) { readBack(l, ids, 0, 1, 2, 3) }, func(*Totals) {}},
		"lost": {func(l *Ledger, ids []ID) { readBack(l, ids, 0, 1, 3) }, func(w *Totals) {
			w.Found, w.Lost = 3, 1
		}},
		"duplicate": {func(l *Ledger, ids []ID) { readBack(l, ids, 0, 1, 2, 1, 3) }, func(w *Totals) { w.Duplicate = 1 }},
		"reordered": {func(l *Ledger, ids []ID) { readBack(l, ids, 0, 2, 1, 3) }, func(w *Totals) { w.Reordered = 1 }},
		"damaged": {func(l *Ledger, ids []ID) {
			readBack(l, ids, 0, 1, 2)
			b := body(ids[3])
			b[39]++
			l.Found(b)
		}, func(w *Totals) { w.Damaged, w.Lost, w.Found = 1, 1, 3 }},
		"another resource's": {func(l *Ledger, ids []ID) {
			readBack(l, ids, 0, 1, 2, 3)
			l.Found(body(ID{8, 1, 1}))
		}, func(w *Totals) { w.Damaged = 1 }},
		"never published": {func(l *Ledger, ids []ID) {
			readBack(l, ids, 0, 1, 2, 3)
			l.Found(body(ID{7, 1, 5}))
		}, func(w *Totals) { w.Damaged = 1 }},
		"two outcomes": {func(l *Ledger, ids []ID) {
			readBack(l, ids, 0, 1, 2, 3)
			l.Resolve(ids[0].Number, Nacked, 0)
		}, func(w *Totals) { w.Twice = 1 }},
		"an outcome of nothing": {func(l *Ledger, ids []ID) {
			readBack(l, ids, 0, 1, 2, 3)
			l.Resolve(5, Confirmed, 0)
		}, func(w *Totals) { w.Twice = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			l, ids := book(Confirmed, Confirmed, Confirmed, Confirmed)
			c.do(l, ids)
			want := good
			c.want(&want)
			if got := l.Totals(); got != want {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

// book is a ledger of resource 7 with messages of session 1 that ended so.
func book(outcomes ...Outcome) (*Ledger, []ID) {
	l := New(7)
	var ids []ID
	for i, o := range outcomes {
		id := l.Publish(1, time.Duration(i)*ms)
		ids = append(ids, id)
		if o != Waiting {
			l.Resolve(id.Number, o, time.Duration(i+1)*ms)
		}
	}
	return l, ids
}

func readBack(l *Ledger, ids []ID, places ...int) {
	for _, p := range places {
		l.Found(body(ids[p]))
	}
}

// Only a confirm is a promise: what was nacked, or never answered, may be there or not.
func TestOutcomes(t *testing.T) {
	l, ids := book(Nacked, Unknown, Waiting, Confirmed)
	readBack(l, ids, 1, 3)
	want := Totals{Published: 4, Confirmed: 1, Nacked: 1, Unknown: 1, Unsettled: 1, Found: 2}
	if got := l.Totals(); got != want {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

// A session that ends leaves what it was told nothing of unknown, and nothing of another session's.
func TestGiveUp(t *testing.T) {
	l := New(0)
	first, second, _ := l.Publish(1, 0), l.Publish(1, 0), l.Publish(2, 0)
	l.Resolve(first.Number, Confirmed, 0)
	if n := l.GiveUp(1, ms); n != 1 {
		t.Fatalf("%d given up", n)
	}
	l.Resolve(second.Number, Confirmed, 2*ms) // too late: it has its outcome
	l.Found(body(first))
	want := Totals{Published: 3, Confirmed: 1, Unknown: 1, Unsettled: 1, Found: 1, Twice: 1}
	if got := l.Totals(); got != want {
		t.Fatalf("got %+v\nwant %+v", got, want)
	}
}

// Order is promised within a session: what an earlier one left may come behind what a later one published.
func TestOrderIsASessions(t *testing.T) {
	l := New(0)
	first, second := l.Publish(1, 0), l.Publish(2, 0)
	l.Found(body(second))
	l.Found(body(first))
	if got := l.Totals(); got.Reordered != 0 || got.Found != 2 {
		t.Fatalf("%+v", got)
	}
}

// What a reader saw at an offset before a kill is at that offset for ever.
func TestOffsetsStay(t *testing.T) {
	for name, c := range map[string]struct {
		found []int // ids by offset, as read back
		moved int64
	}{
		"they stay":        {[]int{0, 1, 2, 3}, 0},
		"two change place": {[]int{1, 0, 2, 3}, 2},
		"one is gone":      {[]int{0, 1, 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l, ids := book(Confirmed, Confirmed, Confirmed, Confirmed)
			for o, id := range ids {
				l.Saw(uint64(o), body(id))
			}
			for o, i := range c.found {
				l.FoundAt(uint64(o), body(ids[i]))
			}
			if got := l.Totals(); got.Moved != c.moved {
				t.Fatalf("%d moved, want %d", got.Moved, c.moved)
			}
		})
	}
}

// A reader that is given an offset again, or none of some, or another record at one, is noticed.
func TestReaderUnderWay(t *testing.T) {
	l, ids := book(Confirmed, Confirmed, Confirmed, Confirmed)
	l.Saw(10, body(ids[0]))
	l.Saw(11, body(ids[1]))
	l.Saw(11, body(ids[1])) // again
	l.Saw(11, body(ids[2])) // again, and another
	l.Saw(13, body(ids[3])) // one left out
	l.FoundAt(10, body(ids[0]))
	l.FoundAt(11, body(ids[2]))
	l.FoundAt(13, body(ids[3]))
	if got := l.Totals(); got.Duplicate != 2 || got.Moved != 1 || got.Reordered != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestPauses(t *testing.T) {
	l := New(0)
	for i, at := range []time.Duration{10, 20, 50, 55, 200, 210} {
		id := l.Publish(uint32(1+i/4), (at-8)*ms)
		l.Resolve(id.Number, Confirmed, at*ms)
	}
	for _, c := range []struct{ from, to, want, began time.Duration }{
		{10, 55, 30, 20}, {0, 55, 30, 20}, {55, 210, 145, 55}, {60, 210, 140, 60}, {200, 300, 90, 210}, {300, 400, 100, 300},
	} {
		if got, began := l.Pause(c.from*ms, c.to*ms); got != c.want*ms || began != c.began*ms {
			t.Errorf("from %d to %d: %v at %v, want %v at %v", c.from, c.to, got, began, c.want*ms, c.began*ms)
		}
	}
	if at, ok := l.LastConfirm(54 * ms); !ok || at != 50*ms {
		t.Errorf("last confirm by 54: %v %v", at, ok)
	}
	if _, ok := l.LastConfirm(9 * ms); ok {
		t.Error("a confirm before the first")
	}
	// The message confirmed at 55 was sent at 47: a kill at 48 makes its confirm say nothing.
	if at, ok := l.Served(48 * ms); !ok || at != 200*ms {
		t.Errorf("served at %v %v", at, ok)
	}
	if _, ok := l.Served(time.Second); ok {
		t.Error("served without a message")
	}
	if at, ok := l.ServedIn(2); !ok || at != 200*ms {
		t.Errorf("session 2 served at %v %v", at, ok)
	}
}

func TestReadRefusesOtherBytes(t *testing.T) {
	id := ID{3, 4, 5}
	b := body(id)
	if got, ok := Read(b); !ok || got != id {
		t.Fatalf("%+v %v", got, ok)
	}
	if _, ok := Read(b[:LeastBody-1]); ok {
		t.Error("a body without its header")
	}
	b[20] ^= 1
	if _, ok := Read(b); ok {
		t.Error("a flipped bit")
	}
}
