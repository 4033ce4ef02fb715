package exec

import (
	"container/heap"
	"iter"
	"math/rand/v2"
	"time"
)

// SimNode is the executor of one simulated node.
type SimNode struct {
	sim     *Sim
	name    string
	shared  []*simLoop
	all     []*simLoop
	stopped bool
	paused  bool
	until   time.Duration // when the pause ends
	latency func(*rand.Rand) time.Duration
}

// Name is what Sim.Node was given.
func (n *SimNode) Name() string { return n.name }

// Shared is the number of shared loops.
func (n *SimNode) Shared() int { return len(n.shared) }

// Loop is shared loop i.
func (n *SimNode) Loop(i int) Loop { return n.shared[i] }

// Dedicated makes a loop whose actors may block: each of their rounds takes the time that SetLatency draws, and what they post
// meanwhile is not seen before the round's end. A crash in between loses it, as it loses the news of a sync that had just ended.
func (n *SimNode) Dedicated(name string) Loop { return n.loop(name, true) }

// SetLatency says how long a call to Block takes. Without it, with nil, that is no time, and what is under way comes back. A round without
// such a call takes 20 µs to 2 ms.
func (n *SimNode) SetLatency(f func(*rand.Rand) time.Duration) {
	n.latency = f
	for _, l := range n.all {
		if f == nil && l.busy && l.alarm.place >= 0 {
			heap.Remove(&n.sim.timers, l.alarm.place)
			l.alarm.run()
		}
	}
}

// Block lets the time that SetLatency draws pass within a call that an actor makes while its dedicated loop flushes it: the loop stands in
// the call, and everything else goes on. If the node stops meanwhile the call never returns. Elsewhere, and without SetLatency, it does
// nothing. The actor must hold no lock that others wait for.
func (n *SimNode) Block() {
	if l := n.sim.nowOn; l != nil && l.node == n && l.yield != nil {
		l.sleep(n.delay())
	}
}

// Stop ends every loop at once, as a crash does: what is in mailboxes, in timers and in the hands of blocking loops is lost.
func (n *SimNode) Stop() {
	n.stopped = true
	for _, l := range n.all {
		l.end()
	}
}

// Stopped reports whether Stop was called.
func (n *SimNode) Stopped() bool { return n.stopped }

// Pause keeps the node's loops from running for d of virtual time, as SIGSTOP does, or until Resume. Timers that go off meanwhile are
// received after. Of two pauses the one that ends later counts.
func (n *SimNode) Pause(d time.Duration) {
	n.until = max(n.until, n.sim.now+d)
	n.setPaused(true)
	n.sim.At(n.until, func() {
		if n.paused && n.sim.now >= n.until {
			n.setPaused(false)
		}
	})
}

// Resume ends a pause, as SIGCONT does.
func (n *SimNode) Resume() {
	n.until = 0
	n.setPaused(false)
}

// Paused reports whether the node's loops stand still.
func (n *SimNode) Paused() bool { return n.paused }

func (n *SimNode) setPaused(paused bool) {
	n.paused = paused
	for _, l := range n.all {
		l.update()
	}
}

func (n *SimNode) loop(name string, blocking bool) *simLoop {
	n.sim.names++
	l := &simLoop{node: n, sim: n.sim, name: name, id: n.sim.names, blocking: blocking, place: -1, stopped: n.stopped}
	n.all = append(n.all, l)
	return l
}

func (n *SimNode) delay() time.Duration {
	if n.latency != nil {
		return n.latency(n.sim.rng)
	}
	return n.usual()
}

// usual is how long a round takes.
func (n *SimNode) usual() time.Duration {
	return 20*time.Microsecond + time.Duration(n.sim.rng.Int64N(int64(2*time.Millisecond)))
}

// simLoop is one loop. It is in sim.ready exactly while it has something to do and is neither blocked nor paused.
type simLoop struct {
	node     *SimNode
	sim      *Sim
	name     string
	id       uint64
	blocking bool
	place    int // in sim.ready; −1 if not there

	waiting []*simMailbox // those with messages
	count   int           // messages waiting
	left    int           // messages that the present round still takes
	touched []*simMailbox
	stopped bool
	busy    bool   // a blocking round is under way
	held    []held // what it posted

	yield  func(struct{}) bool // within a flush that may call Block
	next   func() (struct{}, bool)
	cancel func()
	asleep bool   // the flush stands in Block
	woken  bool   // and its time is over
	alarm  *timer // that ends it, or the round
	slept  bool
}

// ended unwinds a flush that stood in Block when its node stopped.
type ended struct{}

// held is a message that is not seen before a blocking loop comes back.
type held struct {
	to  *simMailbox
	msg any
}

// Spawn gives an actor a mailbox.
func (l *simLoop) Spawn(name string, a Actor) Mailbox {
	l.sim.names++
	return &simMailbox{loop: l, name: name, id: l.sim.names, actor: a}
}

// update puts the loop into sim.ready, or takes it out.
func (l *simLoop) update() {
	want := !l.stopped && !l.busy && !l.node.paused && (l.count > 0 || len(l.touched) > 0 || l.woken)
	s := l.sim
	switch {
	case want && l.place < 0:
		l.place = len(s.ready)
		s.ready = append(s.ready, l)
	case !want && l.place >= 0:
		last := s.ready[len(s.ready)-1]
		s.ready[l.place] = last
		last.place = l.place
		s.ready[len(s.ready)-1] = nil
		s.ready = s.ready[:len(s.ready)-1]
		l.place = -1
	}
}

func (l *simLoop) end() {
	l.stopped = true
	if l.asleep {
		l.asleep, l.woken = false, false
		l.cancel()
	}
	l.waiting, l.touched, l.held = nil, nil, nil
	l.count, l.left = 0, 0
	l.update()
}

