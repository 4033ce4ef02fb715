package queue

// Overflow says what a queue does when it is at its greatest length.
type Overflow string

// The kinds of overflow.
const (
	DropHead      Overflow = ""               // the oldest messages go
	RejectPublish Overflow = "reject-publish" // new messages are refused
)

// Settings are what a declaration fixes for a queue. A nil pointer or a zero means: not set, no limit. Times are in
// milliseconds, sizes in bytes of message bodies with their properties.
type Settings struct {
	TTL                  *int64   `json:"ttl,omitempty"`
	Expires              int64    `json:"expires,omitempty"` // the queue goes after so long unused
	MaxLength            *int64   `json:"max_length,omitempty"`
	MaxBytes             *int64   `json:"max_bytes,omitempty"`
	Overflow             Overflow `json:"overflow,omitempty"`
	DeliveryLimit        *int64   `json:"delivery_limit,omitempty"` // returns to the queue before the message is dead-lettered
	DeadLetterExchange   *string  `json:"dead_letter_exchange,omitempty"`
	DeadLetterRoutingKey *string  `json:"dead_letter_routing_key,omitempty"`
	SingleActive         bool     `json:"single_active,omitempty"`
	ConsumerTimeout      int64    `json:"consumer_timeout,omitempty"` // a delivery unsettled for so long closes its channel
}
