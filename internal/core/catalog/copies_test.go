package catalog

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
)

// copiesModel is a dumb account of one partition, owned by store 1, and of the nodes around it. A node's name is that of the first
// store that it had.
type copiesModel struct {
	nodes     map[byte]byte // name to store
	barred    map[byte]bool
	followers []byte // stores
	learners  []byte
	leaving   []byte
	names     map[byte]byte // store to name, of all that ever were
	version   uint64
	pending   bool
	wanted    string // policy
	wished    string // likewise, of the resource
	copies    uint32
	next      byte
}

func (m *copiesModel) member(store byte) Member {
	return Member{fmt.Sprint(m.names[store]), ident.StoreID{store}}
}

func (m *copiesModel) members(stores []byte) (out []Member) {
	for _, s := range stores {
		out = append(out, m.member(s))
	}
	return out
}

func (m *copiesModel) all() []byte { return slices.Concat([]byte{1}, m.followers, m.learners) }

// proven says it in other words than the rule does: any copies of the new set that might one day be all that answer a seal must
// include one that holds enough.
func proven(set []byte, holding map[byte]bool, w int) bool {
	answers := len(set) - w + 1
	for chosen := range 1 << len(set) {
		n, any := 0, false
		for i, s := range set {
			if chosen&(1<<i) != 0 {
				n++
				any = any || holding[s]
			}
		}
		if n == answers && !any {
			return false
		}
	}
	return true
}

func (m *copiesModel) draw(t *rapid.T) (Item, bool) {
	p := ident.Partition{Incarnation: 1}
	version := m.version - uint64(rapid.IntRange(0, 9).Draw(t, "stale")/9)
	steady := version == m.version && !m.pending
	store := rapid.SampledFrom(slices.Sorted(maps.Keys(m.names))).Draw(t, "store")
	name := m.names[store]
	registered := m.nodes[name] == store
	switch rapid.SampledFrom([]string{
		"add", "add", "drop", "change", "change", "change", "pending", "node", "remove", "replace", "leave", "wish",
	}).Draw(t, "op") {
	case "add":
		ok := steady && registered && !slices.Contains(m.all(), store)
		if ok {
			m.learners, m.version = append(m.learners, store), m.version+1
		}
		return AddLearner(p, version, m.member(store)), ok
	case "drop":
		i := slices.Index(m.learners, store)
		ok := steady && i >= 0
		item := DropLearner(p, version, m.member(store))
		if ok {
			m.learners, m.version = slices.Delete(m.learners, i, i+1), m.version+1
		}
		return item, ok
	case "change":
		return m.change(t, version, steady)
	case "leave":
		return m.leave(t, version, steady)
	case "wish":
		policy := rapid.SampledFrom([]string{"", "local_durable", "all_durable", "some"}).Draw(t, "policy")
		copies := rapid.SampledFrom([]uint32{0, 1, 5, 65}).Draw(t, "copies")
		ok := policy != "some" && copies != 65
		if ok && policy != "" {
			m.wished = policy
		}
		if ok && copies != 0 {
			m.copies = copies
		}
		return SetWishes("/", "q", 1, policy, copies), ok
	case "pending":
		if m.pending {
			m.pending, m.version = false, m.version+1
			return CancelPending(p, m.version-1, "t"), true
		}
		m.pending, m.version = true, m.version+1
		return RecordPending(p, m.version-1, Pending{ID: "t", Epoch: 2}), true
	case "node":
		m.next++
		m.names[m.next], m.nodes[m.next] = m.next, m.next
		return RegisterBoot(Node{Name: fmt.Sprint(m.next), Store: ident.StoreID{m.next}, Boot: 1}), true
	case "remove":
		learns := slices.Contains(m.learners, store)
		ok := registered && store != 1 && !slices.Contains(m.followers, store) && (!learns || !m.pending)
		if ok {
			delete(m.nodes, name)
			m.barred[store] = true
			if learns {
				m.learners, m.version = slices.DeleteFunc(m.learners, func(l byte) bool { return l == store }), m.version+1
			}
		}
		return RemoveNode(fmt.Sprint(name), ident.StoreID{store}), ok
	}
	m.next++
	fresh := m.next
	if registered {
		m.nodes[name], m.names[fresh], m.barred[store] = fresh, name, true
	}
	return ReplaceNode(ident.StoreID{store}, Node{Name: fmt.Sprint(name), Store: ident.StoreID{fresh}, Boot: 1}), registered
}

func (m *copiesModel) leave(t *rapid.T, version uint64, steady bool) (Item, bool) {
	var leaving []byte
	ok := steady
	for _, s := range m.all() {
		if rapid.IntRange(0, 2).Draw(t, "leaves") > 0 {
			leaving = append(leaving, s)
			ok = ok && slices.Contains(m.followers, s)
		}
	}
	if ok && !slices.Equal(leaving, m.leaving) {
		m.leaving, m.version = leaving, m.version+1
	}
	return MarkLeaving(ident.Partition{Incarnation: 1}, version, m.members(leaving)), ok
}

