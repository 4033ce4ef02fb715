package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// world is one node's catalog and copies, which outlive its runs, and the controller of the run.
type world struct {
	t     testing.TB
	sim   *exec.Sim
	clock clock.Clock
	state *catalog.State
	index uint64
	local ident.Instance
	copies
	faults

	node     *exec.SimNode
	c        *Controller
	box      exec.Mailbox // the catalog's and the copies'
	commands int
	sealings int
	settles  [][]Waiting
	steps    int // what this run has asked and answered
	crashAt  int // a step at which the run ends; 0 none
}

// copies are the promises and the ends of the logs that a node holds.
type copies struct {
	promise map[ident.Partition]uint64
	tail    map[ident.Partition]batch.Tail
	damaged map[ident.Partition]string
}

// faults are what goes wrong from now on, each as often as its number says.
type faults struct {
	lostCommands int // not done, and the outcome is not known
	lostAnswers  int // done, and the outcome is not known
}

type call func()

// Receive implements exec.Actor.
func (w *world) Receive(msg any) { msg.(call)() }

// Flush implements exec.Actor.
func (w *world) Flush() {}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, sim: exec.NewSim(seed), state: catalog.New(), local: ident.Instance{Node: "one", Store: ident.StoreID{1}},
		copies: copies{promise: map[ident.Partition]uint64{}, tail: map[ident.Partition]batch.Tail{}, damaged: map[ident.Partition]string{}},
	}
	w.clock = clock.NewSim(w.sim.Now, time.UnixMilli(1_000_000))
	w.apply(catalog.Bootstrap(ident.StoreID{9}, "hash")...)
	return w
}

// do changes the catalog.
func (w *world) do(cmd []byte) (catalog.Result, []catalog.Change) {
	w.index++
	r, changes, err := w.state.Apply(w.index, cmd)
	if err != nil {
		w.t.Fatal(err)
	}
	return r, changes
}

func (w *world) apply(items ...catalog.Item) {
	w.t.Helper()
	cmds, err := catalog.Chunks(items)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, cmd := range cmds {
		r, changes := w.do(cmd)
		if r.Err() != nil {
			w.t.Fatal(r.Err())
		}
		if w.c != nil {
			w.c.Apply(changes)
		}
	}
}

// boot ends the run before, if any, and starts another.
func (w *world) boot() {
	w.crash()
	w.local.Boot++
	w.node = w.sim.Node("one", 2)
	w.box = w.node.Loop(1).Spawn("world", w)
	w.apply(catalog.RegisterBoot(catalog.Node{Name: w.local.Node, Store: w.local.Store, Boot: w.local.Boot}))
	w.commands, w.sealings, w.settles, w.steps = 0, 0, nil, 0
	w.c = New(Env{
		Loop: w.node.Loop(0), Clock: w.clock, Trace: trace.Discard, Local: w.local, Propose: w.propose,
		Seal:    func(node string, reqs []control.SealRequest, done func([]control.SealAnswer)) { w.seal(reqs, done) },
		View:    func(f func(*catalog.View)) { f(w.state.View()) },
		Settled: func(ws []Waiting) { w.settles = append(w.settles, ws) },
	})
	w.c.Apply(w.state.Changes())
	w.c.Leads(1, true)
}

func (w *world) crash() {
	if w.node != nil {
		w.node.Stop()
		w.node, w.c = nil, nil
	}
}

// step notes that something was asked or answered, and reports whether the run ended with it.
func (w *world) step() bool {
	w.steps++
	if w.crashAt > 0 && w.steps == w.crashAt {
		w.crash()
	}
	return w.node == nil
}

func (w *world) propose(term uint64, cmd []byte, done func(error)) {
	if term != 1 {
		w.t.Errorf("proposed in term %d", term)
	}
	w.commands++
	if len(cmd) > 256<<10 {
		w.t.Errorf("a command of %d bytes (design 2 §5)", len(cmd))
	}
	w.box.Post(call(func() {
		if w.step() {
			return
		}
		if w.lostCommands > 0 {
			w.lostCommands--
			done(errors.New("no answer"))
			return
		}
		_, changes := w.do(cmd)
		w.c.Apply(changes)
		if w.step() {
			return
		}
		if w.lostAnswers > 0 {
			w.lostAnswers--
			done(errors.New("no answer"))
			return
		}
		done(nil)
	}))
}

