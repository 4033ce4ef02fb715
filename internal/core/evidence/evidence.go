// Package evidence holds what is kept of a transition: what it was decided on, what became of it, its encoding and digest, and a
// bounded shelf of such records. It decides nothing and judges nothing: core/control decides, and a record repeats what it went by. No
// clock, file or message may come in. Source: design 6 "Evidence", design 2 §5 step 4 and §8.
package evidence

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/ident"
)

// Workflow is what kind of transition it is.
type Workflow string

// The workflows.
const (
	Failover   Workflow = "failover"
	Handoff    Workflow = "handoff"
	HotMirror  Workflow = "hot-mirror-zero-rpo" // a planned promotion
	LossWindow Workflow = "loss-window"         // an accepted loss
	Deletion   Workflow = "forced-deletion"     // of a resource that could not be served; always Cancelled: nobody was chosen
)

// Outcome is what became of it.
type Outcome string

// The outcomes. A refusal and a withdrawal leave a record too.
const (
	Committed Outcome = "committed"
	Refused   Outcome = "refused"
	Cancelled Outcome = "cancelled"
)

// Bounds of a record. What is longer is cut off when it is encoded, so a record has at most about 200 KiB and usually less than 1 KiB.
const (
	MaxCopies = 64   // answers, exclusions, cuts, and nodes that saw something, of each
	MaxText   = 1024 // bytes of a reason, a cause, or a name
)

// Evidence is the record of one transition of one partition. Decided is what its digest covers and does not change; Became is filled
// in as it is learned, so the digest that the catalog holds stays true.
type Evidence struct {
	Decided
	Became
}

// Decided is what a transition was decided on.
type Decided struct {
	ID        string          `json:"id"` // of the transition; no other has it
	Workflow  Workflow        `json:"workflow"`
	Partition ident.Partition `json:"partition"`
	VHost     string          `json:"vhost"`
	Resource  string          `json:"resource"`
	Kind      ident.Kind      `json:"kind"`

	Cause  string   `json:"cause"`
	SeenBy []string `json:"seen_by,omitempty"` // nodes, sorted

	Before  Reign  `json:"before"`
	After   Reign  `json:"after"`   // no owner where nobody was chosen
	Version uint64 `json:"version"` // of the assignment that was decided on
	Policy  string `json:"policy"`
	E       int    `json:"e"`
	W       int    `json:"w"`
	R       int    `json:"r"`

	Answers    []Answer    `json:"answers,omitempty"`    // all that came, those that did not count too; by node, then store
	Exclusions []Exclusion `json:"exclusions,omitempty"` // likewise

	Start     Place `json:"start"`     // of the new epoch's history
	Floor     Floor `json:"floor"`     // what was insisted on; of an accepted loss, the end of what was known to be confirmed, and is given up
	Watermark Place `json:"watermark"` // of a planned promotion: the confirmed place that had to be covered

	// Times until the choice, in microseconds since 1970 on the clock of the node that saw it; 0: not known.
	LastConfirm int64 `json:"last_confirm_us,omitempty"` // of the old owner, as far as anyone knows
	Suspected   int64 `json:"suspected_us,omitempty"`
	Recorded    int64 `json:"recorded_us,omitempty"`
	Sealed      int64 `json:"sealed_us,omitempty"` // when enough had answered
	Chosen      int64 `json:"chosen_us,omitempty"`
}

// Loses reports whether it is an accepted loss: what lies from Start on was given up, and Floor is up to where that was known to be confirmed.
func (d *Decided) Loses() bool { return d.Workflow == LossWindow }

// Became is what became of it.
type Became struct {
	Outcome Outcome `json:"outcome,omitempty"` // "" while it is under way
	Reason  string  `json:"reason,omitempty"`  // of a refusal or a withdrawal
	Cuts    []Cut   `json:"cuts,omitempty"`    // by node, then store

	Committed    int64 `json:"committed_us,omitempty"` // as for Decided
	Serving      int64 `json:"serving_us,omitempty"`
	FirstConfirm int64 `json:"first_confirm_us,omitempty"` // of the new owner
}

// idleAfter is how long after an owner served its first message may be confirmed if anybody waited for it, in microseconds: gateways send what
// has no outcome again at once.
const idleAfter = 2_000_000

// NobodyWaited reports whether the first message that the new owner confirmed was published well after it served, so that the time until
// then is no pause of anybody's: there was nothing to confirm. It is false where the times are not known.
func (b *Became) NobodyWaited() bool { return b.Serving != 0 && b.FirstConfirm-b.Serving > idleAfter }

