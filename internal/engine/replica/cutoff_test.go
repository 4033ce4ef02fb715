package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
)

// An owner that reaches too few copies delivers for the liveness expiry and no longer, counted from when it heard them last: a session that
// ended for silence has used that time up. What the wall clock shows changes nothing.
func TestAnOwnerThatIsCutOffStopsDelivering(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			g := newTrio(t, 9, 3)
			g.declare(catalog.Queue, 1, 2)
			c := g.client(0)
			for i := range 20 {
				c.publish(fmt.Sprint("m", i))
			}
			g.run(20)
			if silent {
				for _, x := range g.nodes[1:] {
					g.nodes[0].cut[x.name] = true
					g.nodes[0].m.PeerSilent(x.name)
				}
			} else {
				g.nodes[1].kill()
				g.nodes[2].kill()
			}
			g.run(1)
			g.nodes[0].clock.Skew(-time.Hour, 0)
			if !silent {
				g.run(livenessTTL + 100)
			}
			c.got = nil
			c.send(protocol.Subscribe{To: c.to(), Consumer: 1, NoAck: true, Credit: 1 << 20})
			g.run(50)
			if got := c.bodies(); len(got) > 0 {
				t.Fatalf("delivered %v while another owner may have been chosen", got)
			}
			if silent {
				clear(g.nodes[0].cut)
				g.nodes[0].connect()
			} else {
				g.nodes[2].restart()
			}
			g.run(50)
			if got := c.bodies(); len(got) != 20 {
				t.Fatalf("delivered %d of 20 once a follower was back", len(got))
			}
		})
	}
}
