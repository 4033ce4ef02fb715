package check

import (
	"slices"
	"testing"
)

func then(before []Event, more ...Event) []Event { return slices.Concat(before, more) }

func givenUp(r string, offset uint64) Event {
	return Event{Kind: GivenUp, Resource: r, Offset: offset}
}

// An accepted loss takes the end of a log from a named offset on. What lies below, what was confirmed afterwards, and what has a later message of its
// channel behind it is held against the broker as ever.
func TestAnAcceptedLossTakesTheNamedEndOnly(t *testing.T) {
	begin := []Event{streamed("s"), opened(1), from("s", 1, 0)}
	three := then(begin, pub(1, "s"), ok(1), pub(2, "s"), ok(2), pub(3, "s"), ok(3))
	read := then(three, reads("s", 1, 1, 0), reads("s", 1, 2, 1), reads("s", 1, 3, 2))
	queue := []Event{declared("q"), opened(1), pub(1, "q"), ok(1), pub(2, "q"), ok(2), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1)}
	for name, x := range map[string]struct {
		history []Event
		rule    Rule
	}{
		"the end is gone, and its offsets are given anew":        {then(read, givenUp("s", 1), pub(4, "s"), ok(4), reads("s", 1, 4, 1), readAll("s", 1)), ""},
		"nothing was given up":                                   {then(read, pub(4, "s"), ok(4), reads("s", 1, 4, 1)), RuleMoved},
		"below it something else is there":                       {then(read, givenUp("s", 1), pub(4, "s"), ok(4), from("s", 2, 0), reads("s", 2, 4, 0)), RuleMoved},
		"what was confirmed since is gone":                       {then(read, givenUp("s", 1), pub(4, "s"), ok(4), from("s", 2, 0), reads("s", 2, 1, 0), readAll("s", 2)), RuleLost},
		"an outcome that comes later counts":                     {then(begin, pub(1, "s"), givenUp("s", 0), ok(1), readAll("s", 1)), RuleLost},
		"a hole":                                                 {then(three, givenUp("s", 0), reads("s", 1, 1, 0), reads("s", 1, 3, 1), readAll("s", 1)), RuleLost},
		"one without an outcome is given again":                  {then(begin, pub(1, "s"), ok(1), pub(2, "s"), reads("s", 1, 1, 0), reads("s", 1, 2, 1), givenUp("s", 0), from("s", 2, 0), reads("s", 2, 2, 0), ok(2), readAll("s", 2)), ""},
		"what was purged before is no hole":                      {then([]Event{declared("q"), opened(1)}, pub(1, "q"), ok(1), of(Purge, "q"), of(Purged, "q"), pub(2, "q"), ok(2), givenUp("q", 1), got("q", 1, 2), settle("q", 1, 2, Accept), drained("q")), ""},
		"what was purged since is no hole":                       {then([]Event{declared("q"), opened(1)}, pub(1, "q"), ok(1), pub(2, "q"), ok(2), givenUp("q", 2), got("q", 1, 2), of(Purge, "q"), of(Purged, "q"), settle("q", 1, 2, Accept), drained("q")), ""},
		"what a greatest length drops is no hole":                {then([]Event{with(declared("q"), lossy), opened(1)}, pub(1, "q"), ok(1), pub(2, "q"), ok(2), givenUp("q", 0), got("q", 1, 2), settle("q", 1, 2, Accept), drained("q")), ""},
		"a hole in a queue":                                      {then([]Event{declared("q"), opened(1)}, pub(1, "q"), ok(1), pub(2, "q"), ok(2), givenUp("q", 0), got("q", 1, 2), settle("q", 1, 2, Accept), drained("q")), RuleLost},
		"a reader that asked for what is gone begins at the end": {then(read, from("s", 2, 2), givenUp("s", 1), pub(4, "s"), ok(4), reads("s", 2, 4, 1)), ""},
		"a reader that asked for what is gone begins later":      {then(read, from("s", 2, 2), givenUp("s", 1), pub(4, "s"), ok(4), pub(5, "s"), ok(5), pub(6, "s"), ok(6), reads("s", 2, 6, 3)), RuleReader},
		"a reader waits for what it asked for":                   {then(read, from("s", 2, 2), givenUp("s", 1), pub(4, "s"), ok(4), pub(5, "s"), ok(5), reads("s", 2, 5, 2)), ""},
		"a reader jumps":                                         {then(read, givenUp("s", 1), pub(4, "s"), ok(4), pub(5, "s"), ok(5), reads("s", 1, 5, 2)), RuleReader},
		"a settle is undone":                                     {then(queue, givenUp("q", 1), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1), drained("q")), ""},
		"a settle stands, and the rest is gone":                  {then(queue, givenUp("q", 1), drained("q")), ""},
		"it is settled again and comes all the same":             {then(queue, givenUp("q", 1), got("q", 1, 1), settle("q", 1, 1, Accept), kept("q", 1), got("q", 1, 1)), RuleSettled},
	} {
		c := New()
		for _, e := range x.history {
			c.Observe(e)
		}
		switch vs := c.Violations(); {
		case x.rule == "" && len(vs) > 0:
			t.Errorf("%s: %v", name, vs)
		case x.rule != "" && (len(vs) == 0 || vs[0].Rule != x.rule):
			t.Errorf("%s: %v, want %s", name, vs, x.rule)
		}
	}
}
