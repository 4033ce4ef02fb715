// Package sim runs the production node, or a cluster of them, in virtual time, on one seeded thread, over disks that crash, fail and lie
// and a network that cuts, breaks and delays, under clients that publish, consume, settle, move cursors, declare and delete; and has what
// they see judged by package check. In a cluster, what owners confirm is held against what the storage of every copy has reported.
//
// A seed replays exactly: the schedule of loops, the load and the faults are all drawn from it, and Result.Hash proves it. What is
// simulated is what the ports stand for (loops, clock, files, randomness); everything above is the product itself, assembled by the
// same constructor as in production, without its fronts: clients speak broker.Session directly.
package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/mesh"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/port/exec"
)

// world is one simulation.
type world struct {
	opt      Options
	sim      *exec.Sim
	net      *mesh.Virtual          // nil: one node
	links    map[link]time.Duration // that are slow, and how slow
	hurting  int                    // faults that last
	restless bool                   // a disturbance is not over
	still    time.Duration          // since when nothing disturbs
	operator *operator
	losses   bool // a loss may be accepted
	sites    []*site
	storage  storage.Options
	// snapshots is after how many entries a state is saved.
	snapshots uint64
	largest   int    // bytes of a body, about
	led       string // member that leads the catalog's consensus, as was said for the highest term
	term      uint64
	sealed    bool                                 // a copy has promised something
	proposed  func(by *site, m catalog.Membership) // if not nil, hears of every change that an owner proposes
	harms     map[string]harm                      // what was done to each run
	answers   map[uint64]check.Outcome             // of probes
	policy    string                               // that resources are declared with
	judge     *check.Checker
	rng       *rand.Rand // of load and faults

	targets   []*target
	clients   []*client
	producers []*producer
	roads     []road
	want      int  // clients at a time
	open      bool // they may come
	loading   bool
	setup     *client       // that makes what is missing
	last      []status      // as the nodes said last
	asked     uint64        // how often they said it
	asking    uint64        // counts those who ask
	pace      time.Duration // most that a client waits between two turns

	numbers  uint64
	messages uint64
	counts   Counts
	injured  []string
	fault    error

	tops      map[string]uint64          // highest offset seen and one, by key
	offsets   map[string][]uint64        // message at each offset seen, by key
	parts     map[ident.Partition]string // key, by partition
	ears      map[ident.Partition]*ears
	histories map[ident.Partition]*history
	stores    map[ident.StoreID]*witness // of every store that there was
	stands    map[uint64]stand           // of the catalog, by entry
	taken     map[string]*reader         // who works under a cursor
	known     map[string]known           // owners, by key
}

func newWorld(opt Options) *world {
	opt = opt.withDefaults()
	w := &world{
		opt: opt, sim: exec.NewSim(opt.Seed), judge: check.New(), rng: rand.New(rand.NewPCG(opt.Seed, 2)),
		targets: makeTargets(), tops: map[string]uint64{}, answers: map[uint64]check.Outcome{}, harms: map[string]harm{}, offsets: map[string][]uint64{}, parts: map[ident.Partition]string{}, ears: map[ident.Partition]*ears{},
		taken: map[string]*reader{}, known: map[string]known{}, histories: map[ident.Partition]*history{}, stores: map[ident.StoreID]*witness{}, stands: map[uint64]stand{},
	}
	w.pace = time.Duration(2+w.rng.IntN(60)) * time.Millisecond
	for i := range max(opt.Nodes, 1) {
		w.sites = append(w.sites, newSite(w, i))
	}
	if w.cluster() {
		w.net = mesh.NewVirtual(w.sim)
		w.net.Delay = w.delay
		w.links = map[link]time.Duration{}
	}
	w.snapshots = 1 << w.rng.IntN(11)
	w.storage = storage.Options{
		FileSize: 64 << 10 << w.rng.IntN(5), GroupBytes: 64 << 10 << w.rng.IntN(4), CacheBytes: 32 << 10 << w.rng.IntN(8),
		ScrubEvery: 50 * time.Millisecond,
	}
	w.largest = int(min(200_000, w.storage.FileSize/2)) // what fits no file needs space that a full disk has not
	if opt.Small {
		w.targets = few(w.targets, opt.Seed)
		w.storage.FileSize = 32 << 10 << w.rng.IntN(4)
		w.largest = int(min(40_000, w.storage.FileSize/2))
	}
	for _, t := range w.targets {
		t.gone = true
	}
	if act, _ := drawAct(opt); act != ActLoss && act != ActLease { // what a program knows to be stored, and is gone, it does not give again
		w.makeProducers()
	}
	w.operator = newOperator(w)
	return w
}

