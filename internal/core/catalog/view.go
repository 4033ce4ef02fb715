package catalog

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/ident"
)

// View is a read index over the catalog, built from changes. Each loop keeps its own; the objects are shared and immutable. It is
// not safe for concurrent use. Lists are sorted, and slices that it returns belong to the caller.
type View struct {
	index     uint64
	cluster   *Cluster
	vhosts    map[string]*space
	resources map[uint64]*Resource // by incarnation
	users     map[string]*User
	perms     map[permKey]*Permission
	nodes     map[string]*Node
	removed   map[ident.StoreID]*Removed
	tokens    map[string]*Token
	deletions map[uint64]*Deletion // by incarnation
	load      map[ident.StoreID]Load
	settings  map[string]*Setting
	tunables  Tunables // what settings say
}

// space is what lies in one virtual host.
type space struct {
	vhost     *VHost
	exchanges map[string]*Exchange
	resources map[string]*Resource
	bindings  map[bindKey]*Binding
	from      map[string][]*Binding // by source, in no order that means anything
	to        map[target][]*Binding // by destination, likewise
}

type permKey struct{ user, vhost string }

type target struct {
	name     string
	exchange bool
}

// bindKey is what makes a binding itself. args is their encoding, sorted by name.
type bindKey struct {
	source string
	to     target
	key    string
	args   string
}

func keyOf(b *Binding) bindKey {
	return bindKey{b.Source, target{b.Destination, b.ToExchange}, b.Key, canonical(b.Args)}
}

// NewView makes an empty view.
func NewView() *View {
	return &View{
		vhosts:    map[string]*space{},
		resources: map[uint64]*Resource{},
		users:     map[string]*User{},
		perms:     map[permKey]*Permission{},
		nodes:     map[string]*Node{},
		removed:   map[ident.StoreID]*Removed{},
		tokens:    map[string]*Token{},
		deletions: map[uint64]*Deletion{},
		load:      map[ident.StoreID]Load{},
		settings:  map[string]*Setting{},
		tunables:  DefaultTunables(),
	}
}

// Apply follows changes, in order, from the first on (see State.Changes).
func (v *View) Apply(changes []Change) {
	for i := range changes {
		v.apply(&changes[i])
	}
}

func (v *View) apply(c *Change) {
	v.index = max(v.index, c.Index)
	object := c.After
	gone := object == nil
	if gone {
		object = c.Before
	}
	switch o := object.(type) {
	case *Cluster:
		v.cluster = o
	case *VHost:
		if gone {
			delete(v.vhosts, o.Name)
			return
		}
		v.space(o.Name).vhost = o
	case *Exchange:
		put(v.space(o.VHost).exchanges, o.Name, o, gone)
	case *Resource:
		put(v.space(o.VHost).resources, o.Name, o, gone)
		v.weigh(v.resources[o.Incarnation], -1)
		put(v.resources, o.Incarnation, o, gone)
		v.weigh(v.resources[o.Incarnation], 1)
	case *Binding:
		v.space(o.VHost).bind(o, gone)
	case *User:
		put(v.users, o.Name, o, gone)
	case *Permission:
		put(v.perms, permKey{o.User, o.VHost}, o, gone)
	case *Node:
		put(v.nodes, o.Name, o, gone)
	case *Removed:
		put(v.removed, o.Store, o, gone)
	case *Token:
		put(v.tokens, o.ID, o, gone)
	case *Deletion:
		put(v.deletions, o.Incarnation, o, gone)
	case *Setting:
		put(v.settings, o.Name, o, gone)
		v.tunables.Follow(*c)
	}
}

func put[K comparable, O any](m map[K]O, k K, o O, gone bool) {
	if gone {
		delete(m, k)
	} else {
		m[k] = o
	}
}

func (v *View) space(vhost string) *space {
	s := v.vhosts[vhost]
	if s == nil {
		s = &space{
			exchanges: map[string]*Exchange{}, resources: map[string]*Resource{},
			bindings: map[bindKey]*Binding{}, from: map[string][]*Binding{}, to: map[target][]*Binding{},
		}
		v.vhosts[vhost] = s
	}
	return s
}

func (s *space) bind(b *Binding, gone bool) {
	k := keyOf(b)
	if !gone {
		s.bindings[k] = b
		s.from[b.Source] = append(s.from[b.Source], b)
		s.to[k.to] = append(s.to[k.to], b)
		return
	}
	have := s.bindings[k]
	if have == nil {
		return
	}
	delete(s.bindings, k)
	without(s.from, b.Source, have)
	without(s.to, k.to, have)
}

func without[K comparable](m map[K][]*Binding, k K, b *Binding) {
	l := m[k]
	i := slices.Index(l, b)
	if i < 0 {
		return
	}
	last := len(l) - 1
	l[i], l[last] = l[last], nil
	if last == 0 {
		delete(m, k)
		return
	}
	m[k] = l[:last]
}

// Index is the index of the last consensus entry that changed something here.
func (v *View) Index() uint64 { return v.index }

// Cluster is nil before the first start has named the cluster.
func (v *View) Cluster() *Cluster { return v.cluster }

// VHost is nil if there is none of that name.
func (v *View) VHost(name string) *VHost {
	if s := v.vhosts[name]; s != nil {
		return s.vhost
	}
	return nil
}

// VHosts are all, by name.
func (v *View) VHosts() []*VHost {
	out := make([]*VHost, 0, len(v.vhosts))
	for _, name := range slices.Sorted(maps.Keys(v.vhosts)) {
		if o := v.vhosts[name].vhost; o != nil {
			out = append(out, o)
		}
	}
	return out
}

// Exchange is nil if there is none of that name. The default exchange is named "".
func (v *View) Exchange(vhost, name string) *Exchange {
	if s := v.vhosts[vhost]; s != nil {
		return s.exchanges[name]
	}
	return nil
}

