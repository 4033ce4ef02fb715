package main

import (
	"slices"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/front/admin"
)

// A policy says where it asks for more copies than there are, and for which follower its change waits.
func TestPolicyNotes(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	held := []admin.Held{{Node: "n3", Why: "its place is kept", Since: now.Add(-time.Minute).UnixMilli(), Until: now.Add(4 * time.Minute).UnixMilli()}}
	away := "n3 is away since " + now.Add(-time.Minute).Format(time.DateTime) + ": its place is kept for another 4m0s, until " + now.Add(4*time.Minute).Format(time.TimeOnly)
	for _, x := range []struct {
		wished, have string
		copies       int
		held         []admin.Held
		want         []string
	}{
		{"majority_durable", "majority_durable", 3, held, nil},
		{"all_durable", "majority_durable", 3, nil, nil},
		{"all_durable", "", 3, held, []string{"with all_durable 3 of 3 have to hold everything first, and it waits: " + away}},
		{"all_durable", "all_durable", 3, held, nil},
		{"local_durable", "all_durable", 3, held, nil}, // the two that are there will do
		{"replica_durable(3)", "replica_durable(3)", 3, nil, nil},
		{"replica_durable(5)", "replica_durable(5)", 5, nil, nil}, // the copies are on their way
		{"replica_durable(5)", "replica_durable(5)", 3, nil, []string{
			"replica_durable(5) counts no further than there are copies: of 3 it is all; for more: tanist policy 'a b' --copies 5",
		}},
	} {
		r := admin.Resource{Name: "a b", Kind: "queue", Policy: x.wished, Copies: x.copies}
		got := policyNotes(r, admin.Partition{Kind: "queue", Policy: x.have, E: 3, Held: x.held}, now)
		if !slices.Equal(got, x.want) {
			t.Errorf("%s after %s on %d: %q", x.wished, x.have, x.copies, got)
		}
	}
}
