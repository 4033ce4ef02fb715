package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/partition"
	"github.com/tanist/tanist/internal/core/protocol"
)

// say changes what the catalog says, as the controller does: who learns and who leaves, by number of node.
func (g *trio) say(learners, leaving []int) {
	a := *g.assignment()
	a.Version++
	a.Learners, a.Leaving = nil, nil
	for _, i := range learners {
		a.Learners = append(a.Learners, g.nodes[i].place())
	}
	for _, i := range leaving {
		a.Leaving = append(a.Leaving, g.nodes[i].place())
	}
	g.assign(a)
}

// wish changes what the resource wishes.
func (g *trio) wish(policy string, copies uint32) {
	res := *g.res
	res.Policy, res.Copies = policy, copies
	g.res = &res
	g.assign(*g.assignment())
}

// members fails unless the followers are those of the given nodes.
func (g *trio) members(epoch uint64, followers ...int) {
	g.t.Helper()
	var want []catalog.Member
	for _, i := range followers {
		want = append(want, g.nodes[i].place())
	}
	a, have := g.assignment(), slices.Clone(g.assignment().Followers)
	byNode := func(x, y catalog.Member) int { return strings.Compare(x.Node, y.Node) }
	slices.SortFunc(have, byNode)
	slices.SortFunc(want, byNode)
	if a.Epoch != epoch || !slices.Equal(have, want) || len(a.Learners) > 0 || len(a.Leaving) > 0 {
		g.t.Fatalf("epoch %d, followers %v, learners %v, leaving %v; want %v in epoch %d", a.Epoch, a.Followers, a.Learners, a.Leaving, want, epoch)
	}
}

// loaded has a partition of a number of nodes, owned by the first, and a client of its that has published.
func loaded(t *testing.T, seed uint64, nodes int, kind catalog.Kind, records int, followers ...int) (*trio, *fakeGateway) {
	t.Helper()
	g := newTrio(t, seed, nodes)
	g.declare(kind, followers...)
	c := g.client(0)
	g.load(c, records)
	return g, c
}

// unstick lets a node's disk go on, with what has been waiting for it.
func (g *trio) unstick(i int) {
	g.nodes[i].disk.stuck = false
	g.nodes[i].store.run()
}

// confirmed fails unless a client's records are confirmed below a number.
func (g *trio) confirmed(c *fakeGateway, below uint64, why string) {
	g.t.Helper()
	if at := c.upTo(); at != below {
		g.t.Fatalf("confirmed below %d, want %d %s", at, below, why)
	}
}

// load publishes one record after the other, and fails unless all are confirmed.
func (g *trio) load(c *fakeGateway, n int) {
	g.t.Helper()
	for range n {
		c.publish("x")
		g.run(3)
	}
	g.run(30)
	g.confirmed(c, c.next, "")
}

// A follower is lost, and a learner takes its place while publishers go on: no epoch changes and no publish fails.
func TestALearnerTakesThePlaceOfALostFollower(t *testing.T) {
	for _, kind := range []catalog.Kind{catalog.Queue, catalog.Stream} {
		g, c := loaded(t, 51, 4, kind, 20, 1, 2)
		g.nodes[2].kill()
		g.load(c, 20)
		g.say([]int{3}, []int{2})
		g.load(c, 60)
		g.members(1, 1, 3)
		g.same(0, 1, 3)
		g.nodes[1].kill()
		g.load(c, 5) // with the new one
	}
}

