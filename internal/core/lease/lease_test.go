package lease

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

var (
	n1 = ident.Instance{Node: "n1", Store: ident.StoreID{1}, Boot: 1}
	n2 = ident.Instance{Node: "n2", Store: ident.StoreID{2}, Boot: 1}
)

// one is a catalog of one queue with two partitions, the second of which n1 owns at epoch 4 with a follower on n2.
type one struct{ r *catalog.Resource }

func (o one) Incarnation(id uint64) *catalog.Resource {
	if o.r != nil && o.r.Incarnation == id {
		return o.r
	}
	return nil
}

func queue(policy string, copies ...ident.Instance) one {
	a := &catalog.Assignment{Epoch: 4, Version: 9, Owner: copies[0], Policy: policy}
	for _, c := range copies[1:] {
		a.Followers = append(a.Followers, catalog.Member{Node: c.Node, Store: c.Store})
	}
	return one{&catalog.Resource{Incarnation: 7, Kind: catalog.Queue, Durable: true, Partitions: []*catalog.Assignment{{}, a}}}
}

func TestAdmitInOrder(t *testing.T) {
	local := queue("local_durable", n1, n2)
	good := Lease{Term: 3, Expires: 100}
	holds := func(change func(*Holding)) Holding {
		h := Holding{Node: n1, Epoch: 4, Lease: good, Term: 3, Now: 99}
		if change != nil {
			change(&h)
		}
		return h
	}
	const slot = 16383 // of the second partition
	for _, c := range []struct {
		name string
		of   one
		slot uint32
		h    Holding
		want error
	}{
		{"no resource", one{}, slot, holds(nil), &NoRange{7, slot}},
		{"no such slot", local, 16384, holds(nil), &NoRange{7, 16384}},
		{"a partition that never had an owner", local, 0, holds(nil), &NoRange{7, 0}},
		{
			"an old epoch here, another owner", queue("local_durable", n2, n1), slot, holds(func(h *Holding) { h.Epoch = 3 }),
			&StaleOwnership{Attempted: n1, Current: n2, AttemptedEpoch: 3, CurrentEpoch: 4},
		},
		{"never the owner", queue("local_durable", n2, n1), slot, holds(func(h *Holding) { h.Epoch = 0 }), &NotOwner{n2, 4, 9}},
		{
			"an earlier run of the owner", local, slot,
			holds(func(h *Holding) { h.Node.Boot, h.Epoch = 2, 0 }), &NotOwner{n1, 4, 9},
		},
		{
			"revoked goes first", local, slot,
			holds(func(h *Holding) { h.Lease, h.Term, h.Epoch, h.Now = Lease{Term: 2, Revoked: true}, 3, 3, 200 }), &Fenced{Revoked},
		},
		{"never granted", local, slot, holds(func(h *Holding) { h.Lease, h.Epoch = Lease{}, 3 }), &Fenced{Unleased}},
		{"of an earlier controller", local, slot, holds(func(h *Holding) { h.Term, h.Epoch, h.Now = 4, 3, 200 }), &Fenced{TermSuperseded}},
		{"the epoch is not taken up", local, slot, holds(func(h *Holding) { h.Epoch, h.Now = 3, 200 }), &Fenced{EpochSuperseded}},
		{"expired at its end", local, slot, holds(func(h *Holding) { h.Now = 100 }), &Fenced{Expired}},
		{"a moment before", local, slot, holds(nil), nil},
		{"of a later controller than was heard of", local, slot, holds(func(h *Holding) { h.Term = 2 }), nil},
		{"epochs fence a majority", queue("majority_durable", n1, n2), slot, holds(func(h *Holding) { h.Lease = Lease{} }), nil},
		{
			"unless always is set", queue("majority_durable", n1, n2), slot,
			holds(func(h *Holding) { h.Lease, h.Always = Lease{}, true }), &Fenced{Unleased},
		},
		{"a majority of one is one copy", queue("majority_durable", n1), slot, holds(func(h *Holding) { h.Now = 100 }), &Fenced{Expired}},
	} {
		got := Admit(c.of, 7, c.slot, c.h)
		if (got == nil) != (c.want == nil) || got != nil && got.Error() != c.want.Error() {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		var f, g *Fenced
		if errors.As(c.want, &f) && (!errors.As(got, &g) || *f != *g) {
			t.Errorf("%s: got %#v", c.name, got)
		}
	}
}

func TestMemoryIsNotFenced(t *testing.T) {
	q := queue("", n1)
	q.r.Home = &catalog.Home{Node: "n1", Boot: 1}
	if err := Admit(q, 7, 16383, Holding{Node: n1, Epoch: 4, Always: true}); err != nil {
		t.Error(err)
	}
}

func TestTakeKeepsTheLaterGrant(t *testing.T) {
	l, changed := Lease{}.Take(Grant{Term: 2, Holder: n1, TTL: 10 * time.Second, Sent: 5 * time.Second}, n1)
	if want := (Lease{Term: 2, Sent: 5 * time.Second, Expires: 15*time.Second - Margin}); l != want || !changed {
		t.Fatalf("got %+v, want %+v", l, want)
	}
	for _, g := range []Grant{
		{Term: 1, Holder: n1, TTL: time.Minute, Sent: 6 * time.Second},
		{Term: 2, Holder: n1, TTL: time.Minute, Sent: 4 * time.Second},
		{Term: 3, Holder: n2, TTL: time.Minute, Sent: 6 * time.Second},
		{Term: 3, Holder: ident.Instance{Node: "n1", Store: n1.Store, Boot: 2}, TTL: time.Minute, Sent: 6 * time.Second},
	} {
		if after, changed := l.Take(g, n1); changed || after != l {
			t.Errorf("%+v: got %+v", g, after)
		}
	}
	if l, _ = l.Take(Grant{Term: 2, Holder: n1, Sent: 5 * time.Second}, n1); !l.Revoked {
		t.Error("a revocation was not taken")
	}
	if l, _ = l.Take(Grant{Term: 2, Holder: n1, TTL: time.Second, Sent: 6 * time.Second}, n1); l.Revoked {
		t.Error("a grant after a revocation was not taken")
	}
}

func TestGrantsAreFew(t *testing.T) {
	var b Book
	b.Set(9*time.Second, 0)
	if b.Due(n1, 0) {
		t.Error("due before a term")
	}
	b.Begin(1, 0)
	if _, ok := b.Grant(n1, 0, 0); ok || !b.Due(n1, 0) {
		t.Error("granted without a proof")
	}
	granted := 0
	for now := time.Duration(0); now < 90*time.Second; now += 100 * time.Millisecond {
		if !b.Due(n1, now) {
			continue
		}
		b.Prove(now)
		if _, ok := b.Grant(n1, now, now); !ok {
			t.Fatal("not granted")
		}
		granted++
	}
	if granted != 30 {
		t.Errorf("%d grants in 90 s of a lease of 9 s, want one when a third of it is over", granted)
	}
	b.Again(n1, 90*time.Second)
	if !b.Due(n1, 90*time.Second) {
		t.Error("not due after a session that began")
	}
	g, ok := b.Withhold(n1, 1, 90*time.Second)
	if !ok || g.TTL != 0 {
		t.Errorf("a revocation: %+v, %v", g, ok)
	}
	if _, ok := b.Withhold(n1, 1, 90*time.Second); ok {
		t.Error("revoked twice")
	}
	if !b.Due(n1, 90*time.Second) {
		t.Error("not due once it is withheld no more")
	}
}

func TestOldProofGrantsLess(t *testing.T) {
	var b Book
	b.Set(10*time.Second, 0)
	b.Begin(1, 0)
	b.Prove(time.Second)
	if b.Stale(2*time.Second) || !b.Stale(2*time.Second+1) {
		t.Error("a proof is for a tenth of a lease")
	}
	if g, ok := b.Grant(n1, 0, 5*time.Second); !ok || g.TTL != 6*time.Second {
		t.Errorf("got %+v, %v", g, ok)
	}
	if g, ok := b.Grant(n1, 0, 11*time.Second); ok {
		t.Errorf("granted on a proof of a lease before: %+v", g)
	}
}

func TestShorterLeasesWaitForLongerOnes(t *testing.T) {
	var b Book
	b.Set(time.Minute, 0)
	b.Set(3*time.Second, time.Second)
	b.Begin(1, 2*time.Second)
	if want := time.Second + whole(time.Minute); b.Over(n1) != want {
		t.Errorf("got %v, want %v", b.Over(n1), want)
	}
	b.Doubt(2 * time.Second)
	if want := 2*time.Second + whole(Longest); b.Over(n1) != want {
		t.Errorf("got %v, want %v", b.Over(n1), want)
	}
}

// clock is a node's monotonic clock: it starts anywhere, and runs a little fast or slow.
type clock struct {
	start time.Duration
	rate  float64
}

func (c clock) at(real time.Duration) time.Duration {
	return c.start + time.Duration(float64(real)*c.rate)
}

// TestNothingIsInForceWhenItIsOver lets controllers succeed each other, be stopped for long and go on, hear and be heard late, on clocks that
// drift, and checks at every step that no holder would admit anything once the present controller takes its lease to be over.
func TestNothingIsInForceWhenItIsOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drift := rapid.Float64Range(0.996, 1.004)
		start := rapid.Int64Range(0, 1e12)
		draw := func(name string) clock { return clock{time.Duration(start.Draw(t, name)), drift.Draw(t, name)} }
		holder := draw("holder")
		var held Lease
		ttl := time.Duration(rapid.Int64Range(3, 8).Draw(t, "lease")) * time.Second
		type controller struct {
			book  Book
			clock clock
			term  uint64
		}
		cs := []*controller{{clock: draw("c0")}, {clock: draw("c1")}, {clock: draw("c2")}}
		for _, c := range cs {
			c.book.Set(ttl, c.clock.at(0))
		}
		leads, term := cs[0], uint64(1)
		leads.term = term
		leads.book.Begin(1, leads.clock.at(0))
		type beat struct{ sent time.Duration }
		var beats []beat
		var grants []Grant
		withheld := false // from the last controller on
		now := time.Duration(0)
		for range rapid.IntRange(20, 120).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, 4000).Draw(t, "ms")) * time.Millisecond
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				beats = append(beats, beat{holder.at(now)})
			case 1: // the leader is replaced, and may not know it
				if next := cs[rapid.IntRange(0, 2).Draw(t, "next")]; next != leads {
					term++
					next.term = term
					next.book.Begin(term, next.clock.at(now))
					leads = next
				}
			case 2: // only of the last controller's term is there a proof
				leads.book.Prove(leads.clock.at(now))
			case 3, 4: // anyone that believes to lead may answer a beat, however old
				c := cs[rapid.IntRange(0, 2).Draw(t, "who")]
				if len(beats) == 0 || c.term == 0 || withheld && c == leads {
					continue
				}
				b := beats[rapid.IntRange(max(0, len(beats)-2), len(beats)-1).Draw(t, "beat")]
				if g, ok := c.book.Grant(n1, b.sent, c.clock.at(now)); ok {
					grants = append(grants, g)
				}
			case 5:
				if len(grants) > 0 {
					held, _ = held.Take(grants[rapid.IntRange(max(0, len(grants)-2), len(grants)-1).Draw(t, "grant")], n1)
				}
			case 6:
				withheld = rapid.Bool().Draw(t, "withheld")
			}
			over := leads.clock.at(now) >= leads.book.Over(n1)
			h := Holding{Node: n1, Epoch: 4, Lease: held, Now: holder.at(now)}
			if err := Admit(queue("local_durable", n1, n2), 7, 16383, h); over && err == nil {
				t.Fatalf("at %v %+v is in force, and the controller of term %d takes it to be over since %v", now, held, term,
					leads.clock.at(now)-leads.book.Over(n1))
			}
		}
	})
}
