package partition

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
)

// cluster is three copies, their disks and a catalog, driven in any order. What was once confirmed must be in every later owner's log
// (invariants 1 to 3 of design 2 §11).
type cluster struct {
	t         *rapid.T
	nodes     []*member
	a         *catalog.Assignment
	confirmed []batch.Link // link after each confirmed position, by position; the zero link where it is not a boundary
	label     int
	answers   map[string]control.Answer
}

// member is one node: a copy, its disk, and what is under way to the disk.
type member struct {
	name  string
	store ident.StoreID
	boot  uint64
	up    bool
	c     Copy
	disk  Image
	log   []stored // linked; the first synced are durable
	sync  int
	step  *Effect // under way
	seals int     // answered
}

func (m *member) instance() ident.Instance {
	return ident.Instance{Node: m.name, Store: m.store, Boot: m.boot}
}

func newCluster(t *rapid.T) *cluster {
	k := &cluster{t: t}
	for i := range 3 {
		m := &member{name: fmt.Sprintf("n%d", i), store: ident.StoreID{byte(i + 1)}, boot: 1, up: true}
		m.c = Open(m.disk)
		k.nodes = append(k.nodes, m)
	}
	k.a = &catalog.Assignment{
		Epoch: 1, Version: 1, Owner: k.nodes[0].instance(), Starts: []catalog.HistoryStart{{Epoch: 1, Node: "n0"}},
		Followers: []catalog.Member{{Node: "n1", Store: k.nodes[1].store}, {Node: "n2", Store: k.nodes[2].store}},
	}
	return k
}

const w = 2 // majority of three

// do performs what a copy asks for: steps wait for the disk.
func (k *cluster) do(m *member, fx Effects) {
	for i := range fx {
		e := fx[i]
		switch e.Kind {
		case SavePromise, DropEnd, SaveRole:
			m.step = &e
		case FindTail:
			k.find(m, e.Cut)
		case WriteMark:
			k.append(m)
		case Advanced:
			k.checkConfirmed(m, e.Position)
		case SealReady:
			m.seals++
		case Assumed, Closed, Refused:
		}
	}
}

func (k *cluster) find(m *member, cut catalog.HistoryStart) {
	t := batch.Tail{}
	for _, s := range m.log {
		if s.tail.Position == cut.Position {
			t = s.tail
		}
	}
	if t.Position != cut.Position || t.Link != cut.Link {
		k.t.Fatalf("%s is to be cut at %d, where its history is another", m.name, cut.Position)
	}
	var fx Effects
	m.c.TailFound(t, &fx)
	k.do(m, fx)
}

func (k *cluster) append(m *member) {
	var b batch.Builder
	k.label++
	b.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, fmt.Append(nil, k.label)))
	made := b.Finish(ident.Partition{}, m.c.Epoch(), m.c.Tail(), 0)
	link := made.Link()
	if m.c.Propose(made, link) == nil {
		m.log = append(m.log, stored{made, link, m.c.Tail()})
	}
}

// checkConfirmed notes what an owner confirmed, and that nobody confirmed anything else there.
func (k *cluster) checkConfirmed(m *member, position uint64) {
	if m.c.Role() != Owner {
		return // a follower learned it; its log is compared at the end
	}
	for _, s := range m.log {
		p := s.tail.Position
		if p > position {
			break
		}
		for uint64(len(k.confirmed)) <= p {
			k.confirmed = append(k.confirmed, batch.Link{})
		}
		if k.confirmed[p] != (batch.Link{}) && k.confirmed[p] != s.link {
			k.t.Fatalf("%s of epoch %d confirmed another history at %d", m.name, m.c.Epoch(), p)
		}
		k.confirmed[p] = s.link
	}
	if held := k.holders(position); held < w {
		k.t.Fatalf("%s confirmed %d, which %d copies hold durably", m.name, position, held)
	}
}

// holders counts the copies that hold the confirmed history up to a position durably.
func (k *cluster) holders(position uint64) int {
	n := 0
	for _, m := range k.nodes {
		for _, s := range m.log[:m.sync] {
			if s.tail.Position == position && s.link == k.confirmed[position] {
				n++
			}
		}
	}
	return n
}

