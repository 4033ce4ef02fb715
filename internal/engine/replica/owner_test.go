package replica

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
)

func TestPublishConsumeSettleRestart(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.declare(catalog.Queue, nil, nil)
		if s := w.status(); s.State != Serving || s.Epoch != 1 || w.m.Recovering() != 0 {
			t.Fatalf("status %+v", s)
		}
		g := w.gateway(0)
		g.attach(1)
		a := take[protocol.Attached](g)
		if len(a) != 1 || a[0].Expect != 1 || a[0].Epoch != 1 {
			t.Fatalf("attached %+v", a)
		}
		g.publish("a", "b")
		g.publish("c")
		w.settle()
		if up := g.upTo(); up != 4 {
			t.Fatalf("published up to %d", up)
		}
		g.send(protocol.Subscribe{To: g.to(), Consumer: 1, Prefetch: 2, Credit: 1 << 20})
		w.settle()
		if s := take[protocol.Subscribed](g); len(s) != 1 || s[0].Refused != "" {
			t.Fatalf("subscribed %+v", s)
		}
		wantEqual(t, "deliveries", g.bodies(), []string{"a", "b"})
		g.send(protocol.Settle{To: g.to(), Seq: 1, Items: []protocol.SettleItem{{Consumer: 1, First: 0, Last: 0}}})
		w.settle()
		if s := take[protocol.Settled](g); len(s) != 1 || s[0].Seq != 1 {
			t.Fatalf("settled %+v", s)
		}
		wantEqual(t, "deliveries", g.bodies(), []string{"c"})

		w.crash()
		w.start()
		if a := w.transition(); a.Tail.Position != 5 || a.Tail.Offset != 3 {
			t.Fatalf("seal answer %+v", a)
		}
		if s := w.status(); s.State != Serving || s.Epoch != 2 || s.Ready != 2 {
			t.Fatalf("status %+v", s)
		}
		h := w.gateway(0)
		h.attach(1)
		h.send(protocol.Subscribe{To: h.to(), Consumer: 9, Credit: 1 << 20})
		w.settle()
		wantEqual(t, "after restart", h.bodies(), []string{"b", "c"})
	}
}
