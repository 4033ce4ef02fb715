package replica

import (
	"strings"
	"testing"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
)

// TestSettlingLargeMessagesFreesTheLog has few entries settle many bytes: the log must hear soon that nobody needs them. A full disk
// was not freed by emptying its queues before.
func TestSettlingLargeMessagesFreesTheLog(t *testing.T) {
	w := newWorld(t, 1)
	w.declare(catalog.Queue, nil, nil)
	g := w.gateway(0)
	g.attach(1)
	const n = 15 // just below what makes a snapshot due by being written
	body := strings.Repeat("x", saveBytes/16)
	for range n {
		g.publish(body)
		w.settle()
	}
	l := w.store.logs[part]
	before := l.from
	g.send(protocol.Subscribe{To: g.to(), Consumer: 1, Credit: saveBytes})
	w.settle()
	if got := len(g.bodies()); got != n {
		t.Fatalf("%d of %d delivered", got, n)
	}
	g.publish(body, body) // past the threshold by itself: what is dead so far is nothing
	w.settle()
	written := l.from
	g.send(protocol.Settle{To: g.to(), Seq: 1, Items: []protocol.SettleItem{{Consumer: 1, First: 0, Last: n + 1}}})
	w.settle()
	if written <= before || l.from <= written {
		t.Fatalf("the log keeps everything from position %d, %d after writing, %d after settling", before, written, l.from)
	}
}
