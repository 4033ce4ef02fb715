package catalog

import (
	"strings"
	"testing"
	"time"
)

func TestTunables(t *testing.T) {
	for _, c := range []struct{ name, value, canonical string }{
		{"follower_loss_hold", "90s", "1m30s"},
		{"follower_loss_hold", " 0 ", "0s"},
		{"follower_loss_hold", "3600s", "1h"},
		{"follower_loss_hold", "999ms", ""},
		{"follower_loss_hold", "-1s", ""},
		{"follower_loss_hold", "169h", ""},
		{"retain_for_absent", "2048MiB", "2GiB"},
		{"retain_for_absent", "0", "0"},
		{"retain_for_absent", "-1", ""},
		{"lease", "0", ""},
		{"lease", "3s", "3s"},
		{"lease", "11m", ""},
		{"fence_on_lease_expiry", "always", "always"},
		{"fence_on_lease_expiry", "never", ""},
		{"rebalance", "off", "off"},
		{"rebalance", "yes", ""},
		{"learner_rate", "0", "0"},
		{"learner_rate", "1KiB", ""},
		{"learner_rate", "1MB", "1000000"},
	} {
		got, err := CheckTunable(c.name, c.value)
		if got != c.canonical || (err != nil) != (c.canonical == "") {
			t.Errorf("%s = %q: %q, %v", c.name, c.value, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "want ") {
			t.Errorf("%v does not say what is allowed", err)
		}
	}
	if _, err := CheckTunable("folower_loss_hold", "1s"); err == nil || !strings.Contains(err.Error(), "there are follower_loss_hold, voter_replace_after") {
		t.Errorf("an unknown name: %v", err)
	}
	for _, d := range AllTunables() {
		if got, err := CheckTunable(d.Name, d.Default); err != nil || got != d.Default {
			t.Errorf("the default of %s is kept as %q, %v", d.Name, got, err)
		}
	}
}

// What is set reads the same in a view, in one built from a snapshot, and for a listener of the changes alone; what is taken back, or cannot
// be read, is at its default.
func TestTunablesFollowSettings(t *testing.T) {
	s, index, heard := New(), uint64(0), DefaultTunables()
	want := DefaultTunables()
	step := func(item Item, change func()) {
		t.Helper()
		index++
		cmd, err := Encode(item)
		if err != nil {
			t.Fatal(err)
		}
		r, changes, err := s.Apply(index, cmd)
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		before := want
		change()
		moved := false
		for _, c := range changes {
			moved = heard.Follow(c) || moved
		}
		again, err := Restore(s.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		if s.View().Tunables() != want || again.View().Tunables() != want || heard != want || moved != (before != want) {
			t.Fatalf("want %+v: view %+v, restored %+v, listener %+v moved %v", want, s.View().Tunables(), again.View().Tunables(), heard, moved)
		}
	}
	if want.FollowerLossHold != 5*time.Minute || want.RetainForAbsent != 1<<30 || !want.Rebalance || want.FenceAlways {
		t.Fatalf("defaults %+v", want)
	}
	step(PutSetting(FollowerLossHold, "5s", 0), func() { want.FollowerLossHold = 5 * time.Second })
	step(PutSetting(Rebalance, "off", 0), func() { want.Rebalance = false })
	step(PutSetting(FollowerLossHold, "0s", 1), func() { want.FollowerLossHold = 0 })
	step(PutSetting("of a later version", "x", 0), func() {})
	step(PutSetting(FenceOnLeaseExpiry, "of a later version", 0), func() {})
	step(DeleteSetting(FollowerLossHold, 3), func() { want.FollowerLossHold = 5 * time.Minute })
	step(DeleteSetting(Rebalance, 2), func() { want.Rebalance = true })
}
