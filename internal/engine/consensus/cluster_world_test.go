package consensus

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/port/clock"
	"github.com/tanist/tanist/internal/port/exec"
	"github.com/tanist/tanist/internal/port/trace"
)

// cluster is a world of many members over a network that loses, delays, repeats, reorders and cuts, and over disks that take their
// time. What must always hold is checked while it runs.
type cluster struct {
	t       testing.TB
	sim     *exec.Sim
	members []*member // in the order in which they were made
	byID    map[uint64]*member

	loss, twice float64           // probabilities
	filter      func([]byte) bool // what never arrives; nil: nothing
	delay       time.Duration
	disk        time.Duration // the longest sync
	snapshot    int

	leaders map[uint64]uint64 // by term
	states  map[uint64]uint64 // digest by index applied
	settled map[string]fact   // what was confirmed
	open    int               // proposals and barriers without an outcome
	given   int               // names
	unsure  int
	refused int
	shipped int // snapshots installed
	told    []trace.Event
}

// fact is what is known for ever of a setting: there at a version, or gone.
type fact struct {
	there   bool
	version uint64
}

// member is one store, through all its runs.
type member struct {
	cl      *cluster
	id      uint64
	local   ident.Instance
	joining bool
	line    ident.Generation // that it waits for
	up      bool
	run     *exec.SimNode
	c       *Consensus
	log     *disk
	view    *catalog.View
	started bool
	removed bool
	leading bool
	cut     map[uint64]bool // it cannot send to these
}

// disk makes what is given to a log durable after a while, in order.
type disk struct {
	*memLog
	cl      *cluster
	stalled bool
	behind  int // operations that a stall holds up
	dead    bool
}

func (d *disk) later() {
	wait := time.Duration(d.cl.sim.Rand().Int64N(int64(d.cl.disk))) + 10*time.Microsecond
	d.cl.sim.At(d.cl.sim.Now()+wait, func() {
		switch {
		case d.dead:
		case d.stalled:
			d.behind++
		default:
			d.sync()
		}
	})
}

func (d *disk) Append(hard []byte, entries []catalog.LogEntry, done func(error)) {
	d.memLog.Append(hard, entries, done)
	d.later()
}

func (d *disk) SaveSnapshot(s catalog.LogSnapshot, done func(error)) {
	d.memLog.SaveSnapshot(s, done)
	d.later()
}

func (d *disk) recover() {
	d.stalled = false
	for ; d.behind > 0; d.behind-- {
		d.later()
	}
}

func newCluster(t testing.TB, seed uint64) *cluster {
	return &cluster{
		t: t, sim: exec.NewSim(seed), byID: map[uint64]*member{}, delay: 2 * time.Millisecond, disk: 2 * time.Millisecond,
		snapshot: 2000, leaders: map[uint64]uint64{}, states: map[uint64]uint64{}, settled: map[string]fact{},
	}
}

// add makes a store; the first makes the cluster, others join.
func (cl *cluster) add() *member {
	n := len(cl.members)
	m := &member{
		cl: cl, joining: n > 0, cut: map[uint64]bool{},
		local: ident.Instance{Node: fmt.Sprint("n", n), Store: ident.StoreID{0: byte(n*37 + 11), 7: byte(n)}},
		log:   &disk{memLog: &memLog{silent: true}, cl: cl},
	}
	m.id = ID(m.local.Store)
	cl.members = append(cl.members, m)
	cl.byID[m.id] = m
	m.start()
	return m
}

func (m *member) start() {
	cl := m.cl
	m.local.Boot++
	m.up, m.started, m.leading, m.view = true, false, false, catalog.NewView()
	m.run = cl.sim.Node(m.local.Node, 1)
	must := cl.confirmed()
	c := New(Env{
		Loop: m.run.Loop(0), Clock: clock.NewSim(cl.sim.Now, time.Unix(0, 0)), Log: m.log, Local: m.local, Transport: wire{m},
		Joining: m.joining, SnapshotBytes: cl.snapshot, Generation: func() ident.Generation { return m.line },
		Trace: trace.SinkFunc(func(e trace.Event) {
			cl.told = append(cl.told, e)
			if e.Name == "consensus.snapshot.installed" {
				cl.shipped++
			}
		}),
		Bootstrap: func() ([]byte, error) { return catalog.Encode(catalog.Bootstrap(ident.StoreID{1}, guest)...) },
		Leading:   m.lead,
		Failed: func(err error) {
			if !errors.Is(err, ErrRemoved) {
				cl.t.Fatalf("%s failed: %v", m.local.Node, err)
			}
			m.removed = true
			m.stop()
		},
	})
	m.c = c
	c.OnApply(func(changes []catalog.Change) { m.apply(c, changes) })
	c.Start(func(err error) {
		if err != nil {
			return
		}
		m.started = true
		for name, f := range must {
			if now, known := cl.settled[name]; known && now == f {
				m.check(name, f)
			}
		}
	})
}

