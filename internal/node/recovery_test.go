package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/engine/consensus"
	"github.com/tanist/tanist/internal/engine/storage"
	"github.com/tanist/tanist/internal/node/identity"
	"github.com/tanist/tanist/internal/node/recovery"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
)

// offline is what an operator reaches a node's directory with, while the node does not run.
func (w *world) offline() recovery.Env {
	if w.runs++; w.off != nil {
		w.off.Stop()
	}
	w.off = w.sim.Node(w.name+" offline", 1)
	return recovery.Env{
		FS: w.disk, Random: exec.NewSimRandom(w.runs, w.name), Clock: clock.NewSim(w.sim.Now, time.UnixMilli(1_900_000_000_000)), Exec: w.off,
		Await: func(begin func(func(error))) (err error) {
			done := false
			begin(func(e error) { err, done = e, true })
			w.await("the end of a step", func() bool { return done })
			return err
		},
	}
}

// stricken is a cluster of three whose nodes keep an identity, as in production, and of which all are down.
type stricken struct {
	*cluster
	ids  []*identity.File
	left map[string]*consensus.Superseded // who was left behind
}

func strike(t *testing.T, seed uint64, queues ...string) *stricken {
	t.Helper()
	c := &stricken{cluster: newCluster(t, seed, 3), left: map[string]*consensus.Superseded{}}
	c.await("three voters", func() bool { return c.voters(0) == 3 })
	u := c.nodes[0].login(0)
	for _, q := range queues {
		u.declare(durable(q))
		u.publish(q, "before "+q)
	}
	c.sim.RunFor(2 * time.Second)
	for i, w := range c.nodes {
		id := &identity.File{Node: w.name, Store: w.n.Local().Store, Joined: i > 0}
		inner := w.cfg
		w.cfg = func(cfg *Config) {
			inner(cfg)
			cfg.Generation, cfg.Joining = c.ids[i].Generation, c.ids[i].Joined
			cfg.Failed = func(err error) {
				if by := (*consensus.Superseded)(nil); errors.As(err, &by) {
					c.left[w.name] = by
				}
			}
		}
		c.kill(i)
		w.disk.Heal()
		if err := id.Write(w.disk, "data"); err != nil {
			t.Fatal(err)
		}
		c.ids = append(c.ids, id)
	}
	return c
}

