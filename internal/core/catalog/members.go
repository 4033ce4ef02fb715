package catalog

import (
	"fmt"
	"slices"

	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/quorum"
)

// keepStarts is how many history starts an assignment keeps (design 2 §5).
const keepStarts = 32

func raiseFormat(s *State, c *coder) (ItemResult, error) {
	var from, to uint64
	c.U64(&from)
	c.U64(&to)
	if err := c.End(); err != nil {
		return ItemResult{}, err
	}
	have := s.view.cluster
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "cluster"}), nil
	}
	if have.Format != from || to <= from {
		return refuse(Refusal{
			Code: VersionMoved, What: "cluster", Name: have.ID.String(),
			Argument: "format", Have: number(have.Format), Want: number(from),
		}), nil
	}
	if to > Format {
		return ItemResult{}, fmt.Errorf("%w: format raised to %d, known up to %d", ErrUnknownCommand, to, Format)
	}
	after := *have
	after.Format = to
	s.change(have, &after)
	return done(&after), nil
}

func (s *State) putUser(u *User) ItemResult {
	if u.Name == "" || len(u.Name) > MaxName {
		return refuse(Refusal{Code: Invalid, What: "user", Name: u.Name, Argument: "name", Want: "1 to 255 bytes"})
	}
	have, at := s.view.User(u.Name), uint64(0)
	if have != nil {
		at = have.Version
	}
	if refused := moved("user", u.Name, at, u.Version); refused != nil {
		return ItemResult{Refused: refused}
	}
	if have != nil && !u.administers() && s.onlyAdministrator(have) {
		return refuse(lastAdministrator(u.Name))
	}
	s.versions++
	u.Version = s.versions
	return replace(s, have, u)
}

func (u *User) administers() bool { return slices.Contains(u.Roles, Administrator) }

// onlyAdministrator reports whether nobody could change anything by the admin port any more without a user, who can now: there would be no way
// back.
func (s *State) onlyAdministrator(u *User) bool {
	return u.administers() && !slices.ContainsFunc(s.view.Users(), func(o *User) bool { return o.Name != u.Name && o.administers() })
}

func lastAdministrator(name string) Refusal {
	return Refusal{Code: InUse, What: "user", Name: name, Want: "it is the only administrator; make another one first"}
}

// moved refuses what was decided on another version than the present one.
func moved(what, name string, at, decided uint64) *Refusal {
	if at == decided {
		return nil
	}
	return &Refusal{Code: VersionMoved, What: what, Name: name, Argument: "version", Have: number(at), Want: number(decided)}
}

// replace puts an object in the place of have, which may be nil.
func replace[T any](s *State, have, after *T) ItemResult {
	if have == nil {
		s.change(nil, after)
		return ItemResult{Created: true, Object: after}
	}
	s.change(have, after)
	return done(after)
}

func (s *State) deleteUser(a *args) ItemResult {
	have := s.view.User(a.name)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "user", Name: a.name})
	}
	if s.onlyAdministrator(have) {
		return refuse(lastAdministrator(a.name))
	}
	for _, p := range s.view.Permissions() {
		if p.User == a.name {
			s.change(p, nil)
		}
	}
	s.change(have, nil)
	return done(have)
}

func (s *State) putPermission(p *Permission) ItemResult {
	if s.view.User(p.User) == nil {
		return refuse(Refusal{Code: NotFound, What: "user", Name: p.User})
	}
	if s.view.VHost(p.VHost) == nil {
		return refuse(Refusal{Code: NotFound, What: "vhost", Name: p.VHost})
	}
	return replace(s, s.view.Permission(p.User, p.VHost), p)
}

func (s *State) deletePermission(a *args) ItemResult {
	have := s.view.Permission(a.name, a.vhost)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "permission", Name: a.name, VHost: a.vhost})
	}
	s.change(have, nil)
	return done(have)
}

// registered checks that an instance is the registered run of its node.
func (s *State) registered(i ident.Instance) *Refusal {
	n := s.view.Node(i.Node)
	switch {
	case n == nil:
		return &Refusal{Code: NotFound, What: "node", Name: i.Node}
	case n.Store != i.Store:
		return &Refusal{
			Code: StoreMoved, What: "node", Name: i.Node, Argument: "store", Have: n.Store.String(), Want: i.Store.String(),
		}
	case n.Boot != i.Boot:
		return &Refusal{Code: StaleBoot, What: "node", Name: i.Node, Have: number(n.Boot), Want: number(i.Boot)}
	}
	return nil
}

