package control

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

// Accepted loss (design 2 §8): an operator gives up on copies that are missing, and the partition goes on with those that have answered.

// LossInput is what such a plan is made of.
type LossInput struct {
	// Input is as for Choose. Where no transition is pending its answers count for nothing, and Reached is gone by.
	Input
	FloorBy string // who reported Input.Floor
	// Reached are the nodes of which the registered run can be asked, and is not suspected.
	Reached []string
}

// LossPlan is what accepting a loss would do, and what it may cost.
type LossPlan struct {
	Partition ident.Partition
	Epoch     uint64         // in force
	Owner     ident.Instance // of that epoch
	Candidate ident.Instance // would own
	// Start is where the candidate's history would begin; of an owner that goes on it is not measured, and nothing is lost.
	Start     catalog.HistoryStart
	Followers []catalog.Member // hold all that the candidate does
	Learners  []catalog.Member // all others: they are cut to its history, and catch up
	Missing   []catalog.Member // of them those that count now and have not answered, by node
	// To ends what may be gone: the highest position that anyone reported as confirmed, and FloorBy who did. It is that of Start where
	// nothing confirmed is known to be gone. What was confirmed after that report, and is on missing copies only, is gone too.
	To      uint64
	FloorBy string
	// Excluded are the answers that do not count, and why.
	Excluded []Excluded
	// Fence are the missing nodes that must be known to be stopped: the owner of the epoch in force is among them with as many others as
	// a confirm needs, so they could go on without anybody here (design 2 §7).
	Fence []string
	// Transition is the pending one; "": none is.
	Transition string
	// Ask are positions of which the candidate must first say its links: there is no plan before that.
	Ask []uint64
	// Against says why nothing can be accepted, for people; "": it can.
	Against string
}

// PlanLoss says what accepting the loss of the copies that have not answered would do. It changes nothing, and the same input gives the same
// plan. Contradictory evidence is never resolved by it.
func PlanLoss(in LossInput) LossPlan {
	a := in.Assignment
	p := LossPlan{Partition: a.Partition, Epoch: a.Epoch, Owner: a.Owner}
	if a.Pending == nil {
		p.goingOn(in)
	} else {
		p.waiting(in)
	}
	if p.Against == "" && len(p.Ask) == 0 {
		slices.SortFunc(p.Missing, byNode)
		ownerGone := slices.ContainsFunc(p.Missing, func(m catalog.Member) bool { return m.Store == a.Owner.Store })
		if ownerGone && len(p.Missing) >= in.W {
			for _, m := range p.Missing {
				p.Fence = append(p.Fence, m.Node)
			}
		}
	}
	return p
}

func byNode(x, y catalog.Member) int { return strings.Compare(x.Node, y.Node) }

// goingOn plans for an owner that serves, and reaches too few followers to confirm anything.
func (p *LossPlan) goingOn(in LossInput) {
	a := in.Assignment
	if !slices.Contains(in.Reached, a.Owner.Node) {
		p.Against = fmt.Sprintf("its owner %s cannot be reached and is not suspected yet: a change of owner begins by itself in a moment", a.Owner.Node)
		return
	}
	p.Candidate = a.Owner
	for _, f := range a.Followers {
		if slices.Contains(in.Reached, f.Node) {
			p.Followers = append(p.Followers, f)
		} else {
			p.Learners, p.Missing = append(p.Learners, f), append(p.Missing, f)
		}
	}
	p.Learners = append(p.Learners, a.Learners...)
	if 1+len(p.Followers) >= in.W {
		p.Against = fmt.Sprintf("nothing has to be given up: its owner %s and as many copies as a confirm needs can be reached", a.Owner.Node)
	}
}

// waiting plans for a transition that cannot be decided.
func (p *LossPlan) waiting(in LossInput) {
	a := in.Assignment
	if Choose(in.Input).Verdict == Chosen && !p.spared(in) {
		p.Against = "nothing has to be given up: a new owner is being chosen"
		return
	}
	p.Transition = a.Pending.ID
	d := choose(in.Input, true)
	switch d.Verdict {
	case Ask:
		p.Candidate, p.Ask = d.Owner, d.Positions
		return
	case Blocked:
		p.Against = d.Reason + ": contradictory evidence is never resolved by giving copies up; a person has to find out which copy is right"
		return
	case Wait:
		p.Against = "no copy that counts has answered: there is nothing to go on with; tanist plan delete says what giving all of it up would do"
		return
	case Chosen:
	}
	p.Candidate, p.Start, p.Excluded = d.Owner, d.Start, d.Excluded
	p.To = max(d.Start.Position, d.Floor)
	p.FloorBy = floorFrom(in.Input, d, in.FloorBy)
	counted := admit(a, in.Answers, &Decision{})
	for _, m := range asked(a) {
		i := slices.IndexFunc(counted, func(c candidate) bool { return c.Instance.Node == m.Node && c.Instance.Store == m.Store })
		switch {
		case i >= 0 && counted[i].Instance == p.Candidate:
		case i >= 0 && counted[i].at.Position == d.Start.Position:
			p.Followers = append(p.Followers, m) // shorter ones do not hold what was confirmed before, and must not be chosen for lack of others
		default:
			p.Learners = append(p.Learners, m)
		}
		if !slices.ContainsFunc(in.Answers, func(x Answer) bool {
			return x.Instance.Store == m.Store && x.Transition == a.Pending.ID && x.Refused == ""
		}) {
			p.Missing = append(p.Missing, m)
		}
	}
	p.Learners = append(p.Learners, a.Learners...)
}

