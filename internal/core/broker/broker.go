// Package broker says, as values and interfaces, what a front asks of a broker and what it is told: the language between any
// front (AMQP today) and the gateway. It performs nothing. No protocol's words may come in: a front translates.
//
// Every method of Session is called, and every callback and Listener method is invoked, on the loop that the session was opened
// on. A callback may be invoked before the method returns.
package broker

import (
	"fmt"

	"github.com/tanist/tanist/internal/core/batch"
	"github.com/tanist/tanist/internal/core/catalog"
	"github.com/tanist/tanist/internal/core/ident"
	"github.com/tanist/tanist/internal/core/queue"
	"github.com/tanist/tanist/internal/core/stream"
	"github.com/tanist/tanist/internal/core/value"
)

// Code classifies an Error so that a front can answer in its own protocol's terms.
type Code uint8

// The codes. AMQP's reply code for each is in brackets.
const (
	Internal       Code = iota // a fault of ours [541]
	NotFound                   // no such virtual host, exchange or resource [404]
	AccessRefused              // no right, or a reserved name [403]
	Locked                     // exclusive to another session [405]
	Precondition               // an inequivalent declaration, an argument out of range, in use, not empty [406]
	NotAllowed                 // refused by rule, such as a vhost without permission or a connection limit [530]
	NotImplemented             // [540]
	Unavailable                // no quorum, not serving yet, shutting down: worth a retry [541, or a nack]
	ResourceError              // a limit was reached [506]
	TooLarge                   // a message or a frame [311 or 501]
	AuthFailed                 // wrong user or password [403 with the connection closed]
	Uncertain                  // it is not known whether it was done, and it may be done yet: worth a retry [541]
)

// Error is a refusal that the client gets to see. Text names the thing refused and the next step.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

// Retryable reports whether the same request may succeed later without anything being changed.
func (e *Error) Retryable() bool { return e.Code == Unavailable || e.Code == Uncertain }

// Errorf makes an Error.
func Errorf(c Code, format string, a ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, a...)}
}

// Broker is what a front is given for each shared loop.
type Broker interface {
	// Open starts a session for one client connection.
	Open(Peer, Listener) Session
}

// Peer is who is at the other end.
type Peer struct {
	Address  string // host:port
	Loopback bool
	TLS      bool
	Front    string // "amqp"
}

// Outcome is how a publish, or one target of it, ended (design 2 §2).
type Outcome uint8

// The outcomes.
const (
	Confirmed Outcome = iota
	Refused           // definitely not stored
	Unknown           // may or may not be stored
)

// Tag names a publish to the front that made it: numbers of the front's choice.
type Tag struct {
	Channel uint16 // publishes of one are taken in order
	Opened  uint32 // tells those apart that had the same number one after the other
	Seq     uint64 // 0: nobody waits for the outcome
}

// Listener is told what a session did not ask for just now. The slices are only valid during the call.
type Listener interface {
	// Resolved says how publishes ended. Within one Channel, Confirmed tags come in any order.
	Resolved(tags []Tag, o Outcome, reason string)
	// Returned hands back a mandatory message that no resource takes. It comes before the Tag's Resolved.
	// Where the Tag has no Seq it also hands back one that was refused because it was not known whether any takes it.
	Returned(tag Tag, m *Message, reason string)
	// Rejected says of a message that Publish has taken what Publish would have returned, had it been known: it is not stored, no Resolved
	// follows, and what was published after it on the Tag's channel is dropped.
	Rejected(tag Tag, err *Error)
	// Delivered hands over messages of a consumer, in order. The bytes stay valid for as long as they are referred to.
	Delivered(consumer uint64, ds []Delivery)
	// ConsumerGone says that a consumer was ended by the broker: its resource was deleted or its node lost.
	ConsumerGone(consumer uint64, reason string)
	// GetsGone says that messages which Get has handed over, and which are not settled, are gone from an offset of a partition on, and that what
	// comes later may have their offsets: nothing must be said of them any more, since it would be taken for others.
	GetsGone(p ident.Partition, from uint64, reason string)
	// Flow asks the front to stop (or go on) reading from the client: a credit ran out. It is not an error and short.
	Flow(stop bool)
	// Blocked says that publishing is stopped because a resource ran low (reason not empty), or goes on (empty). A front
	// that knows such a message tells its client; Flow is used to hold publishers all the same.
	Blocked(reason string)
	// Close asks the front to end the connection: shutdown, the user or virtual host deleted.
	Close(err *Error)
}

