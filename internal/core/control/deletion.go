package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

// Forced deletion (design 2 §8 in spirit: what an operator gives up is on record, and nothing of it is destroyed): a resource that waits for
// copies which never return can neither be served nor be deleted by its clients, for its owner has to close it first. An operator deletes it.

// PartEnd is what is known of one partition of such a resource.
type PartEnd struct {
	Partition ident.Partition
	Epoch     uint64         // in force
	Owner     ident.Instance // of that epoch
	Served    bool           // its owner can be reached, and no other is being chosen
	Floor     uint64         // the highest position that anyone reported as confirmed
	FloorBy   string         // who did; "": nobody reported any
	Left      []catalog.Member
	Missing   []catalog.Member // members that have not answered, by node
}

// DeletionPlan is what deleting a resource would give up.
type DeletionPlan struct {
	Incarnation uint64
	Versions    []uint64 // of the assignments, in order of partition: the deletion is guarded by them
	Parts       []PartEnd
	// Fence are the missing nodes that must be known to be stopped: as of LossPlan.
	Fence []string
	// Against says why it cannot be deleted by force, for people; "": it can.
	Against string
}

// PlanDeletion says what deleting a resource by force would give up. It changes nothing, and the same input gives the same plan. in has one item
// for each partition, in order.
func PlanDeletion(r *catalog.Resource, in []LossInput) DeletionPlan {
	p := DeletionPlan{Incarnation: r.Incarnation}
	served := 0
	for _, i := range in {
		p.Versions = append(p.Versions, i.Assignment.Version)
		e, against := partEnd(i)
		if p.Against == "" {
			p.Against = against
		}
		if e.Served {
			served++
		}
		if n := len(e.Missing); n >= i.W && slices.ContainsFunc(e.Missing, func(m catalog.Member) bool { return m.Store == e.Owner.Store }) {
			for _, m := range e.Missing {
				p.Fence = append(p.Fence, m.Node)
			}
		}
		p.Parts = append(p.Parts, e)
	}
	slices.Sort(p.Fence)
	p.Fence = slices.Compact(p.Fence)
	if p.Against == "" && served == len(in) {
		p.Against = "it is served: its clients can delete it (queue.delete), and nothing has to be given up"
	}
	return p
}

// partEnd says how a partition stands, and why it is too early to give it up.
func partEnd(in LossInput) (e PartEnd, against string) {
	a := in.Assignment
	e = PartEnd{Partition: a.Partition, Epoch: a.Epoch, Owner: a.Owner, Floor: in.Floor, FloorBy: in.FloorBy}
	if a.Pending == nil {
		if e.Served = slices.Contains(in.Reached, a.Owner.Node); !e.Served {
			against = fmt.Sprintf("its owner %s cannot be reached and is not suspected yet: a change of owner begins by itself in a moment", a.Owner.Node)
		}
		return e, against
	}
	d := Choose(in.Input)
	if d.Verdict == Chosen || d.Verdict == Ask {
		return e, "a new owner is being chosen: ask again in a moment"
	}
	e.Floor, e.FloorBy = max(in.Floor, d.Floor), floorFrom(in.Input, d, in.FloorBy)
	counted := admit(a, in.Answers, &Decision{})
	for _, m := range asked(a) {
		is := func(x Answer) bool {
			return x.Instance.Node == m.Node && x.Instance.Store == m.Store && x.Transition == a.Pending.ID && x.Refused == ""
		}
		switch {
		case slices.ContainsFunc(counted, func(c candidate) bool { return is(c.Answer) }):
			e.Left = append(e.Left, m)
		case !slices.ContainsFunc(in.Answers, is):
			e.Missing = append(e.Missing, m)
		}
	}
	slices.SortFunc(e.Left, byNode)
	slices.SortFunc(e.Missing, byNode)
	return e, ""
}

// Hash names what the plan would do, as LossPlan.Hash.
func (p *DeletionPlan) Hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "forced deletion of %d\n", p.Incarnation)
	for _, e := range p.Parts {
		fmt.Fprintf(h, "%s epoch %d owner %s served %t floor %d\n", e.Partition, e.Epoch, e.Owner, e.Served, e.Floor)
		for _, m := range e.Left {
			fmt.Fprintf(h, "left %q %s\n", m.Node, m.Store)
		}
		for _, m := range e.Missing {
			fmt.Fprintf(h, "missing %q %s\n", m.Node, m.Store)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Unstopped are the nodes of Fence that are not among those named as stopped.
func (p *DeletionPlan) Unstopped(stopped []string) []string { return unnamed(p.Fence, stopped) }

func unnamed(nodes, named []string) (out []string) {
	for _, node := range nodes {
		if !slices.Contains(named, node) {
			out = append(out, node)
		}
	}
	return out
}

// EvidenceOfDeletion turns the record of a transition that could not be decided into that of its end: its resource was deleted by force.
func EvidenceOfDeletion(e *evidence.Evidence, d *catalog.Deletion) {
	e.Workflow, e.Outcome = evidence.Deletion, evidence.Cancelled
	e.Reason = "its " + string(d.Kind) + " was deleted by an operator: " + d.Reason
	if len(d.Stopped) > 0 {
		e.Reason += "; said to be stopped: " + strings.Join(d.Stopped, ", ")
	}
}
