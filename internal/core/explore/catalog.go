package explore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/control"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/quorum"
)

// explorer is what all states of a search share. It only grows: what it remembers never changes.
type explorer struct {
	bounds   Bounds
	fault    Fault
	perms    [][Nodes]byte // under which states are the same
	entries  map[entryKey]*entry
	byLink   map[batch.Link]*entry
	versions map[string]*version
	cats     map[string]*cat
	ties     []ident.Partition // under which the choice between equals falls differently
	told     []string
	telling  bool
	plain    bool // nothing is left out that is left out of all other searches: tests compare the two
}

func newExplorer(b Bounds, f Fault) *explorer {
	x := &explorer{
		bounds: b, fault: f, perms: [][Nodes]byte{{0, 1, 2}}, entries: map[entryKey]*entry{}, byLink: map[batch.Link]*entry{},
		versions: map[string]*version{}, cats: map[string]*cat{}, ties: ties(),
	}
	if b.Copies > 1 && b.Wipes <= 1 && b.Changes == 0 { // else the catalog's choice of where to learn, or who is to leave, goes by names
		x.perms = allOrders[:]
	}
	return x
}

// cat is a state of the catalog.
type cat struct {
	state    *catalog.State // not to be changed
	snapshot []byte
	v        *version
	wishes   partition.Wishes
	memo     map[string]outcome
	grown    [1 << Nodes]*control.Step
	asked    [1 << Nodes]bool
}

type outcome struct {
	next    *cat
	refused *catalog.Refusal
}

// version is an assignment, as one version of it says.
type version struct {
	a   *catalog.Assignment
	enc []string // by permutation
}

var nodeNames = [Nodes]string{"n0", "n1", "n2"}

func nodeName(i int) string { return nodeNames[i] }

func nodeIndex(name string) int { return int(name[1] - '0') }

func storeID(node int, generation uint8) ident.StoreID {
	return ident.StoreID{byte(node + 1), generation + 1}
}

// storeCode names a store under a permutation of the nodes.
func storeCode(s ident.StoreID, perm *[Nodes]byte) byte { return perm[s[0]-1]<<4 | (s[1] - 1) }

// firstCatalog has all nodes and one queue.
func (x *explorer) firstCatalog() *cat {
	s := catalog.New()
	items := catalog.Bootstrap(ident.StoreID{99}, "hash")
	var followers []catalog.Member
	for i := range Nodes {
		items = append(items, catalog.RegisterBoot(catalog.Node{Name: nodeName(i), Store: storeID(i, 0), Boot: 1}))
		if i > 0 && i < x.bounds.Copies {
			followers = append(followers, catalog.Member{Node: nodeName(i), Store: storeID(i, 0)})
		}
	}
	items = append(items, catalog.DeclareResource(catalog.Resource{
		VHost: catalog.DefaultVHost, Name: "q", Kind: catalog.Queue, Durable: true, Queue: &queue.Settings{},
		Policy: cmp.Or(x.bounds.Policy, "majority_durable"), Copies: uint32(x.bounds.Wanted),
	}, ident.Instance{Node: nodeName(0), Store: storeID(0, 0), Boot: 1}, followers, 1))
	cmd, err := catalog.Encode(items...)
	if err != nil {
		panic(err)
	}
	res, _, err := s.Apply(1, cmd)
	if err != nil || res.Err() != nil {
		panic(fmt.Sprint(err, res.Err()))
	}
	return x.intern(s)
}

// intern finds the state of the catalog among those that are known.
func (x *explorer) intern(s *catalog.State) *cat {
	snapshot := s.Snapshot()
	if c := x.cats[string(snapshot)]; c != nil {
		return c
	}
	a := s.View().AllResources()[0].Partitions[0]
	text, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	v := x.versions[string(text)]
	if v == nil {
		v = &version{a: a}
		for i := range x.perms {
			v.enc = append(v.enc, string(x.encodeAssignment(a, i)))
		}
		x.versions[string(text)] = v
	}
	c := &cat{
		state: s, snapshot: snapshot, v: v, wishes: partition.WishesOf(s.View().AllResources()[0]), memo: map[string]outcome{},
	}
	x.cats[string(snapshot)] = c
	return c
}

// apply has the catalog's state machine do one item.
func (x *explorer) apply(c *cat, it catalog.Item) (*cat, *catalog.Refusal) {
	cmd, err := catalog.Encode(it)
	if err != nil {
		panic(err)
	}
	if o, ok := c.memo[string(cmd)]; ok {
		return o.next, o.refused
	}
	s, err := catalog.Restore(c.snapshot)
	if err != nil {
		panic(err)
	}
	res, changes, err := s.Apply(s.Index()+1, cmd)
	if err != nil {
		panic(err)
	}
	o := outcome{c, res.Items[0].Refused}
	if len(changes) > 0 {
		o.next = x.intern(s)
	}
	c.memo[string(cmd)] = o
	return o.next, o.refused
}

// grow is the next copy that control would have learn, if those in up are all that live.
func (c *cat) grow(up uint8) *control.Step {
	if !c.asked[up] {
		c.asked[up] = true
		view := c.state.View()
		live := func(node string) bool { return up>>nodeIndex(node)&1 == 1 }
		if g := control.Arrange(view, control.Sites(view, live), 0, 1).Steps; len(g) > 0 {
			c.grown[up] = &g[0]
		}
	}
	return c.grown[up]
}

