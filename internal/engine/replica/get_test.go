package replica

import (
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
)

// TestGetWaitsForWhatWasGivenBack has one client give a message back and another ask for it, before the return is durable: a program
// that closes a connection and opens the next expects to find there what the first held.
func TestGetWaitsForWhatWasGivenBack(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(t, seed)
		w.declare(catalog.Queue, nil, nil)
		first, second := w.gateway(0), w.gateway(1)
		first.attach(1)
		second.attach(1)
		first.publish("a")
		w.settle()
		first.send(protocol.Get{To: first.to(), Request: 1})
		w.settle()
		if d := take[protocol.GetDone](first); len(d) != 1 || !d[0].OK {
			t.Fatalf("got %+v", d)
		}
		w.disk.stuck = true
		first.send(protocol.Settle{To: first.to(), Seq: 1, Items: []protocol.SettleItem{{Outcome: protocol.Requeue}}})
		second.send(protocol.Get{To: second.to(), Request: 7})
		w.settle()
		if d := take[protocol.GetDone](second); len(d) != 0 {
			t.Fatalf("seed %d: answered %+v while the return is on its way", seed, d)
		}
		w.disk.stuck = false
		w.store.box.Post(func() {})
		w.settle()
		if d := take[protocol.GetDone](second); len(d) != 1 || !d[0].OK || d[0].Request != 7 || string(d[0].Item.Body) != "a" {
			t.Fatalf("seed %d: got %+v", seed, d)
		}
		second.send(protocol.Get{To: second.to(), Request: 8})
		w.settle()
		if d := take[protocol.GetDone](second); len(d) != 1 || d[0].OK {
			t.Fatalf("seed %d: got %+v of an empty queue", seed, d)
		}
	}
}
