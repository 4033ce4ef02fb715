package session

import (
	"hash/crc32"
	"math"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/broker"
	"github.com/tanist/tanist/internal/core/value"
	"github.com/tanist/tanist/internal/front/amqp/wire"
)

type contentState uint8

const (
	noContent contentState = iota
	awaitContentHeader
	awaitBody
)

// incoming is the message that a channel is receiving. While its frames are in one input nothing of it is copied; what is unfinished at the
// input's end is kept.
type incoming struct {
	state contentState
	msg   broker.Message
	size  uint64 // of the body
	got   uint64
	// pieces and msg.Properties refer to the input as long as the channel is on the connection's spread list.
	pieces  [][]byte
	body    []byte // what came in earlier inputs
	props   []byte // memory for properties that had to be kept or changed
	headers []byte // encoded, without length; part of msg.Properties or of props
	spread  bool
	lookup  func() value.Table
	kept    uint64 // bytes that are kept and counted in the connection's assembled
	keyHash uint32
}

// publish handles basic.publish; the message follows.
func (ch *channel) publish(args []byte) *fault {
	p, err := wire.ParsePublish(args)
	if err != nil {
		return wireFault(err)
	}
	if p.Immediate {
		return faultf(wire.NotImplemented, "immediate=true is not implemented; consume with a short queue, or use mandatory")
	}
	in := &ch.incoming
	in.keyHash = crc32.Checksum(p.RoutingKey, castagnoli)
	names := &ch.c.names
	in.msg.Exchange, in.msg.RoutingKey = names.of(p.Exchange, crc32.Checksum(p.Exchange, castagnoli)), names.of(p.RoutingKey, in.keyHash)
	in.msg.Mandatory = p.Mandatory
	in.state = awaitContentHeader
	return nil
}

// header handles the header of a message's content.
func (ch *channel) header(payload []byte) *fault {
	in := &ch.incoming
	if in.state != awaitContentHeader {
		return faultf(wire.UnexpectedFrame, "a content header came without a method that carries content")
	}
	h, err := wire.ParseContentHeader(payload)
	if err != nil {
		return wireFault(err)
	}
	if h.Class != wire.IDBasicPublish.Class() {
		return faultf(wire.UnexpectedFrame, "content header of class %d after basic.publish", h.Class)
	}
	if most := ch.c.cfg.Limits.MessageMax; h.Size > most {
		return faultf(wire.PreconditionFailed, "message of %d bytes is larger than the configured maximum of %d", h.Size, most)
	}
	if f := ch.readProperties(h.Properties); f != nil {
		return f
	}
	in.size, in.got, in.state = h.Size, 0, awaitBody
	in.pieces, in.body = in.pieces[:0], in.body[:0]
	if in.size == 0 {
		return ch.complete()
	}
	ch.spreads()
	return nil
}

// spreads notes that the message refers to the input.
func (ch *channel) spreads() {
	if !ch.incoming.spread {
		ch.incoming.spread = true
		ch.c.spread = append(ch.c.spread, ch)
	}
}

// body handles a part of a message's body.
func (ch *channel) body(payload []byte) *fault {
	in := &ch.incoming
	if in.state != awaitBody {
		return faultf(wire.UnexpectedFrame, "a content body came without its header")
	}
	in.got += uint64(len(payload))
	if in.got > in.size {
		return faultf(wire.FrameError, "content body is longer than the %d bytes that its header says", in.size)
	}
	if in.got < in.size && ch.c.assembled+in.got > assemblyMax*ch.c.cfg.Limits.MessageMax {
		return faultf(wire.ResourceError, "too many large messages at once on one connection")
	}
	in.pieces = append(in.pieces, payload)
	if in.got == in.size {
		return ch.complete()
	}
	ch.spreads()
	return nil
}

// gather copies what unfinished messages still refer to, since the input is about to go.
func (c *Conn) gather() {
	for i, ch := range c.spread {
		c.spread[i] = nil
		in := &ch.incoming
		if !in.spread {
			continue
		}
		in.spread = false
		if ch.gone || in.state != awaitBody {
			continue
		}
		if len(in.props) == 0 {
			in.props = append(in.props, in.msg.Properties...)
			in.adopt()
		}
		for j, p := range in.pieces {
			in.body = append(in.body, p...)
			in.pieces[j] = nil
		}
		in.pieces = fewPieces(in.pieces)
		c.assembled -= in.kept
		in.kept = uint64(len(in.body) + len(in.props))
		c.assembled += in.kept
	}
	c.spread = c.spread[:0]
}

// fewPieces keeps the memory of a list of pieces for the next message, unless the client has cut this one so small that the list takes more
// than what it lists: a channel would keep that for as long as it is open.
func fewPieces(pieces [][]byte) [][]byte {
	if cap(pieces) > 1024 {
		return nil
	}
	return pieces[:0]
}

