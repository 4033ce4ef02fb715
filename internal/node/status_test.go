package node

import (
	"testing"

	"github.com/tanist/tanist/internal/engine/replica"
	"github.com/tanist/tanist/internal/engine/storage"
)

// A closed journal blocks every copy; only a copy that is blocked beside a journal that works is damaged.
func TestOnlyItsOwnChecksMakeACopyDamaged(t *testing.T) {
	for _, c := range []struct {
		state  replica.State
		closed bool
		want   bool
	}{{replica.Blocked, false, true}, {replica.Blocked, true, false}, {replica.Serving, false, false}, {replica.Waiting, true, false}} {
		if got := damaged(replica.Status{State: c.state}, storage.Health{Closed: c.closed}); got != c.want {
			t.Errorf("%s, journal closed %v: damaged %v", c.state, c.closed, got)
		}
	}
}