// disk lets one thing become durable: a step, or the oldest append.
func (k *cluster) diskStep(m *member) {
	var fx Effects
	switch {
	case m.step != nil:
		e := *m.step
		m.step = nil
		switch e.Kind {
		case SavePromise:
			m.disk.Promise = e.Epoch
		case SaveRole:
			m.disk.Role, m.disk.RoleEpoch = e.Role, e.Epoch
		case DropEnd:
			for len(m.log) > 0 && m.log[len(m.log)-1].tail.Position > e.Tail.Position {
				m.log = m.log[:len(m.log)-1]
			}
			m.sync = min(m.sync, len(m.log))
		}
		m.c.Saved(&fx)
	case m.sync < len(m.log):
		m.sync++
		m.c.AppendDone(&fx)
	}
	k.do(m, fx)
}

// replicate sends a copy the owner's next batch, and the owner the copy's progress and the copy the confirmed position.
func (k *cluster) replicate(owner, m *member) {
	if owner.c.Role() != Owner || !owner.up || !m.up || m == owner {
		return
	}
	epoch := owner.c.Epoch()
	for _, s := range owner.log {
		if s.b.Position == m.c.Tail().Position {
			if m.c.Follow(epoch, s.b, s.link) == nil {
				m.log = append(m.log, stored{s.b, s.link, m.c.Tail()})
			}
			break
		}
	}
	var fx Effects
	if m.c.Role() == Follower && m.c.Epoch() == epoch {
		owner.c.Progressed(m.store, epoch, m.c.Durable().Position, &fx)
		k.do(owner, fx)
		fx = nil
		_ = m.c.Learn(epoch, owner.c.Confirmed(), &fx) // refused once it is sealed
		k.do(m, fx)
	}
}

// crash loses what was not durable; a restart opens the copy anew.
func (k *cluster) crash(m *member) {
	m.log = m.log[:m.sync]
	m.step = nil
	m.up = false
}

func (k *cluster) restart(m *member) {
	m.boot++
	m.up = true
	m.disk.Tail = batch.Tail{}
	if m.sync > 0 {
		m.disk.Tail = m.log[m.sync-1].tail
	}
	m.c = Open(m.disk)
	k.apply(m)
}

// apply gives a copy its role by the catalog.
func (k *cluster) apply(m *member) {
	if !m.up {
		return
	}
	a := Assignment{Epoch: k.a.Epoch, Starts: k.a.Starts}
	set := Set{W: w}
	for _, f := range k.a.Followers {
		set.Followers = append(set.Followers, f.Store)
		if f.Store == m.store {
			a.Role = Follower
		}
	}
	a.Sets = []Set{set}
	if k.a.Owner == m.instance() {
		a.Role = Owner
	}
	if a.Role == None {
		return
	}
	var fx Effects
	m.c.Assign(a, &fx)
	k.do(m, fx)
}

// seal records a transition if there is none, and takes one copy's answer. Answers are kept until a choice is made.
func (k *cluster) seal(m *member) {
	if !m.up {
		return
	}
	if k.a.Pending == nil {
		next := *k.a
		next.Pending = &catalog.Pending{ID: fmt.Sprint("t", k.a.Epoch+1), Epoch: k.a.Epoch + 1}
		k.a = &next
		k.answers = map[string]control.Answer{}
	}
	before := m.seals
	var fx Effects
	if m.c.Seal(k.a.Pending.Epoch, &fx) != nil {
		k.t.Fatalf("%s refuses epoch %d", m.name, k.a.Pending.Epoch)
	}
	k.do(m, fx)
	for range 200 {
		if m.seals > before {
			break
		}
		k.diskStep(m)
	}
	if m.seals == before {
		k.t.Fatalf("%s does not answer its seal", m.name)
	}
	k.answers[m.name] = control.Answer{
		Transition: k.a.Pending.ID, Instance: m.instance(), Tail: m.c.Durable(), Confirmed: m.c.Confirmed(),
	}
}

