package exec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// simRecorder keeps what it receives, and how much each flush gathered.
type simRecorder struct {
	got     []any
	flushes []int
	since   int
	on      func(any)
}

func (r *simRecorder) Receive(m any) {
	r.got = append(r.got, m)
	r.since++
	if r.on != nil {
		r.on(m)
	}
}

func (r *simRecorder) Flush() {
	r.flushes = append(r.flushes, r.since)
	r.since = 0
}

func never() bool { return false }

func TestSimKeepsTheOrderOfOneMailbox(t *testing.T) {
	for seed := range uint64(50) {
		s := NewSim(seed)
		n := s.Node("a", 2)
		a, b := &simRecorder{}, &simRecorder{}
		boxA, boxB := n.Loop(0).Spawn("a", a), n.Loop(1).Spawn("b", b)
		a.on = func(m any) { boxB.Post(m) }
		for i := range 100 {
			boxA.Post(i)
		}
		if !s.Settle(10_000) {
			t.Fatal("not settled")
		}
		for i := range 100 {
			if a.got[i] != i || b.got[i] != i {
				t.Fatalf("seed %d: message %d: a %v, b %v", seed, i, a.got[i], b.got[i])
			}
		}
		sum := 0
		for _, f := range a.flushes {
			if f == 0 {
				t.Fatalf("seed %d: a flush of nothing", seed)
			}
			sum += f
		}
		if sum != 100 {
			t.Fatalf("seed %d: flushes cover %d of 100 messages", seed, sum)
		}
	}
}

// TestSimVariesWhatIsNotPromised shows that two mailboxes of one loop, and the size of a round, come out differently by seed.
func TestSimVariesWhatIsNotPromised(t *testing.T) {
	orders, rounds := map[string]bool{}, map[int]bool{}
	for seed := range uint64(50) {
		s := NewSim(seed)
		l := s.Node("a", 1).Loop(0)
		var order []any
		note := func(m any) { order = append(order, m) }
		a, b := &simRecorder{on: note}, &simRecorder{on: note}
		boxA, boxB := l.Spawn("a", a), l.Spawn("b", b)
		for i := range 3 {
			boxA.Post(i)
			boxB.Post(10 + i)
		}
		s.Settle(1000)
		orders[fmt.Sprint(order)] = true
		rounds[len(a.flushes)] = true
	}
	if len(orders) < 10 || len(rounds) < 3 {
		t.Fatalf("50 seeds gave %d orders and %d counts of flushes", len(orders), len(rounds))
	}
}

func pingPong(seed uint64) (*Sim, *simRecorder) {
	s := NewSim(seed)
	n := s.Node("a", 3)
	last := &simRecorder{}
	end := n.Loop(2).Spawn("end", last)
	for i := range 6 {
		r := &simRecorder{}
		var box Mailbox
		r.on = func(m any) {
			if k := m.(int); k > 0 {
				box.After(time.Duration(s.Rand().IntN(int(time.Millisecond))), k-1)
			}
			end.Post(fmt.Sprint(i, m))
		}
		loop := n.Loop(i % 3)
		if i == 5 {
			loop = n.Dedicated("disk")
		}
		box = loop.Spawn("p", r)
		box.Post(20)
	}
	s.RunUntil(never, time.Second)
	return s, last
}

func TestSimReplaysExactly(t *testing.T) {
	seen := map[uint64]uint64{}
	for seed := range uint64(30) {
		s1, r1 := pingPong(seed)
		s2, r2 := pingPong(seed)
		if s1.Hash() != s2.Hash() || s1.Steps() != s2.Steps() || !slices.Equal(r1.got, r2.got) {
			t.Fatalf("seed %d does not replay", seed)
		}
		if len(r1.got) != 6*21 {
			t.Fatalf("seed %d: %d messages arrived, want %d", seed, len(r1.got), 6*21)
		}
		if other, ok := seen[s1.Hash()]; ok {
			t.Fatalf("seeds %d and %d have the same hash", seed, other)
		}
		seen[s1.Hash()] = seed
	}
}

func TestSimNoteIsPartOfTheHash(t *testing.T) {
	a, b := NewSim(1), NewSim(1)
	a.Note("x")
	b.Note("y")
	if a.Hash() == b.Hash() {
		t.Fatal("different notes, same hash")
	}
}

func TestSimTimers(t *testing.T) {
	s := NewSim(1)
	r := &simRecorder{}
	box := s.Node("a", 1).Loop(0).Spawn("a", r)
	box.After(3*time.Second, "third")
	box.After(time.Second, "first")
	cancel := box.After(2*time.Second, "second")
	if !cancel() || cancel() {
		t.Fatal("a timer is cancelled once")
	}
	late := box.After(time.Second, "same time, later")
	s.RunUntil(never, 2500*time.Millisecond)
	if want := []any{"first", "same time, later"}; !slices.Equal(r.got, want) {
		t.Fatalf("got %v, want %v", r.got, want)
	}
	if late() {
		t.Fatal("cancelled what had gone off")
	}
	if s.Now() < 2500*time.Millisecond || s.Now() > 2501*time.Millisecond {
		t.Fatalf("now is %v", s.Now())
	}
	if !s.RunUntil(func() bool { return len(r.got) == 3 }, time.Hour) || s.Now() > 4*time.Second {
		t.Fatalf("third not received, now %v", s.Now())
	}
}

