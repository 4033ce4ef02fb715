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

// allAt says of every copy that it holds the log up to a position.
func allAt(position uint64) Held { return func(ident.StoreID) (uint64, bool) { return position, true } }

var majority = Wishes{Kind: ident.Queue, Copies: 3, Policy: "majority_durable"}

// next is the change that comes next; an empty one where there is none.
func next(t *testing.T, a *catalog.Assignment, w Wishes, held Held) *Change {
	t.Helper()
	c, err := NextChange(a, w, ownerAt(t, a.Epoch, 5), ident.StoreID{1}, held)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return &Change{}
	}
	return c
}

func TestAChangeAtATimeInOrder(t *testing.T) {
	b, c, cc, d, e := place("b", 2), place("c", 3), place("c", 33), place("d", 4), place("e", 5)
	type ms = []catalog.Member
	for name, x := range map[string]struct {
		followers, learners, leaving ms
		policy                       string // of the assignment
		wishes                       Wishes
		behind                       ms // do not hold the log
		want, learn                  ms
		w                            int
		none                         bool
	}{
		"nothing to do":                   {followers: ms{b, c}, none: true},
		"in the place on its node":        {followers: ms{b, c}, learners: ms{cc, d}, leaving: ms{b}, want: ms{b, cc}, learn: ms{d}, w: 2},
		"in the place of who leaves":      {followers: ms{b, c}, learners: ms{d}, leaving: ms{b}, want: ms{c, d}, w: 2},
		"of the first that leaves":        {followers: ms{b, c}, learners: ms{d}, leaving: ms{c, b}, want: ms{c, d}, w: 2},
		"beside, while there are fewer":   {followers: ms{b}, learners: ms{d}, want: ms{b, d}, w: 2},
		"beside, though one is to leave":  {followers: ms{b}, learners: ms{d}, leaving: ms{b}, want: ms{b, d}, w: 2},
		"no place":                        {followers: ms{b, c}, learners: ms{d}, none: true},
		"the first that has caught up":    {followers: ms{b, c}, learners: ms{d, e}, leaving: ms{b}, behind: ms{d}, want: ms{c, e}, learn: ms{d}, w: 2},
		"none has caught up":              {followers: ms{b, c}, learners: ms{d, e}, leaving: ms{b}, behind: ms{d, e}, none: true},
		"too few of the new set hold it":  {followers: ms{b, c}, learners: ms{d}, leaving: ms{b}, wishes: Wishes{Copies: 5}, behind: ms{b, c}, none: true},
		"too many, and one leaves":        {followers: ms{b, c, d}, leaving: ms{c}, want: ms{b, d}, w: 2},
		"too many, but none is to leave":  {followers: ms{b, c, d}, none: true},
		"a learner comes before a drop":   {followers: ms{b, c, d}, learners: ms{e}, leaving: ms{c, d}, want: ms{b, d, e}, w: 3},
		"not below what is wished":        {followers: ms{b, c}, leaving: ms{c}, none: true},
		"down to the owner":               {followers: ms{b}, leaving: ms{b}, wishes: Wishes{Copies: 1}, want: nil, w: 1},
		"the policy is raised":            {followers: ms{b, c}, wishes: Wishes{Copies: 3, Policy: "all_durable"}, want: ms{b, c}, w: 3},
		"not while a copy is missing":     {followers: ms{b, c}, wishes: Wishes{Copies: 3, Policy: "all_durable"}, behind: ms{c}, none: true},
		"the policy is lowered":           {followers: ms{b, c}, policy: "all_durable", behind: ms{c}, want: ms{b, c}, w: 2},
		"a swap comes before the policy":  {followers: ms{b, c}, learners: ms{d}, leaving: ms{c}, policy: "all_durable", behind: ms{c}, want: ms{b, d}, w: 3},
		"the same policy by another word": {followers: ms{b, c}, policy: "replica_durable(2)", wishes: Wishes{Copies: 3, Policy: "replica_accepted(2)"}, none: true},
		"no two copies on the owner's node": {
			followers: ms{b}, learners: ms{place("a", 11)}, none: true,
		},
		"who leaves need not hold anything": {followers: ms{b, c}, learners: ms{d}, leaving: ms{b}, behind: ms{b}, want: ms{c, d}, w: 2},
	} {
		a := growing()
		a.Followers, a.Learners, a.Leaving, a.Policy = x.followers, x.learners, x.leaving, x.policy
		w := x.wishes
		w.Kind = ident.Queue
		if w.Copies == 0 {
			w.Copies = 3
		}
		got := next(t, a, w, func(s ident.StoreID) (uint64, bool) {
			if slices.ContainsFunc(x.behind, func(m catalog.Member) bool { return m.Store == s }) {
				return 4, true
			}
			return 5, true
		})
		m := got.membership
		if x.none {
			if m.Version != 0 {
				t.Errorf("%s: %+v", name, m)
			}
			continue
		}
		if !slices.Equal(m.Followers, x.want) || !slices.Equal(m.Learners, x.learn) || m.Version != 9 || m.Epoch != 4 {
			t.Errorf("%s: %+v", name, m)
		}
		if got.Set().W != x.w || len(got.Set().Followers) != len(x.want) {
			t.Errorf("%s: set %+v, want W %d", name, got.Set(), x.w)
		}
		if got.Over(9) || !got.Over(10) {
			t.Errorf("%s: a change is over with the next version, and not before", name)
		}
	}
}

