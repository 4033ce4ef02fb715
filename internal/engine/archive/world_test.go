package archive

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
	"github.com/tanist/tanist/internal/port/vfs"
)

// world is a few nodes' archives in virtual time, with a catalog that each applies when it is told to.
type world struct {
	t        testing.TB
	sim      *exec.Sim
	commands [][]byte
	sites    []*site
	lose     func() bool // whether a message is lost; nil: none is
}

type site struct {
	w       *world
	name    string
	store   ident.StoreID
	disk    *vfs.Memory
	node    *exec.SimNode
	a       *Archive
	state   *catalog.State
	applied int
	reaches map[string]bool
	events  []string
}

func newWorld(t testing.TB, seed uint64, n int) *world {
	w := &world{t: t, sim: exec.NewSim(seed)}
	items := catalog.Bootstrap(ident.StoreID{9}, "hash")
	for i := range n {
		s := &site{w: w, name: fmt.Sprint("n", i+1), store: ident.StoreID{byte(i + 1)}, disk: vfs.NewMemory(seed + uint64(i))}
		w.sites = append(w.sites, s)
		items = append(items, catalog.RegisterBoot(catalog.Node{Name: s.name, Store: s.store, Boot: 1}))
	}
	w.do(items...)
	for _, s := range w.sites {
		s.boot()
	}
	return w
}

