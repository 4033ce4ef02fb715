package clock

import (
	"sync"
	"testing"
	"time"
)

func TestPulse(t *testing.T) {
	const ms = time.Millisecond
	var p Pulse
	if n := p.Halts(time.Hour); n != 0 {
		t.Fatalf("%d halts before the first beat", n)
	}
	for _, x := range []struct {
		now, since time.Duration
		halts      uint16
	}{
		{1000, 0, 0}, {1100, 0, 0}, {1499, 0, 0}, {1899, 1499, 1}, {1900, 1499, 1}, {2290, 1499, 1}, {60_000, 2290, 2}, {59_000, 2290, 2}, {60_100, 2290, 2},
	} {
		p.Beat(x.now * ms)
		if n, s := p.Halts(x.now*ms), p.Since(); n != x.halts || s != x.since*ms {
			t.Errorf("at %d ms: %d halts, the last since %v; want %d, %d ms", x.now, n, s, x.halts, x.since)
		}
	}
}

// One halt that many notice at once is one.
func TestPulseOfManyAtOnce(t *testing.T) {
	var p Pulse
	p.Beat(time.Second)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { p.Halts(time.Minute) })
	}
	wg.Wait()
	if n := p.Halts(time.Minute); n != 1 {
		t.Errorf("%d halts", n)
	}
}
