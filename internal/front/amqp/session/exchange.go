package session

import (
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// exchangeMethod handles the methods of class exchange.
func (ch *channel) exchangeMethod(m wire.Method) *fault {
	switch m := m.(type) {
	case *wire.ExchangeDeclare:
		return ch.declareExchange(m)
	case *wire.ExchangeDelete:
		if m.Exchange == "" {
			return defaultExchange()
		}
		done := ch.await(m.ID())
		ch.c.b.DeleteExchange(m.Exchange, m.IfUnused, func(err *broker.Error) {
			if done(err) {
				ch.reply(m.NoWait, &wire.ExchangeDeleteOk{})
			}
		})
		return nil
	case *wire.ExchangeBind:
		return ch.bindExchange(m.ID(), m.Destination, m.Source, m.RoutingKey, m.Arguments, m.NoWait, true)
	case *wire.ExchangeUnbind:
		return ch.bindExchange(m.ID(), m.Destination, m.Source, m.RoutingKey, m.Arguments, m.NoWait, false)
	}
	return unexpected(m.ID())
}

func defaultExchange() *fault {
	return faultf(wire.AccessRefused, "operation not permitted on the default exchange")
}

func (ch *channel) declareExchange(m *wire.ExchangeDeclare) *fault {
	if m.Exchange == "" {
		return defaultExchange()
	}
	e := catalog.Exchange{
		VHost: ch.c.vhost, Name: m.Exchange, Type: m.Type, Durable: m.Durable, AutoDelete: m.AutoDelete, Internal: m.Internal,
	}
	if !m.Passive {
		if f := exchangeArguments(&e, m); f != nil {
			return f
		}
	}
	done := ch.await(m.ID())
	ch.c.b.DeclareExchange(e, m.Passive, func(err *broker.Error) {
		if done(err) {
			ch.reply(m.NoWait, &wire.ExchangeDeclareOk{})
		}
	})
	return nil
}

func exchangeArguments(e *catalog.Exchange, m *wire.ExchangeDeclare) *fault {
	switch m.Type {
	case "direct", "fanout", "topic", "headers":
	case "x-delayed-message":
		return faultf(wire.PreconditionFailed,
			"exchange type 'x-delayed-message' is not available in this version; the header x-delay works with every exchange")
	default:
		return faultf(wire.CommandInvalid, "unknown exchange type '%s'; there are direct, fanout, topic and headers", m.Type)
	}
	v, ok := m.Arguments.Get("alternate-exchange")
	if !ok {
		return nil
	}
	if v.Type != wire.TypeString || len(v.Str) > 255 {
		return faultf(wire.PreconditionFailed, "invalid arg 'alternate-exchange' for exchange '%s' in vhost '%s': want a string of up to 255 bytes",
			m.Exchange, e.VHost)
	}
	e.Alternate = v.Str
	e.Args = value.Table{{Name: "alternate-exchange", Value: v.Core()}}
	return nil
}

func (ch *channel) bindExchange(id wire.MethodID, destination, source, key string, args wire.Table, nowait, bind bool) *fault {
	if destination == "" || source == "" {
		return defaultExchange()
	}
	b := catalog.Binding{
		VHost: ch.c.vhost, Source: source, Destination: destination, ToExchange: true, Key: key, Args: args.Core(),
	}
	ch.binding(id, b, nowait, bind)
	return nil
}
