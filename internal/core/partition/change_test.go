package partition

import (
	"errors"
	"slices"
	"testing"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
)

func place(node string, store byte) catalog.Member {
	return catalog.Member{Node: node, Store: ident.StoreID{store}}
}

// growing is an assignment of an owner, followers on b and c, the store of c lost, and two learners: one for c's place and one on d.
func growing() *catalog.Assignment {
	return &catalog.Assignment{
		Epoch: 4, Version: 9, Owner: ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 1},
		Followers: []catalog.Member{place("b", 2), place("c", 3)},
		Learners:  []catalog.Member{place("c", 33), place("d", 4)},
	}
}

func TestAdmissionTakesThePlaceOnItsNode(t *testing.T) {
	for _, c := range []struct {
		learner             catalog.Member
		followers, learners []catalog.Member
		w                   int
	}{
		{place("c", 33), []catalog.Member{place("b", 2), place("c", 33)}, []catalog.Member{place("d", 4)}, 2},
		{
			place("d", 4),
			[]catalog.Member{place("b", 2), place("c", 3), place("d", 4)},
			[]catalog.Member{place("c", 33)},
			3,
		},
	} {
		x, err := Admission(growing(), "majority_durable", ident.Queue, c.learner)
		if err != nil {
			t.Fatal(err)
		}
		if m := x.membership; !slices.Equal(m.Followers, c.followers) || !slices.Equal(m.Learners, c.learners) || m.Version != 9 || m.Epoch != 4 {
			t.Errorf("%s: %+v", c.learner.Node, m)
		}
		if x.Set().W != c.w || len(x.Set().Followers) != len(c.followers) {
			t.Errorf("%s: set %+v, want W %d", c.learner.Node, x.Set(), c.w)
		}
		if x.Over(9) || !x.Over(10) {
			t.Error("a change is over with the next version, and not before")
		}
	}
	if _, err := Admission(growing(), "most", ident.Queue, place("d", 4)); err == nil {
		t.Error("a policy that is none was taken")
	}
}

// ownerAt is an owner of epoch 1 whose mark and further batches, up to position, are durable.
func ownerAt(t *testing.T, position uint64) *Copy {
	t.Helper()
	c, fx := Open(Image{}), Effects{}
	c.Assign(Assignment{Epoch: 1, Role: Owner, Sets: []Set{{W: 1}}}, &fx)
	c.Saved(&fx)
	c.Saved(&fx)
	for range position {
		var b batch.Builder
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, nil))
		made := b.Finish(ident.Partition{}, 1, c.Tail(), 0)
		if err := c.Propose(made, made.Link()); err != nil {
			t.Fatal(err)
		}
		c.AppendDone(&fx)
	}
	return &c
}

func TestAChangeNeedsEvidence(t *testing.T) {
	owner := ownerAt(t, 5)
	at := map[ident.StoreID]uint64{{2}: 4, {33}: 5}
	doubted := ident.StoreID{33}
	held := func(s ident.StoreID) (uint64, bool) { return at[s], s != doubted }
	x, err := Admission(growing(), "majority_durable", ident.Queue, place("c", 33))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := x.Propose(owner, ident.StoreID{1}, held); ok {
		t.Fatalf("proposed by a copy that does not count: %+v", m)
	}
	doubted = ident.StoreID{}
	m, ok := x.Propose(owner, ident.StoreID{1}, held)
	want := []catalog.Evidence{{Store: ident.StoreID{1}, Position: 5}, {Store: ident.StoreID{2}, Position: 4}, {Store: ident.StoreID{33}, Position: 5}}
	if !ok || m.Floor != 5 || !slices.Equal(m.Evidence, want) {
		t.Fatalf("proposed %v: %+v", ok, m)
	}
	if _, ok := x.Propose(owner, ident.StoreID{1}, held); ok {
		t.Fatal("proposed twice")
	}
	var fx Effects
	y, _ := Admission(growing(), "majority_durable", ident.Queue, place("c", 33))
	if err := owner.Seal(2, &fx); err != nil {
		t.Fatal(err)
	}
	if _, ok := y.Propose(owner, ident.StoreID{1}, held); ok {
		t.Fatal("proposed by an owner that is sealed")
	}
}

