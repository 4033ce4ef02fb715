package sim

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
)

// road is a binding that some node has answered: from then on every node takes a message by it to its queue, also one whose catalog is
// behind. Every road has a key of its own, so that its message has one way only.
type road struct {
	key string
	to  *target
}

const (
	roadExchange = "amq.direct"
	roadsMost    = 64
)

// builds reports whether the clients of this simulation make bindings: those of some clusters do.
func (w *world) builds() bool { return w.cluster() && w.opt.Seed%4 == 1 }

// build binds, and has a client of another node publish by the binding as soon as there is an answer.
func (c *client) build() {
	t := c.w.target("plain")
	if t == nil || t.gone || t.busy || t.damaged || c.asking > 0 || len(c.w.roads) >= roadsMost {
		return
	}
	r := road{key: fmt.Sprintf("road-%d", c.w.number()), to: t}
	id, w := c.id, c.w
	c.asking++
	c.session.Bind(catalog.Binding{Source: roadExchange, Destination: t.spec.Name, Key: r.key}, func(err *broker.Error) {
		if c.id == id {
			c.asking--
		}
		if err != nil {
			return
		}
		w.roads = append(w.roads, r)
		for _, other := range w.clients {
			if other.host != c.host && other.open {
				other.box.Post(r)
				break
			}
		}
	})
}

// travel publishes by a road.
func (c *client) travel(r road) {
	if c.session == nil || c.ended || !c.open || c.drains || !c.w.loading || c.stopped || c.blocked || r.to.gone || r.to.damaged {
		return
	}
	c.publishOne(roadExchange, r.key, r.to, []*target{r.to}, 0)
}
