package broker

import (
	"encoding/binary"
	"errors"

	"github.com/tanist/tanist/internal/core/batch"
)

// An envelope is the body of a record: where the message was published, its properties and its bytes.
//
//	u8 length, exchange | u8 length, routing key | u32 length, properties | body
//
// The core never reads it; gateways and fronts do.

// ErrEnvelope is returned when a record's body is not an envelope.
var ErrEnvelope = errors.New("broker: malformed envelope")

// Envelope is a decoded envelope. Properties and Body refer to the record.
type Envelope struct {
	Exchange   string
	RoutingKey string
	Properties []byte
	Body       []byte
}

// AppendEnvelopeHead appends what comes before a message's body. Exchange and routing key must be at most 255 bytes.
func AppendEnvelopeHead(dst []byte, exchange, key string, properties []byte) []byte {
	dst = append(append(dst, byte(len(exchange))), exchange...)
	dst = append(append(dst, byte(len(key))), key...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(properties)))
	return append(dst, properties...)
}

// DecodeEnvelope reads an envelope.
func DecodeEnvelope(p []byte) (Envelope, error) {
	v, err := ViewEnvelope(p)
	return Envelope{
		Exchange: string(v.Exchange), RoutingKey: string(v.RoutingKey), Properties: v.Properties, Body: v.Body,
	}, err
}

// EnvelopeView is a decoded envelope whose every part refers to the record.
type EnvelopeView struct {
	Exchange   []byte
	RoutingKey []byte
	Properties []byte
	Body       []byte
}

// ViewEnvelope reads an envelope without allocating.
func ViewEnvelope(p []byte) (EnvelopeView, error) {
	var e EnvelopeView
	var ok bool
	if e.Exchange, p, ok = short(p); !ok {
		return e, ErrEnvelope
	}
	if e.RoutingKey, p, ok = short(p); !ok || len(p) < 4 {
		return e, ErrEnvelope
	}
	n := uint64(binary.LittleEndian.Uint32(p))
	if p = p[4:]; n > uint64(len(p)) {
		return e, ErrEnvelope
	}
	e.Properties, e.Body = p[:n:n], p[n:]
	return e, nil
}

func short(p []byte) (s, rest []byte, ok bool) {
	if len(p) == 0 || len(p) < 1+int(p[0]) {
		return nil, nil, false
	}
	n := 1 + int(p[0])
	return p[1:n:n], p[n:], true
}

// Death is why a message is dead-lettered.
type Death struct {
	Queue  string
	Reason string // "rejected", "expired", "maxlen" or "delivery_limit"
	Time   int64  // milliseconds since 1970
	Count  uint32 // deliveries that came back, where the reason is delivery_limit
	Key    string // the routing key it is published with; empty: its own
	// Exchange it is published to.
	Exchange string
}

// Undertaker is given by the front whose messages are dead-lettered: it writes a death into a message's properties.
type Undertaker interface {
	// Bury makes the message to publish of one that died. cycle reports that it died for the same reason in the same queue
	// before and that nobody rejected it in between: it must be dropped, not published.
	Bury(e Envelope, h batch.RecordHeader, d Death) (m *Message, cycle bool, err error)
}