// readProperties takes from a message's properties what the broker needs to know.
func (ch *channel) readProperties(p []byte) *fault {
	v, err := wire.ViewProperties(p)
	if err != nil {
		return wireFault(err)
	}
	in := &ch.incoming
	m := &in.msg
	in.props, in.headers = in.props[:0], v.Headers
	m.Properties, m.Headers, m.CC, m.Producer, m.Sequence = p, nil, nil, "", 0
	m.Record = batch.RecordHeader{Priority: v.Priority}
	if v.DeliveryMode == 2 {
		m.Record.Flags |= batch.FlagPersistent
	}
	if v.Flags&wire.HasExpiration != 0 {
		ttl, ok := wire.ParseDigits(v.Expiration)
		if !ok || ttl > math.MaxUint32 {
			return faultf(wire.PreconditionFailed, "invalid expiration '%s': want whole milliseconds from 0 to %d", v.Expiration,
				uint32(math.MaxUint32))
		}
		m.Record.TTL, m.Record.Flags = uint32(ttl), m.Record.Flags|batch.FlagTTL
	}
	if v.Flags&wire.HasUserID != 0 && string(v.UserID) != ch.c.user {
		return faultf(wire.PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", v.UserID, ch.c.user)
	}
	m.Record.KeyHash = in.keyHash
	if len(v.Headers) > 0 {
		if f := ch.readHeaders(v.Headers); f != nil {
			return f
		}
	}
	if string(v.ReplyTo) == pseudoQueue {
		return ch.rewriteReplyTo()
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readHeaders looks through a message's headers once.
func (ch *channel) readHeaders(table []byte) *fault {
	in := &ch.incoming
	m := &in.msg
	if in.lookup == nil {
		in.lookup = func() value.Table {
			t, _ := wire.DecodeTable(in.headers) // it has been checked
			return t.Core()
		}
	}
	m.Headers = in.lookup
	var fl *fault
	blind := false
	for f := wire.Walk(table); fl == nil; {
		x, ok := f.Next()
		if !ok {
			break
		}
		switch string(x.Name) {
		case "CC", "BCC":
			fl = in.copies(x)
			blind = blind || len(x.Name) == 3
		case "x-delay":
			fl = in.delay(x)
		case "x-partition-key":
			m.Record.KeyHash = crc32.Checksum(x.Data, castagnoli)
		case "x-producer":
			if x.Type != wire.TypeString || len(x.Data) == 0 || len(x.Data) > 255 {
				fl = faultf(wire.PreconditionFailed, "invalid header 'x-producer': want a string of 1 to 255 bytes")
			}
			m.Producer = ch.c.names.of(x.Data, crc32.Checksum(x.Data, castagnoli))
		case "x-sequence":
			n, ok := x.Int()
			if !ok || n < 1 {
				fl = faultf(wire.PreconditionFailed, "invalid header 'x-sequence': want a whole number from 1")
			}
			m.Sequence = uint64(n)
		}
	}
	if fl == nil && (m.Producer == "") != (m.Sequence == 0) {
		fl = faultf(wire.PreconditionFailed, "headers 'x-producer' and 'x-sequence' only work together")
	}
	if fl == nil && blind {
		in.dropBCC()
	}
	return fl
}

func (in *incoming) delay(x wire.RawField) *fault {
	n, ok := x.Int()
	if !ok || n > math.MaxUint32 {
		return faultf(wire.PreconditionFailed, "invalid header 'x-delay': want whole milliseconds up to %d", uint32(math.MaxUint32))
	}
	in.msg.Record.Delay = uint32(max(n, 0))
	return nil
}

// copies reads further routing keys.
func (in *incoming) copies(x wire.RawField) *fault {
	t, err := wire.DecodeTable(x.All)
	if err != nil || len(t) != 1 || t[0].Value.Type != wire.TypeArray {
		return faultf(wire.PreconditionFailed, "invalid header '%s': want an array of strings", x.Name)
	}
	for _, v := range t[0].Value.Array {
		if v.Type != wire.TypeString || len(v.Str) > 255 {
			return faultf(wire.PreconditionFailed, "invalid header '%s': want an array of strings of up to 255 bytes", x.Name)
		}
		in.msg.CC = append(in.msg.CC, v.Str)
	}
	return nil
}

// change decodes the properties, lets f change them, and encodes them again.
func (in *incoming) change(f func(*wire.Properties)) {
	p, err := wire.DecodeProperties(in.msg.Properties)
	if err != nil {
		return // they have been checked
	}
	f(&p)
	in.props = p.Append(in.props[:0])
	in.adopt()
}

// adopt makes the properties in props those of the message.
func (in *incoming) adopt() {
	in.msg.Properties = in.props
	v, _ := wire.ViewProperties(in.props)
	in.headers = v.Headers
}

func (in *incoming) dropBCC() {
	in.change(func(p *wire.Properties) { p.Headers = without(p.Headers, "BCC") })
}

func without(t wire.Table, names ...string) wire.Table {
	var out wire.Table
	for _, f := range t {
		keep := true
		for _, n := range names {
			keep = keep && f.Name != n
		}
		if keep {
			out = append(out, f)
		}
	}
	return out
}

// complete hands the message to the broker.
func (ch *channel) complete() *fault {
	c, in := ch.c, &ch.incoming
	c.assembled -= in.kept
	in.kept, in.state = 0, noContent
	if len(in.body) > 0 {
		in.pieces = append(in.pieces, nil)
		copy(in.pieces[1:], in.pieces)
		in.pieces[0] = in.body
	}
	in.msg.Body = in.pieces
	tag := broker.Tag{Channel: ch.number, Opened: ch.opened}
	if ch.confirms.on {
		tag.Seq = ch.confirms.take()
	}
	if !c.published {
		c.published = true
		c.tellBlocked()
	}
	c.stats.Published++
	err := c.b.Publish(tag, &in.msg)
	clear(in.pieces)
	in.pieces = fewPieces(in.pieces)
	if cap(in.body) > 64<<10 {
		in.body = nil
	}
	in.msg.Body, in.msg.Properties, in.headers = nil, nil, nil
	if err != nil {
		return faultOf(err)
	}
	return nil
}
