package control

import (
	"testing"
	"time"
)

// What a process that stood still takes for a slow sync is its own pause. A sync that is slow while it runs counts in full.
func TestAPauseIsNoStall(t *testing.T) {
	const ms = time.Millisecond
	type look struct{ now, clock, want time.Duration } // in ms
	for what, looks := range map[string][]look{
		"a disk that stalls": {{1000, 0, 0}, {1100, 50, 50}, {1200, 150, 150}, {1300, 250, 250}, {1700, 650, 650}, {1800, 750, 750}},
		"looks that are late together": {
			{1000, 0, 0}, {1400, 400, 400}, {1800, 800, 800}, {2200, 1200, 1200}, {2600, 1600, 1600}, {3000, 2000, 2000},
		},
		"stopped in the midst of a sync":              {{1000, 10, 10}, {9000, 8010, 510}, {9100, 0, 0}},
		"stopped as one began":                        {{1000, 0, 0}, {9000, 7990, 500}, {9100, 0, 0}},
		"stopped, and the disk stalls too":            {{1000, 10, 10}, {9000, 8010, 510}, {9100, 8110, 610}, {9200, 8210, 710}},
		"another sync":                                {{1000, 900, 500}, {1100, 60, 60}, {1200, 0, 0}, {1300, 20, 20}},
		"one that began at the last look":             {{1000, 300, 300}, {1100, 100, 100}},
		"first looked at when it has taken long":      {{5000, 3000, 500}, {5100, 3100, 600}},
		"nothing is synced, and then something is":    {{1000, 0, 0}, {90_000, 0, 0}, {90_100, 100, 100}},
		"stopped while nothing was synced":            {{1000, 0, 0}, {90_000, 5, 5}, {90_100, 105, 105}},
		"two looks at one moment (the leader is new)": {{1000, 300, 300}, {1000, 300, 300}, {1100, 400, 400}},
	} {
		var s Stall
		for i, l := range looks {
			if got := s.Look(l.now*ms, l.clock*ms); got != l.want*ms {
				t.Errorf("%s: look %d: %v, want %v", what, i, got, l.want*ms)
			}
		}
	}
}