// recover has the catalog go on from a node without the two others.
func (c *stricken) recover(i int) *recovery.Plan {
	c.t.Helper()
	w, lost := c.nodes[i], []string{}
	for k, o := range c.nodes {
		if k != i {
			lost = append(lost, o.name)
		}
	}
	p, err := recovery.Make(w.offline(), "data", lost, nil, "")
	if err != nil {
		c.t.Fatal(err)
	}
	if p, err = recovery.Carry(w.offline(), "data", p.Plan, lost, nil, "the rack burnt"); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// meet starts a node of the old line where it reaches the one that goes on: it is left behind. That is written down, as Serve does.
func (c *stricken) meet(i int) {
	c.t.Helper()
	w := c.nodes[i]
	n, err := w.make()
	if err != nil {
		c.t.Fatal(err)
	}
	w.n = n
	n.Start(func(error) {})
	c.await(w.name+" is left behind", func() bool { return c.left[w.name] != nil })
	if n.Ready() == nil {
		c.t.Errorf("%s is ready, and was left behind", w.name)
	}
	by := c.left[w.name]
	c.ids[i].Superseded = &identity.Superseded{By: by.By, Generation: by.Of}
	c.kill(i)
	if err := c.ids[i].Write(w.disk, "data"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *stricken) rejoin(i int) {
	c.t.Helper()
	w := c.nodes[i]
	if _, err := recovery.Rejoin(w.offline(), "data"); err != nil {
		c.t.Fatal(err)
	}
	id, err := identity.Read(w.disk, "data")
	if err != nil || id.Superseded != nil || id.Generation != c.left[w.name].Of {
		c.t.Fatalf("%v: %+v", err, id)
	}
	c.ids[i] = id
	c.restart(i)
}

// Any of three nodes goes on alone; the two others, whether they meet it one after the other or together, stop, put their catalogs aside and follow.
// No loss was accepted: everything is there, and served again, with three voters.
func TestTheCatalogGoesOnFromOneOfThree(t *testing.T) {
	for first := range 3 {
		t.Run(fmt.Sprint("n", first+1), func(t *testing.T) {
			queues := []string{"q1", "q2", "q3", "q4"}
			c := strike(t, uint64(first+1), queues...)
			plan := c.recover(first)
			c.restart(first)
			for i, w := range c.nodes {
				if i == first {
					continue
				}
				c.meet(i)
				if by := c.left[w.name]; by.By != c.nodes[first].name || by.Of != plan.Recovery.Generation() || by.Here != ident.FirstGeneration {
					t.Errorf("%s: %+v", w.name, by)
				}
			}
			for i := range c.nodes {
				if i != first {
					c.rejoin(i)
				}
			}
			c.await("three voters again", func() bool { return c.voters(first) == 3 })
			for _, q := range queues {
				u := c.nodes[(first+1)%3].login(0)
				u.publish(q, "after "+q)
				if got := u.consume(q, 2); !slices.Equal(got, []string{"before " + q, "after " + q}) {
					t.Errorf("%s holds %q", q, got)
				}
				if a := c.assignment(first, q); a.Epoch < 1<<20 || a.Eligible() != 3 {
					t.Errorf("%s: epoch %d, %d copies", q, a.Epoch, a.Eligible())
				}
			}
		})
	}
}

// The two that were lost come back together, out of reach of the one that goes on: they are the majority of their line, and go on in it. When they
// reach it they stop: neither serves any more, and neither leads.
func TestTheOldMajorityStopsWhereItMeetsTheNewLine(t *testing.T) {
	c := strike(t, 5, "q")
	c.recover(0)
	c.restart(0)
	for _, i := range []int{1, 2} {
		c.net.Cut("n1", c.nodes[i].name)
		c.net.Cut(c.nodes[i].name, "n1")
	}
	n2, err := c.nodes[1].make()
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[1].n = n2
	n2.Start(func(error) {})
	c.restart(2)
	if len(c.left) > 0 {
		t.Fatalf("left behind before they met: %v", c.left)
	}
	c.net.Heal()
	c.await("both stop", func() bool { return len(c.left) == 2 })
	for _, i := range []int{1, 2} {
		if c.nodes[i].n.Ready() == nil {
			t.Errorf("%s is ready", c.nodes[i].name)
		}
	}
	if c.left["n1"] != nil || c.nodes[0].n.failure != nil {
		t.Error("the one that goes on stopped")
	}
}

// A crash at any point of a recovery leaves the old catalog or the new one, and at any point of a rejoin a directory that it can be asked for again.
func TestACrashWhileTheCatalogIsRecovered(t *testing.T) {
	for how := range uint64(3) {
		done := false
		for n := 0; !done; n++ {
			c := strike(t, 7, "q")
			w := c.nodes[0]
			p, err := recovery.Make(w.offline(), "data", []string{"n2", "n3"}, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			w.disk.FailAfter(n%2 == 0, n/2)
			_, err = recovery.Carry(w.offline(), "data", p.Plan, []string{"n2", "n3"}, nil, "the rack burnt")
			done = err == nil
			w.disk.Heal()
			w.disk.Crash(how)
			d, err := recovery.Look(w.offline(), "data")
			if err != nil {
				t.Fatalf("fault %d, crash %d: %v", n, how, err)
			}
			switch d.Log.Generation {
			case ident.FirstGeneration:
				if done || d.Log.Index != p.Directory.Log.Index || len(d.Log.Voters) != 3 {
					t.Fatalf("fault %d, crash %d: done %t, %+v", n, how, done, d.Log)
				}
			default:
				if d.Log.Index != p.Recovery.Index || len(d.Log.Voters) != 1 || len(d.Log.Recoveries) != 1 {
					t.Fatalf("fault %d, crash %d: %+v", n, how, d.Log)
				}
			}
		}
	}
}

func TestACrashWhileANodeRejoins(t *testing.T) {
	c := strike(t, 8, "q")
	c.recover(0)
	c.restart(0)
	c.meet(1)
	w := c.nodes[1]
	var r recovery.Rejoined
	var err error
	aside, n := "", 0
	for ; ; n++ {
		w.disk.FailAfter(n%2 == 0, n/4)
		r, err = recovery.Rejoin(w.offline(), "data")
		w.disk.Heal()
		if r.Aside != "" {
			aside = r.Aside
		}
		if err == nil {
			break
		}
		w.disk.Crash(uint64(n % 3))
		if id, err := identity.Read(w.disk, "data"); err != nil || id.Superseded == nil {
			t.Fatalf("after fault %d: %v, %+v: the node could start", n, err, id)
		}
	}
	if n < 4 || r.Generation != c.left["n2"].Of {
		t.Errorf("after %d faults: %+v", n, r)
	}
	names, _ := w.disk.List("data/aside")
	if len(names) == 0 {
		t.Fatalf("nothing is kept in %q (%s)", "data/aside", aside)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".new") {
			continue
		}
		if kept, err := storage.ReadLogAside(w.disk, "data/aside/"+name); err != nil || kept.Snapshot.Index == 0 {
			t.Errorf("%s: %v, %+v", name, err, kept.Snapshot.Index)
		}
	}
	if _, err := recovery.Rejoin(w.offline(), "data"); !errors.Is(err, recovery.ErrRefused) {
		t.Errorf("a second rejoin: %v", err)
	}
	id, err := identity.Read(w.disk, "data")
	if err != nil {
		t.Fatal(err)
	}
	c.ids[1] = id
	c.restart(1)
}

// What must not be done is refused, with what to do instead.
func TestRecoveriesAndRejoinsThatAreRefused(t *testing.T) {
	c := strike(t, 9)
	w := c.nodes[0]
	refused := func(what string, err error, is error, says string) {
		t.Helper()
		if !errors.Is(err, is) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := recovery.Rejoin(w.offline(), "data")
	refused("a rejoin of a node that nobody told", err, recovery.ErrRefused, "start it once")
	_, err = recovery.Make(w.offline(), "data", []string{"n2"}, []string{"n3"}, "")
	refused("a majority", err, consensus.ErrNoRecovery, "a majority")
	p, err := recovery.Make(w.offline(), "data", []string{"n2", "n3"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = recovery.Carry(w.offline(), "data", p.Plan, []string{"n2", "n3"}, nil, " ")
	refused("no reason", err, recovery.ErrRefused, "needs a reason")
	_, err = recovery.Carry(w.offline(), "data", p.Plan, []string{"n2"}, []string{"n3"}, "r")
	refused("other words", err, consensus.ErrNoRecovery, "")
	_, err = recovery.Carry(w.offline(), "data", "another", []string{"n2", "n3"}, nil, "r")
	refused("another plan", err, recovery.ErrPlanMoved, "")
	c.recover(0)
	c.restart(0)
	c.meet(1)
	_, err = recovery.Make(c.nodes[1].offline(), "data", []string{"n1", "n3"}, nil, "")
	refused("a node that was left behind", err, recovery.ErrRefused, "left behind")
	_, err = recovery.Make(w.offline(), "data", []string{"n2", "n3"}, nil, "")
	refused("a node that runs", err, storage.ErrInUse, "stop the node")
}
