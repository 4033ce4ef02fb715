package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func seats(n int) (out []Seat) {
	for i := range n {
		out = append(out, Seat{ID: uint64(i + 1), Zone: fmt.Sprint(i % 3), Live: true})
	}
	return out
}

// members is what consensus has, and applies.
type members struct {
	self             uint64
	voters, learners []uint64
}

func (m *members) apply(t interface{ Fatalf(string, ...any) }, c VoterChange) {
	drop := func(l []uint64) []uint64 {
		return slices.DeleteFunc(slices.Clone(l), func(id uint64) bool { return id == c.ID })
	}
	isVoter, isLearner := slices.Contains(m.voters, c.ID), slices.Contains(m.learners, c.ID)
	if c.ID == m.self || (c.Move == AddVoter && !isLearner) || (c.Move == HandOver && !isVoter) || (c.Move == AddLearner && isLearner) ||
		(c.Move == Remove && !isVoter && !isLearner) {
		t.Fatalf("%+v makes no sense for %+v", c, m)
	}
	switch c.Move {
	case HandOver:
		m.self = c.ID
		return
	case AddVoter:
		m.learners, m.voters = drop(m.learners), append(m.voters, c.ID)
	case AddLearner:
		m.voters, m.learners = drop(m.voters), append(m.learners, c.ID)
	case Remove:
		m.voters, m.learners = drop(m.voters), drop(m.learners)
	}
	if len(m.voters) == 0 {
		t.Fatalf("nobody votes after %+v", c)
	}
}

func (m *members) settle(t interface{ Fatalf(string, ...any) }, s []Seat) {
	for range 50 {
		c := Voters(m.self, s, m.voters, m.learners)
		if c.Move == NoMove {
			return
		}
		m.apply(t, c)
	}
	t.Fatalf("it does not come to rest: %+v of %+v", m, s)
}

func TestVotersOfAClusterThatGrows(t *testing.T) {
	m := &members{self: 1, voters: []uint64{1}}
	m.settle(t, nil) // not registered yet
	for n, want := range []int{1: 1, 2: 1, 3: 3, 4: 3, 5: 5, 6: 5, 9: 5} {
		if want == 0 {
			continue
		}
		m.settle(t, seats(n))
		if len(m.voters) != want || len(m.voters)+len(m.learners) != n {
			t.Errorf("%d nodes: %+v, want %d voters", n, m, want)
		}
	}
	m.settle(t, seats(2)) // the others were removed
	if len(m.voters) != 1 || len(m.learners) != 1 {
		t.Errorf("shrunk to two: %+v", m)
	}
}

func TestADrainingVoterGivesWay(t *testing.T) {
	m := &members{self: 1, voters: []uint64{1, 2, 3}}
	s := seats(3)
	s[0].Draining = true
	m.settle(t, s)
	if len(m.voters) != 3 || m.self != 1 {
		t.Errorf("nobody can take its place: %+v", m)
	}
	s = append(s, seats(4)[3])
	m.settle(t, s)
	slices.Sort(m.voters)
	if !slices.Equal(m.voters, []uint64{2, 3, 4}) || !slices.Equal(m.learners, []uint64{1}) || m.self == 1 {
		t.Errorf("the draining leader: %+v", m)
	}
}

func TestADeadVoterKeepsItsSeat(t *testing.T) {
	m := &members{self: 1, voters: []uint64{1, 2, 3}, learners: []uint64{4}}
	s := seats(4)
	s[1].Live = false
	if c := Voters(m.self, s, m.voters, m.learners); c.Move != NoMove {
		t.Errorf("got %+v", c)
	}
}

func TestAVoterThatIsGoneGivesWay(t *testing.T) {
	m := &members{self: 1, voters: []uint64{1, 2, 3}, learners: []uint64{4}}
	s := seats(4)
	s[1].Live, s[1].Gone = false, true
	m.settle(t, s)
	slices.Sort(m.voters)
	if !slices.Equal(m.voters, []uint64{1, 3, 4}) || !slices.Equal(m.learners, []uint64{2}) {
		t.Errorf("got %+v", m)
	}
	m = &members{self: 1, voters: []uint64{1, 2, 3}}
	if c := Voters(m.self, s[:3], m.voters, m.learners); c.Move != NoMove {
		t.Errorf("nobody can take its place, and there is %+v", c)
	}
}

func TestWhenAVoterIsGone(t *testing.T) {
	const minute = 60_000
	for _, c := range []struct {
		absent, now int64
		after       time.Duration
		gone        bool
		at          int64
	}{
		{0, 5 * minute, time.Minute, false, 0},
		{minute, 90 * minute, 0, false, 0},
		{minute, 2*minute - 1, time.Minute, false, 2 * minute},
		{minute, 2 * minute, time.Minute, true, 2 * minute},
	} {
		if gone, at := VoterGone(c.absent, c.now, c.after); gone != c.gone || at != c.at {
			t.Errorf("%+v: got %t, %d", c, gone, at)
		}
	}
}

func TestVotersComeToRestOddAndAsManyAsCanBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := seats(rapid.IntRange(1, 8).Draw(t, "nodes"))
		m := &members{}
		for i := range 10 { // some of them of nodes that are gone
			switch rapid.IntRange(0, 2).Draw(t, "member") {
			case 0:
				m.voters = append(m.voters, uint64(i+1))
			case 1:
				m.learners = append(m.learners, uint64(i+1))
			}
		}
		m.voters = m.voters[:min(len(m.voters), 7)]
		m.learners = slices.DeleteFunc(m.learners, func(id uint64) bool { return slices.Contains(m.voters, id) })
		var registered []uint64
		for _, v := range m.voters {
			if v <= uint64(len(s)) {
				registered = append(registered, v)
			}
		}
		if len(registered) == 0 {
			t.Skip("whoever leads has no node")
		}
		m.self = rapid.SampledFrom(m.voters).Draw(t, "leader")
		for i := range s {
			s[i].Live = s[i].ID == m.self || slices.Contains(registered, s[i].ID) || rapid.Bool().Draw(t, "live")
			s[i].Draining = rapid.IntRange(0, 4).Draw(t, "draining") == 0
			if s[i].ID != m.self && s[i].ID != registered[0] && rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
				s[i].Live, s[i].Gone = false, true
			}
		}
		m.settle(t, s)
		live := 0
		for _, x := range s {
			if slices.Contains(m.voters, x.ID) || (x.Live && !x.Draining) {
				live++
			}
		}
		most := min(len(s), MaxVoters, live)
		if most -= 1 - most%2; len(m.voters) != most {
			t.Fatalf("%+v of %+v: %d voters, could be %d", m, s, len(m.voters), most)
		}
		for _, x := range s {
			if x.Gone && slices.Contains(m.voters, x.ID) && slices.ContainsFunc(s, func(y Seat) bool {
				return y.Live && !y.Draining && !slices.Contains(m.voters, y.ID)
			}) {
				t.Fatalf("%+v of %+v: %d is gone and votes, while another could", m, s, x.ID)
			}
		}
		if len(m.voters)+len(m.learners) != len(s) {
			t.Fatalf("%+v of %+v: not every node is a member", m, s)
		}
	})
}
