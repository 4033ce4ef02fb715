package control

import (
	"reflect"
	"testing"

	"github.com/tanist/tanist/internal/core/ident"
)

// The word of the very run that owns, in the epoch that it owns, gives up that one partition, where another copy may have it.
func TestADamagedOwnerIsACause(t *testing.T) {
	a := three(4)
	a.Owner, a.Pending = instance("a", 5), nil
	alone := *a
	alone.Followers = nil
	for name, x := range map[string]struct {
		damage Damage
		want   Why
	}{
		"its own word":            {Damage{instance("a", 5), 4, "checksum"}, OwnerDamaged},
		"of a run before":         {Damage{instance("a", 4), 4, "checksum"}, NoReason},
		"of another store":        {Damage{ident.Instance{Node: "a", Boot: 5}, 4, "checksum"}, NoReason},
		"of a follower":           {Damage{instance("b", 5), 4, "checksum"}, NoReason},
		"of what it owned before": {Damage{instance("a", 5), 3, "checksum"}, NoReason},
	} {
		if got := CauseOfDamage(a, x.damage); got.Why != x.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := CauseOfDamage(&alone, Damage{instance("a", 5), 4, "checksum"}); got.Why != NoReason {
		t.Errorf("with nobody to own in its place: %+v", got)
	}
	want := Reason{Why: OwnerDamaged, Text: "the copy of owner a/61000000/5 is damaged: checksum", By: []string{"a"}}
	if got := CauseOfDamage(a, Damage{instance("a", 5), 4, "checksum"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}
