package session

import (
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// queueMethod handles the methods of class queue.
func (ch *channel) queueMethod(m wire.Method) *fault {
	switch m := m.(type) {
	case *wire.QueueDeclare:
		return ch.declareQueue(m)
	case *wire.QueueDelete:
		return ch.deleteQueue(m)
	case *wire.QueuePurge:
		return ch.purge(m)
	case *wire.QueueBind:
		return ch.bindQueue(m.ID(), m.Queue, m.Exchange, m.RoutingKey, m.Arguments, m.NoWait, true)
	case *wire.QueueUnbind:
		return ch.bindQueue(m.ID(), m.Queue, m.Exchange, m.RoutingKey, m.Arguments, false, false)
	}
	return unexpected(m.ID())
}

// queueName is the queue that a method means: an empty name stands for the one declared last on the channel.
func (ch *channel) queueName(name string) (string, *fault) {
	if name != "" {
		return name, nil
	}
	if ch.lastQueue == "" {
		return "", faultf(wire.NotFound, "no previously declared queue")
	}
	return ch.lastQueue, nil
}

func (ch *channel) declareQueue(m *wire.QueueDeclare) *fault {
	c := ch.c
	if m.Passive {
		name, f := ch.queueName(m.Queue)
		if f != nil {
			return f
		}
		m.Queue = name
	}
	if m.Queue == pseudoQueue {
		ch.reply(m.NoWait, &wire.QueueDeclareOk{Queue: pseudoQueue, ConsumerCount: 1})
		return nil
	}
	spec := broker.QueueSpec{
		Name: m.Queue, Passive: m.Passive, Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete, Kind: catalog.Queue,
	}
	if !m.Passive {
		if f := queueArguments(&spec, m.Arguments, c.vhost); f != nil {
			return f
		}
	}
	done := ch.await(m.ID())
	c.b.DeclareQueue(spec, func(info broker.QueueInfo, err *broker.Error) {
		if !done(err) {
			return
		}
		ch.lastQueue = info.Name
		ch.reply(m.NoWait, &wire.QueueDeclareOk{Queue: info.Name, MessageCount: info.Messages, ConsumerCount: info.Consumers})
	})
	return nil
}

func (ch *channel) deleteQueue(m *wire.QueueDelete) *fault {
	name, f := ch.queueName(m.Queue)
	if f != nil {
		return f
	}
	done := ch.await(m.ID())
	ch.c.b.DeleteQueue(name, m.IfUnused, m.IfEmpty, func(messages uint32, err *broker.Error) {
		if done(err) {
			ch.reply(m.NoWait, &wire.QueueDeleteOk{MessageCount: messages})
		}
	})
	return nil
}

func (ch *channel) purge(m *wire.QueuePurge) *fault {
	name, f := ch.queueName(m.Queue)
	if f != nil {
		return f
	}
	done := ch.await(m.ID())
	ch.c.b.PurgeQueue(name, func(messages uint32, err *broker.Error) {
		if done(err) {
			ch.reply(m.NoWait, &wire.QueuePurgeOk{MessageCount: messages})
		}
	})
	return nil
}

func (ch *channel) bindQueue(id wire.MethodID, queue, exchange, key string, args wire.Table, nowait, bind bool) *fault {
	name, f := ch.queueName(queue)
	if f != nil {
		return f
	}
	if queue == "" && key == "" {
		key = name
	}
	if exchange == "" {
		return defaultExchange()
	}
	b := catalog.Binding{VHost: ch.c.vhost, Source: exchange, Destination: name, Key: key, Args: args.Core()}
	ch.binding(id, b, nowait, bind)
	return nil
}

// binding makes or removes a binding.
func (ch *channel) binding(id wire.MethodID, b catalog.Binding, nowait, bind bool) {
	var ok wire.Method
	switch id {
	case wire.IDQueueBind:
		ok = &wire.QueueBindOk{}
	case wire.IDQueueUnbind:
		ok = &wire.QueueUnbindOk{}
	case wire.IDExchangeBind:
		ok = &wire.ExchangeBindOk{}
	default:
		ok = &wire.ExchangeUnbindOk{}
	}
	done := ch.await(id)
	answer := func(err *broker.Error) {
		if done(err) {
			ch.reply(nowait, ok)
		}
	}
	if bind {
		ch.c.b.Bind(b, answer)
	} else {
		ch.c.b.Unbind(b, answer)
	}
}