func (s *State) registerBoot(n *Node) ItemResult {
	if n.Name == "" || len(n.Name) > MaxName || n.Store.IsZero() || n.Boot == 0 {
		return refuse(Refusal{Code: Invalid, What: "node", Name: n.Name, Argument: "instance", Want: "name, store and boot must be set"})
	}
	if refused := s.free(n); refused != nil {
		return ItemResult{Refused: refused}
	}
	have := s.view.Node(n.Name)
	if have == nil {
		s.runs++
		n.Number, n.Absent = s.runs, 0
		s.change(nil, n)
		return ItemResult{Created: true, Object: n}
	}
	n.Number, n.Draining, n.Absent = have.Number, have.Draining, have.Absent
	same := ident.Instance{Node: n.Name, Store: n.Store, Boot: n.Boot}
	refused := s.registered(same)
	switch {
	case refused == nil:
		if *have == *n {
			return done(have)
		}
	case refused.Code == StaleBoot && n.Boot > have.Boot:
		s.runs++
		n.Number, n.Absent = s.runs, 0
	default:
		return ItemResult{Refused: refused}
	}
	s.change(have, n)
	s.bury(n.Name, n.Boot)
	return done(n)
}

// bury removes what runs of a node before a boot held in memory.
func (s *State) bury(node string, before uint64) {
	buried := func(h *Home) bool { return h != nil && h.Node == node && h.Boot < before }
	for _, r := range s.view.AllResources() {
		if buried(r.Home) {
			s.dropResource(r)
		}
	}
	for _, v := range s.view.VHosts() {
		for _, e := range s.view.Exchanges(v.Name) {
			// An auto-delete exchange may have gone with another.
			if buried(e.Home) && s.view.Exchange(v.Name, e.Name) == e {
				s.dropExchange(e)
			}
		}
	}
}

// guard finds an assignment that is still at a version.
func (s *State) guard(p ident.Partition, version uint64) (*Assignment, *Refusal) {
	a, _ := s.view.Assignment(p)
	if a == nil {
		return nil, &Refusal{Code: NotFound, What: "partition", Name: p.String()}
	}
	if a.Version != version {
		return a, &Refusal{
			Code: VersionMoved, What: "partition", Name: p.String(), Argument: "version", Have: number(a.Version), Want: number(version),
		}
	}
	return a, nil
}

// assign replaces the assignment of a partition, counting its version up.
func (s *State) assign(a Assignment) ItemResult {
	a.Version++
	r := s.view.Incarnation(a.Partition.Incarnation)
	after := again(r)
	if len(r.Partitions) == 1 {
		*after.Partitions[0] = a
	} else {
		after.Partitions[a.Partition.Index] = new(a)
	}
	s.change(r, after)
	return done(after)
}

// again copies a resource to be changed, with its one assignment, or its list of several, of which each is to be replaced whole.
func again(r *Resource) *Resource {
	if len(r.Partitions) == 1 {
		after := together(r, 1)
		*after.Partitions[0] = *r.Partitions[0]
		return after
	}
	after := new(*r)
	after.Partitions = slices.Clone(r.Partitions)
	return after
}

// together copies a resource and gives it empty assignments. With one partition, which is the rule, all lies in one piece of memory.
func together(r *Resource, partitions int) *Resource {
	if partitions == 1 {
		whole := &struct {
			resource   Resource
			partitions [1]*Assignment
			assignment Assignment
		}{resource: *r}
		whole.partitions[0] = &whole.assignment
		whole.resource.Partitions = whole.partitions[:]
		return &whole.resource
	}
	after := new(*r)
	after.Partitions = make([]*Assignment, partitions)
	for i := range after.Partitions {
		after.Partitions[i] = &Assignment{}
	}
	return after
}

func transitionMoved(a *Assignment, want string) ItemResult {
	have := "none"
	if a.Pending != nil {
		have = a.Pending.ID
	}
	return refuse(Refusal{
		Code: TransitionMoved, What: "partition", Name: a.Partition.String(), Argument: "transition", Have: have, Want: want,
	})
}

