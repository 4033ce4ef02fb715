package queue_test

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
	. "github.com/tanist/tanist/internal/core/queue"
)

// TestQueueAgainstModel lives through random lives of a queue and compares every answer with the model's, and the state of every
// copy with every other's.
func TestQueueAgainstModel(t *testing.T) {
	for range 15 { // lives that go anywhere are rarer than rapid's usual hundred
		rapid.Check(t, func(t *rapid.T) {
			r := newRig(genSettings(t))
			t.Repeat(r.actions())
		})
	}
}

func (r *rig) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"publish": func(t *rapid.T) {
			for range rapid.IntRange(1, 8).Draw(t, "n") {
				r.publish(t, genHeader(t))
			}
		},
		"flush":  r.flush,
		"cycle":  r.cycle,
		"cycle2": r.cycle,
		"consumers": func(t *rapid.T) {
			o := Options{Prefetch: rapid.Uint32Range(0, 5).Draw(t, "prefetch"), Credit: 1_000_000}
			for _, h := range holders[:3] {
				if err, ok := r.m.Subscribe(h, o), r.q.subscribe(h, o); (err == nil) != ok {
					t.Fatalf("subscribe: machine %v, model %v", err, ok)
				}
			}
		},
		"confirm": func(t *rapid.T) { r.flush(t); r.confirm(t) },
		"wait":    func(t *rapid.T) { r.now += rapid.Int64Range(1, 100).Draw(t, "ms") },
		"tick":    func(t *rapid.T) { r.m.Tick(r.now); r.q.tick(r.now) },
		"assign":  func(t *rapid.T) { r.assign(t, rapid.IntRange(1, 10).Draw(t, "max")) },
		"settle":  r.settle,
		"work": func(t *rapid.T) {
			r.settle(t)
			r.assign(t, 100)
		},
		"subscribe": func(t *rapid.T) {
			h := genHolder(t)
			o := Options{
				NoAck: rapid.IntRange(0, 3).Draw(t, "noack") == 0, Exclusive: rapid.IntRange(0, 9).Draw(t, "exclusive") == 0,
				Priority: rapid.Int32Range(-1, 1).Draw(t, "priority"), Prefetch: rapid.Uint32Range(0, 4).Draw(t, "prefetch"),
				Credit: rapid.Int64Range(0, 100_000).Draw(t, "credit"),
			}
			if err, ok := r.m.Subscribe(h, o), r.q.subscribe(h, o); (err == nil) != ok {
				t.Fatalf("subscribe: machine %v, model %v", err, ok)
			}
		},
		"unsubscribe": func(t *rapid.T) {
			h := genHolder(t)
			r.m.Unsubscribe(h, r.now)
			r.q.unsubscribe(h, r.now)
		},
		"credit":  r.credit,
		"get":     r.get,
		"purge":   r.purge,
		"attach":  r.attach,
		"release": r.release,
		"dead":    r.dead,
		"save":    func(*rapid.T) { r.save() },
		"crash":   r.crash,
		"idle":    r.idle,
		"":        r.check,
	}
}

func (r *rig) assign(t *rapid.T, limit int) {
	got, want := r.m.Assign(limit, nil), r.q.assign(limit)
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		t.Fatalf("assign:\n machine %+v\n model   %+v", got, want)
	}
}

// cycle takes messages all the way to consumers.
func (r *rig) cycle(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "n") {
		r.publish(t, genHeader(t))
	}
	r.confirmAll(t)
	r.m.Tick(r.now)
	r.q.tick(r.now)
	r.assign(t, 100)
}

func (r *rig) settle(t *rapid.T) {
	h := genHolder(t)
	if rapid.IntRange(0, 4).Draw(t, "got") == 0 {
		h.Consumer = 0
	}
	first, last := r.offset(t, "first"), r.offset(t, "last")
	if rapid.Bool().Draw(t, "all") { // of somebody who holds something
		first, last = 0, 1<<63
		for _, m := range r.q.msgs {
			if m.holder != nil {
				h = *m.holder
			}
		}
	}
	o := rapid.SampledFrom([]Outcome{Accept, Accept, Reject, Requeue, Release}).Draw(t, "outcome")
	if got, want := r.m.Settle(h, first, last, o), r.q.settle(h, first, last, o); got != want {
		t.Fatalf("settle: machine %d, model %d", got, want)
	}
	if n := r.m.Settle(h, first, last, Reject); n != 0 {
		t.Fatalf("settled %d again", n)
	}
}