func TestSimStopLosesWhatIsUnderWay(t *testing.T) {
	s := NewSim(1)
	n, other := s.Node("a", 1), s.Node("b", 1)
	a, b, disk := &simRecorder{}, &simRecorder{}, &simRecorder{}
	boxA, boxB := n.Loop(0).Spawn("a", a), other.Loop(0).Spawn("b", b)
	boxD := n.Dedicated("disk").Spawn("disk", disk)
	disk.on = func(any) { boxB.Post("news of a sync") }
	boxD.Post("sync")
	for len(disk.flushes) == 0 {
		s.Step()
	}
	boxA.Post("waiting")
	boxA.After(time.Second, "timer")
	n.Stop()
	boxA.Post("too late")
	s.RunUntil(never, time.Minute)
	if len(a.got) != 0 || len(b.got) != 0 {
		t.Fatalf("a stopped node acted: %v %v", a.got, b.got)
	}
	boxB.Post("alive")
	s.Settle(100)
	if len(b.got) != 1 {
		t.Fatal("the other node stopped too")
	}
}

func TestSimDedicatedLoopsTakeTime(t *testing.T) {
	s := NewSim(1)
	n := s.Node("a", 1)
	disk, done := &simRecorder{}, &simRecorder{}
	box := n.Loop(0).Spawn("done", done)
	disk.on = func(m any) { box.Post(m) }
	d := n.Dedicated("disk").Spawn("disk", disk)
	d.Post(1)
	s.RunUntil(func() bool { return len(done.got) == 1 }, time.Second)
	if s.Now() < 20*time.Microsecond {
		t.Fatalf("a sync took %v", s.Now())
	}
}

func TestSimPause(t *testing.T) {
	s := NewSim(1)
	n := s.Node("a", 1)
	r := &simRecorder{}
	box := n.Loop(0).Spawn("a", r)
	n.Pause(time.Second)
	box.Post(1)
	box.After(time.Millisecond, 2)
	s.RunUntil(never, 900*time.Millisecond)
	if len(r.got) != 0 {
		t.Fatal("a paused node acted")
	}
	s.RunUntil(never, 200*time.Millisecond)
	if !slices.Equal(r.got, []any{1, 2}) {
		t.Fatalf("after the pause: %v", r.got)
	}
}

func TestSimTouchFlushesWithoutAMessage(t *testing.T) {
	s := NewSim(1)
	r := &simRecorder{}
	box := s.Node("a", 1).Loop(0).Spawn("a", r)
	box.Touch()
	box.Touch()
	s.Settle(10)
	if len(r.flushes) != 1 {
		t.Fatalf("%d flushes, want 1", len(r.flushes))
	}
}

// syncer is an actor that makes a call which takes long at each flush.
type syncer struct {
	node         *SimNode
	begun, ended int
	told         Mailbox
}

func (y *syncer) Receive(any) {}

func (y *syncer) Flush() {
	y.begun++
	y.node.Block()
	y.ended++
	y.told.Post(y.ended)
}

// TestSimBlocksWithinACall has a dedicated loop stand in a call while everything else goes on, through a pause, and not come back from it
// where the node stops.
func TestSimBlocksWithinACall(t *testing.T) {
	s := NewSim(1)
	n := s.Node("a", 1)
	other := &simRecorder{}
	box := n.Loop(0).Spawn("other", other)
	y := &syncer{node: n, told: box}
	disk := n.Dedicated("disk").Spawn("disk", y)
	n.SetLatency(func(*rand.Rand) time.Duration { return time.Second })
	disk.Post("one")
	s.RunFor(10 * time.Millisecond)
	box.Post("meanwhile")
	disk.Post("two")
	s.RunFor(900 * time.Millisecond)
	if y.begun != 1 || y.ended != 0 || !slices.Equal(other.got, []any{"meanwhile"}) {
		t.Fatalf("in the call: begun %d, ended %d, the other loop got %v", y.begun, y.ended, other.got)
	}
	n.Pause(500 * time.Millisecond)
	s.RunFor(400 * time.Millisecond)
	if y.ended != 0 {
		t.Fatal("a call came back while the node stood still")
	}
	s.RunFor(400 * time.Millisecond)
	if y.begun != 2 || y.ended != 1 || !slices.Equal(other.got, []any{"meanwhile", 1}) {
		t.Fatalf("after it: begun %d, ended %d, the other loop got %v", y.begun, y.ended, other.got)
	}
	n.SetLatency(nil)
	s.RunFor(10 * time.Millisecond)
	if y.ended != 2 {
		t.Fatal("a call did not come back from a disk that is well again")
	}
	n.SetLatency(func(*rand.Rand) time.Duration { return time.Second })
	disk.Post("three")
	s.RunFor(10 * time.Millisecond)
	n.Stop()
	s.RunFor(5 * time.Second)
	if y.begun != 3 || y.ended != 2 {
		t.Fatal("a call came back on a node that has stopped")
	}
}