func (s *State) recordPending(x *args) ItemResult {
	a, refused := s.guard(x.partition, x.number)
	if a != nil && a.Pending != nil && a.Pending.Equal(&x.pending) {
		return done(s.view.Incarnation(x.partition.Incarnation)) // a repeat, whose first answer was lost
	}
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	if a.Pending != nil && a.Pending.ID != x.pending.ID {
		return transitionMoved(a, x.pending.ID)
	}
	if x.pending.Epoch <= a.Epoch || (a.Pending != nil && x.pending.Epoch < a.Pending.Epoch) || x.pending.ID == "" {
		return refuse(Refusal{
			Code: Invalid, What: "partition", Name: x.partition.String(), Argument: "transition",
			Want: fmt.Sprintf("id %q at epoch %d, while the assignment is at epoch %d", x.pending.ID, x.pending.Epoch, a.Epoch),
		})
	}
	after := *a
	after.Pending = new(x.pending) // not the field: it would keep all of the arguments
	return s.assign(after)
}

func (s *State) commitTransition(t *Commit) ItemResult {
	t.Start.Loss = Loss{} // only an accepted loss gives anything up
	return s.commit(t, func(a *Assignment) *Refusal {
		for _, m := range append([]Member{{Node: t.Owner.Node, Store: t.Owner.Store}}, t.Followers...) {
			if !a.admits(m) {
				return &Refusal{
					Code: Invalid, What: "partition", Name: t.Partition.String(), Argument: "commit",
					Want: "the copy on " + m.Node + " is neither its owner nor a follower now: it counts for nothing",
				}
			}
		}
		return nil
	})
}

// commit ends a transition; check is asked last whether it may.
func (s *State) commit(t *Commit, check func(*Assignment) *Refusal) ItemResult {
	a, refused := s.guard(t.Partition, t.Version)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	if a.Pending == nil || a.Pending.ID != t.Transition {
		return transitionMoved(a, t.Transition)
	}
	if refused := s.registered(t.Owner); refused != nil {
		return ItemResult{Refused: refused}
	}
	if t.Start.Epoch != a.Pending.Epoch || len(t.Followers)+len(t.Learners) >= quorum.MaxCopies || !distinct(t.Owner, t.Followers, t.Learners) {
		return refuse(Refusal{
			Code: Invalid, What: "partition", Name: t.Partition.String(), Argument: "commit",
			Want: fmt.Sprintf("start at epoch %d for a transition to epoch %d, and no member twice", t.Start.Epoch, a.Pending.Epoch),
		})
	}
	if check != nil {
		if refused := check(a); refused != nil {
			return ItemResult{Refused: refused}
		}
	}
	after := *a
	after.Epoch, after.Owner, after.Followers, after.Learners, after.Pending = t.Start.Epoch, t.Owner, t.Followers, t.Learners, nil
	after.Leaving = among(a.Leaving, t.Followers)
	from := max(0, len(a.Starts)+1-keepStarts)
	after.Starts = append(append(make([]HistoryStart, 0, len(a.Starts)-from+1), a.Starts[from:]...), t.Start)
	return s.assign(after)
}

func (s *State) cancelPending(x *args) ItemResult {
	a, refused := s.guard(x.partition, x.number)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	if a.Pending == nil || a.Pending.ID != x.text {
		return transitionMoved(a, x.text)
	}
	after := *a
	after.Pending = nil
	return s.assign(after)
}

// settingAt finds a setting that is still at a version, 0 for none.
func (s *State) settingAt(name string, version uint64) (*Setting, *Refusal) {
	have, at := s.view.Setting(name), uint64(0)
	if have != nil {
		at = have.Version
	}
	return have, moved("setting", name, at, version)
}

func (s *State) putSetting(a *args) ItemResult {
	have, refused := s.settingAt(a.name, a.number)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	s.versions++
	return replace(s, have, &Setting{Name: a.name, Value: a.text, Version: s.versions})
}

func (s *State) deleteSetting(a *args) ItemResult {
	have, refused := s.settingAt(a.name, a.number)
	if refused != nil {
		return ItemResult{Refused: refused}
	}
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "setting", Name: a.name})
	}
	s.change(have, nil)
	return done(have)
}