// choose commits a new owner if the answers allow it.
func (k *cluster) choose() {
	if k.a.Pending == nil {
		return
	}
	in := control.Input{Assignment: k.a, W: w, Links: map[uint64]batch.Link{}}
	for _, m := range k.nodes {
		if a, ok := k.answers[m.name]; ok {
			in.Answers = append(in.Answers, a)
		}
	}
	d := control.Choose(in)
	if d.Verdict == control.Ask {
		in.Said = d.Owner
		for _, m := range k.nodes {
			if m.store == d.Owner.Store {
				in.Links[0] = batch.Link{}
				for _, s := range m.log {
					in.Links[s.tail.Position] = s.link
				}
			}
		}
		d = control.Choose(in)
	}
	if d.Verdict == control.Blocked {
		k.t.Fatalf("blocked: %s", d.Reason)
	}
	if d.Verdict != control.Chosen {
		return // sealed copies wait for the next attempt
	}
	next := *k.a
	next.Epoch, next.Pending, next.Owner, next.Followers = next.Pending.Epoch, nil, d.Owner, nil
	next.Starts = append(append([]catalog.HistoryStart(nil), next.Starts...), d.Start)
	for _, m := range k.nodes {
		if m.store != d.Owner.Store {
			next.Followers = append(next.Followers, catalog.Member{Node: m.name, Store: m.store})
		}
	}
	k.a = &next
}

func (k *cluster) owner() *member {
	for _, m := range k.nodes {
		if m.up && m.instance() == k.a.Owner && m.c.Role() == Owner && m.c.Epoch() == k.a.Epoch {
			return m
		}
	}
	return nil
}

// TestConfirmedSurvivesEverything plays random schedules of appends, syncs, replication, crashes and failovers.
func TestConfirmedSurvivesEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := newCluster(rt)
		for _, m := range k.nodes {
			k.apply(m)
		}
		for range rapid.IntRange(20, 200).Draw(rt, "steps") {
			k.act(k.nodes[rapid.IntRange(0, 2).Draw(rt, "node")], rapid.IntRange(0, 13).Draw(rt, "what"))
		}
		k.heal()
	})
}

func (k *cluster) act(m *member, what int) {
	switch what {
	case 0:
		for _, o := range k.owners() {
			k.append(o)
		}
	case 1, 2, 3:
		for range 3 {
			if m.up {
				k.diskStep(m)
			}
		}
	case 4, 5, 6:
		for _, o := range k.owners() { // one that was deposed and does not know it sends too
			k.replicate(o, m)
		}
	case 7:
		if m.up {
			k.crash(m)
		}
	case 8:
		if !m.up {
			k.restart(m)
		}
	case 9, 10:
		k.seal(m)
	case 11:
		k.choose()
	default:
		k.apply(m)
	}
}

// owners are all that think that they own, in an order drawn.
func (k *cluster) owners() []*member {
	var os []*member
	for _, m := range k.nodes {
		if m.up && m.c.Role() == Owner && m.c.Open() {
			os = append(os, m)
		}
	}
	if len(os) > 1 && rapid.Bool().Draw(k.t, "reversed") {
		slices.Reverse(os)
	}
	return os
}

// heal brings everybody back: the partition serves again, and the copies hold what was ever confirmed.
func (k *cluster) heal() {
	for _, m := range k.nodes {
		if !m.up {
			k.restart(m)
		}
	}
	if k.choose(); k.a.Pending != nil || k.owner() == nil {
		for _, m := range k.nodes {
			k.seal(m)
		}
		k.choose()
	}
	for _, m := range k.nodes {
		k.apply(m)
	}
	for range 2000 {
		for _, m := range k.nodes {
			k.diskStep(m)
			if o := k.owner(); o != nil {
				k.replicate(o, m)
			}
		}
	}
	o := k.owner()
	if o == nil || !o.c.Serving() {
		k.t.Fatalf("does not serve again: epoch %d, owner %s", k.a.Epoch, k.a.Owner)
	}
	for _, m := range k.nodes {
		have := map[uint64]batch.Link{}
		for _, s := range m.log {
			have[s.tail.Position] = s.link
		}
		for p, link := range k.confirmed {
			if link != (batch.Link{}) && have[uint64(p)] != link {
				k.t.Fatalf("%s does not have what was confirmed at %d", m.name, p)
			}
		}
	}
}