// spared reports whether a choice that can be made would leave too few copies to confirm anything.
func (p *LossPlan) spared(in LossInput) bool {
	sealed := 0
	for _, x := range in.Answers {
		if x.Damaged == "" && x.Refused == "" {
			sealed++
		}
	}
	return sealed < in.W
}

// Gone is how many entries from Start on were confirmed, as far as anyone reported, and are on no copy that is left.
func (p *LossPlan) Gone() uint64 { return p.To - p.Start.Position }

// Hash names what the plan would do: it changes with everything that decides about it, and with nothing else. Of an owner that goes on no
// position decides anything.
func (p *LossPlan) Hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "accepted loss\n%s epoch %d owner %s\ncandidate %s\n", p.Partition, p.Epoch, p.Owner, p.Candidate)
	if p.Candidate != p.Owner || p.Gone() > 0 {
		fmt.Fprintf(h, "from %d offset %d link %s to %d\n", p.Start.Position, p.Start.Offset, p.Start.Link, p.To)
	}
	for _, m := range p.Missing {
		fmt.Fprintf(h, "missing %q %s\n", m.Node, m.Store)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Unstopped are the nodes of Fence that are not among those named as stopped.
func (p *LossPlan) Unstopped(stopped []string) []string { return unnamed(p.Fence, stopped) }

// StopFirst says that nodes must be stopped, and known to be, before a loss can be accepted.
func StopFirst(nodes []string) string {
	return fmt.Sprintf("%s may still run, and could go on confirming without anybody here: stop them for sure, and say so with --stopped %s",
		strings.Join(nodes, ", "), strings.Join(nodes, ","))
}

// WaitForLease says that an owner which may still run is fenced by its lease, and not yet: a loss can be accepted once that is over, without
// anybody's word that nodes are stopped.
func WaitForLease(owner string, left time.Duration, nodes []string) string {
	return fmt.Sprintf("%s may still run, and its lease may let it confirm for another %d s: ask again then, or stop %s for sure, and say so with --stopped %s",
		owner, 1+int(left/time.Second), strings.Join(nodes, ", "), strings.Join(nodes, ","))
}

// NoteLeaseOver adds to the record of an accepted loss that its owner was not known to be stopped, and was fenced by the end of its lease.
func NoteLeaseOver(e *evidence.Evidence, owner ident.Instance) {
	for i := range e.Exclusions {
		if x := &e.Exclusions[i]; x.Node == owner.Node && x.Store == owner.Store {
			x.Reason += "; its lease is over, and fences it"
		}
	}
}

// decision is the plan as a choice, for the record of it.
func (p *LossPlan) decision() Decision {
	return Decision{Verdict: Chosen, Owner: p.Candidate, Start: p.Start, Excluded: p.Excluded, Floor: p.To}
}

// EvidenceOfLoss is the record of an accepted loss: as EvidenceOf, with the end of what may be gone as the floor, which was not met. stopped are
// the nodes that the operator named as stopped.
func EvidenceOfLoss(r *catalog.Resource, in LossInput, p *LossPlan, reason string, stopped []string) *evidence.Evidence {
	e := EvidenceOf(r, in.Input, p.decision(), in.FloorBy)
	e.Workflow, e.Floor.By = evidence.LossWindow, p.FloorBy
	cause := e.Cause
	if e.Cause = AcceptedCause(reason); cause != "" && cause != e.Cause {
		e.Cause += "; it waited because " + cause
	}
	for i := range e.Exclusions {
		if x := &e.Exclusions[i]; slices.Contains(stopped, x.Node) {
			x.Reason += "; said to be stopped"
		}
	}
	return e
}

// LossOf is the guarded write that accepts a loss as planned, and the start's digest is the caller's to set.
func LossOf(a *catalog.Assignment, p LossPlan) catalog.Commit {
	c := catalog.Commit{
		Partition: a.Partition, Version: a.Version, Transition: a.Pending.ID, Owner: p.Candidate, Followers: p.Followers, Learners: p.Learners,
		Start: p.Start,
	}
	c.Start.Loss = catalog.Loss{Accepted: true, To: p.To}
	return c
}

// Stranded are the partitions that copies are missing of without which they do not go on, in order: those of which no owner can be chosen yet, and
// those whose owner reaches too few copies to confirm anything. What giving up on the copies would do is for PlanLoss to say of each. There are none
// while the catalog has no majority: nothing can be given up then.
func Stranded(k Known) (out []ident.Partition) {
	if k.NoQuorum != "" {
		return nil
	}
	s := newSurvey(k)
	s.transitions()
	s.copies()
	for _, r := range k.View.AllResources() {
		if r.Home != nil {
			continue
		}
		for _, a := range r.Partitions {
			if c, lacks := s.redundant(a, r); s.waits[a.Partition] || lacks && c.last != "" {
				out = append(out, a.Partition)
			}
		}
	}
	slices.SortFunc(out, ident.Partition.Compare)
	return out
}

// LossesHash names plans of several partitions together: it changes with every one of them, and with their number. hashes are what LossPlan.Hash gives,
// in order of partition.
func LossesHash(of []ident.Partition, hashes []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "accepted losses of %d\n", len(of))
	for i, p := range of {
		fmt.Fprintf(h, "%s %s\n", p, hashes[i])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
