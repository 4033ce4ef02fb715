package partition

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However pieces are asked for, no more goes in any stretch of time than the rate allows, but for the last piece; and a pace that is kept busy
// sends at the rate.
func TestAPaceKeepsItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rate, piece = 1 << 20, 1 << 16
		type sent struct {
			at    time.Duration
			bytes int64
		}
		var p Pace
		var all []sent
		now := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "pieces") {
			now += time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond
			bytes := int64(rapid.IntRange(1, piece).Draw(t, "bytes"))
			wait := p.Turn(now, bytes, rate)
			all = append(all, sent{now + wait, bytes})
		}
		for i := range all {
			var sum int64
			for j := i; j < len(all); j++ {
				sum += all[j].bytes
				span := all[j].at - all[i].at
				if most := int64(span.Seconds()*rate) + piece + 1; sum > most {
					t.Fatalf("%d bytes within %v, want at most %d", sum, span, most)
				}
			}
		}
	})
	var p Pace
	now := time.Duration(0)
	for range 100 {
		now += p.Turn(now, 1<<16, 1<<20)
	}
	if want := 99 * time.Second / 16; now < want-time.Millisecond || now > want+time.Millisecond {
		t.Errorf("100 pieces took %v, want %v", now, want)
	}
	if p.Turn(now, 1<<20, 0) != 0 {
		t.Error("a rate of 0 bounds nothing")
	}
}
