package processors

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// world feeds a governor, as the loop does.
type world struct {
	g    *governor
	at   load
	next time.Duration
}

func newWorld() *world { return &world{g: newGovernor(load{}), next: lookAll} }

// pass lets time pass in which the process uses a share of one processor; of its goroutines, one in waits waits for long (0: none).
func (w *world) pass(d time.Duration, share float64, waits uint64) {
	for end := w.at.at + d; w.at.at < end; {
		w.at.at += w.next
		w.at.used += time.Duration(share * float64(w.next))
		w.at.started += 1000 * uint64(w.next/time.Millisecond)
		if waits > 0 {
			w.at.waited += 1000 * uint64(w.next/time.Millisecond) / waits
		}
		w.next = w.g.look(w.at)
	}
}

func TestAProcessWithLittleToDoKeepsToOneProcessor(t *testing.T) {
	w := newWorld()
	w.pass(10*time.Second, 1.5, 0)
	if w.g.one {
		t.Fatal("on one while busy")
	}
	w.pass(window+lookAll, 0.2, 0)
	if !w.g.one {
		t.Fatal("still on all with little to do")
	}
	w.pass(time.Minute, 0.5, waitShare*4)
	if !w.g.one {
		t.Fatal("on all again, though one is enough")
	}
	w.pass(lookBusy, 0.9, 0)
	if w.g.one {
		t.Fatal("one was nearly used up, and the next look did not see that")
	}
	w.pass(window+lookAll, 0.2, 0)
	if !w.g.one {
		t.Fatal("a burst that was served is no reason to wait for longer")
	}
}

func TestAQuietProcessIsLookedAtRarely(t *testing.T) {
	w := newWorld()
	w.pass(5*time.Second, 0.01, 0)
	if !w.g.one || w.next != lookQuiet {
		t.Fatalf("one processor: %v, next look in %v", w.g.one, w.next)
	}
	w.pass(lookQuiet, 0.2, 0)
	if w.next != lookBusy {
		t.Fatalf("it does something, and is looked at in %v", w.next)
	}
}

// Where goroutines wait for the one processor, it is given up, for longer each time.
func TestWaitingGoroutinesGetAllProcessors(t *testing.T) {
	w := newWorld()
	began := func() time.Duration { // goes to one, and is made to wait there
		from := w.at.at
		for !w.g.one {
			w.pass(lookAll, 0.2, 0)
		}
		took := w.at.at - from
		w.pass(lookBusy, 0.2, waitShare/2)
		if w.g.one {
			t.Fatal("goroutines wait, and it stays on one")
		}
		return took
	}
	last := began()
	for range 3 {
		took := began()
		if took < 2*last-window/2 {
			t.Fatalf("went back after %v, the time before after %v", took, last)
		}
		last = took
	}
	for range 10 {
		last = began()
	}
	if most := (mostPatience + 1) * (window + lookAll); last > most {
		t.Fatalf("went back after %v, at most %v are allowed", last, most)
	}
	// It is trusted again once it was on one for long.
	for !w.g.one {
		w.pass(lookAll, 0.2, 0)
	}
	w.pass(calm, 0.2, 0)
	w.pass(lookBusy, 0.9, 0)
	if took := began(); took > window+2*lookAll {
		t.Fatalf("went back after %v", took)
	}
}

// A few long waits among few goroutines are the machine's, not the processor's.
func TestFewWaitsSayNothing(t *testing.T) {
	g := newGovernor(load{})
	g.look(load{at: 2 * window, started: 20, waited: fewWaits - 1})
	if !g.one {
		t.Fatal("on all for three waits")
	}
	g.look(load{at: 2*window + lookQuiet, started: 40, waited: 2*fewWaits - 1})
	if g.one {
		t.Fatal("on one with one goroutine in five that waits")
	}
}

func TestTheMeterReadsTheProcess(t *testing.T) {
	m := meter{samples: newSamples()}
	began := time.Now()
	before := m.read(began)
	x := 0
	for time.Since(began) < 20*time.Millisecond {
		for i := range 1000 {
			x += i
		}
		runtime.Gosched()
	}
	after := m.read(began)
	if used := after.used - before.used; used <= 0 || used > time.Minute || x == 0 {
		t.Errorf("used %v of a processor in 20 ms of work", used)
	}
	if after.at-before.at < 20*time.Millisecond {
		t.Errorf("%v passed", after.at-before.at)
	}
}

// What was chosen with GOMAXPROCS counts.
func TestAnOperatorsChoiceStays(t *testing.T) {
	t.Setenv("GOMAXPROCS", "2")
	before := runtime.GOMAXPROCS(0)
	Keep(context.Background()) // it returns, since nothing is to be done
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Fatalf("%d processors, were %d", got, before)
	}
}