// confirmed is a copy of what is known for ever.
func (cl *cluster) confirmed() map[string]fact {
	out := map[string]fact{}
	for k, v := range cl.settled {
		out[k] = v
	}
	return out
}

func (m *member) check(name string, f fact) {
	s := m.c.State().View().Setting(name)
	if f.there != (s != nil) || s != nil && s.Version != f.version {
		m.cl.t.Fatalf("at %v %s has %+v of %s, which is known as %+v", m.cl.sim.Now(), m.local.Node, s, name, f)
	}
}

func (m *member) lead(term uint64, leading bool) {
	m.leading = leading
	if was, known := m.cl.leaders[term]; known && was != m.id {
		m.cl.t.Fatalf("two leaders of term %d", term)
	}
	m.cl.leaders[term] = m.id
}

// apply checks that the state after an index is the same on all members, and that the changes lead to it.
func (m *member) apply(c *Consensus, changes []catalog.Change) {
	m.view.Apply(changes)
	h := fnv.New64a()
	h.Write(encodeSnapshot(c.conf, c.ledger, c.State().Snapshot()))
	if was, known := m.cl.states[c.applied]; known && was != h.Sum64() {
		m.cl.t.Fatalf("at %v %s has another state at index %d than others", m.cl.sim.Now(), m.local.Node, c.applied)
	}
	m.cl.states[c.applied] = h.Sum64()
	var mine, all []string
	for _, s := range m.view.Settings() {
		mine = append(mine, fmt.Sprint(*s))
	}
	for _, s := range c.State().View().Settings() {
		all = append(all, fmt.Sprint(*s))
	}
	if !slices.Equal(mine, all) {
		m.cl.t.Fatalf("%s: listeners were told %v, the state is %v", m.local.Node, mine, all)
	}
}

// stop is a crash: some of what was on its way to the disk arrives.
func (m *member) stop() { m.crash(m.cl.sim.Rand().IntN(len(m.log.pending) + 1)) }

func (m *member) crash(kept int) {
	m.up, m.leading = false, false
	m.run.Stop()
	m.log.dead = true
	m.log = &disk{memLog: m.log.crash(kept), cl: m.cl}
}

// wire is a member's end of the network.
type wire struct{ from *member }

func (w wire) Send(to uint64, msg []byte) {
	cl := w.from.cl
	r := cl.sim.Rand()
	for copies := 1; copies > 0; copies-- {
		if w.from.cut[to] || r.Float64() < cl.loss || cl.filter != nil && cl.filter(msg) {
			continue
		}
		if r.Float64() < cl.twice {
			copies++
		}
		b := slices.Clone(msg)
		cl.sim.At(cl.sim.Now()+50*time.Microsecond+time.Duration(r.Int64N(int64(cl.delay))), func() {
			if m := cl.byID[to]; m != nil && m.up {
				m.c.Deliver(b)
			}
		})
	}
}

// sever cuts a member off, both ways, and tells everybody if loud.
func (cl *cluster) sever(m *member, loud bool) {
	for _, o := range cl.members {
		if o == m {
			continue
		}
		m.cut[o.id], o.cut[m.id] = true, true
		if loud {
			o.c.PeerDown(m.id)
			m.c.PeerDown(o.id)
		}
	}
}

func (cl *cluster) heal() {
	cl.loss, cl.twice, cl.delay, cl.filter = 0, 0, 2*time.Millisecond, nil
	for _, m := range cl.members {
		clear(m.cut)
		m.log.recover()
		cl.meet(m)
	}
}

// meet tells a member and all others that they reach each other.
func (cl *cluster) meet(m *member) {
	for _, o := range cl.members {
		if o != m && m.up && o.up {
			m.c.PeerUp(o.id)
			o.c.PeerUp(m.id)
		}
	}
}

// await lets time pass until something holds.
func (cl *cluster) await(what string, limit time.Duration, cond func() bool) time.Duration {
	cl.t.Helper()
	from := cl.sim.Now()
	if !cl.sim.RunUntil(cond, limit) {
		for _, m := range cl.members {
			if m.up {
				cl.t.Logf("%s: %+v, writes %d, leading %v, started %v", m.local.Node, m.c.status(), len(m.c.writes), m.leading, m.started)
			}
		}
		for _, e := range cl.told[max(0, len(cl.told)-30):] {
			cl.t.Logf("  %s %v", e.Name, e.Attrs)
		}
		cl.t.Fatalf("seed %d: no %s within %v", cl.sim.Seed(), what, limit)
	}
	return cl.sim.Now() - from
}