// do adds a command to what is agreed on. Nobody applies it yet.
func (w *world) do(items ...catalog.Item) {
	w.t.Helper()
	cmd, err := catalog.Encode(items...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.commands = append(w.commands, cmd)
}

// boot begins a run of a node over what its disk has.
func (s *site) boot() {
	s.node = s.w.sim.Node(s.name, 1)
	s.state, s.applied, s.reaches = catalog.New(), 0, map[string]bool{}
	s.a = Open(Env{
		Loop: s.node.Dedicated("evidence"), Clock: clock.NewSim(s.w.sim.Now, time.UnixMilli(1_000_000)), FS: s.disk, Dir: "data", Store: s.store,
		Trace: trace.SinkFunc(func(e trace.Event) { s.events = append(s.events, e.Name) }),
		View:  func(f func(*catalog.View)) { f(s.state.View()) },
		Send:  s.send, Ahead: s.send,
	})
}

// crash ends the run. How much stays of what was not synced is the disk's to choose.
func (s *site) crash(how uint64) {
	s.node.Stop()
	for _, o := range s.w.sites {
		s.w.part(s, o)
	}
	s.a = nil
	s.disk.Crash(how)
}

// apply has a node apply what is agreed on.
func (s *site) apply() {
	s.w.t.Helper()
	first := s.applied == 0
	var changes []catalog.Change
	for ; s.applied < len(s.w.commands); s.applied++ {
		r, more, err := s.state.Apply(uint64(s.applied+1), s.w.commands[s.applied])
		if err != nil || r.Err() != nil {
			s.w.t.Fatal(err, r.Err())
		}
		changes = append(changes, more...)
	}
	if first { // the whole catalog, as it is
		changes = s.state.Changes()
	}
	s.a.Apply(changes)
}

func (s *site) send(to string, msg any) {
	i := slices.IndexFunc(s.w.sites, func(o *site) bool { return o.name == to })
	o := s.w.sites[i]
	if !s.reaches[to] || o.a == nil || s.w.lose != nil && s.w.lose() {
		return
	}
	m, err := protocol.Parse(protocol.Append(nil, msg))
	if err != nil {
		s.w.t.Fatal(err)
	}
	o.a.Deliver(s.name, m)
}

func (w *world) meet(a, b *site) {
	if a != b && a.a != nil && b.a != nil && !a.reaches[b.name] {
		a.reaches[b.name], b.reaches[a.name] = true, true
		a.a.PeerUp(b.name)
		b.a.PeerUp(a.name)
	}
}

func (w *world) part(a, b *site) {
	if a.reaches[b.name] {
		delete(a.reaches, b.name)
		delete(b.reaches, a.name)
		a.a.PeerDown(b.name)
		b.a.PeerDown(a.name)
	}
}

func (w *world) run() { w.sim.RunFor(time.Second) }

// all has every node apply everything and meet every other, and lets that come to rest.
func (w *world) all() {
	w.lose = nil
	for _, s := range w.sites {
		if s.a == nil {
			s.boot()
		}
		s.apply()
	}
	for i, a := range w.sites {
		for _, b := range w.sites[:i] {
			w.part(a, b)
			w.meet(a, b)
		}
	}
	w.run()
}

// declare makes queues with a copy on every node, and returns their partitions.
func (w *world) declare(n int) (ps []ident.Partition) {
	var followers []catalog.Member
	for _, s := range w.sites[1:] {
		followers = append(followers, catalog.Member{Node: s.name, Store: s.store})
	}
	for i := range n {
		w.do(catalog.DeclareResource(catalog.Resource{
			VHost: catalog.DefaultVHost, Name: fmt.Sprint("q", i), Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{}, Policy: "majority_durable",
		}, w.sites[0].run(), followers, 1))
		ps = append(ps, ident.Partition{Incarnation: uint64(i + 1)})
	}
	return ps
}

func (s *site) run() ident.Instance { return ident.Instance{Node: s.name, Store: s.store, Boot: 1} }

// assignment is that of a partition by all that was agreed on.
func (w *world) assignment(p ident.Partition) *catalog.Assignment {
	w.t.Helper()
	s := catalog.New()
	for i, cmd := range w.commands {
		if _, _, err := s.Apply(uint64(i+1), cmd); err != nil {
			w.t.Fatal(err)
		}
	}
	a, _ := s.View().Assignment(p)
	return a
}

// pend records a transition of a partition, and returns a record of a choice of a node as the owner.
func (w *world) pend(p ident.Partition, chosen *site) *evidence.Evidence {
	w.t.Helper()
	a := w.assignment(p)
	id := fmt.Sprintf("%s@%d.%d", p, a.Epoch+1, a.Version)
	w.do(catalog.RecordPending(p, a.Version, catalog.Pending{ID: id, Epoch: a.Epoch + 1, Cause: "test", Since: int64(len(w.commands))}))
	return &evidence.Evidence{Decided: evidence.Decided{
		ID: id, Workflow: evidence.Failover, Partition: p, VHost: "/", Resource: "q", Kind: catalog.Queue, Cause: "test", Version: a.Version + 1,
		Before: evidence.Reign{Owner: a.Owner, Epoch: a.Epoch}, After: evidence.Reign{Owner: chosen.run(), Epoch: a.Epoch + 1},
		Recorded: int64(len(w.commands)), Chosen: int64(len(w.commands)),
	}}
}

// commit agrees on a choice.
func (w *world) commit(e *evidence.Evidence) {
	a := w.assignment(e.Partition)
	c := catalog.Commit{
		Partition: e.Partition, Version: a.Version, Transition: a.Pending.ID, Owner: e.After.Owner,
		Start: catalog.HistoryStart{Epoch: e.After.Epoch, Node: e.After.Owner.Node, Evidence: e.Digest()},
	}
	for _, s := range w.sites {
		if s.name != e.After.Owner.Node {
			c.Followers = append(c.Followers, catalog.Member{Node: s.name, Store: s.store})
		}
	}
	w.do(catalog.CommitTransition(c))
}

// sameOf checks that all nodes keep the same of a partition, and returns it.
func (w *world) sameOf(p ident.Partition) []*evidence.Evidence {
	w.t.Helper()
	first := w.sites[0].a.Of(p)
	for _, s := range w.sites {
		if got := s.a.Of(p); !slices.EqualFunc(got, first, equal) {
			w.t.Fatalf("%s keeps of %s\n%s\n%s keeps\n%s", s.name, p, list(got), w.sites[0].name, list(first))
		}
	}
	return first
}

func equal(a, b *evidence.Evidence) bool {
	return slices.Equal(evidence.Append(nil, a), evidence.Append(nil, b))
}

func list(es []*evidence.Evidence) (s string) {
	for _, e := range es {
		s += fmt.Sprintf("%+v\n", *e)
	}
	return s
}

// proven checks that of every epoch of a partition that a transition began, there is the record that the catalog names, and none besides.
func (w *world) proven(p ident.Partition, es []*evidence.Evidence) {
	w.t.Helper()
	a, found := w.assignment(p), 0
	for _, s := range a.Starts {
		for _, e := range es {
			if e.Outcome == evidence.Committed && e.After.Epoch == s.Epoch {
				if found++; e.Digest() != s.Evidence {
					w.t.Fatalf("of epoch %d of %s another record is kept than the catalog names: %+v", s.Epoch, p, e)
				}
			}
		}
	}
	if found != len(a.Starts)-1 {
		w.t.Fatalf("%d records of %d changes of owner of %s:\n%s", found, len(a.Starts)-1, p, list(es))
	}
}