// The owner is lost before a swap, while its answer is on its way, and after it. Its successor goes on from what the catalog says.
func TestASwapOutlivesItsOwner(t *testing.T) {
	t.Run("before", func(t *testing.T) {
		g := newTrio(t, 52, 4)
		g.declare(catalog.Queue, 1, 2)
		g.load(g.client(0), 20)
		g.nodes[0].cut["n4"], g.nodes[3].cut["n1"] = true, true // it cannot catch up
		g.say([]int{3}, []int{2})
		g.run(30)
		g.nodes[0].kill()
		clear(g.nodes[3].cut)
		g.transition(1, 1, 2)
		g.run(100)
		g.load(g.client(1), 10)
		g.members(2, 0, 3)
	})
	for _, done := range []bool{false, true} {
		t.Run(map[bool]string{false: "between, and it was not done", true: "between, and it was done"}[done], func(t *testing.T) {
			g, c := loaded(t, 53, 4, catalog.Queue, 20, 1, 2)
			var asked *catalog.Membership
			g.answer = func(m catalog.Membership) error { asked = &m; return errors.New("nobody leads") }
			g.say([]int{3}, []int{2})
			g.run(100)
			if asked == nil {
				t.Fatal("nothing was proposed")
			}
			g.nodes[1].disk.stuck, g.nodes[2].disk.stuck = true, true // what comes is on the owner and the learner
			c.publish("unconfirmed")
			g.run(20)
			g.nodes[0].kill()
			g.unstick(1)
			g.unstick(2)
			g.answer = nil
			if done {
				a := *g.assignment()
				a.Version++
				a.Followers, a.Learners, a.Leaving = asked.Followers, asked.Learners, nil
				g.assign(a)
				g.run(5)
				g.transition(3, 1, 3)
				g.load(g.client(3), 10)
				g.members(2, 0, 1)
				return
			}
			g.transition(1, 1, 2)
			g.run(100)
			g.load(g.client(1), 10)
			g.members(2, 0, 3)
		})
	}
}

