package replica

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/port/trace"
)

// errStopped is given when a replica is asked for after Stop.
var errStopped = errors.New("the node is stopping")

// Apply takes changes of the catalog, in order: resources make and remove replicas, assignments give them roles, nodes bury the
// gateways of older boots, and those that leave all of theirs, settings say how much is kept and sent for copies that are behind. The first
// call should carry the whole catalog. Calls that name the same object must not overlap.
func (m *Manager) Apply(changes []catalog.Change) {
	highest := m.incarnations.Load()
	for i := range changes {
		switch o := changes[i].After.(type) {
		case *catalog.Resource:
			m.resource(o)
			if o.Incarnation&ident.TransientBit == 0 {
				highest = max(highest, o.Incarnation)
			}
		case *catalog.Node:
			m.node(o)
		case *catalog.Setting:
			m.setting(changes[i])
		case *catalog.Deletion:
			m.puts(o.Incarnation)
			highest = max(highest, o.Incarnation)
		case nil:
			m.setting(changes[i])
			switch o := changes[i].Before.(type) {
			case *catalog.Resource:
				m.remove(o)
			case *catalog.Node:
				m.removeNode(o)
			case *catalog.Deletion:
				m.letGo(o.Incarnation)
			}
		}
	}
	m.incarnations.Store(highest)
}

// resource brings the replicas of a resource in line with its assignments.
func (m *Manager) resource(res *catalog.Resource) {
	for _, a := range res.Partitions {
		role, ok := partition.RoleOf(a, m.env.Local)
		if !ok {
			m.assign(res, a, partition.None, false)
			continue
		}
		m.assign(res, a, role, true)
	}
}

func (m *Manager) known(p ident.Partition) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.unowned[p] != nil
}

// assign tells a replica what the catalog says of it. One that is not there is made if named says that the assignment names this store.
func (m *Manager) assign(res *catalog.Resource, a *catalog.Assignment, role partition.Role, named bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if named || m.all[a.Partition] != nil || m.unowned[a.Partition] != nil {
		m.assignLocked(res, a, role)
	}
}

func (m *Manager) assignLocked(res *catalog.Resource, a *catalog.Assignment, role partition.Role) {
	r, err := m.obtainLocked(a.Partition)
	if err != nil {
		trace.Error(m.env.Trace, "replica.create.failed", slog.String("partition", a.Partition.String()), slog.String("error", err.Error()))
		return
	}
	if _, goes := m.going[a.Partition]; goes {
		m.going[a.Partition] = &assignment{res, a, role}
		return
	}
	r.box.Post(assignment{res, a, role})
}

