// Package route finds the resources that a message goes to: exchanges, bindings, alternate exchanges, and the slots of partitioned
// resources. It is an index built from the catalog's changes. What happens to the message then, and who may publish where, does
// not belong here.
package route

import (
	"slices"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/value"
)

// Router routes by an index over the catalog. Each loop keeps its own; it is not safe for concurrent use.
type Router struct {
	spaces map[string]*space

	// Reused by Route.
	mark     uint64 // of the present call: what carries it has been seen
	out      []*catalog.Resource
	work     []*exchange
	matching matching
	missed   bool
}

// space is what lies in one virtual host.
type space struct {
	resources map[string]*target
	exchanges map[string]*target
}

// target is where a binding leads: a resource or an exchange. The object behind the name may change or be missing.
type target struct {
	resource *catalog.Resource
	exchange *exchange
	bound    int // bindings that lead here or from here, which keep the target alive
	mark     uint64
}

// exchange holds its bindings in the form its type needs. Lists are sorted, so that the order of what they give follows from the
// bindings alone and not from when they were made.
type exchange struct {
	object  *catalog.Exchange
	direct  map[string][]entry // direct, by key
	all     []entry            // fanout
	topics  *topic
	headers []rule
}

type entry struct {
	binding *catalog.Binding
	to      *target
}

// New makes an empty router.
func New() *Router { return &Router{spaces: map[string]*space{}} }

// Apply follows changes of the catalog, in order and from the first on.
func (r *Router) Apply(changes []catalog.Change) {
	for i := range changes {
		c := &changes[i]
		object, gone := c.After, false
		if object == nil {
			object, gone = c.Before, true
		}
		switch o := object.(type) {
		case *catalog.VHost:
			if gone {
				delete(r.spaces, o.Name)
			} else {
				r.space(o.Name)
			}
		case *catalog.Resource:
			r.resource(o, gone)
		case *catalog.Exchange:
			r.exchange(o, gone)
		case *catalog.Binding:
			r.binding(o, gone)
		}
	}
}

func (r *Router) space(vhost string) *space {
	s := r.spaces[vhost]
	if s == nil {
		s = &space{map[string]*target{}, map[string]*target{}}
		r.spaces[vhost] = s
	}
	return s
}

// at finds or makes a target.
func at(m map[string]*target, name string) *target {
	t := m[name]
	if t == nil {
		t = &target{}
		m[name] = t
	}
	return t
}

// tidy drops a target that nothing needs any more.
func tidy(m map[string]*target, name string, t *target) {
	if t.bound == 0 && t.resource == nil && (t.exchange == nil || t.exchange.object == nil) {
		delete(m, name)
	}
}

func (r *Router) resource(o *catalog.Resource, gone bool) {
	s := r.space(o.VHost)
	t := at(s.resources, o.Name)
	t.resource = o
	if gone {
		t.resource = nil
		tidy(s.resources, o.Name, t)
	}
}

func (r *Router) exchange(o *catalog.Exchange, gone bool) {
	s := r.space(o.VHost)
	t := at(s.exchanges, o.Name)
	if t.exchange == nil {
		t.exchange = &exchange{}
	}
	t.exchange.object = o
	if gone {
		t.exchange.object = nil
		tidy(s.exchanges, o.Name, t)
	}
}

func (r *Router) binding(b *catalog.Binding, gone bool) {
	s := r.space(b.VHost)
	m := s.resources
	if b.ToExchange {
		m = s.exchanges
	}
	source, to := at(s.exchanges, b.Source), at(m, b.Destination)
	if source.exchange == nil || source.exchange.object == nil {
		return // changes come in an order that makes this impossible: an exchange's bindings go before it
	}
	if n := source.exchange.bind(entry{b, to}, gone); n != 0 {
		source.bound += n
		to.bound += n
	}
	tidy(m, b.Destination, to)
	tidy(s.exchanges, b.Source, source)
}

// bind adds or removes a binding, and says how many more there are now.
func (x *exchange) bind(e entry, gone bool) int {
	switch x.object.Type {
	case "fanout":
		return change(&x.all, e.binding, gone, e.itself)
	case "topic":
		if x.topics == nil {
			x.topics = &topic{}
		}
		return x.topics.bind(e, gone)
	case "headers":
		return change(&x.headers, e.binding, gone, func() rule { return newRule(e) })
	}
	if x.direct == nil {
		x.direct = map[string][]entry{}
	}
	l := x.direct[e.binding.Key]
	n := change(&l, e.binding, gone, e.itself)
	if len(l) == 0 {
		delete(x.direct, e.binding.Key)
	} else {
		x.direct[e.binding.Key] = l
	}
	return n
}

