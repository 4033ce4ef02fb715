package exec

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"time"
)

// Sim runs the loops of any number of nodes on one thread, in virtual time, in an order drawn from a seed. The same seed and
// the same calls give the same schedule, which Hash proves.
//
// What it varies: which loop goes next; where a round ends, and so how much a Flush gathers; which of a loop's mailboxes is
// served first (each mailbox keeps its own order, as the contract says); how long a blocking loop takes. It is not safe for
// concurrent use: everything, the actors included, must be called from the goroutine that calls Step.
type Sim struct {
	seed   uint64
	rng    *rand.Rand
	now    time.Duration
	ready  []*simLoop // loops with something to do, in no particular but a determined order
	timers timerHeap
	order  uint64 // breaks ties between timers of the same time
	names  uint64
	hash   uint64
	steps  uint64
	kinds  map[reflect.Type]uint64
	nowOn  *simLoop // the loop whose actor is being called
	cost   time.Duration
}

// NewSim makes a simulation of no nodes at virtual time 0.
func NewSim(seed uint64) *Sim {
	return &Sim{
		seed:  seed,
		rng:   rand.New(rand.NewPCG(seed, 0x7461_6e69_7374)),
		hash:  14695981039346656037,
		kinds: map[reflect.Type]uint64{},
		cost:  2 * time.Microsecond,
	}
}

// Seed is the seed that the schedule is drawn from.
func (s *Sim) Seed() uint64 { return s.seed }

// Now is the virtual time since the simulation began.
func (s *Sim) Now() time.Duration { return s.now }

// Steps is the number of steps taken.
func (s *Sim) Steps() uint64 { return s.steps }

// Hash is the running digest of the schedule: of every message's time, loop, mailbox and type, every flush, and every Note.
func (s *Sim) Hash() uint64 { return s.hash }

// Rand is the simulation's source of randomness. Drawing from it is part of the schedule.
func (s *Sim) Rand() *rand.Rand { return s.rng }

// Note mixes text into the hash, so that a replay is proven to have come to the same results and not only to the same order.
func (s *Sim) Note(text string) {
	for i := range len(text) {
		s.hash = (s.hash ^ uint64(text[i])) * 1099511628211
	}
	s.mix(uint64(len(text)))
}

func (s *Sim) mix(v uint64) {
	for range 8 {
		s.hash = (s.hash ^ v&0xff) * 1099511628211
		v >>= 8
	}
}

// kind is a number for a message's type that is the same in every run: a digest of its name.
func (s *Sim) kind(msg any) uint64 {
	t := reflect.TypeOf(msg)
	if k, ok := s.kinds[t]; ok {
		return k
	}
	h := fnv.New64a()
	fmt.Fprint(h, t)
	s.kinds[t] = h.Sum64()
	return s.kinds[t]
}

// Node makes the executor of one node. name is for messages only. shared is the number of shared loops, at least 1.
func (s *Sim) Node(name string, shared int) *SimNode {
	n := &SimNode{sim: s, name: name}
	for i := range max(shared, 1) {
		n.shared = append(n.shared, n.loop(fmt.Sprintf("shared-%d", i), false))
	}
	return n
}

// Step does one thing: it has one actor receive one message, or flushes one loop, or, where no loop has anything to do, moves the
// time to the next timer. It reports false where there is nothing left that could ever happen.
func (s *Sim) Step() bool {
	s.fire()
	if len(s.ready) == 0 {
		return s.jump()
	}
	s.steps++
	l := s.ready[s.rng.IntN(len(s.ready))]
	l.step()
	s.now += time.Duration(s.rng.Int64N(int64(s.cost)))
	return true
}

// jump moves the time to the next timer.
func (s *Sim) jump() bool {
	if len(s.timers) == 0 {
		return false
	}
	s.now = max(s.now, s.timers[0].at)
	s.fire()
	return true
}

// fire lets every timer go off that is due.
func (s *Sim) fire() {
	for len(s.timers) > 0 && s.timers[0].at <= s.now {
		t := heap.Pop(&s.timers).(*timer)
		t.fired = true
		t.run()
	}
}

// RunUntil steps until cond holds, or until at least limit of virtual time has passed, or nothing is left to happen. It reports
// whether cond holds. cond is asked before every step.
func (s *Sim) RunUntil(cond func() bool, limit time.Duration) bool {
	end := s.now + limit
	for !cond() {
		if s.idle() && (len(s.timers) == 0 || s.timers[0].at > end) {
			s.now = max(s.now, end)
			return cond()
		}
		if s.now >= end {
			return false
		}
		s.Step()
	}
	return true
}

// RunFor lets d of virtual time pass.
func (s *Sim) RunFor(d time.Duration) { s.RunUntil(func() bool { return false }, d) }

// Settle steps until no loop has anything to do, letting what is in the hands of blocking loops come back, but letting no timer
// of After go off that is not due yet. It reports false if that took more than the given number of steps.
func (s *Sim) Settle(steps int) bool {
	for range steps {
		if !s.idle() {
			s.Step()
			continue
		}
		at, ok := s.nextReturn()
		if !ok {
			return true
		}
		s.now = max(s.now, at)
		s.fire()
	}
	return false
}

func (s *Sim) idle() bool {
	s.fire()
	return len(s.ready) == 0
}

// nextReturn is when the next blocking loop comes back.
func (s *Sim) nextReturn() (at time.Duration, ok bool) {
	for _, t := range s.timers {
		if t.returns && (!ok || t.at < at) {
			at, ok = t.at, true
		}
	}
	return at, ok
}

// at has run called at a time.
func (s *Sim) at(at time.Duration, returns bool, run func()) *timer {
	s.order++
	t := &timer{at: at, order: s.order, run: run, returns: returns}
	heap.Push(&s.timers, t)
	return t
}

// At calls f at virtual time at, between two steps. It is for faults and for loads that are not actors of a node.
func (s *Sim) At(at time.Duration, f func()) { s.at(max(at, s.now), false, f) }

// timer is something that happens at a time.
type timer struct {
	at      time.Duration
	order   uint64
	place   int
	run     func()
	fired   bool
	returns bool // a blocking loop comes back
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.place = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.place = -1
	return t
}

// SimRandom is a stream of bytes drawn from a seed, for what takes its randomness from an io.Reader.
type SimRandom struct{ rng *rand.PCG }

// NewSimRandom makes a stream of its own for a seed and a name.
func NewSimRandom(seed uint64, name string) *SimRandom {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &SimRandom{rng: rand.NewPCG(seed, h.Sum64())}
}

// Read fills p. It never fails.
func (r *SimRandom) Read(p []byte) (int, error) {
	var word [8]byte
	for i := 0; i < len(p); i += 8 {
		binary.LittleEndian.PutUint64(word[:], r.rng.Uint64())
		copy(p[i:], word[:])
	}
	return len(p), nil
}

// Mix puts a number into the hash, as Note does text.
func (s *Sim) Mix(v uint64) { s.mix(v) }
