package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
)

func planOf(in ...LossInput) DeletionPlan {
	return PlanDeletion(&catalog.Resource{Name: "q", Incarnation: 1}, in)
}

func TestADeletionsPlanSaysWhatIsLeftAndWhoMustBeStopped(t *testing.T) {
	in := survivor()
	p := planOf(in)
	if e := p.Parts[0]; p.Against != "" || e.Floor != 9 || e.FloorBy != "a" || !slices.Equal(namedBy(e.Left), []string{"c"}) ||
		!slices.Equal(namedBy(e.Missing), []string{"a", "b"}) || !slices.Equal(p.Fence, []string{"a", "b"}) || !slices.Equal(p.Versions, []uint64{in.Assignment.Version}) {
		t.Fatalf("got %+v", p)
	}
	if !slices.Equal(p.Unstopped([]string{"b"}), []string{"a"}) {
		t.Errorf("must be stopped: %v", p.Unstopped([]string{"b"}))
	}
	in.Answers[0].Damaged = "a checksum" // it is neither left nor missing: it has spoken
	if e := planOf(in).Parts[0]; len(e.Left) != 0 || len(e.Missing) != 2 {
		t.Errorf("a damaged copy: %+v", e)
	}
	in.Answers = append(in.Answers, answer(instance("a", 1), tail(1, 3, 1)))
	in.Answers[1].Damaged = "a checksum"
	if p := planOf(in); len(p.Fence) != 0 { // b alone confirms nothing
		t.Errorf("the owner has spoken: %+v", p)
	}
}

func TestOnlyWhatCannotBeServedIsDeletedByForce(t *testing.T) {
	for _, c := range []struct {
		name string
		in   func(*LossInput)
		want string // "": it can
	}{
		{"it waits", func(*LossInput) {}, ""},
		{"no answer at all", func(in *LossInput) { in.Answers = nil }, ""},
		{"a contradiction", func(in *LossInput) {
			in.Answers = append(in.Answers, answer(instance("b", 1), tail(1, 3, 2)))
			in.Floor, in.Said, in.Links = 0, instance("c", 1), map[uint64]batch.Link{3: {9}}
		}, ""},
		{"enough answers", func(in *LossInput) {
			in.Floor, in.Answers = 0, append(in.Answers, answer(instance("b", 1), tail(1, 5, 1)))
		}, "a new owner is being chosen"},
		{"links are asked for", func(in *LossInput) {
			in.Floor, in.Answers = 0, append(in.Answers, answer(instance("b", 1), tail(1, 3, 2)))
		}, "a new owner is being chosen"},
		{"it is served", func(in *LossInput) { in.Assignment, in.Reached = without(in.Assignment), []string{"a"} }, "its clients can delete it"},
		{"its owner is out of reach and not suspected", func(in *LossInput) { in.Assignment = without(in.Assignment) }, "not suspected yet"},
	} {
		in := survivor()
		c.in(&in)
		if p := planOf(in); c.want == "" && p.Against != "" || !strings.Contains(p.Against, c.want) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	served := survivor()
	served.Assignment, served.Reached = without(served.Assignment), []string{"a"}
	if p := planOf(served, survivor()); p.Against != "" || !p.Parts[0].Served || p.Parts[1].Served {
		t.Errorf("one partition of two waits: %+v", p)
	}
}

func TestADeletionsHashIsOfWhatDecides(t *testing.T) {
	p := planOf(survivor())
	first := p.Hash()
	for name, change := range map[string]func(*LossInput){
		"more is known to be confirmed": func(in *LossInput) { in.Floor = 10 },
		"another epoch":                 func(in *LossInput) { in.Assignment = three(2) },
		"nobody has answered":           func(in *LossInput) { in.Answers = nil },
	} {
		in := survivor()
		change(&in)
		if p := planOf(in); p.Hash() == first {
			t.Errorf("%s: the hash is the same", name)
		}
	}
}
