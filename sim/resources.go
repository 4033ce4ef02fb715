package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
)

// target is a resource that clients work with: one incarnation at a time.
type target struct {
	spec    broker.QueueSpec
	key     string // of the present incarnation, in the history
	gone    bool   // it does not exist, or nobody knows whether it does
	busy    bool   // a declaration, deletion or purge is under way
	by      *host  // through which
	purging bool   // it is a purge
	home    *host  // where it was declared last
	lost    bool   // it went with its home
	damaged bool   // the node says so
	lane    uint64 // of its named producer
	born    int    // incarnations so far
	wishes  int    // that an operator has had of it
	policy  string // by the last wish, if there was one
	copies  int    // the same

	lossy   bool
	dead    string
	maker   bool // clients delete it and declare it again
	memory  bool // it goes with the run of the node
	delays  bool // some messages to it are delayed
	limited bool // it refuses what is over its length
}

func durable(name string) broker.QueueSpec {
	return broker.QueueSpec{Name: name, Durable: true, Kind: catalog.Queue}
}

func numbered(n int64) *int64 { return &n }
func named(s string) *string  { return &s }
func buries(s *queue.Settings, key string) {
	s.DeadLetterExchange, s.DeadLetterRoutingKey = named(""), named(key)
}

// makeTargets are the resources of every simulation, each there for one promise.
func makeTargets() []*target {
	plain := durable("plain")
	busy := durable("busy")
	graves := durable("graves")
	buried := durable("buried")
	buries(&buried.Queue, "graves")
	limit := durable("limit")
	limit.Queue.DeliveryLimit = numbered(3)
	buries(&limit.Queue, "graves")
	mortal := durable("mortal")
	mortal.Queue.TTL = numbered(300)
	buries(&mortal.Queue, "graves")
	short := durable("short")
	short.Queue.MaxLength = numbered(20)
	full := durable("full")
	full.Queue.MaxLength, full.Queue.Overflow = numbered(20), queue.RejectPublish
	single := durable("single")
	single.Queue.SingleActive = true
	memory := broker.QueueSpec{Name: "memory", Kind: catalog.Queue}
	temporary := durable("temporary")
	river := broker.QueueSpec{Name: "river", Durable: true, Kind: catalog.Stream}
	brook := broker.QueueSpec{Name: "brook", Durable: true, Kind: catalog.Stream}
	puddle := broker.QueueSpec{Name: "puddle", Durable: true, Kind: catalog.Stream, Stream: stream.Settings{MaxRecords: 50}}
	return []*target{
		{spec: plain},
		{spec: durable("later"), delays: true},
		{spec: busy},
		{spec: graves},
		{spec: buried, dead: "graves"},
		{spec: limit, dead: "graves"},
		{spec: mortal, dead: "graves"},
		{spec: short, lossy: true},
		{spec: full, limited: true},
		{spec: single},
		{spec: memory, memory: true},
		{spec: temporary, maker: true},
		{spec: river},
		{spec: brook},
		{spec: puddle, lossy: true},
	}
}

// few draws the resources of a small simulation: one or two, and what they dead-letter to. Those that promise most come most often.
func few(all []*target, seed uint64) []*target {
	rng := rand.New(rand.NewPCG(seed, 5))
	want := map[string]bool{}
	for range 1 + rng.IntN(2) {
		switch rng.IntN(4) {
		case 0:
			want["plain"] = true
		case 1:
			want["brook"] = true
		case 2:
			want["single"] = true
		default:
			t := all[rng.IntN(len(all))]
			want[t.spec.Name], want[t.dead] = true, true
		}
	}
	return slices.DeleteFunc(all, func(t *target) bool { return !want[t.spec.Name] })
}

func (t *target) stream() bool { return t.spec.Kind == catalog.Stream }

// next names the next incarnation, ahead of its declaration, so that whatever it may hold is of a known resource.
func (t *target) next() string {
	t.born++
	t.key = t.spec.Name
	if t.maker || t.memory {
		t.key = fmt.Sprintf("%s#%d", t.spec.Name, t.born)
	}
	return t.key
}

func (t *target) event() check.Event {
	return check.Event{Kind: check.Declared, Resource: t.key, Stream: t.stream(), Lossy: t.lossy, DeadLetter: t.dead}
}

// target finds a resource by its name in the broker.
func (w *world) target(name string) *target {
	for _, t := range w.targets {
		if t.spec.Name == name {
			return t
		}
	}
	return nil
}

// fan is an exchange that copies to two queues.
var fan = catalog.Exchange{VHost: "/", Name: "fan", Type: "fanout", Durable: true}

// fanTargets are the queues that are bound to it, of those that the simulation has.
func (w *world) fanTargets() (names []string) {
	for _, name := range []string{"plain", "busy"} {
		if w.target(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// patience bounds, in virtual time, how long the node may take to serve again once nothing hinders it.
const patience = 2 * time.Minute