// The joint state is left only on an answer: a refusal, and no earlier proposal that may still be done.
func TestAChangeEndsOnAnAnswerOnly(t *testing.T) {
	refused := func(code catalog.Code) error { return &catalog.Refusal{Code: code} }
	for name, c := range map[string]struct {
		outcomes []error
		want     Answer
	}{
		"done":                        {[]error{nil}, Stays},
		"the version moved":           {[]error{refused(catalog.VersionMoved)}, Stays},
		"a transition is pending":     {[]error{refused(catalog.TransitionMoved)}, Stays},
		"refused":                     {[]error{refused(catalog.Unproven)}, Ended},
		"lost":                        {[]error{errors.New("lost")}, Unknown},
		"lost, then refused":          {[]error{errors.New("lost"), refused(catalog.Unproven)}, Unknown},
		"lost, then the version went": {[]error{errors.New("lost"), refused(catalog.VersionMoved)}, Stays},
	} {
		x, err := Admission(growing(), "majority_durable", ident.Queue, place("c", 33))
		if err != nil {
			t.Fatal(err)
		}
		var got Answer
		for i, o := range c.outcomes {
			if i > 0 {
				x.Again()
			}
			got = x.Answered(o)
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestRoleOf(t *testing.T) {
	for _, c := range []struct {
		me    ident.Instance
		role  Role
		named bool
	}{
		{ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 1}, Owner, true},
		{ident.Instance{Node: "a", Store: ident.StoreID{1}, Boot: 2}, None, true},
		{ident.Instance{Node: "a", Store: ident.StoreID{9}, Boot: 1}, None, false},
		{ident.Instance{Node: "b", Store: ident.StoreID{2}, Boot: 7}, Follower, true},
		{ident.Instance{Node: "c", Store: ident.StoreID{3}, Boot: 1}, Follower, true},
		{ident.Instance{Node: "c", Store: ident.StoreID{33}, Boot: 1}, Learner, true},
		{ident.Instance{Node: "b", Store: ident.StoreID{3}, Boot: 1}, None, false},
	} {
		if r, named := RoleOf(growing(), c.me); r != c.role || named != c.named {
			t.Errorf("%s: %s %v, want %s %v", c.me, r, named, c.role, c.named)
		}
	}
}

func TestSetOf(t *testing.T) {
	a := growing()
	s, err := SetOf(a, "all_durable", ident.Queue)
	if err != nil || s.W != 3 || !slices.Equal(s.Followers, []ident.StoreID{{2}, {3}}) {
		t.Errorf("by the resource's policy: %+v, %v", s, err)
	}
	a.Policy = "local_durable"
	if s, err = SetOf(a, "all_durable", ident.Queue); err != nil || s.W != 1 {
		t.Errorf("by its own policy: %+v, %v", s, err)
	}
	if s, err = SetOf(a, "", ident.Stream); err != nil || s.W != 3 {
		t.Errorf("of a stream: %+v, %v", s, err)
	}
	a.Policy = "most"
	if _, err = SetOf(a, "", ident.Queue); err == nil {
		t.Error("a policy that is none was taken")
	}
}

func TestLocate(t *testing.T) {
	c := ownerAt(t, 3)
	end := c.Tail()
	for _, x := range []struct {
		end  batch.Tail
		want Place
	}{
		{batch.Tail{}, Here},
		{end, Here},
		{batch.Tail{Position: 2}, Within},
		{batch.Tail{Position: 3, Link: batch.Link{1}}, Beyond},
		{batch.Tail{Position: 4, Link: end.Link}, Beyond},
	} {
		if got := c.Locate(x.end); got != x.want {
			t.Errorf("%+v: %d, want %d", x.end, got, x.want)
		}
	}
}
