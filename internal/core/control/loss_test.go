package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/evidence"
	"github.com/tanist/tanist/internal/core/ident"
)

func namedBy(of []catalog.Member) (out []string) {
	for _, m := range of {
		out = append(out, m.Node)
	}
	return out
}

// survivor is what is known when the owner a and the follower b are gone: c holds 5, and a had said that it confirmed 9.
func survivor() LossInput {
	return LossInput{Input: Input{Assignment: three(1), W: 2, Floor: 9, Answers: []Answer{answer(instance("c", 1), tail(1, 5, 1))}}, FloorBy: "a"}
}

func TestAPlanSaysWhatIsGoneAndWhoMustBeStopped(t *testing.T) {
	in := survivor()
	p := PlanLoss(in)
	if p.Against != "" || p.Candidate != instance("c", 1) || p.Start.Position != 5 || p.Start.Epoch != 2 || p.To != 9 || p.FloorBy != "a" || p.Gone() != 4 {
		t.Fatalf("got %+v", p)
	}
	if !slices.Equal(namedBy(p.Missing), []string{"a", "b"}) || !slices.Equal(namedBy(p.Learners), []string{"a", "b"}) || len(p.Followers) != 0 {
		t.Fatalf("missing %v, learners %v, followers %v", p.Missing, p.Learners, p.Followers)
	}
	if !slices.Equal(p.Fence, []string{"a", "b"}) || !slices.Equal(p.Unstopped([]string{"b"}), []string{"a"}) || len(p.Unstopped([]string{"b", "a"})) != 0 {
		t.Fatalf("must be stopped: %v", p.Fence)
	}
	c := LossOf(in.Assignment, p)
	if c.Start.Loss != (catalog.Loss{Accepted: true, To: 9}) || c.Owner != p.Candidate || c.Transition != "t" || c.Start.Node != "c" {
		t.Fatalf("the commit is %+v", c)
	}
	e := EvidenceOfLoss(&catalog.Resource{Name: "q"}, in, &p, "a fire", []string{"a", "b"})
	if e.Workflow != evidence.LossWindow || e.Start.Position != 5 || e.Floor != (evidence.Floor{Position: 9, By: "a"}) || !strings.HasPrefix(e.Cause, "accepted loss: a fire") ||
		CauseWord(e.Cause) != WordAccepted || len(e.Exclusions) != 2 || !strings.Contains(e.Exclusions[0].Reason, "said to be stopped") {
		t.Fatalf("the record is %+v", e)
	}
}

// A copy that answers short of the candidate does not hold what was confirmed before: as a follower it could be chosen for lack of others.
func TestOnlyCopiesThatHoldAllOfItFollow(t *testing.T) {
	in := survivor()
	in.Answers = append(in.Answers, answer(instance("b", 1), tail(1, 5, 1)))
	if p := PlanLoss(in); !slices.Equal(namedBy(p.Followers), []string{"b"}) && !slices.Equal(namedBy(p.Followers), []string{"c"}) || len(p.Fence) != 0 {
		t.Fatalf("equal copies: %+v", p) // and a alone, with W 2, confirms nothing: nobody must be stopped
	}
	in.Answers[1] = answer(instance("b", 1), tail(1, 3, 2))
	in.Said, in.Links = instance("c", 1), map[uint64]batch.Link{3: {2}}
	p := PlanLoss(in)
	if p.Candidate.Node != "c" || len(p.Followers) != 0 || !slices.Equal(namedBy(p.Learners), []string{"a", "b"}) || !slices.Equal(namedBy(p.Missing), []string{"a"}) {
		t.Fatalf("a shorter copy: %+v", p)
	}
}