// Message is a message on its way in or out, in no protocol's terms.
type Message struct {
	Exchange   string
	RoutingKey string
	Mandatory  bool
	Record     batch.RecordHeader // Size is ignored
	// Properties is opaque to the broker: what the front needs to give the message back.
	Properties []byte
	Body       [][]byte // in pieces, as it came; not kept after Publish returns
	// Headers gives the headers that a headers exchange matches on; nil where there are none. It is called only if needed.
	Headers func() value.Table
	// CC are further routing keys, as some clients send them (CC and BCC headers).
	CC []string
	// Producer and Sequence make the append happen once for this pair (x-producer, x-sequence). Producer empty: not asked for.
	Producer string
	Sequence uint64
}

// Ref names a delivery to the partition that it came from.
type Ref struct {
	Partition ident.Partition
	Consumer  uint64 // the front's number; 0 for a message fetched by Get
	Offset    uint64
}

// Delivery is one message handed to a consumer.
type Delivery struct {
	Ref         Ref
	Redelivered bool
	Count       uint32 // earlier deliveries that came back
	Stream      bool   // Ref.Offset is an offset that the client may see
	Record      batch.RecordHeader
	Payload     []byte // an envelope: see DecodeEnvelope
	Left        uint32 // for Get: messages still ready
}

// Settlement is what a client says of a delivery.
type Settlement uint8

// The settlements.
const (
	Accept  Settlement = iota // done: never delivered again
	Reject                    // dead-lettered or dropped
	Requeue                   // back to its place, counted as a failed delivery
	Release                   // back to its place because the consumer went away; counted as a delivery too
)

// Session is one client's work.
type Session interface {
	// Authenticate checks a user's password, and whether that user may connect from where the peer is. It opens nothing: some
	// protocols name the virtual host only later, and clients tell a wrong password from a wrong virtual host by when they
	// are told.
	Authenticate(user, password string, done func(*Error))
	// Login authenticates and opens the virtual host. Nothing but Authenticate may be called before it succeeded.
	Login(user, password, vhost string, done func(*Error))
	// SetSecret replaces the password that was given at Login.
	SetSecret(password string, done func(*Error))

	DeclareExchange(e catalog.Exchange, passive bool, done func(*Error))
	DeleteExchange(name string, ifUnused bool, done func(*Error))
	Bind(b catalog.Binding, done func(*Error))
	Unbind(b catalog.Binding, done func(*Error))
	DeclareQueue(q QueueSpec, done func(QueueInfo, *Error))
	DeleteQueue(name string, ifUnused, ifEmpty bool, done func(messages uint32, err *Error))
	PurgeQueue(name string, done func(messages uint32, err *Error))

	// Publish takes a message. The error is a refusal that ends the channel in AMQP (no such exchange, no right); everything
	// else is reported through the Listener. A refusal that takes a question to another node is reported there too, as Rejected.
	// Declarations, bindings, purges, deletions and Get that come after a Publish do not pass it.
	Publish(tag Tag, m *Message) *Error
	// Get takes one message; ok false means that the queue had none ready.
	Get(queue string, noAck bool, done func(d Delivery, ok bool, err *Error))
	Consume(c ConsumeSpec, done func(*Error))
	// ConsumerTimeout is how long a delivery of a queue may stay unsettled, in milliseconds; 0: for ever. The front holds it.
	ConsumerTimeout(queue string) int64
	// Cancel ends a consumer. What it holds unsettled stays with the session until settled.
	Cancel(consumer uint64, done func())
	// Settle settles deliveries. Refs that are not held by this session are ignored.
	Settle(refs []Ref, s Settlement)
	// Drained says that bytes of a consumer's deliveries have left for the client, which pays its byte credit back. A delivery
	// counts with the length of its Payload.
	Drained(consumer uint64, bytes int)
	// Close ends the session: what it holds unsettled is released, its exclusive resources go.
	Close()
}

// QueueSpec asks for a queue or a stream.
type QueueSpec struct {
	Name       string // empty: the broker makes a name up
	Passive    bool
	Durable    bool
	Exclusive  bool
	AutoDelete bool
	Kind       catalog.Kind
	Queue      queue.Settings
	Stream     stream.Settings
	Copies     uint32      // wanted; 0: catalog.DefaultCopies
	Policy     string      // one of quorum's, as text; empty: the default
	Args       value.Table // the known arguments, as the client gave them
}

// QueueInfo answers a declaration.
type QueueInfo struct {
	Name      string
	Messages  uint32 // ready
	Consumers uint32
}

// ConsumeSpec asks for deliveries.
type ConsumeSpec struct {
	Queue     string
	Consumer  uint64 // the front's number for it, unique in the session, not 0
	Label     string // the consumer tag, for people
	NoAck     bool
	Exclusive bool
	Priority  int32
	Prefetch  uint32 // most deliveries unsettled at a time; 0: bounded by bytes only
	// Start and Cursor are for streams; a queue refuses them (Precondition). With a Cursor that exists, Start is ignored.
	Start  stream.Start
	Cursor string
}
