package wire

import "encoding/binary"

// ContentHeader is the frame between a method that carries content and the content.
type ContentHeader struct {
	Class      uint16
	Size       uint64 // of the body
	Properties []byte // flags first; refers to the input
}

// ParseContentHeader reads the payload of a header frame. The error is an *Error with code 502.
func ParseContentHeader(payload []byte) (ContentHeader, error) {
	if len(payload) < 14 {
		return ContentHeader{}, errorf(SyntaxError, "content header of %d bytes is too short", len(payload))
	}
	return ContentHeader{
		Class: binary.BigEndian.Uint16(payload), Size: binary.BigEndian.Uint64(payload[4:]), Properties: payload[12:],
	}, nil
}

// Publish is basic.publish as ParsePublish reads it; its parts refer to the input.
type Publish struct {
	Exchange   []byte
	RoutingKey []byte
	Mandatory  bool
	Immediate  bool
}

// ParsePublish reads the arguments of basic.publish without allocating. The error is an *Error with code 502.
func ParsePublish(args []byte) (Publish, error) {
	r := reader{p: args}
	r.short()
	var m Publish
	m.Exchange = r.shortBytes()
	m.RoutingKey = r.shortBytes()
	bits := r.octet()
	m.Mandatory, m.Immediate = bits&1 != 0, bits&2 != 0
	if err := r.end(); err != nil {
		return m, errorf(SyntaxError, "basic.publish: %v", err)
	}
	return m, nil
}

// Content is what the frames after a method are made of. If Name is not empty, a header of that name and the value Int is added, unless the frame
// would be longer than FrameMax then; 0 is no bound.
type Content struct {
	Properties []byte
	Name       string
	Int        int64
	Size       int
	FrameMax   uint32
}

// AppendDeliver appends basic.deliver, its header and its body, without allocating beyond dst. frameMax is the greatest length of a
// frame.
func AppendDeliver(
	dst []byte, channel uint16, frameMax uint32, consumer string, tag uint64, redelivered bool, exchange, key []byte, c Content, body []byte,
) []byte {
	at := len(dst)
	dst = begin(dst, FrameMethod, channel)
	dst = appendLong(dst, uint32(IDBasicDeliver))
	dst = appendShortstr(dst, consumer)
	dst = appendLonglong(dst, tag)
	dst = append(dst, packBits(redelivered))
	dst = appendShortstr(dst, exchange)
	dst = end(appendShortstr(dst, key), at)
	c.FrameMax = frameMax
	return AppendBody(AppendContentHeader(dst, channel, c), channel, frameMax, body)
}

// AppendContentHeader appends the header frame of a message. What a message is published with fits a frame; what is added to it on its way to a
// client must not be what its client ends the connection for, again and again.
func AppendContentHeader(dst []byte, channel uint16, c Content) []byte {
	at := len(dst)
	dst = begin(dst, FrameHeader, channel)
	dst = appendLong(dst, uint32(IDBasicDeliver.Class())<<16)
	dst = appendLonglong(dst, uint64(c.Size))
	if c.Name != "" {
		dst = AppendWithInt(dst, c.Properties, c.Name, c.Int)
	} else {
		dst = append(dst, c.Properties...)
	}
	if dst = end(dst, at); c.Name != "" && c.FrameMax > 0 && len(dst)-at > int(c.FrameMax) {
		c.Name = ""
		return AppendContentHeader(dst[:at], channel, c)
	}
	return dst
}

// AppendBody appends the body frames of a message, or of a part of one.
func AppendBody(dst []byte, channel uint16, frameMax uint32, body []byte) []byte {
	most := int(frameMax) - FrameOverhead
	for len(body) > 0 {
		n := min(len(body), most)
		dst = AppendFrame(dst, FrameBody, channel, body[:n])
		body = body[n:]
	}
	return dst
}