// bound is an item of a sorted list: what stands for one binding.
type bound interface{ of() *catalog.Binding }

func (e entry) of() *catalog.Binding { return e.binding }

func (e entry) itself() entry { return e }

// change adds what item makes of a binding to a sorted list, or removes it, and says how many more there are now.
func change[T bound](l *[]T, b *catalog.Binding, gone bool, item func() T) int {
	i, found := slices.BinarySearchFunc(*l, b, func(a T, b *catalog.Binding) int { return catalog.CompareBindings(a.of(), b) })
	switch {
	case gone && found:
		*l = slices.Delete(*l, i, i+1)
		return -1
	case !gone && !found:
		*l = slices.Insert(*l, i, item())
		return 1
	}
	return 0
}

// Route gives the resources that a message goes to, none twice, in an order that follows from the catalog alone. cc are further
// keys. headers is called at most once, and only if a headers exchange is on the way; nil stands for none. The slice is valid until
// the next call. The error is a *catalog.Refusal that says NotFound: no such virtual host or exchange.
func (r *Router) Route(vhost, exchange, key string, cc []string, headers func() value.Table) ([]*catalog.Resource, error) {
	r.out, r.missed = r.out[:0], false
	s := r.spaces[vhost]
	if s == nil {
		return nil, &catalog.Refusal{Code: catalog.NotFound, What: "vhost", Name: vhost}
	}
	r.mark++
	if exchange == "" {
		r.byName(s, key)
		for _, k := range cc {
			r.byName(s, k)
		}
		return r.out, nil
	}
	start := s.exchanges[exchange]
	if start == nil || start.exchange == nil || start.exchange.object == nil {
		return nil, &catalog.Refusal{Code: catalog.NotFound, What: "exchange", Name: exchange, VHost: vhost}
	}
	m := message{key: key, cc: cc, headers: headers}
	start.mark = r.mark
	r.work = append(r.work[:0], start.exchange)
	for i := 0; i < len(r.work); i++ {
		x := r.work[i]
		if r.step(s, x, &m) > 0 || x.object.Alternate == "" {
			continue
		}
		r.missed = true
		if alternate := s.exchanges[x.object.Alternate]; alternate != nil {
			r.visit(alternate)
		}
	}
	return r.out, nil
}

// Missed reports whether the last Route passed an exchange with an alternate that routed the message nowhere by itself.
func (r *Router) Missed() bool { return r.missed }

type message struct {
	key     string
	cc      []string
	headers func() value.Table
	table   value.Table
	asked   bool
}

// values are the headers by name.
func (m *message) values() value.Table {
	if !m.asked && m.headers != nil {
		m.table = slices.Clone(m.headers())
		sortByName(m.table)
	}
	m.asked = true
	return m.table
}

// byName routes as the default exchange does.
func (r *Router) byName(s *space, name string) {
	if t := s.resources[name]; t != nil {
		r.visit(t)
	}
}

// step follows the bindings of one exchange and says how many match.
func (r *Router) step(s *space, x *exchange, m *message) int {
	switch x.object.Type {
	case "fanout":
		return r.visitAll(x.all)
	case "topic":
		if x.topics == nil {
			return 0
		}
		n := r.topic(x.topics, m.key)
		for _, k := range m.cc {
			n += r.topic(x.topics, k)
		}
		return n
	case "headers":
		n := 0
		for i := range x.headers {
			if x.headers[i].matches(m.values()) {
				r.visit(x.headers[i].to)
				n++
			}
		}
		return n
	}
	if x.object.Name == "" { // reached through an alternate exchange or a binding
		before := len(r.out)
		r.byName(s, m.key)
		for _, k := range m.cc {
			r.byName(s, k)
		}
		return len(r.out) - before
	}
	n := r.visitAll(x.direct[m.key])
	for _, k := range m.cc {
		n += r.visitAll(x.direct[k])
	}
	return n
}

func (r *Router) visitAll(l []entry) int {
	for i := range l {
		r.visit(l[i].to)
	}
	return len(l)
}

func (r *Router) visit(t *target) {
	if t.mark == r.mark {
		return
	}
	t.mark = r.mark
	if t.resource != nil {
		r.out = append(r.out, t.resource)
	}
	if t.exchange != nil && t.exchange.object != nil {
		r.work = append(r.work, t.exchange)
	}
}