// seal answers as a copy does: with a promise that is durable, and not for an epoch that was applied.
func (w *world) seal(reqs []control.SealRequest, done func([]control.SealAnswer)) {
	w.sealings++
	w.box.Post(call(func() {
		if w.step() {
			return
		}
		var as []control.SealAnswer
		for _, q := range reqs {
			a := control.SealAnswer{Partition: q.Partition}
			a.Transition, a.Instance, a.Tail, a.Damaged = q.Transition, w.local, w.tail[q.Partition], w.damaged[q.Partition]
			have, _ := w.state.View().Assignment(q.Partition)
			switch {
			case have == nil || have.Epoch >= q.Epoch || w.promise[q.Partition] > q.Epoch:
				a.Refused = "promised"
			case have.Pending == nil || have.Pending.ID != q.Transition:
				w.t.Errorf("%v is sealed for %q, which is not recorded", q.Partition, q.Transition)
			case a.Damaged == "":
				w.promise[q.Partition] = q.Epoch
			}
			as = append(as, a)
		}
		if !w.step() {
			done(as)
		}
	}))
}

// settle runs until nothing is left to do but wait.
func (w *world) settle() {
	w.t.Helper()
	if !w.sim.Settle(1_000_000) {
		w.t.Fatal("it does not come to rest")
	}
}

// declare makes durable queues, owned by the present run, and gives each a log.
func (w *world) declare(n int) []ident.Partition {
	w.t.Helper()
	var items []catalog.Item
	for i := range n {
		r := catalog.Resource{VHost: catalog.DefaultVHost, Name: fmt.Sprintf("q%05d", i), Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}, Policy: "majority_durable"}
		items = append(items, catalog.DeclareResource(r, w.local, nil, 1))
	}
	w.apply(items...)
	var ps []ident.Partition
	for _, r := range w.state.View().AllResources() {
		p := r.Partitions[0].Partition
		ps = append(ps, p)
		w.grow(p, 1)
	}
	if len(ps) != n {
		w.t.Fatalf("%d resources of %d", len(ps), n)
	}
	return ps
}

// grow appends to a copy's log in the present epoch of its owner.
func (w *world) grow(p ident.Partition, n uint64) {
	a, _ := w.state.View().Assignment(p)
	t := w.tail[p]
	t.Epoch, t.Position, t.Offset = a.Epoch, t.Position+n, t.Offset+n
	t.Link[0]++
	w.tail[p] = t
}

func (w *world) assignment(p ident.Partition) *catalog.Assignment {
	w.t.Helper()
	a, _ := w.state.View().Assignment(p)
	if a == nil {
		w.t.Fatalf("%v is gone", p)
	}
	return a
}

// owned checks that the present run owns a partition, that no transition is left, and that the last epoch began at the end of the log.
func (w *world) owned(p ident.Partition) {
	w.t.Helper()
	a := w.assignment(p)
	last := a.Starts[len(a.Starts)-1]
	switch tail := w.tail[p]; {
	case a.Owner != w.local || a.Pending != nil:
		w.t.Fatalf("%v: owner %v, pending %v; want %v and none", p, a.Owner, a.Pending, w.local)
	case last.Epoch != a.Epoch || last.Position != tail.Position || last.Link != tail.Link:
		w.t.Fatalf("%v: epoch %d began at %+v, the log ends at %+v", p, a.Epoch, last, tail)
	case w.promise[p] != a.Epoch:
		w.t.Fatalf("%v: epoch %d, promised %d", p, a.Epoch, w.promise[p])
	}
	for i, s := range a.Starts[1:] {
		if s.Epoch <= a.Starts[i].Epoch || s.Position < a.Starts[i].Position {
			w.t.Fatalf("%v: history starts %+v", p, a.Starts)
		}
	}
}

// waits is what Settled said last.
func (w *world) waits() []Waiting {
	w.t.Helper()
	if len(w.settles) == 0 {
		w.t.Fatal("the controller has not settled")
	}
	return w.settles[len(w.settles)-1]
}
