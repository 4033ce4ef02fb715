package control

import (
	"reflect"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
)

// What a transition waits for is said as it is: who is missing of how many, or the floor and who reported it, or that copies contradict.
func TestWhatATransitionWaitsFor(t *testing.T) {
	a := three(4, catalog.HistoryStart{Epoch: 1}, catalog.HistoryStart{Epoch: 4, Position: 100})
	a.Pending.Since = 7
	b, c, stranger := answer(instance("b", 1), tail(4, 110, 1)), answer(instance("c", 1), tail(4, 110, 2)), answer(instance("d", 1), tail(4, 900, 3))
	confirms := b
	confirms.Confirmed = 120
	for name, x := range map[string]struct {
		in   Input
		want Waiting
	}{
		"nobody has answered":           {Input{}, Waiting{Missing: []string{"a", "b", "c"}}},
		"one of two":                    {Input{Answers: []Answer{b}}, Waiting{Answers: 1, Missing: []string{"a", "c"}}},
		"a stranger does not count":     {Input{Answers: []Answer{b, stranger}}, Waiting{Answers: 1, Missing: []string{"a", "c"}}},
		"below what the owner told":     {Input{Answers: []Answer{b, b}, Floor: 115}, Waiting{Kind: WaitFloor, Answers: 2, Missing: []string{"a", "c"}, Floor: 115, FloorBy: "a"}},
		"below what an answer tells":    {Input{Answers: []Answer{confirms, confirms}, Floor: 115}, Waiting{Kind: WaitFloor, Answers: 2, Missing: []string{"a", "c"}, Floor: 120, FloorBy: "b"}},
		"copies contradict each other":  {Input{Answers: []Answer{b, c}}, Waiting{Kind: WaitTruth, Answers: 2, Missing: []string{"a"}}},
		"an answer too few and a floor": {Input{Answers: []Answer{confirms}, Floor: 115}, Waiting{Answers: 1, Missing: []string{"a", "c"}}},
	} {
		x.in.Assignment, x.in.W = a, 2
		d := Choose(x.in)
		got := WaitOf(x.in, d, "a")
		x.want.Partition, x.want.Transition, x.want.Since, x.want.Needed, x.want.Reason = a.Partition, "t", 7, 2, d.Reason
		if !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, want %+v", name, got, x.want)
		}
	}
	a.Pending = nil
	if got := WaitOf(Input{Assignment: a, W: 2}, Decision{Reason: "x"}, ""); !reflect.DeepEqual(got, Waiting{Partition: a.Partition, Needed: 2, Reason: "x"}) {
		t.Errorf("not recorded: %+v", got)
	}
}