func (x *explorer) encodeAssignment(a *catalog.Assignment, perm int) []byte {
	p := &x.perms[perm]
	b := []byte{byte(a.Epoch), storeCode(a.Owner.Store, p), byte(a.Owner.Boot), 0}
	if a.Pending != nil {
		b[3] = byte(a.Pending.Epoch)
	}
	b = append(b, a.Policy...)
	for _, ms := range [][]catalog.Member{a.Followers, a.Learners, a.Leaving} {
		b = append(b, byte(len(ms)))
		at := len(b)
		for _, m := range ms {
			b = append(b, storeCode(m.Store, p))
		}
		slices.Sort(b[at:])
	}
	for _, s := range a.Starts {
		b = append(b, byte(s.Epoch), byte(s.Position), bits(s.Loss.Accepted))
		b = x.byLink[s.Link].append(b)
	}
	return b
}

// wOf is W of an assignment, and its policy.
func wOf(a *catalog.Assignment, e int) int {
	policy, err := quorum.Parse(a.Policy)
	if err != nil {
		panic(err)
	}
	return quorum.W(policy, e, ident.Queue)
}

// ties are partitions under whose hashes each of any nodes that tie comes first once.
func ties() []ident.Partition {
	var out []ident.Partition
	for _, want := range [][]string{{"n0", "n1", "n2"}, {"n2", "n1", "n0"}, {"n1", "n0", "n2"}} {
		for i := uint64(1); ; i++ {
			p := ident.Partition{Incarnation: i}
			first := func(of ...string) string { return firstOf(p, of) }
			if first(want...) == want[0] && first(want[1], want[2]) == want[1] {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// firstOf asks the choice itself which of nodes with equal logs it prefers.
func firstOf(p ident.Partition, nodes []string) string {
	a := catalog.Assignment{Partition: p, Epoch: 1, Pending: &catalog.Pending{ID: "t", Epoch: 2}, Owner: ident.Instance{Node: "n9"}}
	in := control.Input{Assignment: &a, W: 1 + Nodes}
	for _, n := range nodes {
		i := ident.Instance{Node: n, Store: storeID(nodeIndex(n), 0), Boot: 1}
		a.Followers = append(a.Followers, catalog.Member{Node: n, Store: i.Store})
		in.Answers = append(in.Answers, control.Answer{Transition: "t", Instance: i})
	}
	return control.Choose(in).Owner.Node
}

// record is what a record holds: a gateway's message, and its number; none where owners append for themselves.
type record struct{ message, number uint8 }

// entry is one batch of one entry, with the log before it. Equal histories are the same entry.
type entry struct {
	before *entry
	record record
	batch  batch.Batch
	link   batch.Link
	tail   batch.Tail
	enc    string // of the whole log: two bytes an entry
}

type entryKey struct {
	before *entry
	epoch  uint64
	author int
	boot   uint64
	mark   bool
	record record
}

// extend is the entry that an owner appends to a log. What it holds says who makes it, so that
// equal links are equal entries in all states.
func (x *explorer) extend(log *entry, n *node, mark bool, r record) *entry {
	epoch, author, boot := n.copy.Epoch(), n.index, n.boot
	key := entryKey{log, epoch, author, boot, mark, r}
	if e := x.entries[key]; e != nil {
		return e
	}
	var b batch.Builder
	if mark {
		b.Add(batch.Run{Kind: batch.KindMark, Count: 1}, batch.AppendEvent(nil, 1, []byte{byte(author), byte(boot)}))
	} else {
		run := batch.Run{Kind: batch.KindRecord, Count: 1}
		if r.number > 0 {
			run.Producer, run.First = theProducer, uint64(r.number)
		}
		b.Add(run, batch.AppendRecord(nil, batch.RecordHeader{}, []byte{byte(author), byte(boot), r.message}))
	}
	e := &entry{before: log, record: r, batch: b.Finish(thePartition, epoch, log.end(), 0)}
	e.link = e.batch.Link()
	e.tail = log.end().After(e.batch, e.link)
	kind := 'm'
	if !mark {
		kind = rune(0x80 | r.message<<3 | r.number)
	}
	e.enc = string(append(log.append(nil)[1:], byte(kind), byte(epoch)))
	x.entries[key], x.byLink[e.link] = e, e
	return e
}

// thePartition is the one that is searched.
var thePartition = ident.Partition{Incarnation: 1}

func (e *entry) end() batch.Tail {
	if e == nil {
		return batch.Tail{}
	}
	return e.tail
}

// append encodes the whole log.
func (e *entry) append(b []byte) []byte {
	if e == nil {
		return append(b, 0)
	}
	b = append(b, byte(e.tail.Position))
	return append(b, e.enc...)
}

// at is the log up to a position that it reaches.
func (e *entry) at(position uint64) *entry {
	for e != nil && e.tail.Position > position {
		e = e.before
	}
	return e
}

// extends reports whether a log begins with another.
func (e *entry) extends(o *entry) bool { return e.at(o.end().Position) == o }

// String is the log for people: each entry's epoch, with a star for a mark.
func (e *entry) String() string {
	if e == nil {
		return "-"
	}
	s := fmt.Sprint(e.batch.Epoch)
	if e.batch.Run(0).Kind == batch.KindMark {
		s += "*"
	}
	if e.before == nil {
		return s
	}
	return e.before.String() + " " + s
}