// Reign is who owns in which epoch.
type Reign struct {
	Owner ident.Instance `json:"owner"`
	Epoch uint64         `json:"epoch"`
}

// Place is a place in a partition's log.
type Place struct {
	Epoch    uint64 `json:"epoch"`
	Position uint64 `json:"position"`
	Offset   uint64 `json:"offset"`
	Link     Link   `json:"link"`
}

// Link is a batch's link, as text in hexadecimal.
type Link batch.Link

// MarshalText encodes the link in hexadecimal.
func (l Link) MarshalText() ([]byte, error) { return []byte(batch.Link(l).String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Link) UnmarshalText(b []byte) error {
	if hex.DecodedLen(len(b)) != len(l) {
		return fmt.Errorf("link %q: want %d hexadecimal digits", b, 2*len(l))
	}
	_, err := hex.Decode(l[:], b)
	return err
}

// Floor is the position below which nobody could be chosen, and who reported it; By is "" where nobody did.
type Floor struct {
	Position uint64 `json:"position"`
	By       string `json:"by,omitempty"`
}

// Answer is what one copy said of itself when it was sealed.
type Answer struct {
	From      ident.Instance `json:"from"`
	End       Place          `json:"end"`       // of its durable log; Epoch is of its last batch
	Clipped   uint64         `json:"clipped"`   // the position up to which it counted; that of End where nothing was clipped
	Confirmed uint64         `json:"confirmed"` // the highest that it knew of
	Health    string         `json:"health"`    // "" is health; else what is wrong with it
}

// Exclusion is a member or an answer that did not count, and why.
type Exclusion struct {
	Node   string        `json:"node"`
	Store  ident.StoreID `json:"store"`
	Reason string        `json:"reason"`
}

// Cut is what a copy dropped to follow the new history.
type Cut struct {
	Node        string        `json:"node"`
	Store       ident.StoreID `json:"store"`
	From        uint64        `json:"from"` // position: the new end of its log
	To          uint64        `json:"to"`   // where it ended before
	Quarantined bool          `json:"quarantined"`
}

// Canonical is the record as it is read again where it was encoded: lists sorted and bounded, texts cut.
func (e *Evidence) Canonical() *Evidence {
	c := e.canonical()
	return &c
}

// canonical is the record in the one form that is encoded: lists sorted and bounded, texts cut. The lists are its own.
func (e *Evidence) canonical() Evidence {
	c := *e
	for _, s := range []*string{&c.ID, &c.VHost, &c.Resource, &c.Cause, &c.Policy, &c.Floor.By, &c.Reason} {
		*s = clip(*s)
	}
	c.Workflow, c.Kind, c.Outcome = Workflow(clip(string(c.Workflow))), ident.Kind(clip(string(c.Kind))), Outcome(clip(string(c.Outcome)))
	c.Before.Owner.Node, c.After.Owner.Node = clip(c.Before.Owner.Node), clip(c.After.Owner.Node)
	c.SeenBy = sorted(c.SeenBy, strings.Compare, func(s *string) { *s = clip(*s) })
	c.Answers = sorted(c.Answers, func(a, b Answer) int { return byCopy(a.From.Node, b.From.Node, a.From.Store, b.From.Store) },
		func(a *Answer) { a.From.Node, a.Health = clip(a.From.Node), clip(a.Health) })
	c.Exclusions = sorted(c.Exclusions, func(a, b Exclusion) int {
		return cmp.Or(byCopy(a.Node, b.Node, a.Store, b.Store), strings.Compare(a.Reason, b.Reason))
	}, func(x *Exclusion) { x.Node, x.Reason = clip(x.Node), clip(x.Reason) })
	c.Cuts = sorted(c.Cuts, func(a, b Cut) int { return byCopy(a.Node, b.Node, a.Store, b.Store) }, func(x *Cut) { x.Node = clip(x.Node) })
	return c
}

func clip(s string) string { return s[:min(len(s), MaxText)] }

func sorted[T any](list []T, compare func(a, b T) int, clip func(*T)) []T {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	for i := range list {
		clip(&list[i])
	}
	slices.SortStableFunc(list, compare)
	return list[:min(len(list), MaxCopies)]
}

func byCopy(node, other string, store, another ident.StoreID) int {
	return cmp.Or(strings.Compare(node, other), slices.Compare(store[:], another[:]))
}
