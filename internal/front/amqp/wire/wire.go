// Package wire is AMQP 0-9-1 as bytes: frames, methods, field tables, content properties, with the extensions and the dialect of field
// types that RabbitMQ's clients speak.
//
// The methods are generated from a definition (tools/amqpgen); the rest is written by hand. Everything read comes from outside and may be
// hostile: no input makes this package panic, read past its bounds, or allocate more than in proportion to the input. It is pure: nothing
// of connections, channels or the broker may come in.
package wire

//go:generate sh -c "cd ../../../../tools && go run ./amqpgen generate amqpgen/amqp091.def > ../internal/front/amqp/wire/methods.gen.go"

import (
	"encoding/binary"
	"fmt"
)

// ProtocolHeader is what a client sends first.
const ProtocolHeader = "AMQP\x00\x00\x09\x01"

const (
	// FrameOverhead is what a frame is longer than its payload, in bytes: u8 type, u16 channel, u32 size, …, u8 end.
	FrameOverhead  = 8
	frameHead      = 7
	maxTableDepth  = 64
	maxShortString = 255
)

// Error is a breach of the protocol, with the reply code that AMQP has for it.
type Error struct {
	Code uint16
	Text string
}

func (e *Error) Error() string { return e.Text }

func errorf(code uint16, format string, a ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, a...)}
}

// Frame is one frame. Payload refers to the input.
type Frame struct {
	Type    uint8
	Channel uint16
	Payload []byte
}

// ParseFrame reads a frame from the front of p. n is its length, and 0 if p does not hold all of it yet; Missing says how much is
// missing. max is the greatest length of a frame. The error is an *Error with code 501.
func ParseFrame(p []byte, maximum uint32) (f Frame, n int, err error) {
	if len(p) == 0 {
		return f, 0, nil
	}
	switch p[0] {
	case FrameMethod, FrameHeader, FrameBody, FrameHeartbeat:
	default:
		return f, 0, errorf(FrameError, "unknown frame type %d", p[0])
	}
	if len(p) < frameHead {
		return f, 0, nil
	}
	size := binary.BigEndian.Uint32(p[3:])
	if uint64(size)+FrameOverhead > uint64(maximum) {
		return f, 0, errorf(FrameError, "frame of %d bytes is larger than the negotiated maximum of %d", uint64(size)+FrameOverhead, maximum)
	}
	n = int(size) + FrameOverhead
	if len(p) < n {
		return f, 0, nil
	}
	if p[n-1] != FrameEnd {
		return f, 0, errorf(FrameError, "frame does not end with its end mark but with 0x%02x", p[n-1])
	}
	return Frame{p[0], binary.BigEndian.Uint16(p[1:]), p[frameHead : n-1 : n-1]}, n, nil
}

// Missing is how many bytes a started frame needs at least before ParseFrame can say more.
func Missing(p []byte) int {
	if len(p) < frameHead {
		return frameHead - len(p)
	}
	return int(binary.BigEndian.Uint32(p[3:])) + FrameOverhead - len(p)
}

// AppendFrame appends a frame.
func AppendFrame(dst []byte, typ uint8, channel uint16, payload []byte) []byte {
	dst = append(dst, typ, byte(channel>>8), byte(channel))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, payload...)
	return append(dst, FrameEnd)
}

// begin appends the head of a frame whose size is set by end.
func begin(dst []byte, typ uint8, channel uint16) []byte {
	return append(dst, typ, byte(channel>>8), byte(channel), 0, 0, 0, 0)
}

func end(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at+3:], uint32(len(dst)-at-frameHead))
	return append(dst, FrameEnd)
}

// AppendHeartbeat appends a heartbeat.
func AppendHeartbeat(dst []byte) []byte { return AppendFrame(dst, FrameHeartbeat, 0, nil) }

// MethodID names a method: its class in the upper 16 bits, its number in the lower.
type MethodID uint32

// Class is the number of the method's class.
func (id MethodID) Class() uint16 { return uint16(id >> 16) }

// Number is the method's number within its class.
func (id MethodID) Number() uint16 { return uint16(id) }

// String is the method's name, such as basic.publish.
func (id MethodID) String() string {
	if s, ok := methodNames[id]; ok {
		return s
	}
	return fmt.Sprintf("method %d.%d", id.Class(), id.Number())
}

// Method is one method with its arguments.
type Method interface {
	ID() MethodID
	// Decode reads the arguments, all of them and nothing more. The error is an *Error with code 502.
	Decode(args []byte) error
	// AppendArgs appends the arguments. Short strings are cut to what their length can say.
	AppendArgs(dst []byte) []byte
}

// SplitMethod reads which method a frame's payload holds, and where its arguments are. The error is an *Error with code 502.
func SplitMethod(payload []byte) (MethodID, []byte, error) {
	if len(payload) < 4 {
		return 0, nil, errorf(SyntaxError, "method frame of %d bytes is too short", len(payload))
	}
	return MethodID(binary.BigEndian.Uint32(payload)), payload[4:], nil
}

// DecodeMethod reads a method. The error is an *Error: code 502 where it cannot be read, 540 where no such method exists.
func DecodeMethod(payload []byte) (Method, error) {
	id, args, err := SplitMethod(payload)
	if err != nil {
		return nil, err
	}
	m := NewMethod(id)
	if m == nil {
		return nil, errorf(NotImplemented, "there is no method %d in class %d", id.Number(), id.Class())
	}
	if err := m.Decode(args); err != nil {
		return nil, errorf(SyntaxError, "%s: %v", id, err)
	}
	return m, nil
}

// AppendMethod appends a method frame.
func AppendMethod(dst []byte, channel uint16, m Method) []byte {
	at := len(dst)
	dst = begin(dst, FrameMethod, channel)
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.ID()))
	return end(m.AppendArgs(dst), at)
}
