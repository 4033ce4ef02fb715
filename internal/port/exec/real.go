package exec

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// New makes an executor of goroutines with the given number of shared loops; 0 means one per processor.
func New(shared int) Executor {
	if shared <= 0 {
		shared = runtime.GOMAXPROCS(0)
	}
	e := &executor{}
	for range shared {
		e.shared = append(e.shared, e.start())
	}
	return e
}

type executor struct {
	shared  []*loop
	mu      sync.Mutex
	all     []*loop
	stopped bool
	wg      sync.WaitGroup
}

func (e *executor) start() *loop {
	l := &loop{wake: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		l.stopped.Store(true)
		return l
	}
	e.all = append(e.all, l)
	e.wg.Go(l.run)
	return l
}

func (e *executor) Shared() int           { return len(e.shared) }
func (e *executor) Loop(i int) Loop       { return e.shared[i] }
func (e *executor) Dedicated(string) Loop { return e.start() }

func (e *executor) Stop() {
	e.mu.Lock()
	e.stopped = true
	all := e.all
	e.mu.Unlock()
	for _, l := range all {
		l.stopped.Store(true)
		l.signal()
	}
	e.wg.Wait()
}

type envelope struct {
	to  *mailbox
	msg any
}

// loop serves mailboxes from one queue. Two slices are swapped between senders and the goroutine, so that in the
// steady state posting allocates nothing.
type loop struct {
	mu      sync.Mutex
	waiting []envelope
	wake    chan struct{}
	stopped atomic.Bool

	touched []*mailbox // only on the loop's goroutine
}

func (l *loop) Spawn(_ string, a Actor) Mailbox {
	return &mailbox{loop: l, actor: a}
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *loop) run() {
	var round []envelope
	small := 0 // rounds in a row that needed little of their room
	for {
		l.mu.Lock()
		round, l.waiting = l.waiting, round[:0]
		l.mu.Unlock()
		if l.stopped.Load() {
			return
		}
		if len(round) == 0 && len(l.touched) == 0 {
			<-l.wake
			continue
		}
		for i := range round {
			m := round[i].to
			m.touch()
			m.actor.Receive(round[i].msg)
			round[i] = envelope{}
			if l.stopped.Load() {
				return
			}
		}
		l.flush()
		if len(round) < cap(round)/16 {
			small++
		} else {
			small = 0
		}
		if cap(round) > 1<<16 || cap(round) > 1<<10 && small >= 64 {
			round, small = nil, 0 // a burst must not hold its memory for ever
		}
	}
}

// flush calls Flush on every touched actor, and on those that a Flush touched in turn.
func (l *loop) flush() {
	for i := 0; i < len(l.touched); i++ {
		m := l.touched[i]
		m.dirty = false
		m.actor.Flush()
	}
	clear(l.touched)
	l.touched = l.touched[:0]
}

type mailbox struct {
	loop  *loop
	actor Actor
	dirty bool // only on the loop's goroutine
}

func (m *mailbox) Post(msg any) {
	l := m.loop
	l.mu.Lock()
	if l.stopped.Load() {
		l.mu.Unlock()
		return
	}
	first := len(l.waiting) == 0
	l.waiting = append(l.waiting, envelope{m, msg})
	l.mu.Unlock()
	if first {
		l.signal()
	}
}

func (m *mailbox) After(d time.Duration, msg any) func() bool {
	t := time.AfterFunc(d, func() { m.Post(msg) })
	return t.Stop
}

func (m *mailbox) Touch()     { m.touch() }
func (m *mailbox) Loop() Loop { return m.loop }

func (m *mailbox) touch() {
	if !m.dirty {
		m.dirty = true
		m.loop.touched = append(m.loop.touched, m)
	}
}
