package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tanist/tanist/check"
	"github.com/tanist/tanist/internal/core/broker"
)

// producer is a program's own producer (x-producer): it numbers what it publishes to one resource, and gives again under the same
// number whatever it does not know to be stored, across sessions and runs of the node. Each number is appended once.
type producer struct {
	name   string
	t      *target
	owner  *client
	id     uint64 // session of the owner
	seq    uint64
	unsure []numberedMessage // in order
	sure   []numberedMessage // the last that are known to be stored: a program that forgets gives them again too
}

type numberedMessage struct {
	seq, message uint64
	body         []byte
}

// produce works as a named producer: it first gives again what is not known to be stored, then goes on.
func (c *client) produce() {
	if c.stopped || c.blocked || len(c.waiting) > 200 || len(c.w.producers) == 0 {
		return
	}
	p := c.w.producers[c.w.rng.IntN(len(c.w.producers))]
	if p.t.gone || p.t.busy || p.t.damaged {
		return
	}
	if p.owner != nil && (p.owner != c || p.id != c.id) && !p.owner.ended && p.owner.session != nil && p.owner.id == p.id {
		return // somebody else works under the name
	}
	if p.owner != c || p.id != c.id {
		p.owner, p.id = c, c.id
		again := slices.Concat(p.sure, p.unsure)
		slices.SortFunc(again, func(a, b numberedMessage) int { return cmp.Compare(a.seq, b.seq) })
		p.sure, p.unsure = nil, again
		for _, m := range again {
			c.w.see(check.Event{Kind: check.Again, Session: c.id, Message: m.message})
			c.give(p, m)
		}
	}
	for range 1 + c.w.rng.IntN(6) {
		p.seq++
		m := numberedMessage{seq: p.seq, message: c.w.nextMessage()}
		m.body = c.body(m.message)
		p.unsure = append(p.unsure, m)
		c.w.counts.Published++
		c.w.see(check.Event{
			Kind: check.Publish, Session: c.id, Lane: p.t.lane, Message: m.message, Digest: digest(m.body), Targets: []string{p.t.key},
		})
		c.give(p, m)
	}
}

func (c *client) give(p *producer, m numberedMessage) {
	c.seq++
	c.waiting = append(c.waiting, pending{seq: c.seq, message: m.message, producer: p, expect: 1})
	msg := &broker.Message{RoutingKey: p.t.spec.Name, Body: [][]byte{m.body}, Producer: p.name, Sequence: m.seq}
	if err := c.session.Publish(broker.Tag{Channel: 9, Seq: c.seq}, msg); err != nil {
		c.w.fail("a named producer was refused: %v", err)
	}
}

// known notes how a producer's message ended, which need not be given again.
func (p *producer) known(message uint64, stored bool) {
	i := slices.IndexFunc(p.unsure, func(m numberedMessage) bool { return m.message == message })
	if i < 0 {
		return
	}
	if stored {
		p.sure = append(p.sure, p.unsure[i])
		p.sure = p.sure[max(0, len(p.sure)-8):]
	}
	p.unsure = slices.Delete(p.unsure, i, i+1)
}

// makeProducers makes one producer for a queue and one for a stream.
func (w *world) makeProducers() {
	for i, name := range []string{"single", "brook"} {
		t := w.target(name)
		if t == nil {
			continue
		}
		t.lane = w.number()
		w.producers = append(w.producers, &producer{name: fmt.Sprintf("program-%d", i), t: t})
	}
}