// see records an event of the history, which is part of the hash too.
func (w *world) see(e check.Event) {
	e.At = int64(w.sim.Now())
	w.sim.Note(string(e.Kind) + e.Resource + string(e.Outcome) + string(e.Settlement))
	w.sim.Mix(e.Message)
	w.sim.Mix(e.Offset)
	if e.Kind == check.Delivered {
		w.place(e)
	}
	if e.Kind == check.Settled {
		w.counts.Settled++
	}
	if e.Kind == check.CursorKept {
		w.counts.Cursors++
	}
	if w.opt.Verbose != nil {
		w.say("%s", describe(e))
	}
	w.judge.Observe(e)
}

// place remembers which message is at an offset.
func (w *world) place(e check.Event) {
	at := w.offsets[e.Resource]
	for uint64(len(at)) <= e.Offset {
		at = append(at, 0)
	}
	at[e.Offset] = e.Message
	w.offsets[e.Resource] = at
	w.tops[e.Resource] = max(w.tops[e.Resource], e.Offset+1)
}

func (w *world) seenOffset(t *target, rng *rand.Rand) uint64 {
	if top := w.tops[t.key]; top > 0 {
		return rng.Uint64N(top)
	}
	return 0
}

// take reserves a cursor for one reader at a time: two under one name are allowed, but nobody could say where it stands.
func (w *world) take(t *target, cursor string) bool {
	name := t.key + " " + cursor
	if w.taken[name] != nil {
		return false
	}
	w.taken[name] = &reader{}
	return true
}

func (w *world) release(r *reader) {
	if r.cursor != "" {
		delete(w.taken, r.key+" "+r.cursor)
	}
}

func (w *world) number() uint64 {
	w.numbers++
	return w.numbers
}

func (w *world) nextMessage() uint64 {
	w.messages++
	return w.messages
}

// later calls f after a few virtual milliseconds, if the run is still on by then.
func (h *host) later(f func()) {
	w := h.w
	w.sim.At(w.sim.Now()+time.Duration(1+w.rng.IntN(5))*time.Millisecond, func() {
		if h.site.host == h {
			f()
		}
	})
}

// fail notes a failure that is not of the history: the first one counts.
func (w *world) fail(format string, a ...any) {
	if w.fault == nil {
		w.fault = fmt.Errorf(format, a...)
		w.say("FAILED %v", w.fault)
	}
}

func (w *world) failed() bool { return w.fault != nil || w.judge.Failed() }

func (w *world) say(format string, a ...any) {
	if w.opt.Verbose != nil {
		w.opt.Verbose(fmt.Sprintf("%12v  ", w.sim.Now()) + fmt.Sprintf(format, a...))
	}
}

func describe(e check.Event) string {
	s := string(e.Kind)
	if e.Resource != "" {
		s += " " + e.Resource
	}
	if e.Message != 0 {
		s += fmt.Sprintf(" message %d", e.Message)
	}
	if len(e.Targets) > 0 {
		s += fmt.Sprintf(" to %v", e.Targets)
	}
	if e.HasOffset {
		s += fmt.Sprintf(" offset %d", e.Offset)
	}
	if e.Reader != 0 {
		s += fmt.Sprintf(" reader %d", e.Reader)
	}
	if e.Session != 0 {
		s += fmt.Sprintf(" session %d", e.Session)
	}
	for _, word := range []string{string(e.Outcome), string(e.Settlement), e.Cursor, e.Owner, e.Cause} {
		if word != "" {
			s += " " + word
		}
	}
	return s
}

// handIn notes that a client gave a final settle to its gateway.
func (c *client) handIn(d delivery, as check.Settlement) {
	if c.w.stale(d) {
		return
	}
	e := c.w.earsOf(d.ref.Partition)
	e.handed = append(e.handed, handed{message: d.message, as: as, offset: d.ref.Offset, gateway: c.host.gateway(c.shard)})
}
