package gateway

import (
	"fmt"
	"log/slog"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/protocol"
	"github.com/tanist/tanist/internal/port/trace"
)

// courier publishes dead letters for the owners beside the shard. It keeps nothing: an owner has at most one of each lane under way,
// and asks again under the same number, so that the target takes each once whatever is lost in between.
type courier struct{ sh *Shard }

func (c *courier) receive(d protocol.DeadLetter) {
	_, r := c.sh.view.Assignment(d.Partition)
	if r == nil {
		return // deleted: nobody waits for an answer
	}
	if r.Queue == nil || r.Queue.DeadLetterExchange == nil {
		c.answer(d, "") // without an exchange there is nowhere to publish it
		return
	}
	m, drop, err := c.bury(r, d)
	if err != nil {
		c.answer(d, fmt.Sprintf("the message could not be rewritten: %v", err))
		return
	}
	if drop {
		c.answer(d, "")
		return
	}
	m.Producer = fmt.Sprintf("%s/dead/%d", d.Partition, d.Lane)
	m.Sequence = d.Number
	c.publish(r, d, m)
}

// bury makes the message to publish; drop says that it died in a cycle.
func (c *courier) bury(r *catalog.Resource, d protocol.DeadLetter) (m *broker.Message, drop bool, err error) {
	e, err := broker.DecodeEnvelope(d.Body)
	if err != nil {
		return nil, false, err
	}
	death := broker.Death{
		Queue: r.Name, Reason: d.Reason, Time: d.Time, Count: d.Count, Exchange: *r.Queue.DeadLetterExchange,
	}
	if k := r.Queue.DeadLetterRoutingKey; k != nil {
		death.Key = *k
	}
	if u := c.sh.env.Undertaker; u != nil {
		return u.Bury(e, d.Record, death)
	}
	key := death.Key
	if key == "" {
		key = e.RoutingKey
	}
	h := d.Record
	h.TTL, h.Delay, h.Flags = 0, 0, h.Flags&^batch.FlagTTL
	return &broker.Message{
		Exchange: death.Exchange, RoutingKey: key, Record: h, Properties: e.Properties, Body: [][]byte{e.Body},
	}, false, nil
}

// publish gives a dead letter to where it is routed. What finds nothing is not believed before this node has caught up with the catalog's
// leader; if that cannot be asked, the letter is kept, and comes again.
func (c *courier) publish(r *catalog.Resource, d protocol.DeadLetter, m *broker.Message) {
	s := c.sh
	found, err := s.router.Route(r.VHost, m.Exchange, m.RoutingKey, m.CC, m.Headers)
	if err == nil && len(found) > 0 && !s.router.Missed() || !s.doubts() {
		c.give(r, d, m, found, err)
		return
	}
	s.currentSoon(func(failed error) {
		found, err := s.router.Route(r.VHost, m.Exchange, m.RoutingKey, m.CC, m.Headers)
		s.lookups.looked(err != nil || len(found) == 0 || s.router.Missed())
		if failed != nil && len(found) == 0 {
			c.answer(d, "nothing on this node takes it, and the catalog's leader could not be asked: "+failed.Error())
			return
		}
		c.give(r, d, m, found, err)
	})
}

func (c *courier) give(r *catalog.Resource, d protocol.DeadLetter, m *broker.Message, found []*catalog.Resource, err error) {
	s := c.sh
	if err != nil {
		c.answer(d, err.Error())
		return
	}
	if len(found) == 0 {
		if m.Exchange == "" {
			c.answer(d, fmt.Sprintf("no queue '%s' in vhost '%s'", m.RoutingKey, r.VHost))
			return
		}
		c.answer(d, "") // the exchange routes it nowhere: dropped, as any other message there
		return
	}
	size := envelopeSize(m)
	if size > s.limits.MessageSize+deathRoom {
		c.answer(d, fmt.Sprintf("with its history of deaths the message has %d bytes, more than the limit of %d", size,
			s.limits.MessageSize+deathRoom))
		return
	}
	targets := make([]*attachment, 0, len(found))
	for _, t := range found {
		targets = append(targets, s.attach(t, partition(t)))
	}
	s.fanOut(targets, m, size, &group{done: func(o broker.Outcome, reason string) {
		if o == broker.Confirmed {
			reason = ""
		} else if reason == "" {
			reason = "not confirmed"
		}
		c.answer(d, reason)
	}})
}

// deathRoom is how much a message at the size limit may grow by what is written into its properties when it dies, in bytes. A batch
// has room for it (batch.MaxSize).
const deathRoom = 256 << 10

func (c *courier) answer(d protocol.DeadLetter, kept string) {
	if kept == "" {
		c.sh.stats.DeadDone++
	} else {
		c.sh.stats.DeadKept++
		trace.Warn(c.sh.env.Trace, "gateway.deadletter.kept", slog.String("partition", d.Partition.String()),
			slog.Uint64("offset", d.Offset), slog.String("reason", kept))
	}
	d.Reply.Send(protocol.DeadLettered{Partition: d.Partition, Number: d.Number, Offset: d.Offset, Kept: kept})
}
