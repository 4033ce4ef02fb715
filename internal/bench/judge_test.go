package bench

import (
	"testing"
	"time"
)

func runs(moved int, pauses ...float64) (out []FailoverRun) {
	for _, p := range pauses {
		out = append(out, FailoverRun{Pause: p, Served: p, Reconnected: p, Before: 10, Moved: moved})
	}
	return out
}

// missed are the names of the budgets that were.
func missed(budgets []Budget) (out []string) {
	for _, b := range budgets {
		if !b.Met {
			out = append(out, b.What)
		}
	}
	return out
}

// Each row of the table of budgets is met at its bound and missed above it.
func TestJudgePauses(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		met  []float64
		over []float64
		what string
	}{
		{Plan{Kill: Owner, Resources: 3}, []float64{300, 100, 90}, []float64{101, 101, 90}, "longest pause, ms, median"},
		{Plan{Kill: Owner, Resources: 3}, []float64{300, 100, 90}, []float64{301, 100, 90}, "longest pause, ms, max"},
		{Plan{Kill: OwnerController, Resources: 3}, []float64{500, 200, 90}, []float64{201, 201, 90}, "longest pause, ms, median"},
		{Plan{Kill: OwnerController, Resources: 3}, []float64{500, 200, 90}, []float64{501, 200, 90}, "longest pause, ms, max"},
		{Plan{Kill: Follower, Resources: 3}, []float64{10, 1}, []float64{10.1, 1}, "longest pause, ms, over that before the kill"},
		{Plan{Kill: Own, Resources: 3}, []float64{300}, []float64{301}, "pause after reconnecting, ms, max"},
		{Plan{Kill: Owner, Halt: true, Resources: 3}, []float64{2500}, []float64{2501}, "longest pause, ms, max"},
		{Plan{Kill: Owner, Resources: 100}, []float64{500}, []float64{501}, "all serve, ms, max"},
		{Plan{Kill: Owner, Resources: 1000}, []float64{1000}, []float64{1001}, "all serve, ms, max"},
	} {
		moved := c.plan.Resources
		if c.plan.Kill == Follower {
			moved = 0
		}
		if bad := missed(c.plan.Judge(runs(moved, c.met...))); len(bad) > 0 {
			t.Errorf("%s, %v: missed %q", c.plan, c.met, bad)
		}
		if bad := missed(c.plan.Judge(runs(moved, c.over...))); len(bad) != 1 || bad[0] != c.what {
			t.Errorf("%s, %v: missed %q, want %q", c.plan, c.over, bad, c.what)
		}
	}
}

// One message in one run that is lost, there twice, moved, refused or without an outcome misses a budget, whoever was killed. Who is
// connected to the node that dies may not know what became of a publish, and loses its connection; nobody else.
func TestJudgeCounts(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*FailoverRun)
		own   bool // it is a fault with --kill own too
	}{
		"lost":       {func(r *FailoverRun) { r.Books.Lost = 1 }, true},
		"damaged":    {func(r *FailoverRun) { r.Books.Damaged = 1 }, true},
		"duplicate":  {func(r *FailoverRun) { r.Books.Duplicate = 1 }, true},
		"reordered":  {func(r *FailoverRun) { r.Books.Reordered = 1 }, true},
		"moved":      {func(r *FailoverRun) { r.Books.Moved = 1 }, true},
		"unsettled":  {func(r *FailoverRun) { r.Books.Unsettled = 1 }, true},
		"twice":      {func(r *FailoverRun) { r.Books.Twice = 1 }, true},
		"unknown":    {func(r *FailoverRun) { r.Books.Unknown = 1 }, false},
		"nacked":     {func(r *FailoverRun) { r.Books.Nacked = 1 }, false},
		"connection": {func(r *FailoverRun) { r.Closed = 1 }, false},
	} {
		for _, kill := range Roles {
			rs := runs(kill.moves(), 1, 1, 1)
			c.spoil(&rs[1])
			want := 1
			if kill == Own && !c.own {
				want = 0
			}
			if bad := missed(Plan{Kill: kill, Resources: 3}.Judge(rs)); len(bad) != want {
				t.Errorf("%s, %s killed: missed %q", name, kill, bad)
			}
		}
	}
}

// moves is how many of three resources change their owner.
func (r Role) moves() int {
	if r == Follower || r == Controller {
		return 0
	}
	return 3
}

// A follower or a controller that owns nothing changes no epoch, an owner's death that of all that it owned.
func TestJudgeEpochs(t *testing.T) {
	for _, kill := range Roles {
		for _, moved := range []int{0, 1, 3} {
			want := 1
			if moved == kill.moves() {
				want = 0
			}
			if bad := missed(Plan{Kill: kill, Resources: 3}.Judge(runs(moved, 1))); len(bad) != want {
				t.Errorf("%s, %d moved: %q", kill, moved, bad)
			}
		}
	}
}

// Phases are those of the change of owner that the kill caused: not an earlier one, not one that was withdrawn, not the one that the
// node's return caused; of several resources the last to get there.
func TestPhases(t *testing.T) {
	killed := time.UnixMicro(1_000_000_000)
	at := func(ms float64) int64 { return killed.UnixMicro() + int64(ms*1000) }
	story := []Transition{
		{Resource: "a", Suspected: at(-900), Committed: at(-800)},
		{Resource: "a", Suspected: at(500), Committed: at(600)},
		{Resource: "a", Suspected: at(-3), Recorded: at(5), Sealed: at(8), Chosen: at(9), Committed: at(12), Serving: at(20), Cuts: []Cut{{"n1", 7, 10}}},
		{Resource: "b", Suspected: at(-2), Recorded: at(6), Sealed: at(7), Chosen: at(10), Committed: at(11), Serving: at(21.5)},
		{Resource: "c", Suspected: at(1), Outcome: "cancelled"},
	}
	p := Phases{killed: killed}
	if !p.take(story) {
		t.Fatal("no change of owner was seen")
	}
	want := Phases{killed, 2, -2, 6, 8, 10, 12, 21.5, 0, 3}
	if p != want {
		t.Fatalf("got %+v\nwant %+v", p, want)
	}
	if (&Phases{killed: killed.Add(time.Hour)}).take(story) {
		t.Error("a change of owner of an hour ago")
	}
}
