package replica

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/core/queue"
)

// A gateway that comes late claims what an accepted loss has given up: by now its offset is another message's, which stays as it is. It is told from
// where on what it has is gone; one that has nothing of earlier epochs is not.
func TestAClaimOfWhatWasGivenUpIsNotTakenForWhatHasItsOffset(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, &queue.Settings{}, nil)
	g := w.gateway(0)
	g.attach(1)
	g.publish("a")
	w.settle()
	g.publish("b")
	w.settle()
	w.lossy = true
	w.transition()
	h := w.gateway(1)
	h.attach(1)
	h.publish("c")
	w.settle()
	if as := take[protocol.Attached](h); len(as) != 1 || as[0].Lost {
		t.Fatalf("a gateway that had nothing: %+v", as)
	}
	take[protocol.Attached](g)
	g.stream++
	g.send(protocol.Attach{
		To: g.to(), Reply: g, Producer: g.prod, First: 3, Epoch: 1,
		Claims: []protocol.Claim{{Consumer: 1, Offset: 1}, {Consumer: 1, Offset: 2}},
	})
	w.settle()
	if as := take[protocol.Attached](g); len(as) != 1 || !as[0].Lost || as[0].LostFrom != 2 {
		t.Fatalf("attached: %+v", as)
	}
	if s := w.status(); s.Unsettled != 1 || s.Ready != 2 {
		t.Fatalf("status %+v: the claim of what is gone was taken for the message that has its offset", s)
	}
}
