package catalog

import (
	"slices"
	"strconv"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

func refuse(r Refusal) ItemResult { return ItemResult{Refused: &r} }

func done(object any) ItemResult { return ItemResult{Object: object} }

// builtin are the exchanges that every virtual host has, in order of name.
var builtin = []Exchange{
	{Name: "", Type: "direct"},
	{Name: "amq.direct", Type: "direct"},
	{Name: "amq.fanout", Type: "fanout"},
	{Name: "amq.headers", Type: "headers"},
	{Name: "amq.match", Type: "headers"},
	{Name: "amq.topic", Type: "topic"},
}

func (s *State) initCluster(k *Cluster) ItemResult {
	if have := s.view.cluster; have != nil {
		return refuse(Refusal{Code: Exists, What: "cluster", Name: have.ID.String()})
	}
	s.change(nil, k)
	return ItemResult{Created: true, Object: k}
}

func (s *State) createVHost(v *VHost) ItemResult {
	if v.Name == "" || len(v.Name) > MaxName {
		return refuse(Refusal{Code: Invalid, What: "vhost", Name: v.Name, Argument: "name", Want: "1 to 255 bytes"})
	}
	if have := s.view.VHost(v.Name); have != nil {
		return done(have)
	}
	s.change(nil, v)
	for _, e := range builtin {
		e.VHost, e.Durable, e.Builtin = v.Name, true, true
		s.change(nil, &e)
	}
	return ItemResult{Created: true, Object: v}
}

func (s *State) deleteVHost(v *VHost) ItemResult {
	have := s.view.VHost(v.Name)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "vhost", Name: v.Name})
	}
	for _, b := range s.view.Bindings(v.Name) {
		s.change(b, nil)
	}
	for _, r := range s.view.Resources(v.Name) {
		s.change(r, nil)
	}
	for _, e := range s.view.Exchanges(v.Name) {
		s.change(e, nil)
	}
	for _, p := range s.view.Permissions() {
		if p.VHost == v.Name {
			s.change(p, nil)
		}
	}
	s.change(have, nil)
	return done(have)
}

// home checks that a transient object is tied to a run that is not buried.
func (s *State) home(h *Home) *Refusal {
	n := s.view.Node(h.Node)
	if n == nil {
		return &Refusal{Code: NotFound, What: "node", Name: h.Node}
	}
	if n.Boot != h.Boot {
		return &Refusal{Code: StaleBoot, What: "node", Name: h.Node, Have: number(n.Boot), Want: number(h.Boot)}
	}
	return nil
}

func (s *State) declareExchange(e *Exchange) ItemResult {
	if s.view.VHost(e.VHost) == nil {
		return refuse(Refusal{Code: NotFound, What: "vhost", Name: e.VHost})
	}
	if have := s.view.Exchange(e.VHost, e.Name); have != nil {
		if r := EquivalentExchange(have, e); r != nil {
			return ItemResult{Refused: r}
		}
		return done(have)
	}
	invalid := func(argument, why string) ItemResult {
		return refuse(Refusal{Code: Invalid, What: "exchange", Name: e.Name, VHost: e.VHost, Argument: argument, Want: why})
	}
	switch {
	case e.Name == "" || len(e.Name) > MaxName:
		return invalid("name", "1 to 255 bytes")
	case !slices.Contains([]string{"direct", "fanout", "topic", "headers"}, e.Type):
		return invalid("type", "unknown exchange type '"+e.Type+"'")
	case e.Durable != (e.Home == nil):
		return invalid("home", "set exactly where the exchange is not durable")
	}
	if e.Home != nil {
		if r := s.home(e.Home); r != nil {
			return ItemResult{Refused: r}
		}
	}
	e.Builtin = false
	s.change(nil, e)
	return ItemResult{Created: true, Object: e}
}

func (s *State) deleteExchange(a *args) ItemResult {
	have := s.view.Exchange(a.vhost, a.name)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "exchange", Name: a.name, VHost: a.vhost})
	}
	if have.Builtin {
		return refuse(Refusal{Code: Reserved, What: "exchange", Name: a.name, VHost: a.vhost})
	}
	if a.flag && len(s.view.vhosts[a.vhost].from[a.name]) > 0 {
		return refuse(Refusal{Code: InUse, What: "exchange", Name: a.name, VHost: a.vhost})
	}
	s.dropExchange(have)
	return done(have)
}