// step receives one message or, where the round is over, flushes.
func (l *simLoop) step() {
	s := l.sim
	s.nowOn = l
	defer func() { s.nowOn = nil }()
	if l.woken {
		l.woken, l.asleep = false, false
		s.mix(uint64(s.now))
		s.mix(l.id ^ 1<<62)
		l.goOn()
		l.update()
		return
	}
	if l.left == 0 {
		if len(l.touched) > 0 {
			l.flush()
			l.update()
			return
		}
		l.begin()
	}
	l.left--
	m := l.take()
	msg := m.pop()
	s.mix(uint64(s.now))
	s.mix(m.id)
	s.mix(s.kind(msg))
	m.touch()
	m.actor.Receive(msg)
	l.update()
}

// begin draws how much of what is waiting the round takes: mostly one message or all of them, which are the extremes that a
// group can have.
func (l *simLoop) begin() {
	switch l.sim.rng.IntN(3) {
	case 0:
		l.left = 1
	case 1:
		l.left = l.count
	default:
		l.left = 1 + l.sim.rng.IntN(l.count)
	}
}

// take draws one of the mailboxes that have messages.
func (l *simLoop) take() *simMailbox {
	if len(l.waiting) == 1 {
		return l.waiting[0]
	}
	return l.waiting[l.sim.rng.IntN(len(l.waiting))]
}

// flush ends the round.
func (l *simLoop) flush() {
	s := l.sim
	s.mix(uint64(s.now))
	s.mix(l.id ^ 1<<63)
	if !l.blocking || l.node.latency == nil {
		l.flushAll()
		l.flushed()
		return
	}
	l.slept = false
	l.next, l.cancel = iter.Pull(func(yield func(struct{}) bool) {
		l.yield = yield
		defer func() {
			l.yield = nil
			if p := recover(); p != nil && p != (ended{}) {
				panic(p)
			}
		}()
		l.flushAll()
	})
	l.goOn()
}

func (l *simLoop) flushAll() {
	for i := 0; i < len(l.touched) && !l.stopped; i++ {
		m := l.touched[i]
		m.dirty = false
		m.actor.Flush()
	}
}

// goOn runs a flush until it is done, or stands in Block.
func (l *simLoop) goOn() {
	if _, asleep := l.next(); !asleep {
		l.next, l.cancel = nil, nil
		l.flushed()
	}
}

// sleep leaves a flush where it is until its time is over.
func (l *simLoop) sleep(d time.Duration) {
	l.asleep, l.busy, l.slept = true, true, true
	l.alarm = l.sim.at(l.sim.now+d, true, l.wake)
	if !l.yield(struct{}{}) {
		panic(ended{})
	}
}

func (l *simLoop) wake() {
	if l.asleep {
		l.busy, l.woken = false, true
		l.update()
	}
}

func (l *simLoop) flushed() {
	clear(l.touched)
	l.touched = l.touched[:0]
	if l.blocking && !l.stopped {
		l.block()
	}
}

// block lets the time pass that the round has taken, as far as it has not.
func (l *simLoop) block() {
	l.busy = true
	d := time.Duration(0)
	if !l.slept {
		d = l.node.usual() // it made no call that blocks for long
	}
	l.slept = false
	l.alarm = l.sim.at(l.sim.now+d, true, func() {
		if l.stopped {
			return
		}
		l.busy = false
		back := l.held
		l.held = nil
		for _, h := range back {
			h.to.push(h.msg)
		}
		l.update()
	})
}

// simMailbox keeps the order of what was posted to it.
type simMailbox struct {
	loop  *simLoop
	name  string
	id    uint64
	actor Actor
	dirty bool
	place int // in loop.waiting, if queue is not empty
	queue []any
	first int
}

// Post appends a message.
func (m *simMailbox) Post(msg any) {
	if m.loop.stopped {
		return
	}
	if from := m.loop.sim.nowOn; from != nil && from.blocking && from != m.loop {
		from.held = append(from.held, held{m, msg})
		return
	}
	m.push(msg)
}

func (m *simMailbox) push(msg any) {
	l := m.loop
	if l.stopped {
		return
	}
	if m.first == len(m.queue) {
		m.queue, m.first = m.queue[:0], 0
		m.place = len(l.waiting)
		l.waiting = append(l.waiting, m)
	}
	m.queue = append(m.queue, msg)
	l.count++
	l.update()
}

func (m *simMailbox) pop() any {
	l := m.loop
	msg := m.queue[m.first]
	m.queue[m.first] = nil
	m.first++
	l.count--
	if m.first == len(m.queue) {
		last := l.waiting[len(l.waiting)-1]
		l.waiting[m.place] = last
		last.place = m.place
		l.waiting[len(l.waiting)-1] = nil
		l.waiting = l.waiting[:len(l.waiting)-1]
	}
	return msg
}

// After posts msg once d of virtual time has passed.
func (m *simMailbox) After(d time.Duration, msg any) func() bool {
	s := m.loop.sim
	t := s.at(s.now+max(d, 0), false, func() { m.push(msg) })
	return func() bool {
		if t.fired || t.place < 0 {
			return false
		}
		heap.Remove(&s.timers, t.place)
		return true
	}
}

// Touch asks for a Flush at the end of the round.
func (m *simMailbox) Touch() {
	m.touch()
	m.loop.update()
}

func (m *simMailbox) touch() {
	if !m.dirty && !m.loop.stopped {
		m.dirty = true
		m.loop.touched = append(m.loop.touched, m)
	}
}

// Loop is the loop that serves the mailbox.
func (m *simMailbox) Loop() Loop { return m.loop }
