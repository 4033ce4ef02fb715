package protocol

import (
	"errors"
	"fmt"

	"github.com/tanist/tanist/internal/core/codec"
)

// Encoding is the version of the encoding that Append writes and Parse reads.
const Encoding = 1

// Errors of Parse. None is worth a retry: whoever sent the message is of another version or broken.
var (
	// ErrUnknown is returned for a message of a kind, or in a version of the encoding, that this program does not know.
	ErrUnknown = errors.New("protocol: unknown kind of message or version of its encoding")
	// ErrMalformed is returned when the bytes are not what Append writes.
	ErrMalformed = errors.New("protocol: malformed message")
)

// A message is u8 kind, u8 version of the encoding, and its fields in the order of fields.go. Numbers of kinds are never used again.
type kind uint8

// From a gateway to an owner.
const (
	kindAttach kind = iota + 1
	kindPublish
	kindSubscribe
	kindUnsubscribe
	kindCredit
	kindSettle
	kindCursor
	kindGet
	kindPurge
	kindStats
	kindClose
	kindReopen
	kindDetach
	kindUnclaimed
)

// From an owner to a gateway.
const (
	kindAttached kind = iota + 32
	kindNotServing
	kindPublished
	kindPublishRefused
	kindPublishExpected
	kindPublishUnknown
	kindSubscribed
	kindUnsubscribed
	kindConsumerEnded
	kindDeliver
	kindStreamData
	kindSettled
	kindGetDone
	kindCounted
	kindDenied
)

// Between the copies of a partition.
const (
	kindProbe kind = iota + 64
	kindStanding
	kindExtend
	kindHeld
	kindImageChunk
	kindImageTaken
	kindMakeAnew
)

// Between nodes and the controller.
const (
	kindHeartbeat kind = iota + 96
	kindSealRequests
	kindSealAnswers
	kindLinksAsk
	kindLinksAnswer
	kindStatusAsk
	kindStatusAnswer
	kindRunReport
	kindPromises
	kindConfirms
	kindEvidence
	kindEvidenceHeld
	kindLossAsk
	kindLossAnswer
	kindLease
	kindDeletionAsk
	kindDeletionAnswer
	kindClientsAsk
	kindClientsAnswer
	kindCursorsAsk
	kindCursorsAnswer
	kindDamages
)

// Append appends the encoding of a message and returns the longer slice. Everything is copied. Attach travels without Reply; a
// record's Size is its body's. It panics if msg is not the value of a message that travels: DeadLetter and DeadLettered do not.
func Append(b []byte, msg any) []byte {
	c := coder{codec.Coder{Buf: b, Malformed: ErrMalformed}}
	if !c.putAsked(msg) && !c.putAnswered(msg) && !c.putCopies(msg) && !c.putControl(msg) {
		panic(fmt.Sprintf("protocol: %T does not travel", msg))
	}
	return c.Buf
}

// Parse reads a message, a value as Append takes it. Its byte slices, batches and record bodies refer to b, which must not be changed
// while they are in use. An error is ErrUnknown or ErrMalformed; nothing larger than in proportion to b is allocated whatever it says.
func Parse(b []byte) (any, error) { return parse(b, nil) }

// Parser is Parse that keeps the names of nodes, so that they are not allocated with every message. It is not safe for concurrent
// use; the zero Parser is ready.
type Parser struct{ names map[string]string }

// Parse is as the function of that name.
func (p *Parser) Parse(b []byte) (any, error) {
	if p.names == nil {
		p.names = map[string]string{}
	}
	return parse(b, p.names)
}

func parse(b []byte, names map[string]string) (any, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	k := kind(b[0])
	if b[1] != Encoding {
		return nil, fmt.Errorf("%w: version %d of kind %d", ErrUnknown, b[1], k)
	}
	c := coder{codec.Coder{Reading: true, Buf: b[2:], Malformed: ErrMalformed, Names: names}}
	var msg any
	switch {
	case k >= kindHeartbeat:
		msg = c.getControl(k)
	case k >= kindProbe:
		msg = c.getCopies(k)
	case k >= kindAttached:
		msg = c.getAnswered(k)
	default:
		msg = c.getAsked(k)
	}
	if msg == nil {
		return nil, fmt.Errorf("%w: kind %d", ErrUnknown, k)
	}
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("kind %d: %w", k, err)
	}
	return msg, nil
}

func (c *coder) head(k kind) { c.Buf = append(c.Buf, byte(k), Encoding) }
