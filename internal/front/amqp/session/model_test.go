package session

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// TestUnsettledAgainstModel checks the deliveries that a channel holds against a plain list.
func TestUnsettledAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u unsettled
		var model []uint64 // tags; a delivery's offset is 1000 more
		last := uint64(0)
		check := func(ref broker.Ref, tag uint64) {
			if ref.Offset != tag+1000 {
				t.Fatalf("tag %d gave the delivery of %d", tag, ref.Offset-1000)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					last += uint64(rapid.IntRange(1, 2).Draw(t, "gap"))
					u.add(last, broker.Ref{Offset: last + 1000}, 0)
					model = append(model, last)
				}
			},
			"settle in order": func(t *rapid.T) {
				for n := rapid.IntRange(1, 100).Draw(t, "n"); n > 0 && len(model) > 0; n-- {
					ref, ok := u.one(model[0])
					if !ok {
						t.Fatalf("tag %d is not there", model[0])
					}
					check(ref, model[0])
					model = model[1:]
				}
			},
			"settle one": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, last+1).Draw(t, "tag")
				i := slices.Index(model, tag)
				ref, ok := u.one(tag)
				if ok != (i >= 0) {
					t.Fatalf("tag %d: %v, want %v", tag, ok, i >= 0)
				}
				if ok {
					check(ref, tag)
					model = slices.Delete(model, i, i+1)
				}
			},
			"settle up to": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, last+1).Draw(t, "tag")
				u.upTo(tag, func(ref broker.Ref) {
					check(ref, model[0])
					model = model[1:]
				})
				if len(model) > 0 && model[0] <= tag {
					t.Fatalf("tag %d is left", model[0])
				}
			},
			"": func(t *rapid.T) {
				if u.len() != len(model) {
					t.Fatalf("%d are held, want %d", u.len(), len(model))
				}
				i := 0
				u.each(func(ref broker.Ref) {
					check(ref, model[i])
					i++
				})
			},
		})
	})
}

// TestConfirmsAgainstModel checks what a client is told against a plain map: each tag once, its own outcome, and no ack with multiple
// over a tag that was nacked or that has no outcome yet.
func TestConfirmsAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x confirms
		fates := map[uint64]fate{}
		told := map[uint64]fate{}
		expecting := uint64(1) // as clients have it that put confirms in order
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					fates[x.take()] = waiting
				}
			},
			"resolve": func(t *rapid.T) {
				from := rapid.Uint64Range(1, x.next+1).Draw(t, "from")
				f := rapid.SampledFrom([]fate{good, good, good, bad}).Draw(t, "fate")
				for tag := from; tag <= x.next && tag < from+rapid.Uint64Range(1, 50).Draw(t, "n"); tag++ {
					if x.resolve(tag, f) != (fates[tag] == waiting) {
						t.Fatalf("tag %d had %d", tag, fates[tag])
					}
					if fates[tag] == waiting {
						fates[tag] = f
					}
				}
			},
			"flush": func(t *rapid.T) {
				for out := x.flush(nil, 1); len(out) > 0; {
					f, n, err := wire.ParseFrame(out, 4096)
					if err != nil {
						t.Fatal(err)
					}
					out = out[n:]
					m, err := wire.DecodeMethod(f.Payload)
					if err != nil {
						t.Fatal(err)
					}
					from, to, as := uint64(0), uint64(0), good
					switch m := m.(type) {
					case *wire.BasicAck:
						from, to = m.DeliveryTag, m.DeliveryTag
						if m.Multiple {
							from = expecting
						}
					case *wire.BasicNack:
						from, to, as = m.DeliveryTag, m.DeliveryTag, bad
					}
					for tag := from; tag <= to; tag++ {
						if fates[tag] != as {
							t.Fatalf("tag %d is told %d and is %d", tag, as, fates[tag])
						}
						told[tag] = as
					}
					for told[expecting] != waiting {
						expecting++
					}
				}
				for tag, f := range fates {
					if told[tag] != f {
						t.Fatalf("tag %d: told %d, is %d", tag, told[tag], f)
					}
				}
			},
		})
	})
}

// TestTimesBeginWithTheStamp checks that only what has been stamped can be overdue.
func TestTimesBeginWithTheStamp(t *testing.T) {
	var u unsettled
	u.add(1, broker.Ref{}, time.Second)
	u.add(2, broker.Ref{}, 0)
	if u.overdue(time.Hour) {
		t.Error("overdue before its time began")
	}
	u.stamp(time.Minute)
	u.add(3, broker.Ref{}, time.Second)
	u.stamp(2 * time.Minute)
	if u.overdue(time.Minute) || !u.overdue(time.Minute+time.Second) {
		t.Error("the first is not due a second after its stamp")
	}
	u.one(1)
	if u.overdue(2*time.Minute) || !u.overdue(2*time.Minute+time.Second) {
		t.Error("the third is not due a second after its stamp")
	}
}