func TestAPlanIsRefusedWhereNothingHasToBeGivenUpOrNobodyMayJudge(t *testing.T) {
	short := answer(instance("b", 1), tail(1, 3, 2))
	for _, c := range []struct {
		name string
		in   func(*LossInput)
		want string
	}{
		{"enough answers", func(in *LossInput) {
			in.Floor, in.Answers = 0, append(in.Answers, answer(instance("b", 1), tail(1, 5, 1)))
		}, "a new owner is being chosen"},
		{"no answer at all", func(in *LossInput) { in.Answers = nil }, "nothing to go on with"},
		{"a damaged copy only", func(in *LossInput) { in.Answers[0].Damaged = "a checksum" }, "nothing to go on with"},
		{"a contradiction", func(in *LossInput) {
			in.Answers = append(in.Answers, short)
			in.Said, in.Links = instance("c", 1), map[uint64]batch.Link{3: {9}}
		}, "contradictory evidence"},
		{"an owner in reach with enough copies", func(in *LossInput) {
			in.Assignment = without(in.Assignment)
			in.Reached = []string{"a", "b"}
		}, "nothing has to be given up"},
		{"an owner that is out of reach and not suspected", func(in *LossInput) { in.Assignment = without(in.Assignment) }, "not suspected yet"},
	} {
		in := survivor()
		c.in(&in)
		if p := PlanLoss(in); !strings.Contains(p.Against, c.want) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
	in := survivor()
	in.Answers = append(in.Answers, short)
	if p := PlanLoss(in); p.Against != "" || !slices.Equal(p.Ask, []uint64{3}) || p.Candidate.Node != "c" {
		t.Errorf("before the links are known: %+v", p)
	}
}

func without(a *catalog.Assignment) *catalog.Assignment {
	b := *a
	b.Pending = nil
	return &b
}

// An owner that serves and reaches too few loses nothing by going on with less; its plan is the same before and after it is sealed.
func TestAnOwnerWithTooFewFollowersGoesOnWithoutLoss(t *testing.T) {
	in := survivor()
	pending := in.Assignment
	in.Assignment, in.Answers, in.Reached = without(pending), nil, []string{"a"}
	before := PlanLoss(in)
	if before.Against != "" || before.Candidate != in.Assignment.Owner || before.Gone() != 0 || !slices.Equal(namedBy(before.Missing), []string{"b", "c"}) || len(before.Fence) != 0 {
		t.Fatalf("got %+v", before)
	}
	in.Assignment, in.Answers = pending, []Answer{answer(instance("a", 1), tail(1, 12, 1))}
	after := PlanLoss(in)
	if after.Hash() != before.Hash() || after.Start.Position != 12 || after.Gone() != 0 || len(after.Followers) != 0 {
		t.Fatalf("sealed: %+v", after)
	}
}

func TestThePlansHashIsOfWhatDecides(t *testing.T) {
	first := PlanLoss(survivor())
	for name, change := range map[string]func(*LossInput){
		"the survivor holds more":  func(in *LossInput) { in.Answers[0].Tail = tail(1, 6, 1) },
		"another history":          func(in *LossInput) { in.Answers[0].Tail.Link = batch.Link{2} },
		"more is known to be gone": func(in *LossInput) { in.Floor = 10 },
		"another copy has answered": func(in *LossInput) {
			in.Answers = append(in.Answers, answer(instance("b", 1), tail(1, 5, 1)))
		},
		"the survivor has restarted": func(in *LossInput) { in.Answers[0].Instance.Boot = 2 },
		"another epoch":              func(in *LossInput) { in.Assignment = three(2) },
	} {
		in := survivor()
		change(&in)
		if p := PlanLoss(in); p.Against == "" && p.Hash() == first.Hash() {
			t.Errorf("%s: the hash is the same", name)
		}
	}
	in := survivor()
	in.Assignment.Version = 99
	if p := PlanLoss(in); p.Hash() != first.Hash() {
		t.Error("the version alone has moved the hash")
	}
}

// A copy that had more than an accepted loss kept returns, twice: what it knew to be confirmed binds nobody any more, and what it holds beyond is
// clipped (design 2 §8, "earlier starts stay").
func TestALongerCopyThatReturnsAfterALossBindsNobody(t *testing.T) {
	a := three(2, catalog.HistoryStart{Epoch: 1}, catalog.HistoryStart{Epoch: 2, Position: 5, Offset: 5, Link: batch.Link{1}, Loss: catalog.Loss{Accepted: true, To: 9}})
	a.Owner = instance("c", 1)
	a.Followers = []catalog.Member{{Node: "a", Store: ident.StoreID{'a'}}, {Node: "b", Store: ident.StoreID{'b'}}}
	old := answer(instance("a", 2), tail(1, 12, 7))
	old.Confirmed = 9
	b := answer(instance("b", 1), tail(2, 8, 3))
	b.Confirmed = 8
	in := Input{Assignment: a, W: 2, Answers: []Answer{old, b}, Said: instance("b", 1), Links: map[uint64]batch.Link{5: {1}}}
	d := Choose(in)
	if d.Verdict != Chosen || d.Owner.Node != "b" || d.Start.Position != 8 || d.Floor != 8 {
		t.Fatalf("got %+v", d)
	}
	// Again, after a second loss that kept less than the first: the lowest start clips.
	a = three(3, append(slices.Clone(a.Starts), catalog.HistoryStart{Epoch: 3, Position: 4, Offset: 4, Link: batch.Link{2}, Loss: catalog.Loss{Accepted: true, To: 8}})...)
	a.Owner, a.Followers = instance("c", 1), []catalog.Member{{Node: "a", Store: ident.StoreID{'a'}}, {Node: "b", Store: ident.StoreID{'b'}}}
	c := answer(instance("c", 2), tail(3, 6, 5))
	in = Input{Assignment: a, W: 2, Answers: []Answer{old, b, c}, Said: instance("c", 2), Links: map[uint64]batch.Link{4: {2}}}
	if d = Choose(in); d.Verdict != Chosen || d.Owner.Node != "c" || d.Start.Position != 6 || d.Floor > 6 {
		t.Fatalf("after two losses: %+v", d)
	}
}

// What is stranded is what waits for an owner, and what has too few copies to confirm; not what merely lacks one, and nothing while the catalog could not
// take it.
func TestWhatIsStranded(t *testing.T) {
	q := ident.Partition{Incarnation: 1}
	for _, c := range []struct {
		name   string
		change func(k *Known)
		want   int
	}{
		{"all is well", func(*Known) {}, 0},
		{"a follower is away", func(k *Known) { k.Nodes[1].Live = false }, 0},
		{"both followers are away", func(k *Known) { k.Nodes[1].Live, k.Nodes[2].Live = false, false }, 1},
		{"no owner can be chosen", func(k *Known) { k.Waits = []Waiting{{Partition: q, Kind: WaitAnswers, Answers: 1, Needed: 2}} }, 1},
		{"and nobody leads the catalog", func(k *Known) {
			k.Waits, k.NoQuorum = []Waiting{{Partition: q, Kind: WaitAnswers, Answers: 1, Needed: 2}}, "nobody leads"
		}, 0},
		{"of a deleted queue", func(k *Known) { k.Waits = []Waiting{{Partition: ident.Partition{Incarnation: 9}}} }, 0},
	} {
		k := healthy(t)
		c.change(&k)
		if got := Stranded(k); len(got) != c.want || c.want == 1 && got[0] != q {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestTheHashOfLossesTellsEachPlan(t *testing.T) {
	p, q := ident.Partition{Incarnation: 1}, ident.Partition{Incarnation: 2}
	seen := map[string]int{}
	for i, h := range []string{
		LossesHash([]ident.Partition{p, q}, []string{"a", "b"}), LossesHash([]ident.Partition{p, q}, []string{"a", "c"}), LossesHash([]ident.Partition{p}, []string{"a"}),
		LossesHash([]ident.Partition{q}, []string{"a"}), LossesHash(nil, nil),
	} {
		if j, again := seen[h]; again {
			t.Errorf("%d has the hash of %d", i, j)
		}
		seen[h] = i
	}
}