func TestWhatASwapLeavesOutlivesTheOwner(t *testing.T) {
	g, c := loaded(t, 54, 4, catalog.Queue, 20, 1, 2)
	g.nodes[2].kill()
	g.say([]int{3}, []int{2})
	g.load(c, 60)
	g.members(1, 1, 3)
	g.nodes[0].kill()
	g.transition(3, 1, 3)
	d := g.client(3)
	d.send(protocol.Subscribe{To: d.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
	g.run(50)
	if got := len(d.bodies()); got != 80 {
		t.Fatalf("delivered %d of 80", got)
	}
}

// Two swaps are wished at once: the owner proposes the second when the first has been answered, on the version that came with the answer.
func TestOneSwapAtATime(t *testing.T) {
	g, c := loaded(t, 55, 5, catalog.Queue, 10, 1, 2)
	g.say([]int{3, 4}, []int{1, 2})
	g.load(c, 60)
	g.members(1, 3, 4)
	if len(g.asked) != 2 || g.asked[0].Version >= g.asked[1].Version || len(g.asked[0].Followers) != 2 {
		t.Fatalf("proposed %+v", g.asked)
	}
	g.same(0, 3, 4)
}

// A learner had caught up, and loses what it held before it is admitted. Whether its store is another or its disk lied, it is not admitted on
// what it said before.
func TestALearnerThatLostWhatItHeldIsNotAdmitted(t *testing.T) {
	g, c := loaded(t, 56, 4, catalog.Queue, 20, 1, 2)
	g.answer = func(catalog.Membership) error { return &catalog.Refusal{Code: catalog.StoreMoved} }
	g.say([]int{3}, []int{2})
	g.run(100)
	if len(g.asked) == 0 {
		t.Fatal("it was never proposed")
	}
	g.nodes[3].kill()
	g.answer = nil
	asked := len(g.asked)
	g.run(1500)
	if len(g.asked) != asked {
		t.Fatalf("proposed while it is away: %+v", g.asked[asked:])
	}
	lost := g.nodes[3].disk.copies[part]
	lost.batches = lost.batches[:2]
	lost.snap, lost.pages = partition.Snapshot{}, map[uint32][]byte{}
	g.nodes[3].restart()
	g.run(1500)
	if len(g.asked) != asked {
		t.Fatalf("proposed with what it had lost: %+v", g.asked[asked:])
	}
	g.load(c, 5)
}

// A refused change is not proposed again at once, and is in the end.
func TestARefusedChangeIsProposedAgain(t *testing.T) {
	g, c := loaded(t, 57, 4, catalog.Queue, 5, 1, 2)
	refuse := true
	g.answer = func(catalog.Membership) error {
		if refuse {
			return &catalog.Refusal{Code: catalog.Unproven}
		}
		return nil
	}
	g.say([]int{3}, []int{2})
	g.load(c, 100)
	if len(g.asked) != 1 {
		t.Fatalf("proposed %d times within 0.4 s", len(g.asked))
	}
	refuse = false
	g.run(1100)
	g.members(1, 1, 3)
}

// W is raised and lowered with publishes in flight. Raised: from the proposal on they need both. Lowered: what was admitted before needs the
// old W, until it is confirmed or nobody waits for it; what comes after the change needs the new one.
func TestAPolicyIsRaisedAndLoweredWithPublishesInFlight(t *testing.T) {
	g, c := loaded(t, 58, 3, catalog.Stream, 10, 1, 2)
	g.wish("all_durable", 3)
	g.load(c, 10)
	if a := g.assignment(); a.Policy != "all_durable" || a.Epoch != 1 {
		t.Fatalf("the policy was not raised: %+v", a)
	}
	g.nodes[2].disk.stuck = true
	c.got = nil
	c.publish("before")
	g.run(30)
	g.confirmed(c, 0, "without one of all")
	g.wish("majority_durable", 3)
	g.run(30)
	if a := g.assignment(); a.Policy != "majority_durable" {
		t.Fatalf("the policy was not lowered: %+v", a)
	}
	c.publish("after")
	g.run(30)
	g.confirmed(c, 0, "what was admitted before the change needs all")
	t.Run("confirmed by all", func(t *testing.T) {
		g.unstick(2)
		g.run(30)
		g.confirmed(c, c.next, "")
		g.nodes[2].disk.stuck = true
		g.load(c, 3)
	})
}

// Nobody waits any more for what was admitted before: what comes after is not held up by it.
func TestALoweredPolicyFreesWhatComesAfter(t *testing.T) {
	g := newTrio(t, 59, 3)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	g.wish("all_durable", 3)
	g.load(c, 3)
	g.nodes[2].disk.stuck = true
	c.publish("before")
	g.run(10)
	g.wish("majority_durable", 3)
	g.run(30)
	c.publish("after")
	g.run(10)
	g.confirmed(c, 0, "")
	c.stream++ // the gateway has called both unknown: it takes another producer, and another stream
	c.prod++
	c.next, c.got = 1, nil
	c.send(protocol.Attach{To: c.to(), Reply: c, Producer: c.prod, First: 1})
	g.run(10)
	g.load(c, 3)
}

// A policy that cannot be had yet is not begun: confirms would wait for a copy that is away.
func TestAPolicyIsNotRaisedWhileACopyIsAway(t *testing.T) {
	g, c := loaded(t, 60, 3, catalog.Queue, 3, 1, 2)
	g.nodes[2].kill()
	g.load(c, 3)
	g.wish("all_durable", 3)
	g.load(c, 10)
	if len(g.asked) != 0 {
		t.Fatalf("proposed %+v", g.asked)
	}
	g.nodes[2].restart()
	g.load(c, 10)
	if a := g.assignment(); a.Policy != "all_durable" {
		t.Fatalf("the policy was not raised once all are back: %+v", a)
	}
}

// With all_durable and a copy lost nothing can be confirmed: what was admitted waits, what is new is refused at once. A learner in its place,
// or its return, ends that by itself.
func TestAllDurableWithALostCopy(t *testing.T) {
	for _, returns := range []bool{false, true} {
		g := newTrio(t, 61, 4)
		g.declare(catalog.Queue, 1, 2)
		c := g.client(0)
		g.wish("all_durable", 3)
		g.load(c, 5)
		g.nodes[2].disk.stuck = true
		c.got = nil
		c.publish("admitted")
		g.run(5)
		g.nodes[2].kill()
		g.run(5)
		c.publish("refused")
		g.run(10)
		r := take[protocol.PublishRefused](c)
		if len(r) != 1 || r[0].First != c.next-1 || r[0].Unknown || c.upTo() != 0 {
			t.Fatalf("refused %+v, want %d alone", r, c.next-1)
		}
		if returns {
			g.nodes[2].restart()
		} else {
			g.say([]int{3}, []int{2})
		}
		g.run(200)
		g.confirmed(c, c.next, "what was admitted is confirmed in the end")
		g.load(c, 5)
		if !returns {
			g.members(1, 1, 3)
		}
	}
}

// A copy is lost for good before a new owner's mark is confirmed, for which every copy is needed: a learner takes its place all the same (design 2
// §5: what it has to hold is the epoch's start with its mark), or nobody would ever own.
func TestAllDurableWithACopyLostBeforeTheMark(t *testing.T) {
	g := newTrio(t, 67, 4)
	g.declare(catalog.Queue, 1, 2)
	c := g.client(0)
	g.wish("all_durable", 3)
	g.load(c, 5)
	g.nodes[2].kill()
	g.transition(1, 0, 1)
	g.run(200)
	if s := g.nodes[1].status(); s.Confirmed == s.Durable {
		t.Fatalf("the mark is confirmed without one of three copies: the test shows nothing: %+v", s)
	}
	g.say([]int{3}, []int{2})
	g.run(200)
	g.members(2, 0, 3)
	if s := g.nodes[1].status(); s.Confirmed != s.Durable {
		t.Fatalf("the mark is not confirmed: %+v", s)
	}
	g.load(g.client(1), 3)
}

// More copies than are wished: the first that is to leave goes, and only then does W follow.
func TestACopyIsTakenAway(t *testing.T) {
	g, c := loaded(t, 62, 3, catalog.Queue, 3, 1, 2)
	g.wish("majority_durable", 1)
	g.say(nil, []int{2, 1})
	g.load(c, 40)
	g.members(1)
	g.nodes[1].kill()
	g.nodes[2].kill()
	g.load(c, 3)
}

// What confirms goes by the policy of the assignment: what the resource wishes is only a wish.
func TestTheAssignmentsPolicyConfirms(t *testing.T) {
	g, c := loaded(t, 63, 3, catalog.Queue, 3, 1, 2)
	g.nodes[1].disk.stuck, g.nodes[2].disk.stuck = true, true
	g.answer = func(catalog.Membership) error { return &catalog.Refusal{Code: catalog.Unproven} }
	g.wish("local_durable", 3)
	c.got = nil
	c.publish("x")
	g.run(50)
	g.confirmed(c, 0, "by one copy, while the assignment says majority")
	if s := g.nodes[0].m.find(part); s.w != 2 {
		t.Fatalf("W is %d", s.w)
	}
}

// An owner that was cut off delivers again once as many copies as a confirm needs have said that they follow; sessions alone, learners, and
// copies that lost what they held do not count.
func TestFollowed(t *testing.T) {
	stands := func(f *feed) *feed { f.Stand(1, 1); return f }
	for name, c := range map[string]struct {
		feeds []*feed
		w     int
		want  bool
	}{
		"no other copies":           {nil, 1, true},
		"one confirms":              {[]*feed{{}}, 1, true},
		"a session alone":           {[]*feed{{up: true}}, 2, false},
		"it stands":                 {[]*feed{stands(&feed{up: true})}, 2, true},
		"it stood, and is away":     {[]*feed{stands(&feed{})}, 2, false},
		"a learner":                 {[]*feed{stands(&feed{up: true, learner: true})}, 2, false},
		"it came back with less":    {[]*feed{stands(&feed{up: true, doubted: true})}, 2, false},
		"one of two stands":         {[]*feed{stands(&feed{up: true}), {up: true}}, 2, true},
		"one of two that are meant": {[]*feed{stands(&feed{up: true}), {up: true}}, 3, false},
	} {
		r := &replica{feeds: c.feeds, w: int32(c.w)}
		if got := r.followed(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// One of four copies is away, and another leaves with publishes in flight that it holds and a slow one does not hold yet. The change asks for
// fewer copies, and the policy is the same: what is confirmed after must not wait for the one that is away.
func TestACopyLeavesWhileAnotherIsAway(t *testing.T) {
	g, c := loaded(t, 62, 4, catalog.Queue, 5, 1, 2, 3)
	g.nodes[3].kill()
	g.load(c, 5)
	g.answer = func(catalog.Membership) error { // the change is proposed; by the time of the answer more was admitted
		g.nodes[2].disk.stuck = true
		c.publish("in flight")
		g.run(5)
		return nil
	}
	g.say(nil, []int{1})
	g.run(50)
	g.members(1, 2, 3)
	g.unstick(2)
	g.run(50)
	g.confirmed(c, c.next, "")
	g.load(c, 5)
}