// dropExchange removes an exchange and its bindings, and the auto-delete exchanges that have lost their last binding by it.
func (s *State) dropExchange(e *Exchange) {
	s.unbindAll(s.view.BindingsFrom(e.VHost, e.Name))
	to := s.view.BindingsTo(e.VHost, e.Name, true)
	s.unbindAll(to)
	s.change(e, nil)
	s.autoDelete(to)
}

// dropResource removes a resource likewise.
func (s *State) dropResource(r *Resource) {
	to := s.view.BindingsTo(r.VHost, r.Name, false)
	s.unbindAll(to)
	s.change(r, nil)
	s.autoDelete(to)
}

func (s *State) unbindAll(bindings []*Binding) {
	for _, b := range bindings {
		s.change(b, nil)
	}
}

// autoDelete removes the sources of removed bindings that are auto-delete exchanges without a binding left.
func (s *State) autoDelete(removed []*Binding) {
	for _, b := range removed {
		if e := s.view.Exchange(b.VHost, b.Source); e != nil && e.AutoDelete && len(s.view.vhosts[b.VHost].from[b.Source]) == 0 {
			s.dropExchange(e)
		}
	}
}

func (s *State) bind(b *Binding) ItemResult {
	if r := s.ends(b); r != nil {
		return ItemResult{Refused: r}
	}
	sp := s.view.vhosts[b.VHost]
	if have := sp.bindings[keyOf(b)]; have != nil {
		return done(have)
	}
	if match, ok := b.Args.Get("x-match"); ok && sp.exchanges[b.Source].Type == "headers" &&
		!slices.Contains([]string{"all", "any", "all-with-x", "any-with-x"}, match.Str) {
		return refuse(Refusal{
			Code: Invalid, What: "binding", Name: b.Destination, VHost: b.VHost, Argument: "x-match",
			Want: match.Text() + " is none of all, any, all-with-x, any-with-x",
		})
	}
	s.change(nil, b)
	return ItemResult{Created: true, Object: b}
}

// ends checks that a binding's ends exist and may be bound.
func (s *State) ends(b *Binding) *Refusal {
	if b.Source == "" || (b.ToExchange && b.Destination == "") {
		return &Refusal{Code: Reserved, What: "exchange", VHost: b.VHost}
	}
	if s.view.Exchange(b.VHost, b.Source) == nil {
		return &Refusal{Code: NotFound, What: "exchange", Name: b.Source, VHost: b.VHost}
	}
	if b.ToExchange {
		if s.view.Exchange(b.VHost, b.Destination) == nil {
			return &Refusal{Code: NotFound, What: "exchange", Name: b.Destination, VHost: b.VHost}
		}
		return nil
	}
	if s.view.Resource(b.VHost, b.Destination) == nil {
		return &Refusal{Code: NotFound, What: "queue", Name: b.Destination, VHost: b.VHost}
	}
	return nil
}

func (s *State) unbind(b *Binding) ItemResult {
	if r := s.ends(b); r != nil {
		return ItemResult{Refused: r}
	}
	have := s.view.vhosts[b.VHost].bindings[keyOf(b)]
	if have == nil {
		return ItemResult{}
	}
	s.change(have, nil)
	s.autoDelete([]*Binding{have})
	return done(have)
}

func (s *State) declareResource(a *args) ItemResult {
	r := &a.resource
	if s.view.VHost(r.VHost) == nil {
		return refuse(Refusal{Code: NotFound, What: "vhost", Name: r.VHost})
	}
	if have := s.view.Resource(r.VHost, r.Name); have != nil {
		if refused := EquivalentResource(have, r); refused != nil {
			return ItemResult{Refused: refused}
		}
		return done(have)
	}
	if refused := s.validResource(r, a); refused != nil {
		return ItemResult{Refused: refused}
	}
	r = together(&a.resource, int(a.partitions)) // what stays must not keep all of the arguments with it
	s.incarnations++
	r.Incarnation = s.incarnations
	if r.Home != nil {
		r.Incarnation |= ident.TransientBit
	}
	for i, p := range r.Partitions {
		*p = Assignment{
			Partition: ident.Partition{Incarnation: r.Incarnation, Index: uint32(i)},
			Epoch:     1,
			Version:   1,
			Owner:     a.owner,
			Followers: a.members,
			Policy:    r.Policy,
			Starts:    []HistoryStart{{Epoch: 1, Node: a.owner.Node}},
		}
	}
	s.change(nil, r)
	return ItemResult{Created: true, Object: r}
}

