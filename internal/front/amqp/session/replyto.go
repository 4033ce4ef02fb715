package session

import (
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// pseudoQueue is what clients consume from, and name in reply-to, to have replies sent straight to them. Here a queue that the broker names
// stands behind it: exclusive, in memory, gone with the channel. So a reply finds its way from any node like any other message.
const pseudoQueue = "amq.rabbitmq.reply-to"

// consumeReplies makes the queue behind the pseudo queue and consumes from it.
func (ch *channel) consumeReplies(m *wire.BasicConsume) *fault {
	if !m.NoAck {
		return faultf(wire.PreconditionFailed, "reply consumer cannot acknowledge: consume from '%s' with no-ack", pseudoQueue)
	}
	if ch.replyTo != "" {
		return faultf(wire.PreconditionFailed, "reply consumer already set")
	}
	done := ch.await(m.ID())
	ch.c.b.DeclareQueue(broker.QueueSpec{Kind: catalog.Queue, Exclusive: true, AutoDelete: true}, func(info broker.QueueInfo, err *broker.Error) {
		if !done(err) {
			if err == nil {
				ch.c.dropReplies(info.Name)
			}
			return
		}
		ch.replyTo = info.Name
		ch.start(m, broker.ConsumeSpec{Queue: info.Name, Label: m.ConsumerTag, NoAck: true, Exclusive: true})
	})
	return nil
}

// endReplies lets the queue behind the pseudo queue go with its consumer: another may consume from the pseudo queue then.
func (ch *channel) endReplies() {
	if ch.replyTo != "" {
		ch.c.dropReplies(ch.replyTo)
		ch.replyTo = ""
	}
}

func (c *Conn) dropReplies(queue string) {
	if c.b != nil {
		c.b.DeleteQueue(queue, false, false, func(uint32, *broker.Error) {})
	}
}

// rewriteReplyTo names the queue behind the pseudo queue in a request's properties.
func (ch *channel) rewriteReplyTo() *fault {
	if ch.replyTo == "" {
		return faultf(wire.PreconditionFailed, "fast reply consumer does not exist: consume from '%s' on this channel first", pseudoQueue)
	}
	ch.incoming.change(func(p *wire.Properties) { p.ReplyTo = ch.replyTo })
	return nil
}
