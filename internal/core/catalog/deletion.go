package catalog

import (
	"slices"
	"strconv"

	"github.com/tanist/tanist/internal/core/codec"
)

// MaxDeletions is how many forced deletions the catalog remembers at once; MaxReason bounds the reason of one, in bytes.
const (
	MaxDeletions = 256
	MaxReason    = 1024
)

// Deletion is a resource that an operator has deleted while it could not be served, because the copies that it waited for do not return. It is
// remembered so that a copy which returns after all is put aside, neither served nor dropped, until an operator forgets the deletion.
type Deletion struct {
	Incarnation uint64   `json:"incarnation"`
	VHost       string   `json:"vhost"`
	Name        string   `json:"name"`
	Kind        Kind     `json:"kind"`
	At          int64    `json:"at"` // milliseconds since 1970
	Reason      string   `json:"reason"`
	Stopped     []string `json:"stopped,omitempty"` // nodes that were stopped, by the operator's word
	// Held are the stores that had a place in one of its partitions when it went. None of them may come to hold it anew.
	Held []Member `json:"held"`
}

// ForceDelete removes a durable resource with its bindings, whoever owns it, and remembers that as d says. Of d, Kind and Held are the
// catalog's to give. versions are those of the assignments that it was decided on, in order of partition. It is refused with NotFound,
// IncarnationMoved, VersionMoved (decide anew), and with Invalid if the resource lives in memory, if there is no reason or it is longer than
// MaxReason, or if MaxDeletions are remembered: ForgetDeletion makes room.
func ForceDelete(d Deletion, versions []uint64) Item {
	f := forcing{d, versions}
	f.Kind, f.Held = "", nil
	return item(opForceDelete, func(c *coder) { c.forcing(&f) })
}

// ForgetDeletion lets a forced deletion be forgotten: what was put aside for it is dropped on every node that has it, and on those that return
// later. It is refused with NotFound.
func ForgetDeletion(incarnation uint64) Item {
	return item(opForgetDeletion, func(c *coder) { c.U64(&incarnation) })
}

type forcing struct {
	Deletion
	versions []uint64
}

func (c *coder) forcing(f *forcing) {
	c.deletion(&f.Deletion)
	codec.List(c, &f.versions, (*coder).number)
}

func (c *coder) number(v *uint64) { c.U64(v) }

func (c *coder) nodeName(v *string) { c.Name(v) }

func (c *coder) deletion(d *Deletion) {
	c.U64(&d.Incarnation)
	c.Name(&d.VHost)
	c.Text(&d.Name)
	kind := string(d.Kind)
	c.Name(&kind)
	d.Kind = Kind(kind)
	c.I64(&d.At)
	c.Text(&d.Reason)
	codec.List(c, &d.Stopped, (*coder).nodeName)
	codec.List(c, &d.Held, (*coder).member)
}

func (s *State) forceDelete(f *forcing) ItemResult {
	d := f.Deletion
	have := s.view.Resource(d.VHost, d.Name)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "queue", Name: d.Name, VHost: d.VHost})
	}
	about := Refusal{What: string(have.Kind), Name: d.Name, VHost: d.VHost}
	refused := func(code Code, argument, is, want string) ItemResult {
		r := about
		r.Code, r.Argument, r.Have, r.Want = code, argument, is, want
		return refuse(r)
	}
	switch {
	case have.Incarnation != d.Incarnation:
		return refused(IncarnationMoved, "incarnation", number(have.Incarnation), number(d.Incarnation))
	case have.Home != nil:
		return refused(Invalid, "deletion", "", "it lives in memory, and goes with its node")
	case d.Reason == "" || len(d.Reason) > MaxReason:
		return refused(Invalid, "reason", "", "1 to "+strconv.Itoa(MaxReason)+" bytes")
	case len(s.view.deletions) >= MaxDeletions:
		return refused(Invalid, "deletion", "", strconv.Itoa(MaxDeletions)+" are remembered already: forget one whose copies nobody needs any more")
	case len(f.versions) != len(have.Partitions):
		return refused(VersionMoved, "partitions", strconv.Itoa(len(have.Partitions)), strconv.Itoa(len(f.versions)))
	}
	d.Kind, d.Held = have.Kind, nil
	for i, a := range have.Partitions {
		if a.Version != f.versions[i] {
			return refused(VersionMoved, "version", number(a.Version), number(f.versions[i]))
		}
		for _, m := range slices.Concat([]Member{{Node: a.Owner.Node, Store: a.Owner.Store}}, a.Followers, a.Learners) {
			if !slices.Contains(d.Held, m) {
				d.Held = append(d.Held, m)
			}
		}
	}
	s.change(nil, &d) // first: who follows the changes has to know before the resource goes
	s.dropResource(have)
	return done(have)
}

func (s *State) forgetDeletion(incarnation *uint64) ItemResult {
	have := s.view.Deletion(*incarnation)
	if have == nil {
		return refuse(Refusal{Code: NotFound, What: "deletion", Name: number(*incarnation)})
	}
	s.change(have, nil)
	return done(have)
}

// Deletion is nil if no forced deletion of that incarnation is remembered.
func (v *View) Deletion(incarnation uint64) *Deletion { return v.deletions[incarnation] }

// Deletions are all forced deletions that are remembered, by incarnation.
func (v *View) Deletions() []*Deletion { return sortedValues(v.deletions) }
