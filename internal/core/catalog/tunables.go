package catalog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tanist/tanist/internal/core/units"
)

// Tunables are the settings of the whole cluster that change while it runs, as values. What is not set, or cannot be read because a
// later version wrote it, is at its default.
type Tunables struct {
	// FollowerLossHold is how long a lost follower keeps its place (design 2 §6). 0: not at all.
	FollowerLossHold time.Duration
	// VoterReplaceAfter is how long a voter of the catalog may be away before another node votes in its stead (design 2 §12). 0: it keeps its vote.
	VoterReplaceAfter time.Duration
	// RetainForAbsent is how many bytes of a log its owner keeps for followers that are away.
	RetainForAbsent int64
	// Lease is for how long an owner may admit durable changes without word from the controller, where the lease fences (design 2 §7).
	Lease time.Duration
	// FenceAlways says that an expired lease closes every partition to durable changes, not only those that confirm on one copy.
	FenceAlways bool
	// Rebalance lets followers' copies move to nodes that have fewer.
	Rebalance bool
	// LearnerRate bounds the bytes a second that a node sends to copies that catch up from far. 0: no bound.
	LearnerRate int64
}

// The names of the tunables.
const (
	FollowerLossHold   = "follower_loss_hold"
	VoterReplaceAfter  = "voter_replace_after"
	RetainForAbsent    = "retain_for_absent"
	Lease              = "lease"
	FenceOnLeaseExpiry = "fence_on_lease_expiry"
	Rebalance          = "rebalance"
	LearnerRate        = "learner_rate"
)

// Tunable describes one of them.
type Tunable struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Allowed string `json:"allowed"` // for people
	About   string `json:"about"`   // one sentence
	set     func(t *Tunables, v string) (canonical string, err error)
}

var errNotAllowed = errors.New("not allowed")

func span(field func(*Tunables) *time.Duration, low, high time.Duration, zero bool) func(*Tunables, string) (string, error) {
	return func(t *Tunables, v string) (string, error) {
		d, err := time.ParseDuration(strings.TrimSpace(v))
		if err != nil || d > high || d < low && (d != 0 || !zero) {
			return "", errNotAllowed
		}
		*field(t) = d
		return shortDuration(d), nil
	}
}

// shortDuration is a duration without the zeros at its end: 5m, not 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func amount(field func(*Tunables) *int64, low int64) func(*Tunables, string) (string, error) {
	return func(t *Tunables, v string) (string, error) {
		n, err := units.ParseSize(v)
		if err != nil || n < low && n != 0 {
			return "", errNotAllowed
		}
		*field(t) = n
		return units.FormatSize(n), nil
	}
}

func choice(field func(*Tunables) *bool, no, yes string) func(*Tunables, string) (string, error) {
	return func(t *Tunables, v string) (string, error) {
		v = strings.TrimSpace(v)
		if v != no && v != yes {
			return "", errNotAllowed
		}
		*field(t) = v == yes
		return v, nil
	}
}

var tunables = []Tunable{
	{
		FollowerLossHold, "5m", "0 or 1s to 168h",
		"How long a follower that is lost keeps its place before another node takes it; 0 replaces it at once.",
		span(func(t *Tunables) *time.Duration { return &t.FollowerLossHold }, time.Second, 168*time.Hour, true),
	},
	{
		VoterReplaceAfter, "5m", "0 or 1s to 168h",
		"How long a node that votes on the catalog may be away before another votes in its stead, if there is one; 0 lets it keep its vote.",
		span(func(t *Tunables) *time.Duration { return &t.VoterReplaceAfter }, time.Second, 168*time.Hour, true),
	},
	{
		RetainForAbsent, "1GiB", "0 bytes and up",
		"How much of a log its owner keeps for followers that are away, so that they go on where they were.",
		amount(func(t *Tunables) *int64 { return &t.RetainForAbsent }, 0),
	},
	{
		Lease, "10s", "3s to 10m",
		"How long an owner may take durable changes without word from the controller, where its lease fences.",
		span(func(t *Tunables) *time.Duration { return &t.Lease }, 3*time.Second, 10*time.Minute, false),
	},
	{
		FenceOnLeaseExpiry, "single_copy", "single_copy or always",
		"Where an expired lease closes a partition to durable changes: where one copy confirms, or everywhere.",
		choice(func(t *Tunables) *bool { return &t.FenceAlways }, "single_copy", "always"),
	},
	{
		Rebalance, "on", "on or off",
		"Whether followers' copies move from nodes that have many to nodes that have few.",
		choice(func(t *Tunables) *bool { return &t.Rebalance }, "off", "on"),
	},
	{
		LearnerRate, "16MiB", "0 or 64KiB and up",
		"How many bytes a second a node sends at most to copies that catch up from far; 0 sends as fast as it can.",
		amount(func(t *Tunables) *int64 { return &t.LearnerRate }, 64<<10),
	},
}

// AllTunables describes them all, in the order in which they are shown.
func AllTunables() []Tunable { return slices.Clone(tunables) }

// DefaultTunables are those of a cluster where nothing is set.
func DefaultTunables() Tunables {
	var t Tunables
	for _, d := range tunables {
		if _, err := d.set(&t, d.Default); err != nil {
			panic("catalog: the default of " + d.Name + " is not allowed")
		}
	}
	return t
}

// CheckTunable is asked before a setting is put (PutSetting): it gives the value as it is to be kept. Its error names what is allowed, and
// retrying is of no use. The catalog itself takes any name and value, since an older version must keep what a newer one knows.
func CheckTunable(name, value string) (canonical string, err error) {
	var names []string
	for _, d := range tunables {
		if d.Name == name {
			var t Tunables
			if canonical, err = d.set(&t, value); err != nil {
				return "", fmt.Errorf("setting %s: %q is not allowed: want %s", name, value, d.Allowed)
			}
			return canonical, nil
		}
		names = append(names, d.Name)
	}
	return "", fmt.Errorf("no setting %q: there are %s", name, strings.Join(names, ", "))
}

// Follow takes a change of the catalog: changed if it made any of the tunables another. For listeners that keep no view.
func (t *Tunables) Follow(c Change) (changed bool) {
	before := *t
	switch s := c.After.(type) {
	case *Setting:
		t.take(s.Name, s.Value)
	case nil:
		if s, ok := c.Before.(*Setting); ok {
			t.take(s.Name, "")
		}
	}
	return *t != before
}

// take sets one to a value, or to its default if that cannot be read.
func (t *Tunables) take(name, value string) {
	for _, d := range tunables {
		if d.Name != name {
			continue
		}
		if _, err := d.set(t, value); err == nil {
			return
		}
		if _, err := d.set(t, d.Default); err != nil {
			panic("catalog: the default of " + d.Name + " is not allowed")
		}
	}
}

// HoldMillis is FollowerLossHold in milliseconds, the unit of times in the catalog.
func (t Tunables) HoldMillis() int64 {
	return min(t.FollowerLossHold.Milliseconds(), math.MaxInt64/2)
}

// Tunables are the settings of the cluster as values.
func (v *View) Tunables() Tunables { return v.tunables }