func (m *copiesModel) change(t *rapid.T, version uint64, steady bool) (Item, bool) {
	pick := func(from []byte, label string) (out []byte) {
		for _, s := range from {
			if rapid.IntRange(0, 3).Draw(t, label) > 0 {
				out = append(out, s)
			}
		}
		return out
	}
	followers := pick(slices.Concat(m.followers, m.learners), "followers")
	learners := pick(slices.DeleteFunc(slices.Clone(m.learners), func(s byte) bool { return slices.Contains(followers, s) }), "learners")
	c := Membership{
		Partition: ident.Partition{Incarnation: 1}, Version: version, Epoch: 1, Followers: m.members(followers), Learners: m.members(learners),
		Policy: rapid.SampledFrom([]string{"local_durable", "majority_durable", "all_durable"}).Draw(t, "policy"),
		Floor:  uint64(rapid.IntRange(0, 2).Draw(t, "floor")),
	}
	set := append([]byte{1}, followers...)
	holding := map[byte]bool{}
	for _, s := range m.all() {
		at := uint64(rapid.IntRange(0, 3).Draw(t, "at"))
		c.Evidence = append(c.Evidence, Evidence{ident.StoreID{s}, at})
		holding[s] = at >= c.Floor
	}
	w := map[string]int{"local_durable": 1, "majority_durable": len(set)/2 + 1, "all_durable": len(set)}[c.Policy]
	nodes := map[byte]bool{}
	for _, s := range set {
		nodes[m.names[s]] = true
	}
	ok := steady && c.Floor > 0 && len(nodes) == len(set) && proven(set, holding, w)
	for _, s := range followers { // a learner whose store is gone is not admitted
		ok = ok && (slices.Contains(m.followers, s) || m.nodes[m.names[s]] == s)
	}
	if ok {
		m.followers, m.learners, m.wanted, m.version = followers, learners, c.Policy, m.version+1
		m.leaving = slices.DeleteFunc(slices.Clone(m.leaving), func(s byte) bool { return !slices.Contains(followers, s) })
	}
	return ChangeMembers(c), ok
}

// load counts anew what a view keeps count of.
func (m *copiesModel) load(store byte) (l Load) {
	if store == 1 {
		l.Owned++
	}
	if slices.Contains(m.followers, store) {
		l.Followed++
	}
	if slices.Contains(m.learners, store) {
		l.Learning++
	}
	return l
}

func TestCopiesAgainstDumbModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &copiesModel{
			nodes: map[byte]byte{1: 1}, names: map[byte]byte{1: 1}, barred: map[byte]bool{}, version: 1, next: 1, wanted: "majority_durable",
			wished: "majority_durable",
		}
		s, index := New(), uint64(0)
		apply := func(items ...Item) Result {
			cmd, err := Encode(items...)
			if err != nil {
				t.Fatal(err)
			}
			index++
			res, _, err := s.Apply(index, cmd)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		owner := ident.Instance{Node: "1", Store: ident.StoreID{1}, Boot: 1}
		q := Resource{VHost: "/", Name: "q", Kind: Queue, Durable: true, Queue: &queue.Settings{}, Policy: m.wanted}
		apply(CreateVHost("/"), RegisterBoot(Node{Name: "1", Store: owner.Store, Boot: 1}), DeclareResource(q, owner, nil, 1))
		for range rapid.IntRange(1, 60).Draw(t, "items") {
			item, ok := m.draw(t)
			if res := apply(item); (res.Err() == nil) != ok {
				t.Fatalf("refused %v, the model says %v", res.Err(), ok)
			}
			a, r := s.View().Assignment(ident.Partition{Incarnation: 1})
			if !slices.Equal(a.Leaving, m.members(m.leaving)) || r.Policy != m.wished || r.Copies != m.copies || !slices.Equal(a.Followers, m.members(m.followers)) || !slices.Equal(a.Learners, m.members(m.learners)) ||
				a.Version != m.version || a.Policy != m.wanted || a.Owner != owner || a.Epoch != 1 {
				t.Fatalf("%+v of %+v, the model has %+v", a, r, m)
			}
			restored, err := Restore(s.Snapshot())
			if err != nil {
				t.Fatal(err)
			}
			for store := range m.names {
				id := ident.StoreID{store}
				if s.View().Load(id) != m.load(store) || restored.View().Load(id) != m.load(store) {
					t.Fatalf("load of %d: %+v and %+v, counted %+v", store, s.View().Load(id), restored.View().Load(id), m.load(store))
				}
				if (restored.View().Removed(id) != nil) != m.barred[store] {
					t.Fatalf("store %d barred: %v", store, !m.barred[store])
				}
			}
			s = restored
		}
	})
}
