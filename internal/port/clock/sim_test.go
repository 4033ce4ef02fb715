package clock

import (
	"testing"
	"time"
)

func TestSimFollowsVirtualTimeWithSkew(t *testing.T) {
	var now time.Duration
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewSim(func() time.Duration { return now }, start)
	now = time.Second
	if c.Mono() != time.Second || !c.Wall().Equal(start.Add(time.Second)) {
		t.Fatalf("mono %v, wall %v", c.Mono(), c.Wall())
	}
	c.Skew(-time.Hour, 1000) // an hour back, 0.1 % fast
	if c.Mono() != time.Second || !c.Wall().Equal(start.Add(time.Second-time.Hour)) {
		t.Fatalf("after the jump: mono %v, wall %v", c.Mono(), c.Wall())
	}
	now += 1000 * time.Second
	if want := 1001*time.Second + time.Second; c.Mono() != want {
		t.Fatalf("after the drift: mono %v, want %v", c.Mono(), want)
	}
	c.Skew(0, -999_999)
	before := c.Mono()
	now += time.Second
	if c.Mono() < before {
		t.Fatal("the monotonic clock went back")
	}
}
