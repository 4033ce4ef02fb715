package session

import (
	"time"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// channel is one channel. A number may be used again after a channel was closed; opened tells them apart.
type channel struct {
	c       *Conn
	number  uint16
	opened  uint32 // which of the channels that were opened: the lower bits of their count
	busy    bool   // a method is being answered
	closing bool   // channel.close was sent; everything but its answer is dropped
	gone    bool   // what the broker still says of it is dropped
	dirty   bool   // on the connection's list of confirms to tell

	incoming  incoming
	confirms  confirms
	unsettled unsettled
	delivered uint64 // the last delivery tag
	consumers []*consumer
	prefetch  uint32
	timeout   time.Duration // the shortest in which a delivery must be settled; 0: none must
	lastQueue string
	replyTo   string // the queue behind amq.rabbitmq.reply-to
	paused    bool   // channel.flow: the client wants no deliveries
	stash     []stashed
}

// channelFrame handles a frame of a channel.
func (c *Conn) channelFrame(f wire.Frame) {
	ch := c.channel(f.Channel)
	if ch == nil {
		c.unopened(f)
		return
	}
	if ch.closing {
		ch.whileClosing(f)
		return
	}
	var id wire.MethodID
	var fl *fault
	switch f.Type {
	case wire.FrameMethod:
		var args []byte
		var err error
		if id, args, err = wire.SplitMethod(f.Payload); err != nil {
			c.broken(err)
			return
		}
		if ch.incoming.state != noContent {
			fl = faultf(wire.UnexpectedFrame, "%s came where a message's content was expected", id)
			break
		}
		fl = ch.method(id, args, f.Payload)
	case wire.FrameHeader:
		id = wire.IDBasicPublish
		fl = ch.header(f.Payload)
	default:
		id = wire.IDBasicPublish
		fl = ch.body(f.Payload)
	}
	if fl != nil {
		ch.raise(id, fl)
	}
}

// unopened handles a frame on a channel that is not open.
func (c *Conn) unopened(f wire.Frame) {
	if f.Type != wire.FrameMethod {
		c.fail(0, faultf(wire.ChannelError, "content on channel %d, which is not open", f.Channel))
		return
	}
	m, err := wire.DecodeMethod(f.Payload)
	if err != nil {
		c.broken(err)
		return
	}
	switch m.(type) {
	case *wire.ChannelOpen:
	case *wire.ChannelCloseOk:
		return // both sides closed at the same time
	case *wire.ChannelClose:
		c.send(f.Channel, &wire.ChannelCloseOk{}) // it is closed: that is what was asked for
		return
	default:
		c.fail(m.ID(), faultf(wire.ChannelError, "expected 'channel.open' on channel %d, got '%s'", f.Channel, m.ID()))
		return
	}
	if f.Channel > c.channelMax || len(c.order) >= int(c.channelMax) {
		c.fail(m.ID(), faultf(wire.NotAllowed, "channel %d is beyond the negotiated channel_max of %d", f.Channel, c.channelMax))
		return
	}
	c.opened++
	ch := &channel{c: c, number: f.Channel, opened: uint32(c.opened)}
	c.channels[f.Channel] = ch
	c.order = append(c.order, ch)
	c.send(f.Channel, &wire.ChannelOpenOk{})
}

// whileClosing drops everything but the end.
func (ch *channel) whileClosing(f wire.Frame) {
	if f.Type != wire.FrameMethod {
		return
	}
	switch id, _, _ := wire.SplitMethod(f.Payload); id {
	case wire.IDChannelClose:
		ch.c.send(ch.number, &wire.ChannelCloseOk{})
		ch.remove()
	case wire.IDChannelCloseOk:
		ch.remove()
	}
}

// method handles a method on an open channel.
func (ch *channel) method(id wire.MethodID, args, payload []byte) *fault {
	switch id {
	case wire.IDBasicPublish:
		return ch.publish(args)
	case wire.IDBasicAck:
		var m wire.BasicAck
		if err := m.Decode(args); err != nil {
			return wireFault(err)
		}
		return ch.settle(m.DeliveryTag, m.Multiple, broker.Accept)
	}
	decoded, err := wire.DecodeMethod(payload)
	if err != nil {
		return wireFault(err)
	}
	switch id.Class() {
	case wire.IDExchangeDeclare.Class():
		return ch.exchangeMethod(decoded)
	case wire.IDQueueDeclare.Class():
		return ch.queueMethod(decoded)
	case wire.IDBasicGet.Class():
		return ch.basicMethod(decoded)
	}
	switch m := decoded.(type) {
	case *wire.ChannelClose:
		ch.end()
		ch.c.send(ch.number, &wire.ChannelCloseOk{})
		ch.remove()
	case *wire.ChannelFlow:
		ch.flow(m.Active)
	case *wire.ChannelFlowOk, *wire.ChannelCloseOk:
		// Answers to what was never asked, or not any more, harm nothing.
	case *wire.ChannelOpen:
		return faultf(wire.ChannelError, "second 'channel.open' on channel %d", ch.number)
	case *wire.ConfirmSelect:
		ch.confirms.on = true
		if !m.Nowait {
			ch.c.send(ch.number, &wire.ConfirmSelectOk{})
		}
	case *wire.TxSelect, *wire.TxCommit, *wire.TxRollback:
		return faultf(wire.NotImplemented, "transactions (%s) are not available in this version; use publisher confirms", id)
	default:
		return unexpected(id)
	}
	return nil
}

func unexpected(id wire.MethodID) *fault {
	return faultf(wire.CommandInvalid, "%s was not expected from a client", id)
}

// await marks the channel as waiting for an answer. The returned function is to be called with the answer; it reports whether the answer
// is a good one for a channel that still cares.
func (ch *channel) await(id wire.MethodID) func(*broker.Error) bool {
	ch.c.settleNow()
	ch.busy = true
	return func(err *broker.Error) bool {
		if ch.gone {
			return false
		}
		ch.busy = false
		ch.c.wake()
		if err != nil {
			ch.raise(id, faultOf(err))
			return false
		}
		return true
	}
}

// reply sends an answer unless the client did not want one.
func (ch *channel) reply(nowait bool, m wire.Method) {
	if !nowait {
		ch.c.send(ch.number, m)
	}
}

// end gives back what the channel holds: consumers are cancelled first, so that what is then released does not come back to them.
func (ch *channel) end() {
	c := ch.c
	if ch.gone {
		return
	}
	c.settleNow()
	ch.gone, ch.busy = true, false
	for _, k := range ch.consumers {
		delete(c.consumers, k.num)
		if !k.cancelled {
			c.b.Cancel(k.num, func() {})
		}
	}
	ch.consumers = nil
	for _, s := range ch.stash {
		c.giveBack(s.consumer.num, &s.d)
	}
	ch.stash = nil
	ch.unsettled.each(func(ref broker.Ref) { c.give(ref, broker.Release) })
	c.settleNow()
	ch.endReplies()
	ch.unsettled = unsettled{}
	c.assembled -= ch.incoming.kept
	ch.incoming = incoming{}
}

// remove frees the channel's number.
func (ch *channel) remove() {
	c := ch.c
	delete(c.channels, ch.number)
	if c.last == ch {
		c.last = nil
	}
	for i, o := range c.order {
		if o == ch {
			c.order = append(c.order[:i], c.order[i+1:]...)
			break
		}
	}
}