func (r *rig) credit(t *rapid.T) {
	h, n := genHolder(t), rapid.Int64Range(1, 100_000).Draw(t, "bytes")
	r.m.Credit(h, n)
	if c := r.q.find(h); c != nil {
		c.credit += n
		r.q.line()
	}
}

func (r *rig) get(t *rapid.T) {
	gateway, noAck := genHolder(t).Gateway, rapid.Bool().Draw(t, "noack")
	a, left, ok := r.m.Get(gateway, noAck, r.now)
	wa, wleft, wok := r.q.get(gateway, noAck, r.now)
	if a != wa || left != wleft || ok != wok {
		t.Fatalf("get: machine %+v %d %v, model %+v %d %v", a, left, ok, wa, wleft, wok)
	}
}

func (r *rig) purge(t *rapid.T) {
	if got, want := r.m.Purge(), r.q.purge(); got != want {
		t.Fatalf("purge: machine %d, model %d", got, want)
	}
}

// attach begins a new stream of a gateway that claims some of what it holds, and some that it does not.
func (r *rig) attach(t *rapid.T) {
	gateway := genHolder(t).Gateway
	var claims []Claim
	for off, m := range r.q.msgs {
		if m.holder != nil && m.holder.Gateway == gateway && rapid.Bool().Draw(t, "claim") {
			claims = append(claims, Claim{Consumer: m.holder.Consumer, Offset: uint64(off)})
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "more") {
		claims = append(claims, Claim{Consumer: rapid.Uint64Range(0, 2).Draw(t, "consumer"), Offset: r.offset(t, "offset")})
	}
	slices.Reverse(claims)
	r.m.Attach(gateway, LastStream{Epoch: 0}, claims, nil, r.now)
	r.q.attach(gateway, claims, r.now)
}

func (r *rig) release(t *rapid.T) {
	gateway := genHolder(t).Gateway
	r.m.ReleaseGateway(gateway, r.now)
	r.q.release(gateway, r.now)
}

// dead asks for dead letters and answers some of those under way.
func (r *rig) dead(t *rapid.T) {
	before := len(r.under)
	r.under = r.m.NextDead(r.now, r.under)
	for i, d := range r.under {
		m := r.q.msgs[d.Offset]
		if !m.dead || !m.live || m.number != d.Number || m.reason != d.Reason || m.count != d.Count || m.header.Size != d.Size {
			t.Fatalf("dead letter %+v: model has %+v", d, m)
		}
		for k, e := range r.under[:i] {
			if e.Lane == d.Lane || k >= before && e.Number >= d.Number {
				t.Fatalf("%+v and %+v under way together", e, d)
			}
		}
		for _, m := range r.q.msgs {
			if m.live && m.dead && m.staged == nothing && m.number < d.Number && m.number%DeadLanes == d.Number%DeadLanes {
				t.Fatalf("%+v before number %d", d, m.number)
			}
		}
	}
	if len(r.under) == 0 {
		return
	}
	at := rapid.IntRange(0, len(r.under)-1).Draw(t, "which")
	d := r.under[at]
	r.under = slices.Delete(r.under, at, at+1)
	if rapid.Bool().Draw(t, "settled") {
		r.m.DeadSettled(d.Number)
		r.q.decide(d.Offset, goes, Lettered, 0)
		return
	}
	r.m.DeadKept(d.Number, "full", r.now)
	if n, since, why := r.m.Stuck(); n == 0 || since > r.now || why != "full" {
		t.Fatalf("stuck: %d since %d: %s", n, since, why)
	}
	if again := r.m.NextDead(r.now+999, nil); slices.ContainsFunc(again, func(a DeadLetter) bool { return a.Number == d.Number }) {
		t.Fatalf("asked again at once: %+v", d)
	} else {
		r.under = append(r.under, again...)
	}
}

// idle lets everything come to rest: then nothing wakes the queue before the model says so.
func (r *rig) idle(t *rapid.T) {
	for range 3 {
		r.m.Tick(r.now)
		r.q.tick(r.now)
		r.assign(t, 1<<20)
		r.flush(t)
		for len(r.pending) > 0 {
			r.confirm(t)
		}
	}
	r.m.Tick(r.now)
	r.q.tick(r.now)
	r.m.Trim()
	r.under = r.m.NextDead(r.now, r.under)
	if w := r.m.NextWake(); w != 0 && w <= r.now {
		t.Fatalf("at rest, and to be woken at %d: it is %d, model %d", w, r.now, r.q.wake())
	}
}

func (r *rig) check(t *rapid.T) {
	c := r.m.Counts()
	var bytes int64
	var unsettled uint64
	for _, m := range r.q.msgs {
		if m.live {
			bytes += int64(m.header.Size)
		}
		if m.holder != nil {
			unsettled++
		}
	}
	want := Counts{
		Ready: r.q.count((*message).ready), Unsettled: unsettled, Bytes: bytes, Consumers: uint64(len(r.q.consumer)),
		Delayed:  r.q.count(func(m *message) bool { return m.live && m.delayed }),
		Dead:     r.q.count(func(m *message) bool { return m.live && m.dead }),
		Messages: r.q.count(func(m *message) bool { return m.live }),
	}
	if c != want {
		t.Fatalf("counts:\n machine %+v\n model   %+v", c, want)
	}
	if n, b := r.m.StagedLength(); r.q.limited() {
		if wn, wb := r.q.length(); n != wn || b != wb {
			t.Fatalf("staged length: machine %d %d, model %d %d", n, b, wn, wb)
		}
	}
	if r.m.Quiet() {
		got, dead := r.m.Assign(10, nil), r.m.NextDead(1<<40, nil)
		r.q.offered = uint64(len(r.q.msgs)) // that was a chance to be delivered: what expires may go from now on
		if w := r.m.NextWake(); w != 0 || len(got) > 0 || len(dead) > 0 || r.m.Unused(1<<62) || r.m.Abandoned() || r.m.Tick(1<<40) > 0 {
			t.Fatalf("quiet, and yet: wake %d, assigned %v, dead letters %v", w, got, dead)
		}
	}
	if w, want := r.m.NextWake(), r.q.wake(); want != 0 && (w == 0 || w > want) {
		t.Fatalf("next wake: machine %d, model %d", w, want)
	}
	if r.m.Abandoned() != r.q.left {
		t.Fatalf("abandoned: machine %v", r.m.Abandoned())
	}
	unused := r.s.Expires > 0 && len(r.q.consumer) == 0 && r.q.unused+r.s.Expires <= r.now
	if r.m.Unused(r.now) != unused {
		t.Fatalf("unused: machine %v", r.m.Unused(r.now))
	}
	r.checkCopies(t)
}

// checkCopies compares the owner's replicated state with the follower's, with that of its own pages, and with the model's.
func (r *rig) checkCopies(t *rapid.T) {
	pages, _ := r.follower.Snapshot(true)
	back := New(r.s)
	if err := back.Restore(pages); err != nil {
		t.Fatal(err)
	}
	again, gone := back.Snapshot(true)
	if !reflect.DeepEqual(pages, again) || len(gone) > 0 {
		t.Fatalf("a restored machine differs:\n %v\n %v", pages, again)
	}
	if len(r.disk) > 0 {
		saved := r.restored(t)
		for _, l := range r.confirmed[r.diskAt:] {
			if err := saved.ApplyBatch(l.b); err != nil {
				t.Fatal(err)
			}
		}
		if got, _ := saved.Snapshot(true); !reflect.DeepEqual(pages, got) {
			t.Fatalf("snapshot and what follows it differ from the log:\n %v\n %v", pages, got)
		}
	}
	var spans []batch.Span
	for off, m := range r.q.msgs {
		if n := len(spans); m.live && n > 0 && spans[n-1].To == uint64(off) {
			spans[n-1].To++
		} else if m.live {
			spans = append(spans, batch.Span{From: uint64(off), To: uint64(off) + 1})
		}
	}
	if got := back.Live(0, nil); !slices.Equal(got, spans) {
		t.Fatalf("live: machine %v, model %v", got, spans)
	}
	for _, h := range []*Machine{r.m, back} {
		if h.Next() != uint64(len(r.q.msgs)) {
			t.Fatalf("next: %d, model %d", h.Next(), len(r.q.msgs))
		}
	}
}
