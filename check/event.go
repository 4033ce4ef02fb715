// Package check gives verdicts over histories: what clients of a broker did and saw, judged against what the broker promises.
//
// It knows nothing of how the load was made, of the product's types or of its files: the same rules judge a simulation, real
// processes under kill -9, and a script. A history is fed event by event; memory grows with the number of messages only.
//
// Two habits of whoever records make the order of events mean something even where clients run concurrently: what is given
// to the broker (a publish, a settle, an end of a session) is recorded before it is given, and what is received from it (an
// outcome, a delivery) after.
package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Kind says what happened, and which fields of an Event count.
type Kind string

// The kinds of event. Resource is always one incarnation: a name that is declared again is another Resource.
const (
	// Declared names a resource and what it may do: Type, Lossy, DeadLetter, Ordered. It comes before anything else of it.
	Declared Kind = "declared"
	// Deleted says that the deletion of Resource was asked for: from now on nothing is expected of it.
	Deleted Kind = "deleted"
	// Opened begins a Session.
	Opened Kind = "opened"
	// Closed ends a Session, by the client's wish or by a lost connection: what it held unsettled is released.
	Closed Kind = "closed"
	// Lost ends a Session with the node that it spoke to, or comes after it was Closed: what it held is released, and what it settled last
	// may not have been heard. Owners and other sessions go on.
	Lost Kind = "lost"
	// Crashed ends the broker's run, with all sessions. Restarted gives a cause for owners to change.
	Crashed   Kind = "crashed"
	Restarted Kind = "restarted"
	// Disturbed says that from now on, until Calm, some of the broker's nodes may not hear each other, or not in time: a message may be
	// with two consumers at once. Owner, if not empty, is an owner whose run has ended. Sessions go on, but for those that are Closed.
	Disturbed Kind = "disturbed"
	Calm      Kind = "calm"
	// Doubted says that from now on, until Calm, Owner may rightly lose what it owns though it runs. Whoever records it once records it of
	// all: an owner that is not doubted, and has not ended, is then never to be replaced, however Disturbed the others are.
	Doubted Kind = "doubted"
	// Publish gives Message with Digest to Targets, on Lane of Session. Messages of one lane keep their order. Message
	// numbers are unique in a history.
	Publish Kind = "publish"
	// Again gives Message once more in Session, under the producer and the number that it had: whatever its outcome was, it has
	// another to come, and it is in its resource once all the same.
	Again Kind = "again"
	// Resolved is the Outcome of Message.
	Resolved Kind = "resolved"
	// Attached begins Reader of Resource: for a stream at Offset if HasOffset, under Cursor if that is not empty.
	Attached Kind = "attached"
	// Delivered hands Message with Digest to Reader of Session, at Offset if HasOffset.
	Delivered Kind = "delivered"
	// Settle gives Settlement of Message to Resource. Settled says that it was confirmed, and may name the Settlement: once the broker was
	// Disturbed, another session may have been handed the message meanwhile, and have let go of it again.
	Settle  Kind = "settle"
	Settled Kind = "settled"
	// CursorSent moves Cursor of a stream to Offset, the next record wanted. CursorKept says that it was confirmed.
	CursorSent Kind = "cursor-sent"
	CursorKept Kind = "cursor-kept"
	// Purge was asked of Resource; Purged was answered.
	// PurgeLost says that who asked is gone: whether it was done is not known, but nothing of it is under way.
	Purge     Kind = "purge"
	PurgeLost Kind = "purge-lost"
	Purged    Kind = "purged"
	// Drained says that all that was left in Resource has been delivered: a queue is empty, a stream was read by Reader from its
	// head to its tail.
	Drained Kind = "drained"
	// Owned says that Owner owns Resource in Epoch.
	Owned Kind = "owned"
	// GivenUp says that an operator has accepted a loss: what was confirmed of Resource before this event and lies at Offset or above may be
	// gone, and those offsets are given anew. Nothing else may.
	GivenUp Kind = "given-up"
	// Injected says that stored bytes of Resource ("" for any) were damaged on purpose, Damaged that the broker says so of it.
	Injected Kind = "injected"
	Damaged  Kind = "damaged"
	// Counted gives the broker's Count of messages in Resource, ready and unsettled, with no request under way.
	Counted Kind = "counted"
	// Totals gives the broker's own counters of Admitted publishes and how they ended, with none under way.
	Totals Kind = "totals"
	// Quiet says that the broker runs and has had all the time that it may take to answer everything.
	Quiet Kind = "quiet"
)

// Outcome is how a publish ended.
type Outcome string

// The outcomes.
const (
	Confirmed Outcome = "confirmed"
	Refused   Outcome = "refused"
	Unknown   Outcome = "unknown"
)

// Settlement is what a client says of a delivery.
type Settlement string

// The settlements. Requeue stands for every return to the queue.
const (
	Accept  Settlement = "accept"
	Reject  Settlement = "reject"
	Requeue Settlement = "requeue"
)

// Event is one thing that happened. Which fields count is said at its Kind.
type Event struct {
	Kind     Kind   `json:"kind"`
	At       int64  `json:"at,omitempty"` // nanoseconds, for people
	Resource string `json:"resource,omitempty"`
	Message  uint64 `json:"message,omitempty"`
	Digest   uint64 `json:"digest,omitempty"`

	// Of Declared.
	Stream     bool   `json:"stream,omitempty"`
	Lossy      bool   `json:"lossy,omitempty"`       // retention, a time to live or a greatest length may drop messages
	DeadLetter string `json:"dead_letter,omitempty"` // the resource that takes what is rejected or dropped
	Ordered    bool   `json:"ordered,omitempty"`     // one reader at a time: first deliveries keep each lane's order

	Targets     []string   `json:"targets,omitempty"`
	Session     uint64     `json:"session,omitempty"`
	Lane        uint64     `json:"lane,omitempty"`
	Reader      uint64     `json:"reader,omitempty"`
	Cursor      string     `json:"cursor,omitempty"`
	Offset      uint64     `json:"offset,omitempty"`
	HasOffset   bool       `json:"has_offset,omitempty"`
	Redelivered bool       `json:"redelivered,omitempty"`
	Outcome     Outcome    `json:"outcome,omitempty"`
	Settlement  Settlement `json:"settlement,omitempty"`
	Epoch       uint64     `json:"epoch,omitempty"`
	Owner       string     `json:"owner,omitempty"`
	Cause       string     `json:"cause,omitempty"`
	Count       uint64     `json:"count,omitempty"`

	// Of Totals.
	Admitted  uint64 `json:"admitted,omitempty"`
	Confirmed uint64 `json:"confirmed,omitempty"`
	Refused   uint64 `json:"refused,omitempty"`
	Unknown   uint64 `json:"unknown,omitempty"`
}

// Write writes a history as one JSON object a line.
func Write(w io.Writer, events []Event) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return b.Flush()
}

// Read feeds a history that Write wrote to a checker and gives the verdict. The error is about the reading, not the history.
func Read(r io.Reader) (*Checker, error) {
	c := New()
	dec := json.NewDecoder(r)
	for {
		var e Event
		err := dec.Decode(&e)
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", c.events, err)
		}
		c.Observe(e)
	}
}
