package queue_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
	. "github.com/tanist/tanist/internal/core/queue"
)

// TestQueueAcrossPages is TestQueueAgainstModel for queues whose messages lie in several pages, whole pages gone between them.
func TestQueueAcrossPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSettings(t)
		s.MaxLength, s.MaxBytes, s.SingleActive = nil, nil, false
		r := newRig(s)
		fill := rapid.IntRange(2*PageSize-20, 2*PageSize+5).Draw(t, "fill")
		size := rapid.SampledFrom([]uint32{10, 40, 70_000}).Draw(t, "odd size")
		for i := range fill {
			h := batch.RecordHeader{Size: 10}
			if i%1000 == 999 {
				h.Size = size
			}
			r.m.Admit(h)
			r.q.admit(h)
			r.open = append(r.open, batch.RecordHeader{Size: h.Size})
			if i%PageSize == PageSize/2 {
				r.confirmAll(t)
				r.now++
			}
		}
		r.confirmAll(t)
		r.save()
		h := Holder{9, 9}
		o := Options{Credit: 1 << 40}
		if err := r.m.Subscribe(h, o); err != nil || !r.q.subscribe(h, o) {
			t.Fatal(err)
		}
		// The dumb model would need minutes to hand all of them out by its own rules.
		for i, a := range r.m.Assign(1<<20, nil) {
			if a.Offset != uint64(i) || a.Holder != h {
				t.Fatalf("delivery %d is %+v", i, a)
			}
			r.q.give(a.Offset, h, false)
		}
		r.q.find(h).credit = 1 << 20
		r.q.offered = uint64(len(r.q.msgs))
		r.m.Unsubscribe(h, r.now)
		r.q.unsubscribe(h, r.now)
		from := uint64(0)
		for _, stays := range rapid.SliceOfN(rapid.IntRange(0, fill-1), 0, 6).Draw(t, "stays") {
			if to := uint64(stays); to > from {
				r.both(t, h, from, to-1, Accept)
				from = to + 1
			}
		}
		r.both(t, h, from, uint64(fill-10), Accept)
		r.confirmAll(t)
		r.m.ReleaseGateway(9, r.now)
		r.q.release(9, r.now)
		r.confirmAll(t)
		actions := r.actions()
		delete(actions, "dead") // its checks compare everything with everything
		t.Repeat(actions)
	})
}

func (r *rig) both(t *rapid.T, h Holder, first, last uint64, o Outcome) {
	if got, want := r.m.Settle(h, first, last, o), r.q.settle(h, first, last, o); got != want {
		t.Fatalf("settle: machine %d, model %d", got, want)
	}
}

func (r *rig) confirmAll(t *rapid.T) {
	r.flush(t)
	for len(r.pending) > 0 {
		r.confirm(t)
	}
}
