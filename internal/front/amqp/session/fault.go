package session

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

// fault is what closes a channel or a connection.
type fault struct {
	code uint16
	text string
}

func faultf(code uint16, format string, a ...any) *fault {
	return &fault{code, fmt.Sprintf(format, a...)}
}

// soft faults close the channel they happened on; the others close the connection.
func (f *fault) soft() bool {
	switch f.code {
	case wire.ContentTooLarge, wire.NoRoute, wire.NoConsumers, wire.AccessRefused, wire.NotFound, wire.ResourceLocked,
		wire.PreconditionFailed:
		return true
	}
	return false
}

var codeNames = map[uint16]string{
	wire.ContentTooLarge: "CONTENT_TOO_LARGE", wire.NoRoute: "NO_ROUTE", wire.NoConsumers: "NO_CONSUMERS",
	wire.ConnectionForced: "CONNECTION_FORCED", wire.InvalidPath: "INVALID_PATH", wire.AccessRefused: "ACCESS_REFUSED",
	wire.NotFound: "NOT_FOUND", wire.ResourceLocked: "RESOURCE_LOCKED", wire.PreconditionFailed: "PRECONDITION_FAILED",
	wire.FrameError: "FRAME_ERROR", wire.SyntaxError: "SYNTAX_ERROR", wire.CommandInvalid: "COMMAND_INVALID",
	wire.ChannelError: "CHANNEL_ERROR", wire.UnexpectedFrame: "UNEXPECTED_FRAME", wire.ResourceError: "RESOURCE_ERROR",
	wire.NotAllowed: "NOT_ALLOWED", wire.NotImplemented: "NOT_IMPLEMENTED", wire.InternalError: "INTERNAL_ERROR",
}

// replyMost is how long a text for the client may be, in bytes.
const replyMost = 255

// full is the whole text: clients and people look for the name in front.
func (f *fault) full() string { return codeNames[f.code] + " - " + f.text }

// reply is as much of it as a client can be told. It is cut between characters: some clients fail at half of one.
func (f *fault) reply() string {
	text := f.full()
	if len(text) <= replyMost {
		return text
	}
	cut := replyMost - len("...")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

var brokerCodes = [...]uint16{
	broker.Internal: wire.InternalError, broker.NotFound: wire.NotFound, broker.AccessRefused: wire.AccessRefused,
	broker.Locked: wire.ResourceLocked, broker.Precondition: wire.PreconditionFailed, broker.NotAllowed: wire.NotAllowed,
	broker.NotImplemented: wire.NotImplemented, broker.Unavailable: wire.InternalError, broker.ResourceError: wire.ResourceError,
	broker.TooLarge: wire.PreconditionFailed, broker.AuthFailed: wire.AccessRefused, broker.Uncertain: wire.InternalError,
}

func faultOf(err *broker.Error) *fault {
	code := uint16(wire.InternalError)
	if int(err.Code) < len(brokerCodes) {
		code = brokerCodes[err.Code]
	}
	return &fault{code, err.Text}
}

// broken ends the connection over a frame that makes no sense.
func (c *Conn) broken(err error) { c.fail(0, wireFault(err)) }

// lost ends the connection over input whose frames cannot be told apart any more: nothing that follows can be read.
func (c *Conn) lost(err error) {
	c.fail(0, wireFault(err))
	c.state, c.in = closed, nil
}

func wireFault(err error) *fault {
	var e *wire.Error
	if errors.As(err, &e) {
		return &fault{e.Code, e.Text}
	}
	return &fault{wire.InternalError, err.Error()}
}

// fail closes the connection. id is the method that caused it, 0 if none did.
func (c *Conn) fail(id wire.MethodID, f *fault) {
	if c.state == closing || c.state == closed {
		return
	}
	c.send(0, &wire.ConnectionClose{ReplyCode: f.code, ReplyText: f.reply(), ClassID: id.Class(), MethodID: id.Number()})
	c.end()
	c.fault = f
	c.state = closing // a frame that has begun goes on: the client's answer is behind it
	c.wake()
}

// raise closes the channel, or the connection where the fault is hard.
func (ch *channel) raise(id wire.MethodID, f *fault) {
	c := ch.c
	if ch.gone {
		return
	}
	if !f.soft() {
		c.fail(id, f)
		return
	}
	ch.end()
	ch.closing = true
	c.send(ch.number, &wire.ChannelClose{ReplyCode: f.code, ReplyText: f.reply(), ClassID: id.Class(), MethodID: id.Number()})
	c.wake()
}