// Exchanges are those of a virtual host, by name.
func (v *View) Exchanges(vhost string) []*Exchange {
	s := v.vhosts[vhost]
	if s == nil {
		return nil
	}
	return sortedValues(s.exchanges)
}

// Resource is nil if there is none of that name.
func (v *View) Resource(vhost, name string) *Resource {
	if s := v.vhosts[vhost]; s != nil {
		return s.resources[name]
	}
	return nil
}

// Incarnation is the resource with that incarnation id, or nil.
func (v *View) Incarnation(id uint64) *Resource { return v.resources[id] }

// Assignment is that of a partition, with its resource; both nil if there is none.
func (v *View) Assignment(p ident.Partition) (*Assignment, *Resource) {
	r := v.resources[p.Incarnation]
	if r == nil || uint64(p.Index) >= uint64(len(r.Partitions)) {
		return nil, nil
	}
	return r.Partitions[p.Index], r
}

// Resources are those of a virtual host, by name.
func (v *View) Resources(vhost string) []*Resource {
	s := v.vhosts[vhost]
	if s == nil {
		return nil
	}
	return sortedValues(s.resources)
}

// AllResources are those of all virtual hosts, by incarnation, transient ones last.
func (v *View) AllResources() []*Resource { return sortedValues(v.resources) }

// Bindings are those of a virtual host, sorted by source, destination, key and arguments.
func (v *View) Bindings(vhost string) []*Binding {
	s := v.vhosts[vhost]
	if s == nil {
		return nil
	}
	return sortBindings(slices.Collect(maps.Values(s.bindings)))
}

// BindingsFrom are those that lead from an exchange, sorted.
func (v *View) BindingsFrom(vhost, source string) []*Binding {
	s := v.vhosts[vhost]
	if s == nil {
		return nil
	}
	return sortBindings(slices.Clone(s.from[source]))
}

// BindingsTo are those that lead to a resource or an exchange, sorted.
func (v *View) BindingsTo(vhost, name string, exchange bool) []*Binding {
	s := v.vhosts[vhost]
	if s == nil {
		return nil
	}
	return sortBindings(slices.Clone(s.to[target{name, exchange}]))
}

// User is nil if there is none of that name.
func (v *View) User(name string) *User { return v.users[name] }

// Users are all, by name.
func (v *View) Users() []*User { return sortedValues(v.users) }

// Permission is nil if the user has none in the virtual host.
func (v *View) Permission(user, vhost string) *Permission { return v.perms[permKey{user, vhost}] }

// Permissions are all, by user and virtual host.
func (v *View) Permissions() []*Permission {
	out := slices.Collect(maps.Values(v.perms))
	slices.SortFunc(out, func(a, b *Permission) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(a.VHost, b.VHost))
	})
	return out
}

// Node is nil if there is none of that name.
func (v *View) Node(name string) *Node { return v.nodes[name] }

// Nodes are all, by name.
func (v *View) Nodes() []*Node { return sortedValues(v.nodes) }

// RemovedStores are all that have left for good, by id.
func (v *View) RemovedStores() []*Removed {
	out := slices.Collect(maps.Values(v.removed))
	slices.SortFunc(out, func(a, b *Removed) int { return bytes.Compare(a.Store[:], b.Store[:]) })
	return out
}

// Removed is nil if the store has not left the cluster.
func (v *View) Removed(store ident.StoreID) *Removed { return v.removed[store] }

// Token is nil if there is none of that id.
func (v *View) Token(id string) *Token { return v.tokens[id] }

// Tokens are all that were not used, by id; expired ones may be among them.
func (v *View) Tokens() []*Token { return sortedValues(v.tokens) }

// Load counts the places that a store has in the assignments of durable partitions.
type Load struct {
	Owned    int
	Followed int
	Learning int
}

// Copies is the number of all.
func (l Load) Copies() int { return l.Owned + l.Followed + l.Learning }

// Load is how much the catalog has placed on a store.
func (v *View) Load(store ident.StoreID) Load { return v.load[store] }

// weigh adds a resource's copies to the load of their stores, or takes them away.
func (v *View) weigh(r *Resource, by int) {
	if r == nil || r.Home != nil {
		return
	}
	add := func(store ident.StoreID, l Load) {
		have := v.load[store]
		have.Owned, have.Followed, have.Learning = have.Owned+by*l.Owned, have.Followed+by*l.Followed, have.Learning+by*l.Learning
		put(v.load, store, have, have == Load{})
	}
	for _, a := range r.Partitions {
		add(a.Owner.Store, Load{Owned: 1})
		for _, m := range a.Followers {
			add(m.Store, Load{Followed: 1})
		}
		for _, m := range a.Learners {
			add(m.Store, Load{Learning: 1})
		}
	}
}

// Setting is nil if it is not set.
func (v *View) Setting(name string) *Setting { return v.settings[name] }

// Settings are all, by name.
func (v *View) Settings() []*Setting { return sortedValues(v.settings) }

func sortedValues[K cmp.Ordered, O any](m map[K]O) []O {
	out := make([]O, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}

func sortBindings(l []*Binding) []*Binding {
	slices.SortFunc(l, CompareBindings)
	return l
}

// CompareBindings orders bindings of one virtual host by source, destination, key and arguments.
func CompareBindings(a, b *Binding) int {
	if c := cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Destination, b.Destination),
		compareBool(a.ToExchange, b.ToExchange), strings.Compare(a.Key, b.Key)); c != 0 {
		return c
	}
	if len(a.Args) == 0 && len(b.Args) == 0 {
		return 0
	}
	return strings.Compare(canonical(a.Args), canonical(b.Args))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
