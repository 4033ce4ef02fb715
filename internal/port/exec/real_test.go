package exec

import (
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// recorder writes down what it receives; "go" messages run inside the actor.
type recorder struct {
	box     Mailbox
	got     []int
	flushes int
	onFlush func(*recorder)
}

func (r *recorder) Receive(msg any) {
	switch m := msg.(type) {
	case int:
		r.got = append(r.got, m)
	case func(*recorder):
		m(r)
	}
}

func (r *recorder) Flush() {
	r.flushes++
	if r.onFlush != nil {
		r.onFlush(r)
	}
}

func spawn(l Loop) *recorder {
	r := &recorder{}
	r.box = l.Spawn("recorder", r)
	return r
}

// ask runs f on the actor and waits for it.
func (r *recorder) ask(f func(*recorder)) {
	done := make(chan struct{})
	r.box.Post(func(r *recorder) { f(r); close(done) })
	<-done
}

func TestEachSendersMessagesArriveInOrderAndOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	e := New(2)
	defer e.Stop()
	r := spawn(e.Loop(1))
	const senders, each = 8, 500
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				r.box.Post(s*each + i)
			}
		})
	}
	wg.Wait()
	r.ask(func(r *recorder) {
		next := make([]int, senders)
		for _, v := range r.got {
			if v%each != next[v/each] {
				t.Errorf("sender %d: got %d, want %d", v/each, v%each, next[v/each])
			}
			next[v/each]++
		}
		if len(r.got) != senders*each {
			t.Errorf("%d of %d messages arrived", len(r.got), senders*each)
		}
	})
}

func TestFlushComesOnceAfterWhatWaited(t *testing.T) {
	e := New(1)
	defer e.Stop()
	r, other := spawn(e.Loop(0)), spawn(e.Loop(0))
	hold, held := make(chan struct{}), make(chan struct{})
	other.box.Post(func(*recorder) { close(held); <-hold }) // the loop stands still while messages gather
	<-held
	for i := range 100 {
		r.box.Post(i)
	}
	close(hold)
	r.ask(func(r *recorder) {
		if len(r.got) != 100 {
			t.Errorf("got %d messages", len(r.got))
		}
		if r.flushes > 1 {
			t.Errorf("%d flushes for what waited together", r.flushes)
		}
	})
	r.ask(func(r *recorder) {
		if r.flushes == 0 {
			t.Error("no flush came")
		}
	})
}

func TestATouchedActorIsFlushedInTheSameRound(t *testing.T) {
	e := New(1)
	defer e.Stop()
	r, other := spawn(e.Loop(0)), spawn(e.Loop(0))
	flushed := make(chan struct{})
	other.onFlush = func(*recorder) { close(flushed) }
	r.onFlush = func(r *recorder) {
		if len(r.got) == 0 {
			return
		}
		r.got = nil
		other.box.Touch() // as a connection touches the gateway beside it
	}
	r.box.Post(1)
	<-flushed
}

func TestAfterPostsAndCanBeCancelled(t *testing.T) {
	e := New(1)
	defer e.Stop()
	r := spawn(e.Loop(0))
	fired := make(chan struct{})
	cancel := r.box.After(time.Hour, 7)
	r.box.After(0, func(*recorder) { close(fired) })
	<-fired
	if !cancel() {
		t.Error("a timer of an hour could not be cancelled")
	}
	r.ask(func(r *recorder) {
		if slices.Contains(r.got, 7) {
			t.Error("a cancelled message was posted")
		}
	})
}

func TestStopEndsAllLoopsAndPostingAfterItDoesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	e := New(3)
	r := spawn(e.Dedicated("disk"))
	r.ask(func(*recorder) {})
	e.Stop()
	n := len(r.got)
	r.box.Post(1)
	if spawn(e.Dedicated("late")); len(r.got) != n {
		t.Error("a message was received after Stop")
	}
}

func BenchmarkPost(b *testing.B) {
	e := New(1)
	defer e.Stop()
	r := &counter{want: b.N, done: make(chan struct{})}
	box := e.Loop(0).Spawn("counter", r)
	b.ReportAllocs()
	for range b.N {
		box.Post(r)
	}
	<-r.done
}

type counter struct {
	n, want int
	done    chan struct{}
}

func (c *counter) Receive(any) {
	if c.n++; c.n == c.want {
		close(c.done)
	}
}
func (c *counter) Flush() {}