func (s *State) adoptResource(r *Resource) ItemResult {
	if s.view.VHost(r.VHost) == nil {
		return refuse(Refusal{Code: NotFound, What: "vhost", Name: r.VHost})
	}
	if have := s.view.Resource(r.VHost, r.Name); have != nil {
		if have.Incarnation == r.Incarnation {
			return done(have)
		}
		return refuse(Refusal{Code: Exists, What: string(have.Kind), Name: r.Name, VHost: r.VHost})
	}
	if other := s.view.Incarnation(r.Incarnation); other != nil { // of another node, whose count stands where this one's does
		return refuse(Refusal{
			Code: IncarnationMoved, What: string(r.Kind), Name: r.Name, VHost: r.VHost, Argument: "incarnation",
			Have: "that of '" + other.Name + "'", Want: number(r.Incarnation),
		})
	}
	const local = ident.TransientBit | ident.LocalBit
	if r.Incarnation&local != local || r.Home == nil || len(r.Partitions) != 1 ||
		r.Partitions[0].Partition != (ident.Partition{Incarnation: r.Incarnation}) || r.Partitions[0].Eligible() > 1 {
		return refuse(Refusal{
			Code: Invalid, What: string(r.Kind), Name: r.Name, VHost: r.VHost, Argument: "incarnation", Want: "not one that a node made",
		})
	}
	if refused := s.validResource(r, &args{owner: r.Partitions[0].Owner, partitions: 1}); refused != nil {
		return ItemResult{Refused: refused}
	}
	s.change(nil, r)
	return ItemResult{Created: true, Object: r}
}

func (s *State) validResource(r *Resource, a *args) *Refusal {
	what := string(r.Kind)
	invalid := func(argument, why string) *Refusal {
		return &Refusal{Code: Invalid, What: what, Name: r.Name, VHost: r.VHost, Argument: argument, Want: why}
	}
	switch {
	case r.Kind != Queue && r.Kind != Stream:
		what = "resource"
		return invalid("kind", "'"+string(r.Kind)+"' is neither queue nor stream")
	case r.Name == "" || len(r.Name) > MaxName:
		return invalid("name", "1 to 255 bytes")
	case (r.Queue != nil) != (r.Kind == Queue) || (r.Stream != nil) != (r.Kind == Stream):
		return invalid("settings", "not those of a "+what)
	case (r.Durable && !r.Exclusive) != (r.Home == nil):
		return invalid("home", "set exactly where the resource is not durable or is exclusive")
	case r.Home != nil && (r.Home.Node != a.owner.Node || r.Home.Boot != a.owner.Boot):
		return invalid("owner", "not where the resource lives")
	case a.partitions < 1 || a.partitions > MaxPartitions:
		return invalid("partitions", number(uint64(a.partitions))+" is not 1 to "+strconv.Itoa(MaxPartitions))
	case r.Copies > quorum.MaxCopies:
		return invalid("copies", number(uint64(r.Copies))+" is not 1 to "+strconv.Itoa(quorum.MaxCopies))
	case r.Home != nil && len(a.members) > 0:
		return invalid("followers", "a resource that lives in memory has none")
	case len(a.members) >= quorum.MaxCopies || nodeTwice(a.owner.Node, a.members):
		return invalid("followers", "too many, or a node twice")
	}
	if _, err := quorum.Parse(r.Policy); err != nil {
		return invalid("policy", err.Error())
	}
	if refused := s.registered(a.owner); refused != nil {
		return refused
	}
	for _, m := range a.members {
		if refused := s.stored(m); refused != nil {
			return refused
		}
	}
	return nil
}

func (s *State) deleteResource(a *args) ItemResult {
	have := s.view.Resource(a.vhost, a.name)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "queue", Name: a.name, VHost: a.vhost})
	}
	if a.number != 0 && a.number != have.Incarnation {
		return refuse(Refusal{
			Code: IncarnationMoved, What: string(have.Kind), Name: a.name, VHost: a.vhost,
			Argument: "incarnation", Have: number(have.Incarnation), Want: number(a.number),
		})
	}
	if now := have.Partitions[0].Epoch; a.epoch != 0 && a.epoch != now {
		return refuse(Refusal{
			Code: VersionMoved, What: string(have.Kind), Name: a.name, VHost: a.vhost, Argument: "epoch", Have: number(now), Want: number(a.epoch),
		})
	}
	s.dropResource(have)
	return done(have)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
