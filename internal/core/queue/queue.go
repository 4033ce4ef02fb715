// Package queue is the queue's state machine: what a partition's confirmed log drives, and what only the owner knows beside it.
//
// It has two sides. The replicated side is a function of the log alone, so that every copy that has applied the same entries holds
// the same: which messages live, their sizes, how often each came back, which wait for a delay, which are dead and under what
// number. It changes by ApplyRecord, ApplyEvent and ApplyBatch and by nothing else, and goes into snapshots. The volatile side is
// the owner's: consumers, who holds what, credit, what has been decided and staged but is not confirmed yet. It begins with
// Promote and ends with Demote.
//
// The owner's decisions never change the replicated side. They are staged: the message stops being ready, the consumer's place is
// free at once, and TakeEvents gives the events that the owner must append. When they come back confirmed through ApplyEvent, they
// take effect, here as on every other copy.
//
// No body is kept here, no clock is read, nobody is called. No AMQP, no storage, no protocol message may come in.
//
// Rules that are easy to miss:
//
//   - An offset is in at most one staged event of this owner at a time: staging takes it out of the ready set and from its holder.
//   - An owner begins (Promote) when all that it inherited is confirmed and applied: nothing is admitted before, so nothing is staged.
//   - A settle by someone who does not hold the message does nothing; so does settling again.
//   - The length that admission sees is the length after everything staged.
//
// Source: design 2 §2 and design 5.
package queue

import (
	"errors"
)

// Version is the behaviour of this state machine. The epoch-start mark and every snapshot name it: copies of one partition
// apply one behaviour.
const Version uint32 = 1

// PageSize is the number of offsets of one snapshot page.
const PageSize = 4096

// DeadLanes is how many dead letters may be under way at once: one of each lane. See DeadLetter.Lane.
const DeadLanes = 8

// Errors.
var (
	// ErrEvent is returned by ApplyEvent and ApplyBatch when an event's bytes are not what this version writes, or
	// contradict the state. The copy must be taken as damaged; a retry gives the same.
	ErrEvent = errors.New("queue: malformed event")
	// ErrPage is returned by Restore when a page's bytes are not what this version writes, or pages contradict each other.
	ErrPage = errors.New("queue: malformed page")
	// ErrExclusive is returned by Subscribe when another consumer excludes this one, or this one would be exclusive and is not
	// the first. It may be retried once the other consumers are gone.
	ErrExclusive = errors.New("queue: exclusive")
)

// Holder names who holds or may hold deliveries: a consumer of a gateway. Gateway is a number of the caller's choice, the same for
// one gateway across its streams; Consumer is the gateway's number for the consumer, 0 for what was fetched by Get.
type Holder struct {
	Gateway  uint64
	Consumer uint64
}

// Options of a consumer.
type Options struct {
	NoAck     bool // deliveries are settled as they are assigned; Prefetch does not count
	Exclusive bool
	Priority  int32  // higher is served first; round robin among equals
	Prefetch  uint32 // most deliveries held at a time; 0: no bound by count
	Credit    int64  // bytes that may be delivered before Credit gives more; a delivery may overdraw it
}

// Claim is a delivery that a gateway says its client holds.
type Claim struct {
	Consumer uint64
	Offset   uint64
}

// LastStream is a gateway's last stream to an owner: the epoch of that owner, 0 if there was none, and until when it stood, by the caller's clock.
// Of two gateways that claim the same that one has it which had the later stream: it was handed on while the other was away.
type LastStream struct {
	Epoch uint64
	Until int64
}

func (l LastStream) before(o LastStream) bool {
	return l.Epoch < o.Epoch || l.Epoch == o.Epoch && l.Until < o.Until
}

// Denied is a claim that a gateway does not get: another has the message, or it is gone.
type Denied struct {
	Gateway uint64
	Claim
}

// Kept is a consumer that a gateway has from an earlier stream, and will subscribe anew.
type Kept struct {
	Consumer  uint64
	Delivered uint64 // the last epoch in which something was delivered to it; 0: none
}

// Outcome of a settle. The values are those of protocol.Outcome.
type Outcome uint8

// The outcomes of a settle.
const (
	Accept  Outcome = iota // gone for good
	Reject                 // dead-lettered, or gone where no exchange is set for that
	Requeue                // back to its place, its delivery count raised; beyond the delivery limit dead
	Release                // the same, the consumer having gone
)

// Reason says why messages went or died. It is logged.
type Reason uint8

// The reasons.
const (
	Accepted      Reason = iota // by a consumer
	Rejected                    // by a consumer
	Expired                     // lived out their time
	Overflowed                  // dropped from the head of a full queue
	TooOften                    // came back more often than the delivery limit allows
	Purged                      // by a purge
	Lettered                    // published as dead letters, confirmed
	reasonsBehind               // first value that is none
)

// String is the reason as clients see it in x-death ("rejected", "expired", "maxlen", "delivery_limit"), or a word for the log.
func (r Reason) String() string {
	return [...]string{"accepted", "rejected", "expired", "maxlen", "delivery_limit", "purged", "dead-lettered", "?"}[min(r, reasonsBehind)]
}

// Assignment is a decision to deliver a message to a holder.
type Assignment struct {
	Holder Holder
	Offset uint64
	Size   uint32 // of the body, charged to the consumer's credit
	Count  uint32 // earlier deliveries that came back
	Again  bool   // delivered before, as far as the owner knows: all that an owner inherited may have been
}

// DeadLetter is a message that died and waits to be published elsewhere. Number counts the partition's dead letters from 1 and
// is in the log, so that every later owner asks with the same.
type DeadLetter struct {
	Number uint64
	Offset uint64
	Reason Reason
	Count  uint32
	Size   uint32
	// Lane is Number mod DeadLanes. At most one dead letter of a lane is under way, and the next of the lane comes only once it is
	// settled: a producer per (partition, lane) sees numbers that only rise, and one that was refused and is sent again is never
	// overtaken, which a target that deduplicates by "at or below the last" would take for a duplicate and lose.
	Lane uint8
}

// Counts are numbers for people and for answers.
type Counts struct {
	Ready     uint64 // may be delivered
	Unsettled uint64 // held by consumers
	Delayed   uint64 // not yet due
	Dead      uint64 // waiting to be published as dead letters
	Messages  uint64 // all that live, staged settles not yet taken off
	Bytes     int64  // of all that live
	Consumers uint64
}

// The signatures below are all there is for an engine. How it drives them:
//
//	start     New, Restore (if there is a snapshot), ApplyBatch for every confirmed batch above it
//	owner     append the mark; when it is confirmed, ApplyBatch for all that was inherited, in order; then Promote, once. Only then do
//	          Attach and Settle do anything; Assign, Get, Purge and Tick once Claimed was called.
//	publish   if Limited: Admit for every record, in the order it will have in the log; the refused are left out.
//	settle    Settle per item. Every decision that must be logged gathers in the machine.
//	flush     TakeEvents and append what it gives, after the records of the batch. The machine counts on them being appended.
//	confirmed ApplyBatch; then Tick(now), Assign, NextDead; then flush; then set a timer for NextWake.