// leader is who leads, if that is one whom a majority would follow.
func (cl *cluster) leader() (lead *member) {
	for _, m := range cl.members {
		if m.up && m.leading && (lead == nil || m.c.term > lead.c.term) {
			lead = m
		}
	}
	return lead
}

// change changes the members through whoever leads, until it is done.
func (cl *cluster) change(op MemberOp, id uint64) {
	cl.t.Helper()
	asked, done := false, false
	cl.await(fmt.Sprint(op, " of ", cl.byID[id].local.Node), 20*time.Second, func() bool {
		l := cl.leader()
		if done || asked || l == nil {
			return done
		}
		asked = true
		l.c.Change(MemberChange{op, id}, func(err error) {
			done = err == nil
			cl.sim.At(cl.sim.Now()+20*time.Millisecond, func() { asked = false })
		})
		return false
	})
}

// grow makes a cluster of voters.
func (cl *cluster) grow(voters int) {
	cl.t.Helper()
	first := cl.add()
	cl.await("first start", 5*time.Second, func() bool { return first.started })
	for range voters - 1 {
		m := cl.add()
		cl.change(AddLearner, m.id)
		cl.await("start of a joined member", 5*time.Second, func() bool { return m.started })
		cl.change(AddVoter, m.id)
	}
}

// put has a member make a setting, and sometimes delete it once that is confirmed. A late second application would bring it back, or
// be seen as refused.
func (cl *cluster) put(m *member) {
	cl.given++
	name := fmt.Sprint("s", cl.given)
	remove := cl.sim.Rand().IntN(3) > 0
	cl.propose(m, catalog.PutSetting(name, m.local.String(), 0), func(r catalog.Result) {
		s, ok := r.Items[0].Object.(*catalog.Setting)
		if !ok || !r.Items[0].Created {
			cl.t.Fatalf("%s was applied before: %+v", name, r.Items[0].Refused)
		}
		cl.settled[name] = fact{true, s.Version}
		if !remove || !m.up {
			return
		}
		delete(cl.settled, name) // until the outcome is known
		cl.propose(m, catalog.DeleteSetting(name, s.Version), func(r catalog.Result) {
			if r.Err() != nil {
				cl.t.Fatalf("the deletion of %s was applied before: %v", name, r.Err())
			}
			cl.settled[name] = fact{}
		})
	})
}

func (cl *cluster) propose(m *member, item catalog.Item, done func(catalog.Result)) {
	cmd, err := catalog.Encode(item)
	if err != nil {
		cl.t.Fatal(err)
	}
	cl.open++
	answers, run := 0, m.run
	m.c.Propose(cmd, func(r catalog.Result, err error) {
		if answers++; answers > 1 {
			cl.t.Fatal("a proposal was answered twice")
		}
		cl.open--
		switch {
		case err == nil:
			done(r)
		case errors.Is(err, ErrUncertain):
			cl.unsure++
		case errors.Is(err, ErrNotProposed):
			cl.refused++
		default:
			cl.t.Fatalf("a proposal ended with %v", err)
		}
	})
	cl.lostWith(run, &answers)
}

// lostWith counts what a crash takes with it, which nobody answers.
func (cl *cluster) lostWith(run *exec.SimNode, answers *int) {
	var look func()
	look = func() {
		switch {
		case *answers > 0:
		case run.Stopped():
			cl.open--
		default:
			cl.sim.At(cl.sim.Now()+100*time.Millisecond, look)
		}
	}
	look()
}

// read has a member pass a barrier, after which it must have everything that was confirmed before.
func (cl *cluster) read(m *member) {
	must := cl.confirmed()
	cl.open++
	answers, run, c := 0, m.run, m.c
	c.Barrier(func(err error) {
		answers++
		cl.open--
		if err != nil {
			return
		}
		for name, f := range must {
			if now, known := cl.settled[name]; known && now == f {
				m.check(name, f)
			}
		}
	})
	cl.lostWith(run, &answers)
}

// alike says whether all members that are up have started and are at the same index.
func (cl *cluster) alike() bool {
	var at uint64
	for _, m := range cl.members {
		switch {
		case m.removed:
		case !m.up || !m.started || at != 0 && m.c.applied != at:
			return false
		default:
			at = m.c.applied
		}
	}
	return cl.leader() != nil
}