// obtain is the replica of a partition, made if there is none.
func (m *Manager) obtain(p ident.Partition) (*replica, error) {
	if r := m.find(p); r != nil {
		return r, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.obtainLocked(p)
}

func (m *Manager) obtainLocked(p ident.Partition) (*replica, error) {
	if r := m.all[p]; r != nil {
		return r, nil
	}
	if m.stopped {
		return nil, errStopped
	}
	log, ok := m.unowned[p]
	switch {
	case ok:
		delete(m.unowned, p)
	case p.Transient():
		log = m.env.Memory(p)
	default:
		var err error
		if log, err = m.env.Store.Create(p); err != nil {
			return nil, err
		}
	}
	n := int(spread(p) % uint64(len(m.lanes)))
	r := &replica{m: m, lane: m.lanes[n], id: p, log: log, copy: partition.Open(log.Image())}
	r.box = m.env.Exec.Loop(n).Spawn("replica", r)
	if x := m.rights.now.Load(); x != nil {
		r.regained = x.regained
	}
	r.halts = m.halts()
	m.all[p] = r
	return r, nil
}

// spread mixes a partition's name so that neighbours lie on different loops.
func spread(p ident.Partition) uint64 {
	x := p.Incarnation*0x9E3779B97F4A7C15 + uint64(p.Index)*0xBF58476D1CE4E5B9
	x ^= x >> 31
	x *= 0x94D049BB133111EB
	return x ^ x>>29
}

// remove ends the replicas of a deleted resource and drops their copies, or puts them aside where it was deleted by force.
func (m *Manager) remove(res *catalog.Resource) {
	for _, a := range res.Partitions {
		m.mu.Lock()
		r, log := m.all[a.Partition], m.unowned[a.Partition]
		delete(m.all, a.Partition)
		delete(m.unowned, a.Partition)
		delete(m.going, a.Partition)
		m.mu.Unlock()
		if r != nil {
			r.box.Post(deleted{})
		} else if log != nil {
			m.end(log)
		}
	}
}

// retires keeps the assignments that come from now on for when the copy of a replica is dropped.
func (m *Manager) retires(r *replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[r.id] != r {
		return // its resource was deleted
	}
	if m.going == nil {
		m.going = map[ident.Partition]*assignment{}
	}
	m.going[r.id] = nil
}

// retire forgets a replica whose copy has been dropped, and which has seen all that was sent there. Where the newest assignment names the store
// again, a replica is made that begins with nothing.
func (m *Manager) retire(r *replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[r.id] != r {
		return
	}
	newest := m.going[r.id]
	delete(m.all, r.id)
	delete(m.going, r.id)
	if newest == nil {
		newest = &assignment{res: r.res, a: r.want}
	}
	if role, named := partition.RoleOf(newest.a, m.env.Local); named {
		m.assignLocked(newest.res, newest.a, role)
	}
}

// DropUnknown drops the copies that the catalog does not know, and returns which; those of what was deleted by force are put aside. It may only be called once this node has applied
// everything that the catalog's consensus had agreed on when the node started: a deletion that a crash cut short is finished here.
func (m *Manager) DropUnknown() []ident.Partition {
	m.mu.Lock()
	ps := make([]ident.Partition, 0, len(m.unowned))
	for p := range m.unowned {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, ident.Partition.Compare)
	logs := make([]Log, len(ps))
	for i, p := range ps {
		logs[i] = m.unowned[p]
	}
	m.unowned = map[ident.Partition]Log{} // anew: a map keeps the room that it once took
	m.mu.Unlock()
	dropped := ps[:0]
	for i, p := range ps {
		if m.end(logs[i]) {
			dropped = append(dropped, p)
		}
	}
	return dropped
}

// node takes note of a node's run. Gateways of its earlier runs are detached everywhere.
func (m *Manager) node(n *catalog.Node) {
	m.mu.Lock()
	old := m.runs.Load()
	was, is := old.of[n.Name], run{n.Boot, n.Number, n.Absent}
	if was == is {
		m.mu.Unlock()
		return
	}
	next := &runs{of: maps.Clone(old.of), highest: max(old.highest, n.Number)}
	next.of[n.Name] = is
	m.runs.Store(next)
	m.mu.Unlock()
	anew := was.boot != is.boot || was.number != is.number
	for _, r := range m.sorted() {
		if anew {
			r.box.Post(bury{})
		}
		if is.absent != 0 {
			r.box.Post(away{n.Name})
		}
	}
}

// removeNode forgets a node that has left the cluster, and its gateways everywhere: no later run of it will ever be registered to bury them.
func (m *Manager) removeNode(n *catalog.Node) {
	m.mu.Lock()
	old := m.runs.Load()
	next := &runs{of: maps.Clone(old.of), highest: old.highest}
	delete(next.of, n.Name)
	m.runs.Store(next)
	delete(m.silent, n.Name)
	m.mu.Unlock()
	for _, r := range m.sorted() {
		r.box.Post(bury{}) // its producers go
		r.box.Post(peerLeft{n.Name})
	}
}

// setting takes note of a setting.
func (m *Manager) setting(c catalog.Change) {
	t := *m.tunables.Load()
	hold := t.FollowerLossHold
	if !t.Follow(c) {
		return
	}
	m.tunables.Store(&t)
	if t.FollowerLossHold == hold {
		return
	}
	for _, r := range m.sorted() {
		r.box.Post(call{r.lookFormer})
	}
}

// keptUntil is until when, in milliseconds since 1970, the log is kept for the copy of a node that is away; ok is false where it is not.
func (m *Manager) keptUntil(node string) (at int64, ok bool) {
	since := m.runs.Load().of[node].absent
	return since + m.tunables.Load().HoldMillis(), since != 0
}

// turn gives a piece its turn among what the node sends to copies that catch up from far.
func (m *Manager) turn(bytes int64) (wait time.Duration) {
	m.pacing.Lock()
	defer m.pacing.Unlock()
	return m.pace.Turn(m.env.Clock.Mono(), bytes, m.tunables.Load().LearnerRate)
}

// alone is the sets of an owner without followers, kept once.
var alone = []partition.Set{{W: 1}}

// setsOf is what confirms an entry under an assignment.
func setsOf(res *catalog.Resource, a *catalog.Assignment) ([]partition.Set, error) {
	s, err := partition.SetOf(a, res.Kind)
	if err != nil {
		return nil, err
	}
	if s.W == 1 && len(s.Followers) == 0 {
		return alone, nil
	}
	return []partition.Set{s}, nil
}

// SetAside is the role of a copy whose resource was deleted by force.
const SetAside = "set aside"

// aside is what was deleted by force, and is kept until that is forgotten (catalog.Deletion). Nothing is served of it, no seal reaches it, and no
// assignment can name it again: an incarnation is given once. The manager's lock is held.
type aside struct {
	of   map[uint64]bool         // incarnations
	logs map[ident.Partition]Log // of copies here
}

// puts has the copies of an incarnation put aside when its resource goes.
func (m *Manager) puts(incarnation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.aside.of == nil {
		m.aside = aside{map[uint64]bool{}, map[ident.Partition]Log{}}
	}
	m.aside.of[incarnation] = true
}

// letGo drops what was put aside for an incarnation.
func (m *Manager) letGo(incarnation uint64) {
	m.mu.Lock()
	delete(m.aside.of, incarnation)
	var logs []Log
	for _, p := range slices.SortedFunc(maps.Keys(m.aside.logs), ident.Partition.Compare) {
		if p.Incarnation == incarnation {
			logs = append(logs, m.aside.logs[p])
			delete(m.aside.logs, p)
		}
	}
	m.mu.Unlock()
	for _, l := range logs {
		l.Delete(m.dropped(l.Image().Partition))
	}
}

// end drops a copy that nothing uses any more, or puts it aside; it reports whether it was dropped.
func (m *Manager) end(l Log) (dropped bool) {
	image := l.Image()
	p := image.Partition
	m.mu.Lock()
	if m.aside.of[p.Incarnation] {
		m.aside.logs[p] = l
		m.mu.Unlock()
		bytes, _ := l.Size()
		trace.Warn(m.env.Trace, "copy.set.aside", slog.String("partition", p.String()), slog.Uint64("position", image.Tail.Position), slog.Int64("bytes", bytes))
		return false
	}
	m.mu.Unlock()
	l.Delete(m.dropped(p))
	return true
}

// asides are the copies that were put aside, in order of partition.
func (m *Manager) asides() (out []Status) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range slices.SortedFunc(maps.Keys(m.aside.logs), ident.Partition.Compare) {
		image := m.aside.logs[p].Image()
		s := Status{
			Partition: p, Role: SetAside, State: Waiting, Reason: image.Damaged, Epoch: image.RoleEpoch, Position: image.Tail.Position,
			Offset: image.Tail.Offset, Durable: image.Tail.Position,
		}
		s.Bytes, _ = m.aside.logs[p].Size()
		out = append(out, s)
	}
	return out
}

// dropped reports the failure of a deletion. What stays on disk is harmless: no later incarnation has its name.
func (m *Manager) dropped(p ident.Partition) func(error) {
	return func(err error) {
		if err != nil {
			trace.Warn(m.env.Trace, "replica.delete.failed", slog.String("partition", p.String()), slog.String("error", err.Error()))
		}
	}
}