// No change is begun beside a transition, by an owner of another epoch, by one whose mark is not appended, or by one that is sealed: there
// is never a second one on its way that the first does not exclude.
func TestNoChangeBesideATransition(t *testing.T) {
	a := growing()
	sealed := ownerAt(t, 4, 5)
	var fx Effects
	if err := sealed.Seal(5, &fx); err != nil {
		t.Fatal(err)
	}
	pending := *a
	pending.Pending = &catalog.Pending{ID: "t"}
	for name, x := range map[string]struct {
		a     *catalog.Assignment
		owner *Copy
	}{
		"beside a transition":       {&pending, ownerAt(t, 4, 5)},
		"an owner of another epoch": {a, ownerAt(t, 3, 5)},
		"no mark":                   {a, ownerAt(t, 4, 0)},
		"sealed":                    {a, sealed},
	} {
		if c, err := NextChange(x.a, majority, x.owner, ident.StoreID{1}, allAt(5)); c != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if c, err := NextChange(a, Wishes{Copies: 3, Policy: "most"}, ownerAt(t, 4, 5), ident.StoreID{1}, allAt(0)); err == nil {
		t.Errorf("a policy that is none: %+v", c)
	}
}

// ownerAt is an owner of an epoch whose mark and further batches, up to position, are durable.
func ownerAt(t *testing.T, epoch, position uint64) *Copy {
	t.Helper()
	c, fx := Open(Image{}), Effects{}
	c.Assign(Assignment{Epoch: epoch, Role: Owner, Sets: []Set{{W: 1}}}, &fx)
	c.Saved(&fx)
	c.Saved(&fx)
	for range position {
		var b batch.Builder
		b.Add(batch.Run{Kind: batch.KindRecord, Count: 1}, batch.AppendRecord(nil, batch.RecordHeader{}, nil))
		made := b.Finish(ident.Partition{}, epoch, c.Tail(), 0)
		if err := c.Propose(made, made.Link()); err != nil {
			t.Fatal(err)
		}
		c.AppendDone(&fx)
	}
	return &c
}

func TestAChangeNeedsEvidence(t *testing.T) {
	owner := ownerAt(t, 4, 5)
	at := map[ident.StoreID]uint64{{2}: 4, {33}: 5}
	doubted := ident.StoreID{}
	held := func(s ident.StoreID) (uint64, bool) { return at[s], s != doubted }
	x := next(t, growing(), majority, held)
	doubted = ident.StoreID{33}
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
	y := next(t, growing(), majority, held)
	if err := owner.Seal(5, &fx); err != nil {
		t.Fatal(err)
	}
	if _, ok := y.Propose(owner, ident.StoreID{1}, held); ok {
		t.Fatal("proposed by an owner that is sealed")
	}
}

// The copy that was to be admitted is gone, and whether it was admitted is not known: both sets confirm, and the new one never will. A change
// to what the assignment was ends that, whichever of the two the catalog does.
func TestAChangeWhoseOutcomeIsUnknownIsTakenBack(t *testing.T) {
	owner, a := ownerAt(t, 4, 5), growing()
	gone := false
	held := func(s ident.StoreID) (uint64, bool) { return 5, !gone || s == ident.StoreID{2} }
	w := majority
	w.Policy = "all_durable"
	a.Learners = nil
	x := next(t, a, w, held)
	if m, ok := x.Propose(owner, ident.StoreID{1}, held); !ok || m.Policy != "all_durable" || x.Set().W != 3 {
		t.Fatalf("proposed %v: %+v", ok, m)
	}
	gone = true
	if x.Answered(errors.New("lost")) != Unknown {
		t.Fatal("the answer is lost")
	}
	if _, ok := x.Propose(owner, ident.StoreID{1}, held); ok {
		t.Fatal("proposed while the proposal before waits for its answer")
	}
	x.Again()
	m, ok := x.Propose(owner, ident.StoreID{1}, held)
	if !ok || m.Policy != "majority_durable" || !slices.Equal(m.Followers, a.Followers) || m.Version != a.Version || len(m.Evidence) != 2 {
		t.Fatalf("taken back %v: %+v", ok, m)
	}
	if x.Set().W != 3 || x.Answered(nil) != Stays || !x.Over(a.Version+1) {
		t.Fatal("both sets confirm until the next version comes")
	}
	if _, ok := next(t, a, w, allAt(5)).Propose(owner, ident.StoreID{1}, held); ok {
		t.Fatal("nothing was proposed before: there is nothing to be taken back")
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
		x := next(t, growing(), majority, allAt(5))
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
	s, err := SetOf(a, ident.Queue)
	if err != nil || s.W != 2 || !slices.Equal(s.Followers, []ident.StoreID{{2}, {3}}) {
		t.Errorf("by the default: %+v, %v", s, err)
	}
	a.Policy = "local_durable"
	if s, err = SetOf(a, ident.Queue); err != nil || s.W != 1 {
		t.Errorf("by its own policy: %+v, %v", s, err)
	}
	if s, err = SetOf(a, ident.Stream); err != nil || s.W != 3 {
		t.Errorf("of a stream: %+v, %v", s, err)
	}
	a.Policy = "most"
	if _, err = SetOf(a, ident.Queue); err == nil {
		t.Error("a policy that is none was taken")
	}
}

func TestLocate(t *testing.T) {
	c := ownerAt(t, 1, 3)
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

// A copy that comes back shorter than it said has lost what it had synced, and is not believed again; one that was made to give its log up for
// an image has not.
func TestACopyThatIsRenewedIsNotDoubted(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		c, follower := ownerAt(t, 1, 5), ident.StoreID{2}
		c.Progressed(follower, 1, 4, &Effects{})
		if renewed {
			c.Renews(follower)
		}
		if c.Returned(follower, 1, 0) != renewed || c.Returned(follower, 1, 5) != renewed {
			t.Errorf("renewed: %v; it counts: %v", renewed, !renewed)
		}
	}
}
